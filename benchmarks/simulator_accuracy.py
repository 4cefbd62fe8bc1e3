"""The simulator's accuracy: its results for the bench's cases on throttled disks, compared with measured ones.

    python -m benchmarks.bench && python -m benchmarks.simulator_accuracy [CLUSTER.toml]

This takes the rows of build/bench.json, prints a table, and adds rows. The disks and the node are
those of CLUSTER.toml (by `mpiexec -n 4 pdla calibrate` on them). By default disks have their
nominal limits, and the node is the one on which the figures of docs/benchmarks.md were measured.
Originals are on one device with the limits of all disks of a kind.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from benchmarks.cases import COLLECTIVE, CONTESTANTS, H_PDLA, NS_PDLA, PD, S_ORIG, S_PDLA, SIEVING, Case, full
from benchmarks.loop_devices import READ_AHEAD
from benchmarks.results import BENCH, keep
from benchmarks.storage import STRIP, _cluster, limited
from pdla.analyzers.analysis import Analysis, analyze
from pdla.analyzers.dependence import pattern_dependences
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.model import Candidate, Cluster, Op, Plan, Pool, Signature
from pdla.policies.plan import RedirectedWrites, make_plan
from pdla.simulator import core
from pdla.simulator.run import Result, simulate
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import Workload, from_signatures
from pdla.traces.trace import Trace
from pdla.units import KiB, MiB

CALL = 4 * MiB  # of a rank, through views
SCHEMES = {scheme.name: scheme for scheme in BASELINES}
POLICIES = {PD: "pdla-h", H_PDLA: "pdla-h", S_PDLA: "pdla-s", NS_PDLA: "ns-pdla"}
GRID = (2, 2, 2)  # of MPI_Dims_create, for eight tasks
ROUNDS = 5
SPREAD = 1e-3  # seconds, in which ranks return from the open
NODE: dict[str, Any] = {
    "cores": 2,
    "call_seconds": 1.0e-6,
    "copy_seconds_per_byte": 5.9e-11,
    "exchange_seconds_per_byte": 9.9e-9,
    "client_cache": True,
    "client_read_ahead": READ_AHEAD * KiB,
}
"""The node as pdla calibrate measured it, with four ranks and the bench's settings of MPICH."""
ALIKE = 0.1
"""Contestants whose measured rates differ by less than this share have no order."""


def options_of(case: Case) -> dict[str, int]:
    """The program's options that are numbers."""
    return {
        name.lstrip("-"): int(value)
        for name, value in itertools.pairwise(case.options)
        if name.startswith("-") and value.isdigit()
    }


def trace_of(case: Case) -> Trace:
    """The program's calls, one for each piece or one for each rank, without the tasks that do not run."""
    own, op = options_of(case), cast(Op, case.op)
    tasks = own.get("numTasks", case.ranks)
    if case.program == "ior":
        block, shuffled = own.get("b", own["t"]), "-z" in case.options
        made = workloads.ior(tasks, block, own["t"], own.get("s", 1), [op], random_offset=shuffled)
    elif case.program == "pio_nested":
        groups = own["groups"], own["group_stride"]
        made = workloads.pio_nested_strided(tasks, own["request_size"], own["requests"], *groups, op)
    elif case.program == "mpi_tile_io":
        names = ("nr_tiles_x", "nr_tiles_y", "sz_tile_x", "sz_tile_y", "sz_element", "overlap_x", "overlap_y")
        made = workloads.mpi_tile_io(*(own[name] for name in names), op=op)
    elif case.program == "mpi_io_test":
        made = workloads.ior(tasks, own["b"], own["b"], own["i"], [op])
    elif case.program == "flash_io":
        made = workloads.flash_io(tasks, 16, 16, 16, own["blocks"])
        checkpoint = made.records[made.records["file"] == made.records["file"].iloc[0]]
        ops = pd.Series(op, checkpoint.index, checkpoint["op"].dtype)
        made = replace(made, records=checkpoint.assign(op=ops))
    elif case.program == "hpio":
        made = workloads.hpio(tasks, own["c"], own["s"], own["p"], op, collective=False)
    elif case.program == "btio":
        made = workloads.btio(GRID, (own["problem_size"],) * 3, 1, "simple", op)
    else:
        made = workloads.coll_perf(GRID, (own["asize"],) * 3)
    kept = made.records[(made.records["rank"] < case.ranks) & (made.records["op"] == op)]
    return replace(made, records=kept.reset_index(drop=True), ranks=case.ranks)


