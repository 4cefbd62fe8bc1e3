"""The calls of a trace a block at a time, for an analysis in bounded memory.

The end of a block depends only on the calls of its ranks, not on those of others. So an analysis
gives the same result however the ranks are dealt to processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.errors import FormatError
from pdla.model import Int64Array, Nest
from pdla.traces.file_views import Tilings, View, runs_of, touched
from pdla.traces.tables import OPS

ROWS = 1 << 18
"""Approximate number of calls in a block, or of extents if calls have many."""
TOO_FAR = "a file view of the trace reaches further than a file can"

COLUMNS = ("rank", "call", "file", "op", "collective", "offset", "length", "t_start", "t_end", "view", "position")

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Block:
    """Data calls in the order of rank and call, and what they touch: extents, and nests of extents.

    Attributes:
        rank, call, file, written, collective, t_start, t_end: of each call, as in RECORD_COLUMNS.
        of: for each extent or nest, in order, its call (an index into the above); None: one extent
            per call.
        offset: of its first byte.
        length: bytes of the extent, or of each extent in the nest.
        form: for a nest: index into ``forms``, nests that start at 0; -1: an extent.
        whole: the block has all calls of its ranks; if not, it has a part of the calls of one rank.
        last: it is the last part of a rank.
    """

    rank: Int64Array
    call: Int64Array
    file: Int64Array
    written: npt.NDArray[np.bool_]
    collective: npt.NDArray[np.bool_]
    t_start: npt.NDArray[np.float64]
    t_end: npt.NDArray[np.float64]
    of: Int64Array | None
    offset: Int64Array
    length: Int64Array
    form: Int64Array
    forms: tuple[Nest, ...]
    whole: bool = True
    last: bool = True


class Records(Protocol):
    """A source of calls."""

    @property
    def views(self) -> Sequence[View]:
        """The views of the calls."""

    def heads(self) -> Int64Array:
        """The first row of each rank, and the number of rows."""

    def rows_of(self, start: int, stop: int) -> Columns:
        """The columns of COLUMNS in these rows; ``op`` is an index into OPS, times are in seconds."""


def blocks(records: Records, part: int = 0, parts: int = 1, rows: int = ROWS) -> Iterator[Block]:
    """What the data calls of one part of the ranks touch, about ``rows`` calls and extents at a time.

    Calls that moved nothing, and calls whose place in the file is not known (offset -1), are left
    out.

    Raises:
        FormatError: a call touches bytes that no file can have.
    """
    heads = records.heads()
    shapes = Tilings.of(records.views)
    for start, stop, whole, last in _spans(_part(heads, part, parts), rows):
        columns = records.rows_of(start, stop)
        chosen = (columns["op"] < 2) & (columns["length"] > 0) & (columns["offset"] >= 0)
        if not chosen.all():
            columns = {name: values[chosen] for name, values in columns.items()}
        yield from _split(columns, shapes, rows, whole, last)


def _part(heads: Int64Array, part: int, parts: int) -> Int64Array:
    """The heads of the ranks whose middle is in this part of the rows, and where they end."""
    middle = (heads[1:] + heads[:-1]) // 2
    of_rank = middle * parts // max(int(heads[-1]), 1)
    low, high = np.searchsorted(of_rank, [part, part + 1])
    return heads[low : high + 1]


def _spans(heads: Int64Array, rows: int) -> Iterator[tuple[int, int, bool, bool]]:
    """(start, stop, whole, last): as many whole ranks as fit, or a part of a rank that does not fit."""
    place, ends = 0, heads[1:]
    while place < len(ends):
        start = int(heads[place])
        fit = int(np.searchsorted(ends, start + rows, side="right"))
        if fit > place:
            yield start, int(ends[fit - 1]), True, True
            place = fit
        else:
            stop = int(ends[place])
            for low in range(start, stop, rows):
                yield low, min(low + rows, stop), False, low + rows >= stop
            place += 1


def _split(columns: Columns, shapes: Tilings, rows: int, whole: bool, last: bool) -> Iterator[Block]:
    """The calls in one block, or in several if they touch many extents."""
    if not shapes.tiles:
        yield _block(columns, shapes, whole, last)
        return
    weight = runs_of(shapes, *(columns[name] for name in ("view", "position", "length")))
    before = np.append(0, np.cumsum(weight))
    rank = columns["rank"]
    heads = np.append(np.flatnonzero(np.diff(rank, prepend=-1)), len(rank)) if whole else np.array([0, len(rank)])
    for start, stop, of_whole, of_last in _spans(before[heads], rows):
        low, high = np.searchsorted(before, [start, stop])
        part = {name: values[low:high] for name, values in columns.items()}
        yield _block(part, shapes, whole and of_whole, last and of_last)


def _block(columns: Columns, shapes: Tilings, whole: bool, last: bool) -> Block:
    found = touched(shapes, *(columns[name] for name in ("view", "position", "offset", "length")))
    if (found.offset < 0).any():
        raise FormatError(TOO_FAR)
    return Block(
        **{name: columns[name] for name in ("rank", "call", "file", "collective", "t_start", "t_end")},
        written=columns["op"] == OPS.index("write"),
        of=found.call,
        offset=found.offset,
        length=found.length,
        form=found.form,
        forms=found.forms,
        whole=whole,
        last=last,
    )


class InMemory:
    """The records of a trace in memory."""

    def __init__(self, records: pd.DataFrame, views: Sequence[View]) -> None:
        self.views = views
        self._columns = {name: records[name].to_numpy() for name in COLUMNS if name != "op"}
        self._op = records["op"].cat.set_categories(list(OPS)).cat.codes.to_numpy()

    def heads(self) -> Int64Array:
        """See Records."""
        rank = self._columns["rank"]
        return np.append(np.flatnonzero(np.diff(rank, prepend=-1)), len(rank)).astype(np.int64)

    def rows_of(self, start: int, stop: int) -> Columns:
        """See Records."""
        return {"op": self._op[start:stop], **{name: values[start:stop] for name, values in self._columns.items()}}
