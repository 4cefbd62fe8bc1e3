"""Wrong replicas are found and not used any more; what nobody can use is removed."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from mmap import PROT_READ, mmap
from pathlib import Path

import numpy as np
import pytest

from pdla.accessmap import AccessMap
from pdla.catalog import open_catalog
from pdla.errors import PdlaError
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator import verify as verify_module
from pdla.replicator.builder import build
from pdla.replicator.mapfile import STATE_FILE, STATE_HEADER, publish, read_map
from pdla.replicator.status import status
from pdla.replicator.verify import Finding, Removed, gc, remove, verify
from pdla.report.replicas import status_text
from tests.support.counted_disk import Disk


class Place:
    """Two valid, published replicas of one original: columns and rows."""

    def __init__(self, tmp_path: Path) -> None:
        self.map_path = tmp_path / "home" / "replicas.map"
        self.original = tmp_path / "data"
        self.original.write_bytes(np.random.default_rng(1).bytes(1 << 16))
        self.catalog = open_catalog()
        where = tuple(str(tmp_path / "home" / "pools" / name) for name in "ab")
        pool = Pool("disks", "hdd", 2, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", where)
        for loops in ((Loop(64, 4), Loop(256, 256)), (Loop(1 << 14, 2), Loop(1 << 12, 4))):
            pattern = Signature(str(self.original), "read", True, 0, 64, loops, tuple(range(loops[0].count)), 1)
            layout = Layout("disks", 2, 1, (4096, 4096), AccessMap.section(pattern))
            build(pattern, layout, pool, self.catalog)
        publish(self.catalog)

    def component(self, replica: int, number: int) -> Path:
        return self.catalog.replicas.get(replica).components[number].path

    def states(self) -> list[tuple[int, str, str]]:
        return [(replica.id, replica.state, replica.why) for replica in self.catalog.replicas.find()]

    def published(self) -> list[int]:
        return [replica.id for replica in read_map(self.map_path).replicas]

    def files(self) -> list[str]:
        pools = self.map_path.parent / "pools"
        return sorted(file.name for file in pools.rglob("*") if file.is_file())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    place = Place(tmp_path)
    yield place
    place.catalog.close()


def test_sound_replicas_have_no_findings(place: Place):
    assert verify(place.catalog, deep=True) == []
    assert place.published() == [1, 2]


def damage(path: Path, at: int, keep_times: bool = True) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def in_secret(path: Path, change: Callable[[], object]) -> None:
    """With the times that it had."""
    before = path.stat()
    change()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_flipped_bit_under_unchanged_times_is_found(place: Place):
    damage(path := place.component(1, 1), 5000)
    (finding,) = verify(place.catalog)
    assert (finding.replica, finding.path, finding.problem) == (1, path, "has wrong bytes between 0 and 32768")
    assert place.states() == [(1, "stale", f"{path}: has wrong bytes between 0 and 32768"), (2, "valid", "")]
    assert place.published() == [2]


def test_bytes_that_changed_beneath_memory_are_found(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    """The page cache has what was written, and programs have it mapped."""
    monkeypatch.setenv("PDLA_HOME", str(disk.directory / "home"))
    place = Place(disk.directory)
    path = place.component(1, 1)
    os.sync()
    content = path.read_bytes()
    image = disk.image.read_bytes()
    at = image.index(content[:512])
    with path.open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ) as mapped:
        assert mapped[:] == content
        with disk.image.open("r+b") as beneath:
            beneath.seek(at)
            beneath.write(bytes([content[0] ^ 1]))
            beneath.flush()
            os.fsync(beneath.fileno())
        assert path.read_bytes() == content
        (finding,) = verify(place.catalog)
    place.catalog.close()
    assert (finding.path, finding.problem) == (path, "has wrong bytes between 0 and 32768")


def test_progress_that_fails_says_nothing_about_replicas(place: Place):
    def progress(what: str, done: int, total: int) -> None:
        raise OSError(errno.EIO, "the terminal is gone")

    with pytest.raises(OSError, match="the terminal is gone"):
        verify(place.catalog, progress=progress)
    assert place.states() == [(1, "valid", ""), (2, "valid", "")]


READS_SLOWLY = """
import os, sys, time
from pdla.cli import main
from pdla.replicator import verify
read = verify.is_stored
def slowly(*words):
    print("reading", flush=True)
    while os.isatty(2):
        time.sleep(0.01)
    time.sleep(1.1)  # progress is shown after a second
    return read(*words)
