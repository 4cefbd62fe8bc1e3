"""Shared by the tests of caches: a program that writes through one, what killed programs left, and pools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdla.catalog import open_catalog
from tests.support.cached_writes import Case, make_case
from tests.support.critical_reads import Pools
from tests.support.killed_caches import Place
from tests.support.mpi import Mpi, available_mpis


@pytest.fixture
def any_case(any_mpi: Mpi, tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under each MPI."""
    return make_case(any_mpi, tmp_path, library, programs)


@pytest.fixture
def mpich_case(tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under MPICH, since what others leave in a buffer behind the end of a file differs from run to run."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return make_case(mpi, tmp_path, library, programs)


@pytest.fixture
def case(mpich_case: Case) -> Case:
    """Under MPICH, unless a module says otherwise."""
    return mpich_case


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    catalog = open_catalog()
    yield Place(tmp_path, catalog)
    catalog.close()


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pools:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    for name in ("logs", "ssd0", "ssd1"):
        (tmp_path / name).mkdir()
    (tmp_path / "data").write_bytes(os.urandom(100_000))
    return Pools(tmp_path, open_catalog())
