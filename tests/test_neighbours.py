"""Ranks that read what other ranks have just written, synchronised by a barrier alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Launching
from mpi import REPOSITORY, Mpi, available_mpis, debian_mpis
from test_sync import favourable

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
