"""Processes of one host name and one number: PID namespaces, such as containers have, or nodes of the same name."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.replicator.journals import paths_in, read_journal
from tests.support.mpi import GCC, REPOSITORY, Mpi, available_mpis, unavailable
from tests.test_writes import PIECE, ROWS, Case, make_case, programs, total  # noqa: F401

# Without mpiexec, which would have one start only.
ONE_BY_ONE = 'unset PMI_FD PMI_RANK PMI_SIZE; for program in 1 2 3; do unshare --pid --fork "$@"; done'
STUB = REPOSITORY / "replicator/stub"


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """Words before a command that make it process 2 of a PID namespace, whose process 1 waits for it."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh"]
    try:
        done = subprocess.run([*words, "sh", "-c", "echo $$"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        unavailable("there is no unshare")
    if done.stdout != "2\n":
        unavailable(f"there are no PID namespaces: {done.stderr.strip()}")
    return words


def held_at(call: str, words: Sequence[str | Path]) -> list[str | Path]:
    """The command, whose last call of a name takes effect only after a second."""
    held = ["-e", f"trace={call}", "-e", f"inject={call}:delay_enter=1s"]
    return ["strace", "-f", "-qq", "-o", "/dev/null", *held, *words]


@pytest.fixture(scope="module")
def journal_unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("unit") / "journal_unit"
    sources = [REPOSITORY / "tests/programs/journal_unit.c"]
    sources += [STUB / name for name in ("journal.c", "crc32c.c", "locks.c", "node_directory.c")]
    subprocess.run([*GCC, "-std=gnu11", "-Wall", "-Wextra", f"-I{STUB}", "-o", program, *sources], check=True)
    return program


@pytest.fixture
def case(tmp_path: Path, library: Path, programs: Path) -> Case:  # noqa: F811
    """MPICH reads other ranks' memory by their process numbers, which other namespaces do not know."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return make_case(replace(mpi, env={**mpi.env, "MPIR_CVAR_CH4_CMA_ENABLE": "0"}), tmp_path, library, programs)


@pytest.mark.parametrize("call", ["fcntl", "link", "unlink"])
def test_h57_a_journal_that_is_being_made_is_nobody_elses(
    alone: list[str], journal_unit: Path, tmp_path: Path, call: str
) -> None:
    """The first process is held before a step; then the second one begins, and both note bytes."""
    words = [*alone, journal_unit, "write", tmp_path, "100"]
    with subprocess.Popen(held_at(call, words)) as first:
        while not list(tmp_path.glob("*/*")):
            assert first.poll() is None
        subprocess.run(words, check=True, timeout=30)
        assert first.wait(timeout=30) == 0
    journals = [read_journal(path) for path in paths_in(tmp_path)]
    assert [(journal.bytes, journal.damaged) for journal in journals] == [(1000, 0)] * 2


def test_h57_ranks_of_one_number_are_redirected_and_reported(alone: list[str], case: Case) -> None:
    """Each rank in a namespace of its own, as if in a container of its own on one node."""
    reports = case.compare("open", "strided", "sync", "collective", "close", watch=alone)
    assert len(reports) == 4
    assert total(reports, "redirected") == 2 * 4 * ROWS * PIECE


def test_h57_a_report_is_not_overwritten_by_a_later_process_of_the_same_number(alone: list[str], case: Case) -> None:
    """Three programs, one after the other; the kernel gives their processes the same number."""
    three = [*alone, "sh", "-c", ONE_BY_ONE, "sh"]
    _, reports = case.run("close", "open", "strided", "close", ranks=1, watch=three)
    assert [report["redirected"]["calls"] for report in reports] == [4 * ROWS] * 3
