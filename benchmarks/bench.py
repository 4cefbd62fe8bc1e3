"""What replicas gain on slow and fast storage, compared with the methods of the MPI library: docs/benchmarks.md.

    python -m benchmarks.bench [--storage disks seeking cephfs] [--rounds 5] [--amount 256M] [--only
    'IOR*'] [--list]

This prints a table, adds rows to build/bench.json, and draws build/bench-*.png. Slow storage needs
root. Storage that is not possible here is named and skipped; if none is possible, plain directories
show that everything works.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases import INDEPENDENT, REPLICATED, Case, full, heads, smoke, some
from benchmarks.cephfs import ceph_obstacle, throttled_cephfs
from benchmarks.cleanup import workspace
from benchmarks.contestants import Experiment, Run, compile_programs
from benchmarks.plots import draw
from benchmarks.processes import end_on_signals
from benchmarks.results import BENCH, keep
from benchmarks.seeking import seeking_disks, seeking_obstacle
from benchmarks.storage import Storage, plain_directories, throttled_disks
from benchmarks.table import HEAD, Found, limit_of
from benchmarks.throttled import obstacle
from pdla.errors import PdlaError
from pdla.units import MiB, format_bytes, parse_bytes


class Kind(NamedTuple):
    """A kind of storage.

    It has the reason why it is not possible here ("" if it is), a function that makes it in a directory for files of so
    many bytes, and the cases to measure on it.
    """

    obstacle: Callable[[], str]
    opened: Callable[[Path, int], AbstractContextManager[Storage]]
    cases: Callable[[int], list[Case]]


STORAGES = {
    "disks": Kind(obstacle, throttled_disks, full),
    "seeking": Kind(seeking_obstacle, seeking_disks, heads),
    "cephfs": Kind(ceph_obstacle, throttled_cephfs, some),
    "plain": Kind(lambda: "", plain_directories, some),
}
LEAST = 16 * MiB
"""Least bytes that programs access: four ranks with a piece of 4 MiB each."""
SLOW = ("disks", "seeking", "cephfs")
FAILURES = (RuntimeError, OSError, subprocess.SubprocessError, PdlaError)
"""Errors of a program, of storage or of pdla. Any other exception is a fault of the bench."""


def measure(storage: Storage, case: Case, rounds: int, programs: Path, scratch: Path) -> list[Found]:
    """Measure one case: all contestants in turn, each round in another order, and the limits in every round."""
    experiment = Experiment(storage, case, programs, scratch)
    try:
        with storage.unlimited():
            experiment.prepare(case.contestants)
        parts = {one: experiment.parts(one) for one in case.contestants}
        runs: dict[str, list[Run]] = {one: [] for one in case.contestants}
        limits: dict[str, list[float]] = {"hdd": [], "ssd": []}
        for number in range(rounds):
            shift = number % len(case.contestants)
            for contestant in (*case.contestants[shift:], *case.contestants[:shift]):
                runs[contestant].append(experiment.run(contestant))
            for pool, found in limits.items():
                found.append(storage.sequential(pool, case.accessed, case.op))
    finally:
        experiment.remove()
    return [
        Found(
            case,
            one,
            runs[one],
            runs[INDEPENDENT],
            [limit_of(parts[one], {"hdd": hdd, "ssd": ssd}) for hdd, ssd in zip(*limits.values(), strict=True)],
            experiment.layouts(one) if one in REPLICATED else "",
        )
        for one in case.contestants
    ]


def main() -> None:
    """The command line; exit code 1 if something failed, after everything else was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", nargs="+", choices=STORAGES, help="default: all kinds of slow storage")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--amount", type=parse_bytes, default=256 * MiB, help="bytes that four ranks access")
    parser.add_argument("--only", default="*", help="measure only the cases that match this glob")
    parser.add_argument("--smoke", action="store_true", help="one read and one write, to check that everything works")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="directory for the disks' images")
    options = parser.parse_args()
    end_on_signals()
    least = MiB if options.smoke else LEAST
    if options.rounds < 1 or options.amount < least:
        parser.error(f"--rounds must be at least 1 (got {options.rounds}), and --amount {format_bytes(least)}")
    obstacles = {storage: STORAGES[storage].obstacle() for storage in options.storage or SLOW}
    if not options.storage and all(obstacles.values()):
        obstacles["plain"] = ""
    chosen = {storage: _chosen(storage, options) for storage in obstacles}
    if not any(chosen.values()):
        parser.error(f"no case is called {options.only}: --list names them")
    if options.list:
        sys.stdout.writelines(f"{storage}: {case.title}\n" for storage, cases in chosen.items() for case in cases)
        return
    failed: list[str] = []
    with workspace(options.directory) as scratch:
        with failures_noted("programs", failed):
            compile_programs(scratch, {case.program for cases in chosen.values() for case in cases})
        for storage, cases in chosen.items() if not failed else ():
            if why := obstacles[storage] or (cases and too_small(scratch, cases)):
                sys.stdout.write(f"\n{storage}: skipped: {why}\n")
            elif cases:
                label = f"smoke-{storage}" if options.smoke else storage
                with failures_noted(storage, failed):
                    run(storage, label, cases, options.rounds, scratch, failed)
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


@contextmanager
def failures_noted(what: str, failed: list[str]) -> Iterator[None]:
    """Print and record a failure in the block, and let the bench go on."""
    try:
        yield
    except FAILURES as error:
        sys.stderr.write(f"\n{what}: {error}\n")
        failed.append(what)


def _chosen(storage: str, options: argparse.Namespace) -> list[Case]:
    """The cases that the options select for a storage."""
    cases = (smoke if options.smoke else STORAGES[storage].cases)(options.amount)
    return [case for case in cases if fnmatch.fnmatch(case.title, options.only)]


def too_small(directory: Path, cases: Sequence[Case]) -> str:
    """Why originals, replicas and the files of the limits of one case do not fit in a directory; "" if they do."""
    needed = max(case.occupied for case in cases)
    needed += needed * 3 // 4 + 128 * MiB  # for the file systems themselves, and for blocks of deleted files
    free = shutil.disk_usage(directory).free
    if free >= needed:
        return ""
    place = f"{directory.parent} has {format_bytes(free)} left"
    return f"{place}, but {format_bytes(needed)} are needed: choose another --directory, or a smaller --amount"


def run(name: str, label: str, cases: Sequence[Case], rounds: int, scratch: Path, failed: list[str]) -> None:
    """Run all cases on one storage, called ``label`` in rows and plots; failing cases are added to ``failed``."""
    found: list[Found] = []
    disks, work = scratch / label, scratch / "work"
    disks.mkdir()
    with STORAGES[name].opened(disks, max(case.size for case in cases)) as storage:
        sys.stdout.write(f"\n{name}: {storage.lacks}\n")
        for case in cases:
            with failures_noted(f"{name}: {case.title}", failed):
                since = time.monotonic()
                work.mkdir()
                try:
                    figures = measure(storage, case, rounds, scratch, work)
                finally:
                    shutil.rmtree(work)
                load = os.getloadavg()[0]
                sys.stdout.write(f"\n{case.title} ({time.monotonic() - since:.0f} s, load {load:.1f})\n{HEAD}\n")
                sys.stdout.writelines(f"{one.line()}\n" for one in figures)
                sys.stdout.flush()
                keep([row for one in figures for row in one.rows(label)])
                found += figures
    plots = draw(label, found, BENCH.parent)
    sys.stdout.write(f"\n{len(found)} figures in {BENCH}, drawn in {', '.join(plot.name for plot in plots)}\n")


if __name__ == "__main__":
    main()
