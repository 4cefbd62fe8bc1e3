"""Progress: how much is done, how fast, and how long it still takes; on a terminal, for what takes over a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
