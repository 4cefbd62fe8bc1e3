"""Shared by the tests of replicas."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs go that are compiled once for each MPI."""
    return tmp_path_factory.mktemp("programs")
