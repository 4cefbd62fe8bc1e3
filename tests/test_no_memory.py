"""Random MPI-IO programs whose library gets no memory now and then: reads are served from the original instead, and
what a redirected write cannot do is an error of the call, never other bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mpiio import Runner, by_program, make
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_library

ALLOCATORS = "malloc", "calloc", "realloc", "aligned_alloc", "strdup"
IO_ERROR = "class=32 "  # MPI_ERR_IO in MPICH
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with tests/programs/no_memory.c."""
    flags = [f"-Wl,--wrap={name}" for name in ALLOCATORS]
    source = REPOSITORY / "tests/programs/no_memory.c"
    return build_library(tmp_path_factory.mktemp("forgetful") / "libpdla.so", str(source), *flags)


def test_programs_that_read_see_the_same(
    mpi: Mpi, forgetful: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner.prepare(mpi, tmp_path, forgetful)
    monkeypatch.setenv("PDLA_TEST_NO_MEMORY", "12")
    ranks = 2 if mpi.name == "mpich" else 1
    programs = [make(number, ranks, shared=mpi.name == "mpich") for number in range(20, 40)]
    assert runner.differences(programs, tmp_path / "case") == {}


def until_an_error(ranks: Sequence[Sequence[str]]) -> list[list[str]]:
    """What the ranks saw of a program before the first call that failed in one of them."""
    failures = (i for seen in ranks for i, line in enumerate(seen) if IO_ERROR in line)
    first = min(failures, default=None)
    return [list(seen[:first]) for seen in ranks]


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
@pytest.mark.parametrize("writes", ["close", "lease"])
def test_programs_that_write_see_the_same_or_an_error(
    mpi: Mpi, writes: str, forgetful: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner.prepare(mpi, tmp_path, forgetful)
    monkeypatch.setenv("PDLA_TEST_NO_MEMORY", "40")
    programs = [make(number, 2, writes=writes) for number in range(40, 60)]
    (tmp_path / "case").mkdir()
    runner.make_files(programs, tmp_path / "case", writes)
    seen = {}
    for how in ("native", "redirected"):
        text, ((job, _),) = tmp_path / "case" / how / "program", programs[0].scripts(writes)
        text.write_text("".join(script for program in programs for _, script in program.scripts(writes)))
        seen[how] = [by_program(lines) for lines in runner.run(text, job, tmp_path / "case", how)]
    compared = 0
    for program in programs:
        native, redirected = ([rank[program.number] for rank in seen[how]] for how in ("native", "redirected"))
        before = until_an_error(redirected)
        assert before == [list(lines[: len(part)]) for lines, part in zip(native, before, strict=True)]
        compared += len(before[0])
    assert compared > 200
