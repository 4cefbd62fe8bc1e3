"""Programs that are run with ``--learn``."""

from __future__ import annotations

import fcntl
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pdla.autopilot.judging import Judge
from pdla.autopilot.learner import Learner
from pdla.autopilot.names import this_user
from pdla.catalog import RunFacts, open_catalog
from tests.support.clusters import SEEKING_DISKS, described
from tests.support.command_line import Launching
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi, available_mpis, launching_pdla

SHAPE = (16, 256, 1024)
FILE_BYTES = 4 * math.prod(SHAPE)


class Runs:
    """A program that reads an array slab by slab, in a directory with a cluster.toml in its PDLA_HOME."""

    def __init__(self, mpi: Mpi, directory: Path, shape: tuple[int, int, int] = SHAPE) -> None:
        self.mpi, self.shape = mpi, shape
        self.pdla = Launching(directory, launching_pdla(mpi).env)
        self.data = directory / "array.dat"
        self.data.write_bytes(np.random.default_rng(3).bytes(4 * math.prod(shape)))
        self.pdla.home.mkdir()
        (self.pdla.home / "cluster.toml").write_text(SEEKING_DISKS.replace("home/", f"{self.pdla.home}/"))

    def learn(self, *options: str, ranks: int = 4, code: int = 0, words: tuple[str, ...] = ()) -> Any:
        program = [self.mpi.python, str(REPOSITORY / "examples" / "slabs.py"), str(self.data), *map(str, self.shape)]
        command = [*self.mpi.mpiexec, "-n", str(ranks), *(words or program)]
        return self.pdla.run("run", "--learn", *options, "--", *command, code=code)

    def retires_after(self, *those: RunFacts, application: int = 1) -> None:
        """Learn from two runs of an application of which these are the facts; PDLA_HOME is that of the runs."""
        with closing(open_catalog()) as catalog:
            for number, facts in enumerate(those):
                assert Judge(catalog, this_user()).failures() == []
                catalog.autopilot.learn(application, f"run.{number}", datetime.now(UTC), facts, this_user(), [])
            Learner(catalog).retire()
        kind, why = self.decisions()[-1]
        assert (kind, "it did not pay in the last two runs that used it" in why) == ("retired", True)

    def was_slow(self) -> None:
        """The runs until now took 100 s. Else two slow ones on a busy machine would have the replicas retired."""
        with closing(sqlite3.connect(self.pdla.home / "catalog.db")) as database, database:
            database.execute("UPDATE autopilot_runs SET facts = json_set(facts, '$.seconds', 100.0)")

    def decisions(self) -> list[tuple[str, str]]:
        return [(one["kind"], one["why"]) for one in self.pdla.json("log", "--json")["decisions"]]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.decisions()]

    def history(self) -> list[dict[str, Any]]:
        runs = self.pdla.json("history", "1", "--json")["runs"]
        assert isinstance(runs, list)
        return runs


@contextmanager
def locked_by_a_daemon(directory: Path) -> Iterator[None]:
    """As while a daemon runs that learns."""
    directory.mkdir()
    with (directory / "daemon").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


WRITER = """
import random, sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_WRONLY)
rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
for place in random.Random(5).sample(range(64), 64):
    file.Write_at((place * ranks + rank) * 5000, bytes([(7 * place + rank) % 256]) * 5000)
file.Close()
sys.exit(int(sys.argv[2]))
"""


class Application:
    """A program that writes at random, run with ``--learn --policy auto``; learning is a step of its own."""

    def __init__(self, directory: Path) -> None:
        self.mpi = available_mpis()[0].values[0]
        self.pdla = Launching(directory, launching_pdla(self.mpi).env)
        self.pdla.home.mkdir()
        described(directory).rename(self.pdla.home / "cluster.toml")
        self.data = directory / "out.dat"
        (directory / "writer.py").write_text(WRITER)

    def run(self, code: int = 0, *options: str) -> str:
        self.data.unlink(missing_ok=True)
        program = [self.mpi.python, str(self.pdla.directory / "writer.py"), str(self.data), str(code)]
        command = [*self.mpi.mpiexec, "-n", "2", *program]
        done = self.pdla.run("run", "--learn", *(options or ("--policy", "auto")), "--", *command, code=code)
        assert code or self.data.read_bytes() == expected_bytes()
        return done.stderr

    def learned(self) -> list[tuple[str, str]]:
        self.pdla.run("learn")
        decisions = self.pdla.json("log", "--json")["decisions"]
        return [(one["kind"], one["why"]) for one in decisions if one["kind"] in ("chose", "ignored")]


def expected_bytes() -> bytes:
    place, rank = np.divmod(np.arange(128), 2)
    return bytes(np.repeat((7 * place + rank).astype(np.uint8), 5000))
