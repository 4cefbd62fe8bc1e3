"""All schemes beside each other: programs served by MPI's methods, by plans and by policies: docs/benchmarks.md.

    python -m benchmarks.schemes [--rounds 3] [--amount 16M] [--only 'BTIO*, read'] [--smoke] [--list]

Programs run on disks that seek: natively, with collective calls, with plans of H-PDLA and S-PDLA, with a lease, and
with each policy of pdla run. Reads with a policy are those of a later run, as the policies learn. Every ratio is of
runs of the same round, in turns. This prints a line for each figure, adds rows to build/bench.json, and says what the
simulator finds for the same program. It needs root.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import cases
from benchmarks.cache_nodes import SYNCHRONOUS
from benchmarks.cases import COLLECTIVE, H_PDLA, INDEPENDENT, S_LEASE, S_PDLA, Case
from benchmarks.chosen import add_measured, is_chosen, list_chosen, options_of
from benchmarks.cleanup import workspace
from benchmarks.contestants import compile_programs
from benchmarks.fragments import mpi_io_test
from benchmarks.processes import end_on_signals
from benchmarks.results import row
from benchmarks.schemes_simulated import EARLIER, SIMULATED, simulated
from benchmarks.seeking import SeekingDisks, seeking_disks, seeking_obstacle
from benchmarks.simulator_accuracy import in_order
from benchmarks.ssd_cache_runs import WRITTEN, Experiment, Job, hpio, ior, make_synchronous, tiles
from benchmarks.storage import Storage, capacity, limited
from benchmarks.throttled import SSD, obstacle, throttled_disk
from pdla.units import KiB, MiB

Measure = Callable[[SeekingDisks, Job, str, int, Path, Path], list[dict[str, Any]]]
"""Rows of a job that reads or writes, in so many rounds, with the compiled programs and an empty directory."""
POLICIES = {"S4D-Cache": "s4d", "iBridge": "ibridge", "LiU": "liu", "E10": "e10"}
ERROR, IN_ORDER = 0.2, 0.95
TIMES = {"read": 4, "write": 1}
"""The bytes of reads, which are faster, so that their opens count little."""


def alone(case: Case) -> Job:
    """A job of one program."""
    return Job(case.title.removesuffix(", read"), (case,))


def jobs(amount: int) -> list[Job]:
    """Programs with something to gain for each scheme, and one with nothing."""
    return [
        ior(amount // 2, 16 * KiB, True),
        alone(cases.ior_strided(amount, 64 * KiB, 4)),
        alone(cases.pio_nested(amount, 64 * KiB, 4)),
        mpi_io_test(amount, 65 * KiB, 0, 4),
        hpio(amount, 4 * KiB),
        tiles(amount, 4),
        alone(cases.btio(_cube(amount // 40), 8, 8)),
        alone(cases.coll_perf(_cube(amount // 4), 8)),
        flash_io(amount),
        ior(2 * amount, MiB, False),
    ]


def flash_io(amount: int, ranks: int = 4, variables: int = 24) -> Job:
    """A checkpoint: a call for each variable, in which the ranks' parts follow one another."""
    zones = 32 * KiB
    blocks = amount // variables // ranks // zones
    part = blocks * zones
    size = variables * ranks * part
    return alone(Case("Flash-IO", "flash_io", ("--blocks", str(blocks)), ranks, size, size, request=part))


def _cube(points: int) -> int:
    """The side of a cube of so many points that eight tasks divide into rows of whole words."""
    return round(points ** (1 / 3)) // 16 * 16


def schemes(job: Job, op: str) -> Iterator[str]:
    """Those that can serve a program: calls in an order that no view has cannot be collective."""
    regular = "-z" not in job.programs[0].options
    for one in SIMULATED:
        lacking = (one in (COLLECTIVE, "E10") and not regular) or (op == "read" and one in (S_LEASE, "E10"))
        if not lacking:
            yield one


def measure(storage: SeekingDisks, job: Job, op: str, rounds: int, programs: Path, work: Path) -> list[dict[str, Any]]:
    """All schemes in turns."""
    chosen = list(schemes(job, op))
    with storage.unlimited():
        experiment = Experiment(storage, job, programs, work)
    rates: dict[str, list[float]] = {one: [] for one in chosen}
    try:
        with storage.unlimited():
            experiment.prepare(op, chosen)
        for _ in range(rounds):
            for one, found in rates.items():
                found.append(rate(experiment, op, one))
        plans = {one: experiment.plan(one) for one in (H_PDLA, S_PDLA, S_LEASE) if one in chosen}
        said = simulated(job, op, experiment.cluster, plans, chosen)
    finally:
        with storage.unlimited():
            experiment.remove()
    rows = [row(one, found, "MiB/s", None, rates[INDEPENDENT]) for one, found in rates.items()]
    rows += [row(f"{one}, x simulated", rates[one], "MiB/s", None, [found]) for one, found in said.items()]
    pairs = {one: (median(rates[one]), found) for one, found in said.items()}
    rows.append(row("simulator: mean absolute error", [mean(abs(a / b - 1) for a, b in pairs.values())], "", ERROR))
    return [*rows, row("simulator: pairs in order", [mean(in_order(pairs) or [True])], "share", IN_ORDER)]


def rate(experiment: Experiment, op: str, scheme: str) -> float:
    """MiB/s of a scheme, of a policy in the run in which it has learned."""
    if scheme not in POLICIES:
        return experiment.rate(op, scheme)
    experiment.policy = POLICIES[scheme]
    experiment.forget()
    for _ in range(EARLIER[scheme, op]):
        experiment.rate(op, WRITTEN)
    return experiment.rate(op, WRITTEN)


@contextmanager
def with_device(storage: SeekingDisks, scratch: Path, size: int) -> Iterator[None]:
    """The node has a device of its own within the block."""
    with throttled_disk(scratch, "device", capacity(size), SSD, SYNCHRONOUS) as device:
        where = json.dumps([str(device)])
        storage.cluster += f'\n[pools.node]\nkind = "node"\n{limited("ssd")}where = {where}\n'
        yield


def run_all(doc: str | None, kind: str, describe: Callable[[Storage], None], one: Measure) -> None:
    """The command line of a benchmark that measures each of these programs on disks that seek: rows named after its
    ``kind``. Exit code 1 if something failed, after everything else was measured."""
    options = options_of(doc, 16, "a file that is written")
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
            describe(storage)
            for title, (job, op) in found.items():
                measured = partial(one, storage, job, op, options.rounds, scratch)
                add_measured(kind, f"{'smoke ' * options.smoke}{title}", measured, work, failed)
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


if __name__ == "__main__":
    run_all(__doc__, "schemes", make_synchronous, measure)
