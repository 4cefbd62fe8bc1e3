"""pdla run --learn --policy auto: whether it finds the best scheme, and what each run costs: docs/autopilot.md.

    python -m benchmarks.automatic [--rounds 5] [--amount 16M] [--only 'IOR*, read'] [--smoke] [--list]

The programs of benchmarks/schemes.py run on its disks that seek, --rounds times each with nothing but these words,
beside the program natively in the same round. Learning is waited for. This prints the rate of each run as a multiple of
the native one, with the policy that it had, and adds rows to build/bench.json. It needs root.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.cases import INDEPENDENT
from benchmarks.results import row
from benchmarks.schemes import run_all
from benchmarks.seeking import SeekingDisks
from benchmarks.ssd_cache_runs import LEARNED, Experiment, Job, make_usual

LEAST = 0.97
"""Of the native rate: no run may be slower."""


def measure(storage: SeekingDisks, job: Job, op: str, rounds: int, programs: Path, work: Path) -> list[dict[str, Any]]:
    """Runs that learn, each in turns with a native one."""
    with storage.unlimited():
        experiment = Experiment(storage, job, programs, work)
        experiment.prepare(op, [])
    native, learned = [], []
    try:
        for _ in range(rounds):
            native.append(experiment.rate(op, INDEPENDENT))
            learned.append(experiment.rate(op, LEARNED))
        runs = json.loads(experiment.history())["runs"]
    finally:
        with storage.unlimited():
            experiment.remove()
    rows = []
    for number, (rate, base, run) in enumerate(zip(learned, native, runs, strict=True), 1):
        served = run["policy"] or ("replicas" if run["hit"] else "as it is")
        rows.append(row(f"run {number}, {served}", [rate], "MiB/s", LEAST, [base]))
    return rows


if __name__ == "__main__":
    run_all(__doc__, "automatic", make_usual, measure)
