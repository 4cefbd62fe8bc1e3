"""The simulated machine: servers, and the objects (files, replicas, caches) striped over them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pdla.errors import ConfigError
from pdla.layouts.plugins import backend_class
from pdla.layouts.striping import component_sizes
from pdla.model import Cluster, Layout, Pool
from pdla.policies.online import HOME, MEMORY
from pdla.simulator.core import OBJECT, QUEUES, SERVER, Array

_ENDLESS = 1 << 62


class Machine:
    """The servers of ``cluster``, and the objects on them, one after the other.

    The home servers are the first ones of their pool; if it has too few, more servers like them are
    added. ``home`` puts the originals on all servers of another pool. A file begins on the server
    after that of the file before it, unless the files are ``aligned``: then all begin on the first
    one.

    Attributes:
        spaces: the names under which bytes are counted, by number.

    Raises:
        ConfigError: the cluster has no pool ``home``, or a pool is inside one that does not exist.
    """

    def __init__(self, cluster: Cluster, home: str | None = None, *, aligned: bool = False) -> None:
        self.cluster = cluster
        self.spaces: list[str] = []
        self._aligned = aligned
        self._first: dict[str, int] = {}  # of each pool its first server,
        self._count: dict[str, int] = {}  # and how many it has
        self._servers: list[Pool] = []  # the pool of each
        for pool in cluster.pools:
            self._first[pool.name] = len(self._servers)
            count = max(pool.servers, cluster.home_servers) if pool.name == cluster.home_pool else pool.servers
            self._count[pool.name] = count
            self._servers += [pool] * count
        if home not in (None, *self._first):
            raise ConfigError(f"{cluster.source}: there is no pool {home!r} for the originals")
        self._pools = len(self._servers)
        # What serves the writes of a duplex device is a server of its own, after all others.
        self._writing = [number for number, pool in enumerate(self._servers) if pool.device.duplex]
        pool = cluster.pool(home or cluster.home_pool)
        width = cluster.home_servers if home is None else pool.servers
        self.home = Layout(pool.name, width, 1, (cluster.home_strip,) * width, _ENDLESS)
        self._free = [0] * (self._pools + width)  # for each device the first free address
        self._objects: list[tuple[int, ...]] = []
        self._strips: dict[tuple[int, ...], int] = {}
        self._strip_numbers: list[int] = []
        self._server_of: list[int] = []
        self._bases: list[int] = []
        self._sizes: list[int] = []

    def space(self, name: str) -> int:
        """The number of the name under which bytes are counted."""
        if name not in self.spaces:
            self.spaces.append(name)
        return self.spaces.index(name)

    def add_file(self, size: int) -> int:
        """Add an original of so many bytes."""
        first, width = self._first[self.home.pool], self.home.servers
        begin = 0 if self._aligned else len(self._objects) % width
        servers = [first + (begin + j) % width for j in range(width)]
        singly = backend_class(self.cluster.pool(self.home.pool).backend).strip_by_strip
        return self._add(self.home, servers, component_sizes(self.home, size), HOME, singly)

    def add(self, layout: Layout, size: int) -> int:
        """Add a replica, or a cache, of so many bytes in a pool (or a hybrid)."""
        pool = self.cluster.pool(layout.pool)
        servers = [self._first[part.name] + place for part in pool.parts or (pool,) for place in range(part.servers)]
        return self._add(layout, servers[: layout.servers], component_sizes(layout, size), layout.pool)

    def add_servers(self, pool: str, size: int) -> int:
        """Add bytes of which each server of a pool has its own, at most ``size``."""
        count = self.cluster.pool(pool).servers
        layout = Layout(pool, count, 1, (1,) * count, _ENDLESS)
        return self._add(layout, range(self._first[pool], self._first[pool] + count), [size] * count, pool)

    def add_memory(self) -> int:
        """Add the memory of the home servers: no device, only their links."""
        count = self.home.servers
        layout = Layout(self.home.pool, count, 1, (1,) * count, _ENDLESS)
        return self._add(layout, range(self._pools, self._pools + count), [0] * count, MEMORY)

    def _add(
        self, layout: Layout, servers: Sequence[int], sizes: Sequence[int], space: str, strip_by_strip: bool = False
    ) -> int:
        if layout.strips not in self._strips:
            self._strips[layout.strips] = len(self._strip_numbers)
            self._strip_numbers += [*layout.strips, *accumulate((0, *layout.strips[:-1]))]
        number = len(self._objects)
        first = len(self._server_of)
        strips = self._strips[layout.strips]
        alone = backend_class(self.cluster.pool(layout.pool).backend).cache_alone
        places = layout.groups, len(layout.strips), layout.section, strips, first
        self._objects.append((*places, self.space(space), strip_by_strip, alone))
        for server, size in zip(servers, sizes, strict=True):
            self._server_of.append(server)
            self._bases.append(self._free[server])
            self._sizes.append(size)
            self._free[server] += size
        return number

    def arrays(self) -> dict[str, Array]:
        """The members of struct sim_input that describe the machine, as arrays."""
        curve: list[tuple[int, float]] = []
        known: dict[tuple[tuple[int, float], ...], int] = {}

        def points(of: tuple[tuple[int, float], ...]) -> tuple[int, int]:
            if of not in known:
                known[of] = len(curve)
                curve.extend(of)
            return known[of], len(of)

        servers = np.zeros(len(self._free) + len(self._writing), SERVER)
        servers["node"] = -1
        servers["writer"] = np.arange(len(servers))
        for pool in self.cluster.pools:
            first, device = self._first[pool.name], pool.device
            same = servers[first : first + self._count[pool.name]]
            curves = points(pool.startup), points(device.write_startup or pool.startup)
            same["seconds_per_byte"] = pool.read_seconds_per_byte, pool.write_seconds_per_byte
            same["curve"], same["points"] = zip(*curves, strict=True)
            same["clients_curve"], same["clients_points"] = points(device.clients_cost)
            same["rotation"], same["slice"], same["idle"] = (
                device.rotation_seconds, device.slice_seconds, device.idle_seconds,
            )  # fmt: skip
            same["queue"], same["channels"], same["overlap"] = QUEUES.index(device.queue), device.channels, pool.overlap
            same["depth"], same["share"] = device.queue_depth, device.background_share
            same["memory_depth"] = device.memory_depth
            same["host"] = self._host(pool) + np.arange(len(same))
            same["memory"], same["read_ahead"] = device.memory, device.read_ahead
            if pool.kind == "node":
                same["node"] = np.arange(len(same))
        memory = servers[self._pools : len(self._free)]
        memory["curve"], memory["points"] = points(((0, 0.0),))
        memory["channels"] = _ENDLESS
        memory["host"] = self._first[self.home.pool] + np.arange(self.home.servers)
        servers["writer"][self._writing] = np.arange(len(self._free), len(servers))
        servers[len(self._free) :] = servers[self._writing]
        places, seconds = zip(*curve, strict=True)
        return {
            "server": servers,
            "curve_place": np.array(places, np.int64),
            "curve_seconds": np.array(seconds, np.float64),
            "object": np.array(self._objects, OBJECT),
            "strips": np.array(self._strip_numbers, np.int64),
            "server_of": np.array(self._server_of, np.int64),
            "bases": np.array(self._bases, np.int64),
            "sizes": np.array(self._sizes, np.int64),
        }

    def by_pool(self, totals: Array, counts: Array | None = None) -> dict[str, float]:
        """For values of each server, the sum in each pool, or the mean per one of ``counts``."""
        found = {}
        for name, first in self._first.items():
            own = range(first, first + self._count[name])
            servers = [*own, *(len(self._free) + i for i, number in enumerate(self._writing) if number in own)]
            count = 1 if counts is None else max(int(counts[servers].sum()), 1)
            found[name] = float(totals[servers].sum() / count)
        return found

    def _host(self, pool: Pool) -> int:
        inside = pool.device.inside
        if inside and inside not in self._first:
            known = ", ".join(self._first)
            raise ConfigError(f"{self.cluster.source}: [pools.{pool.name}] is inside {inside!r}, not one of {known}")
        return self._first[inside or pool.name]

    def numbers(self, ranks: int) -> dict[str, Any]:
        """The members of struct sim_input that describe the machine, as numbers, for so many ranks."""
        cluster, per_node = self.cluster, self.cluster.per_node(max(ranks, 1))
        return {
            "ranks": ranks,
            "nodes": max([-(-ranks // per_node), 1, *(pool.servers for pool in cluster.pools if pool.kind == "node")]),
            "ranks_per_node": per_node,
            "places": len(self._server_of),
            "servers": len(self._free) + len(self._writing),
            "spaces": len(self.spaces),
            "connect": cluster.connect_seconds,
            "seconds_per_byte": cluster.network_seconds_per_byte,
            "jitter": cluster.jitter_seconds,
            "call_seconds": cluster.call_seconds,
            "copy_seconds": cluster.copy_seconds_per_byte,
            "exchange_seconds": cluster.exchange_seconds_per_byte,
            "cores": cluster.cores or 0,
        }
