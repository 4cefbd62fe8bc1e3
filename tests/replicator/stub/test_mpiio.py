"""Random MPI-IO programs, and programs that once failed, see and leave the same redirected as natively."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from tests.searches.mpiio import CACHED, Program, Runner, make, shrink
from tests.support.mpi import REPOSITORY, Mpi, available_mpis

FOUND = [Program.read(path) for path in sorted((REPOSITORY / "tests/programs/found").glob("*.txt"))]
MPICH, OPENMPI = available_mpis()
# Seconds; but where ranks share processors with others, each of thousands of collective calls waits for its turn.


def redirected_bytes(directory: Path) -> tuple[int, int]:
    """Read from replicas, and written to them or to caches."""
    reports = [json.loads(path.read_text()) for path in (directory / "reports").glob("*/*.json")]
    read = sum(file["replica"]["bytes"] for report in reports for file in report["files"])
    written = sum(file["redirected"]["bytes"] for report in reports for file in report["writes"])
    return read, written + sum(file["written"]["bytes"] for report in reports for file in report["caches"])


def check(runner: Runner, programs: Sequence[Program], directory: Path, writes: str) -> None:
    assert runner.differences(programs, directory, writes) == {}
    read, written = redirected_bytes(directory)
    assert writes in CACHED or read > (50 if writes == "original" else 20) * len(programs)  # a change ends their use
    assert writes == "original" or written > 50 * len(programs)


BATCHES = [(0, 60, 1, "original"), (160, 190, 2, "original"), (260, 310, 1, "close"), (340, 370, 2, "lease")]
BATCHES += [(420, 440, 3, "e10-coherent"), (440, 460, 2, "e10-deferred"), (460, 480, 3, "e10-exchange")]


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
@pytest.mark.parametrize(("first", "last", "ranks", "writes"), [*BATCHES, (400, 410, 3, "close")])
@pytest.mark.thorough(2)
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


@pytest.mark.parametrize("writes", ["close", "e10-close", "e10-deferred"])
@pytest.mark.thorough(2)
def test_programs_that_once_differed_do_not(mpi: Mpi, writes: str, library: Path, tmp_path: Path) -> None:
    runner = Runner.prepare(mpi, tmp_path, library)
    for ranks, programs in groupby(sorted(FOUND, key=attrgetter("ranks")), attrgetter("ranks")):
        assert runner.differences(list(programs), tmp_path / str(ranks), writes) == {}


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
@pytest.mark.parametrize("writes", ["close", "lease"])
@pytest.mark.thorough(1)
def test_a_write_back_of_many_pieces_and_bytes_is_whole(mpi: Mpi, writes: str, library: Path, tmp_path: Path) -> None:
    """Each rank writes 16.1 MiB in 66,000 pieces: more of both than a write-back copies at a time."""
    rows, piece = 66_000, 256
    column = rows * piece
    target = {"size": 2 * column, "length": piece, "loops": [[rows, 2 * piece, piece], [2, piece, column]]}
    lines = [
        f"file a {2 * column}",
        f"target a {json.dumps({**target, 'strips': [1 << 16] * 3})}",
        *("open 0 a u world", f"deal 0 0 b c({piece},b)", f"write_at_all 0 0 {column} b", "close 0"),
        *("job 2 original", "open 0 a r world", f"read_at 0 {column} {column} b", "close 0"),
    ]
    runner = Runner.prepare(mpi, tmp_path, library)
    assert runner.differences([Program(1, 2, tuple(lines))], tmp_path / "case", writes) == {}
    assert redirected_bytes(tmp_path / "case")[1] == 2 * column


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
def test_a_journal_that_is_full_is_written_back_in_the_middle(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    """A program writes every other byte, each of which is an entry."""
    entries = 1 << 20
    lines = [
        f"file a {2 * entries}",
        f"target a {json.dumps({'size': 2 * entries, 'length': 2 * entries, 'strips': [1 << 16] * 3})}",
        *("open 0 a u world", "deal 0 0 b r(0,2,b)", f"write_at 0 0 {entries} b", "write_at 0 0 100 b", "close 0"),
    ]
    runner = Runner.prepare(mpi, tmp_path, library)
    assert runner.differences([Program(1, 1, tuple(lines))], tmp_path / "case", "close") == {}
    assert redirected_bytes(tmp_path / "case")[1] == entries + 100


def test_a_failing_program_is_made_as_small_as_what_fails() -> None:
    program = make(1, 2)
    wanted = {program.lines[4], program.lines[-1]}
    assert set(shrink(program, lambda other: wanted <= set(other.lines)).lines) == wanted
