"""The POSIX calls in the log of one process (collectors/shim/rawlog.h), and the MPI calls in which they were made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.model import Int64Array

Records = npt.NDArray[Any]


class Operations:
    """The MPI calls of the process, by their number in its log.

    ``blocks`` are the records of that log with the numbers of the trace's files. ``is_long`` says
    which calls are nonblocking or split operations: these continue after the call that began them
    has returned.
    """

    def __init__(self, blocks: Iterable[tuple[Records, npt.NDArray[np.int32], npt.NDArray[np.bool_]]]) -> None:
        files, starts, ends, numbers, first = [], [], [], [], 1
        for records, file, is_long in blocks:
            files.append(file)
            starts.append(records["t_start"][is_long])
            ends.append(records["t_end"][is_long])
            numbers.append(first + np.flatnonzero(is_long))
            first += len(records)
        # Place 0 stands for a number that does not exist.
        self.files = np.concatenate([np.array([-2], dtype=np.int32), *files])
        self.long_starts = _joined(starts)
        self.long_ends = _joined(ends)
        self.long_numbers = _joined(numbers)

    def under_way(self, file: int, times: Int64Array) -> Int64Array:
        """The number of the operation on the file that was in progress at each of the times, 0 = none.

        If there were several, it is the one that began first, because MPI libraries complete that
        one first.
        """
        found = np.zeros(len(times), dtype=np.int64)
        chosen = np.flatnonzero(self.files[self.long_numbers] == file)
        candidates = deque(chosen[np.argsort(self.long_starts[chosen], kind="stable")].tolist())
        for place in np.argsort(times, kind="stable").tolist():
            while candidates and self.long_ends[candidates[0]] < times[place]:
                candidates.popleft()
            if candidates and self.long_starts[candidates[0]] <= times[place]:
                found[place] = self.long_numbers[candidates[0]]
        return found


class PosixCalls:
    """The POSIX calls of one process, read when they are asked for.

    Args:
        read: returns the complete records of its log, a block at a time.
        names: the calls that the records number.
        files: the trace's number of each file that they name; records of other files are left out.
        dropped: the number of calls that were not recorded.
    """

    def __init__(
        self, read: Callable[[], Iterator[Records]], names: Sequence[str], files: Mapping[int, int], dropped: int
    ) -> None:
        self._read, self.names, self.dropped = read, list(names), dropped
        self._ids = np.array(sorted(files), dtype=np.uint32)
        self._files = np.array([files[int(number)] for number in self._ids], dtype=np.int32)
        groups, operations = [], []
        self.rows = 0
        for records in read():
            links = records[records["call"] == len(self.names)]
            groups.append(links["view"].astype(np.int64))
            operations.append(links["position"])
            self.rows += len(self._calls(records))
        order = np.argsort(_joined(groups), kind="stable")
        self._groups, self._operations = _joined(groups)[order], _joined(operations)[order]

    def _calls(self, records: Records) -> Records:
        return records[(records["call"] < len(self.names)) & np.isin(records["file"], self._ids)]

    def blocks(self, operations: Operations) -> Iterator[tuple[Records, npt.NDArray[np.int32], Int64Array]]:
        """A block of records at a time, the trace's numbers of their files, and those of their MPI calls (0: none)."""
        for block in self._read():
            records = self._calls(block)
            files = self._files[np.searchsorted(self._ids, records["file"])]
            yield records, files, self._enclosing(records, files, operations)

    def _enclosing(self, records: Records, files: npt.NDArray[np.int32], operations: Operations) -> Int64Array:
        """The MPI call of each POSIX call. A blocking call has the calls of its group.

        A call that completes requests may have done the work of several operations. They are
        distinguished by their file, and those that were not complete then by the time.
        """
        found = np.zeros(len(records), dtype=np.int64)
        first = np.searchsorted(self._groups, records["view"], "left")
        last = np.searchsorted(self._groups, records["view"], "right")
        left = np.flatnonzero((records["view"] > 0) & (first < last))
        while len(left):
            numbers = self._operations[first[left]]
            numbers = np.where(numbers < len(operations.files), numbers, 0)
            fits = (operations.files[numbers] == files[left]) | (operations.files[numbers] == -1)
            found[left[fits]] = numbers[fits]
            first[left] += 1
            left = left[~fits & (first[left] < last[left])]
        left = np.flatnonzero((records["view"] > 0) & (found == 0))
        for file in np.unique(files[left]).tolist():
            some = left[files[left] == file]
            found[some] = operations.under_way(file, records["t_start"][some])
        return found


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
