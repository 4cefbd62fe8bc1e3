"""Write small files of each format with the pdla that is installed, for the tests of later releases.

python -m tests.releases.make

The files go to tests/releases/VERSION. A real program (MPICH from PyPI) makes them; only the data files are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pdla

BIN = Path(sys.executable).parent
SLABS = Path(pdla.__file__).parent / "examples/slabs.py"
WRITER = """
import os, signal, sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
file.Write_at_all(4096 * MPI.COMM_WORLD.rank, bytes(4096))
MPI.COMM_WORLD.Barrier()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Writes to a cache, and is killed before it closes the file: its journals stay."""


NODE = "node"
"""The name of this machine in the logs."""


def main() -> None:
    """Make the files of this version."""
    target = Path(__file__).parent / pdla.__version__
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        _make(Path(name), target)
    for path in sorted(target.rglob("*.*")):
        print(f"{path.stat().st_size:8} {path}")


def _make(directory: Path, target: Path) -> None:
    from tests.searches.killing_builds import Place

    os.environ["PDLA_HOME"] = str(directory / "home")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    home, logs, data = directory / "home", directory / "logs", directory / "slabs.dat"
    logs.mkdir()
    (target / "logs" / NODE).mkdir(parents=True, exist_ok=True)
    shutil.copy(SLABS, directory)
    data.write_bytes(bytes(range(256)) * 64)

    def run(*words: str | Path, code: int | None = 0, **variables: str) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=directory,
            env={**environment, **variables},
            capture_output=True,
            text=True,
        )
        assert code in (None, done.returncode), done.stderr
        return done.stdout

    mpiexec = ("mpiexec", "-n", "2", "python")
    program = (*mpiexec, "slabs.py", "slabs.dat", "4", "16", "64")
    library = run("pdla", "preload").strip()
    posix = f"{library}:{library.replace('libpdla.so', 'libpdla-posix.so')}"
    run(*program, LD_PRELOAD=posix, PDLA_TRACE=str(logs))
    run("pdla", "pack", logs, "-o", "run.h5")
    shutil.copy(directory / "run.h5", target)
    for path in logs.glob("*/*"):
        shutil.copy(path, target / "logs" / NODE / f"{NODE}-{path.name.rpartition('-')[2]}")
    run("pdla", "analyze", "run.h5")
    run("pdla", "plan", "run.h5", "-o", target / "plan.json")
    Place(directory).replicate(1)
    run("pdla", "run", "--", *program)
    run("pdla", "status")
    run("pdla", "run", "--", *program)
    (report,) = (home / "reports").iterdir()
    shutil.copy(report, target / "report.json")
    hint = f"e10_cache_path={directory}"
    run("pdla", "run", "--policy", "e10", "--hint", hint, "--", *mpiexec, "-c", WRITER, "out", code=None)
    journal = next((home / "journals").glob("*/*.journal/*.journal"))
    shutil.copy(journal, target / "cache.journal")
    shutil.copy(home / "replicas.map", target)
    (state,) = home.glob("replicas.map.*.state")
    shutil.copy(state, target / "replicas.state")
    with closing(sqlite3.connect(home / "catalog.db")) as catalog:
        (target / "catalog.sql").write_text("\n".join(catalog.iterdump()) + "\n")
    from tests.releases.reading import content

    (target / "content.json").write_text(json.dumps(content(target), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
