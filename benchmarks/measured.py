"""Whether the simulator is right: what it says of the bench's cases on throttled disks, beside what was measured.

    python benchmarks/bench.py && python benchmarks/measured.py [CLUSTER.toml]

takes the rows of build/bench.json, prints a table, and adds rows. The disks are those of CLUSTER.toml (by `pdla
calibrate` on them), or by default as their limits say; originals are on one device with the limits of all disks of a
kind.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cases import COLLECTIVE, CONTESTANTS, H_PDLA, INDEPENDENT, NS_PDLA, PD, S_ORIG, S_PDLA, SIEVING, Case, full
from rows import BENCH, keep
from storage import _cluster, limited

from pdla.analyzers.analysis import Analysis, analyze
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.model import Cluster, Layout, Plan, Signature, Trace
from pdla.policies.plan import make_plan
from pdla.simulator.run import simulate
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import from_signatures
from pdla.units import MiB

CALL = 4 * MiB  # of a rank, through views
SCHEMES = {scheme.name: scheme for scheme in BASELINES}
POLICIES = {PD: "pdla-h", H_PDLA: "pdla-h", S_PDLA: "pdla-s", NS_PDLA: "ns-pdla"}
ALIKE = 0.1
"""Contestants whose measured rates are closer than this share of them are in no order."""


def options_of(case: Case) -> dict[str, int]:
    """The program's options that are numbers."""
    return {
        name.lstrip("-"): int(value)
        for name, value in itertools.pairwise(case.options)
        if name.startswith("-") and value.isdigit()
    }


def trace_of(case: Case) -> Trace | None:
    """What its program does, each piece a call; None: the generators do not make it."""
    options = options_of(case)
    if case.name == "IOR strided":
        made = workloads.ior(options["numTasks"], options["t"], options["t"], options["s"], ["read"])
    elif case.name == "PIO-Bench nested":
        made = workloads.pio_nested_strided(
            case.ranks, options["request_size"], options["requests"], options["groups"], options["group_stride"]
        )
    elif case.name == "MPI-Tile-IO":
        names = ("nr_tiles_x", "nr_tiles_y", "sz_tile_x", "sz_tile_y", "sz_element")
        made = workloads.mpi_tile_io(*(options[name] for name in names))
    else:
        return None
    kept = made.records["rank"] < case.ranks
    return replace(made, records=made.records[kept].reset_index(drop=True), ranks=case.ranks)


def calls_of(signature: Signature, contestant: str) -> Signature:
    """The signature with the calls that the bench has a contestant make: pieces, or views of ``CALL`` bytes a rank."""
    ranks = len(signature.ranks)
    if contestant in (SIEVING, COLLECTIVE):
        calls = ranks * -(-signature.bytes // ranks // CALL)
        return replace(signature, calls=calls, collective=contestant != SIEVING)
    return replace(signature, calls=signature.requests)


def measured(rows: Path) -> dict[str, dict[str, float]]:
    """MB/s by case and contestant, on disks."""
    found: dict[str, dict[str, float]] = {}
    for one in json.loads(rows.read_text()):
        storage, _, rest = one["name"].partition(": ")
        case, _, contestant = rest.partition(": ")
        if storage == "disks" and contestant in CONTESTANTS:
            found.setdefault(case, {})[contestant] = one["value"]
    return found


def simulated(case: Case, trace: Trace, contestant: str, disks: Cluster) -> float:
    """MB/s."""
    analysis = analyze(trace)
    signatures = tuple(calls_of(one, contestant) for one in analysis.signatures)
    analysis = Analysis(signatures, (), analysis.requests, analysis.bytes)
    plan = None
    scheme = SCHEMES["independent"]
    if contestant in POLICIES:
        plan = _as_in_the_bench(make_plan(analysis, disks, POLICIES[contestant]), contestant)
    elif contestant == SIEVING:
        scheme = SCHEMES["sieving"]
    elif contestant not in (INDEPENDENT, S_ORIG):
        scheme = SCHEMES["two-phase"]
    found = simulate(from_signatures(signatures, case.ranks), _originals(disks, contestant), scheme, plan)
    return found.bandwidth / 1e6


def _as_in_the_bench(plan: Plan, contestant: str) -> Plan:
    """PD has replicas in 1-DH with strips of 64 KiB."""
    if contestant != PD:
        return plan
    patterns = []
    for one in plan.patterns:
        number = next(i for i, found in enumerate(one.candidates) if found.layout and found.layout.name == "1-DH")
        chosen = one.candidates[number]
        assert chosen.layout is not None
        layout = Layout("hdd", chosen.layout.servers, 1, (65536,) * chosen.layout.servers, chosen.layout.section)
        candidates = (*one.candidates[:number], replace(chosen, layout=layout), *one.candidates[number + 1 :])
        patterns.append(replace(one, candidates=candidates, chosen=number))
    return replace(plan, patterns=tuple(patterns))


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
    return replace(disks, pools=(*disks.pools, together), home_pool="original", home_servers=1, client_cache=True)


def in_order(rates: Mapping[str, tuple[float, float]]) -> list[bool]:
    """Of each two contestants that differ by measure, whether they do so by simulation."""
    return [
        (a[1] > b[1]) == (a[0] > b[0])
        for a, b in itertools.combinations(rates.values(), 2)
        if abs(a[0] - b[0]) > ALIKE * max(a[0], b[0])
    ]


def main() -> None:
    """Simulate what was measured, print, keep."""
    if len(sys.argv) > 1:
        disks = load_cluster(sys.argv[1])
    else:
        text = _cluster({kind: [Path(f"{kind}{i}") for i in range(n)] for kind, n in (("hdd", 4), ("ssd", 2))}, limited)
        path = BENCH.parent / "measured.toml"
        path.write_text(text)
        disks = load_cluster(path)
    errors: dict[str, list[float]] = {}
    orders: list[bool] = []
    known = measured(BENCH)
    for case in full(256 * MiB):
        trace = trace_of(case)
        if case.title not in known or trace is None or case.op == "write":
            continue
        rates = {one: (rate, simulated(case, trace, one, disks)) for one, rate in known[case.title].items()}
        of_case = in_order(rates)
        orders += of_case
        for one, (ours, theirs) in rates.items():
            errors.setdefault(one, []).append(abs(theirs / ours - 1))
        print(f"\n{case.title}: {sum(of_case)} of {len(of_case)} pairs in order")
        for one, (ours, theirs) in rates.items():
            print(f"  {one:22} measured {ours:7.1f} MB/s, simulated {theirs:7.1f} ({theirs / ours:.2f})")
    for one, found in errors.items():
        print(f"{one:24} mean absolute error {statistics.mean(found):.0%}")
    mean = statistics.mean(itertools.chain(*errors.values()))
    by_disks = statistics.mean(itertools.chain(*(found for one, found in errors.items() if one != COLLECTIVE)))
    right = sum(orders) / len(orders)
    print(f"all: {mean:.0%}; without collective buffering, which processors bound: {by_disks:.0%}")
    print(f"{right:.0%} of {len(orders)} pairs in order")
    common = {"baseline": None, "ratio": None, "spread": None}
    keep(
        [
            {"name": "simulator: mean absolute error", "value": mean, "unit": "of the rate", "goal": 0.25, **common},
            {"name": "simulator: without collective buffering", "value": by_disks, "unit": "of the rate", "goal": 0.25}
            | common,
            {"name": "simulator: pairs in order", "value": right, "unit": "share", "goal": 0.9, **common},
        ]
    )


if __name__ == "__main__":
    main()
