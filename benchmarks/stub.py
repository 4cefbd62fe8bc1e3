"""What redirection costs, and what it gains on slow disks: docs/benchmarks.md.

    python -m benchmarks.stub [--rounds 5] [--disks]

This prints a line for each figure and adds rows to build/bench.json. ``--disks`` needs root (benchmarks/throttled.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.cleanup import workspace
from benchmarks.results import keep
from benchmarks.throttled import HDD, throttled_disk
from pdla.cli.launch import library
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY

KiB, MiB = 1 << 10, 1 << 20
PIECE, COLUMNS = 64 * KiB, 4
OPENING = 8
"""Ranks that open a file together."""


class Bench:
    """The program and the library, in a directory of their own."""

    def __init__(self, directory: Path, rounds: int) -> None:
        self.directory, self.rounds = directory, rounds
        self.library = library()
        self.program, self.lookup = directory / "stub", directory / "lookup"
        mpicc = str(Path(sys.executable).parent / "mpicc")
        sources = REPOSITORY / "benchmarks"
        subprocess.run([mpicc, "-O2", sources / "stub.c", "-o", self.program], check=True)
        stub = REPOSITORY / "replicator/stub"
        parts = [stub / f"{name}.c" for name in ("locate", "mapfile", "crc32c")]
        subprocess.run(["gcc", "-O2", f"-I{stub}", sources / "lookup.c", *parts, "-o", self.lookup], check=True)
        self.rows: list[dict[str, object]] = []

    def run(self, variables: Mapping[str, str], *words: object, ranks: int = 1) -> float:
        """The seconds that the program prints."""
        launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks)]
        command = [*launcher, "env", *(f"{k}={v}" for k, v in variables.items()), str(self.program), *map(str, words)]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)

    def redirected(self, map_file: Path) -> dict[str, str]:
        """The variables that switch redirection on."""
        return {"LD_PRELOAD": str(self.library), "PDLA_MAP": str(map_file)}

    def compare(self, map_file: Path, *words: object, ranks: int = 1, **variables: str) -> tuple[float, float]:
        """The least seconds natively and redirected with these variables, in turn."""
        pairs = [
            (self.run({}, *words, ranks=ranks), self.run(self.redirected(map_file) | variables, *words, ranks=ranks))
            for _ in range(self.rounds)
        ]
        return min(one for one, _ in pairs), min(other for _, other in pairs)

    def row(self, name: str, value: float, unit: str, goal: float | None, baseline: float | None = None) -> None:
        """Record a figure and print it with its baseline."""
        ratio = None if baseline is None else value / baseline
        row = {
            "name": f"stub: {name}",
            "value": value,
            "unit": unit,
            "baseline": baseline,
            "ratio": ratio,
            "goal": goal,
        }
        self.rows.append({**row, "spread": None})
        beside = "" if baseline is None else f", beside {baseline:.4g}: {ratio:.3g} times"
        print(f"{name:60} {value:10.4g} {unit:5} (goal {goal}){beside}", flush=True)


def tables() -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Names of tables of extents, and the tables: (start, length, replica_start) each."""
    choose = np.random.default_rng(1)
    for power in (4, 6, 7):
        many = 10**power
        regular = np.full(many, 7992), np.full(many, 8)
        irregular = choose.integers(0, 10**4, many), choose.integers(1, 10**4, many)
        clusters = np.where(choose.integers(0, 1000, many) == 0, choose.integers(2**20, 2**30, many), 0)
        clustered = clusters + choose.integers(0, 64, many), choose.integers(1, 64, many)
        for name, (gaps, lengths) in (("even", regular), ("irregular", irregular), ("clustered", clustered)):
            ends = np.cumsum(gaps + lengths)
            within = np.cumsum(lengths)
            yield f"table of 10^{power} {name} extents", np.stack([ends - lengths, lengths, within - lengths], axis=1)


def lookups(bench: Bench) -> None:
    """In a nest of 10^9 requests and in tables of extents."""
    nest = Replica(8 * 10**9, 0, 8, loops=[(1000, 16 * 10**6, 8), (1000, 16000, 8000), (1000, 16, 8 * 10**6)])
    look_up(bench, "nest of 10^9 requests", nest, 16 * 10**9)
    for name, extents in tables():
        look_up(bench, name, Replica(int(extents[:, 1].sum()), extents=extents), int(extents[-1, 0] + extents[-1, 1]))


def look_up(bench: Bench, name: str, replica: Replica, size: int) -> None:
    """In one map."""
    original = bench.directory / "large"
    with original.open("wb") as file:
        file.truncate(size)
    replica.components = [bench.directory / "component"]
    replica.components[0].touch()
    write_map(bench.directory / "lookup.map", [(original, [replica])])
    words = (bench.lookup, bench.directory / "lookup.map")
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    at_random, in_order, missing, fetch = map(float, said.split())
    bench.row(f"look-up in a {name}, at random", at_random, "ns", 200, baseline=fetch or None)
    bench.row(f"look-up in a {name}, in order", in_order, "ns", 200)
    bench.row(f"look-up in a {name}, a miss", missing, "ns", 200, baseline=fetch or None)


