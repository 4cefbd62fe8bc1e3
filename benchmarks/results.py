"""The results of all benchmarks, in one file: build/bench.json."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent.parent / "build" / "bench.json"
KEYS = ("name", "value", "unit", "baseline", "ratio", "goal", "spread")
"""The keys of every row; values that do not apply are null."""


def row(
    name: str, values: Sequence[float], unit: str, goal: float | None = None, baseline: Sequence[float] = ()
) -> dict[str, Any]:
    """The median of the values of several rounds, and their range as a share of it.

    ``baseline`` has the value to compare with of each round, or one for all; the ratio is the median over the rounds.
    """
    value = median(values)
    others = baseline if len(baseline) == len(values) else [*baseline] * len(values)
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "baseline": median(baseline) if baseline else None,
        "ratio": median(own / other for own, other in zip(values, others, strict=True)) if baseline else None,
        "goal": goal,
        "spread": (max(values) - min(values)) / abs(value) if value else 0.0,
    }


def add_rows(part: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows of one part, and add them to the file."""
    for one in rows:
        ratio = f"{one['ratio']:.3f} of {one['baseline']:.4g}" if one["ratio"] is not None else ""
        goal = f"goal {one['goal']:.4g}" if one["goal"] is not None else ""
        line = f"{one['name']:<60} {one['value']:>10.4g} {one['unit']:<17} {ratio:<18} {goal:<14}"
        sys.stdout.write(f"{line} spread {one['spread']:.0%}\n")
    keep([{**one, "name": f"{part}: {one['name']}"} for one in rows])


def keep(rows: Sequence[dict[str, Any]]) -> None:
    """Add ``rows`` to the file with the time, in place of earlier rows of the same names.

    The file is complete at any moment.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    complete = {one["name"]: {**dict.fromkeys(KEYS), **one, "at": now} for one in rows}
    BENCH.parent.mkdir(exist_ok=True)
    directory = os.open(BENCH.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # another bench may do the same
        earlier = {one["name"]: one for one in json.loads(BENCH.read_text())} if BENCH.exists() else {}
        temporary = BENCH.with_suffix(".tmp")
        temporary.write_text(json.dumps(list((earlier | complete).values()), indent=1) + "\n")
        temporary.replace(BENCH)
    finally:
        os.close(directory)
