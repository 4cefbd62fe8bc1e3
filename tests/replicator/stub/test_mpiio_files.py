"""Bytes that wait are neither lost nor mistaken, whatever others do to their files: tests/searches/mpiio_files.py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.searches.mpiio import Program
from tests.searches.mpiio_files import MODES, Tools, make, run
from tests.support.file_oracle import File, Image, Names, WrongError
from tests.support.mpi import available_mpis, unavailable

NOBODY = 65534


@pytest.fixture(scope="module")
def outside() -> Iterator[Path]:
    """A directory that another user can go through. Each pytest that starts closes those of all others."""
    with tempfile.TemporaryDirectory(prefix="pdla-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="module")
def tools(library: Path, outside: Path) -> Iterator[Tools]:
    (mpi,) = available_mpis()[0].values
    before = os.umask(0)
    (outside / "tools").mkdir()
    with Tools.prepared(mpi, outside / "tools", library) as tools:
        yield tools
    os.umask(before)


@pytest.fixture
def scratch(outside: Path) -> Iterator[Path]:
    """Where another user can go."""
    with tempfile.TemporaryDirectory(dir=outside) as name:
        Path(name).chmod(0o711)
        yield Path(name)


SEEDS = range(300, 306)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.thorough(4)
def test_random_programs_between_operations_of_others_lose_nothing(mode: str, tools: Tools, scratch: Path) -> None:
    outcomes = {seed: run(make(seed), mode, tools, scratch).wrong for seed in SEEDS}
    assert outcomes == dict.fromkeys(SEEDS, "")


@pytest.mark.parametrize("mode", ["s4d", "lease", "e10-close"])
@pytest.mark.thorough(1)
def test_random_programs_beside_another_user_with_traps_lose_nothing(mode: str, tools: Tools, scratch: Path) -> None:
    if os.geteuid() != 0:
        unavailable("only root can be two users")
    outcomes = {seed: run(make(seed, traps=True), mode, tools, scratch, NOBODY).wrong for seed in SEEDS}
    assert outcomes == dict.fromkeys(SEEDS, "")


WAITING = "mpi 1 mode open:u:a write:0:20:1:all kill"
CASES = {
    "a link is deleted by MPI": [WAITING, "symlink a", "mpi 1 mode delete:l"],
    "a link is removed": [WAITING, "symlink a", "under mode rm l"],
    "one of two names is removed": [WAITING, "link a c", "under mode rm a"],
    "a name of the same file is renamed onto it": [WAITING, "link a c", "under mode mv a c"],
    "two files change their names under pdla": [WAITING, "copy a c", "under mode exchange c a"],
    "a file of the same number is removed": [WAITING, "twin a", "under mode rm t"],
    "a file of the same number is deleted by MPI": [WAITING, "twin a", "mpi 1 mode delete:t"],
    "a file of the same number is written": [WAITING, "twin a", "mpi 1 mode open:u:t write:5:9:2:all close"],
    "a clone is read": [WAITING, "clone a mpi 1 mode open:r:k read:all close"],
    "a clone is written": [WAITING, "clone a mpi 1 mode open:u:k write:30:5:2:all close"],
    "a clone is deleted": [WAITING, "clone a mpi 1 mode delete:k"],
    "a backup is restored": ["copy -p a bak", WAITING, "copy -p bak a", "pdla sync"],
    "a backup is restored before an open": ["copy -p a bak", WAITING, "copy -p bak a", "mpi 1 mode open:u:a close"],
    "the directory is renamed": [WAITING, "turn", "pdla sync"],
    "a map is published after the directory is renamed": [
        *(WAITING, "turn", "pdla rm 1", "pdla rm 2", "pdla rm 3", "mpi 1 mode open:r:a read:all close"),
    ],
    "two files change their names": [WAITING, "rename a c", "rename b a", "rename c b", "pdla sync"],
    "the name is another file's": [WAITING, "rename a f/x", "remake a 7", "mpi 1 mode open:r:a read:all close"],
    "the number is that of many files before": [
        "mpi 1 mode rotate:60:c",
        "mpi 1 mode open:u:c write:0:20:1:all kill",
        "mpi 1 mode open:r:c read:all close",
    ],
    "another writes while a call writes elsewhere": [
        "mpi 1 mode open:u:a begin:0:10:1 pause:change,a,3456,96,77 end close",
        "mpi 1 mode open:r:a read:all close",
    ],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["close", "e10-close", "original", "s4d"])
@pytest.mark.thorough(2 * len(CASES))
def test_what_others_do_to_a_file_whose_bytes_wait(case: str, mode: str, tools: Tools, scratch: Path) -> None:
    assert run(Program(1, 2, tuple(CASES[case])), mode, tools, scratch).wrong == ""


@pytest.mark.parametrize("kind", ["directories", "links"])
@pytest.mark.parametrize("mode", ["s4d", "ibridge"])
@pytest.mark.thorough(2)
def test_bytes_of_another_user_are_not_brought_home(kind: str, mode: str, tools: Tools, scratch: Path) -> None:
    if os.geteuid() != 0:
        unavailable("only root can be two users")
    lines = (f"trap {kind}", "mpi 1 mode open:u:a write:0:20:1:each kill", "trap garbage", "pdla sync")
    assert run(Program(1, 2, lines), mode, tools, scratch, NOBODY).wrong == ""


# ---- the oracle ------------------------------------------------------------------------------------------------------


def waiting_file() -> File:
    """Ten bytes, of which five wait."""
    file = File(Image.of(b"0123456789"), b"0123456789")
    file.written(0, b"abcde", waits=True)
    return file


def test_the_oracle_takes_each_byte_that_waits_at_home_or_not() -> None:
    for found in (b"0123456789", b"abcde56789", b"ab23456789"):
        waiting_file().check(found)
    for found in (b"abcde56780", b"0123x56789", b"abcde"):
        with pytest.raises(WrongError):
            waiting_file().check(found)


def test_the_oracle_takes_only_the_newest_bytes_when_nothing_waits() -> None:
    file = waiting_file()
    file.settle()
    with pytest.raises(WrongError):
        file.check(b"0123456789")
    file.check(b"abcde56789")


def test_the_oracle_lets_a_write_that_was_killed_have_been_done_or_not() -> None:
    file = File(Image.of(b"0123"), b"0123")
    file.written(2, b"xyz", waits=False, certain=False)
    for found in (b"0123", b"01x3", b"01xyz", b"0123z"):
        file.check(found)
    with pytest.raises(WrongError):
        file.check(b"01w3")


def test_the_oracle_lets_each_of_several_killed_writes_have_been_done_or_not_until_somebody_reads() -> None:
    image = Image.of(b"0123")
    image.maybe(1, b"xy")
    image.maybe(2, b"z")
    assert not any(map(image.difference, (b"0123", b"0xy3", b"0xz3", b"01z3", b"0x23")))
    assert image.difference(b"0z23")
    assert not image.seen(b"0xy3")
    assert image.difference(b"0xz3") and not image.difference(b"0xy3")


def test_the_oracle_wants_what_waited_over_a_change_and_nothing_else() -> None:
    file = waiting_file()
    file.change()
    file.image.write(0, b"NEWBYTES!!")
    file.home = b"NEWBYTES!!"
    file.check_overwritten(b"abcdeTES!!")
    for found in (b"NEWBYTES!x", b"abcdeTES!x", b"abNEWTES!!"):
        with pytest.raises(WrongError):
            file.check_overwritten(found)


def test_the_oracle_excuses_a_refusal_only_by_a_change_or_a_name_that_passed_on() -> None:
    names, file, path = Names(), waiting_file(), Path("/d/a")
    names.put("a", file, path)
    assert not names.may_refuse(file, path)
    names.move("a", path, "b", Path("/d/b"))
    assert names.may_refuse(None, path) and not names.may_refuse(file, Path("/d/b")) and not names.gone
    names.put("c", file, Path("/d/c"))
    assert not names.may_refuse(file, Path("/d/b"))
    names.drop("c", Path("/d/c"))  # one name again, as before
    assert names.may_refuse(file, Path("/d/b"))
    names.drop("b", Path("/d/b"))
    assert names.gone == {path, Path("/d/b"), Path("/d/c")}


def test_the_oracle_excuses_a_refusal_where_a_file_gets_its_name_back_from_one_that_waits() -> None:
    names, first, path = Names(), File(Image.of(b""), b""), Path("/d/a")
    names.put("a", first, path)
    names.move("a", path, "b", Path("/d/b"))
    names.put("a", waiting_file(), path)
    names.move("b", Path("/d/b"), "a", path)
    assert names.may_refuse(first, path)
