"""What S4D-Cache gains while programs run, after the figures of its paper: docs/benchmarks.md.

    python -m benchmarks.ssd_cache [--storage disks seeking] [--rounds 3] [--amount 32M] [--only sizes mix hpio tiles]

Programs run natively and with pdla run --policy s4d, on throttled disks and on disks that seek, for which it needs
root. Reads are those of a first and of a second run. Originals are mounted synchronously: writes return when they are
on the disks, as with a parallel file system whose clients keep nothing. The programs check every byte that they read.
Every ratio is of runs of the same round. This prints a line for each figure and adds rows to build/bench.json.

The paper is He, Sun, Feng: "S4D-Cache: Smart Selective SSD Cache for Parallel I/O Systems", ICDCS 2014, section V.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import COLLECTIVE, INDEPENDENT
from benchmarks.cleanup import workspace
from benchmarks.contestants import compile_programs
from benchmarks.processes import end_on_signals
from benchmarks.results import add_rows, row
from benchmarks.seeking import SeekingDisks, seeking_disks, seeking_obstacle
from benchmarks.storage import ThrottledDisks, throttled_disks
from benchmarks.throttled import obstacle
from pdla.units import KiB, MiB, format_bytes, parse_bytes

RANKS = 4
BIN = Path(sys.executable).parent
SIZES = (8 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, MiB, 4 * MiB)
OF_NATIVE, OF_SSDS, WRITES = 0.98, 0.9, 2.0
SHARES = (0.1, 0.2, 0.3)
"""Of the data, that the cache has room for."""
IN_ORDER, AT_RANDOM = 6, 4
"""Of the paper's ten instances of IOR, which run one after the other, each with its file."""
FOR_READS = 0.75
"""Of the capacity: the rest is for writes on their way home."""
KINDS = {"disks": (throttled_disks, obstacle), "seeking": (seeking_disks, seeking_obstacle)}


class Job(NamedTuple):
    """Programs that run one after the other, each with a file of ``size`` bytes: names and options."""

    title: str
    programs: tuple[tuple[str, ...], ...]
    size: int
    ranks: int = RANKS

    @property
    def bytes(self) -> int:
        """Of all files."""
        return len(self.programs) * self.size


