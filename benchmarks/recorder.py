"""What recording costs: in line, in a whole program, in bytes, and until the trace is open. See docs/benchmarks.md.

python benchmarks/recorder.py [--rounds 5] [--records 2000000] [--directory /dev/shm]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pdla.cli.launch import find_mpis, preloaded
from pdla.collectors.packing import pack
from pdla.collectors.rawlog import HEADER, HEADER_SIZE, RECORD
from pdla.collectors.tracefile import read_trace

HERE = Path(__file__).parent
RANKS = 2


def compiled(name: str, directory: Path) -> Path:
    """The program of this name, compiled."""
    mpicc = next(mpi.mpicc for mpi in find_mpis() if mpi.mpicc)
    subprocess.run([mpicc, "-O2", HERE / f"{name}.c", "-o", directory / name], check=True)
    return directory / name


def pairs(command: list[str | Path], directory: Path, rounds: int) -> tuple[list[float], list[float]]:
    """What the program prints, natively and recorded, in turns."""
    native, traced = [], []
    for _ in range(rounds):
        for figures, variables in ((native, None), (traced, {"PDLA_TRACE": str(directory / "logs")})):
            shutil.rmtree(directory / "logs", ignore_errors=True)
            environment = preloaded(variables) if variables else dict(os.environ)
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            figures.append(float(done.stdout))
    return native, traced


def row(name: str, values: list[float], unit: str, goal: float, baseline: list[float] | None = None) -> dict[str, Any]:
    """A line of the table: the median of ``values``, beside that of ``baseline``."""
    value = statistics.median(values)
    base = statistics.median(baseline) if baseline else None
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "baseline": base,
        "ratio": value / base if base else None,
        "goal": goal,
        "spread": (max(values) - min(values)) / value,
    }


def timed(work: Callable[[], Any]) -> float:
    """Seconds that it took."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def repeat(logs: Path, records: int, random: bool) -> None:
    """Makes the log in ``logs`` ``records`` long, by its own calls again and again, or at random offsets."""
    (log,) = logs.glob("*.log")
    header = np.fromfile(log, dtype=HEADER, count=1)
    window = int(header["window_records"][0])
    header["window_records"] = 0
    made = np.fromfile(log, dtype=RECORD, offset=HEADER_SIZE + window * RECORD.itemsize)
    made = made[(made["seq"] > 0) & (made["length"] > 0)]
    made = np.tile(made, records // len(made) + 1)[:records]
    made["seq"] = np.arange(1, records + 1)
    durations = made["t_end"] - made["t_start"]
    pauses = np.maximum(np.diff(made["t_start"], append=made["t_end"][-1]) - durations, 0)
    made["t_start"] = made["t_start"][0] + np.cumsum(durations + pauses) - durations
    made["t_end"] = made["t_start"] + durations
    if random:
        made["position"] = np.random.default_rng(1).integers(0, 1 << 31, records) * 8
    log.write_bytes(header.tobytes().ljust(HEADER_SIZE, b"\0") + made.tobytes())


def packing(directory: Path, records: int, rounds: int) -> list[dict[str, Any]]:
    """The rows about trace files of so many records."""
    rows = []
    output = directory / "run.h5"
    for name, random, goal in (("strided", False, 3), ("random", True, 10)):
        repeat(directory / "logs", records, random)
        rates = [records / timed(lambda: pack(directory / "logs", output)) for _ in range(rounds)]
        opened = [records / timed(lambda: read_trace(output)) for _ in range(rounds)]
        rows += [
            row(f"packed, {name} offsets", [output.stat().st_size / records], "bytes an operation", goal),
            row(f"packing, {name} offsets", rates, "records/s", 10e6 / 30),
            row(f"opening, {name} offsets", opened, "records/s", 5e6),
        ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, row("memory for all of this", [peak], "MiB", 1024)]


def main() -> None:
    """Measure, print a table, leave build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        data = directory / "data"
        mpiexec = str(find_mpis()[0].mpiexec)
        strided = pairs([mpiexec, "-n", str(RANKS), compiled("strided", directory), data], directory, options.rounds)
        inline = pairs([compiled("inline", directory), data], directory, options.rounds)
        added = [traced - native for native, traced in zip(*inline, strict=True)]
        rows = [
            row(
                "reads of 512 B, recorded", inline[1], "ns of CPU a call", statistics.median(inline[0]) + 150, inline[0]
            ),
            row("added by recording", added, "ns of CPU a call", 150),
            row(
                f"{RANKS} ranks, strided 4 KiB, recorded",
                strided[1],
                "s",
                1.03 * statistics.median(strided[0]),
                strided[0],
            ),
            *packing(directory, options.records, options.rounds),
        ]
    target = HERE.parent / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(rows, indent=1) + "\n")
    for line in rows:
        ratio = f"{line['ratio']:.3f} x" if line["ratio"] else ""
        sys.stdout.write(
            f"{line['name']:<36} {line['value']:>14,.4g} {line['unit']:<18} goal {line['goal']:<10,.4g} "
            f"spread {line['spread']:>4.0%} {ratio}\n"
        )


if __name__ == "__main__":
    main()
