"""The schemes that are compared: the program as it is, other methods of MPI-IO, and policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdla.accessmap import AccessMap
from pdla.errors import ConfigError
from pdla.model import Cluster, Layout, Plan
from pdla.simulator.core import MAP, Array
from pdla.simulator.machine import Machine
from pdla.simulator.workload import Workload

_MOST_RUNS = 1 << 12
"""So many runs of an original are written back one by one; if there are more, as if they adjoined."""


@dataclass(frozen=True)
class Scheme:
    """How accesses are served.

    Attributes:
        policy: the policy that chooses replicas (pdla.policies), "" for none.
        home: the kind of pool that holds the originals; None: the pool that the cluster names.
        together: independent calls are made collective.
        collective: collective calls use two-phase I/O; if not, each rank accesses the file by
            itself.
        sieve: pieces of a call are read and written together (data sieving), if the cluster has a
            buffer for it.
    """

    name: str
    policy: str = ""
    home: str | None = None
    together: bool = False
    collective: bool = True
    sieve: bool = True


BASELINES = (
    Scheme("none"),
    Scheme("independent", collective=False, sieve=False),
    Scheme("sieving", collective=False),
    Scheme("two-phase", together=True),
    Scheme("s-orig", home="ssd"),
)
"""Calls as the program makes them; every piece by itself; with data sieving; collectively; all originals on SSDs."""


def methods(scheme: Scheme, cluster: Cluster) -> dict[str, Any]:
    """The members of struct sim_input that say how calls become requests."""
    return {
        "sieve": (cluster.sieve_read, cluster.sieve_write) if scheme.sieve else (0, 0),
        "collective_buffer": cluster.collective_buffer if scheme.collective else 0,
        "aggregators": cluster.aggregators or 0,
        "client_cache": cluster.client_cache,
        "client_sync": cluster.client_sync,
        "client_read_ahead": cluster.client_read_ahead,
        "always": scheme.together,
    }


def home_pool(scheme: Scheme, cluster: Cluster) -> str | None:
    """The pool that holds the originals instead of their own.

    Raises:
        ConfigError: the cluster has no pool of the kind.
    """
    if scheme.home is None:
        return None
    pools = [pool.name for pool in cluster.pools if pool.kind == scheme.home]
    if not pools:
        raise ConfigError(f"{cluster.source}: {scheme.name} needs a pool of kind {scheme.home!r}, but there is none")
    return pools[0]


@dataclass
class Replicas:
    """The replicas of a plan on a machine, as the core reads them."""

    maps: list[list[tuple[int, ...]]]  # of each file
    loops: list[tuple[int, int, int]] = field(default_factory=list)
    extents: list[Array] = field(default_factory=list)
    written: list[tuple[int, AccessMap, int]] = field(default_factory=list)  # (file, map, object)
    sizes: dict[str, int] = field(default_factory=dict)  # bytes in each space

    @classmethod
    def of(cls, plan: Plan | None, workload: Workload, machine: Machine) -> Replicas:
        """The replicas of ``plan`` for files of ``workload``, put on ``machine``."""
        self = cls([[] for _ in workload.files])
        files = {path: number for number, path in enumerate(workload.files)}
        for pattern in plan.patterns if plan else ():
            layout, signature = pattern.choice.layout, pattern.signature
            if layout and signature.file in files:
                self.add(files[signature.file], AccessMap.from_signature(signature), layout, signature.op, machine)
        return self

    def add(self, file: int, access_map: AccessMap, layout: Layout, op: str, machine: Machine) -> None:
        """Put one more on ``machine``: it has those bytes of a file that ``access_map`` names, for this operation."""
        number = machine.add(layout, access_map.size)
        self.sizes[layout.pool] = self.sizes.get(layout.pool, 0) + access_map.size
        extents, count = sum(map(len, self.extents)), 0
        if access_map.extents is not None:
            self.extents.append(access_map.extents)
            count = len(access_map.extents)
        writes = op == "write"
        loops = (len(self.loops), len(access_map.loops))
        place = (access_map.start, access_map.length, access_map.replica_start)
        self.maps[file].append((number, 2 if writes else 1, *loops, *place, extents, count))
        self.loops += access_map.loops
        if writes:
            self.written.append((file, access_map, number))

    def arrays(self) -> dict[str, Array]:
        """The members of struct sim_input that say where the replicas' bytes are."""
        return {
            "first_map": np.cumsum([0, *map(len, self.maps)]),
            "map": np.array([one for of_file in self.maps for one in of_file], MAP),
            "map_loops": np.array(self.loops, np.int64).reshape(-1, 3),
            "extents": np.concatenate([np.empty((0, 3), np.int64), *self.extents]),
        }

    def write_back(self, files: Sequence[int], buffer: int) -> Iterator[tuple[int, ...]]:
        """The transfers of the write-back from the replicas of ``files``.

        One mover reads a buffer of a replica, in its order, and writes the same bytes to the
        original, in the file's order.
        """
        stage = 0
        for file, access_map, number in self.written:
            if file not in files:
                continue
            done = 0
            for start, stop in _runs(access_map):
                for low in range(start, stop, buffer):
                    high = min(low + buffer, stop)
                    yield (stage, number, -1, 0, done, done + high - low, 0)
                    yield (stage + 1, file, -1, 1, low, high, 0)
                    stage, done = stage + 2, done + high - low


def _runs(access_map: AccessMap) -> list[tuple[int, int]]:
    """The ranges of the file that a map holds, in the file's order."""
    if access_map.pieces > _MOST_RUNS:
        start = access_map.start if access_map.extents is None else int(access_map.extents[0, 0])
        return [(start, start + access_map.size)]
    runs: list[tuple[int, int]] = []
    for tile in access_map.locate(0, 1 << 62):
        if runs and runs[-1][1] == tile.offset:
            runs[-1] = runs[-1][0], tile.offset + tile.length
        else:
            runs.append((tile.offset, tile.offset + tile.length))
    return runs
