"""What a run did, as arrays that all detectors share: calls with the time that each takes, and their requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pdla.layouts.config import NOMINAL
from pdla.model import Cluster, Int64Array, Plan
from pdla.simulator.workload import CLOSE, SYNC
from pdla.traces.tables import DOUBTS
from pdla.traces.trace import Trace

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Group:
    """The data calls of one file and operation, independent or collective, that moved something.

    ``rows`` are their places in the records. The others have a value for each of their requests, in
    the order of rank and call: ``call`` is the place of the request's call in ``rows``. ``doubts``
    are those of DOUBTS that some of the calls have.
    """

    file: int
    op: str
    collective: bool
    rows: Int64Array
    call: Int64Array
    rank: Int64Array
    offset: Int64Array
    length: Int64Array
    doubts: frozenset[str] = frozenset()

    @property
    def key(self) -> int:
        """What distinguishes it from other groups (``Seen.key``)."""
        return 4 * self.file + 2 * (self.op == "write") + self.collective

    @cached_property
    def stop(self) -> Int64Array:
        """Where each request ends in the file."""
        return self.offset + self.length

    @cached_property
    def bytes(self) -> int:
        """All bytes moved."""
        return int(self.length.sum())

    @cached_property
    def order(self) -> Int64Array:
        """The requests in the order of the file."""
        return np.lexsort((self.stop, self.offset)).astype(np.int64)

    @cached_property
    def follows(self) -> Int64Array:
        """The bytes between each request and the same rank's previous one, as far as there is one."""
        same = self.rank[1:] == self.rank[:-1]
        gaps: Int64Array = (self.offset[1:] - self.stop[:-1])[same]
        return gaps

    def mean_length(self) -> Floats:
        """The mean length of the requests of each call, bytes."""
        number = np.bincount(self.call, minlength=len(self.rows))
        return np.bincount(self.call, self.length, minlength=len(self.rows)) / np.maximum(number, 1)


