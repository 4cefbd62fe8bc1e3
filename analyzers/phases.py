"""Phases: the parts of a program's use of a file, separated by opens, views, a change of operation, and pauses.

They follow from what the program does, not from the load of the machine:

- A rank begins a phase of a file with its first data call after an open, a set_view or a close.
- Between two of these, writing is one phase after reading, or reading after writing, if no rank
  changes back. A loop that reads and writes in turn is one phase.
- All ranks begin a phase after a long pause that recurs: the pauses part the loop of calls into
  bodies of the same number of calls, as a computation between checkpoints does.

A pause is time in which no rank is in a call on the file. It is long if it takes ten times as long
as the median wait between calls of the busiest rank, the one with most calls, and as its median
call. Medians hardly depend on the load. A loaded machine stops programs for long, too, but
anywhere. So pauses count only if chance would hardly put long ones at all ends of bodies:

    C(N - k, L) / C(N, k + L) <= CHANCE / (2 m)

The busiest rank has N waits between its calls; k of them are at the ends of bodies, and L of the
others are at least as long as the shortest of these k pauses. The right side shares CHANCE among
all bodies that are tried: m is k (k + 1) for k + 1 bodies of the same number of calls. It is N + 1
if the first body has some calls more, such as a header, or a shorter body follows the last one. So
a few pauses in a loop of few calls do not count (ADR 40). Nor do the recorder's own pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import lgamma, log

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.analyzers.local_patterns import OPS
from pdla.analyzers.shapes import BoolArray
from pdla.model import Int64Array, Phase
from pdla.traces.trace import Trace

LONG = 10
"""Long pauses are at least this many times as long as the usual wait and the usual call."""

CHANCE = 1e-3
"""A loop that the machine stops at random places has phases by pauses at most this often."""

FEWEST = 19
"""With fewer calls no pauses count, wherever they are."""

WINDOW, WRITTEN_IN = 4096, 0.01
"""The recorder writes this many records of a rank at once, in less than so many seconds if nothing stops it."""

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
    if not data.any():
        return NO_PHASES
    file, rank = (records[name].to_numpy(np.int64) for name in ("file", "rank"))
    start, end = (records[name].to_numpy(np.float64) for name in ("t_start", "t_end"))
    segment, opened = _segments(records, data)
    written = (records["op"] == "write").to_numpy(np.bool_)
    forward = _forward(rank, start)
    part = _parts(file, segment, rank, written, data)
    body = _bodies(part, rank, forward, np.maximum(forward, end), records["call"].to_numpy(np.int64), data)

    rows = np.flatnonzero(data)
    order = np.lexsort((body[rows], part[rows]))  # parts are in the order of the files
    rows = rows[order]
    file, rank, start, end, written = file[rows], rank[rows], start[rows], end[rows], written[rows]
    segment, opened, part, body = segment[rows], opened[rows], part[rows], body[rows]
    fresh = np.append(True, np.diff(file) != 0)
    begins = np.append(True, (np.diff(part) != 0) | (np.diff(body) != 0))
    heads = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    number -= np.maximum.accumulate(np.where(fresh, number, 0))
    of_call = np.empty(len(order), np.int64)
    of_call[order] = number

    by_segment = np.append(True, np.diff(segment[heads]) != 0) | fresh[heads]
    by_operation = np.append(True, np.diff(part[heads]) != 0)
    by_open = np.logical_or.reduceat(opened, heads) | fresh[heads]
    length = records["length"].to_numpy(np.int64)[rows]
    columns = (
        file[heads],
        number[heads],
        np.select([by_segment & by_open, by_segment, by_operation], ["open", "view", "operation"], "pause"),
        np.minimum.reduceat(start, heads),
        np.maximum.reduceat(end, heads),
        _distinct(rank, np.cumsum(begins) - 1),
        np.diff(np.append(heads, len(rows))),
        np.add.reduceat(np.where(written, 0, length), heads),
        np.add.reduceat(np.where(written, length, 0), heads),
    )
    paths = dict(zip(trace.files["file"].tolist(), map(str, trace.files["path"]), strict=True))
    found = zip(*(column.tolist() for column in columns), strict=True)
    return Phases(tuple(Phase(paths[of_file], *rest) for of_file, *rest in found), of_call)


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


def _parts(file: Int64Array, segment: Int64Array, rank: Int64Array, written: BoolArray, data: BoolArray) -> Int64Array:
    """A number for each call, by its file, then its segment, then its operation if all ranks change that one way."""
    order = np.lexsort((rank, segment, file))
    fresh = np.append(True, (np.diff(file[order]) != 0) | (np.diff(segment[order]) != 0))
    group = np.cumsum(fresh) - 1
    rows, of = order[data[order]], group[data[order]]  # the data calls of each rank in their order
    later, same = written[rows], (np.diff(of) == 0) & (np.diff(rank[rows]) == 0)
    to_writes, to_reads = (
        np.bincount(of[1:][same & change], minlength=group[-1] + 1) > 0
        for change in (later[1:] & ~later[:-1], later[:-1] & ~later[1:])
    )
    second = np.where(to_writes ^ to_reads, 1, 0)[group] * (written[order] == to_writes[group])
    part = np.empty(len(order), np.int64)
    part[order] = 2 * group + second
    return part


def _bodies(
    part: Int64Array, rank: Int64Array, start: FloatArray, end: FloatArray, call: Int64Array, data: BoolArray
) -> Int64Array:
    """For each call the body of its part's loop, as pauses separate them."""
    body = np.zeros(len(part), np.int64)
    order = np.lexsort((start, part))
    bounds = np.append(np.flatnonzero(np.append(True, np.diff(part[order]) != 0)), len(order))
    for low, high in pairwise(bounds.tolist()):
        if high - low >= FEWEST:
            rows = order[low:high]
            cuts = _cuts(rank[rows], start[rows], end[rows], call[rows], data[rows])
            body[rows] = np.searchsorted(cuts, start[rows], "right")
    return body


