"""The cost of recording POSIX calls, compared with recording only MPI calls. See docs/benchmarks.md.

python -m benchmarks.posix [--rounds 5] [--directory /dev/shm]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.results import add_rows, row
from pdla.cli.launch import find_mpis, preloaded

HERE = Path(__file__).parent
ROWS = ("pread of another file", "pread of a file that MPI opened", "MPI_File_read_at")


def main() -> None:
    """Measure, print a table, add rows to build/bench.json."""
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
        native, *others = ([each[number] for each in values] for values in figures.values())
        for how, values in zip(list(figures)[1:], others, strict=True):
            rows.append(row(f"{what}, {how}", values, "ns of CPU", None, native))
    add_rows("posix", rows)


if __name__ == "__main__":
    main()
