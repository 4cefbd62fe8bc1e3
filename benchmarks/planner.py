"""How good the planner's choices are on random instances, and how long it takes with many patterns.

    python -m benchmarks.planner [PATTERNS]

This prints a table and adds rows to build/bench.json. Times are processor seconds.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence

from benchmarks.results import add_rows, row
from pdla.analyzers.analysis import Analysis
from pdla.layouts.hybrid import Round, best_strips
from pdla.layouts.selection import Option, choose_greedy, choose_optimal
from pdla.model import Cluster, Loop, Pool, Signature
from pdla.policies.plan import make_plan
from pdla.units import GiB, KiB, MiB

INSTANCES, GRID, REPETITIONS = 1000, 5000, 3
POOLS = ("hdd", "ssd", "node")

HDD = Pool("hdd", "hdd", 8, ((0, 0.0), (MiB, 5e-3)), 1e-8, 1e-8, 300 * GiB, 64 * KiB, "directories", tuple("abcdefgh"))
SSD = Pool("ssd", "ssd", 4, ((0, 0.0), (4096, 1e-4)), 2e-9, 2e-9, 50 * GiB, 64 * KiB, "directories", tuple("ijkl"))
CLUSTER = Cluster((HDD, SSD), "hdd", 8, 64 * KiB, 1, 1e-5, 1e-9, 0.0, "benchmark")


def instance(choose: random.Random, patterns: int) -> tuple[list[list[Option]], dict[str, int]]:
    """Up to six options for each pattern, in one pool or two, and room for some of them."""
    asked = [
        [
            Option(choose.uniform(0.001, 10), {name: choose.randint(1, 1000) for name in choose.sample(POOLS, pools)})
            for pools in choose.choices([1, 1, 2], k=choose.randint(0, 6))
        ]
        for _ in range(patterns)
    ]
    return asked, {name: int(500 * patterns * choose.uniform(0.0, 0.5)) for name in POOLS}


def gain(asked: Sequence[Sequence[Option]], chosen: Sequence[int | None]) -> float:
    """Seconds saved."""
    return sum(options[j].gain for options, j in zip(asked, chosen, strict=True) if j is not None)


def least_over_greedy() -> float:
    """The optimal choice's gain over the greedy one's, on the instance where that is least."""
    ratios = []
    for seed in range(INSTANCES):
        choose = random.Random(seed)
        asked, room = instance(choose, choose.randint(1, 30))
        greedy = gain(asked, choose_greedy(asked, room).options)
        ratios.append(gain(asked, choose_optimal(asked, room).options) / greedy if greedy else 1.0)
    return min(ratios)


def worst_over_grid() -> float:
    """The cost of the linear program's strips relative to the best of a fine grid, on the worst cluster."""
    worst = 0.0
    for seed in range(INSTANCES):
        choose = random.Random(seed)
        one = Round(
            choose.randint(1, 2048), choose.randint(1, 32), choose.randint(4 * KiB, 64 * MiB),
            (choose.randint(1, 64), choose.randint(1, 32)), 10 ** choose.uniform(-6, -3), 10 ** choose.uniform(-11, -8),
            (10 ** choose.uniform(-5, -2), 10 ** choose.uniform(-6, -3)),
            (10 ** choose.uniform(-9, -7.5), 10 ** choose.uniform(-10, -8.5)),
        )  # fmt: skip
        (disks, ssds), request = one.servers, one.request
        grid = [(k / GRID * request / disks, (1 - k / GRID) * request / ssds) for k in range(GRID + 1)]
        worst = max(worst, one.time(best_strips(one)).total / min(one.time(strips).total for strips in grid))
    return worst


def choice_seconds(patterns: int) -> list[float]:
    """Seconds to choose among so many patterns."""
    times = []
    for seed in range(REPETITIONS):
        asked, room = instance(random.Random(seed), patterns)
        start = time.process_time()
        choose_optimal(asked, room)
        times.append(time.process_time() - start)
    return times


def plan_seconds(patterns: int, lengths: int, counts: int) -> list[float]:
    """Seconds to predict the costs of so many patterns, of so many lengths and counts of calls, and to choose."""
    times = []
    for repetition in range(REPETITIONS):
        signatures = tuple(
            Signature(
                f"/{repetition}/{n}", "read", False, 0, 4 * KiB * (1 + n % lengths) + repetition,
                (Loop(GiB, 4), Loop(16 * MiB, 8 + n % counts)), (0, 1, 2, 3), 1,
            )
            for n in range(patterns)
        )  # fmt: skip
        start = time.process_time()
        make_plan(Analysis(signatures, (), 0, 0), CLUSTER)
        times.append(time.process_time() - start)
    return times


def main() -> None:
    """Measure, print, write."""
    patterns = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rows = [
        row(f"optimal over greedy, the least of {INSTANCES:,}", [least_over_greedy()], "", 1.0),
        row(f"strips over a grid of {GRID:,}, the worst of {INSTANCES:,}", [worst_over_grid()], "", 1.001),
        row(f"choice among {patterns:,} patterns", choice_seconds(patterns), "s", 10.0),
        row(f"plan of {patterns:,} patterns of 5,700 shapes", plan_seconds(patterns, 300, 57), "s", 3.0),
        row(f"plan of {patterns:,} patterns of ten shapes", plan_seconds(patterns, 10, 1), "s", 3.0),
    ]
    add_rows("planner", rows)


if __name__ == "__main__":
    main()
