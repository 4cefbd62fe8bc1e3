"""What the next run would take with each scheme of ``pdla run``, by simulation of a recorded one.

Reads and writes are simulated apart, each natively and with every scheme, because a policy serves them in different
ways: a write in the run itself, a read in a later one. What the schemes save is a share of the native seconds; the
measured ones, times what is left, are the forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pdla.autopilot.schemes import REPLICAS
from pdla.critical_data import CriticalData, chosen
from pdla.errors import ConfigError, PdlaError
from pdla.model import Cluster, Op, Plan
from pdla.policies.cached_writes import CriticalWrites, Fragments
from pdla.policies.e10 import E10
from pdla.policies.ibridge import IBridge
from pdla.policies.liu import LiU
from pdla.policies.online import pool_of
from pdla.replicator.critical_patterns import critical_requests
from pdla.replicator.critical_reads import reserved_for_writes
from pdla.simulator.later_runs import after_runs, beside_disks, with_extents_on_ssds
from pdla.simulator.online import simulate_online
from pdla.simulator.run import simulate
from pdla.simulator.verification import AS_IT_IS
from pdla.simulator.workload import Workload, from_trace
from pdla.traces.trace import Trace
from pdla.units import format_seconds

OPERATIONS: tuple[Op, ...] = ("read", "write")
LEAD: Mapping[str, int] = {"s4d": 1, "ibridge": 1, "liu": 2}
"""The runs from which a policy learns what to serve of a program that reads."""
CREDIBLE = 2.0
"""A run that takes so many times as long as its simulation, or as little, is not forecast."""
ASKED = 500_000
"""So many requests a policy is asked in a forecast, at most: it is Python, and takes some 50 microseconds for each."""


@dataclass(frozen=True)
class Forecast:
    """``seconds`` of the next run by scheme; ``absent``: why there is no forecast of a scheme, or of any ("")."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


def forecast(trace: Trace, plan: Plan, measured: float, *, leased: bool = False) -> Forecast:
    """The forecast for the run of a trace, with the replicas of ``plan``, which took ``measured`` seconds natively.

    Seconds are those of the slowest rank in calls of MPI-IO. ``leased``: what goes to replicas comes home
    after the run.
    """
    cluster = plan.cluster
    parts = {op: part for op in OPERATIONS if (part := _part(trace, op)) is not None}
    try:
        works = {op: from_trace(part) for op, part in parts.items()}
        native = {op: simulate(work, cluster, AS_IT_IS).slowest for op, work in works.items()}
    except PdlaError as error:
        return Forecast(absent={"": str(error)})
    whole = sum(native.values())
    if not whole or not 1 / CREDIBLE <= measured / whole <= CREDIBLE:
        return Forecast(
            absent={"": f"the run took {format_seconds(measured)}, and {format_seconds(whole)} in the simulation"}
        )
    found: dict[str, dict[Op, float]] = {}
    absent: dict[str, str] = {}
    for op, work in works.items():
        for scheme, simulated in _schemes(op, parts[op], work, plan, leased).items():
            try:
                found.setdefault(scheme, {})[op] = simulated()
            except PdlaError as error:
                absent[scheme] = str(error)
    by_replicas = found.get(REPLICAS, {})
    replicas = by_replicas.get("read", native.get("read", 0.0))
    seconds = {}
    for scheme in found.keys() - absent.keys():
        read = min(found[scheme].get("read", replicas), replicas)  # replicas serve besides
        # What has a replica for writes is not cached.
        write = by_replicas.get("write", found[scheme].get("write", native.get("write", 0.0)))
        seconds[scheme] = measured * (read + write) / whole
    return Forecast(seconds, absent)


def _part(trace: Trace, op: Op) -> Trace | None:
    """The trace without the calls of the other operation; None: it has none of this one."""
    other = "write" if op == "read" else "read"
    records = trace.records
    if not (records["op"] == op).any():
        return None
    return replace(trace, records=records[records["op"] != other].reset_index(drop=True), posix=trace.posix.iloc[:0])


def _schemes(op: Op, trace: Trace, work: Workload, plan: Plan, leased: bool) -> dict[str, Callable[[], float]]:
    """How the schemes that may serve this operation are simulated."""
    cluster = plan.cluster

    def asked(simulated: Callable[[], float], kind: str) -> Callable[[], float]:
        def simulate_it() -> float:
            if not pool_of(cluster, kind, "--policy auto").where:
                raise ConfigError(f"the pool of kind {kind!r} has no directories")
            if len(work.arrays["item"]) > ASKED:
                raise PdlaError("the run has too many requests to simulate it")
            return simulated()

        return simulate_it

    apart = replace(beside_disks(cluster), client_cache=False)
    if op == "read":
        return {
            REPLICAS: lambda: simulate(work, cluster, AS_IT_IS, plan).slowest,
            "s4d": asked(lambda: _critical(trace, work, cluster), "ssd"),
            "ibridge": asked(lambda: after_runs(work, apart, IBridge(), AS_IT_IS, LEAD["ibridge"]), "ssd"),
            "liu": asked(lambda: after_runs(work, apart, LiU(), AS_IT_IS, LEAD["liu"]), "ssd"),
        }
    # LiU serves the writes of real programs no faster than natively (docs/policies.md).
    by_replicas: dict[str, Callable[[], float]] = {}
    if any(one.signature.op == "write" and one.choice.layout for one in plan.patterns):
        by_replicas[REPLICAS] = lambda: simulate(work, cluster, AS_IT_IS, plan, leased=leased).slowest
    return {
        **by_replicas,
        "e10": asked(lambda: simulate_online(work, cluster, E10(), AS_IT_IS).slowest, "node"),
        "s4d": asked(lambda: simulate_online(work, cluster, CriticalWrites(), AS_IT_IS).slowest, "ssd"),
        "ibridge": asked(lambda: simulate_online(work, cluster, Fragments(), AS_IT_IS).slowest, "ssd"),
    }


def _critical(trace: Trace, work: Workload, cluster: Cluster) -> float:
    """Seconds with the critical reads on the SSD servers, as many as they have room for."""
    accesses = trace.accesses()
    tables = {}
    for number in accesses["file"].unique().tolist():
        part = accesses[accesses["file"] == number].sort_values("rank", kind="stable")
        offsets, ranks, lengths = (part[column].to_numpy(np.int64) for column in ("offset", "rank", "length"))
        tables[trace.path(number)] = CriticalData.of_reads(*critical_requests(offsets, ranks, lengths, cluster))
    capacity = pool_of(cluster, "ssd", "s4d").capacity
    room = 1 << 60 if capacity is None else max(capacity - reserved_for_writes(cluster), 0)
    return with_extents_on_ssds(work, cluster, AS_IT_IS, chosen(tables, room)).slowest
