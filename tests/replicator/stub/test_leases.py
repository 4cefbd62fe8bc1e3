"""Whoever opens, examines, renames or deletes a file under a lease of writes finds its newest bytes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pdla.replicator.identity import identity_of, leased
from pdla.replicator.intent import HeldIntent
from pdla.replicator.journals import HEADER as JOURNAL
from pdla.replicator.journals import locked
from pdla.replicator.mapfile import publish
from pdla.replicator.sync import write_back
from pdla.replicator.waiting_writes import waiting_writes
from pdla.replicator.write_targets import journals_of
from tests.searches.killing_write_backs import interrupter
from tests.support.handmade_journals import Image
from tests.support.leased_files import ERR_IO, Leased, damage
from tests.support.mpi import REPOSITORY, unavailable
from tests.support.waiting import PATIENCE
from tests.support.written_rounds import HEADER, RANKS, check

MODES = ["r", "w", "b", "wa", "ba", "bc", "wca", "bce", "bd"]
LOOKS = ["look", "seek-end", "read"]
CHANGES = [["add"], ["larger"], ["smaller"], ["preallocate"], ["shared-end", "add-shared"]]


def outcome(leased: Leased, writes: str, how: str, mode: str, *steps: str) -> tuple[str, bytes | None]:
    leased.write(writes)
    seen = leased.open(how, mode, *steps)
    write_back(leased.place.catalog)
    assert leased.place.journals == []
    return seen, leased.original.read_bytes() if leased.original.exists() else None


@pytest.mark.parametrize("mode", MODES)
def test_h45_every_mode_of_an_open_finds_what_was_written(file: Leased, mode: str) -> None:
    steps = [*LOOKS, *(["add"] if mode != "r" else []), "look"]
    native = outcome(file, "native", "native", mode, *steps)
    for how in ("original", "lease", "trace"):
        assert outcome(file, "lease", how, mode, *steps) == native, how


@pytest.mark.parametrize("steps", CHANGES, ids=" ".join)
def test_h45_whatever_looks_at_the_size_or_changes_it_finds_what_was_written(file: Leased, steps: list[str]) -> None:
    native = outcome(file, "native", "native", "b", "look", *steps, *LOOKS)
    for how in ("original", "close"):
        assert outcome(file, "lease", how, "b", "look", *steps, *LOOKS) == native, how


def test_h45_what_is_appended_is_behind_what_a_lease_keeps(either_leased: Leased) -> None:
    native = outcome(either_leased, "native", "native", "wa", "look", "add")
    for how in ("original", "close", "lease", "trace", "preloaded"):
        assert outcome(either_leased, "lease", how, "wa", "look", "add") == native, how


def test_h45_a_file_with_shared_pointers_only(file: Leased) -> None:
    native = outcome(file, "native", "native", "bs", "add-shared")
    assert outcome(file, "lease", "original", "bs", "add-shared") == native


CALLS = {
    "cat": ["cat", "{}"],
    "stat": ["stat", "-c", "%s", "{}"],
    "truncate": ["truncate", "-s", "5001", "{}"],
    "cp": ["cp", "{}", "{}.copy"],
    "mv": ["mv", "{}", "{}.moved"],
    "ln": ["ln", "{}", "{}.link"],
    "chmod": ["chmod", "640", "{}"],
    "chown": ["chown", "1", "{}"],
    "rm": ["rm", "{}"],
}


@pytest.mark.parametrize("call", CALLS)
def test_h45_a_program_without_mpi_that_is_preloaded_finds_what_was_written(file: Leased, call: str) -> None:
    words = [word.format(file.original) for word in CALLS[call]]
    results = []
    for writes, how in (("native", "native"), ("lease", "preloaded")):
        for old in file.place.directory.glob("data*"):
            old.unlink()
        file.write(writes)
        done = file.command(how, *words)
        rows = write_back(file.place.catalog)
        assert all(row.problem == "" for row in rows)
        names = {one.name: one.read_bytes() for one in file.place.directory.glob("data*")}
        results.append((done.returncode, done.stdout, names))
    assert results[0] == results[1]
    assert file.place.journals == []


@pytest.mark.parametrize("call", ["mv", "ln", "chmod", "chown", "stat", "cp"])
def test_h28_what_cannot_have_changed_the_bytes_does_not_stop_the_write_back(file: Leased, call: str) -> None:
    """By programs that are not preloaded."""
    file.write()
    done = file.command("native", *(word.format(file.original) for word in CALLS[call]))
    assert done.returncode == 0
    (row,) = write_back(file.place.catalog)
    assert (row.problem, row.bytes) == ("", file.place.original.stat().st_size - 512 if call != "mv" else row.bytes)
    if call == "mv":
        moved = file.original.with_name("data.moved")
        assert (row.original, row.moved_from) == (moved, file.original)
        moved.rename(file.original)
    check(file.place, 1, 1)


def test_h28_a_file_that_was_renamed_has_what_was_written_when_it_is_opened(file: Leased) -> None:
    file.write("native")
    native = file.open("native", "b", *LOOKS)
    file.write()
    moved = file.original.with_name("elsewhere")
    file.original.rename(moved)
    shutil.copy(moved, moved.with_name("data"))  # another file has the name
    out = Path(tempfile.mkdtemp(dir=file.place.directory)) / "rank"
    file.place.mpi.run(file.place.mpi.command(2, *file.environment("original"), file.opener, moved, out, "b", *LOOKS))
    assert "".join(out.with_name(f"rank.{rank}").read_text() for rank in range(2)) == native
    assert file.place.journals == []


@pytest.mark.parametrize("call", ["truncate -s 100", "touch", "touch and chmod"])
def test_what_may_have_changed_the_bytes_is_reported_by_name(file: Leased, call: str) -> None:
    file.write()
    for words in call.split(" and "):  # chmod alone is no change of bytes, and hides none
        more = ["u+x"] if words == "chmod" else []
        assert file.command("native", *words.split(), *more, file.original).returncode == 0
    (row,) = write_back(file.place.catalog)
    assert row.original == file.original and row.problem.startswith("somebody else has changed it since")
    seen = file.open("original", "r", "look")
    assert seen == f"open {ERR_IO} -1\n" * 2
    assert "position" in file.open("original", "r", "look", extra=["PDLA_OLD_BYTES=1"])
    (row,) = write_back(file.place.catalog, conflict="overwrite")
    assert row.bytes > 0
    check(file.place, 1, 1)


def test_h15_bytes_of_a_file_that_cannot_be_found_wait_and_no_line_says_how_to_lose_them(file: Leased) -> None:
    file.write()
    shutil.move(file.original, tempfile.mkdtemp())  # far from its name
    (row,) = write_back(file.place.catalog)
    assert row.original == file.original and "was moved or removed, or is not mounted" in row.problem
    assert "discard" not in row.problem and len(file.place.journals) == RANKS
    (row,) = write_back(file.place.catalog, conflict="discard")
    assert "was moved or removed" in row.problem and len(file.place.journals) == RANKS
    (row,) = write_back(file.place.catalog, only=file.original, conflict="discard")  # it is named
    assert row.dropped > 0 and write_back(file.place.catalog) == []


@pytest.mark.parametrize("how", ["original", "close", "lease", "trace", "preloaded"])
def test_h47_who_cannot_have_the_newest_bytes_gets_an_error(file: Leased, how: str) -> None:
    """A journal is damaged: its seal, its length, or all of it."""
    for spoiled in ("count", "cut", "empty"):
        file.write()
        path = file.place.journals[0]
        image = path.read_bytes()
        at = JOURNAL.fields["count"][1]  # type: ignore[index]
        flipped = image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :]
        path.write_bytes({"count": flipped, "cut": image[:4100], "empty": b""}[spoiled])
        assert file.open(how, "b", "look", "read") == f"open {ERR_IO} -1\n" * 2
        (row,) = write_back(file.place.catalog)
        assert "journal" in row.problem and row.bytes == 0
        if {replica.state for replica in file.place.catalog.replicas.find()} != {"valid"}:
            assert "is damaged (pdla sync says more)" in waiting_writes()[0]
        path.write_bytes(image)
        (row,) = write_back(file.place.catalog)
        assert row.problem == ""
        check(file.place, 1, 1)


@pytest.mark.parametrize("part", ["original", "count", "synced", "states", "entry", "length", "intent"])
def test_h47_all_that_is_kept_of_writes_is_under_checksums(file: Leased, part: str) -> None:
    file.write()
    before = file.original.read_bytes()
    for path in file.place.journals:
        damage(part, path)
    assert file.open("original", "b", "look", "read") == f"open {ERR_IO} -1\n" * 2
    assert file.original.read_bytes() == before
    (row,) = write_back(file.place.catalog)
    assert row.damaged == RANKS or ("damaged" in row.problem and file.original.read_bytes() == before)


@pytest.mark.parametrize("who", ["sync", "open"])
def test_h47_of_two_states_the_newer_one_that_is_whole_counts(file: Leased, who: str) -> None:
    file.write("native")
    native = file.open("native", "b", *LOOKS)
    for spoiled in ("older", "newer"):
        file.write()
        for path in file.place.journals:
            image = Image(path)
            older, newer = sorted(image.header["states"], key=lambda state: int(state["sequence"]))
            assert newer["sequence"] == older["sequence"] + 1
            (older if spoiled == "older" else newer)["size"] += 1
            if spoiled == "older":  # it is whole, and says what was true then, between two writes
                older["busy"] = 0
                image.write()
            else:  # a killed process had not finished it
                path.write_bytes(image.bytes)
        if who == "sync":
            (row,) = write_back(file.place.catalog)
            assert row.problem == ""
        assert file.open("original", "b", *LOOKS) == native
        assert file.place.journals == []


def test_h47_a_damaged_journal_stays_when_its_file_is_deleted(file: Leased) -> None:
    """The others go with the file; nobody knows of which file the damaged one is."""
    file.write()
    damaged = file.place.journals[0]
    damage("original", damaged)
    assert file.command("original", "rm", file.original).returncode == 0
    assert not file.original.exists() and file.place.journals == [damaged]


def test_h28_a_file_that_got_the_number_of_a_deleted_one_is_another(file: Leased) -> None:
    file.write()
    before = file.original.read_bytes()
    for path in file.place.journals:
        image = Image(path)
        if image.header["original"]["birth_ns"] == 0:
            unavailable("the file system does not tell when a file was made")
        image.header["original"]["birth_ns"] += 1
        image.write()
    assert "position" in file.open("original", "r", "look")
    (row,) = write_back(file.place.catalog)
    assert row.problem.startswith("another file has this name")
    assert file.original.read_bytes() == before and len(file.place.journals) == RANKS


def test_an_entry_of_no_bytes_is_damage(file: Leased) -> None:
    file.write()
    image = Image(file.place.journals[0])
    image.entries[0]["seal"] = 0
    image.seal_entry(0)
    image.write()
    (row,) = write_back(file.place.catalog)
    assert row.damaged == 1


def test_the_error_of_a_taken_lease_names_its_holder(file: Leased) -> None:
    file.write()
    with locked(journals_of(file.place.map, file.original), "pdla sync") as busy:
        assert busy == ""
        (row,) = write_back(file.place.catalog)
        assert row.busy and row.problem.startswith(f"pdla sync (process {os.getpid()} on ")
        out = file.place.directory / "waiting"
        words = [*file.environment("original"), file.opener, file.original, out, "r", "look"]
        job = subprocess.Popen(
            [str(word) for word in file.place.mpi.command(2, *words)],
            env={**os.environ, **file.place.mpi.env},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert job.stderr is not None
        line = job.stderr.readline()
        assert line.startswith(f"pdla: {file.original}: waiting, because its newest bytes are being written back by")
        assert f"pdla sync (process {os.getpid()} on " in line and "since 20" in line
    assert job.wait(timeout=PATIENCE) == 0
    assert job.stderr.read() == ""
    job.stderr.close()


def test_a_catalog_lease_keeps_two_from_writing_back(file: Leased) -> None:
    file.write()
    with file.original.open() as opened, leased(file.place.catalog, opened.fileno(), file.original):
        (row,) = write_back(file.place.catalog)
    assert row.bytes == 0 and file.place.journals != []


@pytest.mark.parametrize("who", ["sync", "open"])
def test_h46_an_intent_is_durable_before_the_first_write_and_goes_last(file: Leased, who: str) -> None:
    file.write()
    journals, log = journals_of(file.place.map, file.original), file.place.directory / "log"
    libraries = [file.place.library] if who == "open" else []
    preload = ":".join(map(str, [*libraries, interrupter(file.place.directory)]))
    watched = {"LD_PRELOAD": preload, "INTERRUPT_LOG": str(log), "INTERRUPT_BELOW": f"{file.original}:{journals}"}
    if who == "open":
        file.open("original", "b", "look", ranks=1, extra=[f"{name}={value}" for name, value in watched.items()])
    else:
        pdla = Path(sys.executable).with_name("pdla")
        subprocess.run([pdla, "sync"], env={**os.environ, **watched}, check=True, stdout=subprocess.DEVNULL)
    steps = []
    for line in log.read_text().splitlines():
        call, _, path = line.partition(" ")
        name = re.sub(r".*\.(journal|new)$", r"\1", Path(path).name)
        if name != "lock" and (not steps or steps[-1] != f"{call} {name}"):
            steps.append(f"{call} {name}")
    directory = f"sync {journals.name}"
    assert steps == [
        *("write new", "sync new", "rename intent", directory),
        *("write data", "sync data", "unlink journal", directory, "unlink intent"),
    ]


@pytest.mark.parametrize("who", ["sync", "open"])
def test_h46_a_write_back_with_an_intent_is_not_taken_for_somebody_elses_change(file: Leased, who: str) -> None:
    """A killed pdla sync has written some of it, without noting how it left the file."""
    file.write("native")
    native = file.open("native", "b", *LOOKS)
    file.write()
    with file.original.open("r+b") as original:
        HeldIntent(file.place.journals[0].parents[1], identity_of(original.fileno()))
        original.seek(HEADER)  # nobody may write back what is before it
        original.write(bytes(300))
        original.truncate()
    if who == "sync":
        (row,) = write_back(file.place.catalog)
        assert row.problem == ""
    assert file.open("original", "b", *LOOKS) == native
    assert file.place.journals == [] and not list(journals_of(file.place.map, file.original).glob("intent*"))


def test_h46_whoever_comes_next_ends_what_was_interrupted(library: Path) -> None:
    """pdla sync, the daemon and opens, killed or on a full disk; make kills does that at every step."""
    command = [sys.executable, "-m", "tests.searches.killing_write_backs", "8", "3", "mpich", str(library)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " 0 went wrong" in done.stdout, done.stdout + done.stderr


def deep_map(file: Leased, length: int) -> Path:
    """Publish a map whose directory has a path of so many bytes; return its path."""
    directory = str(file.place.directory / "home")
    while len(directory) < length:
        directory += "/" + "d" * min(length - len(directory) - 1, 200)
    publish(file.place.catalog, Path(directory) / "m")
    return Path(directory) / "m"


@pytest.mark.parametrize("which", ["none", "journals", "notes", "locks"])
def test_h36_nothing_is_lost_where_paths_of_journals_are_too_long(file: Leased, which: str) -> None:
    """The longer the path of the map's directory, the fewer of the files in it have paths of at most 4,095 bytes."""
    node = f"{36 * 'b'}-{file.place.directory.stat().st_dev:x}.journal"
    journal = f"/journals/{16 * 'h'}/{node}/{socket.gethostname()}-1000-0-{16 * 'f'}.journal"  # or a longer number
    deep = deep_map(file, {"none": 4000, "journals": 4096 - len(journal), "notes": 4062, "locks": 4065}[which])
    file.original.write_bytes(b"")
    words = [str(file.writer), str(file.original), str(file.place.directory / "said"), "close"]
    file.place.mpi.run(file.place.words(f"PDLA_MAP={deep}", *words, writes="lease"))
    file.open("original", "b", "look", extra=[f"PDLA_MAP={deep}"])
    check(file.place, 1, 1)


