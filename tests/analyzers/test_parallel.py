"""mpiexec -n N pdla analyze: the answer of one process, whatever N is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pdla.analyzers.local_patterns import find_local, merged
from pdla.collectors import workloads
from pdla.collectors.tracefile import write_trace
from pdla.traces.trace import Trace
from tests.support.command_line import PDLA
from tests.support.handmade_traces import Call, make_trace
from tests.support.mpi import Mpi, available_mpis, launching_pdla
from tests.support.waiting import PATIENCE


@pytest.fixture(params=available_mpis(), ids=lambda mpi: mpi.name)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return launching_pdla(request.param)


def analyzed(mpi: Mpi | None, processes: int, trace: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [PDLA, "analyze", str(trace), *options]
    environment = {**os.environ, "PDLA_HOME": str(trace.parent / "home"), **(mpi.env if mpi else {})}
    command = mpi.command(processes, *words) if mpi else words
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)


def mixed() -> Trace:
    """Regular, random and interleaved accesses of 5 ranks, one of which does nothing at all."""
    random = np.random.default_rng(0)
    calls = []
    for rank in (0, 1, 2, 4):
        calls += [Call(rank, "read", rank * 4096 + i * 32768, 4096) for i in range(50)]
        calls += [Call(rank, "write", int(place), 100, "/data/b") for place in random.integers(0, 2**30, 300)]
        calls += [
            Call(rank, "read", start + i * 64, 8, "/data/c") for i in range(20 + rank) for start in (0, 10**6, 5000)
        ]
    return make_trace(calls)


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_the_patterns_do_not_depend_on_who_finds_them(parts: int) -> None:
    for trace in (mixed(), workloads.btio((2, 2, 2), (6, 20, 20), 3)):
        alone = find_local(trace.blocks())
        together = merged([find_local(trace.blocks(part, parts)) for part in range(parts)])
        assert together.table.to_dict("list") == alone.table.to_dict("list")
        assert together.shapes.child.tolist() == alone.shapes.child.tolist()
        assert together.strays.to_dict("list") == alone.strays.to_dict("list")


@pytest.mark.thorough(1)
def test_any_number_of_processes_gives_the_same_bytes(mpi: Mpi, tmp_path: Path) -> None:
    trace = tmp_path / "run.h5"
    write_trace(mixed(), trace)
    alone = analyzed(None, 1, trace, "--json")
    assert alone.returncode == 0
    assert len(alone.stdout.splitlines()) == 1
    together = analyzed(mpi, 6 if mpi.name == "mpich" else 2, trace, "--json")
    assert (together.returncode, together.stdout) == (0, alone.stdout), together.stderr


def test_what_cannot_be_read_is_reported_once(mpi: Mpi, tmp_path: Path) -> None:
    failed = analyzed(mpi, 2, tmp_path / "nothing.h5")
    assert failed.returncode != 0
    said = [line for line in failed.stderr.splitlines() if line.startswith("pdla: ")]
    assert said == [f"pdla: cannot read {tmp_path}/nothing.h5: No such file or directory (it should be a trace)"]
    assert "Traceback" not in failed.stderr


def test_mpi_is_not_initialized_without_mpiexec(tmp_path: Path) -> None:
    write_trace(make_trace([Call(0, "read", 0, 8)]), tmp_path / "run.h5")
    look = (
        "import sys, pdla.cli; sys.argv = ['pdla', 'analyze', 'run.h5', '--json']\n"
        "try: pdla.cli.main()\n"
        "finally: print('mpi4py' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", look],
        cwd=tmp_path,
        env={**os.environ, "PDLA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.splitlines()[-1] == "False"


def test_a_mismatch_of_mpiexec_and_mpi4py_is_reported_once(tmp_path: Path) -> None:
    write_trace(make_trace([Call(0, "read", 0, 8)]), tmp_path / "run.h5")
    answers = [
        subprocess.run(
            [PDLA, "analyze", tmp_path / "run.h5"],
            env={**os.environ, "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
        for rank in ("0", "1")
    ]
    assert [answer.returncode for answer in answers] == [1, 1]
    assert answers[0].stderr == ("pdla: mpiexec started 2 processes, but mpi4py sees 1: use the mpiexec of its MPI\n")
    assert answers[1].stderr == ""
