"""One run of an experiment: its program on its testbed, by one scheme."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from benchmarks.papers.programs import Program, again, in_rounds, program, size
from benchmarks.papers.table import VARIED, Experiment, Other, Point
from pdla.layouts.config import load_cluster
from pdla.model import Cluster, Op, Plan, Pool
from pdla.policies.e10 import E10, Phase, bandwidth
from pdla.policies.ibridge import IBridge
from pdla.policies.liu import LiU
from pdla.policies.online import Online, Place, Request, Space, View, Wish
from pdla.policies.s4d import S4D
from pdla.simulator.machine import Machine
from pdla.simulator.online import simulate_online
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import Result, outcome_of
from pdla.simulator.schemes import Scheme
from pdla.simulator.verification import verified_plan
from pdla.simulator.workload import Workload, from_signatures, from_trace

MEGABYTE = 1e6
INDEPENDENT = Scheme("", sieve=False, collective=False)
"""PVFS takes the pieces of a call as a list, without data sieving; collective calls only wait for each other."""
COLLECTIVE = Scheme("", together=True)
"""Two-phase I/O also if the ranks' pieces are not interleaved: romio_cb_write is enabled in E10 IV."""
RECORDING, REDIRECTING = 200e-9, 60e-9
"""Seconds that pdla needs for a call, to record it, and to find that it has no replica (docs/benchmarks.md)."""
BETWEEN_RUNS = 3600.0
"""Seconds in which the background work that a first run leaves is done."""


@dataclass(frozen=True)
class Run:
    """What a scheme needs to know of one run."""

    program: Program
    cluster: Cluster
    op: Op
    parameters: Mapping[str, Any]

    @property
    def workload(self) -> Workload:
        """The program as the simulator reads it."""
        if self.program.trace is None:
            return from_signatures(self.program.signatures, self.program.ranks)
        return from_trace(self.program.trace)


Measured = dict[str, float]


def run(point: Point, experiment: Experiment) -> Measured:
    """The measures of one point; ``bandwidth`` (MB/s) is always one of them."""
    parameters, changes = experiment.at(point)
    if experiment.program == "segmented":
        parameters["order"] = point.scheme
    op: Op = "read" if point.op == "read" else "write"
    made = _program(experiment.program, op, json.dumps(parameters))
    testbed = _testbed(load_cluster(experiment.cluster, changes), parameters, made)
    if point.other:
        testbed = _varied(testbed, point.other)
    return SCHEMES[point.scheme](Run(made, testbed, op, parameters))


@lru_cache(1)
def _program(name: str, op: Op, parameters: str) -> Program:
    return program(name, json.loads(parameters), op)


def _varied(cluster: Cluster, other: Other) -> Cluster:
    """The cluster with one of ``VARIED`` times a factor; unchanged if ``other`` is something else."""
    factor = float(other.value) if other.key in VARIED else 1.0
    device, _, what = other.key.partition(" ")
    if device == "link":
        return replace(cluster, network_seconds_per_byte=factor * cluster.network_seconds_per_byte)

    def pool_of(pool: Pool) -> Pool:
        if device == "memory":
            return replace(pool, device=replace(pool.device, memory=int(factor * pool.device.memory)))
        if device != ("disk" if pool.kind == "hdd" else "SSD"):
            return pool
        if what == "start-up":
            return replace(pool, startup=tuple((distance, factor * seconds) for distance, seconds in pool.startup))
        read, write = (factor * rate for rate in (pool.read_seconds_per_byte, pool.write_seconds_per_byte))
        return replace(pool, read_seconds_per_byte=read, write_seconds_per_byte=write)

    return replace(cluster, pools=tuple(map(pool_of, cluster.pools)))


