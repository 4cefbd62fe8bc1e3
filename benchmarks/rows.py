"""What all benchmarks measured, in one file: build/bench.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent.parent / "build" / "bench.json"
KEYS = ("name", "value", "unit", "baseline", "ratio", "goal", "spread")
"""Of every row; what does not apply is null."""


def keep(rows: Sequence[dict[str, Any]]) -> None:
    """Add ``rows`` to the file, in the place of earlier ones of the same names."""
    names = {one["name"] for one in rows}
    kept = [one for one in json.loads(BENCH.read_text()) if one["name"] not in names] if BENCH.exists() else []
    complete = [{**dict.fromkeys(KEYS), **one} for one in rows]
    BENCH.parent.mkdir(exist_ok=True)
    BENCH.write_text(json.dumps([*kept, *complete], indent=1) + "\n")
