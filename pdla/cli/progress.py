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


TICK = 0.5
"""Seconds after which a bar is drawn again."""


def draws(stream: TextIO) -> bool:
    """Whether it is a terminal on which lines can be drawn again."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(unit: str = "B") -> Iterator[Advance]:
    """A callback for progress in ``unit``. Each new name of work gets a bar of its own."""
    if not draws(sys.stderr):
        yield lambda what, done, total: None
        return
    from tqdm import tqdm

    bar, ended, ticker = tqdm(disable=True), Event(), Thread(target=lambda: tick(), daemon=True)

    def tick() -> None:
        """Show the time that passes, also while nothing is done."""
        while not ended.wait(TICK):
            bar.update(0)

    def advance(what: str, done: float, total: float) -> None:
        nonlocal bar
        if bar.disable or (bar.desc, bar.total) != (what, total):
            bar.close()
            bar = tqdm(
                desc=what, total=total, unit=unit, unit_scale=unit == "B" or (unit != "s" and total >= 1000),
                unit_divisor=1024 if unit == "B" else 1000,
                delay=1, miniters=0, leave=False, dynamic_ncols=True, file=sys.stderr,
            )  # fmt: skip
        if not ticker.is_alive():
            ticker.start()
        bar.update(done - bar.n)

    try:
        yield advance
    finally:
        ended.set()
        if ticker.is_alive():
            ticker.join()
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
