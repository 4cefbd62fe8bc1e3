"""Phases: the parts of a program's use of a file, separated by opens, changes of the view, and long pauses.

A rank begins a phase of a file with its first data call after an open, a set_view or a close. All
ranks begin one with their first data call after a long pause, in which none of them is in a call on
the file. This is how a barrier and the computation around it look in time.

A rank's times from one of its calls to the next tell which pauses are long, if they fall into two
classes: at most half of them are long, and the long ones are ten times as long as the others (and
as the mean call). So the speed of the machine does not matter. Times that vary without two clear
classes have no long pause, and a program that computes after each of its calls is in one phase.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.analyzers.local_patterns import OPS
from pdla.analyzers.shapes import BoolArray
from pdla.model import Int64Array, Phase
from pdla.traces.trace import Trace

LONG = 10
"""Long pauses are at least this many times as long as the others."""

_OPENS = ("MPI_File_open", "MPI_File_close")
_VIEWS = ("MPI_File_set_view",)

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Phases:
    """``phases`` of all files, in the order of the files.

    ``of_call`` has, for each data call that moved something, in the order of the records, its phase within its file.
    """

    phases: tuple[Phase, ...]
    of_call: Int64Array


@dataclass(frozen=True)
class WritePhase:
    """What all ranks write to one file from an open to its close: ``bytes``, from ``t_start`` to ``t_end`` s;
    ``opened_again``: the program then opens the file again."""

    t_start: float
    t_end: float
    bytes: int
    opened_again: bool


NO_PHASES = Phases((), np.empty(0, np.int64))


def find_phases(trace: Trace) -> Phases:
    """The phases of each file of a trace."""
    records = trace.records
    data = (records["op"].isin(OPS) & (records["length"] > 0) & (records["offset"] >= 0)).to_numpy(np.bool_)
    calls = records.loc[data, ["rank", "file", "op", "length", "t_start", "t_end"]]
    if not len(calls):
        return Phases((), np.empty(0, np.int64))
    file, rank = calls["file"].to_numpy(np.int64), calls["rank"].to_numpy(np.int64)
    start, end = (calls[name].to_numpy(np.float64) for name in ("t_start", "t_end"))
    forward = _forward(rank, start)
    pause = _pauses(file, rank, forward, np.maximum(forward, end))
    segment, opened = _segments(records, data)

    order = np.lexsort((segment, pause, file))
    file, pause, segment = file[order], pause[order], segment[order]
    fresh = np.append(True, np.diff(file) != 0)
    begins = fresh | np.append(True, (np.diff(pause) != 0) | (np.diff(segment) != 0))
    heads = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    number -= np.maximum.accumulate(np.where(fresh, number, 0))
    of_call = np.empty(len(order), np.int64)
    of_call[order] = number

    other = np.append(True, np.diff(segment[heads]) != 0) | fresh[heads]  # not only a pause
    by_open = np.logical_or.reduceat(opened[order], heads) | fresh[heads]
    length, written = calls["length"].to_numpy(np.int64)[order], (calls["op"] == "write").to_numpy(np.bool_)[order]
    columns = (
        file[heads],
        number[heads],
        np.where(other, np.where(by_open, "open", "view"), "pause"),
        np.minimum.reduceat(start[order], heads),
        np.maximum.reduceat(end[order], heads),
        _distinct(rank[order], np.cumsum(begins) - 1),
        np.diff(np.append(heads, len(order))),
        np.add.reduceat(np.where(written, 0, length), heads),
        np.add.reduceat(np.where(written, length, 0), heads),
    )
    paths = dict(zip(trace.files["file"].tolist(), map(str, trace.files["path"]), strict=True))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Phases(tuple(Phase(paths[of_file], *rest) for of_file, *rest in rows), of_call)


def write_phases(trace: Trace) -> dict[str, tuple[WritePhase, ...]]:
    """The phases of each file that is written, in order."""
    uses: list[Phase] = []
    for phase in find_phases(trace).phases:
        if phase.begins == "open" or not uses or uses[-1].file != phase.file:
            uses.append(phase)
        else:
            total = uses[-1].bytes_written + phase.bytes_written
            uses[-1] = replace(uses[-1], t_end=max(uses[-1].t_end, phase.t_end), bytes_written=total)
    lasts = {use.file: use for use in uses}
    found: dict[str, tuple[WritePhase, ...]] = {}
    for use in uses:
        if use.bytes_written:
            written = WritePhase(use.t_start, use.t_end, use.bytes_written, use is not lasts[use.file])
            found[use.file] = (*found.get(use.file, ()), written)
    return found


def _distinct(value: Int64Array, group: Int64Array) -> Int64Array:
    """How many different values each group has; groups are numbered from 0."""
    order = np.lexsort((value, group))
    value, group = value[order], group[order]
    fresh = np.append(True, (np.diff(value) != 0) | (np.diff(group) != 0))
    return np.bincount(group[fresh])


def _forward(rank: Int64Array, start: FloatArray) -> FloatArray:
    """The starts; a clock that was set back stands still until it reaches its earlier time."""
    back = (np.diff(start) < 0) & (np.diff(rank) == 0)
    if back.any():
        start = start.copy()
        for wrong in np.unique(rank[1:][back]).tolist():
            low, high = np.searchsorted(rank, [wrong, wrong + 1])
            np.maximum.accumulate(start[low:high], out=start[low:high])
    return start


def _pauses(file: Int64Array, rank: Int64Array, start: FloatArray, end: FloatArray) -> Int64Array:
    """How many long pauses of its file come before each call."""
    before = np.zeros(len(file), np.int64)
    order = np.lexsort((start, file))
    bounds = np.append(np.flatnonzero(np.append(True, np.diff(file[order]) != 0)), len(order))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[low:high]
        least = _least_long(rank[rows], start[rows], end[rows])
        if least is not None:
            busy_until = np.maximum.accumulate(end[rows])
            before[rows[1:]] = np.cumsum(start[rows[1:]] - busy_until[:-1] >= least)
    return before


def _least_long(rank: Int64Array, start: FloatArray, end: FloatArray) -> float | None:
    """The least seconds of a long pause, halfway between the two classes; None if there is only one class."""
    order = np.lexsort((start, rank))
    between = (start[order[1:]] - end[order[:-1]])[np.diff(rank[order]) == 0]
    if len(between) < 2:
        return None
    ascending = np.sort(np.maximum(between, max(float(np.mean(end - start)), 1e-9)))
    shorter, longer = ascending[:-1], ascending[1:]
    jumps = np.flatnonzero((longer >= LONG * shorter) & (2 * np.arange(1, len(ascending)) >= len(ascending)))
    return float(np.sqrt(shorter[jumps[0]] * longer[jumps[0]])) if len(jumps) else None


def _segments(records: pd.DataFrame, data: BoolArray) -> tuple[Int64Array, BoolArray]:
    """For each data call: how often its rank opened, closed or set the view of its file between earlier data calls, and
    whether an open or a close began that part."""
    names, codes = records["kind"].cat.categories, records["kind"].cat.codes.to_numpy()
    opens = np.isin(codes, np.flatnonzero(names.isin(_OPENS)))
    rows = np.flatnonzero(data | opens | np.isin(codes, np.flatnonzero(names.isin(_VIEWS))))
    file, rank = (records[name].to_numpy(np.int64)[rows] for name in ("file", "rank"))
    order = np.lexsort((rank, file))
    rows, file, rank = rows[order], file[order], rank[order]
    heads = np.append(True, (np.diff(file) != 0) | (np.diff(rank) != 0))
    is_data = data[rows]
    begins = is_data & np.append(True, heads[1:] | ~is_data[:-1])
    count = np.cumsum(begins)
    # A group's first data call begins a part: counted from there, the group's first part is 0.
    segment = count - 1 - np.maximum.accumulate(np.where(heads, count - begins, 0))

    number = np.cumsum(opens[rows])
    at_begin = np.flatnonzero(begins)
    previous = np.append(0, number[np.flatnonzero(is_data)])  # opens until the data call before
    place = np.cumsum(is_data)[at_begin] - 1
    opened = (number[at_begin] > previous[place])[np.maximum(count - 1, 0)]
    of_record, by_open = np.zeros(len(records), np.int64), np.zeros(len(records), np.bool_)
    of_record[rows], by_open[rows] = segment, opened
    return of_record[data], by_open[data]
