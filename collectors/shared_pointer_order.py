"""Where ordered calls by the shared file pointer went, which only the logs of all ranks together determine.

An ordered call is collective over the ranks that opened the file. Rank r begins where the shared
pointer would be after the ranks below r have accessed their data. When the call returns, the
pointer is behind what the last rank asked for (MPI-4.1, 14.4.4). The pointer is 0 after the open
(with MPI_MODE_APPEND at the end of the file) and after each set_view (14.2.1, 14.3), and
seek_shared is collective. So what all ranks asked for says where each began, until one of them
moves the pointer alone (read_shared and the like): from there on it is unknown up to the next
set_view. A seek does not end that: some ranks may still be in calls of their own while the first
one seeks.

Everything is counted in bytes of the view's data stream: a call asks for a whole number of etypes,
whose size is the same on all ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.model import Int64Array

_COLLECTIVE = (
    *("open", "set_view", "seek_shared"),
    *("read_ordered", "write_ordered", "read_ordered_begin", "write_ordered_begin"),
)
_ALONE = ("read_shared", "write_shared", "iread_shared", "iwrite_shared")
_OPEN, _SET_VIEW, _SEEK, _ORDERED, _SPLIT, _END = 0, 1, 2, 3, 5, len(_COLLECTIVE)
_APPEND, _SEQUENTIAL = 128, 256  # modes of an open
_LARGEST = 2**62  # of a position

Placed = tuple[Int64Array, Int64Array]


@dataclass(frozen=True)
class Log:
    """What one process recorded.

    Attributes:
        program: the same for all processes of one program.
        calls: the names that the field ``call`` of a record numbers.
        files: a map from ids to the path and what was seen at the open.
        ordered: ids of the files with ordered calls that have no position.
        blocks: the records, a block at a time.
    """

    program: int
    calls: Sequence[str]
    files: Mapping[int, tuple[str, Mapping[str, int]]]
    ordered: Collection[int]
    blocks: Callable[[], Iterator[npt.NDArray[Any]]]


@dataclass(frozen=True)
class _Calls:
    """What one process did to the shared pointer of one open file, in order.

    Attributes:
        row: of the record in the log.
        kind: index of the name in _COLLECTIVE followed by _ALONE.
        size: bytes asked for; for a seek the byte sought.
        failed: whether the call returned an error.
    """

    row: Int64Array
    kind: npt.NDArray[np.int8]
    size: Int64Array
    failed: npt.NDArray[np.bool_]


def is_ordered(name: str) -> bool:
    """Whether the MPI function of that name makes an ordered call."""
    return _ORDERED <= _kind(name) < _END


def place(logs: Sequence[Log]) -> list[Placed | None]:
    """For each log the rows of the ordered calls that can be placed, ascending, and their positions; None if none.

    A position is the byte of the view's data stream where the call begins. If the logs do not agree
    about a call, because a log was cut short or the call failed somewhere, later calls have no
    position. Memory holds only the calls that concern a shared pointer, 18 bytes each.
    """
    groups = list(_groups(logs))
    wanted: list[set[int]] = [set() for _ in logs]
    for group in groups:
        for log, file in group:
            wanted[log].add(file)
    calls = [_read(log, files) for log, files in zip(logs, wanted, strict=True)]
    found: list[list[Placed]] = [[] for _ in logs]
    for group in groups:
        append = any(logs[log].files[file][1]["amode"] & _APPEND for log, file in group)
        for (log, _), placed in zip(group, _follow([calls[log][file] for log, file in group], append), strict=True):
            found[log].append(placed)
    return [_joined(each) for each in found]


def _groups(logs: Sequence[Log]) -> Iterator[list[tuple[int, int]]]:
    """The files that were opened together and have ordered calls: (log, id) of each rank of the communicator.

    Processes that opened a path in communicators of one size opened it together, each for the n-th
    time, if their number is that of the communicator's ranks and each is another of these.
    Otherwise nobody can say which of them belong together, here or at any later open.
    """
    opens: dict[tuple[int, str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, log in enumerate(logs):
        for file, (path, about) in log.files.items():
            if about["comm_size"] > 1:
                opens[log.program, path, about["comm_size"]][number].append(file)
    for (_, _, ranks), members in opens.items():
        if len(members) != ranks:
            continue
        for files in zip(*members.values(), strict=False):
            group = list(zip(members, files, strict=True))
            entries = [logs[log].files[file][1] for log, file in group]
            if sorted(entry["comm_rank"] for entry in entries) != list(range(ranks)):
                break
            sequential = any(entry["amode"] & _SEQUENTIAL for entry in entries)
            if not sequential and all(file in logs[log].ordered for log, file in group):
                yield sorted(group, key=lambda member: logs[member[0]].files[member[1]][1]["comm_rank"])


def _kind(name: str) -> int:
    name = name.removeprefix("MPI_File_").removesuffix("_c")
    return (*_COLLECTIVE, *_ALONE).index(name) if name in _COLLECTIVE or name in _ALONE else -1


def _read(log: Log, files: Collection[int]) -> dict[int, _Calls]:
    """What the process did to the shared pointers of these files."""
    if not files:
        return {}
    kinds = np.array([_kind(name) for name in log.calls], dtype=np.int8)
    parts: dict[int, list[tuple[npt.NDArray[Any], ...]]] = {file: [] for file in files}
    first = 0
    for records in log.blocks():
        rows = np.flatnonzero((kinds[records["call"]] >= 0) & np.isin(records["file"], list(files)))
        chosen = records[rows]
        kind = kinds[chosen["call"]]
        size = np.where(kind == _SEEK, chosen["position"], chosen["length"])
        for file in np.unique(chosen["file"]).tolist():
            here = chosen["file"] == file
            parts[file].append((first + rows[here], kind[here], size[here], chosen["error"][here] != 0))
        first += len(records)
    return {file: _Calls(*map(np.concatenate, zip(*part, strict=True))) for file, part in parts.items()}


def _follow(ranks: Sequence[_Calls], append: bool) -> list[Placed]:
    """The result of place() for each rank of one communicator, for a file opened with MPI_MODE_APPEND or without."""
    steps = [np.flatnonzero(calls.kind < _END) for calls in ranks]
    count = min(map(len, steps))
    kinds = np.array([calls.kind[step[:count]] for calls, step in zip(ranks, steps, strict=True)])
    agreed = np.logical_and.accumulate(np.all(kinds == kinds[0], axis=0))
    kind = kinds[0, agreed]
    count = len(kind)
    size = np.array([calls.size[step[:count]] for calls, step in zip(ranks, steps, strict=True)])
    failed = np.any([calls.failed[step[:count]] for calls, step in zip(ranks, steps, strict=True)], axis=0)
    if count == 0 or kind[0] != _OPEN or failed[0]:
        return [(np.empty(0, np.int64), np.empty(0, np.int64)) for _ in ranks]

    # Whether a rank moved the pointer alone before each step, and after the last.
    alone = np.zeros(count + 1, dtype=bool)
    for calls, step in zip(ranks, steps, strict=True):
        alone |= np.diff(np.append(step, len(calls.kind))[: count + 1], prepend=-1) > 1
    # What one rank does between begin and end may come before another's begin.
    lost = failed | alone[:-1] | (alone[1:] & (kind >= _SPLIT))
    fresh = ~failed & ((kind == _OPEN) | (kind == _SET_VIEW))
    lost[fresh] = False
    losses = np.cumsum(lost)
    known = losses == losses[_latest(fresh)]

    base = np.where(kind == _SEEK, np.where(np.all(size == size[0], axis=0), size[0], -1), 0)
    if append:
        base[0] = -1
    ordered = (kind >= _ORDERED) & known
    asked = np.where(kind >= _ORDERED, size, 0)
    total = np.sum(asked, axis=0)
    before = np.cumsum(total) - total
    reset = _latest(fresh | (kind == _SEEK))
    start = base[reset] + before - before[reset] + np.cumsum(asked, axis=0) - asked
    good = ordered & (base[reset] >= 0) & np.all((start >= 0) & (start <= _LARGEST), axis=0)
    return [
        (calls.row[step[:count][good]], positions[good])
        for calls, step, positions in zip(ranks, steps, start, strict=True)
    ]


def _latest(true: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """For each place the latest place that is true; the first place must be."""
    return np.maximum.accumulate(np.where(true, np.arange(len(true)), 0))


def _joined(parts: Sequence[Placed]) -> Placed | None:
    if not parts:
        return None
    rows, positions = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(rows)
    return rows[order], positions[order]
