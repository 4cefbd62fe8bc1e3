"""The nouns of the system: frozen types that the stages pass to one another.

Bytes are int, seconds are float, ranges are half-open.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from pdla.loop_nests import STILL as STILL
from pdla.loop_nests import Growth as Growth
from pdla.loop_nests import Int64Array as Int64Array
from pdla.loop_nests import Loop as Loop
from pdla.loop_nests import Nest as Nest

Op = Literal["read", "write"]
Begin = Literal["open", "view", "operation", "pause"]


@dataclass(frozen=True)
class Identity:
    """A file and its state. A replica is a copy of the file only while none of this changes (all 0: not known)."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True)
class Signature:
    """An I/O signature: accesses as nested loops, ``offset = start + sum(i_k * stride_k)``, of ``length`` bytes each.

    ``loops`` runs outermost first in the order of access. ``growth``, if it is not empty, has for
    each loop what its iterations add to steps, lengths and inner counts (``Growth``); start and
    length are then those of the first access. In a global signature the first ``rank_loops`` loops
    run over the ranks: rank ``ranks[j]`` has the position j in row-major order over those loops. A
    local signature has ``rank_loops = 0`` and one rank. ``calls`` is the number of MPI calls that
    made the accesses, over all ranks.
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
    growth: tuple[Growth, ...] = ()
    members: tuple[Signature, ...] = field(default=(), repr=False)

    @property
    def scope(self) -> Literal["local", "global"]:
        """Whether the signature is of one rank or of a group of ranks."""
        return "global" if self.rank_loops else "local"

    @property
    def nest(self) -> Nest:
        """Only the loops."""
        return Nest(self.start, self.length, self.loops, self.growth)

    @property
    def requests(self) -> int:
        """Number of contiguous accesses, over all ranks."""
        return self.nest.requests

    @property
    def bytes(self) -> int:
        """Bytes accessed, over all ranks. A byte that is accessed repeatedly counts every time."""
        return self.nest.bytes

    @property
    def repeats(self) -> int:
        """How often a rank accesses the same bytes: the product of its loops that only repeat (stride 0)."""
        inner = zip(self.loops[self.rank_loops :], self.nest.repeated[self.rank_loops :], strict=True)
        return math.prod(loop.count for loop, again in inner if again)

    @property
    def extent(self) -> tuple[int, int]:
        """The half-open range of the file from the first to the last byte touched."""
        return self.nest.extent

    def expand(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The accesses in the order of the loops: (offsets, ranks, lengths), each of shape (requests,)."""
        import numpy as np

        offsets, lengths, ranks = self.nest.expand_with(np.array(self.ranks, np.int64), self.rank_loops)
        return offsets, ranks, lengths

    def __str__(self) -> str:
        """The I/O signature notation: {operation, initial position, dimension, loops, repeats} (Byna et al., SC'08).

        Each loop is [stride, request size, count], innermost first. A loop over the ranks has an
        ``r`` (stride 0: all ranks access the same bytes). A number that grows from one iteration to
        the next is followed by its growth: strides and sizes by the growth of their own loop,
        counts by that of the enclosing loop.

        >>> str(Signature("a", "read", True, 0, 4096, (Loop(1 << 20, 4), Loop(8192, 128)), (0, 1, 2, 3), rank_loops=1))
        '{READ, 0, 2, ([8192, 4096, 128], [1048576, 4096, 4]r), 1}'
        >>> rows, row = Loop(800, 100), Loop(8, 1)
        >>> str(Signature("a", "read", False, 0, 8, (rows, row), (0,), growth=(Growth(0, 0, 1), STILL)))
        '{READ, 0, 2, ([8, 8, 1+1], [800, 8, 100]), 1}'
        """
        parts, more = [], 0
        for depth, ((stride, count), grows) in enumerate(self.nest.levels):
            if depth < self.rank_loops or not self.nest.repeated[depth]:
                length = _growing(self.length, grows.length)
                part = f"[{_growing(stride, grows.stride)}, {length}, {_growing(count, more)}]"
                parts.append(part + ("r" if depth < self.rank_loops else ""))
            more = grows.count
        body = ", ".join(reversed(parts)) or f"[0, {self.length}, 1]"
        return f"{{{self.op.upper()}, {self.start}, {max(len(parts), 1)}, ({body}), {self.repeats}}}"


def _growing(number: int, growth: int) -> str:
    return f"{number}{growth:+}" if growth else f"{number}"


