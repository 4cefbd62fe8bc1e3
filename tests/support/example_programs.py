"""The example programs on real data, natively and through all steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.command_line import Launching
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi

SIDE = 768  # a matrix of SIDE x SIDE floats; neither it nor its tiles are a power of two
EXAMPLES = REPOSITORY / "examples"


class Job:
    """One of the example programs, or what reads a triangle, on a data file, natively and through the loop."""

    def __init__(self, name: str, mpi: Mpi, tmp_path: Path) -> None:
        self.name, self.mpi = name, mpi
        self.outputs: dict[int, str] = {}
        self.pdla = Launching(tmp_path, mpi.env)
        self.data = tmp_path / "matrix.dat"
        self.data.write_bytes(np.random.default_rng(7).bytes(4 * SIDE * SIDE))
        self.result = tmp_path / "result.dat"
        if name == "tiles":
            program = tmp_path / "tiles"
            mpi.compile(EXAMPLES / "tiles.c", program)
            self.words = [str(program), str(self.data), str(self.result), str(SIDE)]
        elif name == "triangle":
            self.words = [mpi.python, str(REPOSITORY / "tests/programs/triangle.py"), str(self.data), str(SIDE)]
        else:
            self.words = [mpi.python, str(EXAMPLES / "slabs.py"), str(self.data), "4", "384", "384"]

    def command(self, ranks: int) -> list[str]:
        return [*self.mpi.mpiexec, "-n", str(ranks), *self.words]

    def native(self, ranks: int, *, again: bool = False) -> str:
        """Standard output without pdla; it is run once, and ``again`` when the data are no longer the same."""
        if again or ranks not in self.outputs:
            self.outputs[ranks] = self.mpi.run([*self.command(ranks)], cwd=self.pdla.directory)
        return self.outputs[ranks]

    def replicate(self) -> None:
        """Trace with 4 ranks, plan and build."""
        self.pdla.run("trace", "-o", "run.h5", "--", *self.command(4))
        self.pdla.run("plan", "run.h5", "--policy", "ns-pdla", "--simulate", "0", "-o", "plan.json")
        built = self.pdla.json("replicate", "plan.json", "--json")
        assert built["replicas"]

    def redirected(self, ranks: int) -> tuple[str, dict]:
        """Standard output of the program and the run report."""
        lines = self.pdla.run("run", "--json", "--", *self.command(ranks)).stdout.splitlines(keepends=True)
        return "".join(lines[:-1]), json.loads(lines[-1])
