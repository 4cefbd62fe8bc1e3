"""Random MPI-IO programs see, and leave behind, the same redirected as natively; and those that once did not."""

from __future__ import annotations

import json
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest
from mpi import REPOSITORY, Mpi, available_mpis
from mpiio import Program, Runner, make, shrink

FOUND = [Program.read(path) for path in sorted((REPOSITORY / "tests/programs/found").glob("*.txt"))]
MPICH, OPENMPI = available_mpis()


def replica_bytes(directory: Path) -> int:
    reports = [json.loads(path.read_text()) for path in (directory / "reports").glob("*.json")]
    return sum(file["replica"]["bytes"] for report in reports for file in report["files"])


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
@pytest.mark.parametrize(("first", "last", "ranks"), [(0, 220, 1), (220, 380, 2), (400, 420, 3)])
def test_random_programs_see_and_leave_the_same(
    mpi: Mpi, first: int, last: int, ranks: int, library: Path, tmp_path: Path
) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    programs = [make(number, ranks) for number in range(first, last)]
    assert runner.difference(programs, tmp_path / "case") == ""
    assert replica_bytes(tmp_path / "case") > 100 * len(programs)


@pytest.mark.parametrize("mpi", [OPENMPI], indirect=True)
def test_random_programs_see_and_leave_the_same_under_openmpi(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    # Natively, Open MPI 5 waits for ever in shared-pointer calls, and in one open of some hundreds by several ranks.
    programs = [make(number, 1, shared=False) for number in range(500, 600)]
    assert runner.difference(programs, tmp_path / "case") == ""
    assert replica_bytes(tmp_path / "case") > 100 * len(programs)


def test_programs_that_once_differed_do_not(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    for ranks, programs in groupby(sorted(FOUND, key=attrgetter("ranks")), attrgetter("ranks")):
        assert runner.difference(list(programs), tmp_path / str(ranks)) == ""


def test_a_failing_program_is_made_as_small_as_what_fails() -> None:
    program = make(1, 2)
    wanted = {program.lines[4], program.lines[-1]}
    assert set(shrink(program, lambda other: wanted <= set(other.lines)).lines) == wanted
