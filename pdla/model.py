"""The nouns of the system: frozen types that the stages hand to one another, and the columns of a trace.

Bytes are int, seconds float, ranges half-open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

    from pdla.collectors.views import View

Op = Literal["read", "write"]
Int64Array = npt.NDArray[np.int64]


class Loop(NamedTuple):
    """``count`` repetitions ``stride`` bytes apart; a stride of 0 is a repetition of the same bytes."""

    stride: int
    count: int  # type: ignore[assignment]  # the tuple's own method of this name is of no use here


@dataclass(frozen=True)
class Identity:
    """Which file, and in which state: what must not change for a replica to be its copy (all 0: not known)."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True)
class Signature:
    """An I/O signature: accesses of ``length`` bytes each as nested loops, ``offset = start + sum(i_k * stride_k)``.

    ``loops`` runs outermost first in the order of access. In a global signature the first ``rank_loops`` of them run
    over the ranks: rank ``ranks[j]`` has the position j in row-major order over those loops. A local signature has
    ``rank_loops = 0`` and one rank. ``calls`` is the number of MPI calls that made the accesses, over all ranks.
    """

    file: str
    op: Op
    collective: bool
    start: int
    length: int
    loops: tuple[Loop, ...]
    ranks: tuple[int, ...]
    rank_loops: int = 0
    calls: int = 0
    t_start: float = 0.0
    t_end: float = 0.0
    members: tuple[Signature, ...] = field(default=(), repr=False)

    @property
    def scope(self) -> Literal["local", "global"]:
        """Whether it is of one rank or of a group of ranks."""
        return "global" if self.rank_loops else "local"

    @property
    def requests(self) -> int:
        """Contiguous accesses that the signature stands for, over all its ranks."""
        count = 1
        for loop in self.loops:
            count *= loop.count
        return count

    @property
    def bytes(self) -> int:
        """Bytes accessed, over all its ranks; those accessed repeatedly count every time."""
        return self.requests * self.length

    @property
    def repeats(self) -> int:
        """How often a rank accesses the same bytes: the product of its loops with stride 0."""
        count = 1
        for loop in self.loops[self.rank_loops :]:
            count *= loop.count if loop.stride == 0 else 1
        return count

    @property
    def extent(self) -> tuple[int, int]:
        """The half-open range of the file from the first to the last byte touched."""
        low = self.start + sum(min(0, loop.stride * (loop.count - 1)) for loop in self.loops)
        high = self.start + sum(max(0, loop.stride * (loop.count - 1)) for loop in self.loops)
        return low, high + self.length

    def expand(self) -> tuple[Int64Array, Int64Array]:
        """Exactly the accesses it stands for, in the order of the loops: (offsets, ranks), of shape (requests,)."""
        offsets = np.array([self.start], dtype=np.int64)
        for loop in self.loops:
            steps = np.arange(loop.count, dtype=np.int64) * loop.stride
            offsets = (offsets[:, None] + steps[None, :]).ravel()
        ranks = np.repeat(np.array(self.ranks, dtype=np.int64), len(offsets) // len(self.ranks))
        return offsets, ranks

    def __str__(self) -> str:
        """The I/O signature notation: {operation, initial position, dimension, loops, repeats} (Byna et al., SC'08).

        Each loop is [stride, request size, count], innermost first; a loop over the ranks carries an ``r`` (stride 0:
        all access the same bytes).

        >>> str(Signature("a", "read", True, 0, 4096, (Loop(1 << 20, 4), Loop(8192, 128)), (0, 1, 2, 3), rank_loops=1))
        '{READ, 0, 2, ([8192, 4096, 128], [1048576, 4096, 4]r), 1}'
        """
        parts = [
            f"[{loop.stride}, {self.length}, {loop.count}]" + ("r" if depth < self.rank_loops else "")
            for depth, loop in enumerate(self.loops)
            if loop.stride != 0 or depth < self.rank_loops
        ]
        body = ", ".join(reversed(parts)) or f"[0, {self.length}, 1]"
        return f"{{{self.op.upper()}, {self.start}, {max(len(parts), 1)}, ({body}), {self.repeats}}}"


RECORD_COLUMNS: Mapping[str, str] = {
    "rank": "int32",
    "call": "int64",  # 0, 1, 2, ... within the rank, in the order of the calls
    "kind": "category",  # the MPI function
    "file": "int32",  # id of a row of Trace.files
    "op": "category",  # read, write or other
    "collective": "bool",
    "offset": "int64",  # absolute offset in the file of the first byte accessed
    "length": "int64",  # bytes really moved (asked for, where `moved_known` is false)
    "t_start": "float64",  # seconds since the first rank's MPI_Init
    "t_end": "float64",
    "view": "int32",  # index into Trace.views; 0 = the file's bytes from 0
    "position": "int64",  # byte of the view's data stream where the access starts
    "requested": "int64",
    "moved_known": "bool",
    "memory_strided": "bool",
    "redirected": "bool",
    "error": "int32",
}

ACCESS_COLUMNS: Mapping[str, str] = {
    "rank": "int32",
    "call": "int64",
    "file": "int32",
    "op": "category",
    "collective": "bool",
    "offset": "int64",
    "length": "int64",
    "t_start": "float64",
    "t_end": "float64",
}

FILE_COLUMNS = ("file", "path", "device", "inode", "size", "mtime_ns", "ctime_ns", "ranks", "opens")


@dataclass(frozen=True)
class Trace:
    """What a program did: ``records`` has a row per call (RECORD_COLUMNS), ``files`` one per file (FILE_COLUMNS).

    ``views`` are the file views that records refer to, kept as loops; ``views[0]`` is the plain file.
    """

    records: pd.DataFrame
    files: pd.DataFrame
    views: Sequence[View]
    command: str = ""
    ranks: int = 0
    mpi: str = ""
    source: str = "pdla"
    dropped: int = 0
    truncated: tuple[int, ...] = ()  # ranks whose log ends before MPI_Finalize
    unrecorded: Mapping[str, int] = field(default_factory=dict)  # calls that passed through, by name
    notes: tuple[str, ...] = ()  # what the source cannot tell

    def accesses(self) -> pd.DataFrame:
        """A row per contiguous extent in the file (ACCESS_COLUMNS), views expanded, in the order of rank and call."""
        from pdla.collectors.views import expand_records

        return expand_records(self)

    def path(self, file: int) -> str:
        """The path of the file with this id."""
        return str(self.files.loc[self.files["file"] == file, "path"].iloc[0])


@dataclass(frozen=True)
class Layout:
    """Where the bytes of a replica go: ``groups = 1`` is 1-DH, ``groups = servers`` is 1-DV, in between 2-D.

    The replica is cut into sections of ``section`` bytes, one rank's part each, dealt to the groups in turn; within a
    group of ``servers / groups`` servers each section is striped with ``strips`` (bytes, one per server of the group).
    """

    pool: str
    servers: int
    groups: int
    strips: tuple[int, ...]
    section: int

    def __post_init__(self) -> None:
        if self.servers < 1 or self.groups < 1 or self.servers % self.groups:
            raise ValueError(f"groups must divide servers (got groups={self.groups}, servers={self.servers})")
        if len(self.strips) != self.servers // self.groups:
            raise ValueError(
                f"one strip per server of a group (got {len(self.strips)}, want {self.servers // self.groups})"
            )
        if min(self.strips) < 0 or sum(self.strips) == 0 or self.section < 1:
            raise ValueError(f"strips must not be negative or all 0, section > 0 (got {self.strips}, {self.section})")

    @property
    def name(self) -> str:
        """The paper's name: 1-DH, 1-DV or 2-D (PDLA 3.4.1)."""
        if self.groups == 1:
            return "1-DH"
        return "1-DV" if self.groups == self.servers else "2-D"


@dataclass(frozen=True)
class Pool:
    """Storage servers of one kind.

    ``startup`` is (distance in bytes, seconds), ascending: the start-up time of a request that begins ``distance``
    bytes from where the server's previous one ended, linear in between, constant beyond the ends.
    """

    name: str
    kind: Literal["hdd", "ssd", "node"]
    servers: int
    startup: tuple[tuple[int, float], ...]
    read_seconds_per_byte: float
    write_seconds_per_byte: float
    capacity: int
    grain: int
    backend: str
    where: tuple[str, ...]


@dataclass(frozen=True)
class Cluster:
    """A storage system as a cost model sees it (cluster.toml)."""

    pools: tuple[Pool, ...]
    home_pool: str
    home_servers: int
    home_strip: int
    processes_per_node: int
    connect_seconds: float
    network_seconds_per_byte: float
    threshold_seconds: float
    source: str

    def pool(self, name: str) -> Pool:
        """The pool of this name, which there is."""
        return next(pool for pool in self.pools if pool.name == name)


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of a pattern, split as in the model: connection, network, device start-up, device transfer."""

    connect: float
    network: float
    startup: float
    transfer: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.connect + self.network + self.startup + self.transfer


@dataclass(frozen=True)
class Candidate:
    """One way to serve a pattern: ``layout`` is None where the original is left alone."""

    space: str
    layout: Layout | None
    cost: Cost


@dataclass(frozen=True)
class PatternPlan:
    """What was compared for one pattern, what was chosen, and why."""

    signature: Signature
    candidates: tuple[Candidate, ...]
    chosen: int
    reason: str

    @property
    def choice(self) -> Candidate:
        """The candidate that was chosen."""
        return self.candidates[self.chosen]


@dataclass(frozen=True)
class Plan:
    """What should be replicated, where and why. ``refused`` are (what, why)."""

    policy: str
    command: str
    patterns: tuple[PatternPlan, ...]
    refused: tuple[tuple[str, str], ...]
    cluster: Cluster

    @cached_property
    def predicted_before(self) -> float:
        """Seconds of all patterns as they are today."""
        return sum(pattern.candidates[0].cost.total for pattern in self.patterns)

    @cached_property
    def predicted_after(self) -> float:
        """Seconds of all patterns as chosen."""
        return sum(pattern.choice.cost.total for pattern in self.patterns)
