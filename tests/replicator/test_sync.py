"""What killed programs and leases leave in replicas is written back by pdla sync, or reported as lost."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdla.accessmap import AccessMap
from pdla.errors import FormatError, PdlaError
from pdla.model import Layout, Loop, Signature
from pdla.processes import this_boot
from pdla.replicator import sync
from pdla.replicator.builder import build
from pdla.replicator.exit_reports import collect
from pdla.replicator.identity import leased
from pdla.replicator.journals import Journal, locked, paths_in, read_journal
from pdla.replicator.mapfile import publish
from pdla.replicator.status import status
from pdla.replicator.sync import STAMP_SLACK_NS, write_back
from pdla.replicator.verify import gc, remove
from pdla.replicator.waiting_writes import waiting_writes
from tests.support.clusters import favourable
from tests.support.command_line import Launching
from tests.support.compilers import GCC, compiled
from tests.support.counted_disk import Disk
from tests.support.handmade_journals import Image
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, unavailable
from tests.support.waiting import PATIENCE
from tests.support.written_rounds import (
    HEADER,
    RANKS,
    ROWS,
    WORDS,
    Place,
    check,
    killed_with_journals,
    make_place,
    pattern,
    pool_in,
    run_and_kill,
    said,
)

KILLS = int(os.environ.get("PDLA_TEST_KILLS", "3"))


def column(path: Path) -> Signature:
    """The rows of the first rank."""
    loops = (Loop(RANKS * 8 * WORDS, ROWS),)
    return Signature(str(path), "write", False, HEADER, 8 * WORDS, loops, (0,), 0)


@pytest.fixture
def place(tmp_path: Path, library: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Under MPICH."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    with make_place(mpi, tmp_path, library, programs, monkeypatch) as place:
        yield place


@pytest.fixture
def either(mpi: Mpi, tmp_path: Path, library: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Under each MPI."""
    with make_place(mpi, tmp_path, library, programs, monkeypatch) as place:
        yield place


@pytest.mark.parametrize("kind", ["sync", "close"])
@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.thorough(4)
def test_h32_after_a_kill_sync_writes_back_what_was_acknowledged(either: Place, seed: int, kind: str) -> None:
    done, begun = run_and_kill(either, seed, kind, "close")
    rows = write_back(either.catalog)
    assert [(row.problem, row.lost, row.damaged) for row in rows] in ([], [("", (), 0)])
    check(either, done, begun)
    assert either.journals == []
    assert {replica.state for replica in either.catalog.replicas.find()} == {"valid"}
    assert write_back(either.catalog) == []