class Seen:
    """A run and the plan for it; ``trace_file`` is what commands call the trace.

    Attributes:
        own: seconds that each record adds to its rank's time in I/O; calls of a rank that overlap
            share their time.
        rank: of each record.
    """

    def __init__(self, trace: Trace, plan: Plan, trace_file: str) -> None:
        self.trace, self.plan, self.trace_file = trace, plan, trace_file
        records = trace.records
        self.rank: Int64Array = records["rank"].to_numpy(np.int64)
        self.start, self.end = (records[name].to_numpy(np.float64) for name in ("t_start", "t_end"))
        self.file: Int64Array = records["file"].to_numpy(np.int64)
        self.own = _own(self.rank, self.start, self.end)
        self.is_data: Bools = (records["op"] != "other").to_numpy(np.bool_)
        self.first_row = np.searchsorted(self.rank, np.arange(max(trace.ranks, 1) + 1))

    @property
    def cluster(self) -> Cluster:
        """The storage that the plan is for."""
        return self.plan.cluster

    @cached_property
    def by_rank(self) -> Floats:
        """Seconds in I/O of each rank."""
        return np.bincount(self.rank, self.own, minlength=max(self.trace.ranks, 1)).astype(np.float64)

    @property
    def seconds(self) -> float:
        """Seconds in I/O of the slowest rank."""
        return float(self.by_rank.max(initial=0.0))

    @cached_property
    def repeated(self) -> float:
        """Seconds of the rank with the most of them in the calls that the simulator repeats: reads, writes, syncs and
        closes, but no opens and file views."""
        return self.slowest(self.is_data | self.made_by(CLOSE, SYNC))

    @cached_property
    def storage(self) -> float:
        """Of the ``repeated`` seconds those that certainly are the storage's: in collective calls the POSIX calls, if
        these were recorded. The rest is exchange, and waiting for it; meanwhile the kernel may read ahead."""
        rows = self.is_data | self.made_by(CLOSE, SYNC)
        collective = self.is_data & self.trace.records["collective"].to_numpy(np.bool_)
        inside = self.inside["read"] + self.inside["write"] + self.inside["other"]
        if not inside[collective].any():
            return self.repeated
        seconds = np.where(collective, np.minimum(inside, self.own), self.own)[rows]
        return float(np.bincount(self.rank[rows], seconds, minlength=1).max(initial=0.0))

    @property
    def is_nominal(self) -> bool:
        """Whether nobody has described the storage: its strips are not those of the files."""
        return self.cluster.source == NOMINAL

    def made_by(self, *kinds: str) -> Bools:
        """Which records are calls of these MPI functions."""
        return np.asarray(self.trace.records["kind"].isin(kinds), dtype=np.bool_)

    def deletions(self, file: int) -> Floats:
        """When this file was deleted, each time that it was."""
        gone = self.made_by("MPI_File_delete") & (self.file == file)
        return np.sort(self.start[gone])

    def spent(self, rows: Int64Array | Bools, share: Floats | float = 1.0) -> Floats:
        """The seconds of each rank in these records (a ``share`` of each)."""
        return np.bincount(self.rank[rows], self.own[rows] * share, minlength=len(self.by_rank)).astype(np.float64)

    def moved(self, group: Group, share: Floats | float = 1.0, calls: Bools | slice = slice(None)) -> Floats:
        """The seconds of each rank that move the bytes of a group's ``calls`` (a ``share`` of each): in the calls, and
        in what brings their bytes to the storage."""
        return self.spent(group.rows[calls], share) + self.brought_home(group, share, calls)

    def brought_home(self, group: Group, share: Floats | float = 1.0, calls: Bools | slice = slice(None)) -> Floats:
        """The seconds of each rank in syncs and closes that bring to the storage what a group's ``calls`` wrote."""
        rows = group.rows[calls]
        seconds = np.bincount(self.rank[rows], self.brought[rows] * share, minlength=len(self.by_rank))
        return seconds.astype(np.float64)

    @cached_property
    def brought(self) -> Floats:
        """For each write the seconds of its rank's next sync or close of the file, shared by bytes among the writes
        since the one before."""
        seconds = np.zeros(len(self.own))
        ends = self.made_by(CLOSE, SYNC)
        writes = (self.trace.records["op"] == "write").to_numpy(np.bool_)
        rows = np.flatnonzero(ends | writes)
        # Of a rank and file in the order of time: how many syncs and closes come before.
        rows = rows[np.lexsort((self.start[rows], self.file[rows], self.rank[rows]))]
        turn: Int64Array = np.cumsum(ends[rows]) - ends[rows]
        same = (np.diff(self.rank[rows], prepend=-1) != 0) | (np.diff(self.file[rows], prepend=-1) != 0)
        part = np.cumsum(same) + turn  # of what one sync or close ends
        size = np.where(writes[rows], self.trace.records["length"].to_numpy(np.float64)[rows], 0.0)
        number = int(part.max(initial=-1)) + 1
        bytes_, spent = (np.bincount(part, of, minlength=number) for of in (size, self.own[rows] * ends[rows]))
        seconds[rows] = size / np.maximum(bytes_[part], 1) * spent[part]
        return seconds

    def slowest(self, rows: Int64Array | Bools) -> float:
        """The seconds of these records on the rank that spends most in them."""
        return float(self.spent(rows).max(initial=0.0))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The data calls, those of each file and operation apart, and collective ones apart from independent ones."""
        return tuple(self._groups())

    def _groups(self) -> Iterator[Group]:
        accesses = self.trace.accesses()
        rank, call = (accesses[name].to_numpy(np.int64) for name in ("rank", "call"))
        row = self.first_row[rank] + call
        key = self.key[row]
        offset, length = (accesses[name].to_numpy(np.int64) for name in ("offset", "length"))
        order = np.argsort(key, kind="stable")
        doubtful = {doubt: self.trace.records[doubt].to_numpy(np.bool_) for doubt in DOUBTS}
        for part in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else ():
            one = int(key[part[0]])
            rows, number = np.unique(row[part], return_inverse=True)
            op = "write" if one & 2 else "read"
            requests = rank[part], offset[part], length[part]
            doubts = frozenset(doubt for doubt, calls in doubtful.items() if calls[rows].any())
            yield Group(one >> 2, op, bool(one & 1), rows, number, *requests, doubts)

    def doubts(self, file: str) -> frozenset[str]:
        """Those of DOUBTS that calls on this file have; "": on any file."""
        own = (group.doubts for group in self.groups if not file or self.path(group.file) == file)
        return frozenset().union(*own)

    @cached_property
    def key(self) -> Int64Array:
        """Of each record that of the group to which it belongs if it moved something."""
        records = self.trace.records
        written, collective = (records["op"] == "write").to_numpy(np.int64), records["collective"].to_numpy(np.int64)
        key: Int64Array = 4 * self.file + 2 * written + collective
        return key

    @cached_property
    def _paths(self) -> dict[int, str]:
        files = self.trace.files
        return dict(zip(files["file"].tolist(), map(str, files["path"]), strict=True))

    def path(self, file: int) -> str:
        """The path of a file."""
        return self._paths[file]

    @cached_property
    def _by_start(self) -> tuple[Int64Array, Floats]:
        order = np.argsort(self.start, kind="stable").astype(np.int64)
        return order, self.start[order]

    def between(self, since: float, until: float) -> Int64Array:
        """The records that begin from ``since`` on and before ``until``, in the order of time."""
        order, starts = self._by_start
        low, high = np.searchsorted(starts, (since, until))
        return order[low:high]

    @cached_property
    def inside(self) -> dict[str, Floats]:
        """For each record the seconds of the POSIX calls that the MPI library made in it: "read", "write", "other"."""
        posix = self.trace.posix
        within = (posix["call"] >= 0).to_numpy(np.bool_)
        row = self.first_row[posix["rank"].to_numpy(np.int64)] + posix["call"].to_numpy(np.int64)
        spent = (posix["t_end"] - posix["t_start"]).to_numpy(np.float64)
        return {
            op: np.bincount(row[which], spent[which], minlength=len(self.own)).astype(np.float64)
            for op in ("read", "write", "other")
            for which in [within & (posix["op"] == op).to_numpy(np.bool_)]
        }


def union(start: Int64Array, stop: Int64Array) -> int:
    """How many bytes lie in at least one of these ranges, which are in the order of ``start``."""
    if not len(start):
        return 0
    reached = np.maximum.accumulate(stop)
    return int((reached - np.maximum(start, np.append(start[0], reached[:-1]))).clip(0).sum())


def turns(rank: Int64Array) -> Int64Array | None:
    """The number of each collective call within its rank; None if not all of several ranks made as many.

    ``rank`` has that of each call, sorted.
    """
    counts = np.bincount(rank)
    if len(counts) < 2 or len(np.unique(counts[counts > 0])) != 1 or np.count_nonzero(counts) < 2:
        return None
    return np.arange(len(rank)) - np.searchsorted(rank, rank)


def _own(rank: Int64Array, start: Floats, end: Floats) -> Floats:
    """The part of each interval that no earlier one of its rank covers."""
    own = np.zeros(len(rank))
    bounds = np.append(np.flatnonzero(np.append(True, np.diff(rank) != 0)), len(rank)) if len(rank) else np.zeros(1)
    for low, high in zip(bounds[:-1].astype(int).tolist(), bounds[1:].astype(int).tolist(), strict=True):
        order = low + np.argsort(start[low:high], kind="stable")
        reached = np.append(-np.inf, np.maximum.accumulate(end[order])[:-1])
        own[order] = (end[order] - np.maximum(start[order], reached)).clip(0)
    return own
