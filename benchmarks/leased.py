"""What a consumer job gains if it reads the bytes of a lease where they are: docs/benchmarks.md.

    python -m benchmarks.leased [--rounds 5] [--ranges 100000] [--amount 256M]

This prints a line for each figure and adds rows to build/bench.json. The bandwidth needs root, for throttled disks
(benchmarks/throttled.py); without them it is not measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.cleanup import workspace
from benchmarks.results import add_rows, row
from benchmarks.stub import drop_caches, read_all
from benchmarks.throttled import HDD, SSD, obstacle, throttled_disk
from pdla.cli.launch import library
from pdla.replicator.journals import paths_in, read_journal
from pdla.units import parse_bytes
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY

KiB, MiB = 1 << 10, 1 << 20
DISKS = 4


class Pattern(NamedTuple):
    """``pieces`` pieces, one at every ``stride`` bytes."""

    piece: int
    stride: int
    pieces: int


class Jobs:
    """A producer and a consumer of one file below the directory of the map, and the replica of its writes."""

    def __init__(self, programs: Path, root: Path, original: Path, replica: Replica, pattern: Pattern) -> None:
        self.programs, self.root, self.original, self.replica, self.pattern = programs, root, original, replica, pattern
        strips = len(replica.components)
        for component in replica.components:
            with component.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, -(-replica.size // (MiB * strips)) * MiB)
        write_map(root / "replicas.map", [], targets=[(original, [replica])])

    def run(self, how: str, ranks: int, redirected: bool = True, request: int = 4 * MiB) -> tuple[float, float]:
        """The seconds of the open, and those of the reads or writes."""
        settings = [f"LD_PRELOAD={library()}", f"PDLA_MAP={self.root / 'replicas.map'}"]
        settings += ["PDLA_WRITES=lease"] if how == "write" else []
        launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks)]
        words = [self.programs / "leased", self.original, how, *self.pattern, request]
        command = [*launcher, "env", *(settings if redirected else []), *map(str, words)]
        opened, moved = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return float(opened), float(moved)

    def produce(self, ranks: int) -> None:
        """Write the file under a lease."""
        self.original.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.run("write", ranks)

    @property
    def journals(self) -> list[Path]:
        """The journals of the file."""
        return paths_in(self.directory)

    @property
    def directory(self) -> Path:
        """Their directory."""
        return self.root / "journals" / "-".join(self.original.relative_to(self.root).parts)


def opens(programs: Path, root: Path, ranges: int, rounds: int) -> Iterator[dict[str, object]]:
    """What an open costs, if the journals list so many ranges: the first one of the file, and those after it."""
    pattern = Pattern(KiB, 2 * KiB, ranges)
    size = ranges * pattern.stride
    components = [root / f"component{i}" for i in range(DISKS)]
    whole = Replica(size, 0, size, strips=[MiB] * DISKS, components=components)
    jobs = Jobs(programs, root, root / "original", whole, pattern)
    for ranks in (1, 4):
        found: dict[str, list[float]] = {"natively": [], "first": [], "second": []}
        for _ in range(rounds):
            jobs.produce(4)
            assert sum(len(read_journal(one).waiting) for one in jobs.journals) == ranges
            for how in ("first", "second", "natively"):
                found[how].append(1e3 * jobs.run("open", ranks, redirected=how != "natively")[0])
            assert len(jobs.journals) == 4
        for how in ("first", "second"):
            more = [one - native for one, native in zip(found[how], found["natively"], strict=True)]
            name = f"{how} open by {ranks} ranks, {ranges} ranges in the journals: more by"
            yield row(name, more, "ms", 50)


class Killed:
    """A job that leaves its bytes in the cache files of its ranks, and one that opens its file."""

    def __init__(self, programs: Path, root: Path, pattern: Pattern) -> None:
        self.programs, self.root, self.pattern = programs, root, pattern
        self.original, self.home, self.cache = root / "original", root / "home", root / "cache"

    def run(self, how: str, ranks: int, redirected: bool = True) -> float:
        """The seconds of the open; ``leave`` is killed."""
        settings = {
            "LD_PRELOAD": library(),
            "PDLA_HOME": self.home,
            "PDLA_MAP": self.home / "replicas.map",
            "PDLA_POLICY": "e10",
            "PDLA_E10_CACHE": "enable",
            "PDLA_E10_CACHE_PATH": self.cache,
            "PDLA_E10_CACHE_FLUSH_FLAG": "flush_onclose",
            "PDLA_ROMIO_CB_WRITE": "disable",  # pieces with gaps go to the caches, too
        }
        launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks), "env"]
        words = [*(f"{name}={value}" for name, value in settings.items() if redirected), self.programs / "leased"]
        command = [*launcher, *map(str, [*words, self.original, how, *self.pattern, MiB])]
        ran = subprocess.run(command, check=how != "leave", capture_output=True, text=True)
        return 0.0 if how == "leave" else float(ran.stdout.split()[0])

    def leave(self) -> None:
        """Write the file and be killed."""
        self.original.unlink(missing_ok=True)
        for directory in (self.home, self.cache):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        self.run("leave", 4)

    @property
    def waiting(self) -> int:
        """How many extents the journals list."""
        return sum(len(read_journal(one).waiting) for one in self.home.rglob("*.journal") if one.is_file())


def killed_opens(programs: Path, root: Path, ranges: int, rounds: int) -> Iterator[dict[str, object]]:
    """What an open costs, if killed programs left so many extents in cache files."""
    jobs = Killed(programs, root, Pattern(KiB, 2 * KiB, ranges))
    for ranks in (1, 4):
        more: list[float] = []
        for _ in range(rounds):
            jobs.leave()
            assert jobs.waiting == ranges
            more.append(1e3 * (jobs.run("open", ranks) - jobs.run("open", ranks, redirected=False)))
            assert jobs.waiting == ranges
        yield row(f"open by {ranks} ranks, {ranges} extents in cache files of a killed job: more by", more, "ms", 50)


def bandwidth(programs: Path, amount: int, rounds: int) -> Iterator[dict[str, object]]:
    """What a consumer reads a second, beside plain reads of the same components.

    The replica has the pieces in the order in which the consumer's ranks read them.
    """
    with ExitStack() as stack:
        images = stack.enter_context(workspace(Path("/dev/shm")))
        slow = stack.enter_context(throttled_disk(images, "slow", 8 * amount, HDD))
        disks = [stack.enter_context(throttled_disk(images, f"fast{i}", 2 * amount, SSD)) for i in range(DISKS)]
        components = [disk / "component" for disk in disks]
        pattern = Pattern(64 * KiB, 4 * 64 * KiB, amount // (64 * KiB))
        for ranks in (1, 4):
            rows = pattern.pieces // ranks
            loops = [(rows, ranks * pattern.stride, pattern.piece), (ranks, pattern.stride, rows * pattern.piece)]
            replica = Replica(amount, 0, pattern.piece, loops=loops, strips=[MiB] * DISKS, components=components)
            jobs = Jobs(programs, images, slow / f"original{ranks}", replica, pattern)
            jobs.produce(4)
            found: list[float] = []
            limits: list[float] = []
            for _ in range(rounds):
                limits.append(amount / MiB / max(read_all(components)))
                drop_caches()
                found.append(amount / MiB / jobs.run("read", ranks, request=16 * MiB)[1])
            assert len(jobs.journals) == 4
            yield row(f"reads of leased bytes by {ranks} ranks, of the limit", found, "MiB/s", 0.9, limits)


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--ranges", type=int, default=100_000)
    options.add_argument("--amount", type=parse_bytes, default=256 * MiB, help="bytes that are read in a round")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        programs = Path(directory)
        mpicc = str(Path(sys.executable).parent / "mpicc")
        source = REPOSITORY / "benchmarks/leased.c"
        subprocess.run([mpicc, "-O2", source, "-o", programs / "leased"], check=True)
        rows = []
        for measured in (opens, killed_opens):
            (programs / measured.__name__).mkdir()
            rows += measured(programs, programs / measured.__name__, chosen.ranges, chosen.rounds)
        if why := obstacle():
            sys.stdout.write(f"no bandwidth: {why}\n")
        else:
            rows += bandwidth(programs, chosen.amount, chosen.rounds)
        add_rows("leased", rows)


if __name__ == "__main__":
    main()
