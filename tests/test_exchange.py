"""Collective writes of ranks on several nodes, whose pieces are exchanged before they go to the nodes' caches."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from tests.support.mpi import Mpi, available_mpis, unavailable
from tests.test_caches import AGAIN, IMMEDIATE, ON_CLOSE, SIZES, STEPS, Case, make_case, programs  # noqa: F401

NODES = 2
UNIT = 1000
"""Bytes: small, so that a call has units for all ranks, and several for each."""
ALWAYS = {"PDLA_ROMIO_CB_WRITE": "enable", "PDLA_CB_BUFFER_SIZE": str(UNIT)}
ON_NODE = 'hostname "node$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'


def on_nodes(program: Path, directory: Path) -> Path:
    """What runs the program of each rank on one of the nodes, in turn: each has a hostname and a boot of its own."""
    boots = [directory / f"boot{number}" for number in range(NODES)]
    for boot in boots:
        boot.write_text(f"{uuid.uuid4()}\n")
    starter = directory / "on_nodes"
    starter.write_text(
        f"#!/bin/sh\nnode=$((${{PMI_RANK:-${{OMPI_COMM_WORLD_RANK:-0}}}} % {NODES}))\n"
        f"exec unshare --mount --uts sh -c '{ON_NODE}' $node {directory}/boot$node {program} \"$@\"\n"
    )
    starter.chmod(0o755)
    try:
        done = subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        unavailable("there is no unshare")
    if done.returncode != 0:
        unavailable(f"nodes need root: {done.stderr.strip()}")
    return starter


def make_nodes(mpi: Mpi, directory: Path, library: Path, programs: Path) -> Case:  # noqa: F811
    case = make_case(mpi, directory, library, programs)
    return Case(mpi, on_nodes(case.program, directory), case.libraries, directory)


@pytest.fixture
def case(tmp_path: Path, library: Path, programs: Path) -> Case:  # noqa: F811
    """Under MPICH, on two nodes."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return make_nodes(mpi, tmp_path, library, programs)


@pytest.fixture
def any_case(any_mpi: Mpi, tmp_path: Path, library: Path, programs: Path) -> Case:  # noqa: F811
    """Under each MPI, on two nodes."""
    return make_nodes(any_mpi, tmp_path, library, programs)


ALL = STEPS | SIZES | AGAIN


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.parametrize("steps", ALL.values(), ids=ALL)
def test_a_program_sees_and_leaves_the_same_bytes(case: Case, steps: list[str], flush: str) -> None:
    ran = case.same(flush, *steps, ranks=5, **ALWAYS)
    assert ran.total("exchange", "calls") > 0 or "iwrite:0" in steps