def _cuts(rank: Int64Array, start: FloatArray, end: FloatArray, call: Int64Array, data: BoolArray) -> FloatArray:
    """The ends of the pauses that part a loop into bodies. The calls are in the order of their starts."""
    busiest = np.argmax(np.bincount(rank[data])) if data.any() else -1
    mine = np.flatnonzero(data & (rank == busiest))
    if len(mine) < FEWEST:
        return np.empty(0)
    first, last = start[mine], np.maximum.accumulate(end[mine])
    wait = np.append(0, first[1:] - last[:-1])
    least = LONG * max(float(np.median(wait[1:])), float(np.median(end[mine] - first)), 1e-9)
    # The longest time without a call of any rank, in each of the waits of the busiest rank.
    idle = np.append(0, start[1:] - np.maximum.accumulate(end)[:-1])
    place = np.searchsorted(first, start)
    within = np.flatnonzero((idle >= least) & (place > 0) & (place < len(first)))
    within = within[np.lexsort((idle[within], place[within]))]
    within = within[np.diff(place[within], append=len(first)) != 0]
    pause, until = np.zeros(len(first)), np.zeros(len(first))
    pause[place[within]], until[place[within]] = idle[within], start[within]
    recorder = (call[mine] - 1) % WINDOW == 0
    waits = np.sort(wait[1:])
    for ends, tried in _even(pause > 0):
        shortest = pause[ends].min()
        if shortest < WRITTEN_IN and recorder[ends].all():
            continue
        longest = len(waits) - int(np.searchsorted(waits, shortest))
        if _log_chance(len(waits), len(ends), longest) <= log(CHANCE / (2 * tried)):
            return until[ends]
    return np.empty(0)


def _even(long: BoolArray) -> list[tuple[Int64Array, int]]:
    """The places of long pauses at all ends of bodies of the same number of calls, and how many such choices there are.

    The first body may have a rest of calls more, or the rest is a body after the last one. The choices with most bodies
    are first.
    """
    calls = len(long)
    sizes = np.arange(2, calls // 2 + 1)
    found = [(np.arange(size, calls, size), size) for size in _sizes(long, sizes, sizes * 0 + calls)]
    from_end, with_rest = np.roll(long[::-1], 1), sizes[calls % sizes != 0]
    found += [
        (calls - np.arange(size, calls - size + 1, size)[::-1], size)
        for size in _sizes(from_end, with_rest, calls - with_rest + 1)
    ]
    found.sort(key=lambda one: -len(one[0]))
    return [(ends, len(ends) * (len(ends) + 1) if calls % size == 0 else calls) for ends, size in found]


def _sizes(long: BoolArray, sizes: Int64Array, until: Int64Array) -> list[int]:
    """Those ``sizes`` of bodies with a long pause at each of their multiples below ``until``."""
    for times in range(1, 10):  # almost all are out after a few places
        keep = (times * sizes >= until) | long[times * sizes % len(long)]
        sizes, until = sizes[keep], until[keep]
    return [size for size, end in zip(sizes.tolist(), until.tolist(), strict=True) if long[size:end:size].all()]


def _log_chance(waits: int, ends: int, longest: int) -> float:
    """The logarithm of the chance that the ``longest`` waits, at random places, are at all the ``ends``."""
    others = longest - ends
    return lgamma(longest + 1) - lgamma(others + 1) + lgamma(waits - ends + 1) - lgamma(waits + 1)


def _segments(records: pd.DataFrame, data: BoolArray) -> tuple[Int64Array, BoolArray]:
    """For each call: how often its rank opened, closed or set the view of its file between data calls until then, and
    whether an open or a close began that segment."""
    names, codes = records["kind"].cat.categories, records["kind"].cat.codes.to_numpy()
    opens = np.isin(codes, np.flatnonzero(names.isin(_OPENS)))
    separates = opens | np.isin(codes, np.flatnonzero(names.isin(_VIEWS)))
    file, rank = (records[name].to_numpy(np.int64) for name in ("file", "rank"))
    rows = np.lexsort((rank, file))
    file, rank = file[rows], rank[rows]
    is_data = data[rows]
    at = np.flatnonzero(is_data)
    fresh = np.append(True, (np.diff(file[at]) != 0) | (np.diff(rank[at]) != 0))
    begins = fresh | np.append(True, np.diff(np.cumsum(separates[rows])[at]) > 0)
    number = np.cumsum(begins) - 1
    number -= np.maximum.accumulate(np.where(fresh, number, 0))
    opened = np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0))  # each data call's first of its segment
    opened = np.append(True, np.diff(np.cumsum(opens[rows])[at]) > 0)[opened]

    latest = np.maximum(np.cumsum(is_data) - 1, 0)  # the data call at each call or before it, if its rank has one there
    known = (file[at[latest]] == file) & (rank[at[latest]] == rank) & (at[latest] <= np.arange(len(rows)))
    of_record, by_open = np.zeros(len(records), np.int64), np.zeros(len(records), np.bool_)
    of_record[rows], by_open[rows] = np.where(known, number[latest], 0), opened[latest]
    return of_record, by_open
