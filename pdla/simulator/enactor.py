"""The enactor: carries out the wishes of an online policy, and keeps the rules of all policies.

It knows which bytes are where, and says for every request what to transfer; it knows no time. The
rules:

- No space holds more than its capacity.
- The last copy stays: dirty bytes are written back before they are dropped. Otherwise only a write
  ends them.
- Every read gets the bytes last written: a write ends all other copies.
- A wish that is impossible is refused, with the reason, in ``refused``.

Changes by a request take effect when the request is served, changes by a move in the background
when the move is finished. A move whose bytes are written meanwhile continues without effect: bytes
being fetched are not here, bytes being written back stay dirty, and the addresses that it uses are
taken until it ends. Each client node (for a policy that is ``by_part``, each server) makes its
moves one after another, in the order of the wishes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple

from sortedcontainers import SortedDict  # type: ignore[import-untyped]

from pdla.errors import ConfigError
from pdla.model import Cluster, Layout, Op
from pdla.policies.online import (
    HOME,
    MEMORY,
    Drop,
    Extent,
    Online,
    Part,
    Place,
    Request,
    Space,
    Wish,
    WriteBack,
    home_layout,
    part_size,
    parts,
)
from pdla.simulator.extents import Addresses, Copy, ExtentMap


class Transfer(NamedTuple):
    """Bytes [start, stop) of a space are read or written.

    Attributes:
        space: "home" (the originals), a pool, or "memory" (of a home server: no device).
        server: the server of the space that has all of it; then start and stop count its own bytes.
            None: the bytes are striped by ``Enactor.layout(space)`` (for the originals they are the
            bytes of the file).
        file: for the originals, the file; a cache has one range of addresses for all files.
        node: the client node whose link it crosses, or None: it stays inside a server or a node.
        first: the byte of the file, or of the part, at ``start``.
    """

    space: str
    server: int | None
    file: int
    op: Op
    start: int
    stop: int
    node: int | None
    first: int


Stages = tuple[tuple[Transfer, ...], ...]
"""Stages follow one another; the transfers of a stage run in parallel."""


class Move(NamedTuple):
    """Transfers that no request asked for: ``Enactor.finished(token)`` must be called when they are done.

    Attributes:
        urgent: it has the priority of requests; others have a lower one.
        after: it starts when its request has been served; others start at once.
    """

    token: int
    stages: Stages
    urgent: bool = False
    after: bool = False


class Step(NamedTuple):
    """What serves a request: first the end of the moves ``wait``, then the ``foreground`` stages.

    The moves to wait for belong to this step, are in progress, or will be returned by
    ``Enactor.finished``.
    """

    foreground: Stages = ()
    background: tuple[Move, ...] = ()
    wait: tuple[int, ...] = ()


class Refusal(NamedTuple):
    """A wish that was refused, when, and why."""

    time: float
    wish: Wish
    why: str


_Key = tuple[int, int | None]
"""A file, or the part of it that a home server stores."""


class _Cache:
    """What a space holds, and where; its clean copies by the time of their last use."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.level = space.level
        server = space.name.partition("/")[2]
        self.server = int(server) if server else None
        self.addresses = Addresses(space.capacity)
        self.clean: SortedDict = SortedDict()
        self.peak = 0

    @property
    def used(self) -> int:
        return self.space.capacity - self.addresses.left

    def take(self, length: int) -> list[tuple[int, int]]:
        pieces = self.addresses.take(length)
        self.peak = max(self.peak, self.used)
        return pieces


@dataclass
class _Job:
    """A move: its bytes are the copies in its ranges that are still ``incoming`` (``cleaning``) by its token."""

    token: int
    key: _Key
    level: str
    ranges: list[tuple[int, int]]
    node: int
    kind: Literal["back", "fetch", "load", "pass"]
    size: int
    started: bool = False
    freed: list[Copy] = field(default_factory=list)  # copies that are gone but whose addresses it uses

    def add(self, copy: Copy) -> None:
        """Add the bytes of a copy."""
        self.size += copy.length
        start, stop = self.ranges[-1]
        if stop == copy.start:
            self.ranges[-1] = start, copy.stop
        else:
            self.ranges.append((copy.start, copy.stop))

    def copies(self, extents: ExtentMap) -> Iterator[Copy]:
        """The copies that have bytes of this move."""
        for start, stop in self.ranges:
            yield from extents.overlapping(start, stop)

    @property
    def queued(self) -> bool:
        """Whether it is one of the moves that a node (server) makes one after another."""
        return self.kind in ("back", "fetch")


