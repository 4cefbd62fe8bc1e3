"""pdla run --learn --policy auto: whether it finds the best scheme, and what each run costs: docs/autopilot.md.

    python -m benchmarks.automatic [--rounds 5] [--amount 16M] [--only 'IOR*, read'] [--smoke] [--list]

The programs of benchmarks/schemes.py run on its disks that seek, --rounds times each with nothing but these words,
beside the program natively in the same round. Learning is waited for. This prints the rate of each run as a multiple of
the native one, with the policy that it had, and adds rows to build/bench.json. It needs root.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import INDEPENDENT
from benchmarks.chosen import add_measured, is_chosen, list_chosen, options_of
from benchmarks.cleanup import workspace
from benchmarks.contestants import compile_programs
from benchmarks.processes import end_on_signals
from benchmarks.results import row
from benchmarks.schemes import TIMES, jobs, with_device
from benchmarks.seeking import SeekingDisks, seeking_disks, seeking_obstacle
from benchmarks.ssd_cache_runs import LEARNED, Experiment, Job, hpio, make_usual
from benchmarks.throttled import obstacle
from pdla.units import KiB

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


def main() -> None:
    """The command line; exit code 1 if something failed, after everything else was measured."""
    options = options_of(__doc__, 16, "a file that is written")
    made: Callable[[int], list[Job]] = (lambda amount: [hpio(amount, 4 * KiB)]) if options.smoke else jobs
    found = {
        f"{job.title}, {op}": (job, op)
        for op, times in TIMES.items()
        for job in made(times * options.amount)
        if is_chosen(f"{job.title}, {op}", options)
    }
    list_chosen(found, options)
    if why := seeking_obstacle() or obstacle():
        sys.stdout.write(f"skipped: {why}\n")
        return
    end_on_signals()
    failed: list[str] = []
    with workspace(options.directory) as scratch:
        compile_programs(scratch, {job.programs[0].program for job, _ in found.values()})
        size = max(2 * job.bytes for job, _ in found.values())
        disks, work = scratch / "disks", scratch / "work"
        disks.mkdir()
        with seeking_disks(disks, size) as storage, with_device(storage, disks, size):
            make_usual(storage)
            for title, (job, op) in found.items():
                measured = partial(measure, storage, job, op, options.rounds, scratch)
                add_measured("automatic", f"{'smoke ' * options.smoke}{title}", measured, work, failed)
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