def ior(amount: int, request: int, random: bool, ranks: int = RANKS) -> Job:
    """Each rank accesses a part of the file."""
    options = ("-b", str(amount // ranks), "-t", str(request), *(["-z"] if random else []))
    return Job(f"{format_bytes(request)}, {'random' if random else 'in order'}", (("ior", *options),), amount, ranks)


def mix(amount: int, request: int, ranks: int) -> Job:
    """The paper's ten instances: at random and in order, by turns."""
    part = amount // (IN_ORDER + AT_RANDOM)
    instances = [ior(part, request, number % 5 in (1, 3), ranks).programs[0] for number in range(IN_ORDER + AT_RANDOM)]
    return Job(f"ten IOR, {format_bytes(request)}, {ranks} ranks", tuple(instances), part, ranks)


def hpio(amount: int, spacing: int) -> Job:
    """Regions of 8 KiB with gaps."""
    region = 8 * KiB
    count = amount // region // RANKS
    options = ("-c", str(count), "-s", str(region), "-p", str(spacing), "--bufferSize", str(4 * region))
    return Job(f"HPIO, gaps of {format_bytes(spacing)}", (("hpio", *options),), count * RANKS * (region + spacing))


def tiles(amount: int, across: int, ranks: int) -> Job:
    """Elements of 32 KiB, ten in each row of a tile."""
    element, wide = 32 * KiB, 10
    high = amount // ranks // wide // element
    words = {"nr_tiles_x": across, "nr_tiles_y": ranks // across, "sz_tile_x": wide, "sz_tile_y": high}
    words |= {"sz_element": element, "bufferSize": wide * element}
    options = [str(word) for name, value in words.items() for word in (f"--{name}", value)]
    return Job(f"MPI-Tile-IO, {ranks} ranks", (("mpi_tile_io", *options),), ranks * wide * high * element, ranks)


class Measured:
    """One kind of storage, with the files and replicas of what runs on it."""

    def __init__(self, storage: ThrottledDisks | SeekingDisks, scratch: Path) -> None:
        self.storage, self.scratch = storage, scratch
        self.cluster, self.home = scratch / "cluster.toml", scratch / "home"
        self.originals = storage.nodes[0].originals
        for original in self.originals.values():
            subprocess.run(["mount", "-o", "remount,sync", original], check=True)

    def begin(self, job: Job, share: float | None = None) -> None:
        """New files without replicas, and an SSD pool that has room for a ``share`` of their bytes."""
        shutil.rmtree(self.home, ignore_errors=True)
        for server in self.storage.servers["ssd"]:
            shutil.rmtree(server / f"pdla-replicas-{os.geteuid()}", ignore_errors=True)
        limited = "" if share is None else f"capacity = {int(share * job.bytes / FOR_READS)}\n"
        self.cluster.write_text(self.storage.cluster.replace("[pools.ssd]\n", f"[pools.ssd]\n{limited}"))
        with self.storage.unlimited():
            for kind in ("hdd", "ssd"):
                for old in self.originals[kind].glob("data*"):
                    old.unlink()
                for number in range(len(job.programs)):
                    self.storage.place(kind, self.originals[kind] / f"data{number}", job.size)
                self.rate(job, "write", INDEPENDENT, kind)

    def rate(self, job: Job, op: str, how: str, kind: str = "hdd") -> float:
        """MiB/s from before the opens until after the closes, without computation and the check of the bytes."""
        self.storage.drop_caches()
        jobs = []
        for number, (program, *options) in enumerate(job.programs):
            words = [BIN / "mpiexec", "-n", job.ranks, self.scratch / program, *options]
            words += ["--testFile", self.originals[kind] / f"data{number}"]
            words += ["--writeFile"] if op == "write" else []
            words += ["--collective"] if how == COLLECTIVE else []
            jobs.append(shlex.join(map(str, words)))
        policy = [BIN / "pdla", "run", "--policy", "s4d", "--cluster", self.cluster, "--"] if how == "s4d" else []
        done = subprocess.run(
            [*policy, "sh", "-ec", "\n".join(jobs)],
            env={**os.environ, "PDLA_HOME": str(self.home)}, check=True, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return float(sum(one["bytes"] for one in found) / MiB / sum(one["seconds"] for one in found))


def reads(measured: Measured, job: Job, rounds: int, share: float | None = None) -> Iterator[dict[str, Any]]:
    """A first and a second run, beside the original and files on SSDs alone."""
    runs = {
        "native": (INDEPENDENT, "hdd"),
        "collective": (COLLECTIVE, "hdd"),
        "first": ("s4d", "hdd"),
        "second": ("s4d", "hdd"),
        "ssds": (INDEPENDENT, "ssd"),
    }
    if job.programs[0][0] == "ior":
        del runs["collective"]  # each of its calls is one request
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        measured.begin(job, share)
        for name, (how, kind) in runs.items():
            found[name].append(measured.rate(job, "read", how, kind))
    title = f"reads, {job.title}" + ("" if share is None else f", room for {share:.0%}")
    yield row(f"{title}: first run, of the original", found["first"], "MiB/s", OF_NATIVE, found["native"])
    yield row(f"{title}: second run, of the original", found["second"], "MiB/s", OF_NATIVE, found["native"])
    if "collective" in found:
        yield row(f"{title}: second run, of collective", found["second"], "MiB/s", None, found["collective"])
    goal = OF_SSDS if share is None else None
    yield row(f"{title}: second run, of the SSDs' limit", found["second"], "MiB/s", goal, found["ssds"])


def writes(measured: Measured, job: Job, rounds: int, share: float | None = None) -> Iterator[dict[str, Any]]:
    """Until the close, when all bytes are home, beside the original."""
    contests = (INDEPENDENT, "s4d") if job.programs[0][0] == "ior" else (INDEPENDENT, COLLECTIVE, "s4d")
    found: dict[str, list[float]] = {how: [] for how in contests}
    for _ in range(rounds):
        measured.begin(job, share)
        for how, rates in found.items():
            rates.append(measured.rate(job, "write", how))
    title = f"writes, {job.title}" + ("" if share is None else f", room for {share:.0%}")
    small = "random" in job.title and not job.title.startswith(("256", "1 M", "4 M"))
    goal = WRITES if small else OF_NATIVE
    yield row(f"{title}: of the original", found["s4d"], "MiB/s", goal, found[INDEPENDENT])
    if COLLECTIVE in found:
        yield row(f"{title}: of collective", found["s4d"], "MiB/s", None, found[COLLECTIVE])


def sizes(measured: Measured, amount: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Fig. 6, and Fig. 11 where nothing is critical: requests of different sizes, at random and in order."""
    for random in (True, False):
        for request in SIZES:
            job = ior(amount, request, random)
            yield from reads(measured, job, rounds)
            yield from writes(measured, job, rounds)


def mixes(measured: Measured, amount: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Figs. 6 and 7 and Table IV: the ten instances, with other numbers of ranks and capacities."""
    for ranks in (4, 8, 16):
        job = mix(amount, 16 * KiB, ranks)
        for share in (0.2,) if ranks > RANKS else SHARES:
            yield from reads(measured, job, rounds, share)
            yield from writes(measured, job, rounds, share)


def gaps(measured: Measured, amount: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Fig. 9: HPIO."""
    for spacing in (0, KiB, 2 * KiB, 4 * KiB):
        yield from reads(measured, hpio(amount, spacing), rounds)
        yield from writes(measured, hpio(amount, spacing), rounds)


def tiled(measured: Measured, amount: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Fig. 10: MPI-Tile-IO."""
    for ranks in (4, 8):
        yield from reads(measured, tiles(amount, ranks // 2, ranks), rounds)
        yield from writes(measured, tiles(amount, ranks // 2, ranks), rounds)


PARTS: Mapping[str, Callable[[Measured, int, int], Iterator[dict[str, Any]]]] = {
    "sizes": sizes, "mix": mixes, "hpio": gaps, "tiles": tiled,
}  # fmt: skip


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--storage", nargs="+", choices=list(KINDS), default=list(KINDS))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--amount", type=parse_bytes, default=32 * MiB, help="bytes of all files of a job")
    options.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    chosen = options.parse_args()
    end_on_signals()
    for name in chosen.storage:
        made, missing = KINDS[name]
        if why := missing():
            sys.exit(why)
        with workspace(Path("/dev/shm")) as scratch, made(scratch, 4 * chosen.amount) as storage:
            compile_programs(scratch, ("ior", "hpio", "mpi_tile_io"))
            measured = Measured(storage, scratch)
            for part in chosen.only:
                for one in PARTS[part](measured, chosen.amount, chosen.rounds):
                    add_rows(f"ssd-cache, {name}", [one])


if __name__ == "__main__":
    main()
