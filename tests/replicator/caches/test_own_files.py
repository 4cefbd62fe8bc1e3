"""Other users can write into the directories of pools: what is not this user's there is not used."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdla.catalog import open_catalog
from pdla.own_files import open_cache, open_directory
from pdla.replicator.reservations import remove_cache, remove_unused_nodes
from pdla.replicator.sync import write_back
from tests.support.cached_writes import IMMEDIATE, ON_CLOSE, Case, make_case
from tests.support.compilers import GCC, compiled
from tests.support.critical_requests import ALL, costs
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, unavailable

STRANGER = 20002


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that users share, as /scratch is."""
    if os.geteuid() != 0:
        unavailable("becoming another user needs root")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.fixture
def case(shared: Path, library: Path, programs: Path) -> Case:
    """Under MPICH, with SSD servers that users share."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    made = make_case(mpi, shared, library, programs)
    costs(made, ALL)
    for server in servers(made):
        server.chmod(0o1777)
    return made


def servers(case: Case) -> list[Path]:
    return [case.directory / f"ssd{number}" for number in range(2)]


def settings(case: Case, flush: str = IMMEDIATE) -> dict[str, str]:
    return {**case.variables(flush), **costs(case, ALL)}


def as_stranger(*words: str | Path) -> None:
    """Another user runs a program."""
    become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    subprocess.run([*become, *map(str, words)], check=True)


# ---- the rule, in C and in Python ------------------------------------------------------------------------------------

Opener = Callable[[Path, int], str]
"""Opens a directory, or a file with this inode; why not, "" if it can be opened."""


@pytest.fixture(scope="session")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("own_files") / "own_files.so"
    source = REPOSITORY / "replicator/stub/own_files.c"
    compiled([*GCC, "-shared", "-fPIC", "-Wall", "-Wextra", source, "-o", made])
    return ctypes.CDLL(str(made), use_errno=True)


@pytest.fixture(params=["C", "Python"])
def opens(request: pytest.FixtureRequest, in_c: ctypes.CDLL) -> Opener:
    def by_library(path: Path, inode: int) -> str:
        name = os.fsencode(path)
        own = in_c.own_directory_open(name) if path.suffix == ".node" else -2
        own = in_c.own_file_open(-100, name, os.O_RDONLY, ctypes.c_uint64(inode)) if own == -2 else own
        if own < 0:
            return os.strerror(ctypes.get_errno())
        os.close(own)
        return ""

    def by_module(path: Path, inode: int) -> str:
        try:
            os.close(open_directory(path) if path.suffix == ".node" else open_cache(path, inode))
        except OSError as error:
            return os.strerror(error.errno or 0)
        return ""

    return by_library if request.param == "C" else by_module


REFUSED = os.strerror(errno.EPERM)
HARMS: dict[str, Callable[[Path], object]] = {
    "another's": lambda path: os.chown(path, STRANGER, -1),
    "the group's": lambda path: path.chmod(path.stat().st_mode | 0o020),
    "everybody's": lambda path: path.chmod(path.stat().st_mode | 0o002),
    "a link": lambda path: path.rename(path.with_name("elsewhere")) and path.symlink_to("elsewhere"),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["pdla-1.node", "pdla-1.cache"])
def test_h64_what_others_can_change_is_not_opened(shared: Path, opens: Opener, name: str, harm: str) -> None:
    path = shared / name
    path.mkdir(mode=0o755) if name.endswith(".node") else path.touch(0o600)
    assert opens(path, 0) == ""
    HARMS[harm](path)
    assert opens(path, 0) == REFUSED


@pytest.mark.parametrize("harm", ["two names", "another file", "a directory"])
def test_h64_a_cache_file_is_the_one_that_was_made(shared: Path, opens: Opener, harm: str) -> None:
    path = shared / "pdla-1.cache"
    path.touch(0o600)
    inode = path.stat().st_ino
    assert opens(path, inode) == ""
    if harm == "two names":
        os.link(path, shared / "other")
    elif harm == "another file":
        path.rename(shared / "other")
        path.touch(0o600)
    else:
        path.unlink()
        path.mkdir(0o700)
    assert opens(path, inode) == REFUSED


# ---- programs --------------------------------------------------------------------------------------------------------


def node_of(case: Case, server: Path) -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return server / f"pdla-{boot}-{server.stat().st_dev:x}-{os.geteuid()}.node"


@pytest.mark.parametrize("kind", ["another's", "everybody's", "a link"])
def test_h64_the_directory_of_a_node_that_others_can_change_is_not_used(case: Case, kind: str) -> None:
    """Its name is known to everybody. The line names it, and the bytes go to the original."""
    native = case.natively("write:0", "again:0")
    case.original.unlink()
    nodes = [node_of(case, server) for server in servers(case)]
    for node in nodes:
        if kind == "another's":
            as_stranger("mkdir", "-m", "755", node)
        elif kind == "a link":
            as_stranger("mkdir", "-m", "777", node.with_name("theirs"))
            as_stranger("ln", "-s", "theirs", node)
        else:
            node.mkdir()
            node.chmod(0o777)
    ran = case.run(settings(case), "write:0", "again:0", "kill", fails=True)
    assert ran.bytes == native.bytes
    ran = case.run(settings(case), "write:0", "again:0")
    assert ran.bytes == native.bytes and ran.total("written", "bytes") == 0
    refused = {cache["refused"] for cache in ran.caches}
    assert refused == {f"{node} belongs to another user, or others can write to it" for node in nodes}
    assert [path for node in nodes for path in node.iterdir()] == []


def replace(cache: Path) -> None:
    """By a file of another user, of the same size."""
    bytes_there = cache.stat().st_size
    cache.unlink()
    with cache.open("wb") as file:
        file.write(b"X" * bytes_there)
    os.chown(cache, STRANGER, -1)
    cache.chmod(0o644)


ACCIDENTS: dict[str, Callable[[Path], object]] = {
    "another's file": replace,
    "another's directory": lambda cache: os.chown(cache.parent, STRANGER, -1),
    "an open directory": lambda cache: cache.parent.chmod(0o777),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_h64_bytes_that_others_may_have_changed_do_not_come_home(
    case: Case, monkeypatch: pytest.MonkeyPatch, accident: str
) -> None:
    """Neither at the next open, which fails, nor by pdla sync, which names the cache file."""
    monkeypatch.setenv("PDLA_HOME", str(case.directory / "home"))
    native = case.natively("write:0")
    case.original.unlink()
    case.run(settings(case, ON_CLOSE), "write:0", "nap:300", "kill", fails=True)
    cache = min(path for server in servers(case) for path in server.glob("*.node/*.cache"))
    ACCIDENTS[accident](cache)
    for step in ("read:0", "other:0"):
        ran = case.run(settings(case), step, fails=True)
        assert "cannot be opened" in ran.stderr and "others can write to it" in ran.stderr
    catalog = open_catalog()
    (row,) = write_back(catalog)
    catalog.close()
    assert str(cache) in row.problem or str(cache.parent) in row.problem
    home = zip(case.original.read_bytes(), native.bytes, strict=False)
    assert cache.exists() and {byte for byte, written in home if byte != written} == {0}, "the other server's came home"
    if accident != "another's file":
        os.chown(cache.parent, os.geteuid(), -1)
        cache.parent.chmod(0o755)
        assert case.run(settings(case), "other:0").bytes == native.bytes


def test_h64_what_other_users_say_of_room_does_no_harm(case: Case) -> None:
    """Any numbers, whose sum is too large for 64 bits, and a link to anywhere with the name of a node's directory."""
    nodes = [servers(case)[0] / f"pdla-{number}-1-{STRANGER}.node" for number in range(3)]
    for node, said in zip(nodes, (f"{2**63 - 1}:1", f"{2**63 - 1}:{2**63 - 1}", f"2:{2**63 - 1}"), strict=True):
        as_stranger("mkdir", node)
        as_stranger("ln", "-s", said, node / "reserved")
    as_stranger("ln", "-s", "/proc/self/fd", servers(case)[1] / f"pdla-3-1-{STRANGER}.node")
    native = case.natively("write:0", "again:0")
    case.original.unlink()
    limited = {**settings(case), "PDLA_SSD_BYTES": str(1 << 20)}
    ran = case.run(limited, "write:0", "again:0")
    assert ran.bytes == native.bytes
    assert ran.total("written", "bytes") == 0 and "no room in the cache" in ran.passed
    for node in nodes:
        (node / "reserved").unlink()
    case.original.unlink()
    assert case.run(limited, "write:0", "again:0").total("written", "bytes") > 0


def test_h64_only_this_users_files_and_directories_are_removed(shared: Path) -> None:
    """By pdla sync, and by pdla run a day later."""
    mine, theirs = (shared / f"pdla-{name}-{os.geteuid()}.node" for name in ("mine", "theirs"))
    mine.mkdir(0o755)
    as_stranger("mkdir", theirs)
    for node in (mine, theirs):
        for name in ("reserved", "pdla-1.cache"):
            (node / name).touch()
        remove_cache(node / "pdla-1.cache")
    assert [list(mine.iterdir()), len(list(theirs.iterdir()))] == [[], 2]
    for path in theirs.iterdir():
        path.unlink()
    for node in (mine, theirs):
        os.utime(node, (0, 0))
    remove_unused_nodes([str(shared)])
    assert (mine.exists(), theirs.exists()) == (False, True)
    remove_cache(mine / "pdla-1.cache")
