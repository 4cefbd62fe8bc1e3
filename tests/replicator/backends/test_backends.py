"""All back ends, each through the public suite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.errors import ConfigError
from pdla.model import Layout, Pool
from pdla.replicator.backends import backend_of, obstacles
from pdla.replicator.backends.base import folder_in
from pdla.replicator.backends.conformance import KIB64, BackendTests
from pdla.replicator.backends.directories import Directories
from tests.support.mpi import unavailable

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


def test_the_planner_learns_of_a_missing_directory_too(tmp_path: Path):
    """What cannot be built is not planned; a layout without that directory is still planned."""
    (tmp_path / "a").mkdir()
    backend = Directories(pool(tmp_path / "a", tmp_path / "nowhere"))
    missing = "nowhere: No such file or directory (mount or make it; pdla makes only directories below PDLA_HOME)"
    assert backend.obstacle(Layout("disks", 2, 1, (KIB64,) * 2, 2 * KIB64), 4096).endswith(missing)
    assert backend.obstacle(Layout("disks", 1, 1, (KIB64,), KIB64), 4096) == ""


def as_user(number: int, work: Callable[[], object]) -> str:
    """The error of another user's process; empty if none."""
    mine, theirs = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
            work()
        except BaseException as error:
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(mine) as said:
        text = said.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that users share, as /scratch is."""
    if os.geteuid() != 0:
        unavailable("becoming another user needs root")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def test_users_share_a_directory_that_belongs_to_neither(scratch: Path):
    for user in (1234, 1235):

        def use() -> None:
            backend = Directories(pool(scratch))
            backend.check(LAYOUT, 4096)
            os.close(backend.create(backend.components("t/1", LAYOUT, 4096)[0]))

        assert as_user(user, use) == ""
    made = [one.stat() for one in scratch.iterdir()]
    assert {(one.st_uid, one.st_mode & 0o777) for one in made} == {(1234, 0o700), (1235, 0o700)}


@pytest.mark.parametrize("kind", ["another's", "open", "link"])
def test_a_folder_in_which_others_could_replace_files_is_refused(scratch: Path, kind: str):
    folder = scratch / "pdla-replicas-1234"
    if kind == "link":
        (scratch / "elsewhere").mkdir()
        folder.symlink_to(scratch / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
        os.chown(folder, 1235 if kind == "another's" else 1234, -1)
    said = as_user(1234, lambda: Directories(pool(scratch)).check(LAYOUT, 4096))
    assert said.startswith(
        f"ConfigError: pool disks: cannot use {folder}: it belongs to another user, or others can write to it"
    )


def test_directories_below_pdla_home_are_made(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    Directories(pool(tmp_path / "home" / "pools" / "a")).check(LAYOUT, 4096)
    assert folder_in(tmp_path / "home" / "pools" / "a").stat().st_mode & 0o777 == 0o700


def test_an_unknown_backend_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="unknown backend 'tape'"):
        backend_of(replace(pool(tmp_path), backend="tape"))


def test_the_planner_hears_that_different_back_ends_are_not_striped_together(tmp_path: Path):
    disks, tapes = pool(tmp_path), replace(pool(tmp_path / "b"), backend="tape")
    why = obstacles()(replace(disks, name="disks+tapes", servers=2, parts=(disks, tapes)), LAYOUT, 4096)
    assert why == "pools of different back ends cannot be striped together (got directories and tape)"
    assert obstacles()(disks, LAYOUT, 4096) == ""
