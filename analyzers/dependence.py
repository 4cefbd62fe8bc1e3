"""Which accesses touch bytes that are written: read after write, write after read, write after write.

Also: which patterns' bytes other ranks read before MPI promises that they see them, for example
after only a barrier.

Signatures are first compared as loops: most pairs share all bytes or none, and one ends before the
other begins. What the loops do not decide, the accesses do, by interval arithmetic: their bounds
cut a file into segments, each with the times of its first and last read and write. An access is
compared with the segments that it covers, never byte by byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.accessmap import cover_minimum
from pdla.analyzers.analysis import Analysis, Irregular
from pdla.model import Int64Array, Loop, Signature
from pdla.traces.trace import Trace

RAW, WAR, WAW = 1, 2, 4
DEPENDENCES = {RAW: "read-after-write", WAR: "write-after-read", WAW: "write-after-write"}

UNSYNCED = 8
"""Other ranks read what a pattern has written before a sync or a close."""

MOST_PAIRS = 100_000
"""Number of pairs of signatures that are compared as loops; if there are more, their accesses are compared."""

_NEVER = np.iinfo(np.int64).max

_PUBLISH = ("MPI_File_sync", "MPI_File_close")
_OPEN = "MPI_File_open"


class _Part(NamedTuple):
    """A signature, or (number -1) the irregular accesses of a rank: bytes [low, high), seconds ``first`` to ``last``.

    ``strides`` are those of all its loops, ``length`` is the longest request's. ``loops`` are the
    shortest loops, positive and the largest first, around ``block`` contiguous bytes, if no byte is
    accessed twice; otherwise None.
    """

    number: int
    write: bool
    low: int
    high: int
    first: float
    last: float
    length: int
    strides: tuple[int, ...] | None
    block: int
    loops: tuple[Loop, ...] | None


def pattern_dependences(analysis: Analysis, accesses: pd.DataFrame) -> list[int]:
    """For each signature of an analysis the dependences of its accesses: a sum of RAW, WAR and WAW.

    Args:
        accesses: those of the analyzed trace (ACCESS_COLUMNS).
    """
    flags, unknown = loop_dependences(analysis)
    if unknown[:-1].any():
        rows = np.flatnonzero(unknown[analysis.owner])
        owner = analysis.owner[rows]
        names = ["file", "op", "offset", "length", "t_start"]
        found = dependences(accesses[names] if len(rows) == len(accesses) else accesses[names].iloc[rows])
        for flag in DEPENDENCES:
            for number in np.unique(owner[(found & flag) != 0]).tolist():
                if number >= 0:
                    flags[number] |= flag
    return flags


def write_dependences(analysis: Analysis, trace: Trace) -> list[int]:
    """``pattern_dependences``, and UNSYNCED for patterns that write every byte once, and before it is read."""
    accesses = trace.accesses()
    flags = pattern_dependences(analysis, accesses)
    asked = [one.op == "write" and depends == RAW for one, depends in zip(analysis.signatures, flags, strict=True)]
    if any(asked):
        writes = np.append(asked, False)[analysis.owner]
        reads = (accesses["op"] == "read").to_numpy(np.bool_)
        file, needed = accesses["file"].to_numpy(np.int64), accesses[["rank", "call", "offset", "length"]]
        for written in np.unique(file[writes]).tolist():
            rows = np.flatnonzero((file == written) & (writes | reads))
            early = rows[read_early(trace.records, needed.iloc[rows], writes[rows], written)]
            for number in np.unique(analysis.owner[early]).tolist():
                flags[number] |= UNSYNCED
    return flags


def loop_dependences(analysis: Analysis) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """What follows from the loops: the dependences of each signature, and which of them only its accesses would decide.

    The last entry of the second array stands for the irregular accesses.
    """
    flags = [0] * len(analysis.signatures)
    unknown = np.zeros(len(analysis.signatures) + 1, np.bool_)
    files: dict[str, list[_Part]] = {}
    for number, signature in enumerate(analysis.signatures):
        files.setdefault(signature.file, []).append(_regular(number, signature))
    for part in analysis.irregular:
        files.setdefault(part.file, []).append(_irregular(part))
    for parts in files.values():
        if any(part.write for part in parts):
            _compare(parts, flags, unknown)
    return flags, unknown


def _regular(number: int, signature: Signature) -> _Part:
    low, high = signature.extent
    times = (signature.t_start, signature.t_end)
    op = signature.op == "write"
    if signature.growth:
        return _Part(number, op, low, high, *times, 0, None, 0, None)
    strides = tuple(abs(loop.stride) for loop in signature.loops)
    span = block = signature.length
    kept: list[Loop] = []
    for stride, count in sorted((abs(loop.stride), loop.count) for loop in signature.loops if loop.count > 1):
        if stride < span:
            return _Part(number, op, low, high, *times, signature.length, strides, 0, None)
        if stride == block and not kept:
            block *= count
        elif kept and stride == kept[-1].stride * kept[-1].count:
            kept[-1] = Loop(kept[-1].stride, kept[-1].count * count)
        else:
            kept.append(Loop(stride, count))
        span += stride * (count - 1)
    return _Part(number, op, low, high, *times, signature.length, strides, block, tuple(reversed(kept)))


def _irregular(part: Irregular) -> _Part:
    low, high = part.extent
    return _Part(-1, part.op == "write", low, high, -math.inf, math.inf, 0, None, 0, None)


def _compare(parts: Sequence[_Part], flags: list[int], unknown: npt.NDArray[np.bool_]) -> None:
    """Add to ``flags`` what follows from the loops of these parts of one file; mark parts whose loops do not decide."""
    for part in parts:
        # The loops do not say which of a part's own accesses came first.
        if part.write and part.loops is None:
            unknown[part.number] = True
    for pairs, (one, other) in enumerate(_near(parts)):
        if pairs == MOST_PAIRS:
            unknown[[part.number for part in parts]] = True
            return
        if not (one.write or other.write):
            continue
        shared = _share(one, other)
        if shared is False:
            continue
        earlier, later = (one, other) if one.first <= other.first else (other, one)
        if shared is None or not earlier.last < later.first:
            unknown[[one.number, other.number]] = True
            continue
        flag = (WAW if earlier.write else WAR) if later.write else RAW
        for part in (one, other):
            if part.number >= 0:
                flags[part.number] |= flag


def _near(parts: Sequence[_Part]) -> Iterator[tuple[_Part, _Part]]:
    """The pairs of parts whose ranges of the file overlap."""
    open_ones: list[_Part] = []
    for part in sorted(parts, key=lambda part: part.low):
        open_ones = [other for other in open_ones if other.high > part.low]
        for other in open_ones:
            yield other, part
        open_ones.append(part)


def _share(one: _Part, other: _Part) -> bool | None:
    """Whether two parts whose ranges overlap have a byte in common; None if their loops do not decide."""
    if one.loops is not None and (one.low, one.block, one.loops) == (other.low, other.block, other.loops):
        return True
    for dense, part in ((one, other), (other, one)):
        # A part has the first and the last byte of its range.
        if dense.loops == () and (dense.low <= part.low < dense.high or dense.low < part.high <= dense.high):
            return True
    if one.strides is None or other.strides is None:
        return None
    # Every access is at its start's place in a period that divides all strides.
    period = math.gcd(*one.strides, *other.strides)
    if period and one.length + other.length <= period:
        ahead = (other.low - one.low) % period
        if one.length <= ahead <= period - other.length:
            return False
    return None


def dependences(accesses: pd.DataFrame) -> npt.NDArray[np.uint8]:
    """For each access its dependences, as the earlier or the later one: a sum of RAW, WAR and WAW.

    One access is before another if it started before it, whatever ranks they belong to.

    Args:
        accesses: with the columns file, op, offset, length and t_start (ACCESS_COLUMNS).
    """
    file, start, length = (accesses[name].to_numpy(np.int64) for name in ("file", "offset", "length"))
    write = (accesses["op"] == "write").to_numpy(np.bool_)
    time = _nanoseconds(accesses["t_start"])
    flags = np.zeros(len(accesses), np.uint8)
    for written in np.unique(file[write]).tolist():
        rows = np.flatnonzero(file == written)
        rows = rows[np.argsort(start[rows], kind="stable")]
        rows = rows[_shared(start[rows], start[rows] + length[rows])]
        if len(rows):
            flags[rows] = _of_file(start[rows], start[rows] + length[rows], write[rows], time[rows])
    return flags


def _shared(start: Int64Array, stop: Int64Array) -> npt.NDArray[np.bool_]:
    """Which of these ranges, sorted by their starts, overlap another one."""
    shared = np.zeros(len(start), np.bool_)
    shared[1:] = start[1:] < np.maximum.accumulate(stop)[:-1]
    shared[:-1] |= stop[:-1] > start[1:]
    return shared


def _of_file(
    start: Int64Array, stop: Int64Array, write: npt.NDArray[np.bool_], time: Int64Array
) -> npt.NDArray[np.uint8]:
    """The flags of ranges, sorted by their starts."""
    bounds = _bounds(start, stop)
    first, last = np.searchsorted(bounds, start), np.searchsorted(bounds, stop)
    flags = np.zeros(len(start), np.int64)
    for by_write in (False, True):
        by = write == by_write
        before = _range_minimum(cover_minimum(first[by], last[by], time[by], len(bounds)), first, last) < time
        after = _range_minimum(cover_minimum(first[by], last[by], -time[by], len(bounds)), first, last) < -time
        if by_write:
            flags += np.where(write, WAW * (before | after), RAW * before + WAR * after)
        else:
            flags |= np.where(write, WAR * before + RAW * after, 0)
    return flags.astype(np.uint8)


def _bounds(*places: Int64Array) -> Int64Array:
    """All places in order, each once."""
    ordered = np.sort(np.concatenate(places), kind="stable")  # sorted runs, or nearly so
    bounds: Int64Array = ordered[np.append(True, np.diff(ordered) != 0)]
    return bounds


def _range_minimum(values: Int64Array, first: Int64Array, last: Int64Array) -> Int64Array:
    """The minimum of ``values[first:last]`` for every pair (not empty), from minima over windows of 1, 2, 4, ..."""
    result = np.empty(len(first), dtype=np.int64)
    levels = np.frexp(last - first)[1] - 1
    minima = values
    for level in range(int(levels.max()) + 1):
        at = levels == level
        result[at] = np.minimum(minima[first[at]], minima[last[at] - (1 << level)])
        minima = np.minimum(minima[: -(1 << level)], minima[1 << level :])
    return result


def read_early(
    records: pd.DataFrame, accesses: pd.DataFrame, write: npt.NDArray[np.bool_], file: int
) -> npt.NDArray[np.bool_]:
    """Which of these writes to one file another rank reads before MPI promises that it sees them.

    MPI promises that after the writer's next sync or close, followed by a sync or an open of the
    reader. A rank sees its own writes at once, so ranks are compared bit by bit: two ranks differ
    in at least one bit.

    Args:
        accesses: with the columns rank, call, offset and length (ACCESS_COLUMNS).
    """
    start, rank = (accesses[name].to_numpy(np.int64) for name in ("offset", "rank"))
    stop = start + accesses["length"].to_numpy(np.int64)
    published, seen = _synced(records, accesses, file)
    early = np.zeros(len(accesses), np.bool_)
    reads = np.flatnonzero(~write & (seen < published[write].max()))
    writes = np.flatnonzero(write & (published > seen[reads].min(initial=_NEVER)))
    if not len(reads) or not len(writes):
        return early
    bounds = _bounds(start[reads], stop[reads], start[writes], stop[writes])
    first, last = np.searchsorted(bounds, start), np.searchsorted(bounds, stop)
    for bit in range(int(rank.max()).bit_length()):
        for value in (0, 1):
            by = reads[rank[reads] >> bit & 1 == value]
            of = writes[rank[writes] >> bit & 1 != value]
            if len(by) and len(of):
                least = cover_minimum(first[by], last[by], seen[by], len(bounds))
                early[of] |= _range_minimum(least, first[of], last[of]) < published[of]
    return early


def _synced(records: pd.DataFrame, accesses: pd.DataFrame, file: int) -> tuple[Int64Array, Int64Array]:
    """For each access to a file: when its rank's next sync or close begins, and when its last such call or open ended.

    If these calls are collective, they have numbers instead of times, which do not depend on
    clocks.
    """
    rows = np.flatnonzero(records["kind"].isin((*_PUBLISH, _OPEN)) & (records["file"] == file))
    events = records.iloc[rows].sort_values(["rank", "call"])
    kind = events["kind"].astype(str).to_numpy()
    begin, end = _nanoseconds(events["t_start"]), _nanoseconds(events["t_end"])
    ranks, times = np.unique(events["rank"], return_counts=True)
    if set(ranks) >= set(accesses["rank"]) and _collective(kind, begin, end, times):
        begin = end = np.tile(np.arange(times[0]), len(ranks))
    calls = int(records["call"].max()) + 1
    at, place = (table["rank"].to_numpy(np.int64) * calls + table["call"].to_numpy() for table in (accesses, events))
    publish = np.isin(kind, _PUBLISH)
    following = np.searchsorted(place[publish], at)
    previous = np.searchsorted(place, at) - 1
    # The neighbour may belong to another rank, or there may be none.
    own_next = np.append(place[publish], -1)[following] // calls == at // calls
    own_last = np.append(place, -1)[previous] // calls == at // calls
    published = np.where(own_next, np.append(begin[publish], _NEVER)[following], _NEVER)
    return published, np.where(own_last, np.append(end, -1)[previous], -1)


def _collective(kind: npt.NDArray[np.object_], begin: Int64Array, end: Int64Array, times: Int64Array) -> bool:
    """Whether all ranks make these calls together, ``times`` each: equal calls, all in an open at one time."""
    if not len(times) or times.min() != times.max():
        return False
    kinds = kind.reshape(len(times), -1)
    opens = kinds[0] == _OPEN
    latest, earliest = begin.reshape(kinds.shape).max(axis=0), end.reshape(kinds.shape).min(axis=0)
    return bool((kinds == kinds[0]).all() and opens.any() and (latest <= earliest)[opens].all())


def _nanoseconds(seconds: pd.Series[float]) -> Int64Array:
    nanoseconds: Int64Array = np.rint(seconds.to_numpy(np.float64) * 1e9).astype(np.int64)
    return nanoseconds
