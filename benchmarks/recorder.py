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

from benchmarks.contestants import BINARIES
from benchmarks.results import add_rows, row
from pdla.cli.launch import find_mpis, preloaded
from pdla.collectors.rawlog import RawLogs
from pdla.collectors.tracefile import read_trace, stored_trace

HERE = Path(__file__).parent
INTERPOSE = HERE.parent / "pdla/interpose"
RANKS = 4
CALLS = 1_000_000  # of the runs that time one
FEW = 100_000
BESIDE_THE_CLOCK = 40.0  # ns: goal
PACK = """
import sys
from pathlib import Path
from pdla.collectors.packing import pack

pack(*sys.argv[1:])
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def compiled(name: str, directory: Path, *options: str | Path) -> Path:
    """The program of this name, compiled."""
    mpicc = next(mpi.mpicc for mpi in find_mpis() if mpi.mpicc)
    subprocess.run([mpicc, "-O2", HERE / f"{name}.c", *options, "-o", directory / name], check=True)
    return directory / name


def figures(
    command: Sequence[str | Path], directory: Path, rounds: int, more: Sequence[dict[str, str]] = ()
) -> list[list[list[float]]]:
    """The numbers that the program prints and when it had ended, in turns: natively, recorded, and with ``more``."""
    found = []
    for _ in range(rounds):
        turn = []
        for environment in ({}, preloaded({"PDLA_TRACE": str(directory / "logs")}), *more):
            shutil.rmtree(directory / "logs", ignore_errors=True)
            (directory / "data").unlink(missing_ok=True)
            done = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
            )
            turn.append([*map(float, done.stdout.split()), time.monotonic()])
        found.append(turn)
    return found


def in_line(program: Path, directory: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows about one call and its record."""
    wrapper = {"LD_PRELOAD": str(compiled("wrapper", directory, "-shared", "-fPIC"))}
    clock = compiled("clocks", directory, f"-I{INTERPOSE}", INTERPOSE / "ticks.c")
    readings = subprocess.run([clock], capture_output=True, text=True, check=True).stdout
    taken, monotonic, ordered = map(float, readings.split())
    found = figures([program, directory / "data", str(CALLS), "strided"], directory, rounds, [wrapper])
    more = [traced[0] - native[0] for native, traced, _ in found]
    ends = [[ended - finalize for _, _, finalize, ended in turn[:2]] for turn in found]
    at_end = [(traced - native) / CALLS * 1e9 for native, traced in ends]
    return [
        row("a read of 512 B", [native[0] for native, *_ in found], "ns of CPU"),
        row("an empty wrapper", [wrapped[0] - native[0] for native, _, wrapped in found], "ns of CPU"),
        row("two readings of the clock that times a call", [taken], "ns of CPU", None, [monotonic]),
        row("recording it", more, "ns of CPU", 1, [ordered + BESIDE_THE_CLOCK]),
        row("from MPI_Finalize to the end", at_end, "ns a record", 100),
    ]


def whole(program: Path, directory: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows about a program of several ranks."""
    mpiexec = str(find_mpis()[0].mpiexec)
    found = figures([mpiexec, "-n", str(RANKS), program, directory / "data"], directory, rounds)
    return [
        row(f"{RANKS} ranks, strided 4 KiB: time", [traced[0] / native[0] for native, traced in found], "x", 1.02),
        row(f"{RANKS} ranks, strided 4 KiB: CPU", [traced[1] / native[1] for native, traced in found], "x", 1.02),
    ]


def packing(program: Path, directory: Path, records: int, rounds: int) -> list[dict[str, Any]]:
    """The rows about one rank that makes so many records."""
    rows = []
    logs, output = directory / "logs", directory / "run.h5"
    packer: list[str | Path] = [sys.executable, "-c", PACK, logs, output]
    for offsets, goals in (("strided", (16, 2)), ("random", (24, 7))):
        ((native, traced),) = figures([program, directory / "data", str(records), offsets], directory, 1)
        lost = RawLogs(logs).about.dropped + records - RawLogs(logs).rows
        raw = sum(file.stat().st_size for file in logs.rglob("*.*"))
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
            row(f"{offsets}: raw", [raw / records], "bytes a record", goals[0]),
            row(f"{offsets}: packed", [output.stat().st_size / records], "bytes a record", goals[1]),
            row(f"{offsets}: packing", rates, "records/s", 10e6 / 30),
            row(f"{offsets}: memory to pack", peaks, "MiB", 1024),
            row(f"{offsets}: opening", opened, "records/s of CPU", 5e6),
        ]
    return rows


def records_in(trace: Path) -> int:
    """The number of its records."""
    with stored_trace(trace) as stored:
        return stored.rows


def waiting(program: Path, directory: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows about what a user waits for after a run of many calls, and the trace of a run of few."""
    output, ended = directory / "run.h5", directory / "ended"
    waited, size = [], []
    for calls, figures_of in ((CALLS, waited), (FEW, size)):
        mpiexec = [
            str(find_mpis()[0].mpiexec),
            "-n",
            str(RANKS),
            program,
            directory / "data",
            str(calls // RANKS),
            "strided",
        ]
        command = [
            BINARIES / "pdla",
            "trace",
            "-o",
            output,
            "--",
            "sh",
            "-c",
            f'"$@"; date +%s.%N > {ended}',
            "sh",
            *mpiexec,
        ]
        for _ in range(rounds):
            subprocess.run(command, capture_output=True, check=True)
            after = time.time() - float(ended.read_text())
            figures_of.append(after if calls == CALLS else output.stat().st_size / records_in(output))
    return [
        row(f"pdla trace after mpiexec, {CALLS:,} calls of {RANKS} ranks", waited, "s", 0.3),
        row(f"strided, {FEW:,} calls of {RANKS} ranks: packed", size, "bytes a record", 2),
    ]


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
            *waiting(one, directory, options.rounds),
        ]
    add_rows("recorder", rows)


if __name__ == "__main__":
    main()
