"""What the simulator says for a program of benchmarks/schemes.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import COLLECTIVE, H_PDLA, INDEPENDENT, S_LEASE, S_PDLA, Case
from benchmarks.simulator_accuracy import _counting, trace_of, workload_of
from benchmarks.ssd_cache_runs import SECOND, WRITTEN, Job
from benchmarks.ssd_cache_simulated import CLIENTS, SIEVING
from benchmarks.ssd_cache_simulated import simulated as by_s4d
from pdla.layouts.config import load_cluster
from pdla.model import Cluster
from pdla.policies.e10 import E10
from pdla.policies.ibridge import IBridge
from pdla.policies.liu import LiU
from pdla.policies.online import Online
from pdla.policies.planfile import read_plan
from pdla.simulator.later_runs import beside_disks, repeated
from pdla.simulator.online import simulate_online
from pdla.simulator.run import simulate
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import Workload
from pdla.traces.trace import Trace
from pdla.units import MiB

SIMULATED = (INDEPENDENT, COLLECTIVE, H_PDLA, S_PDLA, S_LEASE, "S4D-Cache", "iBridge", "LiU", "E10")
EARLIER = {
    ("S4D-Cache", "read"): 1, ("S4D-Cache", "write"): 0,
    ("iBridge", "read"): 1, ("iBridge", "write"): 0,
    ("LiU", "read"): 2, ("LiU", "write"): 2,
    ("E10", "write"): 0,
}  # fmt: skip
"""The runs from which a policy learns before the one that is measured."""
TWO_PHASE = Scheme("two-phase", together=True)


def simulated(job: Job, op: str, file: Path, plans: Mapping[str, Path], schemes: Sequence[str]) -> dict[str, float]:
    """MiB/s of each scheme."""
    described = load_cluster(file)
    cluster = replace(described, pools=tuple(map(_counting, described.pools)), **CLIENTS)
    case = replace(job.programs[0], op=op)
    trace = trace_of(case)
    moved, calls = case.accessed / MiB, _workload(case, trace, "")
    found = {}
    for one in schemes:
        if one == INDEPENDENT:
            found[one] = moved / simulate(calls, cluster, SIEVING).seconds
        elif one == COLLECTIVE:
            found[one] = moved / simulate(_workload(case, trace, COLLECTIVE), cluster, TWO_PHASE).seconds
        elif one in plans:
            plan, leased = read_plan(plans[one]), one == S_LEASE
            named = replace(calls, files=tuple({one.signature.file for one in plan.patterns}) or calls.files)
            found[one] = moved / simulate(named, _cached(cluster, op), SIEVING, plan, leased=leased).seconds
        elif one == "S4D-Cache":
            found[one] = by_s4d(job, op, file)[SECOND if op == "read" else WRITTEN]
        elif one == "E10":
            result = simulate_online(_workload(case, trace, COLLECTIVE), cluster, E10(), TWO_PHASE)
            found[one] = moved / result.until
        else:
            policy: Online = IBridge() if one == "iBridge" else LiU()
            storage = _cached(beside_disks(cluster), op)
            found[one] = moved / _learned(calls, storage, policy, EARLIER[one, op])
    return found


def _workload(case: Case, trace: Trace, contestant: str) -> Workload:
    accesses = trace.accesses().sort_values("rank", kind="stable").assign(file=trace.path(0))
    return workload_of(case, accesses, contestant, False, 0)


def _learned(calls: Workload, cluster: Cluster, policy: Online, earlier: int) -> float:
    """Seconds of the run after so many ``earlier`` ones, until all bytes are home.

    Where the policy puts nothing on SSDs, it is the program's own run; simulated policies have no page cache.
    """
    storage = replace(cluster, client_cache=False)
    ends = [0.0]
    for runs in (earlier, earlier + 1) if earlier else (1,):
        result = simulate_online(repeated(calls, runs), storage, policy, SIEVING)
        turn = math.ceil(result.until / policy.period) * policy.period if policy.period else result.until
        ends.append(result.until + max(result.settled - turn, 0.0))
    if not any(result.space.values()):
        return simulate(calls, cluster, SIEVING).seconds
    return ends[-1] - ends[-2]


def _cached(cluster: Cluster, op: str) -> Cluster:
    """SSDs whose files are in the page cache, which makes few requests of what is written."""
    if op == "read":
        return cluster
    pools = (replace(one, startup=((0, 0.0),)) if one.kind == "ssd" else one for one in cluster.pools)
    return replace(cluster, pools=tuple(pools))