class Enactor:
    """Serves requests as ``policy`` wishes; it is also the policy's View.

    ``files`` are the sizes of the files; writes beyond them make files longer.

    Attributes:
        refused: the refused wishes, in order.

    Raises:
        ConfigError: the cluster lacks what the policy needs.
    """

    def __init__(self, policy: Online, cluster: Cluster, files: Mapping[int, int] | None = None) -> None:
        self.policy = policy
        self.cluster = cluster
        self.now = 0.0
        self.refused: list[Refusal] = []
        self._home = home_layout(cluster)
        self._caches = {space.name: _Cache(space) for space in policy.spaces(cluster)}
        self._check_spaces()
        self._levels = tuple(dict.fromkeys(cache.level for cache in self._caches.values()))
        self._on_nodes = {level for level in self._levels if level != MEMORY and cluster.pool(level).kind == "node"}
        self._sizes = dict(files or {})
        self._maps: dict[_Key, dict[str, ExtentMap]] = defaultdict(dict)
        self._jobs: dict[int, _Job] = {}
        self._queues: dict[int, deque[_Job]] = defaultdict(deque)  # by node (server); the first of each is started
        self._serial = 0
        self._clock = 0  # number of requests so far
        self._request: Request | None = None
        self._moves: list[Move] = []
        self._wait: dict[int, None] = {}

    def _check_spaces(self) -> None:
        servers = {pool.name: pool.servers for pool in self.cluster.pools} | {MEMORY: self.cluster.home_servers}
        for cache in self._caches.values():
            whole = cache.server is None and cache.space.layout is not None
            if cache.level not in servers or not (whole or (cache.server or 0) < servers[cache.level]):
                wanted = f"a pool with a layout, or one of its servers ({', '.join(servers)})"
                raise ConfigError(f"there is no space {cache.space.name!r}: a space is {wanted}")

    # ---- called by the engine ---------------------------------------------------------------------------------------

    def serve(self, request: Request) -> Step:
        """What serves ``request``, and what else must be done."""
        self.now, self._request = request.time, request
        self._clock += 1
        later = []
        for wish in self.policy.request(request, self):
            if isinstance(wish, WriteBack) and wish.wait:
                self._refuse(wish, "a request cannot wait for what it writes: make this wish at the close")
            elif isinstance(wish, WriteBack):
                later.append(wish)
            else:
                self._enact(wish)
        stage: list[Transfer] = []
        serve = self._read if request.op == "read" else self._write
        for key, start, stop in self._ranges(request):
            serve(key, start, stop, request.node, stage)
        if request.op == "write":
            self._sizes[request.file] = max(request.stop, self._sizes.get(request.file, 0))
        self._request = None
        before = len(self._moves)
        self._enact_all(later)
        self._moves[before:] = [move._replace(after=True) for move in self._moves[before:]]
        return self._step(stage)

    def tick(self, now: float) -> Step:
        """What must be done every ``policy.period``."""
        self.now = now
        self._enact_all(self.policy.tick(self))
        return self._step([])

    def close(self, now: float, file: int | None = None) -> Step:
        """What must be done when ``file`` is closed or synchronized, or at the end of the run (None)."""
        self.now = now
        self._enact_all(self.policy.close(file, self))
        return self._step([])

    def finished(self, token: int, now: float) -> tuple[Move, ...]:
        """Report that a move is done; returns the moves to start now."""
        self.now = now
        job = self._jobs.pop(token)
        extents = self._maps[job.key][job.level]
        for copy in list(job.copies(extents)):
            if copy.incoming == token:
                copy.incoming = 0
                self._settle(job.key, copy)
            elif copy.cleaning == token:
                copy.cleaning, copy.dirty = 0, False
                self._settle(job.key, copy)
                if copy.doomed:
                    self._remove(extents, copy)
        for copy in job.freed:
            self._free(copy)
        if job.queued:
            queue = self._queues[job.node]
            queue.popleft()
            if queue:
                self._start(queue[0])
        moves, self._moves = tuple(self._moves), []
        return moves

    @property
    def spaces(self) -> list[Space]:
        """The spaces for copies."""
        return [cache.space for cache in self._caches.values()]

    @property
    def used(self) -> dict[str, int]:
        """Bytes taken in every space."""
        return {name: cache.used for name, cache in self._caches.items()}

    @property
    def peak(self) -> dict[str, int]:
        """The most bytes ever taken in every space."""
        return {name: cache.peak for name, cache in self._caches.items()}

    @property
    def dirty(self) -> list[Extent]:
        """The bytes that the originals do not have."""
        return [
            Extent(file, copy.start, copy.stop, copy.space, True, part)
            for (file, part), levels in self._maps.items()
            for extents in levels.values()
            for copy in extents.overlapping(0, 1 << 62)
            if copy.dirty
        ]

    # ---- seen by the policy (View) ----------------------------------------------------------------------------------

    def layout(self, space: str) -> Layout:
        """How addresses of ``space``, a whole pool or the originals, are striped."""
        layout = self._home if space == HOME else self._caches[space].space.layout
        assert layout is not None, f"{space} is one server"
        return layout

    def size(self, file: int, part: int | None = None) -> int:
        """Bytes of a file, or of a part of it, as far as is known."""
        size = self._sizes.get(file, 0)
        return size if part is None else part_size(self.cluster, size, part)

    def room(self, space: str) -> int:
        """Free bytes of a space."""
        return self._caches[space].addresses.left

    def parts(self, start: int, stop: int) -> list[Part]:
        """The parts of a file's bytes [start, stop)."""
        return parts(self.cluster, start, stop)

    def extents(self, file: int, start: int, stop: int, part: int | None = None) -> list[Extent]:
        """The extents from which [start, stop) would be read now, in order and without gaps."""
        return [
            Extent(file, low, high, copy.space if copy else HOME, bool(copy and copy.dirty), part)
            for low, high, copy in self._sources((file, part), start, stop)
        ]

    def coldest(self, space: str) -> Iterator[Extent]:
        """The clean copies in ``space``, the least recently used first."""
        clean, last = self._caches[space].clean, (0, 0)
        while (index := clean.bisect_right(last)) < len(clean):
            last, ((file, part), copy) = clean.peekitem(index)
            yield Extent(file, copy.start, copy.stop, space, False, part)

    # ---- wishes -----------------------------------------------------------------------------------------------------

    def _enact_all(self, wishes: Iterable[Wish]) -> None:
        """Carry the wishes out; write-backs of one file in a row are made together."""
        for key, group in groupby(wishes, _to_go_home):
            if key:
                self._enact_write_backs(
                    key, [wish for wish in group if isinstance(wish, WriteBack) and self._is_sound(wish)]
                )
            else:
                for wish in group:
                    self._enact(wish)

    def _enact(self, wish: Wish) -> None:
        key = wish.file, wish.part
        if not self._is_sound(wish):
            return
        if isinstance(wish, Place):
            self._place(key, wish)
        elif isinstance(wish, WriteBack):
            self._enact_write_backs(key, [wish])
        else:
            self._drop(key, wish)

    def _is_sound(self, wish: Wish) -> bool:
        if (wish.part is None) == self.policy.by_part:
            self._refuse(wish, f"a wish of this policy names {'a part' if self.policy.by_part else 'no part'}")
            return False
        if wish.start >= wish.stop:
            self._refuse(wish, "it names no bytes")
        return wish.start < wish.stop

    def _enact_write_backs(self, key: _Key, wishes: Iterable[WriteBack]) -> None:
        for level, extents in self._maps[key].items():
            found = [
                (wish, self._carve(key, extents, wish.start, wish.stop, lambda copy: copy.dirty)) for wish in wishes
            ]
            self._write_back(key, level, [copy for _, copies in found for copy in copies])
            self._wait |= {copy.cleaning: None for wish, copies in found if wish.wait for copy in copies}

    def _refuse(self, wish: Wish, why: str) -> None:
        self.refused.append(Refusal(self.now, wish, why))

    def _place(self, key: _Key, wish: Place) -> None:
        start, stop = wish.start, wish.stop
        writing = self._request is not None and self._request.op == "write" and not wish.fetch
        if wish.fetch:
            start, stop = max(start, 0), min(stop, self.size(*key))
        else:
            own = [(low, high) for one, low, high in self._ranges(self._request) if one == key] if self._request else []
            start, stop = max([start, *(low for low, _ in own)]), min([stop, *(high for _, high in own or [(0, 0)])])
        if start >= stop:
            self._refuse(wish, "not bytes of the file" if wish.fetch else "not bytes of the request")
        elif wish.space == HOME and writing:
            self._end_copies(key, start, stop)
        elif wish.space not in self._caches:
            self._refuse(wish, f"copies may be in {', '.join(self._caches)}")
        elif self.policy.by_part and self._caches[wish.space].server != wish.part:
            self._refuse(wish, f"copies of part {wish.part} may be on server {wish.part}")
        elif writing:
            self._place_written(key, start, stop, wish)
        else:
            self._place_copy(key, start, stop, wish)

    def _place_written(self, key: _Key, start: int, stop: int, wish: Place) -> None:
        """Copies for what the request writes, if there are none yet in this space."""
        cache = self._caches[wish.space]
        if not cache.space.writes:
            self._refuse(wish, "the space takes no writes")
            return
        extents = self._extents(key, cache.level)

        def stays(copy: Copy) -> bool:
            return copy.space == wish.space and not copy.incoming

        gaps = _between([copy for copy in extents.overlapping(start, stop) if stays(copy)], start, stop)
        if self._has_room(cache, gaps, wish):
            for low, high in gaps:
                self._end_copies(key, low, high)
                for copy in self._new_copies(extents, cache, low, high, self._mover(key, wish)):
                    copy.dirty = True

    def _place_copy(self, key: _Key, start: int, stop: int, wish: Place) -> None:
        """A copy of what the request reads, or of what is fetched."""
        cache = self._caches[wish.space]
        extents = self._extents(key, cache.level)
        gaps = _between(extents.overlapping(start, stop), start, stop)
        if gaps and self._has_room(cache, gaps, wish):
            kind: Literal["load", "fetch", "pass"] = ("load" if wish.wait else "fetch") if wish.fetch else "pass"
            job = self._job(key, cache.level, start, stop, self._mover(key, wish), kind)
            for low, high in gaps:
                for copy in self._new_copies(extents, cache, low, high, job.node):
                    copy.incoming, copy.urgent = job.token, kind == "load"
            self._queue(job)

    def _has_room(self, cache: _Cache, gaps: Iterable[tuple[int, int]], wish: Place) -> bool:
        needed = sum(high - low for low, high in gaps)
        if needed > cache.addresses.left:
            self._refuse(wish, f"it needs {needed} bytes, but {wish.space} has {cache.addresses.left} left")
        return needed <= cache.addresses.left

    def _mover(self, key: _Key, wish: Place) -> int:
        if key[1] is not None:
            return key[1]
        if wish.node is not None:
            return wish.node
        return self._request.node if self._request else self._caches[wish.space].server or 0

    def _drop(self, key: _Key, wish: Drop) -> None:
        level, _, server = wish.space.partition("/")
        extents = self._maps[key].get(level)
        if extents is None:
            return
        copies = self._carve(key, extents, wish.start, wish.stop, lambda copy: not server or copy.space == wish.space)
        for copy in copies:
            if copy.dirty:
                copy.doomed = True
            else:
                self._remove(extents, copy)
        self._write_back(key, level, [copy for copy in copies if copy.dirty])

    def _write_back(self, key: _Key, level: str, copies: Iterable[Copy]) -> None:
        """Write dirty copies back; copies of one node go together, up to the size that it moves at a time."""
        jobs: list[_Job] = []
        last: dict[int, _Job] = {}
        for copy in copies:
            if not copy.cleaning:
                job = last.get(copy.node)
                if job is None or job.size >= self._caches[copy.space].space.chunk:
                    job = last[copy.node] = self._job(key, level, copy.start, copy.stop, copy.node, "back")
                    jobs.append(job)
                else:
                    job.add(copy)
                copy.cleaning = job.token
        for job in jobs:
            self._queue(job)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _ranges(self, request: Request) -> list[tuple[_Key, int, int]]:
        if not self.policy.by_part:
            return [((request.file, None), request.start, request.stop)]
        found = parts(self.cluster, request.start, request.stop)
        return [((request.file, server), start, stop) for server, start, stop in found]

    def _read(self, key: _Key, start: int, stop: int, node: int, stage: list[Transfer]) -> None:
        for low, high, source in self._sources(key, start, stop):
            copy = source
            if copy and not self._caches[copy.space].space.reads:
                level = self._caches[copy.space].level
                dirty = self._carve(key, self._maps[key][level], low, high)
                self._write_back(key, level, dirty)
                self._wait |= dict.fromkeys(copy.cleaning for copy in dirty)
                copy = None
            elif copy and copy.incoming:
                self._wait[copy.incoming] = None
            elif copy:
                self._use(key, copy)
            self._transfer(stage, "read", key, copy, low, high, node)

    def _write(self, key: _Key, start: int, stop: int, node: int, stage: list[Transfer]) -> None:
        """Write into the copies that exist, and to the original if there are none; all other copies end."""
        gaps = [(start, stop)]
        for level, extents in self._maps[key].items():
            rest = []
            for low, high in gaps:
                copies = self._carve(
                    key, extents, low, high, lambda copy: not copy.incoming and self._caches[copy.space].space.writes
                )
                for copy in copies:
                    self._end_copies(key, copy.start, copy.stop, spare=level)
                    self._soil(key, copy)
                    self._transfer(stage, "write", key, copy, copy.start, copy.stop, node)
                rest += _between(copies, low, high)
            gaps = rest
        for low, high in gaps:
            self._end_copies(key, low, high)
            self._transfer(stage, "write", key, None, low, high, node)

    def _sources(self, key: _Key, start: int, stop: int, arriving: bool = True) -> list[tuple[int, int, Copy | None]]:
        """Where [start, stop) is read, in order; None: the original. ``arriving``: with loads that a read waits for."""
        gaps: list[tuple[int, int]] = [(start, stop)]
        found: list[tuple[int, int, Copy | None]] = []
        levels = self._maps.get(key, {})
        for extents in (levels[level] for level in self._levels if level in levels):
            rest = []
            for low, high in gaps:
                copies = [copy for copy in extents.overlapping(low, high) if self._readable(copy, arriving)]
                found += [(max(copy.start, low), min(copy.stop, high), copy) for copy in copies]
                rest += _between(copies, low, high)
            gaps = rest
        found += [(low, high, None) for low, high in gaps]
        return sorted(found, key=lambda one: one[0])

    def _readable(self, copy: Copy, arriving: bool) -> bool:
        here = not copy.incoming or (copy.urgent and arriving)
        return copy.dirty or (here and self._caches[copy.space].space.reads)

    def _step(self, stage: list[Transfer]) -> Step:
        step = Step((tuple(stage),) if stage else (), tuple(self._moves), tuple(self._wait))
        self._moves, self._wait = [], {}
        return step

    def _transfer(
        self, stage: list[Transfer], op: Op, key: _Key, copy: Copy | None, start: int, stop: int, node: int | None
    ) -> None:
        """Add a transfer; it is joined with the last one if it continues that."""
        file, part = key
        space, server, address = HOME, part, start
        if copy:
            cache = self._caches[copy.space]
            space, server, address = cache.level, cache.server, copy.address + start - copy.start
            if space in self._on_nodes and server == node:
                node = None
        if stage:
            last = stage[-1]
            if (
                last.stop == address
                and last.first + last.stop - last.start == start
                and (last.space, last.server, last.file, last.op, last.node) == (space, server, file, op, node)
            ):
                stage[-1] = last._replace(stop=address + stop - start)
                return
        stage.append(Transfer(space, server, file, op, address, address + stop - start, node, start))

    # ---- moves ------------------------------------------------------------------------------------------------------

    def _job(
        self, key: _Key, level: str, start: int, stop: int, node: int, kind: Literal["back", "fetch", "load", "pass"]
    ) -> _Job:
        self._serial += 1
        return _Job(self._serial, key, level, [(start, stop)], node, kind, stop - start)

    def _queue(self, job: _Job) -> None:
        self._jobs[job.token] = job
        if job.queued:
            queue = self._queues[job.node]
            queue.append(job)
            if queue[0] is not job:
                return
        self._start(job)

    def _start(self, job: _Job) -> None:
        job.started = True
        found = job.copies(self._maps[job.key][job.level])
        stages: list[tuple[Transfer, ...]] = []
        reads: list[Transfer] = []
        writes: list[Transfer] = []
        size = 0
        node = None if self.policy.by_part else job.node
        for copy in found:
            if job.token not in (copy.cleaning if job.kind == "back" else copy.incoming,):
                continue
            self._keep(copy, job)
            chunk = self._caches[copy.space].space.chunk
            for start in range(copy.start, copy.stop, chunk):
                stop = min(start + chunk, copy.stop)
                if size + stop - start > chunk:
                    stages += [tuple(reads), tuple(writes)]
                    reads, writes, size = [], [], 0
                size += stop - start
                if job.kind == "back":
                    self._transfer(reads, "read", job.key, copy, start, stop, node)
                    self._transfer(writes, "write", job.key, None, start, stop, node)
                    continue
                for low, high, source in self._sources(job.key, start, stop, False) if job.kind != "pass" else ():
                    if source:
                        self._keep(source, job)
                    self._transfer(reads, "read", job.key, source, low, high, node)
                self._transfer(writes, "write", job.key, copy, start, stop, node)
        stages += [tuple(reads), tuple(writes)]
        done = tuple(stage for stage in stages if stage)
        self._moves.append(Move(job.token, done, urgent=job.kind == "load", after=job.kind == "pass"))

    def _keep(self, copy: Copy, job: _Job) -> None:
        """Its addresses are in use until the job ends."""
        copy.busy = (*(token for token in copy.busy if token in self._jobs), job.token)

    # ---- copies -----------------------------------------------------------------------------------------------------

    def _extents(self, key: _Key, level: str) -> ExtentMap:
        return self._maps[key].setdefault(level, ExtentMap())

    def _new_copies(self, extents: ExtentMap, cache: _Cache, start: int, stop: int, node: int) -> list[Copy]:
        copies = []
        for address, length in cache.take(stop - start):
            self._serial += 1
            copy = Copy(start, start + length, cache.space.name, address, node, self._serial, self._clock)
            extents.add(copy)
            copies.append(copy)
            start += length
        return copies

    def _carve(
        self, key: _Key, extents: ExtentMap, start: int, stop: int, which: Callable[[Copy], bool] = lambda copy: True
    ) -> list[Copy]:
        """The copies of [start, stop), cut at its ends."""
        copies = []
        for copy in extents.overlapping(start, stop):
            if which(copy):
                inside = self._split(key, extents, copy, start) if copy.start < start else copy
                if inside.stop > stop:
                    self._split(key, extents, inside, stop)
                copies.append(inside)
        return copies

    def _split(self, key: _Key, extents: ExtentMap, copy: Copy, at: int) -> Copy:
        self._serial += 1
        second = extents.split(copy, at, self._serial)
        self._settle(key, second)
        return second

    def _settle(self, key: _Key, copy: Copy) -> None:
        """List the copy among the clean ones, if it is clean."""
        if not (copy.dirty or copy.incoming):
            self._caches[copy.space].clean[copy.used, copy.serial] = key, copy

    def _use(self, key: _Key, copy: Copy) -> None:
        self._unlist(copy)
        copy.used = self._clock
        self._settle(key, copy)

    def _unlist(self, copy: Copy) -> None:
        self._caches[copy.space].clean.pop((copy.used, copy.serial), None)

    def _soil(self, key: _Key, copy: Copy) -> None:
        """The copy is written: a write-back in progress has older bytes."""
        self._unlist(copy)
        copy.used, copy.dirty, copy.cleaning = self._clock, True, 0
        if copy.doomed:
            copy.doomed = False
            file, part = key
            drop = Drop(file, copy.start, copy.stop, copy.space, "wished before", part)
            self._refuse(drop, "it was written before its write-back was done")

    def _end_copies(self, key: _Key, start: int, stop: int, spare: str = "") -> None:
        """Copies are written elsewhere and end here; a write-back in progress must finish first."""
        for level, extents in self._maps[key].items():
            if level != spare:
                for copy in self._carve(key, extents, start, stop):
                    self._wait |= dict.fromkeys(token for token in copy.busy if self._is_on_its_way_home(token))
                    self._remove(extents, copy)

    def _is_on_its_way_home(self, token: int) -> bool:
        return token in self._jobs and self._jobs[token].kind == "back"

    def _remove(self, extents: ExtentMap, copy: Copy) -> None:
        extents.remove(copy)
        self._unlist(copy)
        self._free(copy)

    def _free(self, copy: Copy) -> None:
        """Free its addresses, or let the last move that uses them do it."""
        users = [token for token in copy.busy if token in self._jobs]
        if users:
            self._jobs[users[-1]].freed.append(copy)
        else:
            self._caches[copy.space].addresses.free(copy.address, copy.length)


def _to_go_home(wish: Wish) -> _Key | None:
    return (wish.file, wish.part) if isinstance(wish, WriteBack) else None


def _between(copies: Iterable[Copy], start: int, stop: int) -> list[tuple[int, int]]:
    """The ranges of [start, stop) that none of ``copies`` (in order) has."""
    found = []
    for copy in copies:
        if start < copy.start:
            found.append((start, copy.start))
        start = max(start, copy.stop)
    if start < stop:
        found.append((start, stop))
    return found
