"""What iBridge gains while programs run, after the programs of its slides: docs/benchmarks.md.

    python -m benchmarks.fragments [--storage seeking cephfs] [--rounds 3] [--amount 32M] [--ranks 4 8] [--only 'BTIO*']

Programs whose requests are aligned with strips of 64 KiB, and the same with requests that are 1 KiB longer, or begin 1
or 10 KiB later; natively and with pdla run --policy ibridge, on disks that seek and on CephFS, for which it needs root.
Reads are those of a second run. On disks that seek, writes to originals return when they are on the disks. Every ratio
is of runs of the same round. This prints a line for each figure and adds rows to build/bench.json.

The slides are Liu, Jiang, Davis: "Hard Disk/Solid State Drive Synergy in Support of Data-Intensive Computing",
LA-UR-12-23164, 2012.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import INDEPENDENT, Case
from benchmarks.cleanup import workspace
from benchmarks.contestants import compile_programs
from benchmarks.processes import end_on_signals
from benchmarks.results import add_rows, row
from benchmarks.ssd_cache import STORAGES
from benchmarks.ssd_cache_runs import FIRST, SECOND, WRITTEN, Experiment, Job, Storage, make_synchronous
from pdla.units import KiB, MiB, format_bytes, parse_bytes

POLICY = "ibridge"
OF_ALIGNED, OF_NATIVE = 0.9, 0.98
STRIP = 64 * KiB
LONGER, LATER = (65 * KiB, 129 * KiB, 33 * KiB), (KiB, 10 * KiB)


class Pair(NamedTuple):
    """A program with fragments, and the same without them; None: there is no such."""

    job: Job
    aligned: Job | None


def job(name: str, program: str, options: tuple[str, ...], ranks: int, size: int, request: int) -> Job:
    """One program with one file."""
    return Job(f"{name}, {ranks} ranks", (Case(name, program, options, ranks, size, size, request=request),))


def mpi_io_test(amount: int, request: int, offset: int, ranks: int) -> Job:
    """The ranks' requests follow one another."""
    count = amount // request // ranks
    name = f"mpi-io-test, {format_bytes(request)}" + (f" at {format_bytes(offset)}" if offset else "")
    options = ("-b", str(request), "-i", str(count), "--offset", str(offset))
    return job(name, "mpi_io_test", options, ranks, count * ranks * request + offset, request)


def ior_mpi_io(amount: int, request: int, ranks: int, random: bool = False) -> Job:
    """Each rank has a part of the file."""
    own = amount // ranks // request * request
    name = f"ior-mpi-io, {format_bytes(request)}" + (" at random" if random else "")
    options = ("-b", str(own), "-t", str(request), *(["-z"] if random else []))
    return job(name, "ior", options, ranks, own * ranks, request)


def btio(amount: int, points: int = 64) -> Job:
    """The subtype "simple": a call for each row."""
    steps = max(1, amount // (40 * points**3))
    options = ("--problem_size", str(points), "--steps", str(steps))
    return job("BTIO", "btio", options, 8, 40 * points**3 * steps, 40 * points // 2)


def pairs(amount: int, ranks: list[int]) -> Iterator[Pair]:
    """All programs."""
    for many in ranks:
        for request in LONGER:
            yield Pair(mpi_io_test(amount, request, 0, many), mpi_io_test(amount, request - KiB, 0, many))
        for offset in LATER:
            yield Pair(mpi_io_test(amount, STRIP, offset, many), mpi_io_test(amount, STRIP, 0, many))
        for random in (False, True):
            for request in LONGER:
                yield Pair(ior_mpi_io(amount, request, many, random), ior_mpi_io(amount, request - KiB, many, random))
    yield Pair(btio(amount), None)


def rates(storage: Storage, one: Job, op: str, programs: Path, work: Path) -> tuple[float, float]:
    """MiB/s natively and with the policy, on new files."""
    work.mkdir()
    with storage.unlimited():
        experiment = Experiment(storage, one, programs, work, policy=POLICY)
        experiment.prepare(op, (INDEPENDENT,))
    try:
        native = experiment.rate(op, INDEPENDENT)
        if op == "read":
            experiment.rate(op, FIRST)
        return native, experiment.rate(op, SECOND if op == "read" else WRITTEN)
    finally:
        with storage.unlimited():
            experiment.remove()
        shutil.rmtree(work)


def measure(storage: Storage, pair: Pair, op: str, rounds: int, programs: Path) -> list[dict[str, Any]]:
    """Rows for a program."""
    found: list[tuple[float, ...]] = []
    for _ in range(rounds):
        aligned = rates(storage, pair.aligned, op, programs, programs / "work") if pair.aligned else ()
        found.append(rates(storage, pair.job, op, programs, programs / "work") + aligned)
    native, policy, *others = map(list, zip(*found, strict=True))
    title = f"{pair.job.title}, {op}"
    rows = [row(f"{title}: of native", policy, "MiB/s", None, native)]
    if pair.aligned is None:
        return rows
    aligned_native, aligned_policy = others
    rows.append(row(f"{title}: native, of aligned", native, "MiB/s", None, aligned_native))
    rows.append(row(f"{title}: of aligned", policy, "MiB/s", OF_ALIGNED, aligned_native))
    return [*rows, row(f"{pair.aligned.title}, {op}: of native", aligned_policy, "MiB/s", OF_NATIVE, aligned_native)]


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--storage", nargs="+", choices=list(STORAGES), default=["seeking", "cephfs"])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--amount", type=parse_bytes, default=32 * MiB, help="bytes of a file")
    options.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    options.add_argument("--only", nargs="+", default=["*"], help="measure only what matches one of these globs")
    chosen = options.parse_args()
    end_on_signals()
    for name in chosen.storage:
        if why := STORAGES[name].obstacle():
            sys.stdout.write(f"{name}: skipped: {why}\n")
            continue
        with workspace(Path("/dev/shm")) as scratch:
            compile_programs(scratch, ("mpi_io_test", "ior", "btio"))
            disks = scratch / name
            disks.mkdir()
            with STORAGES[name].opened(disks, 4 * chosen.amount) as storage:
                make_synchronous(storage)
                for pair in pairs(chosen.amount, chosen.ranks):
                    for op in ("write", "read"):
                        if any(fnmatch.fnmatch(f"{pair.job.title}, {op}", glob) for glob in chosen.only):
                            add_rows(f"ibridge, {name}", measure(storage, pair, op, chosen.rounds, scratch))


if __name__ == "__main__":
    main()
