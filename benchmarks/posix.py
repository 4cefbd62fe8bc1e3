"""What recording the POSIX calls costs, beside recording the MPI calls only. See docs/benchmarks.md.

python benchmarks/posix.py [--rounds 5] [--directory /dev/shm]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from pdla.cli.launch import find_mpis, preloaded

HERE = Path(__file__).parent
ROWS = ("pread of another file", "pread of a file that MPI opened", "MPI_File_read_at")


def main() -> None:
    """Measure, print a table, leave build/bench-posix.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    figures: dict[str, list[list[float]]] = {"natively": [], "recorded": [], "with --posix": []}
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        mpicc = next(mpi.mpicc for mpi in find_mpis() if mpi.mpicc)
        subprocess.run([mpicc, "-O2", HERE / "posix.c", "-o", directory / "posix"], check=True)
        recording = {"PDLA_TRACE": str(directory / "logs")}
        environments = (dict(os.environ), preloaded(recording), preloaded(recording, posix=True))
        for _ in range(options.rounds):
            for values, environment in zip(figures.values(), environments, strict=True):
                shutil.rmtree(directory / "logs", ignore_errors=True)
                command = [directory / "posix", directory / "data"]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                values.append([float(word) for word in done.stdout.split()])
    rows = []
    for number, what in enumerate(ROWS):
        native, recorded, both = ([each[number] for each in values] for values in figures.values())
        base = statistics.median(native)
        for how, values in (("recorded", recorded), ("with --posix", both)):
            value = statistics.median(values)
            spread = (max(values) - min(values)) / value
            name = f"{what}, {how}"
            rows.append(
                {"name": name, "value": value, "unit": "ns", "baseline": base, "ratio": value / base, "spread": spread}
            )
            print(f"{name:<50} {value:8.0f} ns, {value - base:+6.0f} ns, spread {spread:.0%}")
    output = HERE.parent / "build/bench-posix.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
