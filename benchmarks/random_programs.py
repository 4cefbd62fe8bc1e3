"""Random programs of the papers' kinds on their clusters: what the planner and the cost model are judged by."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.model import Cluster
from pdla.simulator.scheme_comparison import Program
from pdla.units import KiB, MiB


@dataclass(frozen=True)
class Case:
    """A program on a cluster; its writes come home when the file is closed, or later (``leased``)."""

    program: Program
    cluster: Cluster
    leased: bool = False


def random_case(seed: int) -> Case:
    """A small program of one of the papers' kinds, on one of their clusters."""
    choose = random.Random(seed)
    op, ranks = choose.choice(["read", "write"]), choose.choice([2, 4, 8, 16])
    size, count = choose.choice([4, 16, 64, 256, 1024]) * KiB, choose.choice([4, 16, 64])
    if size * count * ranks > 256 * MiB:
        count = 4
    trace = choose.choice(
        [
            lambda: workloads.pio_simple_strided(ranks, size, count, op),
            lambda: workloads.pio_nested_strided(ranks, size, 4, max(count // 4, 2), size * ranks * 8, op),
            lambda: workloads.pio_segmented(ranks, size, count, op),
            lambda: workloads.pio_random_strided(ranks, size, count, op, seed),
            lambda: workloads.pio_tiled((2, ranks // 2), min(size, 32 * KiB), 8, count, op),
            lambda: workloads.hpio(
                ranks, count, min(size, 64 * KiB), choose.choice([0, 1, 4]) * KiB, op, seed % 2 == 0
            ),
            lambda: workloads.ior(ranks, size * count, size),
        ]
    )()
    changes: Mapping[str, str] = {}
    if choose.random() < 0.4:
        changes = {"pools.ssd.capacity": choose.choice(["256K", "1M", "4M", "16M"])}
    cluster = load_cluster(choose.choice([None, "pdla", "s4d-cache", "ibridge", "liu"]), changes)
    return Case(Program.of(trace), cluster, leased=choose.random() < 0.3)