@dataclass(frozen=True)
class Layout:
    """Where the bytes of a replica go. ``groups = 1`` is 1-DH, ``groups = servers`` is 1-DV, a number in between: 2-D.

    The replica is cut into sections of ``section`` bytes, one rank's part each. Sections go to the
    groups in turn. Within a group of ``servers / groups`` servers each section is striped with
    ``strips`` (bytes, one per server of the group).
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

    @property
    def by_group(self) -> Layout:
        """The striping rule for storage that itself stripes over the servers of a group: one file per group.

        Every section begins with a whole cycle of strips. So striping without sections, which
        repeats ``strips`` from the file's first byte, puts each byte on the server that this layout
        names.

        >>> Layout("hdd", 4, 2, (65536, 65536), 200_000).by_group
        Layout(pool='hdd', servers=2, groups=2, strips=(262144,), section=200000)
        """
        cycle = sum(self.strips)
        return replace(self, servers=self.groups, strips=(-(-self.section // cycle) * cycle,))


@dataclass(frozen=True)
class Phase:
    """The data calls of all ranks to a file in one phase.

    Attributes:
        phase: number of the phase in its file, from 0.
        begins: what begins the phase: an open (or the end of one), a change of the view, a change from reading to
            writing or back, or a pause in time. A file's first phase begins with an open, recorded or not.
        t_start, t_end: seconds, of the first and the last data call.
        ranks: number of ranks that make data calls in the phase.
    """

    file: str
    phase: int
    begins: Begin
    t_start: float
    t_end: float
    ranks: int
    calls: int
    bytes_read: int
    bytes_written: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Device:
    """What servers do with requests; not for the cost model: slices, turns, depths, duplex, background.

    Attributes:
        queue: the order in which requests are served: in order of arrival, in sweeps over the addresses, or a slice of
            time for each process in turn.
        queue_depth: number of requests that the queue orders at a time; the others wait in order of arrival. 0: all.
        background_share: the share of the device's time that background moves get while requests wait.
        channels: number of start-ups that can proceed at the same time; transfers still take turns.
        write_startup: the start-up of writes, if it differs from that of reads (``startup`` of the pool).
        rotation_seconds: the time of a turn. A request that is not at distance 0 waits for a random part of it; 0: no
            wait.
        slice_seconds: for "cfq": how long a process has the device.
        idle_seconds: for "cfq": how long the device waits for the next request of the process that has the slice.
        duplex: reads and writes do not wait for each other.
        memory: bytes of writes that a server keeps in memory, so that they return before the device serves them; the
            device takes them in the order of their addresses.
        memory_depth: number of writes in memory that are ordered at a time; 0: all.
        read_ahead: bytes that a server reads ahead of sequential reads, by one process or by several in turns.
        clients_cost: (clients, seconds), ascending: what a server itself takes for each request, one request at a time,
            once so many ranks have made requests to it; linear in between, constant beyond the ends. Empty: nothing.
        inside: the pool whose servers hold these devices, the first device in the first server; they share the links.
    """

    queue: Literal["fifo", "elevator", "cfq"] = "fifo"
    queue_depth: int = 0
    background_share: float = 2 / 7
    channels: int = 1
    write_startup: tuple[tuple[int, float], ...] = ()
    rotation_seconds: float = 0.0
    slice_seconds: float = 0.1
    idle_seconds: float = 0.008
    duplex: bool = False
    memory: int = 0
    memory_depth: int = 0
    read_ahead: int = 0
    clients_cost: tuple[tuple[int, float], ...] = ()
    inside: str = ""


@dataclass(frozen=True)
class Pool:
    """Storage servers of one kind.

    ``startup`` is (distance in bytes, seconds), ascending: the start-up time of a request that
    begins ``distance`` bytes from where the server's previous one ended, linear in between,
    constant beyond the ends. ``capacity`` is for all replicas together; None: the free space of the
    file systems. ``where`` are directories, one per server, or a single one if the storage names
    its servers (``names``). ``parts``: see ``Cluster.pool``.
    """

    name: str
    kind: Literal["hdd", "ssd", "node"]
    servers: int
    startup: tuple[tuple[int, float], ...]
    overlap: bool = field(default=False, kw_only=True)  # a request takes the longer of start-up and transfer, not both
    read_seconds_per_byte: float
    write_seconds_per_byte: float
    capacity: int | None
    grain: int
    backend: str
    where: tuple[str, ...]
    names: tuple[str, ...] = field(default=(), kw_only=True)
    device: Device = field(default=Device(), kw_only=True)
    parts: tuple[Pool, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Cluster:
    """A storage system as the cost model sees it (cluster.toml).

    ``home_servers`` and ``home_strip`` are 0 until the originals are known, if cluster.toml leaves
    them to their file system.
    """

    pools: tuple[Pool, ...]
    home_pool: str
    home_servers: int
    home_strip: int
    processes_per_node: int
    connect_seconds: float
    network_seconds_per_byte: float
    threshold_seconds: float
    source: str
    nodes: int | None = None
    collective_buffer: int = 1 << 24
    aggregators: int | None = None  # of a collective call, at most; None: one on every node
    sieve_read: int = 4 << 20  # bytes of the buffer for data sieving; 0: none
    sieve_write: int = 512 << 10
    jitter_seconds: float = 0.0  # the mean of the random time by which a rank is late with each call
    client_cache: bool = False  # nodes keep in memory what they have read and written
    client_sync: bool = False  # with it: what is written goes to the storage at once, too
    client_read_ahead: int = 0  # bytes at most
    cores: int | None = None  # that the processes of a node share; None: each process has its own
    call_seconds: float = 0.0  # of a processor, for a request of a file; below: for a byte of it, and of a message
    copy_seconds_per_byte: float = 0.0
    exchange_seconds_per_byte: float = 0.0
    home_source: str = ""  # who says how originals are striped; "": cluster.toml

    def pool(self, name: str) -> Pool:
        """The pool of this name, which must exist; "a+b" is a hybrid: the servers of ``a``, then those of ``b``.

        A hybrid lists where all its servers are. Its two pools are its ``parts``, for all
        properties that they do not share.
        """
        if name not in self._known:
            parts = tuple(self._known[part] for part in name.split("+"))
            where = tuple(directory for part in parts for directory in part.where)
            names = tuple(server for part in parts for server in part.names)
            servers = sum(part.servers for part in parts)
            self._known[name] = replace(parts[0], name=name, servers=servers, where=where, names=names, parts=parts)
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Pool]:
        """Pools by name; hybrids join when they are first asked for."""
        return {pool.name: pool for pool in self.pools}

    def per_node(self, processes: int) -> int:
        """How many of ``processes`` share a node. Nodes are filled one after the other, evenly once all are full."""
        least = -(-processes // self.nodes) if self.nodes else 1
        return max(least, min(self.processes_per_node, processes))


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of a pattern, split as in the model: connection, network, device start-up, device transfer."""

    connect: float
    network: float
    startup: float
    transfer: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.connect + other.connect,
            self.network + other.network,
            self.startup + other.startup,
            self.transfer + other.transfer,
        )

    def __rmul__(self, times: float) -> Cost:
        return Cost(times * self.connect, times * self.network, times * self.startup, times * self.transfer)

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.connect + self.network + self.startup + self.transfer


