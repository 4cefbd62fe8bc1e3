"""How the time of each step grows: with accesses, ranks, extents, patterns, files and processes (docs/benchmarks.md).

    python -m benchmarks.scale [PART ...] [--accesses 1e7] [--directory DIRECTORY]

This prints the slope of each curve over its last decade, adds rows to build/bench.json and draws the curves
(build/bench-scale.png). A slope of 1 is linear; n log n has 1.07 from 10^6 to 10^7. Times are processor seconds, but
those of programs: seconds of a call.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import analyzer, maintenance
from benchmarks.analyzer import BUILD, write_streamed
from benchmarks.planner import plan_seconds
from benchmarks.results import add_rows, row
from benchmarks.stub import Bench
from pdla.accessmap import AccessMap
from pdla.catalog import open_catalog
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator.builder import build
from pdla.replicator.mapfile import publish
from pdla.units import KiB, MiB, format_count
from tests.support.handmade_maps import Replica, write_map

STEEPEST = 1.2
"""What grows faster over a decade is no n log n any more."""
CALLS_OF_RANK = 1000
SHAPES = 199, 51
"""Lengths and counts of patterns: 10,149 pairs."""


class Curve(NamedTuple):
    """The seconds of a step for each size; ``flat``: it is not to grow with the size at all."""

    name: str
    sizes: list[int]
    seconds: list[float]
    flat: bool = False

    @property
    def slope(self) -> float:
        """The exponent over the last decade, or what there is of one."""
        decade = next(i for i, size in enumerate(self.sizes) if size * 10 >= self.sizes[-1])
        first = min(decade, len(self.sizes) - 2)
        grown = math.log(self.seconds[-1] / self.seconds[first])
        return grown / math.log(self.sizes[-1] / self.sizes[first])


def decades(least: int, most: int) -> list[int]:
    """The powers of ten between these."""
    return [10**power for power in range(20) if least <= 10**power <= most]


def used(work: Callable[[], object]) -> float:
    """Processor seconds of some work, the least of three times, or of fewer if it is long."""
    least, all_, rounds = math.inf, 0.0, 0
    while rounds < 3 and all_ < 5.0:
        begin = time.process_time()
        work()
        took = time.process_time() - begin
        least, all_, rounds = min(least, took), all_ + took, rounds + 1
    return least


def analyzed(name: str, records: int, directory: Path, ranks: int = analyzer.RANKS) -> float:
    """Seconds to analyze a trace file, in a process of its own."""
    path = directory / "trace.h5"
    write_streamed(name, records, path, ranks)
    command = [sys.executable, "-m", "benchmarks.analyzer", "--file", str(path)]
    seconds = min(
        float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0])
        for _ in range(3 if records <= 10**6 else 1)
    )
    path.unlink()
    return seconds


def accesses(directory: Path, most: int) -> Iterator[Curve]:
    """Of a trace, on 8 ranks."""
    sizes = decades(1000, most)
    for name in ("regular", "random", "interleaved", "growing"):
        yield Curve(f"analyze, {name}", sizes, [analyzed(name, size, directory) for size in sizes])


def ranks_traced(directory: Path, most: int) -> Iterator[Curve]:
    """Of a trace with 1,000 regular accesses of each rank."""
    sizes = [4**power for power in range(1, 9) if 4**power * CALLS_OF_RANK <= most * 10]
    yield Curve(
        "analyze, 1,000 calls a rank",
        sizes,
        [analyzed("regular", size * CALLS_OF_RANK, directory, size) for size in sizes],
    )


def extents(directory: Path, most: int) -> Iterator[Curve]:
    """Of a replica: those of a nest are built, and those of a table are looked up."""
    sizes = decades(100, min(most, 10**7))
    where = tuple(str(directory / "pools" / str(n)) for n in range(4))
    for one in where:
        Path(one).mkdir(parents=True)
    pool = Pool("disks", "hdd", 4, ((0, 0.0),), 1e-8, 1e-8, None, 4096, "directories", where)
    original, piece = directory / "original", 8
    built = []
    for size in sizes:
        original.write_bytes(os.urandom(MiB) * (size * 2 * piece // MiB + 1))
        signature = Signature(str(original), "read", False, 0, piece, (Loop(2 * piece, size),), (0,))
        layout = Layout("disks", 4, 1, (64 * KiB,) * 4, AccessMap.section(signature))
        catalog = open_catalog(f"sqlite:///{directory}/{size}.db")
        begin = time.process_time()
        build(signature, layout, pool, catalog)
        built.append(time.process_time() - begin)
        catalog.close()
    yield Curve("build, pieces of 8 bytes", sizes, built)
    bench, looked, opened = Bench(directory, 3), [], []
    for size in sizes:
        lengths, gaps = np.random.default_rng(size).integers(1, 10**4, (2, size))
        ends, within = np.cumsum(gaps + lengths), np.cumsum(lengths)
        table = np.stack([ends - lengths, lengths, within - lengths], axis=1)
        with original.open("wb") as file:
            file.truncate(int(ends[-1]))
        component = directory / "component"
        component.touch()
        replica = Replica(int(within[-1]), extents=table, components=[component])
        write_map(directory / "map", [(original, [replica])])
        words = (bench.lookup, directory / "map")
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        looked.append(float(said.split()[0]) * 1e-9)
        opened.append(min(bench.run(bench.redirected(directory / "map"), original, "opens", 1) for _ in range(3)))
    yield Curve("look-up at random in a table", sizes, looked)
    yield Curve("first open with a table", sizes, opened)


def patterns(directory: Path, most: int) -> Iterator[Curve]:
    """Of a run."""
    sizes = decades(10, min(most // 1000, 100_000))
    yield Curve("plan, all shapes differ", sizes, [min(plan_seconds(size, *SHAPES)) for size in sizes])
    yield Curve("plan, ten shapes", sizes, [min(plan_seconds(size, 10, 1)) for size in sizes])


def files(directory: Path, most: int) -> Iterator[Curve]:
    """With a replica each."""
    sizes = decades(1, min(most // 100, 10_000))
    published, status, opened = [], [], []
    bench = Bench(directory, 3)
    for size in sizes:
        home = directory / f"files{size}"
        home.mkdir()
        os.environ["PDLA_HOME"] = str(home / "home")
        catalog = open_catalog()
        maintenance.fill(catalog, home, size)
        published.append(used(lambda: publish(catalog)))  # noqa: B023 (it is called at once)
        catalog.close()
        status.append(min(processor for _, processor in maintenance.seconds_of_status()))
        own = home / "own"
        own.write_bytes(bytes(4096))
        variables = bench.redirected(home / "home" / "replicas.map")
        opened.append(min(bench.run(variables, own, "opens", 2000) for _ in range(3)))
    yield Curve("publish the map", sizes, published)
    yield Curve("status", sizes, status)
    yield Curve("open of another file", sizes, opened, flat=True)


def processes(directory: Path, most: int) -> Iterator[Curve]:
    """That read together 64 MiB in memory in pieces of 4 KiB, on the processors of this machine."""
    sizes = [4, 8, 16, 32]
    original, size, piece = directory / "shared", 64 * MiB, 4 * KiB
    content = os.urandom(size)
    original.write_bytes(content)
    bench = Bench(directory, 3)
    natively, redirected = [], []
    for ranks in sizes:
        rows = size // piece // ranks
        loops = [(ranks, piece, rows * piece), (rows, ranks * piece, piece)]
        replica = Replica(size, 0, piece, loops=loops, strips=[64 * KiB] * 4)
        write_map(directory / "map", [(original, [replica.build(content, directory / f"replica{ranks}")])])
        words = (original, "pieces", piece, piece, piece, "independent")
        variables = bench.redirected(directory / "map") | {"PDLA_STEP_ASIDE": "0"}
        natively.append(min(bench.run({}, *words, ranks=ranks) for _ in range(3)))
        redirected.append(min(bench.run(variables, *words, ranks=ranks) for _ in range(3)))
    yield Curve("read natively", sizes, natively, flat=True)
    yield Curve("read redirected", sizes, redirected, flat=True)


PARTS: dict[str, Callable[[Path, int], Iterator[Curve]]] = {
    "accesses": accesses,
    "ranks": ranks_traced,
    "extents": extents,
    "patterns": patterns,
    "files": files,
    "processes": processes,
}


def draw(found: dict[str, list[Curve]]) -> None:
    """The curves of each part, on logarithmic axes; dotted: linear from the last point down."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4 * -(-len(found) // 3)), layout="constrained")
    for axes, (part, curves) in zip(
        figure.subplots(-(-len(found) // 3), 3, squeeze=False).ravel(), found.items(), strict=False
    ):
        for curve in curves:
            (line,) = axes.loglog(curve.sizes, curve.seconds, "o-", markersize=3, label=curve.name)
            if not curve.flat:
                linear = [curve.seconds[-1] * size / curve.sizes[-1] for size in curve.sizes]
                axes.loglog(curve.sizes, linear, ":", color=line.get_color())
        axes.set(xlabel=part, ylabel="seconds")
        if curves[0].sizes[-1] < 10 * curves[0].sizes[0]:  # less than a decade has no ticks that can be read
            axes.set_xticks(curves[0].sizes, [str(size) for size in curves[0].sizes], minor=False)
            axes.set_xticks([], minor=True)
            axes.set_ylim(1e-3, 1e-1)
        axes.legend(fontsize=7)
    BUILD.mkdir(exist_ok=True)
    figure.savefig(BUILD / "bench-scale.png", dpi=120)


def row_of(part: str, curve: Curve) -> dict[str, Any]:
    """The slope, with the seconds of the largest size."""
    name = f"{part}, {curve.name}, {format_count(curve.sizes[0])} to {format_count(curve.sizes[-1])}"
    return {**row(name, [curve.slope], "slope", STEEPEST), "seconds": curve.seconds[-1]}


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--accesses", type=float, default=1e7, help="the most accesses, and extents")
    parser.add_argument("--directory", type=Path, help="for all files")
    options = parser.parse_args()
    found: dict[str, list[Curve]] = {}
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            found[part] = []
            for curve in PARTS[part](Path(directory), int(options.accesses)):
                found[part].append(curve)
                add_rows("scale", [row_of(part, curve)])
    draw(found)


if __name__ == "__main__":
    main()
