"""One run of an experiment: its program on its testbed, by one scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.papers.programs import Program, again, in_rounds, program, size
from benchmarks.papers.table import Experiment, Point
from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import analyze
from pdla.layouts.candidates import candidates
from pdla.layouts.config import load_cluster
from pdla.model import Candidate, Cluster, Cost, Layout, Op, PatternPlan, Plan, Signature
from pdla.policies.e10 import E10, Phase, bandwidth
from pdla.policies.ibridge import IBridge
from pdla.policies.liu import LiU
from pdla.policies.online import Online, Place, Request, Space, View, Wish
from pdla.policies.s4d import S4D
from pdla.simulator.machine import Machine
from pdla.simulator.online import simulate_online
from pdla.simulator.run import Result, outcome_of
from pdla.simulator.schemes import Replicas, Scheme
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

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """The program's patterns."""
        return self.program.signatures if self.program.trace is None else analyze(self.program.trace).signatures


Measured = dict[str, float]


def run(point: Point, experiment: Experiment) -> Measured:
    """The measures of one point; ``bandwidth`` (MB/s) is always one of them."""
    parameters, changes = experiment.at(point)
    parameters |= {"order": point.scheme, "experiment": experiment.name}
    op: Op = "read" if point.op == "read" else "write"
    made = program(experiment.program, parameters, op)
    return SCHEMES[point.scheme](
        Run(made, _testbed(load_cluster(experiment.cluster, changes), parameters, made), op, parameters)
    )


def _testbed(cluster: Cluster, parameters: Mapping[str, Any], made: Program) -> Cluster:
    """The experiment's cluster, with its number of SSDs, their capacity, and its number of aggregators.

    If its data are ``scaled`` down, so is the memory of servers. ``seeks`` makes the seeks of the
    home pool longer.
    """
    scaled, seeks = parameters.get("scaled", 1), parameters.get("seeks", 1.0)
    pools = [replace(pool, device=replace(pool.device, memory=pool.device.memory // scaled)) for pool in cluster.pools]
    pools = [
        replace(pool, startup=tuple((distance, seeks * seconds) for distance, seconds in pool.startup))
        if pool.name == cluster.home_pool
        else pool
        for pool in pools
    ]
    cluster = replace(cluster, pools=tuple(pools))
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


def _static(one: Run, layouts: Sequence[Layout] = (), home: str | None = None) -> Measured:
    """With a replica of each pattern in its layout and without write-back; without layouts the original."""
    workload, machine = one.workload, Machine(one.cluster, home)
    for length in workload.sizes:
        machine.add_file(length)
    plan = Plan("", "", tuple(map(_planned, one.signatures, layouts)) if layouts else (), (), one.cluster)
    outcome = outcome_of(workload, machine, INDEPENDENT, Replicas.of(plan, workload, machine))
    call = outcome.call_seconds / outcome.calls
    return {
        "bandwidth": one.program.bytes / outcome.io_seconds / MEGABYTE,
        "recording_percent": 100 * RECORDING / call,
        "redirecting_percent": 100 * REDIRECTING / call,
    }


def _planned(signature: Signature, layout: Layout) -> PatternPlan:
    return PatternPlan(signature, (Candidate(layout.pool, layout, Cost(0.0, 0.0, 0.0, 0.0)),), 0, "")


def _pd(one: Run) -> Measured:
    """Replicas in the file system's own layout (PDLA 5.1)."""
    if one.parameters.get("replicas") == "rounds":
        return _static(replace(one, program=in_rounds(one.program)))
    home = one.cluster
    strips = (home.home_strip,) * home.home_servers
    return _static(
        one,
        [
            Layout(home.home_pool, home.home_servers, 1, strips, AccessMap.from_signature(signature).size)
            for signature in one.signatures
        ],
    )


def _in_layouts_of(*spaces: str) -> Callable[[Run], Measured]:
    """Replicas in the layouts that the planner finds cheapest in these spaces, whether they are worth it or not."""

    def simulated(one: Run) -> Measured:
        if one.parameters.get("replicas") == "rounds":
            return _pd(one)
        return _static(one, [_cheapest(signature, one.cluster, spaces) for signature in one.signatures])

    return simulated


def _cheapest(signature: Signature, cluster: Cluster, spaces: Sequence[str]) -> Layout:
    pools = [cluster.pool(name) for name in spaces if "+" not in name]
    pairs = [(cluster.pool(a), cluster.pool(b)) for a, b in (name.split("+") for name in spaces if "+" in name)]
    found = candidates(signature, AccessMap.from_signature(signature).size, cluster, pools, pairs)
    layouts = [(one.cost.total, one.layout) for one in found if one.layout and not one.refused]
    return min(layouts, key=lambda one: one[0])[1]


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
    return {"bandwidth": bandwidth(phases) / MEGABYTE, "cache_s": cached, "sync_s": result.until - cached}


def _e10_theory(one: Run) -> Measured:
    assert one.program.trace is not None
    result = simulate_online(from_trace(one.program.trace), one.cluster, CacheOnly(), COLLECTIVE)
    return {"bandwidth": result.bandwidth / MEGABYTE}


def _two_phase(one: Run) -> Measured:
    workload, machine = one.workload, Machine(one.cluster)
    for length in workload.sizes:
        machine.add_file(length)
    outcome = outcome_of(workload, machine, COLLECTIVE, Replicas.of(None, workload, machine))
    return {"bandwidth": one.program.bytes / outcome.io_seconds / MEGABYTE}


def _original(one: Run) -> Measured:
    """The original; on LiU's testbed, where latencies count, it is simulated as the policies are."""
    return _online(one, Nothing) if one.parameters["experiment"].startswith("liu/") else _static(one)


SCHEMES: Mapping[str, Callable[[Run], Measured]] = {
    "original": _original,
    "sequential": _static,
    "random": _static,
    "pd": _pd,
    "h-pdla": _in_layouts_of("hdd"),
    "s-orig": lambda one: _static(one, home="ssd"),
    "ns-pdla": _in_layouts_of("ssd"),
    "s-pdla": _in_layouts_of("hdd", "ssd", "hdd+ssd"),
    "s4d": _s4d,
    "liu": _liu,
    "ibridge": lambda one: _online(one, IBridge),
    "disabled": _two_phase,
    "enabled": _e10,
    "theory": _e10_theory,
}