@dataclass(frozen=True)
class Candidate:
    """One way to serve a pattern. ``layout`` is None if the original serves it.

    ``cost`` is what the cost model predicts, ``simulated`` the seconds of the pattern alone in the
    simulator (None: it was not simulated). ``refused`` says why this candidate cannot be chosen; it
    is empty if it can.
    """

    space: str
    layout: Layout | None
    cost: Cost
    refused: str = ""
    simulated: float | None = None

    @property
    def seconds(self) -> float:
        """What the candidate takes: as simulated, or else as predicted."""
        return self.cost.total if self.simulated is None else self.simulated


@dataclass(frozen=True)
class PatternPlan:
    """The candidates that were compared for one pattern, the chosen one, and why."""

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
    """What to replicate, where and why. ``refused`` are pairs (what, why).

    ``selection`` is how space was shared out if there was not enough for all. No other choice saves
    more than this one by more than the share ``gap`` of what this one saves. ``simulated`` are the
    seconds in I/O of the whole run without and with the replicas, if it was simulated.
    """

    policy: str
    command: str
    patterns: tuple[PatternPlan, ...]
    refused: tuple[tuple[str, str], ...]
    cluster: Cluster
    selection: str = "optimal"
    gap: float = 0.0
    simulated: tuple[float, float] | None = None

    @cached_property
    def predicted_before(self) -> float:
        """Seconds of all patterns without replicas."""
        return sum(pattern.candidates[0].seconds for pattern in self.patterns)

    @cached_property
    def predicted_after(self) -> float:
        """Seconds of all patterns with the chosen candidates."""
        return sum(pattern.choice.seconds for pattern in self.patterns)
