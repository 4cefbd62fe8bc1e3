"""Random MPI-IO programs, and programs that once failed, see and leave the same redirected as natively."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from tests.mpiio import Program, Runner, make, shrink
from tests.support.mpi import REPOSITORY, Mpi, available_mpis

FOUND = [Program.read(path) for path in sorted((REPOSITORY / "tests/programs/found").glob("*.txt"))]
MPICH, OPENMPI = available_mpis()
# Seconds; but where ranks share processors with others, each of thousands of collective calls waits for its turn.
pytestmark = pytest.mark.timeout(400)


def redirected_bytes(directory: Path) -> tuple[int, int]:
    """Read from replicas, and written to them."""
    reports = [json.loads(path.read_text()) for path in (directory / "reports").glob("*.json")]
    read = sum(file["replica"]["bytes"] for report in reports for file in report["files"])
    return read, sum(file["redirected"]["bytes"] for report in reports for file in report["writes"])


def check(runner: Runner, programs: Sequence[Program], directory: Path, writes: str) -> None:
    assert runner.differences(programs, directory, writes) == {}
    read, written = redirected_bytes(directory)
    assert read > 50 * len(programs)
    assert writes == "original" or written > 50 * len(programs)


BATCHES = [(0, 60, 1, "original"), (160, 190, 2, "original"), (260, 310, 1, "close"), (340, 370, 2, "lease")]


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
@pytest.mark.parametrize(("first", "last", "ranks", "writes"), [*BATCHES, (400, 410, 3, "close")])
def test_random_programs_see_and_leave_the_same(
    mpi: Mpi, first: int, last: int, ranks: int, writes: str, library: Path, tmp_path: Path
) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    check(runner, [make(number, ranks, writes=writes) for number in range(first, last)], tmp_path / "case", writes)


@pytest.mark.parametrize("mpi", [OPENMPI], indirect=True)
@pytest.mark.parametrize(("first", "last", "writes"), [(500, 530, "original"), (540, 565, "close")])
def test_random_programs_see_and_leave_the_same_under_openmpi(
    mpi: Mpi, first: int, last: int, writes: str, library: Path, tmp_path: Path
) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    # Natively, Open MPI 5 waits for ever in shared-pointer calls, and in one open of some tens by several ranks: one of
    # them fails in it, and closes the file, which the others open.
    programs = [make(number, 1, writes=writes, shared=False) for number in range(first, last)]
    check(runner, programs, tmp_path / "case", writes)


def test_programs_that_once_differed_do_not(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    for ranks, programs in groupby(sorted(FOUND, key=attrgetter("ranks")), attrgetter("ranks")):
        assert runner.differences(list(programs), tmp_path / str(ranks), "close") == {}


def test_a_failing_program_is_made_as_small_as_what_fails() -> None:
    program = make(1, 2)
    wanted = {program.lines[4], program.lines[-1]}
    assert set(shrink(program, lambda other: wanted <= set(other.lines)).lines) == wanted
