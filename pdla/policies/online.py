"""The interface of a policy that acts while a program runs: it sees every file request, and says where bytes should be.

Before a run, a policy is asked once per pattern (base.Policy). During a run, it is asked once per
request. It yields wishes of three kinds, each with a reason: ``Place``, ``WriteBack``, ``Drop``.
The enactor (pdla.simulator.enactor) carries them out one by one, as they are yielded, or refuses
them. Whatever a policy wishes, the enactor never exceeds a capacity, never drops bytes that are
nowhere else, and serves every read with the bytes last written.

A scheme of the clients (S4D-Cache, E10) works on the bytes of files. A scheme of the data servers
(iBridge, LiU) is ``by_part``: the bytes of a file on one home server are a part, counted from 0,
and its requests, extents and wishes are those of parts. Bytes are int, seconds float, ranges
half-open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from pdla.errors import ConfigError
from pdla.model import Cluster, Layout, Op, Pool

HOME = "home"
"""The space of the originals: the home pool, striped by ``home_layout``."""

MEMORY = "memory"
"""The level of spaces in the memory of home servers: ``memory/3`` is that of server 3, without a device."""


class Request(NamedTuple):
    """A contiguous access to a file as it leaves a client, after two-phase I/O or data sieving."""

    time: float
    rank: int
    node: int
    file: int
    op: Op
    start: int
    stop: int
    collective: bool = False


class Part(NamedTuple):
    """Bytes [start, stop) of what home server ``server`` stores of a file."""

    server: int
    start: int
    stop: int


class Extent(NamedTuple):
    """Bytes of a file, or of a part, and the space from which they are read."""

    file: int
    start: int
    stop: int
    space: str
    dirty: bool = False
    part: int | None = None


class Place(NamedTuple):
    """These bytes should (also) be in ``space``.

    For bytes that the request writes: they are written to ``space``, and not to the original. For
    bytes that it reads: a copy is left in ``space`` in passing. With ``fetch``, the bytes are
    copied in the background; with ``wait``, at once and with the priority of requests, and a read
    of any of them waits for that. ``node`` is the client node that moves them, by default the node
    of the request.
    """

    file: int
    start: int
    stop: int
    space: str
    reason: str
    fetch: bool = False
    wait: bool = False
    node: int | None = None
    part: int | None = None


class WriteBack(NamedTuple):
    """Dirty bytes should be written back in the background; those of a request after the request has been served.

    With ``wait``, which is not allowed for requests, the close of the file waits until they are
    written back.
    """

    file: int
    start: int
    stop: int
    reason: str
    wait: bool = False
    part: int | None = None


class Drop(NamedTuple):
    """The copy in ``space`` (also a level: ``ssd`` for any ``ssd/3``) may go, after the write-back of dirty bytes."""

    file: int
    start: int
    stop: int
    space: str
    reason: str
    part: int | None = None


Wish = Place | WriteBack | Drop


@dataclass(frozen=True)
class Space:
    """A place for copies, apart from the originals.

    Attributes:
        name: a pool: copies are striped over its servers by ``layout``; or ``POOL/3``, only its
            server 3 (for a pool of kind "node": the device of client node 3); or ``memory/3``. The
            text before the slash is the level: a byte has at most one copy in each level.
        capacity: bytes.
        layout: of a whole pool.
        reads: requests may be read from here. If not, a read waits for the write-back of dirty
            bytes.
        writes: bytes with a copy here are written here. If not, a write drops the copy.
        chunk: bytes that are moved at a time in the background.
    """

    name: str
    capacity: int
    layout: Layout | None = None
    reads: bool = True
    writes: bool = True
    chunk: int = 1 << 62

    @cached_property
    def level(self) -> str:
        """The name up to the slash."""
        return self.name.partition("/")[0]


class View(Protocol):
    """What a policy sees."""

    @property
    def now(self) -> float:
        """The present time in seconds."""

    @property
    def cluster(self) -> Cluster:
        """The storage."""

    def size(self, file: int, part: int | None = None) -> int:
        """Bytes of a file, or of a part of it, as far as is known."""

    def room(self, space: str) -> int:
        """Free bytes of a space."""

    def parts(self, start: int, stop: int) -> list[Part]:
        """The parts of a file's bytes [start, stop), one for each home server that has some, in the file's order."""

    def extents(self, file: int, start: int, stop: int, part: int | None = None) -> list[Extent]:
        """The extents from which [start, stop) would be read now, in order and without gaps."""

    def coldest(self, space: str) -> Iterator[Extent]:
        """The clean copies in ``space``, the least recently used first; they may be dropped meanwhile."""


class BuiltIn(NamedTuple):
    """A policy of the core (pdla/caching): its name, and the members of its struct in caching.h."""

    name: str
    parameters: Mapping[str, Any]


class Online:
    """The base class of a policy. A policy has state, so every simulation needs a new one.

    Attributes:
        by_part: the policy is one of the data servers. Not required.
        period: seconds between ticks. Not required: without a period there are no ticks.
    """

    by_part: bool = False
    period: float | None = None

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """The spaces that it uses, in the order in which reads look for copies. Required.

        Raises:
            ConfigError: the cluster lacks what the policy needs.
        """
        raise NotImplementedError

    def built_in(self, cluster: Cluster) -> BuiltIn | None:
        """The policy of the core that decides instead of the methods below; None: they do."""
        return None

    def clients(self, cluster: Cluster) -> Mapping[str, Any]:
        """The members of struct sim_input that say how clients write together and make moves, if it is not their way
        without a policy: two-phase I/O, and move by move. Not required.
        """
        return {}

    def storage(self, cluster: Cluster, ranks: int) -> Cluster:
        """The cluster that serves so many ranks, if what the policy writes there is not what the cluster's pools take
        for replicas. The policy decides by ``cluster``. Not required.
        """
        return cluster

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """The wishes before ``request`` is served. Required."""
        raise NotImplementedError

    def tick(self, view: View) -> Iterator[Wish]:
        """The wishes at every ``period``. Not required."""
        yield from ()

    def close(self, file: int | None, view: View) -> Iterator[Wish]:
        """The wishes when ``file`` is closed or synchronized, or when the run ends (None). Not required."""
        yield from ()


def home_layout(cluster: Cluster) -> Layout:
    """How the originals are striped: 1-DH over the home servers."""
    return Layout(cluster.home_pool, cluster.home_servers, 1, (cluster.home_strip,) * cluster.home_servers, 1 << 62)


def parts(cluster: Cluster, start: int, stop: int) -> list[Part]:
    """What each home server stores of a file's bytes [start, stop), which is contiguous there; in the file's order.

    >>> from pdla.layouts.config import load_cluster
    >>> for part in parts(load_cluster(None), 100_000, 300_000):  # four servers, strips of 64 KiB
    ...     print(*part)
    1 34464 65536
    2 0 65536
    3 0 65536
    0 65536 103392
    """
    strip, servers = cluster.home_strip, cluster.home_servers
    first = start // strip
    found = []
    for number in range(first, first + min(servers, -(-stop // strip) - first)):
        server = number % servers
        found.append(Part(server, part_size(cluster, start, server), part_size(cluster, stop, server)))
    return found


def part_size(cluster: Cluster, size: int, server: int) -> int:
    """Bytes that home server ``server`` stores of a file of ``size`` bytes.

    >>> from pdla.layouts.config import load_cluster
    >>> [part_size(load_cluster(None), 100_000, server) for server in range(4)]
    [65536, 34464, 0, 0]
    """
    strip = cluster.home_strip
    rows, rest = divmod(size, strip * cluster.home_servers)
    return rows * strip + min(max(rest - server * strip, 0), strip)


def pool_of(cluster: Cluster, kind: str, policy: str) -> Pool:
    """The first pool of a kind, for a policy that needs one.

    Raises:
        ConfigError: there is no such pool.
    """
    for pool in cluster.pools:
        if pool.kind == kind:
            return pool
    kinds = ", ".join(f"{pool.name} ({pool.kind})" for pool in cluster.pools)
    raise ConfigError(f'{policy} needs a pool of kind "{kind}", but {cluster.source} has {kinds}')


def whole_pool(cluster: Cluster, name: str, strip: int) -> Layout:
    """1-DH over all servers of a pool, with equal strips."""
    servers = cluster.pool(name).servers
    return Layout(name, servers, 1, (strip,) * servers, 1 << 62)
