"""The program tests/programs/columns.c and its data, natively and through replicas."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.command_line import Pdla
from tests.support.mpi import Mpi
from tests.support.recorded_programs import PROGRAMS

SIDE = 512


class Columns:
    """tests/programs/columns.c, whose ranks read their columns of a matrix and write them to another file."""

    def __init__(self, mpi: Mpi, directory: Path) -> None:
        self.directory = directory
        self.data, self.result = directory / "matrix.dat", directory / "result.dat"
        self.data.write_bytes(np.random.default_rng(5).bytes(SIDE * SIDE))
        self.program = mpi.compile(PROGRAMS / "columns.c", directory / "columns")

    def command(self, mpi: Mpi, ranks: int) -> list[str]:
        return mpi.command(ranks, self.program, self.data, self.result, str(SIDE))

    def native(self, mpi: Mpi, ranks: int) -> tuple[str, bytes]:
        """What the program prints and leaves."""
        output = mpi.run(self.command(mpi, ranks), self.directory)
        left = self.result.read_bytes()
        self.result.unlink()
        return output, left

    def replicate(self, mpi: Mpi, ranks: int) -> None:
        """Trace, plan and build: replicas of what is read and of what is written."""
        pdla = Pdla(self.directory, mpi.env)
        pdla.run("trace", "-o", "run.h5", "--", *self.command(mpi, ranks))
        pdla.run("plan", "run.h5", "--policy", "ns-pdla", "--simulate", "0", "-o", "plan.json")
        assert pdla.json("replicate", "plan.json", "--json")["replicas"]

    def redirected(self, mpi: Mpi, ranks: int, writes: str) -> tuple[str, bytes, dict[str, int]]:
        """What the program prints and leaves, and the run report."""
        pdla = Pdla(self.directory, mpi.env)
        words = ["run", "--writes", writes, "--json", "--", *self.command(mpi, ranks)]
        report = pdla.json(*words)
        output = pdla.run(*words).stdout.splitlines(keepends=True)
        pdla.run("sync")
        return "".join(output[:-1]), self.result.read_bytes(), report
