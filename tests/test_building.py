"""Building with several processes, of sparse and of protected originals, and through whatever goes wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi import Mpi, available_mpis, launching_pdla

from pdla.accessmap import AccessMap
from pdla.catalog import open_catalog
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.policies.planfile import read_plan, write_plan
from pdla.replicator.builder import replicate
from pdla.replicator.verify import verify

PDLA = Path(sys.executable).parent / "pdla"
SERVERS = 4


def pool_in(home: Path) -> Pool:
    where = tuple(str(home / "pools" / f"{number}") for number in range(SERVERS))
    return Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, 1 << 40, 4096, "directories", where)


def strided(original: Path, length: int, ranks: int, count: int, start: int = 0) -> Signature:
    loops = (Loop(length, ranks), Loop(length * ranks, count))
    return Signature(str(original), "read", True, start, length, loops, tuple(range(ranks)), 1)


def plan_of(home: Path, *patterns: Signature) -> Path:
    """A plan to have replicas of these patterns in strips of 64 KiB on all servers."""
    nothing = Cost(0.0, 0.0, 0.0, 0.0)
    home.mkdir(exist_ok=True)
    plans = []
    for signature in patterns:
        layout = Layout("disks", SERVERS, 1, (65536,) * SERVERS, AccessMap.section(signature))
        plans.append(PatternPlan(signature, (Candidate("disks", layout, nothing),), 0, ""))
    cluster = Cluster((pool_in(home),), "disks", SERVERS, 65536, 4, 0.0, 0.0, 0.0, "test")
    write_plan(Plan("pdla-h", "app", tuple(plans), (), cluster), home / "plan.json")
    return home / "plan.json"


@pytest.fixture(params=available_mpis(), ids=lambda mpi: mpi.name)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return launching_pdla(request.param)


def replicated(plan: Path, mpi: Mpi | None = None, processes: int = 1) -> subprocess.CompletedProcess[str]:
    words = [str(PDLA), "replicate", str(plan), "--json"]
    environment = {**os.environ, "PDLA_HOME": str(plan.parent), **(mpi.env if mpi else {})}
    command = mpi.command(processes, *words) if mpi else words
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("pdla: ")]


def components(home: Path) -> list[bytes]:
    files = (file for file in (home / "pools").rglob("*") if file.is_file())
    return [file.read_bytes() for file in sorted(files, key=lambda file: file.name)]


def test_any_number_of_processes_builds_the_same_files(mpi: Mpi, tmp_path: Path, monkeypatch: Any) -> None:
    """Pieces of 5000 bytes after a header of 100: no window, extent or block ends where a process's part does."""
    original = tmp_path / "data"
    original.write_bytes(np.random.default_rng(1).bytes(40_000_100))
    signature = strided(original, 5000, 4, 2000, start=100)
    built = []
    for processes in (1, 2, 4) if mpi.name == "mpich" else (1, 3):
        plan = plan_of(tmp_path / str(processes), signature)
        monkeypatch.setenv("PDLA_HOME", str(plan.parent))
        catalog = open_catalog()
        if processes == 1:
            replicate(read_plan(plan), catalog)
        else:
            done = replicated(plan, mpi, processes)
            assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
        assert verify(catalog, deep=True) == []
        built.append((components(plan.parent), catalog.checksums(1)))
        catalog.close()
    assert all(one == built[0] for one in built)


FAILING = """
import resource, sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
sys.argv = ["pdla", "replicate", sys.argv[1]]
import pdla.cli
pdla.cli.main()
"""


def test_what_fails_at_one_process_ends_all_with_one_line(mpi: Mpi, tmp_path: Path, monkeypatch: Any) -> None:
    original = tmp_path / "data"
    original.write_bytes(bytes(48 << 20))
    plan = plan_of(tmp_path / "home", strided(original, 4096, 4, 3072))
    monkeypatch.setenv("PDLA_HOME", str(plan.parent))
    command = mpi.command(3, sys.executable, "-c", FAILING, plan)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **mpi.env})
    assert done.returncode != 0
    (line,) = said(done)
    assert re.fullmatch(r"pdla: cannot write .*/1\.\d: File too large: nothing was replicated", line)
    assert "Traceback" not in done.stderr
    assert_nothing_is_left(plan.parent)


def test_a_plan_that_cannot_be_read_ends_all_processes(mpi: Mpi, tmp_path: Path) -> None:
    done = replicated(tmp_path / "plan.json", mpi, 2)
    assert done.returncode != 0
    assert said(done) == [f"pdla: {tmp_path}/plan.json: cannot read this plan: No such file or directory"]


def assert_nothing_is_left(home: Path) -> None:
    assert [file for file in (home / "pools").rglob("*") if file.is_file()] == []
    catalog = open_catalog()
    assert catalog.replicas() == []
    catalog.close()