def calls_of(case: Case, signature: Signature) -> Signature:
    """The signature as it is traced for the plan, of independent calls."""
    return replace(signature, calls=signature.requests // pieces_of(case), collective=False)


def pieces_of(case: Case) -> int:
    """Of an independent call."""
    return max(options_of(case).get("bufferSize", 0) // case.request, 1)


def workload_of(case: Case, accesses: pd.DataFrame, contestant: str, replicated: bool, seed: int) -> Workload:
    """The program as a contestant makes its calls: pieces, or as many as fill the buffer of a view; then the close.
    Ranks begin one after another, in a random order."""
    random = np.random.default_rng(seed)
    pieces = max(CALL // case.request, 1) if contestant in (SIEVING, COLLECTIVE) else pieces_of(case)
    items = np.zeros(len(accesses), core.ITEM)
    items["offset"], items["length"], items["form"] = accesses["offset"], accesses["length"], -1
    syncs = case.op == "write" and not replicated  # the write-back begins when all ranks are there
    ends = [core.WRITES | core.SYNCS] * syncs + [core.WRITES | core.CLOSES]
    calls, first, end = [], [0], 0
    for rank in range(case.ranks):
        begin, end = end, end + int((accesses["rank"] == rank).sum())
        count = -(-(end - begin) // pieces)
        own = np.zeros(count + len(ends), core.CALL)
        own["item"] = [*range(begin, end, pieces), *[end] * len(ends)]
        own["flags"] = [*[(case.op == "write") * core.WRITES] * count, *ends]
        own["collective"], own["participants"] = -1, 1
        if contestant == COLLECTIVE:
            own["collective"][:count], own["participants"][:count] = np.arange(count), case.ranks
        own["collective"][-1], own["participants"][-1] = len(accesses), case.ranks
        own["think"][0] = random.uniform(0, SPREAD)
        calls.append(own)
        first.append(first[-1] + len(own))
    last = np.zeros(1, core.CALL)
    last["item"] = end
    return Workload(
        case.ranks,
        (str(accesses["file"].iloc[0]),),
        (int((accesses["offset"] + accesses["length"]).max()),),
        {
            **from_signatures((), case.ranks).arrays,
            "first_call": np.array(first),
            "call": np.concatenate([*calls, last]),
            "item": items,
        },
        (0, 0),
    )


def measured(rows: Path) -> dict[str, dict[str, float]]:
    """MB/s by case and contestant, on disks."""
    found: dict[str, dict[str, float]] = {}
    for one in json.loads(rows.read_text()):
        storage, _, rest = one["name"].partition(": ")
        case, _, contestant = rest.partition(": ")
        if storage == "disks" and contestant in CONTESTANTS:
            found.setdefault(case, {})[contestant] = one["value"]
    return found


def simulated(case: Case, trace: Trace, analysis: Analysis, contestant: str, disks: Cluster) -> Result:
    """The program served like a contestant: the median of some rounds."""
    accesses = trace.accesses()
    plan = None
    scheme = SCHEMES["independent"]
    if contestant in POLICIES:
        dependences = pattern_dependences(analysis, accesses)
        plan = make_plan(analysis, _as_planned(disks), POLICIES[contestant], writes=RedirectedWrites(dependences))
        plan = _as_in_the_bench(plan, contestant)
    elif contestant == SIEVING:
        scheme = SCHEMES["sieving"]
    elif contestant == COLLECTIVE:
        scheme = SCHEMES["two-phase"]  # romio_cb_read = enable: also where the ranks' ranges follow one another
    accesses = accesses.assign(file=trace.path(0))
    storage = _originals(replace(disks, pools=tuple(map(_counting, disks.pools))), contestant)
    replicated = plan is not None and any(one.choice.layout for one in plan.patterns)
    found = [
        simulate(workload_of(case, accesses, contestant, replicated, seed), storage, scheme, plan)
        for seed in range(ROUNDS)
    ]
    return sorted(found, key=lambda one: one.seconds)[ROUNDS // 2]


def _as_planned(disks: Cluster) -> Cluster:
    """The cluster as the bench describes it to the planner: originals apart from replicas, no data sieving."""
    known = _originals(disks, H_PDLA)
    pools = tuple(replace(pool, kind="node") if pool.name == known.home_pool else pool for pool in known.pools)
    return replace(known, pools=pools, sieve_read=0, sieve_write=0)


def _as_in_the_bench(plan: Plan, contestant: str) -> Plan:
    """PD has replicas in 1-DH with strips of 64 KiB, and NS-PDLA the best ones on SSDs, whatever they cost."""
    if contestant not in (PD, NS_PDLA):
        return plan
    patterns = []
    for one in plan.patterns:
        if contestant == PD:
            found = next(found for found in one.candidates if found.space == "hdd" and _name(found) == "1-DH")
            assert found.layout is not None
            found = replace(found, layout=replace(found.layout, strips=(STRIP,) * found.layout.servers))
        else:
            found = min((found for found in one.candidates if found.space == "ssd"), key=lambda one: one.cost.total)
        candidates = (*one.candidates, replace(found, refused=""))
        patterns.append(replace(one, candidates=candidates, chosen=len(one.candidates)))
    return replace(plan, patterns=tuple(patterns))


def _name(candidate: Candidate) -> str:
    return candidate.layout.name if candidate.layout else ""


def _counting(pool: Pool) -> Pool:
    """Every request counts, because the page cache, which merges them, is simulated."""
    most = max(seconds for _, seconds in pool.startup)
    return replace(pool, startup=((0, most),)) if pool.overlap else pool


def _originals(disks: Cluster, contestant: str) -> Cluster:
    """The disks, and one as fast as all of a kind together, where the originals are."""
    like = disks.pool("ssd" if contestant == S_ORIG else "hdd")
    together = replace(
        like,
        name="original",
        servers=1,
        where=("original",),
        startup=tuple((distance, seconds / like.servers) for distance, seconds in like.startup),
        read_seconds_per_byte=like.read_seconds_per_byte / like.servers,
        write_seconds_per_byte=like.write_seconds_per_byte / like.servers,
    )
    return replace(disks, pools=(*disks.pools, together), home_pool="original", home_servers=1)


def in_order(rates: Mapping[str, tuple[float, float]]) -> list[bool]:
    """For each two contestants with different measured rates, whether the simulated rates have the same order."""
    return [
        (a[1] > b[1]) == (a[0] > b[0])
        for a, b in itertools.combinations(rates.values(), 2)
        if abs(a[0] - b[0]) > ALIKE * max(a[0], b[0])
    ]


def main() -> None:
    """Simulate the measured cases, print, write."""
    if len(sys.argv) > 1:
        disks = load_cluster(sys.argv[1])
    else:
        text = _cluster({kind: [Path(f"{kind}{i}") for i in range(n)] for kind, n in (("hdd", 4), ("ssd", 2))}, limited)
        path = BENCH.parent / "measured.toml"
        path.write_text(text)
        disks = replace(load_cluster(path), **NODE)
    errors: dict[tuple[str, str], list[float]] = {}
    orders: list[bool] = []
    cases: list[bool] = []
    known = measured(BENCH)
    for case in full(256 * MiB):
        if case.title not in known:
            continue
        trace = trace_of(case)
        analysis = analyze(trace)
        analysis = replace(analysis, signatures=tuple(calls_of(case, one) for one in analysis.signatures))
        rates = {
            one: (rate, simulated(case, trace, analysis, one, disks).bandwidth / 1e6)
            for one, rate in known[case.title].items()
        }
        of_case = in_order(rates)
        orders += of_case
        cases.append(all(of_case))
        print(f"\n{case.title}: {sum(of_case)} of {len(of_case)} pairs in order")
        for one, (ours, theirs) in rates.items():
            errors.setdefault((case.op, one), []).append(abs(ours / theirs - 1))
            print(f"  {one:22} measured {ours:7.1f} MB/s, simulated {theirs:7.1f} ({theirs / ours:.2f})")
    print("\nmean absolute error of the times")
    for (op, one), found in sorted(errors.items()):
        print(f"  {op:6}{one:24}{statistics.mean(found):.0%}")
    mean = statistics.mean(itertools.chain(*errors.values()))
    right = statistics.mean(orders)
    print(f"all: {mean:.0%}; {right:.0%} of {len(orders)} pairs in order, all in {sum(cases)} of {len(cases)} cases")
    common = {"baseline": None, "ratio": None, "spread": None}
    keep(
        [
            {"name": "simulator: mean absolute error", "value": mean, "unit": "of the time", "goal": 0.25, **common},
            {"name": "simulator: pairs in order", "value": right, "unit": "share", "goal": 0.9, **common},
        ]
    )


if __name__ == "__main__":
    main()