verify.is_stored = slowly
sys.argv = ["pdla", "verify"]
main()
"""


@pytest.mark.parametrize(("before", "code"), [("trap '' HUP;", 0), ("", 128 + signal.SIGHUP)], ids=["nohup", "hangup"])
def test_a_terminal_that_is_closed_leaves_replicas_valid(place: Place, tmp_path: Path, before: str, code: int):
    said = tmp_path / "said"
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        script = f'{before} exec "$0" -c "$1" > {said}'
        os.execv("/bin/sh", ["sh", "-c", script, sys.executable, READS_SLOWLY])
    while not (said.exists() and said.read_text()):
        time.sleep(0.01)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code
    assert place.states() == [(1, "valid", ""), (2, "valid", "")]


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda path: os.truncate(path, 100),
        lambda path: path.write_bytes(path.read_bytes()),
        lambda path: (
            path.rename(path.with_name("x")),
            path.with_name("y").write_bytes(b""),
            path.with_name("y").rename(path),
        ),
        lambda path: in_secret(path, lambda: os.truncate(path, 100)),
        lambda path: in_secret(path, lambda: shutil.copy(path, path.with_name("x")).rename(path)),
    ],
    ids=["deleted", "truncated", "rewritten", "replaced", "cut in secret", "another"],
)
def test_a_component_that_is_not_the_file_that_was_built_is_found(place: Place, change):
    change(path := place.component(2, 0))
    (finding,) = verify(place.catalog)
    assert (finding.replica, finding.path) == (2, path)
    assert finding.problem == "is missing or is not the file that was built"
    assert place.published() == [1]


def test_a_changed_original_is_found(place: Place):
    damage(place.original, 0, keep_times=False)
    assert [(finding.replica, finding.path, finding.problem) for finding in verify(place.catalog)] == [
        (1, place.original, "differs from the replica at the replica's byte 0"),
        (2, place.original, "differs from the replica at the replica's byte 0"),
    ]
    assert place.published() == []
    assert verify(place.catalog) == []


def test_h62_replicas_that_have_the_bytes_of_a_changed_original_are_valid_again(place: Place):
    """It was changed elsewhere, or only its times were: whoever did it, the bytes tell."""
    with place.original.open("ab") as file:
        file.write(b"more")
    assert [one.state for one in status(place.catalog).replicas] == ["stale", "stale"]
    assert verify(place.catalog) == []
    assert place.states() == [(1, "valid", ""), (2, "valid", "")]
    assert place.published() == [1, 2]
    (original,) = read_map(place.map_path).originals
    assert original.identity == identity_now(place.original)
    damage(place.original, 64 * 5, keep_times=False)
    (finding,) = verify(place.catalog)
    assert (finding.replica, finding.problem) == (1, "differs from the replica at the replica's byte 16448")
    assert place.published() == [2]


def test_h62_a_mark_in_the_map_of_before_does_not_count_for_a_replica_that_is_valid_again(place: Place):
    published = read_map(place.map_path)
    with published.state_path.open("r+b") as state:
        state.seek(STATE_HEADER.itemsize + STATE_FILE.itemsize)
        state.write(bytes([2, 2]))
    place.original.touch()
    assert verify(place.catalog) == []
    publish(place.catalog)
    assert place.states() == [(1, "valid", ""), (2, "valid", "")]


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda path: os.truncate(path, 100),
        lambda path: (path.rename(path.with_name("x")), shutil.copy(path.with_name("x"), path)),
    ],
    ids=["deleted", "truncated", "another file"],
)
def test_h62_replicas_of_what_is_not_there_any_more_stay_stale(place: Place, change):
    before = place.catalog.originals.all()
    change(place.original)
    verify(place.catalog)
    assert [state for _, state, _ in place.states()] == ["stale", "stale"]
    assert place.published() == []
    assert place.catalog.originals.all() == before


@pytest.mark.parametrize("step", ["_difference", "_compared"])
def test_h62_a_change_during_or_after_the_comparison_is_seen(place: Place, monkeypatch: pytest.MonkeyPatch, step: str):
    before = place.catalog.originals.all()
    place.original.touch()
    compare = getattr(verify_module, step)

    def change(*words: object) -> object:
        found = compare(*words)
        damage(place.original, 0, keep_times=False)
        return found

    monkeypatch.setattr(verify_module, step, change)
    verify(place.catalog)
    assert [state for _, state, _ in place.states()] == ["stale", "stale"]
    assert place.published() == []
    assert place.catalog.originals.all() == before


def test_an_original_that_cannot_be_read_now_is_compared_later(place: Place, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise PdlaError("it is changed again and again")

    place.original.touch()
    with monkeypatch.context() as broken:
        broken.setattr(verify_module, "stable_identity", fails)
        assert [(one.away, one.problem) for one in verify(place.catalog)] == [
            (True, "cannot be compared: it is changed again and again")
        ] * 2
    assert verify(place.catalog) == []
    assert place.published() == [1, 2]


def test_h21_an_original_of_the_same_size_and_mtime_is_found_by_its_ctime(place: Place):
    damage(place.original, 0)
    assert len(verify(place.catalog)) == 2


def test_a_deep_comparison_finds_an_original_that_differs_behind_an_unchanged_identity(place: Place):
    """A change that a file system without ctime would hide."""
    damage(place.original, 64 * 5)
    place.catalog.originals.set(place.original, identity_now(place.original))
    assert verify(place.catalog) == []
    (finding, *others) = verify(place.catalog, deep=True)
    assert (finding.replica, finding.path) == (1, place.original)
    assert finding.problem == "differs from the replica at the replica's byte 16448"
    assert others == []


def identity_now(path: Path):
    from pdla.replicator.identity import identity_of

    return identity_of(path)


def test_status_has_a_row_per_replica(place: Place):
    first, second = status(place.catalog).to_json(place.catalog)["replicas"]
    assert (first["id"], first["state"], first["bytes"], first["layout"], first["pool"]) == (
        1,
        "valid",
        65536,
        "1-DH",
        "disks",
    )
    assert first["original"] == str(place.original)
    assert first["signature"] == "{READ, 0, 2, ([256, 64, 256], [64, 64, 4]r), 1}"
    assert first["components"] == [{"path": str(place.component(1, n)), "bytes": 32768} for n in range(2)]
    assert (second["id"], second["why"]) == (2, "")


def test_status_sees_a_changed_original(place: Place):
    damage(place.original, 0, keep_times=False)
    assert [one.state for one in status(place.catalog).replicas] == ["stale", "stale"]


def test_unreachable_storage_is_reported_and_its_replicas_stay(place: Place):
    """So that they serve again when it is back. Its directory stands for a disk that is not mounted."""
    pool, away = place.map_path.parent / "pools" / "b", place.map_path.parent / "away"
    path = place.component(1, 1)
    pool.rename(away)
    problem = "cannot be reached: its directory does not exist"
    assert verify(place.catalog)[0] == Finding(1, path, problem, away=True)
    assert [state for _, state, _ in place.states()] == ["valid", "valid"]
    found = status(place.catalog)
    assert found.missing == {1: f"{path.parent}/", 2: f"{path.parent}/"}
    assert f"replicas 1, 2 are unreachable: {path.parent}/ does not exist" in " ".join(status_text(found, []).split())
    away.rename(pool)
    assert verify(place.catalog) == []
    assert place.published() == [1, 2]


def test_what_is_listed_of_many_replicas_fits_80_columns(place: Place):
    """Also if a path would control the terminal: its bytes are shown as escapes."""
    odd = place.original.with_name("odd\n\x1b[2J" + os.fsdecode(b"m\xe4rz") + "x" * 100)
    place.original.rename(odd)
    place.catalog.originals.set(odd, identity_now(odd))
    text = status_text(status(place.catalog), [])
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())
    assert r"odd\x0a\x1b[2Jm\xe4rz" in "".join(text.split())
    assert "2 replicas: 2 valid (64.5 KiB)." in text


def test_removing_takes_a_replica_out_of_the_map_and_off_the_disks(place: Place):
    assert remove(place.catalog, 1) == Removed(65536, ())
    assert place.published() == [2]
    assert place.files() == ["2.0", "2.1"]
    assert place.states() == [(2, "valid", "")]


def test_removing_an_unknown_replica_is_refused(place: Place):
    with pytest.raises(PdlaError, match="there is no replica 7"):
        remove(place.catalog, 7)


def test_gc_removes_stale_replicas_and_old_state_files_only(place: Place):
    place.catalog.replicas.mark(1, "stale", "old")
    other = place.map_path.parent / "replicas.map.txt"
    other.write_text("not ours")
    assert gc(place.catalog) == Removed(65536, ())
    assert place.files() == ["2.0", "2.1"]
    assert place.published() == [2]
    left = sorted(file.name for file in place.map_path.parent.glob("replicas.map*"))
    assert left == ["replicas.map", read_map(place.map_path).state_path.name, "replicas.map.txt"]


def test_what_cannot_be_removed_stays_on_record(place: Place):
    """A disk that is not mounted: its directory is missing. The component on the other disk is removed."""
    away, pool = place.map_path.parent / "away", place.map_path.parent / "pools" / "b"
    place.catalog.replicas.mark(1, "stale", "old")
    path = place.component(1, 1)
    pool.rename(away)
    problem = "cannot be removed: its directory is missing (is its file system mounted?)"
    for freed in (32768, 0):
        assert gc(place.catalog) == Removed(freed, (Finding(1, path, problem),))
        assert place.states() == [(1, "retired", f"{path} {problem}"), (2, "valid", "")]
    away.rename(pool)
    assert gc(place.catalog) == Removed(32768, ())
    assert place.states() == [(2, "valid", "")]
    assert place.files() == ["2.0", "2.1"]


def test_gc_replaces_a_damaged_map(place: Place):
    place.map_path.write_bytes(b"PDLAMAP1")
    assert gc(place.catalog) == Removed(0, ())
    assert place.published() == [1, 2]


def test_a_damaged_map_is_made_anew(place: Place):
    place.map_path.write_bytes(b"")
    assert verify(place.catalog) == []
    assert place.published() == [1, 2]


def test_gc_removes_reports_of_killed_runs_only(place: Place):
    home = place.map_path.parent
    killed, running = home / "run.killed", home / "run.running"
    for directory in (killed, running):
        directory.mkdir()
    held = os.open(running, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    gc(place.catalog)
    os.close(held)
    assert (killed.exists(), running.exists()) == (False, True)
