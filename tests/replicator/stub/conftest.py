"""Shared by the tests of the redirection library: a program that reads, and files under a lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leased_files import Leased, make_leased
from tests.support.mpi import Mpi, available_mpis
from tests.support.redirected_reads import Case, make_case


@pytest.fixture
def case(mpi: Mpi, tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under each MPI, for tests that depend on the MPI."""
    return make_case(mpi, tmp_path, library, programs)


@pytest.fixture
def mpich(tmp_path: Path, library: Path, programs: Path) -> Case:
    """Only under MPICH, for tests of the redirector itself."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return make_case(mpi, tmp_path, library, programs)


@pytest.fixture
def either_leased(
    mpi: Mpi, tmp_path: Path, library: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Leased]:
    """Under each MPI."""
    yield from make_leased(mpi, tmp_path, library, programs, monkeypatch)


@pytest.fixture
def file(tmp_path: Path, library: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leased]:
    """Under MPICH."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    yield from make_leased(mpi, tmp_path, library, programs, monkeypatch)
