"""The costs of recording: in a call, at the end, in a whole program, in memory, in bytes, and to open the trace.

python -m benchmarks.recorder [--rounds 5] [--records 2000000] [--directory /dev/shm]

See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import add_rows, row
from pdla.cli.launch import find_mpis, preloaded
from pdla.collectors.rawlog import RawLogs
from pdla.collectors.tracefile import read_trace

HERE = Path(__file__).parent
RANKS = 4
CALLS = 1_000_000  # of the runs that time one
PACK = """
import sys
from pathlib import Path
from pdla.collectors.packing import pack

pack(*sys.argv[1:])
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""

Pairs = list[tuple[list[float], list[float]]]


def compiled(name: str, directory: Path) -> Path:
    """The program of this name, compiled."""
    mpicc = next(mpi.mpicc for mpi in find_mpis() if mpi.mpicc)
    subprocess.run([mpicc, "-O2", HERE / f"{name}.c", "-o", directory / name], check=True)
    return directory / name


def pairs(command: Sequence[str | Path], directory: Path, rounds: int) -> Pairs:
    """The numbers that the program prints and when it had ended, natively and recorded, in turns."""
    found: Pairs = []
    for _ in range(rounds):
        figures = []
        for variables in (None, {"PDLA_TRACE": str(directory / "logs")}):
            shutil.rmtree(directory / "logs", ignore_errors=True)
            (directory / "data").unlink(missing_ok=True)
            environment = preloaded(variables) if variables else dict(os.environ)
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            figures.append([*map(float, done.stdout.split()), time.monotonic()])
        found.append((figures[0], figures[1]))
    return found


def in_line(program: Path, directory: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows about one call and its record."""
    found = pairs([program, directory / "data", str(CALLS), "strided"], directory, rounds)
    ends = [[ended - finalize for _, _, finalize, ended in pair] for pair in found]
    at_end = [(traced - native) / CALLS * 1e9 for native, traced in ends]
    return [
        row("a read of 512 B", [native[0] for native, _ in found], "ns of CPU"),
        row("recording it", [traced[0] - native[0] for native, traced in found], "ns of CPU", 150),
        row("from MPI_Finalize to the end", at_end, "ns a record", 100),
    ]


def whole(program: Path, directory: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows about a program of several ranks."""
    mpiexec = str(find_mpis()[0].mpiexec)
    found = pairs([mpiexec, "-n", str(RANKS), program, directory / "data"], directory, rounds)
    return [
        row(f"{RANKS} ranks, strided 4 KiB: time", [traced[0] / native[0] for native, traced in found], "x", 1.03),
        row(f"{RANKS} ranks, strided 4 KiB: CPU", [traced[1] / native[1] for native, traced in found], "x", 1.03),
    ]


def packing(program: Path, directory: Path, records: int, rounds: int) -> list[dict[str, Any]]:
    """The rows about one rank that makes so many records."""
    rows = []
    logs, output = directory / "logs", directory / "run.h5"
    packer: list[str | Path] = [sys.executable, "-c", PACK, logs, output]
    for offsets, goal in (("strided", 3), ("random", 10)):
        ((native, traced),) = pairs([program, directory / "data", str(records), offsets], directory, 1)
        lost = RawLogs(logs).about.dropped + records - RawLogs(logs).rows
        raw = sum(file.stat().st_size for file in logs.iterdir())
        rates, peaks, opened = [], [], []
        for _ in range(rounds):
            start = time.perf_counter()
            done = subprocess.run(packer, capture_output=True, text=True, check=True)
            rates.append(records / (time.perf_counter() - start))
            peaks.append(int(done.stdout) / 1024)
        for _ in range(rounds):
            start = time.process_time()
            read_trace(output)
            opened.append(records / (time.process_time() - start))
        rows += [
            row(f"{offsets}: records lost", [max(lost, 0)], f"of {records:,}", 0),
            row(f"{offsets}: memory of the program", [(traced[1] - native[1]) / 1024], "MiB more", 64),
            row(f"{offsets}: raw", [raw / records], "bytes a record", 65),
            row(f"{offsets}: packed", [output.stat().st_size / records], "bytes a record", goal),
            row(f"{offsets}: packing", rates, "records/s", 10e6 / 30),
            row(f"{offsets}: memory to pack", peaks, "MiB", 1024),
            row(f"{offsets}: opening", opened, "records/s of CPU", 5e6),
        ]
    return rows


def main() -> None:
    """Measure, print a table, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        one, several = compiled("inline", directory), compiled("strided", directory)
        rows = [
            *in_line(one, directory, options.rounds),
            *whole(several, directory, options.rounds),
            *packing(one, directory, options.records, options.rounds),
        ]
    add_rows("recorder", rows)


if __name__ == "__main__":
    main()
