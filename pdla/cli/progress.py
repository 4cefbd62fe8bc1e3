"""Progress bars, for work that takes over a second: how much is done, how fast, and the time left.

Only a terminal that can draw them shows them, not one with ``TERM=dumb``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pdla.analyzers.analysis import Analysis
    from pdla.collectors.tracefile import StoredTrace
    from pdla.traces.blocks import Block
    from pdla.traces.trace import Trace

Advance = Callable[[str, float, float], None]
"""Called with the name of the work, the amount done, and the total amount."""


TICK = 0.1
"""Seconds after which bars are drawn again."""


def draws(stream: TextIO) -> bool:
    """Whether it is a terminal on which lines can be drawn again."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(unit: str = "B") -> Iterator[Advance]:
    """A callback for progress in ``unit``. Each new name of work gets a bar of its own."""
    if not draws(sys.stderr):
        yield lambda what, done, total: None
        return
    # RATIONALE: only one thread draws, and it is not the main one. The exception of Ctrl-C may come while the main
    # thread takes a lock of the bar, which would then stay locked for ever.
    work, ended = _Work(), Event()
    artist = Thread(target=_draw, args=(work, ended, unit), daemon=True)

    def advance(what: str, done: float, total: float) -> None:
        work.now = what, done, total
        if not artist.is_alive():
            artist.start()

    try:
        yield advance
    finally:
        ended.set()
        if artist.is_alive():
            artist.join()


class _Work:
    """What is being done: its name, the amount done, and the total amount."""

    now: tuple[str, float, float] = ("", 0, 0)


def _draw(work: _Work, ended: Event, unit: str) -> None:
    """Draw bars until the work has ended; the time that passes is drawn, too, while nothing is done."""
    from tqdm import tqdm

    bar = tqdm(disable=True)
    while not ended.wait(TICK):
        what, done, total = work.now
        if bar.disable or (bar.desc, bar.total) != (what, total):
            bar.close()
            bar = tqdm(
                desc=what, total=total, unit=unit, unit_scale=unit == "B" or (unit != "s" and total >= 1000),
                unit_divisor=1024 if unit == "B" else 1000,
                delay=1, miniters=0, leave=False, dynamic_ncols=True, file=sys.stderr,
            )  # fmt: skip
        bar.update(done - bar.n)
    bar.close()


def taken(source: Trace | StoredTrace) -> Iterator[Block]:
    """The blocks of a trace, with a progress bar of the calls read so far."""
    from pdla.traces.trace import Trace

    done = 0
    with progress(" calls") as advance:
        for block in source.blocks():
            yield block
            done += len(block.rank)
            advance("analyzing", done, len(source.records) if isinstance(source, Trace) else source.rows)


def analyzed(trace: Trace) -> Analysis:
    """The signatures of a trace, with a progress bar."""
    from pdla.analyzers.analysis import combine
    from pdla.analyzers.local_patterns import find_local

    return combine(find_local(taken(trace)), trace)
