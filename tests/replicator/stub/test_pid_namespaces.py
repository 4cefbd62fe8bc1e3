"""Processes of one host name and one number: PID namespaces, such as containers have, or nodes of the same name."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdla.collectors.rawlog import HEADER, SILENT_SECONDS, is_over, logs_in
from pdla.model import Identity
from pdla.processes import process_table
from pdla.replicator import intent
from pdla.replicator.journals import paths_in, read_journal
from tests.support import cached_writes
from tests.support.compilers import GCC, compiled
from tests.support.critical_requests import FAR, costs, logs
from tests.support.mpi import REPOSITORY, Mpi, available_mpis
from tests.support.redirected_writes import PIECE, ROWS, Case, make_case, total
from tests.support.waiting import PATIENCE

# Without mpiexec, which would have one start only.
ONE_BY_ONE = 'unset PMI_FD PMI_RANK PMI_SIZE; for program in 1 2 3; do unshare --pid --fork "$@"; done'
STUB = REPOSITORY / "replicator/stub"


def held_at(call: str, words: Sequence[str | Path]) -> list[str | Path]:
    """The command, whose last call of a name takes effect only after a second."""
    held = ["-e", f"trace={call}", "-e", f"inject={call}:delay_enter=1s"]
    return ["strace", "-f", "-qq", "-o", "/dev/null", *held, *words]


@pytest.fixture(scope="module")
def journal_unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("unit") / "journal_unit"
    sources = [REPOSITORY / "tests/programs/journal_unit.c"]
    names = ("journal", "file_identity", "intent", "crc32c", "locks", "node_directory", "own_files")
    sources += [STUB / f"{name}.c" for name in names]
    includes = [f"-I{STUB}", f"-I{REPOSITORY / 'pdla/interpose'}"]
    compiled([*GCC, "-std=gnu11", "-Wall", "-Wextra", *includes, "-o", program, *sources])
    return program


@pytest.fixture
def case(tmp_path: Path, library: Path, programs: Path) -> Case:
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
        subprocess.run(words, check=True, timeout=PATIENCE)
        assert first.wait(timeout=PATIENCE) == 0
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


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_h57_two_processes_of_one_number_make_an_intent_at_once(
    alone: list[str], journal_unit: Path, tmp_path: Path, call: str
) -> None:
    """Ranks of a job renew the intent of its write-back. One is held before a step, and then another begins."""
    words = [*alone, journal_unit, "intend", tmp_path]
    with subprocess.Popen(held_at(call, [*words, "7"])) as first:
        while not list(tmp_path.iterdir()):
            assert first.poll() is None
        subprocess.run([*words, "8"], check=True, timeout=PATIENCE)
        assert first.wait(timeout=PATIENCE) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["intent"]
    found = intent.read_intent(tmp_path)
    assert found and found.identity.inode == 7


def test_h57_pdla_sync_of_two_nodes_makes_an_intent_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second, of the same number, begins while the first waits for its bytes to be durable."""
    sync = os.fsync

    def second(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        intent.HeldIntent(tmp_path, Identity(1, 8, 0, 0, 0))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", second)
    intent.HeldIntent(tmp_path, Identity(1, 7, 0, 0, 0))
    assert [path.name for path in tmp_path.iterdir()] == ["intent"]
    found = intent.read_intent(tmp_path)
    assert found and found.identity.inode == 7


def test_h57_ranks_of_one_number_leave_a_log_of_critical_requests_each(
    alone: list[str], case: Case, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = cached_writes.make_case(case.mpi, case.directory, library, tmp_path_factory.mktemp("cached"))
    program = case.directory / "apart"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(alone)} {made.program} "$@"\n')
    program.chmod(0o755)
    apart = replace(made, program=program)
    apart.same(cached_writes.IMMEDIATE, "write:0", "read:0", "read:0", "all:0", **costs(apart, FAR))
    assert [log["rank"] for log in logs(apart)] == [0, 1, 2]


def recorded(alone: list[str], case: Case, raw: Path) -> list[Path]:
    """The logs that two ranks of one number leave."""
    words = [f"LD_PRELOAD={case.library}", f"PDLA_TRACE={raw}", case.program, case.original, raw.with_name("rank")]
    case.mpi.run(case.mpi.command(2, *alone, "env", *words, "open", "strided", "close"))
    return [path for path in logs_in(raw) if path.stat().st_size]


def test_h57_ranks_of_one_number_are_recorded_each(alone: list[str], case: Case, tmp_path: Path) -> None:
    """Although others had 150 of the names, as ranks of a large node may have in containers of their own."""
    node = tmp_path / "raw" / socket.gethostname()
    node.mkdir(parents=True)
    for name in [f"{node.name}-2.log", *(f"{node.name}-2.{number}.log" for number in range(1, 150))]:
        (node / name).touch()
    made = recorded(alone, case, tmp_path / "raw")
    assert [path.name for path in made] == [f"{node.name}-2.{number}.log" for number in (150, 151)]


@pytest.mark.parametrize(
    ("field", "value", "process", "age", "over"),
    [
        ("pid", 0, "live", 0, False),
        ("pid", 0, "ended", 0, True),
        ("pid_namespace", 1, "ended", 0, False),
        ("pid_namespace", 1, "live", SILENT_SECONDS + 1, True),
        ("boot", b"another", "ended", 0, False),
        ("boot", b"another", "live", SILENT_SECONDS + 1, True),
    ],
)
def test_h57_a_program_is_over_if_its_own_processes_have_ended(
    case: Case, tmp_path: Path, field: str, value: object, process: str, age: float, over: bool
) -> None:
    """And not those of its numbers in another PID namespace, or on another node of the same name."""
    path = recorded([], case, tmp_path / "raw")[0]
    header = np.memmap(path, HEADER, "r+", shape=(1,))
    table = process_table()
    assert (header["boot"][0].decode(), header["pid_namespace"][0]) == table
    with subprocess.Popen(["sleep", "100"]) as live, subprocess.Popen(["true"]) as ended:
        ended.wait()
        header["ranks"] = 1
        header["finalized"] = header["exited"] = 0
        header["pid"] = {"live": live.pid, "ended": ended.pid}[process]
        if field != "pid":
            header[field] = value
        header.flush()
        for other in logs_in(tmp_path / "raw")[1:]:
            other.unlink()
        when = path.stat().st_mtime - age
        os.utime(path, (when, when))
        assert is_over(tmp_path / "raw") == over
        live.kill()