@pytest.mark.parametrize("change", ["boot", "host"])
def test_an_open_is_refused_where_not_all_bytes_can_be_trusted(file: Leased, change: str) -> None:
    """The node crashed before the bytes were durable, or another node may have them in memory only."""
    file.write()
    before = file.original.read_bytes()
    image = Image(file.place.journals[0])
    image.header["boot"] = b"0" * 36
    image.header["host"] = b"n2" if change == "host" else image.header["host"]
    image.header["synced"] = 0
    image.write()
    assert file.open("original", "b", "look") == f"open {ERR_IO} -1\n" * 2
    assert file.original.read_bytes() == before and len(file.place.journals) == RANKS


@pytest.mark.parametrize("how", ["damaged", "a link"])
def test_writes_are_not_redirected_where_old_bytes_are_allowed(file: Leased, how: str) -> None:
    """The journals of the earlier job stay, and the new bytes are in the original."""
    file.write()
    file.original.write_bytes(b"")
    for path in file.place.journals:
        if how == "damaged":
            damage("original", path)
        else:
            path.rename(path.with_suffix(".moved"))
            path.symlink_to(path.with_suffix(".moved"))
    file.open("lease", "b", "add", extra=["PDLA_OLD_BYTES=1"])
    assert file.original.read_bytes() == b"12345"
    assert len(file.place.journals) == RANKS


