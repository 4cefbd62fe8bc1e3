"""Which accesses touch bytes that are written: read after write, write after read, write after write.

Signatures are compared as loops first: most have all bytes in common or none, and one ends before the other begins.
What the loops do not decide, the accesses do, by interval arithmetic: their bounds cut a file into segments, each with
the times of its first and last read and write. An access is compared with the segments that it covers, never byte by
byte.
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

RAW, WAR, WAW = 1, 2, 4
DEPENDENCES = {RAW: "read-after-write", WAR: "write-after-read", WAW: "write-after-write"}

MOST_PAIRS = 100_000
"""Pairs of signatures that are compared as loops; more have their accesses looked at."""

_NEVER = np.iinfo(np.int64).max


class _Part(NamedTuple):
    """A signature, or (number -1) what is irregular of a rank: bytes [low, high), from ``first`` to ``last`` seconds.

    ``strides`` are all of its loops', ``length`` the longest request's. ``loops`` are the shortest ones, positive and
    the largest first, around ``block`` contiguous bytes, where no byte is accessed twice; else None.
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
    """For each signature of an analysis the dependences that its accesses are part of: a sum of RAW, WAR and WAW.

    Args:
        accesses: those of the analysed trace (ACCESS_COLUMNS).
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


def loop_dependences(analysis: Analysis) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """What the loops tell: the dependences of each signature, and of which only its accesses would tell all.

    The last of the latter stands for what is irregular.
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
    """Add to ``flags`` what the loops of these parts of one file tell; mark those that they do not tell enough of."""
    for part in parts:
        # Which of its own accesses came first, the loops do not say.
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
    """Whether two parts whose ranges overlap have a byte in common; None where their loops do not tell."""
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
    """For each access the dependences that it is part of, as the earlier or the later one: a sum of RAW, WAR and WAW.

    One access is before another when it started before it, whichever ranks they are of.

    Args:
        accesses: with the columns file, op, offset, length and t_start (ACCESS_COLUMNS).
    """
    file, start, length = (accesses[name].to_numpy(np.int64) for name in ("file", "offset", "length"))
    write = (accesses["op"] == "write").to_numpy(np.bool_)
    time = np.rint(accesses["t_start"].to_numpy(np.float64) * 1e9).astype(np.int64)
    flags = np.zeros(len(accesses), np.uint8)
    for written in np.unique(file[write]).tolist():
        rows = np.flatnonzero(file == written)
        rows = rows[np.argsort(start[rows], kind="stable")]
        rows = rows[_shared(start[rows], start[rows] + length[rows])]
        if len(rows):
            flags[rows] = _of_file(start[rows], start[rows] + length[rows], write[rows], time[rows])
    return flags


def _shared(start: Int64Array, stop: Int64Array) -> npt.NDArray[np.bool_]:
    """Which of these ranges, in the order of their starts, overlap another one."""
    shared = np.zeros(len(start), np.bool_)
    shared[1:] = start[1:] < np.maximum.accumulate(stop)[:-1]
    shared[:-1] |= stop[:-1] > start[1:]
    return shared


def _of_file(
    start: Int64Array, stop: Int64Array, write: npt.NDArray[np.bool_], time: Int64Array
) -> npt.NDArray[np.uint8]:
    """The flags of ranges in the order of their starts."""
    bounds = np.sort(np.concatenate((start, stop)), kind="stable")  # two sorted runs, or nearly so
    bounds = bounds[np.append(True, np.diff(bounds) != 0)]
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


def _range_minimum(values: Int64Array, first: Int64Array, last: Int64Array) -> Int64Array:
    """The minimum of ``values[first:last]`` for every pair (not empty), by minima over windows of 1, 2, 4, ..."""
    result = np.empty(len(first), dtype=np.int64)
    levels = np.frexp(last - first)[1] - 1
    minima = values
    for level in range(int(levels.max()) + 1):
        at = levels == level
        result[at] = np.minimum(minima[first[at]], minima[last[at] - (1 << level)])
        minima = np.minimum(minima[: -(1 << level)], minima[1 << level :])
    return result
