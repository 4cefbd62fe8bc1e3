"""Progress: how much is done, how fast, and how long it still takes; on a terminal, for what takes over a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pdla.analyzers.analysis import Analysis
    from pdla.collectors.tracefile import StoredTrace
    from pdla.traces.blocks import Block
    from pdla.traces.trace import Trace

Tell = Callable[[str, float, float], None]
"""Called with what is being done, how much of it is, and how much there is in all."""


@contextmanager
def progress(unit: str = "B") -> Iterator[Tell]:
    """Where to tell how far things are, in ``unit``; each new thing has a bar of its own."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from tqdm import tqdm

    bar = tqdm(disable=True)

    def tell(what: str, done: float, total: float) -> None:
        nonlocal bar
        if bar.disable or (bar.desc, bar.total) != (what, total):
            bar.close()
            bar = tqdm(
                desc=what, total=total, unit=unit, unit_scale=unit != "s", unit_divisor=1024 if unit == "B" else 1000,
                delay=1, leave=False, dynamic_ncols=True, file=sys.stderr,
            )  # fmt: skip
        bar.update(done - bar.n)

    try:
        yield tell
    finally:
        bar.close()


def taken(source: Trace | StoredTrace) -> Iterator[Block]:
    """The blocks of a trace, with how many of its calls have been taken."""
    from pdla.traces.trace import Trace

    done = 0
    with progress(" calls") as tell:
        for block in source.blocks():
            yield block
            done += len(block.rank)
            tell("analyzing", done, len(source.records) if isinstance(source, Trace) else source.rows)


def analyzed(trace: Trace) -> Analysis:
    """The signatures of a trace."""
    from pdla.analyzers.analysis import combine
    from pdla.analyzers.local_patterns import find_local

    return combine(find_local(taken(trace)), trace)