def test_ranks_with_different_maps_do_not_write_back(file: Leased) -> None:
    file.write()
    other = file.place.map.with_name("other.map")
    publish(file.place.catalog, other)
    rank = "PMI_RANK" if file.place.mpi.name == "mpich" else "OMPI_COMM_WORLD_RANK"
    differ = ["sh", "-c", f'[ "${rank}" = 0 ] || export PDLA_MAP={other}; exec "$@"', "sh"]
    assert file.open("original", "b", "look", extra=differ) == f"open {ERR_IO} -1\n" * 2
    assert "position" in file.open("original", "b", "look")
    assert file.place.journals == []
    check(file.place, 1, 1)


def test_an_open_is_refused_where_the_path_of_the_intent_is_too_long(file: Leased) -> None:
    """The journals have shorter names."""
    file.write()
    deep = deep_map(file, 4056)
    journals = file.place.journals
    for number, path in enumerate(journals):
        shutil.copy(path, journals_of(deep, file.original) / f"{number}.journal")
    before = file.original.read_bytes()
    assert file.open("original", "b", "look", extra=[f"PDLA_MAP={deep}"]) == f"open {ERR_IO} -1\n" * 2
    assert file.original.read_bytes() == before
    assert "position" in file.open("original", "b", "look")
    check(file.place, 1, 1)