def _testbed(cluster: Cluster, parameters: Mapping[str, Any], made: Program) -> Cluster:
    """The experiment's cluster, with its numbers of nodes, SSDs and aggregators, and the capacity of a cache.

    If its data are ``scaled`` down, so are the memory of servers and the capacities.
    """
    scaled = parameters.get("scaled", 1)
    pools = [
        replace(
            pool,
            device=replace(pool.device, memory=pool.device.memory // scaled),
            capacity=pool.capacity and pool.capacity // scaled,
        )
        for pool in cluster.pools
    ]
    cluster = replace(cluster, pools=tuple(pools))
    if "nodes" in parameters:
        cluster = replace(cluster, nodes=parameters["nodes"])
    if "aggregators" in parameters:
        aggregators, buffer = parameters["aggregators"].split("_")
        return replace(cluster, aggregators=int(aggregators), collective_buffer=int(buffer[:-1]) << 20)
    if "ssds" not in parameters and "cache" not in parameters:
        return cluster
    ssd = cluster.pool("ssd")
    if "ssds" in parameters:
        ssds = parameters["ssds"]
        ssd = replace(ssd, servers=ssds, where=tuple(f"ssd{number}" for number in range(ssds)))
    if "cache" in parameters:
        ssd = replace(ssd, capacity=int(parameters["cache"] * made.bytes))
    return replace(cluster, pools=tuple(ssd if pool.name == "ssd" else pool for pool in cluster.pools))


# ---- before a run ----------------------------------------------------------------------------------------------------


def _static(one: Run, plan: Plan | None = None, home: str | None = None) -> Measured:
    """With the replicas of a plan and without write-back; without a plan the original."""
    workload, machine = one.workload, Machine(one.cluster, home)
    for length in workload.sizes:
        machine.add_file(length)
    outcome = outcome_of(workload, machine, INDEPENDENT, Replicas.of(plan, workload, machine))
    call = outcome.call_seconds / outcome.calls
    return {
        "bandwidth": one.program.bytes / outcome.io_seconds / MEGABYTE,
        "recording_percent": 100 * RECORDING / call,
        "redirecting_percent": 100 * REDIRECTING / call,
        **_served(one.cluster, machine.by_pool(outcome.served)),
    }


def _served(cluster: Cluster, served: Mapping[str, float]) -> Measured:
    """How many requests the disks served, and how many the SSDs."""
    found = {"served_hdd": 0.0, "served_ssd": 0.0}
    for pool in cluster.pools:
        found["served_hdd" if pool.kind == "hdd" else "served_ssd"] += served[pool.name]
    return found


def _pd(one: Run) -> Measured:
    """Replicas in the file system's own layout (PDLA 5.1), the bytes in the order of access (3.3.1)."""
    return _static(replace(one, program=in_rounds(one.program)))


def _planned(policy: str, **options: Any) -> Callable[[Run], Measured]:
    """The replicas that ``pdla plan --writes lease --selection greedy`` chooses with this policy for a program's trace.

    ``options`` are more of ``verified_plan``.
    """

    def simulated(one: Run) -> Measured:
        analysis, writes = one.program.analyzed
        plan = verified_plan(analysis, one.cluster, policy, selection="greedy", writes=writes, leased=True, **options)
        return _static(one, plan)

    return simulated


# ---- during a run ----------------------------------------------------------------------------------------------------


class Nothing(Online):
    """No policy."""

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """None."""
        return []

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """None."""
        return iter(())


def _online(one: Run, make: Callable[[], Online], runs: int = 1) -> Measured:
    """The last of several runs of the program; the policy has learned from the earlier runs.

    ``latency_ms`` is that of the program's calls; each of its ranks always has one in progress. The
    values measured ``at_servers`` are the difference to a simulation without the last run.
    """
    assert one.program.trace is not None
    trace, closes = one.program.trace, list[tuple[int, float]]()
    files = len(trace.files)
    result = _runs(one, make(), runs, closes)
    first = one.parameters.get("beside", "none") != "none"
    ends = [time for file, time in closes if (file == 0 if first else file < files)]
    begins = [time + BETWEEN_RUNS for file, time in closes if file == files][:-1]
    seconds = ends[-1] - (begins[-1] if begins else 0.0)
    made = one.program.bytes_of(0 if first else None)
    records = trace.records[(trace.records["op"] != "other") & ((trace.records["file"] == 0) | (not first))]
    ranks = records["rank"].nunique()
    measured = {
        "bandwidth": made / seconds / MEGABYTE,
        "seconds": seconds * one.parameters.get("steps_in_all", 1) / one.parameters.get("steps", 1),
        "latency_ms": 1000 * ranks * seconds / len(records),
        "cached_percent": _cached(result, one.cluster),
        **_served(one.cluster, result.served),
    }
    if one.parameters.get("at_servers"):
        before = _runs(one, make(), runs - 1) if runs > 1 else None
        measured |= _at_servers(result, before, runs, one.cluster.home_pool)
    return measured


def _runs(one: Run, policy: Online, runs: int, closes: list[tuple[int, float]] | None = None) -> Result:
    assert one.program.trace is not None
    trace = again(one.program.trace, runs, BETWEEN_RUNS) if runs > 1 else one.program.trace
    return simulate_online(from_trace(trace), one.cluster, policy, INDEPENDENT, closes=closes)


def _at_servers(result: Result, before: Result | None, runs: int, home: str) -> Measured:
    """Milliseconds of a request of the first file, and millions of sectors between the requests of a disk."""
    latency, moved, served = result.latency[0], result.distance[home] * result.served[home], result.served[home]
    if before:
        latency = runs * latency - (runs - 1) * before.latency[0]
        moved -= before.distance[home] * before.served[home]
        served -= before.served[home]
    return {"server_ms": 1000 * latency, "sectors": moved / max(served, 1) / 512 / 1e6}


def _cached(result: Result, cluster: Cluster) -> float:
    """The share of the requests' bytes that SSDs served."""
    kinds = {pool.name: pool.kind for pool in cluster.pools}
    served = {name: by for name, (by, _) in result.moved.items()}
    on_ssds = sum(by for name, by in served.items() if kinds.get(name) == "ssd")
    return 100 * on_ssds / max(sum(served.values()), 1)


def _s4d(one: Run) -> Measured:
    """Reads are made a second time (V.A)."""
    return _online(one, lambda: S4D(period=one.parameters["period"]), 2 if one.op == "read" else 1)


def _liu(one: Run) -> Measured:
    """A first run shows which segments are worth it, a second one lifts them, a third one is measured."""
    buffer = size(one.parameters["buffer"])
    return _online(one, lambda: LiU(buffer=buffer, locality=one.parameters["locality"]), 3)


class CacheOnly(Online):
    """E10's "theoretical" bandwidth: without write-back."""

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """E10's."""
        self.nodes = E10().spaces(cluster)
        return self.nodes

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """What an aggregator writes, if its node has a device."""
        if request.op == "write" and request.collective and request.node < len(self.nodes):
            space = self.nodes[request.node].name
            yield Place(request.file, request.start, request.stop, space, "a collective write")


def _e10(one: Run) -> Measured:
    """Four files with 30 s of computation between them by Eq. 2, with the times of one file."""
    assert one.program.trace is not None
    closes = list[tuple[int, float]]()
    policy = E10(exchange="two-phase")
    result = simulate_online(from_trace(one.program.trace), one.cluster, policy, COLLECTIVE, closes=closes)
    cached = closes[0][1]
    pauses = [one.parameters["compute_seconds"]] * one.parameters["files"]
    if one.parameters["last"]:
        pauses[-1] = 0.0
    phases = [Phase(one.program.bytes, cached, result.until - cached, pause) for pause in pauses]
    return {"bandwidth": bandwidth(phases) / MEGABYTE, **_served(one.cluster, result.served)}


def _e10_theory(one: Run) -> Measured:
    assert one.program.trace is not None
    result = simulate_online(from_trace(one.program.trace), one.cluster, CacheOnly(), COLLECTIVE)
    return {"bandwidth": result.bandwidth / MEGABYTE, **_served(one.cluster, result.served)}


def _two_phase(one: Run) -> Measured:
    workload, machine = one.workload, Machine(one.cluster)
    for length in workload.sizes:
        machine.add_file(length)
    outcome = outcome_of(workload, machine, COLLECTIVE, Replicas.of(None, workload, machine))
    served = _served(one.cluster, machine.by_pool(outcome.served))
    return {"bandwidth": one.program.bytes / outcome.io_seconds / MEGABYTE, **served}


def _original(one: Run) -> Measured:
    """The original; on LiU's testbed, where latencies count, it is simulated as the policies are."""
    return _online(one, Nothing) if one.cluster.source == "example liu" else _static(one)


SCHEMES: Mapping[str, Callable[[Run], Measured]] = {
    "original": _original,
    "sequential": _static,
    "random": _static,
    "pd": _pd,
    "h-pdla": _planned("pdla-h"),
    "s-orig": lambda one: _static(one, home="ssd"),
    "ns-pdla": _planned("ns-pdla", seconds=0),  # it does not ask what a replica saves, and so no simulator
    "s-pdla": _planned("pdla-s"),
    "s4d": _s4d,
    "liu": _liu,
    "ibridge": lambda one: _online(one, IBridge),
    "disabled": _two_phase,
    "enabled": _e10,
    "theory": _e10_theory,
}
