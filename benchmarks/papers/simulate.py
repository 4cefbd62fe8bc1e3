"""One run of an experiment: its program on its testbed, by one scheme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.papers.programs import Program, program
from benchmarks.papers.table import Experiment, Point
from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import analyze
from pdla.layouts.candidates import candidates
from pdla.layouts.config import load_cluster
from pdla.model import Candidate, Cluster, Cost, Layout, PatternPlan, Plan, Signature
from pdla.simulator.machine import Machine
from pdla.simulator.run import outcome_of
from pdla.simulator.schemes import Replicas, Scheme
from pdla.simulator.workload import Workload, from_signatures, from_trace

MEGABYTE = 1e6
NO_COST = Cost(0.0, 0.0, 0.0, 0.0)


def run(point: Point, experiment: Experiment) -> dict[str, float]:
    """The measures of one point, of which ``bandwidth`` (MB/s) is always one."""
    parameters = {**experiment.at(point.value), "order": point.scheme}
    made = program(experiment.program, parameters, "read" if point.op == "read" else "write")
    cluster = _testbed(experiment, parameters)
    return SCHEMES[point.scheme](made, cluster)


def _testbed(experiment: Experiment, parameters: Mapping[str, Any]) -> Cluster:
    """The experiment's cluster, with as many SSDs as it says."""
    cluster = load_cluster(experiment.cluster)
    ssds = parameters.get("ssds")
    if ssds is None:
        return cluster
    pool = cluster.pool("ssd")
    where = tuple(f"ssd{number}" for number in range(ssds))
    return replace(
        cluster, pools=tuple(replace(one, servers=ssds, where=where) if one is pool else one for one in cluster.pools)
    )


def _workload(made: Program) -> Workload:
    return from_trace(made.trace) if made.trace else from_signatures(made.signatures, made.ranks)


def _signatures(made: Program) -> tuple[Signature, ...]:
    return analyze(made.trace).signatures if made.trace else made.signatures


def _replicated(
    made: Program, cluster: Cluster, layouts: Iterable[Layout], home: str | None = None
) -> dict[str, float]:
    """Statically: a replica of each signature in its layout, of which nothing is brought back; none: the original."""
    workload = _workload(made)
    machine = Machine(cluster, home)
    for length in workload.sizes:
        machine.add_file(length)
    patterns = tuple(
        PatternPlan(signature, (Candidate(layout.pool, layout, NO_COST),), 0, "")
        for signature, layout in zip(_signatures(made), layouts, strict=False)
    )
    plan = Plan("papers", "", patterns, (), cluster)
    outcome = outcome_of(workload, machine, Scheme("papers"), Replicas.of(plan, workload, machine))
    return {"bandwidth": made.bytes / outcome.io_seconds / MEGABYTE}


def _original(made: Program, cluster: Cluster) -> dict[str, float]:
    return _replicated(made, cluster, ())


def _s_orig(made: Program, cluster: Cluster) -> dict[str, float]:
    return _replicated(made, cluster, (), "ssd")


def _pd(made: Program, cluster: Cluster) -> dict[str, float]:
    """Replicas in pattern order, in the file system's own layout (PDLA 5.1)."""
    width, strip = cluster.home_servers, cluster.home_strip
    layouts = (
        Layout(cluster.home_pool, width, 1, (strip,) * width, AccessMap.from_signature(one).size)
        for one in _signatures(made)
    )
    return _replicated(made, cluster, layouts)


def _planned(*pools: str) -> Any:
    """Replicas in the layouts that the planner finds cheapest in these pools, be it worth it or not."""

    def simulated(made: Program, cluster: Cluster) -> dict[str, float]:
        of = [cluster.pool(name) for name in pools if "+" not in name]
        pairs = [(cluster.pool(a), cluster.pool(b)) for a, b in (name.split("+") for name in pools if "+" in name)]
        layouts = []
        for signature in _signatures(made):
            found = candidates(signature, AccessMap.from_signature(signature).size, cluster, of, pairs)
            best = min((one for one in found if one.layout and not one.refused), key=lambda one: one.cost.total)
            layouts.append(best.layout)
        return _replicated(made, cluster, layouts)

    return simulated


SCHEMES: Mapping[str, Any] = {
    "original": _original,
    "sequential": _original,
    "random": _original,
    "pd": _pd,
    "h-pdla": _planned("hdd"),
    "s-orig": _s_orig,
    "ns-pdla": _planned("ssd"),
    "s-pdla": _planned("hdd", "ssd", "hdd+ssd"),
}
