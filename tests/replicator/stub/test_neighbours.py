"""Ranks that read what other ranks have just written, synchronised only by a barrier."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import favourable
from tests.support.command_line import Launching
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, debian_mpis

EARLY = "its bytes are read by other ranks before a sync or close"
MPICH = [*available_mpis()[:1], *debian_mpis()[:1]]


def planned(pdla: Launching, mpi: Mpi, piece: int, *steps: str) -> dict[str, Any]:
    """The plan for the writes of tests/programs/neighbours.c on two ranks."""
    program = mpi.compile(REPOSITORY / "tests/programs/neighbours.c", pdla.directory / "neighbours", "-Wall", "-Wextra")
    job = mpi.command(2, program, pdla.directory / "data", str(piece), "40", *steps)
    pdla.run("trace", "-o", "run.h5", "--", *job)
    cluster = favourable(pdla.directory)
    words = ["plan", "run.h5", "--writes", "close", "--cluster", str(cluster)]
    text = pdla.run(*words, "--explain").stdout
    plan = pdla.json(*words, "--json")
    (write,) = (one for one in plan["patterns"] if one["signature"]["op"] == "write")
    assert (EARLY in text) == (EARLY in write["reason"])
    return write


@pytest.mark.parametrize("mpi", MPICH)
@pytest.mark.parametrize("piece", [5, 7])
def test_what_other_ranks_read_after_a_barrier_alone_gets_no_replica(tmp_path: Path, mpi: Mpi, piece: int) -> None:
    write = planned(Launching(tmp_path, mpi.env), mpi, piece, "write", "barrier", "read")
    assert (write["chosen"], write["reason"]) == (0, f"left in the original: {EARLY}")
    assert EARLY in {one["refused"] for one in write["candidates"]}


@pytest.mark.parametrize("mpi", MPICH[:1])
@pytest.mark.parametrize("between", [("sync", "barrier", "sync"), ("sync", "barrier"), ("reopen",)])
def test_what_they_read_after_a_sync_or_close_may_have_one(tmp_path: Path, mpi: Mpi, between: tuple[str, ...]) -> None:
    write = planned(Launching(tmp_path, mpi.env), mpi, 5, "write", *between, "read")
    assert EARLY not in {one["refused"] for one in write["candidates"]}


@dataclass
class Case:
    """The program under one MPI, and replicas for what its ranks write: each rank's pieces one after another."""

    mpi: Mpi
    program: Path
    library: Path
    directory: Path
    interpreter: tuple[str, ...] = ()

    def run(
        self, ranks: int, piece: int, rows: int, *steps: str, mode: str = "close", backwards: bool = False
    ) -> tuple[str, list[Any]]:
        """Its output, and the parts on writes of its ranks' exit reports; it fails if it reads anything old.

        ``backwards``: the replica has the rows in reverse order, so that each write is an entry of the journal.
        """
        original, out = self.directory / "original", self.directory / "out"
        for path in (original, out, self.directory / "replica", self.directory / "journals"):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        out.mkdir()
        loops = [(rows, ranks * piece, -piece if backwards else piece), (ranks, piece, rows * piece)]
        first = (rows - 1) * piece if backwards else 0
        columns = Replica(ranks * rows * piece, length=piece, replica_start=first, loops=loops, strips=[1000, 500])
        write_map(self.directory / "map", [], targets=[(original, [columns.prepare(self.directory / "replica")])])
        settings = [f"PDLA_MAP={self.directory / 'map'}", f"PDLA_REPORT={out}", f"PDLA_WRITES={mode}"]
        words = [*self.interpreter, self.program, original, str(piece), str(rows), *steps]
        printed = self.mpi.run(self.mpi.command(ranks, "env", *settings, f"LD_PRELOAD={self.library}", *words))
        reports = [json.loads(path.read_text()) for path in sorted(out.glob("*/*.json"))]
        return printed, [file for report in reports for file in report["writes"]]


@pytest.fixture
def case(any_mpi: Mpi, tmp_path: Path, library: Path, programs: Path) -> Case:
    program = programs / f"neighbours-{any_mpi.name}"
    if not program.exists():
        any_mpi.compile(REPOSITORY / "tests/programs/neighbours.c", program, "-Wall", "-Wextra")
    return Case(any_mpi, program, library, tmp_path)


