"""A file is written anew, and read, over and over: the reader's replicas are built anew before it runs again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pdla.catalog import RunFacts
from tests.support.compilers import REPOSITORY
from tests.support.learning_runs import SHAPE, Runs
from tests.support.mpi import available_mpis

WRITER = """
import sys
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
path, seed, size = sys.argv[1], *map(int, sys.argv[2:])
own = size // world.size
file = MPI.File.Open(world, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)
file.Write_at(own * world.rank, np.random.default_rng((seed, world.rank)).bytes(own))
file.Close()
"""


class Chain(Runs):
    """A program that writes an array, and one that reads it slab by slab."""

    def __init__(self, directory: Path) -> None:
        super().__init__(available_mpis()[0].values[0], directory)
        self.writer = directory / "writer.py"
        self.writer.write_text(WRITER)
        slabs = REPOSITORY / "examples" / "slabs.py"
        self.reader = [*self.mpi.mpiexec, "-n", "4", self.mpi.python, str(slabs), str(self.data), *map(str, SHAPE)]

    def write(self, seed: int) -> None:
        words = (self.mpi.python, str(self.writer), str(self.data), str(seed), str(4 * math.prod(SHAPE)))
        self.learn("--wait", words=words)

    def read(self) -> bool:
        """Whether the reader is served from replicas. What it reads is what a program without pdla reads."""
        done = self.learn("--wait")
        assert done.stdout == self.mpi.run(self.reader)
        return "16 MiB from replicas" in done.stderr

    def built(self) -> int:
        return self.kinds().count("built")


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_the_reader_is_served_although_the_file_is_written_before_each_of_its_runs(chain: Chain) -> None:
    """No writes are redirected for it. The log has each replica, and undoing the last one undoes them all."""
    chain.write(1)
    assert (chain.read(), chain.built()) == (False, 1)
    for seed in (2, 3):
        chain.write(seed)
        assert (chain.read(), chain.built()) == (True, seed)
    last = chain.pdla.json("log", "--json")["decisions"]
    number = max(one["id"] for one in last if one["kind"] == "built")
    chain.pdla.run("undo", str(number))
    chain.write(4)
    assert (chain.read(), chain.built()) == (False, 3)


@pytest.mark.thorough
def test_nothing_is_built_anew_if_nobody_reads_it(chain: Chain) -> None:
    """After two replicas in a row that nobody has read."""
    chain.write(1)
    assert not chain.read()
    chain.write(2)
    assert (chain.read(), chain.built()) == (True, 2)
    for seed, built in ((3, 3), (4, 4), (5, 4), (6, 4)):
        chain.write(seed)
        assert chain.built() == built


@pytest.mark.thorough
def test_replicas_that_took_the_place_of_one_another_are_judged_together(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them was read once, and none of them paid."""
    chain.write(1)
    assert not chain.read()
    chain.write(2)
    monkeypatch.setenv("PDLA_HOME", str(chain.pdla.home))
    size = 4 * math.prod(SHAPE)

    def slow(replica: int) -> RunFacts:
        return RunFacts(4, size, size, size, seconds=10.0, before=1.0, run=2, replicas={str(replica): size})

    chain.retires_after(slow(1), slow(2), application=2)
    chain.write(3)
    assert (chain.read(), chain.built()) == (False, 2)
