"""The cost model's accuracy: its rates for the bench's cases on throttled disks, compared with measured ones.

    python -m benchmarks.bench && python -m benchmarks.model_measured

This takes the rows of build/bench.json, as benchmarks/simulator_accuracy.py does, and prints a table. Disks and node
are the same as there, and strips are multiples of 64 KiB, as when the figures of docs/benchmarks.md were measured.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import COLLECTIVE, H_PDLA, NS_PDLA, PD, S_ORIG, S_PDLA, SIEVING, Case, full
from benchmarks.model_accuracy import off
from benchmarks.results import BENCH
from benchmarks.simulator_accuracy import (
    CALL,
    NODE,
    POLICIES,
    _as_planned,
    _originals,
    calls_of,
    in_order,
    measured,
    trace_of,
)  # fmt: skip
from benchmarks.storage import STRIP, _cluster, limited
from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import analyze
from pdla.layouts.candidates import candidates
from pdla.layouts.config import load_cluster
from pdla.model import Candidate, Cluster, Signature
from pdla.policies.base import LEAST_GAIN
from pdla.units import KiB, MiB

SPACES = {PD: ("hdd",), H_PDLA: ("hdd",), S_PDLA: ("ssd", "hdd+ssd"), NS_PDLA: ("ssd",)}


def seconds(case: Case, signature: Signature, contestant: str, disks: Cluster) -> float:
    """What the model says about a pattern that is served like a contestant."""
    cluster = _as_planned(disks)
    if contestant == S_ORIG:
        cluster = replace(_originals(disks, S_ORIG), sieve_read=0, sieve_write=0)
    if contestant in (SIEVING, COLLECTIVE):
        cluster = replace(cluster, sieve_read=4 * MiB, sieve_write=512 * KiB)
        pieces = max(CALL // case.request, 1)
        signature = replace(signature, calls=max(signature.requests // pieces, len(signature.ranks)))
    hdd, ssd = cluster.pool("hdd"), cluster.pool("ssd")
    size = AccessMap.from_signature(signature).size
    found = candidates(signature, size, cluster, [hdd, ssd], [(hdd, ssd)])
    original = found[0].cost.total
    if contestant == COLLECTIVE:
        return next((one.cost.total for one in found if one.space == "collective"), original)
    if contestant not in POLICIES:
        return original
    replicas = [one.cost.total for one in found if _serves(one, contestant)]
    worthy = contestant in (PD, NS_PDLA) or min(replicas) <= (1 - LEAST_GAIN) * original
    return min(replicas) if worthy else original


def _serves(one: Candidate, contestant: str) -> bool:
    layout = one.layout
    return bool(
        layout and not one.refused and one.space in SPACES[contestant] and (contestant != PD or layout.groups == 1)
    )


def main() -> None:
    """Compare, print."""
    path = BENCH.parent / "measured.toml"
    path.write_text(
        _cluster({kind: [Path(f"{kind}{i}") for i in range(n)] for kind, n in (("hdd", 4), ("ssd", 2))}, limited)
    )
    disks = replace(load_cluster(path), **NODE)
    disks = replace(disks, pools=tuple(replace(pool, grain=STRIP) for pool in disks.pools))
    known = measured(BENCH)
    errors: dict[tuple[str, str], list[float]] = {}
    orders: list[bool] = []
    for case in full(256 * MiB):
        signatures = [calls_of(case, one) for one in analyze(trace_of(case)).signatures] if case.title in known else []
        if not signatures:
            continue
        moved = sum(one.bytes for one in signatures) / 1e6
        rates = {
            one: (rate, moved / sum(seconds(case, signature, one, disks) for signature in signatures))
            for one, rate in known[case.title].items()
        }
        orders += in_order(rates)
        print(f"{case.title}: " + "; ".join(f"{one} {ours:.3g}, {theirs:.3g}" for one, (ours, theirs) in rates.items()))
        for one, (ours, theirs) in rates.items():
            errors.setdefault((case.op, one), []).append(off(theirs / ours))
    for (op, one), found in sorted(errors.items()):
        print(f"{op:6}{one:24}{statistics.mean(found):.0%}")
    each = [*itertools.chain(*errors.values())]
    print(f"all: {statistics.mean(each):.0%} on average, {statistics.median(each):.0%} in the median; ", end="")
    print(f"{statistics.mean(orders):.1%} of {len(orders)} pairs in order")


if __name__ == "__main__":
    main()
