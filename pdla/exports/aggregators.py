"""Which ranks read and wrote the bytes of a collective call: the aggregators that the MPI library chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.collectors.tracefile import StoredTrace
from pdla.exports.calls import Columns, only
from pdla.exports.tracks import Tracks, on_tracks
from pdla.model import Int64Array

MOST = 16
"""So many ranks are looked at for each collective call, those that made a request first."""

_FIELDS = ("row", "file", "rank", "start", "middle", "track", "low", "high")


class Arrows(NamedTuple):
    """From ``call`` (an index of a collective call) to a POSIX call: its rank, its track, its middle in nanoseconds."""

    call: Int64Array
    rank: Int64Array
    track: Int64Array
    middle: Int64Array


@dataclass(frozen=True)
class Requests:
    """What was read and written in collective calls: a row for each such call of a rank that made POSIX calls.

    ``columns`` are sorted by file and start: ``row`` and ``rank`` of the collective call; ``file``;
    of the first POSIX read or write ``start`` and ``middle`` (nanoseconds) and ``track``; and the
    bytes from ``low`` to ``high`` of the file, in which all of them are.
    """

    columns: dict[str, Int64Array]

    @classmethod
    def of(cls, trace: StoredTrace, tracks: Tracks) -> Requests:
        """Those of a trace; none if its POSIX calls were not recorded. ``tracks`` are for its POSIX calls."""
        parts = [{name: np.zeros(0, np.int64) for name in _FIELDS}]
        if trace.posix:
            first, collective = _collective_rows(trace)
            for block in on_tracks(trace.posix, tracks, "call", "file", "op", "offset", "length"):
                inside = (block["call"] >= 0) & (block["op"] < 2) & (block["length"] > 0) & (block["offset"] >= 0)
                made = only(block, inside)
                row = first[made["rank"]] + made["call"]
                made = only({**made, "row": row}, collective[row])
                middle, high = (made["start"] + made["end"]) // 2, made["offset"] + made["length"]
                parts.append(_by_call({**made, "middle": middle, "low": made["offset"], "high": high}))
        columns = _by_call({name: np.concatenate([part[name] for part in parts]) for name in _FIELDS})
        order = np.lexsort((columns["start"], columns["file"]))
        return cls({name: values[order] for name, values in columns.items()})

    def arrows(self, calls: Columns, end: Int64Array) -> Arrows:
        """From each collective call to each rank that made requests for it.

        These are the ranks whose first request, in the time of the call on its file, begins before
        those of all but MOST others, and that touched bytes between the first and the last one of
        the call. ``calls`` has ``file``, ``start``, ``end`` (nanoseconds) and ``offset``; ``end``
        is the offset behind the last byte.
        """
        low, high = (np.zeros(len(end), np.int64) for _ in range(2))
        for file in np.unique(calls["file"]):
            begin, stop = np.searchsorted(self.columns["file"], [file, file + 1])
            on_file, starts = np.flatnonzero(calls["file"] == file), self.columns["start"][begin:stop]
            low[on_file] = begin + np.searchsorted(starts, calls["start"][on_file])
            high[on_file] = begin + np.searchsorted(starts, calls["end"][on_file], side="right")
        number = np.minimum(high - low, MOST)
        call = np.repeat(np.arange(len(end)), number)
        place = low[call] + np.arange(len(call)) - np.repeat(np.cumsum(number) - number, number)
        found = {name: values[place] for name, values in self.columns.items()}
        touching = (found["low"] < end[call]) & (found["high"] > calls["offset"][call])
        return Arrows(call[touching], *(found[name][touching] for name in ("rank", "track", "middle")))


def _collective_rows(trace: StoredTrace) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """The row of each rank's first call; of each row whether it is a collective read or write."""
    ranks, collective = [], []
    for block in trace.records.in_blocks("rank", "op", "collective"):
        ranks.append(np.bincount(block["rank"], minlength=trace.about.ranks))
        collective.append(block["collective"] & (block["op"] < 2))
    rows = np.sum([np.zeros(trace.about.ranks, np.int64), *ranks], axis=0)
    return np.cumsum(rows) - rows, np.concatenate([np.zeros(0, np.bool_), *collective])


def _by_call(made: dict[str, Any]) -> dict[str, Int64Array]:
    """One row for each collective call of a rank and each file."""
    order = np.lexsort((made["start"], made["file"], made["row"]))
    columns = {name: np.asarray(made[name], np.int64)[order] for name in _FIELDS}
    if not len(order):
        return columns
    heads = np.flatnonzero(np.diff(columns["row"], prepend=-1) | np.diff(columns["file"], prepend=-2))
    low, high = np.minimum.reduceat(columns["low"], heads), np.maximum.reduceat(columns["high"], heads)
    return {**{name: values[heads] for name, values in columns.items()}, "low": low, "high": high}
