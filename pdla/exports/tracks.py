"""Calls on the tracks of a viewer: one below the other where they overlap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.tracefile import StoredTable
from pdla.model import Int64Array
from pdla.traces.tables import nanoseconds

LEVELS = ("MPI-IO", "POSIX")
MPI_IO, POSIX = range(2)


class Tracks:
    """Deals the calls of one level to tracks of their rank, so that no two on a track overlap.

    RATIONALE: viewers nest what overlaps on a track, or drop it. A call goes to the first track
    that is free, so a rank that makes one call at a time needs one. A track's number belongs to one
    rank only, and is no rank: Perfetto looks tracks up without the rank, too.
    """

    def __init__(self, level: int, processes: int) -> None:
        self._level, self._processes = level, processes
        self._rank, self._ends = -1, [0]
        self.used: dict[int, int] = {}
        """How many tracks each rank has."""

    def number(self, rank: Any, track: Any) -> Any:
        """The number of a rank's ``track``, 0, 1, 2, ...; for arrays, too."""
        return (len(LEVELS) * track + self._level + 1) * self._processes + rank

    def of(self, rank: npt.NDArray[np.integer], start: Int64Array, end: Int64Array) -> Int64Array:
        """The numbers of the tracks of the next calls, which are sorted by rank; times in nanoseconds."""
        found = np.zeros(len(rank), np.int64)
        for low, high in pairwise(np.append(np.flatnonzero(np.diff(rank, prepend=-1)), len(rank)).tolist()):
            if rank[low] != self._rank:
                self._rank, self._ends = int(rank[low]), [int(start[low])]
            found[low:high] = self._deal(start[low:high], end[low:high])
            self.used[self._rank] = len(self._ends)
        numbers: Int64Array = self.number(rank.astype(np.int64), found)
        return numbers

    def _deal(self, start: Int64Array, end: Int64Array) -> Int64Array | list[int]:
        latest = np.maximum.accumulate(np.append(max(self._ends), end))
        if (start >= latest[:-1]).all():
            self._ends[0] = int(latest[-1])
            return np.zeros(len(start), np.int64)
        found = []
        for begin, stop in zip(start.tolist(), end.tolist(), strict=True):
            track = next((track for track, busy in enumerate(self._ends) if busy <= begin), len(self._ends))
            self._ends[track : track + 1] = [stop]
            found.append(track)
        return found


def on_tracks(table: StoredTable, tracks: Tracks, *names: str) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The calls in blocks: these columns, and ``start``, ``end`` (nanoseconds) and ``track`` (its number).

    Raises:
        FormatError: the trace is cut short or damaged.
    """
    for block in table.in_blocks("rank", "t_start", "t_end", *names):
        block["start"], block["end"] = nanoseconds(block["t_start"]), nanoseconds(block["t_end"])
        block["track"] = tracks.of(block["rank"], block["start"], block["end"])
        yield block
