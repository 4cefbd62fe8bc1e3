"""Which accesses touch bytes that are written: read after write, write after read, write after write.

Interval arithmetic: the bounds of all accesses cut a file into segments, each with the times of its first and last read
and write. An access is compared with the segments that it covers, never byte by byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.accessmap import cover_minimum
from pdla.model import Int64Array

RAW, WAR, WAW = 1, 2, 4
DEPENDENCES = {RAW: "read-after-write", WAR: "write-after-read", WAW: "write-after-write"}


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
        rows = rows[_shared(start[rows], start[rows] + length[rows])]
        if len(rows):
            flags[rows] = _of_file(start[rows], start[rows] + length[rows], write[rows], time[rows])
    return flags


def _shared(start: Int64Array, stop: Int64Array) -> npt.NDArray[np.bool_]:
    """Which of these ranges overlap another one."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(stop[order])
    stop = stop[order]
    overlap = np.zeros(len(order), np.bool_)
    overlap[1:] = start[1:] < reach[:-1]
    overlap[:-1] |= stop[:-1] > start[1:]
    shared = np.empty_like(overlap)
    shared[order] = overlap
    return shared


def _of_file(
    start: Int64Array, stop: Int64Array, write: npt.NDArray[np.bool_], time: Int64Array
) -> npt.NDArray[np.uint8]:
    bounds = np.unique(np.concatenate((start, stop)))
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
