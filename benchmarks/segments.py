"""What LiU gains while programs run, after the programs of its text: docs/benchmarks.md.

    python -m benchmarks.segments [--rounds 3] [--amount 128M] [--ranks 8] [--only 'ior*']

The programs run natively, and three times with pdla run --policy liu, alone and (mpi-io-test) beside another program
that runs until this one ends, on disks that seek, for which it needs root. Of these runs the first one and the third
one count: the first finds the segments, and the second one may still copy heads. Writes to originals return when they
are on the disks. Every ratio is of runs of the same round. What disks do is read from their counters. This prints a
line for each figure and adds rows to build/bench.json.

Source: Huang et al., "LiU: Hiding Disk Access Latency for HPC Applications with a New SSD-Enabled Data Layout":
section III, tables II and III.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import INDEPENDENT
from benchmarks.cleanup import workspace
from benchmarks.contestants import BINARIES, compile_programs, fill
from benchmarks.fragments import btio, ior_mpi_io, job, mpi_io_test
from benchmarks.processes import end_on_signals
from benchmarks.results import add_rows, row
from benchmarks.seeking import SeekingDisks, seeking_disks, seeking_obstacle
from benchmarks.ssd_cache_runs import FIRST, SECOND, WRITTEN, Experiment, Job, make_synchronous
from pdla.units import KiB, MiB, parse_bytes

POLICY = "liu"
OF_NATIVE = 0.98
"""The goal of a first run."""
REQUEST = 64 * KiB
CLASSES = {"S": 12, "W": 24}
"""Of BTIO: points of a side."""
BTIO_WRITES = MiB // 2
"""It writes rows of some hundred bytes, and each is a request of a disk."""
STARTED = 0.7
"""Seconds after which the other program is reading."""


class Case(NamedTuple):
    """A program, and the one that runs beside it; None: it is alone."""

    job: Job
    op: str
    beside: Job | None = None

    @property
    def title(self) -> str:
        """Its name in the results."""
        other = f" beside {self.beside.title.partition(',')[0]}" if self.beside else ""
        return f"{self.job.title}{other}, {self.op}"


def tiles(amount: int, ranks: int) -> Job:
    """Two rows of tiles; rows of a tile have 64 KiB."""
    element, wide = 64, REQUEST // 64
    words = {"nr_tiles_x": ranks // 2, "nr_tiles_y": 2, "sz_tile_x": wide, "sz_tile_y": amount // ranks // REQUEST}
    words |= {"sz_element": element, "overlap_x": 0, "overlap_y": 0}
    options = tuple(str(word) for name, value in words.items() for word in (f"--{name}", value))
    return job("mpi-tile-io", "mpi_tile_io", options, ranks, amount // ranks // REQUEST * REQUEST * ranks, REQUEST)


def cases(amount: int, ranks: int) -> Iterator[Case]:
    """All programs."""
    in_order, apart = mpi_io_test(amount, REQUEST, 0, ranks), ior_mpi_io(amount, REQUEST, ranks)
    for one in (in_order, tiles(amount, ranks), apart):
        yield from (Case(one, op) for op in ("read", "write"))
    for name, points in CLASSES.items():
        for op, most in (("read", amount), ("write", BTIO_WRITES)):
            one = btio(min(amount, most), points)
            yield Case(replace(one, title=f"{one.title}, class {name}"), op)
    yield from (Case(in_order, "read", other) for other in (in_order, apart))


DISKS = (
    ("busy", "time of a request", "ms", 1e3),
    ("distance", "way to a request", "MB", 1e-6),
    ("seeks", "seeks", "a request", 1),
)
"""Of the third run, for each request of a disk: a counter, and its name and unit in the results."""


class Run(NamedTuple):
    """MiB/s, and what the disks did meanwhile."""

    rate: float
    moved: Mapping[str, float]

    def of_request(self, what: str) -> float:
        """Of a disk, for each of its requests."""
        return self.moved[what] / max(self.moved["requests"], 1)


def moved(storage: SeekingDisks) -> dict[str, float]:
    """By all disks with originals, so far."""
    counters = storage.heads["hdd"].counters()
    return {name: sum(disk[name] for disk in counters) for name in counters[0]}


def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program that must succeed."""
    if process.wait():
        raise RuntimeError(f"{shlex.join(map(str, process.args))}: exit {process.returncode}")


