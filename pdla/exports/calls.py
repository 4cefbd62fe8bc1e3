"""When the calls of a trace were made and what they touch, a block of calls at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.tracefile import StoredTrace
from pdla.model import Int64Array
from pdla.traces.file_views import Tilings, extents, first_offsets, run_counts, runs_of, touched

Columns = Mapping[str, npt.NDArray[Any]]

LOOKED_AT = 1 << 18
"""About so many extents are in memory at a time; a single call may have more."""


def span(trace: StoredTrace) -> tuple[float, float]:
    """The first begin and the last end of its calls, in seconds; (0, 0) if it has none."""
    first, last = [], []
    for table in (trace.records, trace.posix):
        for block in table.in_blocks("t_start", "t_end") if table else ():
            first.append(float(block["t_start"].min()))
            last.append(float(block["t_end"].max()))
    return min(first, default=0.0), max(last, default=0.0)


def only(block: Columns, chosen: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    """The chosen rows."""
    return {name: values[chosen] for name, values in block.items()}


def are_placed(columns: Columns) -> npt.NDArray[np.bool_]:
    """Which calls moved bytes whose place in the file is known."""
    found: npt.NDArray[np.bool_] = (columns["op"] < 2) & (columns["length"] > 0) & (columns["offset"] >= 0)
    return found


def accesses(trace: StoredTrace, *names: str) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The rows of Trace.accesses() a block at a time: ``offset`` and ``length`` of each extent, ``names`` of its call.

    Raises:
        FormatError: the trace is cut short or damaged.
    """
    shapes = Tilings.of(trace.views)
    for block in trace.records.in_blocks("op", "view", "position", "offset", "length", *names):
        placed = only(block, are_placed(block))
        for part in _parts(placed, run_counts(shapes, *_spans(placed))):
            call, offset, length = extents(shapes, *_places(part))
            rows = {name: part[name] if call is None else part[name][call] for name in ("op", *names)}
            yield {**rows, "offset": offset, "length": length}


def extent_counts(shapes: Tilings, placed: Columns) -> Int64Array:
    """How many extents each of these calls touches; all of them moved bytes whose place is known."""
    counts = []
    for part in _parts(placed, runs_of(shapes, *_spans(placed))):
        found = touched(shapes, *_places(part))
        if found.call is None:
            counts.append(np.ones(len(part["view"]), np.int64))
        else:
            sizes = np.array([*(form.requests for form in found.forms), 1], np.int64)[found.form]
            counts.append(np.bincount(found.call, sizes, len(part["view"])).astype(np.int64))
    return np.concatenate([np.zeros(0, np.int64), *counts])


def ends(trace: StoredTrace, placed: Columns) -> Int64Array:
    """The offset behind the last byte that each of these calls touches."""
    last = placed["position"] + placed["length"] - 1
    return first_offsets(trace.views, placed["view"], last) + 1


def _places(part: Columns) -> tuple[Int64Array, ...]:
    return tuple(part[name] for name in ("view", "position", "offset", "length"))


def _spans(part: Columns) -> tuple[Int64Array, ...]:
    return tuple(part[name] for name in ("view", "position", "length"))


def _parts(columns: Columns, counts: Int64Array) -> Iterator[Columns]:
    """The same calls, which touch ``counts`` extents, in parts that touch about LOOKED_AT."""
    cuts = (np.flatnonzero(np.diff(np.cumsum(counts) // LOOKED_AT)) + 1).tolist()
    for low, high in zip([0, *cuts], [*cuts, len(counts)], strict=True):
        yield {name: values[low:high] for name, values in columns.items()}
