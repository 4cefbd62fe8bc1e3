"""What the simulator says for a case of benchmarks/ssd_cache.py."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.cases import INDEPENDENT
from benchmarks.simulator_accuracy import NODE, _counting, trace_of, workload_of
from benchmarks.ssd_cache_runs import SECOND, WRITTEN, Job
from pdla.accessmap import AccessMap
from pdla.critical_data import CriticalData, chosen
from pdla.layouts.config import load_cluster
from pdla.model import Cluster, Int64Array, Layout, Pool
from pdla.policies.online import BuiltIn, pool_of
from pdla.policies.s4d import S4D
from pdla.replicator.critical_patterns import critical_requests
from pdla.replicator.critical_reads import reserved_for_writes
from pdla.simulator.machine import Machine
from pdla.simulator.online import simulate_online
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import outcome_of, simulate
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import Workload
from pdla.traces.trace import Trace
from pdla.units import KiB, MiB

SIEVING = Scheme("sieving", collective=False)
CLIENTS = {name: value for name, value in NODE.items() if name != "cores"}
CLIENTS |= {"client_sync": True, "sieve_read": 4 * MiB, "sieve_write": 512 * KiB}
"""Buffers are ROMIO's."""


PERIOD = 1.0
"""Seconds between the turns of the rebuilder, in the simulator and in the library."""


class AsDescribed(S4D):
    """S4D-Cache that judges by the cluster file. The simulated devices count also what a page cache would merge."""

    def __init__(self, described: Cluster) -> None:
        super().__init__(period=PERIOD)
        self.described = described

    def built_in(self, cluster: Cluster) -> BuiltIn:
        """With the start-ups of the cluster file."""
        return super().built_in(self.described)


def simulated(job: Job, op: str, file: Path) -> dict[str, float]:
    """MiB/s of the original and of S4D-Cache, of reads in a second run; writes until their bytes are home."""
    described = load_cluster(file)
    cluster = replace(described, pools=tuple(map(_counting, described.pools)), **CLIENTS)
    traces = [trace_of(replace(one, op=op)) for one in job.programs]
    calls = [
        workload_of(replace(one, op=op), trace.accesses().assign(file=str(number)), "", False, 0)
        for number, (one, trace) in enumerate(zip(job.programs, traces, strict=True))
    ]
    native = sum(simulate(one, cluster, SIEVING).seconds for one in calls)
    if op == "read":
        tables = {str(number): _critical(trace, described) for number, trace in enumerate(traces)}
        held = chosen(tables, _room_for_reads(described))
        cached = sum(_second_run(one, held.get(one.files[0]), described, cluster) for one in calls)
    else:
        pools = tuple(_for_writes(one, described) if one.kind == "ssd" else one for one in cluster.pools)
        cached = sum(_written(one, described, replace(cluster, pools=pools)) for one in calls)
    moved = sum(one.accessed for one in job.programs) / MiB
    return {INDEPENDENT: moved / native, SECOND if op == "read" else WRITTEN: moved / cached}


def _critical(trace: Trace, described: Cluster) -> CriticalData:
    accesses = trace.accesses().sort_values("rank", kind="stable")
    offsets, ranks, lengths = (accesses[column].to_numpy(np.int64) for column in ("offset", "rank", "length"))
    return CriticalData.of_reads(*critical_requests(offsets, ranks, lengths, described))


def _room_for_reads(described: Cluster) -> int:
    capacity = pool_of(described, "ssd", "s4d").capacity
    return 1 << 60 if capacity is None else max(capacity - reserved_for_writes(described), 0)


def _for_writes(ssds: Pool, described: Cluster) -> Pool:
    """The room is the part for writes. Cache files are in the page cache, which makes few requests of them."""
    room = None if ssds.capacity is None else reserved_for_writes(described)
    return replace(ssds, capacity=room, startup=((0, 0.0),))


def _second_run(calls: Workload, extents: Int64Array | None, described: Cluster, cluster: Cluster) -> float:
    """Seconds with these bytes on the SSDs. It is the run of a plan: simulated policies have no page cache."""
    machine = Machine(cluster)
    machine.add_file(calls.sizes[0])
    replicas = Replicas.of(None, calls, machine)
    if extents is not None:
        ssd, held = pool_of(described, "ssd", "s4d"), AccessMap(extents=extents)
        layout = Layout(ssd.name, ssd.servers, 1, (described.home_strip,) * ssd.servers, held.size)
        replicas.add(0, held, layout, "read", machine)
    return outcome_of(calls, machine, SIEVING, replicas).io_seconds


def _written(calls: Workload, described: Cluster, cluster: Cluster) -> float:
    """Seconds until all bytes are home. A close of the library does not wait for the rebuilder's next turn."""
    policy = AsDescribed(described)
    result = simulate_online(calls, cluster, policy, SIEVING)
    turn = math.ceil(result.until / PERIOD) * PERIOD
    return result.until + max(result.settled - turn, 0.0)