@pytest.mark.parametrize("seed", range(KILLS // 2))
@pytest.mark.thorough(2)
def test_h32_after_a_kill_a_lease_keeps_what_was_closed(either: Place, seed: int) -> None:
    done, begun = run_and_kill(either, seed, "close", "lease")
    rows = write_back(either.catalog)
    assert [(row.problem, row.lost, row.damaged) for row in rows] in ([], [("", (), 0)])
    check(either, done, begun)
    assert either.journals == []


def write_later(path: Path, content: bytes) -> None:
    """Somebody else writes a file, when a program that was killed has not been writing for long."""
    path.write_bytes(content)
    then = time.time_ns() + STAMP_SLACK_NS + 10**9
    os.utime(path, ns=(then, then))


def test_h19_an_original_that_somebody_else_changed_is_not_written_over(place: Place) -> None:
    killed_with_journals(place)
    write_later(place.original, b"somebody else's")
    (row,) = write_back(place.catalog)
    assert row.problem.startswith("somebody else has changed it since")
    assert (row.bytes, place.original.read_bytes()) == (0, b"somebody else's")
    (replica,) = place.catalog.replicas.find()
    assert replica.state == "dirty"
    with pytest.raises(PdlaError, match="pdla sync"):
        remove(place.catalog, replica.id)
    gc(place.catalog)
    assert [one.state for one in status(place.catalog).replicas] == ["dirty"]
    (row,) = write_back(place.catalog, conflict="discard")
    assert row.dropped > 0 and place.original.read_bytes() == b"somebody else's"
    assert place.catalog.replicas.get(replica.id).state == "valid"


def test_h15_a_deleted_original_is_not_made_again(place: Place) -> None:
    killed_with_journals(place)
    place.original.unlink()
    (row,) = write_back(place.catalog)
    assert row.problem.startswith("there is no file of this name, and the one that was written was not found")
    assert "discard" not in row.problem and not place.original.exists()
    write_later(place.original, b"a new one")
    (row,) = write_back(place.catalog)
    # File systems give the number of a deleted file to the next one, which then proves that the other one is gone.
    assert row.problem.startswith("another file has this name") if row.problem else row.dropped > 0
    if row.problem:
        (row,) = write_back(place.catalog, only=place.original, conflict="discard")
    assert row.dropped > 0 and place.original.read_bytes() == b"a new one"
    assert write_back(place.catalog) == []


def test_h33_after_a_crash_of_the_node_what_was_not_synced_is_reported_as_lost(place: Place) -> None:
    killed_with_journals(place)
    before = place.original.read_bytes()
    for path in place.journals:
        forget_boot(path)
    (row,) = write_back(place.catalog)
    assert (row.bytes, row.problem) == (0, "")
    assert sum(length for _, length in row.lost) > 0
    assert all(HEADER <= start < HEADER + 8 * WORDS * RANKS * ROWS for start, _ in row.lost)
    assert place.original.read_bytes() == before
    assert place.journals == []


def forget_boot(path: Path) -> None:
    """As if the node had been started anew since."""
    image = Image(path)
    image.header["boot"] = b"00000000-0000-0000-0000-000000000000"
    image.write()


def move_to_node(path: Path, host: str, boot: str) -> None:
    """As if the process had been on another node."""
    image = Image(path)
    image.header["host"], image.header["boot"] = host.encode(), boot.encode()
    image.write()


def test_h33_what_another_node_may_have_in_memory_is_not_lost_but_waits_for_it(place: Place) -> None:
    killed_with_journals(place)
    before = place.original.read_bytes()
    waiting = [path for path in place.journals if len(read_journal(path).entries)]
    for path in waiting:
        move_to_node(path, "n2", "00000000-0000-0000-0000-000000000000")
    (row,) = write_back(place.catalog)
    assert (row.bytes, row.lost, row.dropped) == (0, (), 0)
    assert row.problem.endswith("bytes wait on node n2 (run pdla sync there)")
    assert place.journals == waiting and place.original.read_bytes() == before
    gc(place.catalog)
    assert place.journals == waiting
    for path in waiting:  # there
        move_to_node(path, socket.gethostname(), this_boot())
    (row,) = write_back(place.catalog)
    assert row.bytes > 0 and not row.problem and place.original.read_bytes() != before
    assert place.journals == []


def test_h33_each_node_brings_home_its_own_bytes(place: Place) -> None:
    """And what is left of a node that is gone may be dropped."""
    killed_with_journals(place)
    first, *others = [path for path in place.journals if len(read_journal(path).entries)]
    if not others:
        pytest.skip("the program was killed when one rank only had written")
    move_to_node(first, "n2", "00000000-0000-0000-0000-000000000000")
    bytes_there = read_journal(first).bytes
    (row,) = write_back(place.catalog)
    assert row.bytes > 0 and row.problem == f"{bytes_there} bytes wait on node n2 (run pdla sync there)"
    assert place.journals == [first]
    after = place.original.read_bytes()
    (row,) = write_back(place.catalog, conflict="discard")
    assert (row.dropped, row.problem) == (bytes_there, "") and place.journals == []
    assert place.original.read_bytes() == after


def test_a_damaged_entry_of_a_journal_is_reported(place: Place) -> None:
    killed_with_journals(place)
    for path in place.journals:
        if len(read_journal(path).entries):
            image = bytearray(path.read_bytes())
            image[4096 + 8] ^= 1
            path.write_bytes(image)
            break
    (row,) = write_back(place.catalog)
    assert (row.damaged, row.problem) == (1, "")


def test_bytes_of_a_replica_of_another_file_are_never_written_back(place: Place) -> None:
    other = place.original.with_name("other")
    other.write_bytes(bytes(range(256)) * 64)
    signature = Signature(str(other), "read", False, 0, 1024, (Loop(1024, 16),), (0,), 0)
    build(
        signature,
        Layout("disks", 2, 1, (4096, 4096), AccessMap.section(signature)),
        pool_in(place.original.parent),
        place.catalog,
    )
    killed_with_journals(place)
    before = place.original.read_bytes()
    image = Image(next(path for path in place.journals if len(read_journal(path).entries)))
    image.entries[0]["place"] = 2
    image.seal_entry(0)
    image.write()
    (row,) = write_back(place.catalog)
    assert "replica 2" in row.problem
    assert place.original.read_bytes() == before
    assert place.journals != []


def test_h33_a_lost_component_is_reported_and_nothing_is_dropped(place: Place) -> None:
    killed_with_journals(place)
    (replica,) = place.catalog.replicas.find()
    replica.components[0].path.unlink()
    (row,) = write_back(place.catalog)
    assert "missing" in row.problem
    assert place.journals != []


def test_h43_a_running_program_is_not_disturbed(place: Place) -> None:
    out = place.directory / "said"
    job = subprocess.Popen(place.words(str(place.program), str(place.original), str(out), "sync"))
    try:
        while not all(("done", 3) in said(out, rank) for rank in range(RANKS)):
            assert job.poll() is None
            time.sleep(0.01)
        rows = write_back(place.catalog)
        assert [(row.busy, row.bytes) for row in rows] in ([], [(True, 0)])
    finally:
        for rank in range(RANKS):
            with suppress(ProcessLookupError):  # the launcher ends the others after the first
                os.kill(said(out, rank)[0][1], signal.SIGKILL)
        job.wait(timeout=PATIENCE)


def test_a_run_after_a_kill_writes_back_what_was_left_or_leaves_it_to_sync(place: Place) -> None:
    done, begun = killed_with_journals(place)
    writer = place.mpi.compile(REPOSITORY / "tests/programs/writes.c", place.directory / "writes")
    out = place.directory / "reports"
    out.mkdir()
    words = [str(writer), str(place.original), str(out / "rank"), "open", "close"]
    place.mpi.run(place.words(*words, out=out))
    (refused,) = {file["refused"] for path in out.glob("*/*.json") for file in json.loads(path.read_text())["writes"]}
    assert (place.journals == []) == (refused == "")
    assert refused in ("", "bytes of an earlier run wait for pdla sync")
    write_back(place.catalog)
    check(place, done, begun)


def test_h24_what_a_lease_left_is_written_back_by_sync(place: Place) -> None:
    """Under a lease of the original, and not while somebody else has it."""
    writer = place.mpi.compile(REPOSITORY / "tests/programs/rounds.c", place.directory / "once", "-DROUNDS=1")
    out = place.directory / "said"
    place.mpi.run(place.words(str(writer), str(place.original), str(out), "close", writes="lease"))
    assert len(place.journals) == RANKS
    (waiting,) = waiting_writes()
    assert waiting == f"300 KiB of {place.original} are newer in the replica than in the file (run pdla sync)"
    with place.original.open() as file, leased(place.catalog, file.fileno(), place.original):
        (row,) = write_back(place.catalog)
        assert row.bytes == 0 and f"works on {place.original}: wait for it" in row.problem
    (row,) = write_back(place.catalog)
    assert (row.bytes, row.unsynced, row.problem) == (8 * WORDS * ROWS * RANKS, 0, "")
    check(place, 1, 1)
    assert waiting_writes() == []


def test_nothing_is_written_to_a_component_that_is_another_user_s(place: Place) -> None:
    if os.geteuid() != 0:
        unavailable("only root gives files away")
    (replica,) = place.catalog.replicas.find()
    os.chown(replica.components[1].path, 1234, -1)
    writer = place.mpi.compile(REPOSITORY / "tests/programs/rounds.c", place.directory / "once", "-DROUNDS=1")
    out = place.directory / "said"
    place.mpi.run(place.words(str(writer), str(place.original), str(out), "close", writes="lease"))
    assert place.journals == []
    assert not any(any(component.path.read_bytes()) for component in replica.components)
    check(place, 1, 1)


def test_pages_that_are_written_back_in_part_are_read_together(
    disk: Disk, place: Place, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row of three waits: 512 bytes of each 1536 in the 76 pages of the original."""
    with make_place(place.mpi, disk.directory, place.library, programs, monkeypatch, column) as other:
        writer = other.mpi.compile(REPOSITORY / "tests/programs/rounds.c", other.directory / "once", "-DROUNDS=1")
        out = other.directory / "said"
        other.mpi.run(other.words(str(writer), str(other.original), str(out), "close", writes="lease"))
        disk.drop(other.original)
        requests = disk.reads()
        (row,) = write_back(other.catalog)
        assert row.bytes == 8 * WORDS * ROWS
        assert disk.reads() - requests == 1
        check(other, 1, 1)


def test_h31_what_cannot_be_written_back_is_an_error_and_waits(place: Place) -> None:
    """The disk of the original is full behind its first MiB when the program has written there."""
    far = 4 << 20
    signature = pattern(place.original, far)
    build(
        signature,
        Layout("disks", 2, 1, (4096, 4096), AccessMap.section(signature)),
        pool_in(place.directory),
        place.catalog,
    )
    publish(place.catalog)
    source = REPOSITORY / "tests/programs/rounds.c"
    full = ("-DLIMIT=1048576", "-DFULL_LATER")
    writer = place.mpi.compile(source, place.directory / "far", "-DROUNDS=1", f"-DHEADER={far}", *full)
    out = place.directory / "reports"
    out.mkdir()
    place.mpi.run(place.words(str(writer), str(place.original), str(out / "said"), "sync", out=out))
    assert all(what != "done" for rank in range(RANKS) for what, _ in said(out / "said", rank))
    report = collect(out, "")
    assert report.errors == (f"{place.original}: File too large",)
    assert report.writes[0].left_bytes >= 8 * WORDS * RANKS * ROWS
    (row,) = write_back(place.catalog)
    assert (row.bytes, row.problem) == (8 * WORDS * RANKS * ROWS, "")
    words = np.frombuffer(place.original.read_bytes()[far:], dtype=np.uint64).reshape(ROWS, RANKS, WORDS)
    assert int((words >> np.uint64(32)).min()) >= 1


def test_h30_a_replica_that_is_full_leaves_the_call_to_the_original(place: Place) -> None:
    """Its components are sparse and reach further than files may; the original does not."""
    (old,) = place.catalog.replicas.find()
    remove(place.catalog, old.id)
    build(old.signature, Layout("disks", 2, 1, (4096, 4096), 64), pool_in(place.directory), place.catalog)
    publish(place.catalog)
    writer = place.mpi.compile(
        REPOSITORY / "tests/programs/rounds.c", place.directory / "twice", "-DROUNDS=2", "-DLIMIT=2097152"
    )
    out = place.directory / "reports"
    out.mkdir()
    place.mpi.run(place.words(str(writer), str(place.original), str(out / "said"), "sync", out=out))
    assert [said(out / "said", rank)[-1] for rank in range(RANKS)] == [("done", 2)] * RANKS
    check(place, 2, 2)
    (file,) = collect(out, "").writes
    assert file.redirected_calls > 0 and file.errors == ()
    assert "the replica could not be written" in {passed.why for passed in file.passed}


def test_h38_the_lock_outlives_other_descriptors_of_its_file(tmp_path: Path) -> None:
    with locked(tmp_path) as first:
        os.close(os.open(tmp_path / "lock", os.O_RDONLY))
        with locked(tmp_path) as second:
            assert first == ""
            assert second.startswith("pdla (process ") and second.endswith("is doing the write-back")


@pytest.fixture(scope="module")
def journal_unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/programs/journal_unit.c with the address and undefined behaviour sanitizers."""
    program = tmp_path_factory.mktemp("unit") / "journal_unit"
    stub = REPOSITORY / "replicator/stub"
    sources = [REPOSITORY / "tests/programs/journal_unit.c", stub / "journal.c", stub / "crc32c.c"]
    sources += [stub / f"{name}.c" for name in ("file_identity", "intent", "locks", "node_directory", "own_files")]
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    includes = [f"-I{stub}", f"-I{REPOSITORY / 'pdla/interpose'}"]
    compiled([*GCC, *flags, *includes, "-o", program, *sources])
    return program


def test_h32_a_journal_reads_back_as_it_was_written(journal_unit: Path, tmp_path: Path) -> None:
    """Entries that follow one another are one; the journal grows; what is damaged is left out or refused."""
    subprocess.run([journal_unit, "write", tmp_path, "10000"], check=True)
    (path,) = paths_in(tmp_path)
    journal = read_journal(path)
    assert len(journal.entries) == 5001
    assert journal.entries[0].tolist() == [7, 0, 10]
    assert journal.entries[1].tolist() == [7, 20, 40]
    assert (journal.bytes, journal.damaged, journal.synced) == (100_000, 0, 1)
    done = subprocess.run([journal_unit, "damage", path, "3000"], check=True, capture_output=True, text=True)
    refused, damaged = map(int, done.stdout.split())
    assert refused > 0 and damaged > 0
    image = path.read_bytes()
    choose = random.Random(1)
    for _ in range(50):
        broken = bytearray(image)
        for _ in range(choose.randint(1, 8)):
            broken[choose.randrange(len(broken))] ^= 1 << choose.randrange(8)
        path.write_bytes(broken)
        with suppress(FormatError):
            assert read_journal(path).bytes <= 100_000


def test_h33_the_library_distinguishes_boots_of_the_node(journal_unit: Path, tmp_path: Path) -> None:
    """An open must not write back what a crash may have torn, either."""
    subprocess.run([journal_unit, "write", tmp_path, "10"], check=True)
    (path,) = paths_in(tmp_path)
    for other in ("00000000-0000-0000-0000-000000000000", ""):
        done = subprocess.run([journal_unit, "boot", path, other], check=True, capture_output=True, text=True)
        assert done.stdout == "1 0\n"


def test_h32_what_is_written_back_is_durable_before_its_journals_are_removed(
    place: Place, done_to_files: list[tuple[str, str]]
) -> None:
    writer = place.mpi.compile(REPOSITORY / "tests/programs/rounds.c", place.directory / "once", "-DROUNDS=1")
    place.mpi.run(place.words(str(writer), str(place.original), str(place.directory / "said"), "close", writes="lease"))
    done_to_files.clear()
    (row,) = write_back(place.catalog)
    removed = [at for at, (call, name) in enumerate(done_to_files) if call == "unlink" and name.endswith(".journal")]
    assert (row.bytes, len(removed)) == (8 * WORDS * ROWS * RANKS, RANKS)
    assert ("fsync", place.original.name) in done_to_files[: removed[0]]


def test_h32_after_a_kill_the_original_may_be_later_than_the_last_note_by_the_slack(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed while it wrote to the original could not note its state; later changes are somebody else's."""
    writer = place.mpi.compile(REPOSITORY / "tests/programs/rounds.c", place.directory / "once", "-DROUNDS=1")
    place.mpi.run(place.words(str(writer), str(place.original), str(place.directory / "said"), "close", writes="lease"))
    os.utime(place.original)
    found, read = place.original.stat(), sync._read
    latest = max(found.st_mtime_ns, found.st_ctime_ns) - STAMP_SLACK_NS
    problems = []
    for stamp in (latest - 1, latest):

        def killed(directory: Path, stamp: int = stamp) -> tuple[list[Journal], list[str]]:
            journals, wrong = read(directory)
            return [replace(journal, busy=True, stamp_ns=stamp) for journal in journals], wrong

        monkeypatch.setattr(sync, "_read", killed)
        problems += [row.problem.partition(":")[0] for row in write_back(place.catalog)]
    assert problems == ["somebody else has changed it since", ""]
    check(place, 1, 1)


def test_a_replica_in_another_layout_takes_the_place_of_the_first(place: Place) -> None:
    (old,) = place.catalog.replicas.find()
    pool = pool_in(place.directory)
    again = build(old.signature, old.layout, pool, place.catalog)
    assert (again.id, again.kept) == (old.id, True)
    other = build(old.signature, replace(old.layout, groups=2, strips=(4096,)), pool, place.catalog)
    assert [replica.id for replica in place.catalog.replicas.find()] == [other.id]
    assert not old.components[0].path.exists()


def test_the_loop_with_redirected_writes(tmp_path: Path) -> None:
    """Trace, plan, replicate and run, and the file is the same."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    pdla = Launching(tmp_path, mpi.env)
    writer = mpi.compile(REPOSITORY / "tests/programs/writes.c", tmp_path / "writes")
    data = tmp_path / "data"
    job = mpi.command(1, writer, data, tmp_path / "out", "open", "strided", "close")
    pdla.run("trace", "-o", "run.h5", "--", *job)
    native = data.read_bytes()
    pdla.run("plan", "run.h5", "--writes", "close", "--cluster", favourable(tmp_path), "-o", "plan.json")
    (built,) = pdla.json("replicate", "plan.json", "--json")["replicas"]
    data.unlink()
    report = pdla.json("run", "--writes", "close", "--json", "--", *job)
    (file,) = report["writes"]
    assert data.read_bytes() == native
    assert (file["redirected_calls"], file["back_bytes"], file["left_bytes"]) == (240, 4 * 60 * 96, 0)
    assert pdla.json("status", "--json")["replicas"][0]["purpose"] == "write"
    assert "Nothing to write back." in pdla.run("sync").stdout
    # A file without close and write-back fails the run, and its bytes stay in the replicas.
    unclosed = mpi.command(1, writer, data, tmp_path / "out", "open", "strided", "limit")
    assert "File too large" in pdla.run("run", "--writes", "close", "--", *unclosed, code=1).stderr
    pdla.run("sync")
    assert data.read_bytes() == native
    assert pdla.json("verify", "--json") == {"checked": 1, "findings": []}
    assert pdla.json("rm", str(built["id"]), "--json")["bytes"] > 0
