"""What S4D-Cache gains while programs run: docs/benchmarks.md.

    python -m benchmarks.ssd_cache [--rounds 3] [--amount 32M]

Pieces of a file are read or written by four ranks, at random places or in order: natively, and with
pdla run --policy s4d, on throttled disks (benchmarks/throttled.py), for which it needs root. Reads are those of a first
and of a second run. Originals are mounted synchronously: writes return when they are on the disks, as with a parallel
file system whose clients keep nothing. Every ratio is of runs of the same round. This prints a line for each figure and
adds rows to build/bench.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cleanup import workspace
from benchmarks.processes import end_on_signals
from benchmarks.results import add_rows, row
from benchmarks.storage import ThrottledDisks, throttled_disks
from benchmarks.throttled import obstacle
from pdla.units import KiB, MiB, format_bytes, parse_bytes
from tests.support.mpi import REPOSITORY

RANKS = 4
BIN = Path(sys.executable).parent
SIZES = (8 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, MiB, 4 * MiB)
OF_NATIVE, OF_SSDS, WRITES = 0.98, 0.9, 2.0
SHARES = (0.1, 0.2, 0.3)
"""Of the data, that the cache has room for."""


class Job(NamedTuple):
    """Pieces of ``size`` bytes of a file of ``amount``, a quarter of which is read four times if it is ``hot``."""

    amount: int
    size: int
    in_order: bool = False
    hot: bool = False

    @property
    def title(self) -> str:
        """In the names of rows."""
        return f"{format_bytes(self.size)}, {'in order' if self.in_order else 'random'}"

    def words(self, program: Path, file: Path, what: str) -> list[str]:
        """The command line."""
        count = self.amount // self.size
        words = [program, file, what, self.size, count, count // 4 if self.hot else 0]
        launched = [BIN / "mpiexec", "-n", RANKS, *words, *(["in-order"] if self.in_order else [])]
        return list(map(str, launched))


class Measured:
    """One kind of storage, with the files and replicas of what runs on it."""

    def __init__(self, storage: ThrottledDisks, program: Path, scratch: Path) -> None:
        self.storage, self.program = storage, program
        self.cluster, self.home = scratch / "cluster.toml", scratch / "home"
        self.originals = storage.nodes[0].originals

    def begin(self, job: Job, capacity: int | None = None) -> None:
        """New files without replicas."""
        self.forget()
        limited = "" if capacity is None else f"capacity = {capacity}\n"
        pools = self.storage.cluster.replace("[pools.ssd]\n", f"[pools.ssd]\n{limited}")
        self.cluster.write_text(pools)
        with self.storage.unlimited():
            for kind in ("hdd", "ssd"):
                (self.originals[kind] / "data").write_bytes(os.urandom(job.amount))

    def forget(self) -> None:
        """Remove replicas and what is known of files."""
        shutil.rmtree(self.home, ignore_errors=True)
        for server in self.storage.servers["ssd"]:
            shutil.rmtree(server / f"pdla-replicas-{os.geteuid()}", ignore_errors=True)

    def seconds(self, job: Job, what: str, how: str, kind: str = "hdd") -> float:
        """Of a run from before its open until after its close, ``how`` = "native" or "s4d"."""
        self.storage.drop_caches()
        words = job.words(self.program, self.originals[kind] / "data", what)
        policy = [str(BIN / "pdla"), "run", "--policy", "s4d", "--cluster", str(self.cluster), "--json", "--"]
        done = subprocess.run(
            [*(policy if how == "s4d" else []), *words],
            env={**os.environ, "PDLA_HOME": str(self.home)}, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return float(done.stderr.split()[0])


def reads(measured: Measured, job: Job, rounds: int) -> Iterator[dict[str, Any]]:
    """The rates of a first and a second run, beside those of the original and of a file on SSDs alone."""
    found: dict[str, list[float]] = {"native": [], "first": [], "second": [], "ssds": []}
    for _ in range(rounds):
        measured.begin(job)
        runs = {
            "native": ("native", "hdd"),
            "first": ("s4d", "hdd"),
            "second": ("s4d", "hdd"),
            "ssds": ("native", "ssd"),
        }
        for name, (how, kind) in runs.items():
            found[name].append(job.amount / MiB / measured.seconds(job, "read", how, kind))
    title = f"reads of {job.title}"
    yield row(f"{title}: first run, of the original", found["first"], "MiB/s", OF_NATIVE, found["native"])
    yield row(f"{title}: second run, of the original", found["second"], "MiB/s", OF_NATIVE, found["native"])
    yield row(f"{title}: second run, of the SSDs' limit", found["second"], "MiB/s", OF_SSDS, found["ssds"])


def writes(measured: Measured, job: Job, rounds: int) -> Iterator[dict[str, Any]]:
    """The rate of writes until the close, when all are home, beside that of the original."""
    found: dict[str, list[float]] = {"native": [], "s4d": []}
    for _ in range(rounds):
        measured.begin(job)
        for how, rates in found.items():
            rates.append(job.amount / MiB / measured.seconds(job, "write", how))
    goal = WRITES if job.size <= 64 * KiB and not job.in_order else OF_NATIVE
    yield row(f"writes of {job.title}: of the original", found["s4d"], "MiB/s", goal, found["native"])


def shares(measured: Measured, job: Job, rounds: int) -> Iterator[dict[str, Any]]:
    """The rates of second runs with small caches, beside the original."""
    for share in SHARES:
        found: dict[str, list[float]] = {"native": [], "second": []}
        for _ in range(rounds):
            measured.begin(job, int(share * job.amount * 4 / 3))  # a quarter is for writes
            found["native"].append(job.amount / MiB / measured.seconds(job, "read", "native"))
            measured.seconds(job, "read", "s4d")
            found["second"].append(job.amount / MiB / measured.seconds(job, "read", "s4d"))
        name = f"reads of {job.title}, a quarter four times, room for {share:.0%}: second run, of the original"
        yield row(name, found["second"], "MiB/s", OF_NATIVE, found["native"])


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--amount", type=parse_bytes, default=32 * MiB, help="bytes of a file")
    chosen = options.parse_args()
    if why := obstacle():
        sys.exit(why)
    end_on_signals()
    with workspace(Path("/dev/shm")) as scratch, throttled_disks(scratch, 4 * chosen.amount) as storage:
        program = scratch / "pieces"
        source = REPOSITORY / "tests/programs/random_pieces.c"
        subprocess.run([BIN / "mpicc", "-O2", source, "-o", program], check=True)
        for original in storage.nodes[0].originals.values():
            subprocess.run(["mount", "-o", "remount,sync", original], check=True)
        measured = Measured(storage, program, scratch)
        for in_order in (False, True):
            for size in SIZES:
                job = Job(chosen.amount, size, in_order)
                add_rows("ssd-cache", [*reads(measured, job, chosen.rounds), *writes(measured, job, chosen.rounds)])
        add_rows("ssd-cache", list(shares(measured, Job(chosen.amount, 16 * KiB, hot=True), chosen.rounds)))


if __name__ == "__main__":
    main()
