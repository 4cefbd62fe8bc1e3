"""How many records a second the analyzer does on one core, and whether the time is linear in the records.

    python benchmarks/analyzer.py [RECORDS]

prints a table and adds rows to build/bench.json. Times are processor seconds, the median of five.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.model import Trace

KIB, RANKS, REPETITIONS = 1 << 10, 8, 5
BENCH = Path(__file__).resolve().parent.parent / "build" / "bench.json"


def regular(records: int) -> Trace:
    """IOR, transfers smaller than blocks: three loops and the ranks."""
    return workloads.ior(RANKS, 64 * KIB, 16 * KIB, records // RANKS // 4, operations=["read"])


def random(records: int) -> Trace:
    """IOR with random offsets."""
    return workloads.ior(RANKS, records // RANKS * 16 * KIB, 16 * KIB, operations=["read"], random_offset=True)


def seconds(trace: Trace) -> list[float]:
    """Processor time of each repetition, after one to warm up."""
    analyze(trace)
    times = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        analyze(trace)
        times.append(time.process_time() - start)
    return times


def speed(name: str, make: Callable[[int], Trace], records: int, baseline: float, goal: float) -> dict[str, Any]:
    """A row: records a second, against the best that IOSIG does and the goal."""
    times = seconds(make(records))
    value = records / statistics.median(times)
    spread = (max(times) - min(times)) / statistics.median(times)
    return row(f"analyzer {name}", value, "records/s", baseline, goal, spread)


def linearity(name: str, make: Callable[[int], Trace], records: int) -> dict[str, Any]:
    """A row: time per record at ``records`` over that at a tenth of them; 1 is linear."""
    large, small = (statistics.median(seconds(make(size))) / size for size in (records, records // 10))
    return row(f"analyzer {name}, time per record at {records:,} over that at a tenth", large / small, "", 1, 1.5, 0)


def row(name: str, value: float, unit: str, baseline: float, goal: float, spread: float) -> dict[str, Any]:
    """A row of bench.json."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "baseline": baseline,
        "ratio": value / baseline,
        "goal": goal,
        "spread": spread,
    }


def main() -> None:
    """Measures, prints, writes."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2**20
    rows = [
        speed("regular", regular, records, 230e3, 5e6),
        speed("random", random, records, 57e3, 1e6),
        linearity("regular", regular, records),
        linearity("random", random, records),
    ]
    for one in rows:
        print(f"{one['name']:75} {one['value']:12,.3g} {one['unit']:10} goal {one['goal']:g}, ± {one['spread']:.0%}")
    names = {one["name"] for one in rows}
    kept = [one for one in json.loads(BENCH.read_text()) if one["name"] not in names] if BENCH.exists() else []
    BENCH.parent.mkdir(exist_ok=True)
    BENCH.write_text(json.dumps([*kept, *rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
