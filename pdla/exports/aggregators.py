"""Which ranks read and wrote the bytes of a collective call: the aggregators that the MPI library chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pdla.collectors.tracefile import StoredTrace
from pdla.exports.calls import Columns, only
from pdla.exports.tracks import Tracks, on_tracks
from pdla.model import Int64Array
from pdla.traces.tables import number_calls

MOST = 16
"""So many ranks are looked at for each collective call, those that made a request first."""

_POSIX = ("call", "file", "op", "offset", "length")
_FIELDS = ("row", "rank", "start", "middle", "track", "low", "high")


class Arrows(NamedTuple):
    """From ``call`` (an index of a collective call) to a POSIX call: its rank, its track, its middle in nanoseconds."""

    call: Int64Array
    rank: Int64Array
    track: Int64Array
    middle: Int64Array


@dataclass(frozen=True)
class Requests:
    """What was read and written in collective calls: a row for each such call of a rank that made POSIX calls.

    All ranks make the collective calls on a file in the same order. So the calls with the same
    number in their rank and file belong together. RATIONALE: times do not tell, as a rank may leave
    a call before an aggregator writes its bytes.

    Attributes:
        keys: of all MPI calls, equal for calls that belong together; -1: no collective read or
            write.
        columns: sorted by key and ``start``: ``row`` and ``rank`` of the collective call;
            ``start``, ``middle`` (nanoseconds) and ``track`` of the first POSIX read or write; and
            the bytes from ``low`` to ``high`` of the file, in which all of them are.
    """

    keys: Int64Array
    columns: dict[str, Int64Array]

    @classmethod
    def of(cls, trace: StoredTrace, tracks: Tracks) -> Requests:
        """Those of a trace; none if its POSIX calls were not recorded. ``tracks`` are for its POSIX calls."""
        parts = [{name: np.zeros(0, np.int64) for name in _FIELDS}]
        first, keys = _keys(trace) if trace.posix else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        for block in on_tracks(trace.posix, tracks, *_POSIX) if trace.posix else ():
            inside = (block["call"] >= 0) & (block["op"] < 2) & (block["length"] > 0) & (block["offset"] >= 0)
            made = only(block, inside)
            made["row"] = first[made["rank"]] + made["call"]
            made = only(made, keys[made["row"]] >> 32 == made["file"])
            middle, high = (made["start"] + made["end"]) // 2, made["offset"] + made["length"]
            parts.append(_by_call({**made, "middle": middle, "low": made["offset"], "high": high}))
        columns = _by_call({name: np.concatenate([part[name] for part in parts]) for name in _FIELDS})
        order = np.lexsort((columns["start"], keys[columns["row"]]))
        return cls(keys, {name: values[order] for name, values in columns.items()})

    def arrows(self, calls: Columns, end: Int64Array) -> Arrows:
        """From each collective call to the ranks that made requests for it.

        These are the first MOST ranks that made requests in the call, of those that touched bytes
        between the first and the last one of the call, after it began. ``calls`` has ``row``,
        ``start`` (nanoseconds) and ``offset``; ``end`` is the offset behind the last byte.
        """
        keys, key = self.keys[self.columns["row"]], self.keys[calls["row"]]
        low, high = np.searchsorted(keys, key), np.searchsorted(keys, key, side="right")
        number = np.minimum(high - low, MOST)
        call = np.repeat(np.arange(len(end)), number)
        place = low[call] + np.arange(len(call)) - np.repeat(np.cumsum(number) - number, number)
        found = {name: values[place] for name, values in self.columns.items()}
        touching = (found["low"] < end[call]) & (found["high"] > calls["offset"][call])
        touching &= found["start"] >= calls["start"][call]
        return Arrows(call[touching], *(found[name][touching] for name in ("rank", "track", "middle")))


def _keys(trace: StoredTrace) -> tuple[Int64Array, Int64Array]:
    """The first row of each rank; of each row file << 32 | number among the rank's collective calls on the file."""
    files = len(trace.files)
    rows, keys = np.zeros(trace.about.ranks, np.int64), [np.zeros(0, np.int64)]
    last, before = -1, np.zeros(files, np.int64)  # collective calls of the last rank so far
    for block in trace.records.in_blocks("rank", "file", "op", "collective"):
        rank = block["rank"].astype(np.int64)
        rows += np.bincount(rank, minlength=len(rows))
        chosen = np.flatnonzero(block["collective"] & (block["op"] < 2) & (block["file"] >= 0))
        of, file = rank[chosen], block["file"][chosen].astype(np.int64)
        order = np.argsort(of * files + file, kind="stable")
        found = np.empty(len(order), np.int64)
        found[order] = number_calls((of * files + file)[order])
        found += np.where(of == last, before[file], 0)
        if rank[-1] != last:
            last, before = int(rank[-1]), np.zeros(files, np.int64)
        before += np.bincount(file[of == last], minlength=files)
        keys.append(np.full(len(rank), -1, np.int64))
        keys[-1][chosen] = file << 32 | found
    return np.cumsum(rows) - rows, np.concatenate(keys)


def _by_call(made: dict[str, Any]) -> dict[str, Int64Array]:
    """One row for each collective call of a rank."""
    order = np.lexsort((made["start"], made["row"]))
    columns = {name: np.asarray(made[name], np.int64)[order] for name in _FIELDS}
    if not len(order):
        return columns
    heads = np.flatnonzero(np.diff(columns["row"], prepend=-1))
    low, high = np.minimum.reduceat(columns["low"], heads), np.maximum.reduceat(columns["high"], heads)
    return {**{name: values[heads] for name, values in columns.items()}, "low": low, "high": high}
