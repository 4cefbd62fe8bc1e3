"""Which file bytes wait for: C and Python tell it in the same way, from all that is known of the file."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from pdla.replicator.file_identity import (
    FUSE,
    LOCAL,
    NETWORK,
    UNKNOWN,
    FileIdentity,
    Which,
    compare,
    identify,
    put_identity,
)
from pdla.replicator.file_identity import RECORD as IDENTITY
from pdla.replicator.journals import locked, paths_in, read_journal
from pdla.replicator.lost_files import Verdict, look_for
from pdla.replicator.sync import write_back
from pdla.replicator.write_targets import cache_journals_of, journals_of
from tests.support.compilers import GCC, compiled
from tests.support.handmade_journals import CacheJournal
from tests.support.killed_caches import Place
from tests.support.mpi import REPOSITORY, unavailable
from tests.support.small_file_systems import clone_of, two_file_systems

STUB = REPOSITORY / "replicator/stub"
PAIR = np.dtype([("noted", IDENTITY), ("found", IDENTITY), ("this_boot", "<u4"), ("one_path", "<u4")])
ANSWERS = (Which.THIS, Which.OTHER, Which.MAY_BE)
NOWHERE = os.makedev(4000, 1)
"""No file system is mounted from it."""
EXT4, XFS, NFS = 11, 12, 13


@dataclass(frozen=True)
class Pair:
    """Two identities, and how they were found."""

    noted: FileIdentity
    found: FileIdentity
    this_boot: bool = True
    one_path: bool = False

    def compared(self) -> Which:
        path = Path("/data/file")
        other = path if self.one_path else Path("/data/other")
        return compare(self.noted, path, self.found, other, this_boot=self.this_boot)


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("which") / "which_file"
    sources = [REPOSITORY / "tests/programs/which_file.c", STUB / "file_identity.c", STUB / "crc32c.c"]
    compiled([*GCC, "-std=gnu11", "-Wall", "-Wextra", f"-I{STUB}", "-o", program, *sources])
    return program


def compared_in_c(program: Path, pairs: Sequence[Pair]) -> list[Which]:
    rows = np.zeros(len(pairs), dtype=PAIR)
    for row, pair in zip(rows, pairs, strict=True):
        put_identity(row["noted"], pair.noted)
        put_identity(row["found"], pair.found)
        row["this_boot"], row["one_path"] = pair.this_boot, pair.one_path
    said = subprocess.run([program], input=rows.tobytes(), check=True, capture_output=True).stdout
    return [ANSWERS[digit - ord("0")] for digit in said]


HERE = Path("/").stat().st_dev
FILE = FileIdentity(NOWHERE, 7, 1000, EXT4, LOCAL, 1, b"generation 1")
SEEN = replace(FILE, device=HERE)
REMOTE = FileIdentity(NOWHERE, 7, 1000, NFS, NETWORK, 1, b"generation 1")
SERVED = FileIdentity(NOWHERE, 7, 1000, NFS, FUSE)
BARE = FileIdentity(NOWHERE, 7)
"""Of a journal of 0.2.0 on a file system without births."""
TABLE = {
    "the same": (Pair(FILE, FILE), Which.THIS),
    "another number": (Pair(FILE, replace(FILE, inode=8), one_path=True), Which.OTHER),
    "another birth": (Pair(FILE, replace(FILE, birth_ns=2000), one_path=True), Which.OTHER),
    "another generation": (Pair(FILE, replace(FILE, handle=b"generation 2"), one_path=True), Which.OTHER),
    "another kind of handle": (Pair(FILE, replace(FILE, handle_type=2), one_path=True), Which.OTHER),
    "another type of file system": (Pair(BARE, replace(BARE, reach=LOCAL, system=XFS)), Which.THIS),
    "another known type of file system": (
        Pair(replace(BARE, reach=LOCAL, system=EXT4), replace(BARE, reach=LOCAL, system=XFS), one_path=True),
        Which.OTHER,
    ),
    "local and not": (Pair(replace(BARE, reach=LOCAL), replace(BARE, reach=NETWORK), one_path=True), Which.OTHER),
    "a clone beside the file system": (Pair(SEEN, FILE, one_path=True), Which.OTHER),
    "mounted again from another device": (Pair(FILE, SEEN, one_path=True), Which.THIS),
    "a clone or the same under another name": (Pair(FILE, SEEN), Which.MAY_BE),
    "after a restart": (Pair(FILE, FILE, this_boot=False), Which.THIS),
    "after a restart, from another device": (Pair(FILE, SEEN, this_boot=False, one_path=True), Which.THIS),
    "after a restart, under another name": (Pair(FILE, SEEN, this_boot=False), Which.MAY_BE),
    "on another node": (Pair(REMOTE, replace(REMOTE, device=HERE), this_boot=False), Which.THIS),
    "of another server": (Pair(REMOTE, replace(REMOTE, device=HERE, system=9), this_boot=False), Which.MAY_BE),
    "by another mount of a FUSE": (Pair(SERVED, replace(SERVED, device=HERE)), Which.THIS),
    "by another mount without births": (
        Pair(replace(SERVED, birth_ns=0), replace(SERVED, birth_ns=0, device=HERE)),
        Which.MAY_BE,
    ),
    "of 0.2.0": (Pair(BARE, FILE), Which.THIS),
    "of 0.2.0, with another birth": (Pair(replace(BARE, birth_ns=1), FILE), Which.OTHER),
    "of 0.2.0, after a restart": (Pair(BARE, FILE, this_boot=False), Which.MAY_BE),
}


@pytest.mark.parametrize("case", TABLE)
def test_h67_which_file_it_is(case: str, in_c: Path) -> None:
    pair, wanted = TABLE[case]
    assert pair.compared() is wanted
    assert compared_in_c(in_c, [pair]) == [wanted]


def test_h67_c_and_python_give_the_same_answers(in_c: Path) -> None:
    choose = random.Random(5)

    def any_file() -> FileIdentity:
        handle = choose.choice([b"", b"generation 1", b"generation 2", b"longer"])
        return FileIdentity(
            choose.choice([HERE, NOWHERE, NOWHERE + 1]),
            choose.choice([7, 7, 7, 8]),
            choose.choice([0, 1000, 2000]),
            choose.choice([EXT4, NFS]),
            choose.choice([UNKNOWN, LOCAL, LOCAL, NETWORK, FUSE]),
            choose.choice([1, 1, 2]) if handle else 0,
            handle,
        )

    pairs = [Pair(any_file(), any_file(), choose.random() < 0.5, choose.random() < 0.5) for _ in range(4000)]
    wanted = [pair.compared() for pair in pairs]
    assert set(wanted) == set(Which)
    assert compared_in_c(in_c, pairs) == wanted


def test_h67_a_number_that_was_given_to_a_new_file_proves_that_the_old_one_is_gone(tmp_path: Path) -> None:
    with two_file_systems(tmp_path) as (one, _):
        if not os.path.ismount(one):
            unavailable("a file system cannot be mounted")
        first = identify(_made(one / "file"))
        (one / "file").unlink()
        second = identify(_made(one / "file"))
        assert first.inode == second.inode and not first.agrees(second)
        assert first.was_replaced_by(second) and not first.was_replaced_by(first)
        assert not first.was_replaced_by(replace(second, system=0))


def test_h67_a_clone_has_all_numbers_of_its_file_system(tmp_path: Path, in_c: Path) -> None:
    with two_file_systems(tmp_path) as (one, _):
        if not os.path.ismount(one):
            unavailable("a file system cannot be mounted")
        file = identify(_made(one / "file"))
        with clone_of(one) as clone:
            copy = identify(clone / "file")
            assert file.agrees(copy) and file.device != copy.device
            for pair in (Pair(file, copy), Pair(copy, file), Pair(file, copy, one_path=True)):
                assert pair.compared() is Which.OTHER
                assert compared_in_c(in_c, [pair]) == [Which.OTHER]


def _made(path: Path) -> Path:
    path.write_bytes(b"some")
    return path


# ---- pdla sync -------------------------------------------------------------------------------------------------------


def left(place: Place, directory: Path, target: Path, number: int, data: bytes) -> CacheJournal:
    """The journal of a process that was killed, whose bytes for the file wait in a cache file."""
    cache = place.directory / f"pdla-{number}.cache"
    cache.write_bytes(data)
    cache.chmod(0o600)
    journal = CacheJournal(directory, target, cache, [(0, 0, len(data), number + 1)], number=number)
    journal.write()
    return journal


def test_h70_files_that_share_a_directory_of_journals_each_get_their_bytes(place: Place) -> None:
    targets = [_made(place.directory / name) for name in ("one", "two", "three")]
    for number, target in enumerate(targets):
        left(place, place.noted, target, number, target.name.encode())
    targets[2].rename(place.directory / "elsewhere")
    rows = write_back(place.catalog)
    assert [(row.bytes, row.problem) for row in rows] == [(3, ""), (3, ""), (5, "")]
    assert [path.read_bytes() for path in targets[:2]] == [b"onee", b"twoe"]
    assert (place.directory / "elsewhere").read_bytes() == b"three"
    assert not place.noted.exists()


def test_h70_a_file_that_cannot_be_found_keeps_no_other_from_its_bytes(place: Place) -> None:
    gone, there = (_made(place.directory / name) for name in ("gone", "there"))
    kept = left(place, place.noted, gone, 0, b"lost")
    left(place, place.noted, there, 1, b"home")
    shutil.move(gone, tempfile.mkdtemp())  # far from its name
    first, second = sorted(write_back(place.catalog, conflict="overwrite"), key=lambda row: row.original)
    assert "was moved or removed, or is not mounted" in first.problem and "discard" not in first.problem
    assert (second.bytes, there.read_bytes()) == (4, b"home")
    assert kept.path.exists() and kept.cache.read_bytes() == b"lost"


def test_h70_bytes_are_dropped_of_the_file_that_is_named(place: Place) -> None:
    """Of the two of one directory."""
    files = [_made(place.directory / name) for name in ("one", "two")]
    for number, file in enumerate(files):
        left(place, place.noted, file, number, b"some")
        shutil.move(file, tempfile.mkdtemp())  # far from its name
    (row,) = write_back(place.catalog, only=files[1], conflict="discard")
    assert (row.original, row.dropped) == (files[1], 4)
    (row,) = write_back(place.catalog, conflict="discard")
    assert row.original == files[0] and "is not mounted" in row.problem and row.dropped == 0


def _damage(path: Path) -> None:
    path.write_bytes(b"PDLAJNL4" + bytes(5000))


def test_h70_bytes_of_another_file_stay_when_a_journal_of_the_named_file_is_damaged(place: Place) -> None:
    """What is damaged is of the file whose name the directory has, for all that is known."""
    named, other = place.original, _made(place.directory / "other")
    kept = left(place, place.noted, other, 0, b"rest")
    left(place, place.noted, named, 1, b"some")
    _damage(left(place, place.noted, named, 2, b"more").path)
    (row,) = write_back(place.catalog, only=named)
    assert "is a damaged journal" in row.problem and row.problem.endswith(": 4 bytes wait in cache files")
    (row,) = write_back(place.catalog, only=named, conflict="discard")
    assert (row.original, row.dropped) == (named, 4)
    assert paths_in(place.noted) == [kept.path]
    (row,) = write_back(place.catalog)
    assert (row.original, row.bytes, other.read_bytes()) == (other, 4, b"rest")
    assert not place.noted.exists()


@pytest.mark.parametrize("found_by", ["name", "name of a cache", "inode"])
def test_h47_a_file_of_which_nothing_but_a_damaged_journal_is_left_can_be_named(place: Place, found_by: str) -> None:
    target, root = place.original, place.noted.parent
    directory = {
        "name": journals_of(root.parent / "replicas.map", target),
        "name of a cache": cache_journals_of(root.parent / "replicas.map", target),
        "inode": place.noted,
    }[found_by]
    _damage(left(place, directory, target, 0, b"some").path)
    if found_by == "inode":
        note = root / "inodes" / str(target.stat().st_ino) / directory.name
        note.parent.mkdir(parents=True)
        note.touch()
    (row,) = write_back(place.catalog, only=target)
    assert row.original == target and "is a damaged journal" in row.problem
    assert write_back(place.catalog, only=place.directory / "other") == []
    (row,) = write_back(place.catalog, only=target, conflict="discard")
    assert (row.original, row.problem, paths_in(directory)) == (target, "", [])


def test_h68_a_file_whose_last_name_was_seen_to_go_is_gone(place: Place) -> None:
    target = _made(place.directory / "file")
    journal = left(place, place.noted, target, 0, b"some")
    target.unlink()
    (read,) = [read_journal(journal.path)]
    assert look_for([read]).verdict is Verdict.NOT_KNOWN
    assert look_for([replace(read, attributes=(*read.attributes[:-1], 0))]).verdict is Verdict.GONE


def test_h68_files_near_the_old_name_are_looked_at_up_to_a_number(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (place.directory / "d").mkdir()
    target = _made(place.directory / "d" / "file")
    journal = read_journal(left(place, place.noted, target, 0, b"some").path)
    target.parent.rename(place.directory / "moved")
    assert look_for([journal]).path == place.directory / "moved" / "file"
    monkeypatch.setattr("pdla.replicator.lost_files.MOST_LOOKED_AT", 0)
    found = look_for([journal])
    assert found.verdict is Verdict.NOT_KNOWN and "among 0 files near its name" in found.why


def test_h69_a_change_that_only_may_have_happened_is_asked_about(place: Place) -> None:
    target = _made(place.directory / "file")
    left(place, place.noted, target, 0, b"NEW!")
    before = target.stat()
    target.write_bytes(b"back")
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    (row,) = write_back(place.catalog)
    assert row.problem.startswith("somebody else has changed it since") and target.read_bytes() == b"back"
    (row,) = write_back(place.catalog, conflict="overwrite")
    assert row.bytes == 4 and target.read_bytes() == b"NEW!"


@pytest.mark.parametrize("change", ["chmod", "link", "rename"])
def test_h69_what_only_changes_the_ctime_and_can_be_told_is_no_change(place: Place, change: str) -> None:
    target = _made(place.directory / "file")
    left(place, place.noted, target, 0, b"NEW!")
    if change == "chmod":
        target.chmod(0o640)
    elif change == "link":
        os.link(target, place.directory / "other")
    else:
        target = target.rename(place.directory / "other")
    (row,) = write_back(place.catalog)
    assert (row.problem, target.read_bytes()) == ("", b"NEW!")


def test_h70_notes_and_directories_without_journals_are_removed(place: Place) -> None:
    root = place.noted.parent
    for name in ("cache-1", "target"):
        (root / name).mkdir(parents=True)
    for inode, name in ((5, "cache-1"), (5, "target"), (6, "vanished")):
        (root / "inodes" / str(inode)).mkdir(parents=True, exist_ok=True)
        (root / "inodes" / str(inode) / name).touch()
    assert write_back(place.catalog) == []
    assert sorted(path.name for path in root.iterdir()) == ["inodes", "target"]
    assert list((root / "inodes").iterdir()) == []


def test_h70_whoever_waits_for_a_lock_file_that_is_removed_makes_a_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "cache-1"
    with locked(directory) as busy:
        assert busy == ""
        shutil.rmtree(directory)
        with locked(directory) as again:
            assert again == "" and (directory / "lock").exists()


def test_a_file_that_does_not_exist_has_no_identity(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        identify(tmp_path / "nothing")
    with (tmp_path / "file").open("wb") as file:
        assert identify(file.fileno()) == identify(tmp_path / "file")
    assert identify(tmp_path).inode == tmp_path.stat().st_ino
