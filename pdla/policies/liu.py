"""LiU (Lift it Up): heads of segments on SSDs, so that reading them hides the disk's latency.

Source: Huang et al., "LiU: Hiding Disk Access Latency for HPC Applications with a New SSD-Enabled
Data Layout".

The part of a file on a data server is cut into segments with a head and a body each. A *lifted*
segment has a copy of its head on the server's SSD. A segment that is worth it is read as a whole
into a buffer in memory: the head and the sections of the body at once, asynchronously, while the
disk seeks. A request waits for the sections that it needs. A segment is worth it if at least the
share ``locality`` of it was requested while it was in the buffer, or would have been: the LRU stack
of the buffer also has *ghosts*, which keep only the flags of what was requested. When a segment is
evicted, ghosts at the bottom go with it; their locality is then known, for their next access.

Writes to a lifted segment go to the SSD. The access that lifts it may itself be a write. A segment
whose locality turns out too low is de-lifted: its dirty bytes are written back, and the SSD's
copies are dropped. Where the text is silent, this implementation decides: as long as the buffer
holds nothing, ghosts leave the stack when there are more of them than segments fit into the buffer
(otherwise none would ever be lifted); a head is copied to the SSD from the buffer; if the SSD is
full, the segment that was lifted first is de-lifted. The system's own write-back cache is not
modelled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pdla.errors import ConfigError
from pdla.model import Cluster
from pdla.policies.online import MEMORY, Drop, Online, Place, Request, Space, View, Wish, pool_of

_FLAG = 512  # bytes of a segment that have one flag: a sector


def head_bytes(bandwidth: float, latency: float) -> float:
    """The least head: B*t, the bytes that the disk would transfer while it seeks (II-B).

    ``latency`` is the 80th percentile of that of random reads of one byte.

    >>> head_bytes(70e6, 0.012)  # of the paper: "0.84 MB and we choose 1 MB"
    840000.0
    """
    return bandwidth * latency


def segment_time(
    head: int, body: int, ssd_latency: float, ssd_bandwidth: float, latency: float, bandwidth: float
) -> float:
    """max(L_ssd + head/B2, t + body/B1): seconds in which head and body are read in parallel (Figure 1).

    >>> segment_time(2**20, 2**22, ssd_latency=0.25, ssd_bandwidth=2**20, latency=0.5, bandwidth=2**21)
    2.5
    """
    return max(ssd_latency + head / ssd_bandwidth, latency + body / bandwidth)


class _Name(NamedTuple):
    """A segment: the file, the server, its number there."""

    file: int
    server: int
    number: int


@dataclass
class _Segment:
    """A segment in the stack: the flags of what was requested, as bits; whether it is in the buffer or a ghost."""

    flags: int = 0
    regular: bool = False


@dataclass(eq=False)
class LiU(Online):
    """The policy ``liu``.

    Attributes:
        head, body: bytes of a segment's head and body (II-B).
        sections: the sections of the body, read asynchronously (II-C).
        buffer: bytes of a server's memory for segments (III-E).
        locality: a segment of which at least this share is requested is lifted and loaded. The text has "a
            pre-defined threshold" and no value.
    """

    head: int = 1 << 20
    body: int = 4 << 20
    sections: int = 4
    buffer: int = 256 << 20
    locality: float = 0.5
    by_part: bool = field(default=True, init=False)
    _pool: str = field(default="", init=False)
    _stacks: list[OrderedDict[_Name, _Segment]] = field(default_factory=list, init=False)  # the bottom comes first
    _localities: dict[_Name, float] = field(default_factory=dict, init=False)  # as last measured
    _lifted: list[OrderedDict[_Name, None]] = field(default_factory=list, init=False)

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """A buffer in the memory of each home server, which takes no writes; an SSD next to each."""
        pool, servers = pool_of(cluster, "ssd", "liu"), cluster.home_servers
        if pool.servers < servers:
            raise ConfigError(
                f"liu needs an SSD for each of {servers} home servers, but pool {pool.name} has {pool.servers}"
            )
        self._pool = pool.name
        self._stacks, self._lifted = [OrderedDict() for _ in range(servers)], [OrderedDict() for _ in range(servers)]
        capacity = (pool.capacity or 1 << 60) // pool.servers
        buffers = [Space(f"{MEMORY}/{server}", self.buffer, writes=False) for server in range(servers)]
        return buffers + [Space(f"{pool.name}/{server}", capacity) for server in range(servers)]

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """Handle each segment of the request on its server."""
        size = self.head + self.body
        for server, start, stop in view.parts(request.start, request.stop):
            for number in range(start // size, -(-stop // size)):
                low, high = max(start, number * size), min(stop, (number + 1) * size)
                name = _Name(request.file, server, number)
                if request.op == "write":
                    yield from self._written(name, low, high, view)
                else:
                    yield from self._wanted(name, view)
                yield from self._flag(name, low, high, view)

    def locality_of(self, file: int, server: int, number: int) -> float | None:
        """The last measured locality of a segment; None: not known yet."""
        return self._localities.get(_Name(file, server, number))

    def _written(self, name: _Name, start: int, stop: int, view: View) -> Iterator[Wish]:
        """Write to the SSD, if the segment is lifted, or worth it now: then these are its first bytes there."""
        if name not in self._lifted[name.server] and self._is_worth_it(name):
            yield from self._enlist(name, stop - start, view)
        if name in self._lifted[name.server]:
            yield Place(name.file, start, stop, f"{self._pool}/{name.server}", "in a lifted segment", part=name.server)

    def _wanted(self, name: _Name, view: View) -> Iterator[Wish]:
        """Load the segment, if it is worth it and not in the buffer."""
        segment = self._stacks[name.server].get(name)
        if segment and segment.regular:
            yield from self._lift(name, view)
            return
        if not self._is_worth_it(name):
            return
        start, body, stop = self._bounds(name, view)
        yield from self._make_room(name.server, stop - start, view)
        space = f"{MEMORY}/{name.server}"
        if view.room(space) < stop - start:
            return
        self._stacks[name.server][name] = _Segment(regular=True)
        section = -(-self.body // self.sections)
        for low, high in [(start, body), *((low, min(low + section, stop)) for low in range(body, stop, section))]:
            if low < high:
                yield Place(name.file, low, high, space, "its locality is high", True, True, part=name.server)

    def _flag(self, name: _Name, start: int, stop: int, view: View) -> Iterator[Wish]:
        """Mark what is requested of the segment, and put it on top of the stack, as a ghost if it is not there."""
        stack = self._stacks[name.server]
        segment = stack.setdefault(name, _Segment())
        stack.move_to_end(name)
        base = name.number * (self.head + self.body)
        first, last = (start - base) // _FLAG, (stop - 1 - base) // _FLAG
        segment.flags |= ((1 << (last - first + 1)) - 1) << first
        if len(stack) > max(1, self.buffer // (self.head + self.body)):
            yield from self._forget_ghosts(name.server, 1, view)

    def _make_room(self, server: int, length: int, view: View) -> Iterator[Wish]:
        """Evict from the bottom of the stack until the buffer has room, then remove the ghosts at the bottom."""
        stack, space = self._stacks[server], f"{MEMORY}/{server}"
        while view.room(space) < length:
            name = next((name for name, segment in stack.items() if segment.regular), None)
            if name is None:
                return
            yield from self._lift(name, view)
            start, _, stop = self._bounds(name, view)
            yield from self._measure(name, stack.pop(name), view)
            yield Drop(name.file, start, stop, space, "the least recently used segment", server)
            yield from self._forget_ghosts(server, len(stack), view)

    def _forget_ghosts(self, server: int, most: int, view: View) -> Iterator[Wish]:
        stack = self._stacks[server]
        for _ in range(most):
            name, segment = next(iter(stack.items()), (None, None))
            if name is None or segment is None or segment.regular:
                return
            del stack[name]
            yield from self._measure(name, segment, view)

    def _measure(self, name: _Name, segment: _Segment, view: View) -> Iterator[Wish]:
        """The segment's locality is known now; if it is too low, de-lift the segment."""
        start, _, stop = self._bounds(name, view)
        flags = max(1, -(-(stop - start) // _FLAG))
        self._localities[name] = segment.flags.bit_count() / flags
        if self._localities[name] < self.locality and name in self._lifted[name.server]:
            yield from self._de_lift(name, "its locality is low", view)

    def _lift(self, name: _Name, view: View) -> Iterator[Wish]:
        """Copy the head to the SSD, once all of it is in the buffer."""
        start, body, _ = self._bounds(name, view)
        space, lifted = f"{self._pool}/{name.server}", self._lifted[name.server]
        if name in lifted or any(
            extent.space != f"{MEMORY}/{name.server}" for extent in view.extents(name.file, start, body, name.server)
        ):
            return
        yield from self._enlist(name, body - start, view)
        if name in lifted:
            yield Place(name.file, start, body, space, "its locality is high", True, part=name.server)

    def _enlist(self, name: _Name, length: int, view: View) -> Iterator[Wish]:
        """Count the segment as lifted, if the SSD has room for ``length`` bytes of it, now or at the next attempt."""
        space, lifted = f"{self._pool}/{name.server}", self._lifted[name.server]
        if view.room(space) < length and lifted:
            yield from self._de_lift(next(iter(lifted)), "the SSD is full", view)
        if view.room(space) >= length:
            lifted[name] = None

    def _is_worth_it(self, name: _Name) -> bool:
        return self._localities.get(name, 0.0) >= self.locality

    def _de_lift(self, name: _Name, reason: str, view: View) -> Iterator[Wish]:
        del self._lifted[name.server][name]
        start, _, stop = self._bounds(name, view)
        yield Drop(name.file, start, stop, f"{self._pool}/{name.server}", reason, name.server)

    def _bounds(self, name: _Name, view: View) -> tuple[int, int, int]:
        """Where its head and its body begin, and where it ends; within the present size of the file."""
        start = name.number * (self.head + self.body)
        end = max(start, min(start + self.head + self.body, view.size(name.file, name.server)))
        return start, min(start + self.head, end), end
