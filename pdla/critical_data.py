"""The critical data table (S4D-Cache: He et al., ICDCS 2014, III): which bytes of a file save time on SSD servers."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.errors import FormatError
from pdla.model import Int64Array

MOST_EXTENTS = 1_000_000
"""Of a file; those that save least are left out."""
SAME = 1e-6
"""Of what bytes save: a relative difference that is none. Bytes side by side that save the same are one extent."""
FADING = 0.5
"""What the reads of earlier runs count beside those of the last."""

_Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CriticalData:
    """Bytes of a file that were read by critical requests.

    Attributes:
        starts, stops: shape (n,), half-open ranges, sorted and disjoint.
        saved: shape (n,), seconds that each *byte* saves on the SSD servers: what all reads save that
            contain it, each spread over the bytes of its read.

    Raises:
        FormatError: the ranges are empty, overlap, or are not sorted; or they save nothing.
    """

    starts: Int64Array
    stops: Int64Array
    saved: _Float64Array

    def __post_init__(self) -> None:
        ordered = (self.starts[1:] >= self.stops[:-1]).all() and (self.starts < self.stops).all()
        if not ordered or (self.starts < 0).any() or not (np.isfinite(self.saved) & (self.saved > 0)).all():
            raise FormatError("not critical data: want sorted ranges that save a finite time")

    @classmethod
    def of_reads(cls, starts: Int64Array, stops: Int64Array, seconds: _Float64Array) -> CriticalData:
        """From reads of [start, stop), which may overlap; ``seconds`` is what all reads of such a range save."""
        return _summed(starts, stops, seconds / (stops - starts))

    @property
    def bytes(self) -> int:
        """Number of bytes."""
        return int((self.stops - self.starts).sum())

    def after(self, newer: CriticalData, same_run: bool = False) -> CriticalData:
        """The table after one more run, or one more part of the same run, which found ``newer``."""
        return _summed(
            np.concatenate([self.starts, newer.starts]),
            np.concatenate([self.stops, newer.stops]),
            np.concatenate([self.saved * (1 if same_run else FADING), newer.saved]),
        )

    def without(self, ranges: Int64Array) -> CriticalData:
        """Only the bytes that are in none of ``ranges``: rows [start, stop), sorted and disjoint."""
        cuts = np.unique(np.concatenate([self.starts, self.stops, ranges.ravel()]))
        starts, stops = cuts[:-1], cuts[1:]
        entry = np.maximum(np.searchsorted(self.starts, starts, side="right") - 1, 0)
        gone = np.maximum(np.searchsorted(ranges[:, 0], starts, side="right") - 1, 0)
        kept = (self.starts[entry] <= starts) & (stops <= self.stops[entry])
        kept &= ~((ranges[gone, 0] <= starts) & (stops <= ranges[gone, 1]))
        return CriticalData(starts[kept], stops[kept], self.saved[entry][kept])

    def below(self, size: int) -> CriticalData:
        """Only the bytes that a file of ``size`` bytes has."""
        kept = self.starts < size
        return CriticalData(self.starts[kept], np.minimum(self.stops[kept], size), self.saved[kept])

    def saved_in(self, extents: Int64Array) -> float:
        """Seconds that the bytes of an access map's extent table save: rows (start, length, ...), sorted by start."""
        return float((held_bytes(extents, self.starts, self.stops) * self.saved).sum())

    def to_json(self) -> dict[str, Any]:
        """Plain values: the base64 of the zlib of starts, stops and seconds, little endian, one after the other."""
        columns = (self.starts.astype("<i8"), self.stops.astype("<i8"), self.saved.astype("<f8"))
        packed = zlib.compress(b"".join(column.tobytes() for column in columns), 1)
        return {"columns": base64.b64encode(packed).decode("ascii")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CriticalData:
        """The inverse of ``to_json``.

        Raises:
            FormatError: ``value`` is not what ``to_json`` makes.
        """
        try:
            rows = np.frombuffer(zlib.decompress(base64.b64decode(value["columns"])), "<i8").reshape(3, -1)
            return cls(rows[0].astype(np.int64), rows[1].astype(np.int64), rows[2].view("<f8").astype(np.float64))
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise FormatError(f"not critical data: {error!r}") from error


def held_bytes(extents: Int64Array, starts: Int64Array, stops: Int64Array) -> Int64Array:
    """How many bytes of each range [start, stop) an extent table has: rows (start, length, ...), sorted by start."""
    ends, before = extents[:, 0] + extents[:, 1], np.concatenate([[0], np.cumsum(extents[:, 1])])

    def held_below(at: Int64Array) -> Int64Array:
        number = np.searchsorted(extents[:, 0], at, side="right")
        last = np.maximum(number - 1, 0)
        return np.where(number > 0, before[last] + np.minimum(at, ends[last]) - extents[last, 0], 0)

    return held_below(stops) - held_below(starts)


def _summed(starts: Int64Array, stops: Int64Array, saved: _Float64Array) -> CriticalData:
    """What overlapping ranges save together, in at most ``MOST_EXTENTS`` ranges."""
    bounds, places = np.unique(np.concatenate([starts, stops]), return_inverse=True)
    first, last = places[: len(starts)], places[len(starts) :]
    count = len(bounds)
    change = np.bincount(first, saved, count) - np.bincount(last, saved, count)
    covering = np.bincount(first, minlength=count) - np.bincount(last, minlength=count)
    # A sum of differences can be a little off 0 where nothing is read.
    kept = np.cumsum(covering)[:-1] > 0
    total = np.maximum(np.cumsum(change)[:-1], np.finfo(float).tiny)[kept]
    starts, stops = bounds[:-1][kept], bounds[1:][kept]
    apart = (starts[1:] != stops[:-1]) | ~np.isclose(total[1:], total[:-1], SAME, 0)
    heads, tails = np.concatenate([[True], apart])[: len(starts)], np.concatenate([apart, [True]])[: len(starts)]
    starts, stops, total = starts[heads], stops[tails], total[heads]
    if len(starts) > MOST_EXTENTS:
        most = np.sort(np.argsort(-total, kind="stable")[:MOST_EXTENTS])
        starts, stops, total = starts[most], stops[most], total[most]
    return CriticalData(starts, stops, total)


NOTHING = CriticalData.of_reads(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
"""No byte is critical."""


def chosen(tables: Mapping[str, CriticalData], room: int) -> dict[str, Int64Array]:
    """The bytes that save most and fit into ``room`` bytes: for each file the extent table of an access map.

    Bytes that save more go first, whatever their file: the least is missing where not all have room (Eq. 8 as a
    priority, III-B). Of the last range only a part may be chosen.
    """
    names = list(tables)
    owner = np.concatenate([np.full(len(tables[name].starts), i) for i, name in enumerate(names)] or [np.empty(0, int)])
    starts, stops, saved = (
        np.concatenate([getattr(tables[name], column) for name in names] or [np.empty(0)])
        for column in ("starts", "stops", "saved")
    )
    order = np.lexsort((starts, owner, -saved))
    lengths = (stops - starts)[order]
    left = room - (np.cumsum(lengths) - lengths)
    taken = np.minimum(lengths, np.maximum(left, 0))
    found = {}
    for number, name in enumerate(names):
        mine = (owner[order] == number) & (taken > 0)
        if mine.any():
            found[name] = _extent_table(starts[order][mine], taken[mine])
    return found


def _extent_table(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """Rows (start, length, place), in the order of the file, those that touch joined."""
    order = np.argsort(starts)
    starts, lengths = starts[order].astype(np.int64), lengths[order].astype(np.int64)
    heads = np.flatnonzero(np.concatenate([[True], starts[1:] != starts[:-1] + lengths[:-1]]))
    lengths = np.add.reduceat(lengths, heads)
    return np.stack([starts[heads], lengths, np.cumsum(lengths) - lengths], axis=1)
