"""The back ends that are there, each through the public suite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdla.errors import ConfigError
from pdla.model import Layout, Pool
from pdla.replicator.backends import Directories, backend_of, obstacles
from pdla.replicator.backends.suite import BackendTests

LAYOUT = Layout("disks", 1, 1, (4096,), 4096)


def pool(*where: Path) -> Pool:
    return Pool(
        "disks", "hdd", len(where), ((0, 0.0),), 1e-8, 1e-8, 1 << 40, 4096, "directories", tuple(str(w) for w in where)
    )


class TestDirectories(BackendTests):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Directories:
        servers = [tmp_path / name for name in "abcd"]
        for server in servers:
            server.mkdir()
        return Directories(pool(*servers))


def test_a_missing_directory_is_refused_since_it_may_be_a_disk_that_is_not_mounted(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match=r"pool disks: cannot use .*/nowhere: No such file"):
        Directories(pool(tmp_path / "nowhere")).check(LAYOUT, 4096)


def test_directories_in_the_home_are_made(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    Directories(pool(tmp_path / "home" / "pools" / "a")).check(LAYOUT, 4096)
    assert (tmp_path / "home" / "pools" / "a" / "pdla-replicas").stat().st_mode & 0o777 == 0o700


def test_an_unknown_backend_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="unknown backend 'tape'"):
        backend_of(replace(pool(tmp_path), backend="tape"))


def test_the_planner_hears_that_different_back_ends_are_not_striped_together(tmp_path: Path):
    disks, tapes = pool(tmp_path / "a"), replace(pool(tmp_path / "b"), backend="tape")
    why = obstacles()(replace(disks, name="disks+tapes", servers=2, parts=(disks, tapes)), LAYOUT, 4096)
    assert why == "pools of different back ends cannot be striped together (these are directories and tape)"
    assert obstacles()(disks, LAYOUT, 4096) == ""