class Beside:
    """A program with a file of its own that runs again and again, as the one that is measured does."""

    def __init__(self, storage: SeekingDisks, experiment: Experiment, other: Job) -> None:
        self.experiment, self.stop = experiment, experiment.directory / "stop"
        self.file = storage.nodes[0].originals["hdd"] / "beside"
        (program,) = other.programs
        own = [experiment.programs / program.program, *program.options, "--testFile", self.file]
        self.command = [str(BINARIES / "mpiexec"), "-n", str(other.ranks), *map(str, own)]
        with storage.unlimited():
            storage.place("hdd", self.file, other.size)
            fill(self.file, other.size)

    def start(self, contestant: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Natively, or with the policy."""
        pdla = [BINARIES / "pdla", "run", "--policy", POLICY, "--cluster", self.experiment.cluster, "--"]
        words = command if contestant == INDEPENDENT else [*map(str, pdla), *command]
        variables = {**os.environ, **self.experiment.variables(contestant)}
        return subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def learn(self) -> None:
        """Its segments are lifted before it is beside another program."""
        for _ in range(2):
            ended(self.start(FIRST, self.command))

    @contextmanager
    def running(self, contestant: str) -> Iterator[None]:
        """Until the block ends; each time it reads from the disks."""
        forget = f"dd if={shlex.quote(str(self.file))} iflag=nocache count=0 2>/dev/null"
        again = f"until [ -e {shlex.quote(str(self.stop))} ]; do {shlex.join(self.command)}; {forget}; done"
        process = self.start(contestant, ["sh", "-c", again])
        time.sleep(STARTED)
        try:
            yield
        finally:
            self.stop.touch()
            ended(process)
            self.stop.unlink()


def runs(storage: SeekingDisks, case: Case, programs: Path, work: Path) -> tuple[Run, Run, Run]:
    """Natively, of the first run with the policy, and of the third one, on new files."""
    work.mkdir()
    with storage.unlimited():
        experiment = Experiment(storage, case.job, programs, work, policy=POLICY)
        experiment.prepare(case.op, (INDEPENDENT,))
    beside = Beside(storage, experiment, case.beside) if case.beside else None
    later = SECOND if case.op == "read" else WRITTEN
    found = []
    try:
        if beside:
            beside.learn()
        for contestant in (INDEPENDENT, FIRST if case.op == "read" else WRITTEN, later, later):
            with beside.running(contestant) if beside else nullcontext():
                before, rate = moved(storage), experiment.rate(case.op, contestant)
                found.append(Run(rate, {name: value - before[name] for name, value in moved(storage).items()}))
    finally:
        with storage.unlimited():
            experiment.remove()
            if beside:
                beside.file.unlink()
        shutil.rmtree(work)
    native, first, _, third = found
    return native, first, third


def measure(storage: SeekingDisks, case: Case, rounds: int, programs: Path) -> list[dict[str, Any]]:
    """Rows for a program."""
    found = [runs(storage, case, programs, programs / "work") for _ in range(rounds)]
    native, first, third = ([one[number] for one in found] for number in range(3))
    rates = [one.rate for one in native]
    rows = [row(f"{case.title}: third run", [one.rate for one in third], "MiB/s", None, rates)]
    if case.beside is None:
        rows.insert(0, row(f"{case.title}: first run", [one.rate for one in first], "MiB/s", OF_NATIVE, rates))
    for what, name, unit, each in DISKS:
        values = [[each * one.of_request(what) for one in runs] for runs in (third, native)]
        rows.append(row(f"{case.title}: {name}", values[0], unit, None, values[1]))
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--amount", type=parse_bytes, default=128 * MiB, help="bytes of a file")
    parser.add_argument("--ranks", type=int, default=8, help="of all programs but BTIO")
    parser.add_argument("--only", nargs="+", default=["*"], help="measure only what matches one of these globs")
    options = parser.parse_args()
    end_on_signals()
    if why := seeking_obstacle():
        sys.stdout.write(f"skipped: {why}\n")
        return
    with workspace(Path("/dev/shm")) as scratch:
        compile_programs(scratch, ("mpi_io_test", "ior", "btio", "mpi_tile_io"))
        disks = scratch / "seeking"
        disks.mkdir()
        with seeking_disks(disks, 3 * options.amount) as storage:
            make_synchronous(storage)
            for case in cases(options.amount, options.ranks):
                if any(fnmatch.fnmatch(case.title, glob) for glob in options.only):
                    add_rows("liu", measure(storage, case, options.rounds, scratch))


if __name__ == "__main__":
    main()