def costs(bench: Bench) -> None:
    """Of opens and reads, with 10,000 replicas in the map, of which the file has one or none."""
    other, own = bench.directory / "other", bench.directory / "own"
    other.write_bytes(bytes(64 * KiB))
    own.write_bytes(bytes(4096))
    replica = Replica(8, 0, 8).build(bytes(4096), bench.directory / "own-replica")
    many = []
    for i in range(9999):
        original = bench.directory / "many" / str(i)
        original.parent.mkdir(exist_ok=True)
        original.write_bytes(bytes(8))
        many.append((original, [Replica(8, 0, 8, components=replica.components)]))
    map_file = bench.directory / "costs.map"
    write_map(map_file, [*many, (own, [replica])])
    for name, file in (("with a replica", own), ("without", other)):
        native, redirected = bench.compare(map_file, file, "opens", 2000)
        bench.row(f"open of a file {name}, 10,000 in the map: more by", (redirected - native) * 1e3, "ms", 1)
    native, redirected = bench.compare(map_file, own, "opens", 20, ranks=OPENING)
    bench.row(f"open by {OPENING} ranks of a file with a replica: ratio", redirected / native, "", 1.1)
    for size, count in ((8, 1_000_000), (64 * KiB, 20_000)):
        native, redirected = bench.compare(map_file, other, "reads", count, size)
        bench.row(f"read of {size} bytes of a file without a replica: more by", (redirected - native) * 1e9, "ns", 60)
        bench.row(f"read of {size} bytes of a file without a replica: ratio", redirected / native, "", 1.01)
    for name, aside in (("from a replica", "0"), ("that a replica has, steps aside", "1")):
        native, redirected = bench.compare(map_file, own, "reads", 1_000_000, 8, PDLA_STEP_ASIDE=aside)
        bench.row(f"read of 8 bytes in memory {name}: more by", (redirected - native) * 1e9, "ns", 300)


def drop_caches() -> None:
    """Of the whole machine."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def disks(bench: Bench, count: int, size: int) -> None:
    """``size`` bytes in pieces: of an original on the first of ``count`` throttled disks, of a replica on all."""
    with ExitStack() as stack:
        images = stack.enter_context(workspace(Path("/dev/shm")))
        mounts = [stack.enter_context(throttled_disk(images, f"disk{i}", 8 * size, HDD)) for i in range(count)]
        original = mounts[0] / "original"
        with original.open("wb") as file:
            for _ in range(COLUMNS):
                file.write(os.urandom(size))
        for ranks in (1, 4):
            rows = size // PIECE // ranks
            loops = [(rows, ranks * COLUMNS * PIECE, PIECE), (ranks, COLUMNS * PIECE, rows * PIECE)]
            replica = Replica(size, 0, PIECE, loops=loops, strips=[PIECE] * count)
            replica.components = [mount / f"component{ranks}" for mount in mounts]
            # Mapped pages stay in memory: the mapping must be gone before anything is measured.
            column = np.memmap(original, np.uint8, "r").reshape(-1, COLUMNS, PIECE)[:, 0].copy()
            ordered = column.reshape(rows, ranks, PIECE).swapaxes(0, 1).reshape(-1, PIECE)
            for i, component in enumerate(replica.components):
                component.write_bytes(ordered[i::count].tobytes())
            map_file = bench.directory / f"disks{count}.map"
            write_map(map_file, [(original, [replica])])
            sequential = min(max(read_all(replica.components)) for _ in range(2))
            for kind in ("independent", "collective"):
                compare_disks(bench, map_file, original, ranks, kind, sequential, f"{count} disks")


def compare_disks(
    bench: Bench, map_file: Path, original: Path, ranks: int, kind: str, sequential: float, where: str
) -> None:
    """Requests of one piece natively and redirected, and redirected ones that touch all components."""
    name = f"{where}, {kind}, ranks: {ranks}"
    words = (original, "pieces", PIECE, COLUMNS * PIECE)
    drop_caches()
    native = bench.run({}, *words, PIECE, kind, ranks=ranks)
    for request in (PIECE, 16 * MiB):
        drop_caches()
        took = bench.run(bench.redirected(map_file), *words, request, kind, ranks=ranks)
        size = f"{request // KiB} KiB"
        bench.row(f"{size} from {name}: share of sequential bandwidth", sequential / took, "", 0.9)
        if request == PIECE:
            bench.row(f"{size} from {name}: times as fast as the original", native / took, "", 5)


def read_all(components: list[Path]) -> Iterator[float]:
    """Seconds of reading each component from its beginning to its end, all at once, none of it from memory."""
    drop_caches()
    script = "import sys, time; t = time.perf_counter(); f = open(sys.argv[1], 'rb', 0)\n"
    script += "while f.read(1 << 20): pass\nprint(time.perf_counter() - t)"
    readers = [subprocess.Popen([sys.executable, "-c", script, c], stdout=subprocess.PIPE) for c in components]
    for reader in readers:
        yield float(reader.communicate()[0])


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--disks", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), chosen.rounds)
        lookups(bench)
        costs(bench)
        for count in (1, 4) if chosen.disks else ():
            disks(bench, count, count * 64 * MiB)
        keep(bench.rows)


if __name__ == "__main__":
    main()
