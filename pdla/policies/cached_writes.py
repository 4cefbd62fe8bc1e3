"""Writes by S4D-Cache and iBridge as ``pdla run`` makes them: the caches of clients, not a part of the servers.

Each process has a cache file on an SSD server; the ranks take the servers in turn. What they have cached comes home
together, in rounds (docs/adr/0028-caches-come-home-by-nodes.md): when a file is synchronized or closed, which waits
for it, and with S4D-Cache a second after it was written. What is read is not cached in the run that reads it.

These policies say what a run of the program would take. ``pdla.policies.s4d`` and ``ibridge`` are those of the papers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pdla.layouts.devices import seconds_per_byte, startup
from pdla.model import Cluster, Pool
from pdla.policies.e10 import EXCHANGES, HOME_CHUNK, exchange_costs
from pdla.policies.online import Drop, Online, Part, Place, Request, Space, View, Wish, WriteBack, parts, pool_of
from pdla.policies.s4d import benefit_of

PERIOD = 1.0
"""Seconds after which S4D-Cache brings home what was written (replicator/stub/node_home.c)."""

LAID_OUT = 1 << 20
"""Bytes of a cache file that are laid out at a time (replicator/stub/cache.c)."""


class CachedWrites(Online):
    """A policy whose ``cached`` ranges of a request go to the cache file of its rank."""

    name: str

    def __init__(self) -> None:
        self._files: set[int] = set()

    def cached(self, request: Request, cluster: Cluster) -> Iterator[tuple[int, int]]:
        """The ranges of the file that a write has cached."""
        raise NotImplementedError

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """The SSD servers."""
        pool = pool_of(cluster, "ssd", self.name)
        capacity = (pool.capacity or 1 << 60) // pool.servers
        return [Space(f"{pool.name}/{server}", capacity, chunk=HOME_CHUNK) for server in range(pool.servers)]

    def storage(self, cluster: Cluster, ranks: int) -> Cluster:
        """The SSD servers with the cache files of so many processes.

        Where nodes have a page cache, cache files are written to it, and no SSD is waited for. Otherwise, where a
        server has several, each write has a start-up: it does not go on where the one before ended. On synchronous
        mounts all bytes are written twice, since a file is laid out ahead, and that is a start-up there and one back
        each time (replicator/stub/cache.c).
        """
        ssd = pool_of(cluster, "ssd", self.name)
        pools = (_written(one, cluster, ranks) if one == ssd else one for one in cluster.pools)
        return replace(cluster, pools=tuple(pools))

    def clients(self, cluster: Cluster) -> Mapping[str, Any]:
        """Each rank writes its own pieces, past the page cache of the originals; a node brings home in chunks what it
        has, out of the page cache of the cache files."""
        return {
            "exchange": EXCHANGES.index("disable"),
            "exchange_costs": exchange_costs(cluster),
            "home_chunk": HOME_CHUNK,
            "home_cached": cluster.client_cache,
            "client_cache": False,
        }

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """Writes, to the SSD server of the rank."""
        if request.op == "write":
            pool = pool_of(view.cluster, "ssd", self.name)
            for start, stop in self.cached(request, view.cluster):
                self._files.add(request.file)
                space = f"{pool.name}/{request.rank % pool.servers}"
                yield Place(request.file, start, stop, space, "a write that is faster on the SSDs")

    def tick(self, view: View) -> Iterator[Wish]:
        """The rounds while the program runs."""
        for file in sorted(self._files):
            yield WriteBack(file, 0, 1 << 62, "a round")

    def close(self, file: int | None, view: View) -> Iterator[Wish]:
        """All that is cached of a file comes home, and the file's room is free."""
        for one in sorted(self._files) if file is None else self._files & {file}:
            yield WriteBack(one, 0, 1 << 62, "the file is closed", wait=True)
            yield Drop(one, 0, 1 << 62, pool_of(view.cluster, "ssd", self.name).name, "the file is closed")


class CriticalWrites(CachedWrites):
    """S4D-Cache: writes that save more than their way home costs (docs/adr/0030-critical-reads-become-replicas.md)."""

    name = "s4d"
    period = PERIOD

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, int, float], bool] = {}

    def cached(self, request: Request, cluster: Cluster) -> Iterator[tuple[int, int]]:
        """All of a critical request."""
        before = self._ends.get((request.rank, request.file))
        distance = math.inf if before is None else abs(request.start - before)
        self._ends[request.rank, request.file] = request.stop
        length = request.stop - request.start
        key = request.start % (cluster.home_strip * cluster.home_servers), length, distance
        if key not in self._known:
            home = cluster.pool(cluster.home_pool)
            way_home = length * home.write_seconds_per_byte / cluster.home_servers
            self._known[key] = benefit_of(cluster, "write", request.start, length, distance) > way_home
        if self._known[key]:
            yield request.start, request.stop


class Fragments(CachedWrites):
    """iBridge: parts of a request that are smaller than a strip (docs/adr/0032-fragments-go-to-ssd-servers.md)."""

    name = "ibridge"
    MOST = 64 << 10
    """Bytes of the largest one (replicator/stub/fragment_requests.c)."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[tuple[int, int, int], int] = {}

    def cached(self, request: Request, cluster: Cluster) -> Iterator[tuple[int, int]]:
        """The first and the last part, where they are small, and faster on an SSD."""
        first, last = request.start // cluster.home_strip, (request.stop - 1) // cluster.home_strip
        found = parts(cluster, request.start, request.stop)
        sizes = [part.stop - part.start for part in found]
        if last - first < cluster.home_servers:  # no server has more than one strip of it
            if self._gains(request, found[0], cluster):
                yield request.start, request.start + sizes[0]
            if len(found) > 1 and self._gains(request, found[-1], cluster):
                yield request.stop - sizes[-1], request.stop
        for part in found:
            self._ends[request.rank, request.file, part.server] = part.stop

    def _gains(self, request: Request, part: Part, cluster: Cluster) -> bool:
        home, ssd = cluster.pool(cluster.home_pool), pool_of(cluster, "ssd", self.name)
        size, end = part.stop - part.start, self._ends.get((request.rank, request.file, part.server))
        distance = math.inf if end is None else abs(part.start - end)
        is_small = size < min(cluster.home_strip, self.MOST)
        return is_small and _seconds(home, distance, size) > _seconds(ssd, math.inf, size)


def _seconds(pool: Pool, distance: float, size: int) -> float:
    return startup(pool, distance, "write") + size * seconds_per_byte(pool, "write")


def _written(pool: Pool, cluster: Cluster, ranks: int) -> Pool:
    synchronous = _is_synchronous(pool, cluster)
    if cluster.client_cache and not synchronous:
        return replace(pool, device=replace(pool.device, write_startup=((0, 0.0),)), write_seconds_per_byte=0.0)
    away = startup(pool, math.inf, "write")
    if ranks > pool.servers:
        pool = replace(pool, device=replace(pool.device, write_startup=((0, away),)))
    if synchronous:
        twice = 2 * (pool.write_seconds_per_byte + away / LAID_OUT)
        pool = replace(pool, write_seconds_per_byte=twice)
    return pool


def _is_synchronous(pool: Pool, cluster: Cluster) -> bool:
    """Whether a write to the pool's directories waits for the device: as they are mounted here, or as described."""
    here = [Path(one) for one in pool.where if Path(one).exists()]
    return any(os.statvfs(one).f_flag & os.ST_SYNCHRONOUS for one in here) if here else cluster.client_sync
