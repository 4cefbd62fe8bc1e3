"""The analyzer's speed in records a second on one core, and whether time and memory grow only linearly.

    python -m benchmarks.analyzer [RECORDS] [--streamed MOST] [--directory DIRECTORY]

This prints a table and adds rows to build/bench.json: the median of five runs on columns in memory
and, with --streamed, trace files of 10^5, 10^6, ... up to MOST records, each analyzed by its own
process (build/bench-analyzer.png). Times are processor seconds. The files take 3 to 10 bytes a
record and are removed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import add_rows, row
from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.collectors.tracefile import Rows, stored_trace, write_blocks
from pdla.traces.file_views import View
from pdla.traces.tables import OPS, RECORD_COLUMNS, files_frame
from pdla.traces.trace import Trace

KIB, RANKS, REPETITIONS = 1 << 10, 8, 5
TURN = 1000
"""Calls with steps that grow, before these begin again."""

BUILD = Path(__file__).resolve().parent.parent / "build"
KINDS = ("MPI_File_read_at",)


def regular(records: int) -> Trace:
    """IOR, transfers smaller than blocks: three loops and the ranks."""
    return workloads.ior(RANKS, 64 * KIB, 16 * KIB, records // RANKS // 4, operations=["read"])


def random(records: int) -> Trace:
    """IOR with random offsets."""
    return workloads.ior(RANKS, records // RANKS * 16 * KIB, 16 * KIB, operations=["read"], random_offset=True)


def seconds(trace: Trace) -> list[float]:
    """Processor time of each repetition, after one to warm up."""
    analyze(trace)
    times = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        analyze(trace)
        times.append(time.process_time() - start)
    return times


def speed(name: str, make: Callable[[int], Trace], records: int, baseline: float, goal: float) -> dict[str, Any]:
    """A row: records a second, compared with IOSIG's best and with the goal."""
    return row(name, [records / time for time in seconds(make(records))], "records/s", goal, [baseline])


def write_streamed(name: str, records: int, path: Path, ranks: int = RANKS) -> None:
    """Reads of so many ranks as a trace file, written a million at a time.

    They are those of ``regular`` or ``random`` (each anywhere), ``interleaved`` (each rank reads two
    parts of the file in turn) or ``growing`` (from each read to the next it is farther).
    """

    def blocks() -> Iterator[dict[str, Any]]:
        of_rank = records // ranks
        for rank in range(ranks):
            generator = np.random.default_rng(rank)
            for start in range(0, of_rank, 1 << 20):
                call = np.arange(start, min(of_rank, start + (1 << 20)))
                place = call // 4 * 4 * ranks + rank * 4 + call % 4
                if name == "random":
                    place = generator.integers(0, records, len(call))
                elif name == "interleaved":
                    place = (rank + call % 2 * ranks) * of_rank + call // 2
                elif name == "growing":
                    turn = call % TURN
                    place = (rank * of_rank + call) // TURN * TURN**2 + turn * (turn + 1) // 2
                given = {
                    "call": call,
                    "offset": place * 16 * KIB,
                    "position": place * 16 * KIB,
                    "t_start": call * 10**6,
                    "t_end": (call + 1) * 10**6,
                    **{column: np.full(len(call), 16 * KIB) for column in ("length", "requested")},
                    "rank": np.full(len(call), rank),
                    "moved_known": np.ones(len(call), np.int64),
                }
                yield {column: given.get(column, np.zeros(len(call), np.int64)) for column in RECORD_COLUMNS}

    files = files_frame([{"path": "/ior/testFile", "ranks": ranks}])
    about = Trace(regular(RANKS * 4).records, files, (View.plain(),), command=name, ranks=ranks, source="generated")
    write_blocks(about, Rows(blocks(), records // ranks * ranks, {"op": OPS, "kind": KINDS}), None, path)


def measure_streamed(path: Path) -> tuple[float, int, int]:
    """Processor seconds, largest resident memory in bytes, and signatures found, for a trace that stays in its file."""
    start = time.process_time()
    with stored_trace(path) as stored:
        found = analyze(stored)
    seconds_taken = time.process_time() - start
    # Not ru_maxrss: its first value is the parent's.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return seconds_taken, int(status["VmHWM"].split()[0]) * 1024, len(found.signatures)


def streamed(most: int, directory: Path) -> list[dict[str, Any]]:
    """Rows for trace files of 10^5 to ``most`` records, and their plot."""
    sizes = [10**power for power in range(5, 12) if 10**power <= most]
    rows, lines = [], {}
    for name in ("regular", "random", "interleaved", "growing"):
        points = []
        for records in sizes:
            path = directory / f"{name}.h5"
            write_streamed(name, records, path)
            command = [sys.executable, "-m", "benchmarks.analyzer", "--file", str(path)]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            path.unlink()
            points.append(found[0])
            label = f"{name}, streamed, {records:.0e} records".replace("e+0", "e")
            rows.append(row(label, [records / found[0]], "records/s", 1e6, [sizes[0] / points[0]]))
            rows.append(row(f"{label}, resident", [found[1] / 2**20], "MiB", 2048))
        lines[name] = points
    draw(sizes, lines)
    return rows


def draw(sizes: list[int], lines: dict[str, list[float]]) -> None:
    """The times over the numbers of records, both logarithmic, with a line that is linear from the last point down."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        (line,) = axes.loglog(sizes, points, "o-", label=name)
        axes.loglog(sizes, [points[-1] * size / sizes[-1] for size in sizes], ":", color=line.get_color())
    axes.set(xlabel="records", ylabel="processor seconds", title="pdla analyze, streamed (dotted: linear)")
    axes.legend()
    BUILD.mkdir(exist_ok=True)
    figure.savefig(BUILD / "bench-analyzer.png", dpi=120)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=int, nargs="?", default=2**20)
    parser.add_argument("--streamed", type=int, default=0, metavar="MOST")
    parser.add_argument("--directory", type=Path, help="directory for the trace files; 1 GiB for 10^8 records")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        print(json.dumps(measure_streamed(options.file)))
        return
    rows = [
        speed("regular", regular, options.records, 230e3, 5e6),
        speed("random", random, options.records, 57e3, 1e6),
    ]
    if options.streamed:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            rows += streamed(options.streamed, Path(directory))
    add_rows("analyzer", rows)


if __name__ == "__main__":
    main()