@pytest.mark.parametrize("mode", ["close", "lease"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("piece", [5, 7])
@pytest.mark.thorough(6)
def test_h01_ranks_of_a_node_see_what_others_wrote_before_a_barrier(
    case: Case, piece: int, ranks: int, mode: str
) -> None:
    steps = ["write", "barrier", "read"]
    _, reports = case.run(ranks, piece, 40, *steps, mode=mode)
    assert sum(report["redirected"]["bytes"] for report in reports) == ranks * 40 * piece
    assert sum(report["neighbours"] for report in reports) > 0


@pytest.mark.parametrize("any_mpi", available_mpis()[:1], indirect=True)
def test_h01_a_journal_that_grows_is_followed(case: Case) -> None:
    """Each rank's journal gets 3,000 entries in a round. At the open others have mapped room for 2,560."""
    steps = ["write", "barrier", "read", "barrier"] * 2
    _, reports = case.run(2, 8, 3000, *steps, backwards=True)
    assert sum(report["redirected"]["calls"] for report in reports) == 2 * 2 * 3000


READ = ["write", "barrier", "read"]
STEPS = {
    "collective writes": ["write_all", "barrier", "read"],
    "collective reads": ["write", "barrier", "read_all"],
    "nonblocking reads": ["write", "barrier", "iread"],
    "split reads": ["write", "barrier", "split"],
    "file pointers": ["write", "barrier", "pointer"],
    "sizes": ["write", "barrier", "size", "barrier", "read"],
    "rounds": [*READ, "barrier", *READ, "barrier", "write", "sync", "read", "barrier", *READ],
    "a close between": [*READ, "reopen", *READ, "reopen", "read"],
    "bytes of others written again": ["write", "barrier", "others", "barrier", "read", "reopen", "read"],
    "and only then read": ["write", "barrier", "others", "reopen", "read"],
}
STOPPED = {
    "a shared pointer": ["write", "barrier", "shared", "barrier", "read"],
    "the original written again": [
        "write",
        "barrier",
        "stop",
        "barrier",
        "others",
        "barrier",
        "read",
        "reopen",
        "read",
    ],
    "and only then read": ["write", "barrier", "stop", "barrier", "others", "reopen", "read"],
    "and synced": ["write", "barrier", "stop", "barrier", "others", "sync", "read"],
}


def close_and_one_lease(mpis: list[Any]) -> pytest.MarkDecorator:
    """Under each MPI with ``close``; a lease does not change what is read while a program runs, as one MPI shows."""
    cases = [(mpi, "close") for mpi in mpis] + [(mpis[0], "lease")]
    params = [pytest.param(*mpi.values, mode, id=f"{mpi.id}-{mode}", marks=mpi.marks) for mpi, mode in cases]
    return pytest.mark.parametrize(("any_mpi", "mode"), params, indirect=["any_mpi"])


@close_and_one_lease([*available_mpis(), *debian_mpis()])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.thorough(8)
def test_h01_whatever_they_read_it_with(case: Case, name: str, mode: str) -> None:
    case.run(4, 7, 40, *STEPS[name], mode=mode)


@pytest.mark.parametrize("any_mpi", MPICH, indirect=True)
@pytest.mark.parametrize("mode", ["close", "lease"])
@pytest.mark.parametrize("name", STOPPED)
@pytest.mark.thorough(4)
def test_h03_the_later_write_counts_whichever_rank_made_it_and_wherever(case: Case, name: str, mode: str) -> None:
    case.run(4, 7, 40, *STOPPED[name], mode=mode)


@close_and_one_lease([*MPICH[:1], *available_mpis()[1:], *debian_mpis()[1:]])
def test_h01_any_bytes_that_any_rank_wrote_before_a_barrier(case: Case, mode: str) -> None:
    """A thousand writes, redirected or not, of bytes that others have in replicas or in the original."""
    _, reports = case.run(3, 7, 20, "any", mode=mode)
    assert sum(report["redirected"]["calls"] for report in reports) > 0
    assert sum(report["neighbours"] for report in reports) > 0


PYTHON = """
import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
for row in range(40):
    file.Write_at((row * world.size + world.rank) * 7, bytes([65 + world.rank]) * 7)
world.Barrier()
seen = bytearray(40 * 7 * world.size)
file.Read_at(0, seen)
world.Barrier()
file.Close()
assert seen == b"".join(bytes([65 + rank]) * 7 for rank in range(world.size)) * 40
"""


def test_h01_programs_in_python_see_them_too(mpi: Mpi, tmp_path: Path, library: Path) -> None:
    (program := tmp_path / "neighbours.py").write_text(PYTHON)
    case = Case(mpi, program, library, tmp_path, (mpi.python,))
    _, reports = case.run(2, 7, 40)
    assert sum(report["redirected"]["calls"] for report in reports) == 80
