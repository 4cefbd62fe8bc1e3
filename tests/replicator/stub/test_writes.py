"""Redirected writes: MPI programs, native and redirected, leave the same files and see the same."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pdla.replicator.exit_reports import collect
from pdla.replicator.journals import read_journal
from pdla.replicator.mapfile import CHANGED, STALE_WHY, STATE_FILE, STATE_HEADER
from tests.searches.killing_write_backs import interrupter
from tests.support.compilers import GCC, compiled
from tests.support.counted_disk import Disk
from tests.support.handmade_maps import Replica, write_map, write_places
from tests.support.mpi import (
    REPOSITORY,
    Mpi,
    available_mpis,
    build_coherence_library,
    compile_preloaded,
    debian_mpis,
    unavailable,
)
from tests.support.redirected_writes import FREE, PIECE, ROWS, START, Case, columns, halves, make_case, total
from tests.support.waiting import PATIENCE

LOCKED = re.compile("locked .*")
SIZE = START + 4 * ROWS * PIECE
PROGRAMS = int(os.environ.get("PDLA_TEST_PROGRAMS", "4"))


def reasons(reports: list[dict[str, Any]]) -> set[str]:
    return {passed["why"] for report in reports for passed in report["passed"]}


@pytest.fixture
def case(mpi: Mpi, tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under each MPI, for tests that depend on the MPI."""
    return make_case(mpi, tmp_path, library, programs)


@pytest.fixture
def mpich(tmp_path: Path, library: Path, programs: Path) -> Case:
    """Only under MPICH, for tests of the redirector itself."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return make_case(mpi, tmp_path, library, programs)


@pytest.mark.parametrize("ranks", [1, 6])
def test_every_kind_of_write_leaves_what_it_leaves_natively(case: Case, ranks: int) -> None:
    steps = ["open", "strided", "sync", "pointer", "collective", "at-all", "nonblocking", "split", "joining"]
    reports = case.compare(*steps, "backwards", "close", ranks=ranks)
    assert total(reports, "redirected") > 4 * 4 * ROWS * PIECE
    assert reasons(reports) == set()
    assert total(reports, "brought_back") >= 4 * ROWS * PIECE


def test_pages_that_are_written_in_part_are_read_together(disk: Disk, mpich: Case) -> None:
    """Every third row is written: 384 bytes of each 1152 in the six pages of the original."""
    case = Case(mpich.mpi, mpich.program, mpich.library, disk.directory)
    case.prepare(columns(strips=[1000, 500]))
    before = random.Random(7).randbytes(SIZE)
    case.original.write_bytes(before)
    disk.drop(case.original)
    requests = disk.reads()
    _, reports = case.run("close", "open", "twice", "close", ranks=1)
    assert disk.reads() - requests == 1
    assert total(reports, "brought_back", "requests") == ROWS // 3
    after = case.original.read_bytes()
    row = 4 * PIECE
    changed = [i for i in range(ROWS) if after[START + i * row :][:row] != before[START + i * row :][:row]]
    assert changed == [*range(0, ROWS, 3)]


def test_strided_writes_are_written_back_in_one_piece(mpich: Case) -> None:
    """Each rank writes a column, 60 pieces one after another in the replica; one rank writes the file, at once."""
    reports = mpich.compare("open", "strided", "close")
    assert [report["redirected"]["calls"] for report in reports] == [ROWS] * 4
    assert [report["brought_back"] for report in reports] == [{"bytes": SIZE - START, "requests": 1}] + [
        {"bytes": 0, "requests": 0}
    ] * 3
    assert total(reports, "redirected", "requests") < 4 * ROWS + 4 * (SIZE // 500)


@pytest.mark.parametrize(
    "layout",
    [
        {"groups": 4, "strips": [1000], "section": ROWS * PIECE},
        {"groups": 2, "strips": [0, 100, 7], "section": 1000},
    ],
    ids=["1-DV", "2-D"],
)
def test_a_striped_replica_takes_the_same_writes(mpich: Case, layout: dict[str, Any]) -> None:
    mpich = Case(mpich.mpi, mpich.program, mpich.library, mpich.directory / "other")
    mpich.directory.mkdir()
    mpich.prepare(columns(**layout))
    reports = mpich.compare("open-both", "collective", "own-reads", "strided", "backwards", "close")
    assert total(reports, "redirected") > 0


def test_a_rank_opens_the_components_that_it_writes_to(mpich: Case) -> None:
    """One each. The first rank has had all four emptied before, and has opened the first of these in a thread."""
    if not shutil.which("strace"):
        unavailable("strace is not installed")
    mpich.prepare_anew(columns(groups=4, strips=[1000], section=ROWS * PIECE))
    watch = ["strace", "-ff", "-e", "trace=openat", "-o", mpich.directory / "calls"]
    _, reports = mpich.run("lease", "open", "strided", "close", watch=watch)
    assert total(reports, "redirected") == 4 * ROWS * PIECE
    logs = [log.read_text() for log in mpich.directory.glob("calls.*")]
    assert sorted(log.count("/replica0/") for log in logs if "/replica0/" in log) == [1, 1, 1, 1, 4]


def test_two_replicas_that_interleave_are_written_back_together(mpich: Case) -> None:
    mpich = Case(mpich.mpi, mpich.program, mpich.library, mpich.directory / "other")
    mpich.directory.mkdir()
    mpich.prepare(*halves())
    reports = mpich.compare("open", "strided", "close")
    assert reports[0]["brought_back"] == {"bytes": SIZE - START, "requests": 1}


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_call_that_spans_replicas_is_redirected(case: Case, ranks: int) -> None:
    case = Case(case.mpi, case.program, case.library, case.directory / "other")
    case.directory.mkdir()
    case.prepare(*halves())
    reports = case.compare("open-both", "rows", "visible", "rows", "visible", "twice", "close", ranks=ranks)
    assert total(reports, "redirected", "calls") == 4 * ROWS + 4 * ROWS // 3
    assert reasons(reports) == set()


def test_a_call_that_leaves_the_replicas_is_not_redirected(mpich: Case) -> None:
    """One column of each row has no replica."""
    mpich = Case(mpich.mpi, mpich.program, mpich.library, mpich.directory / "other")
    mpich.directory.mkdir()
    loops = [(ROWS, 4 * PIECE, PIECE)]
    last = Replica(size=ROWS * PIECE, start=START + 3 * PIECE, length=PIECE, loops=loops)
    mpich.prepare(halves()[0], last)
    reports = mpich.compare("open-both", "rows", "strided", "visible", "rows", "close")
    assert reasons(reports) == {"only partly in the replica", "no replica for these writes"}
    assert total(reports, "redirected", "calls") == 3 * ROWS


def test_an_irregular_replica_takes_the_same_writes(mpich: Case) -> None:
    """Rows in any order, of which the last is not all in the replica."""
    row, rows = 4 * PIECE, list(range(ROWS - 1))
    random.Random(7).shuffle(rows)
    extents = [(START + i * row, row, place * row) for i, place in enumerate(rows)]
    mpich.prepare_anew(Replica(size=row * (ROWS - 1), extents=extents, groups=2, strips=[0, 100, 7], section=1000))
    steps = ["open-both", "strided", "own-reads", "collective", "visible", "around", "own-reads", "visible", "joining"]
    reports = mpich.compare(*steps, "visible", "twice", "close")
    assert total(reports, "redirected") > 4 * (ROWS - 1) * PIECE


def test_a_map_whose_extents_share_bytes_of_a_replica_is_refused(mpich: Case) -> None:
    mpich.prepare_anew(Replica(size=200, extents=[(START, 100, 0), (START + 200, 100, 50)]))
    assert mpich.compare("open", "strided", "close") == []


def test_h02_a_collective_write_of_the_library_around_redirected_bytes_does_not_undo_them(case: Case) -> None:
    steps = ["open-both", "strided", "visible", "twice", "around", "own-reads", "twice", "visible"]
    steps += ["around-later", "own-reads", "twice", "visible", "joining", "visible", "twice", "around", "close"]
    reports = case.compare(*steps)
    assert total(reports, "redirected") > SIZE
    assert "nonblocking or split collective that the replicas do not cover" in reasons(reports)


def await_step(case: Case, step: str, earlier: set[Path], job: Future[Any]) -> None:
    """Until a rank of the job has been in this step for a moment; ``earlier`` is what other jobs have printed."""
    while not job.done():
        if any(f"-- {step}" in path.read_text() for path in set(case.directory.glob("*/rank.*")) - earlier):
            break
        time.sleep(0.01)
    time.sleep(0.2)


def test_h02_write_back_waits_for_others_that_write_what_they_have_read(mpich: Case) -> None:
    mpich.run("native", "open-both", "strided", "close", ranks=2)
    native, earlier = mpich.original.read_bytes(), set(mpich.directory.glob("*/rank.*"))
    mpich.original.write_bytes(bytes(SIZE))
    with mpich.original.open("rb+") as other, ThreadPoolExecutor() as threads:
        fcntl.lockf(other, fcntl.LOCK_EX)
        job = threads.submit(mpich.run, "close", "open-both", "strided", "close", ranks=2)
        await_step(mpich, "close", earlier, job)
        other.write(bytes(SIZE))
        other.flush()
        fcntl.lockf(other, fcntl.LOCK_UN)
        job.result()
    assert mpich.original.read_bytes() == native


def test_h02_a_part_that_is_not_redirected_waits_for_others_that_write_what_they_have_read(mpich: Case) -> None:
    """Each rank writes its part of a nonblocking collective call alone, once writes are no longer redirected."""
    steps = ["open-both", "shared", "joining", "close"]
    mpich.original.write_bytes(bytes(SIZE))
    mpich.run("native", *steps, ranks=2)
    native, earlier = mpich.original.read_bytes(), set(mpich.directory.glob("*/rank.*"))
    mpich.original.write_bytes(bytes(SIZE))
    by_shared_pointer = START + 3 * 4 * PIECE
    with mpich.original.open("rb+") as other, ThreadPoolExecutor() as threads:
        fcntl.lockf(other, fcntl.LOCK_EX)
        job = threads.submit(mpich.run, "close", *steps, ranks=2)
        await_step(mpich, "joining", earlier, job)
        other.write(bytes(by_shared_pointer))
        other.seek(PIECE, os.SEEK_CUR)
        other.write(bytes(SIZE - by_shared_pointer - PIECE))
        other.flush()
        fcntl.lockf(other, fcntl.LOCK_UN)
        _, reports = job.result()
    assert mpich.original.read_bytes() == native
    assert "shared file pointer" in reasons(reports)


def test_h02_a_lock_moves_on_with_the_writes_and_waits_once_at_most(tmp_path: Path) -> None:
    """Somebody holds a lock far behind the first writes, and does not let go."""
    program, file, mib = tmp_path / "locks_unit", tmp_path / "file", 1 << 20
    sources = [REPOSITORY / "tests/programs/locks_unit.c", REPOSITORY / "replicator/stub/locks.c"]
    compiled([*GCC, "-std=gnu11", "-Wall", "-Wextra", "-o", program, *sources])
    file.write_bytes(b"")
    writes = [(10, 100), (200, 300), (8 * mib, 8 * mib + 1), (13 * mib, 18 * mib), (19 * mib + 5, 19 * mib + 6)]
    with file.open("rb+") as other:
        fcntl.lockf(other, fcntl.LOCK_EX, mib, 9 * mib)
        done = subprocess.run(
            [program, file, str(20 * mib)],
            input="".join(f"{low} {high}\n" for low, high in writes),
            capture_output=True,
            text=True,
            check=True,
        )
    windows = [
        (10, 4 * mib + 10, 1),
        (10, 4 * mib + 10, 1),
        (8 * mib, 12 * mib, 0),
        (13 * mib, 18 * mib, 1),
        (19 * mib + 5, 20 * mib, 1),
    ]
    assert [tuple(map(int, line.split())) for line in done.stdout.splitlines()] == windows


def test_h06_nonblocking_collectives_follow_those_of_the_library(case: Case) -> None:
    reports = case.compare("open-both", "following", "visible", "joining", "close")
    assert "nonblocking or split collective after a write by the MPI library" in reasons(reports)
    assert total(reports, "redirected") > 0


def test_h01_a_rank_reads_what_it_has_written(case: Case) -> None:
    reports = case.compare("open-both", "strided", "own-reads", "twice", "own-reads", "collective", "read-all", "close")
    assert total(reports, "redirected") > 0


def test_h01_after_sync_barrier_sync_every_rank_reads_it(case: Case) -> None:
    steps = ["open-both", "header", "strided", "visible", "across", "visible", "overtake", "visible", "twice", "close"]
    reports = case.compare(*steps)
    assert total(reports, "redirected") > 0
    assert "no replica for these writes" in reasons(reports)


def test_h02_what_the_mpi_library_reads_changes_and_writes_back_is_not_lost(case: Case) -> None:
    """Native strided writes, whose holes the MPI library may read and write back, next to bytes in the replica."""
    before = os.urandom(SIZE + 100)
    reports = case.compare("open-both", "external", "strided", "external", "shared", "twice", "close", before=before)
    assert total(reports, "redirected") > 0


def test_h03_a_byte_written_twice_has_the_later_value(mpich: Case) -> None:
    mpich.compare("open", "strided", "twice", "backwards", "twice", "across", "twice", "close")


def test_h04_atomic_mode_drains_and_bypasses(mpich: Case) -> None:
    reports = mpich.compare("open-both", "strided", "atomic", "twice", "own-reads", "not-atomic", "backwards", "close")
    assert "atomic mode" in reasons(reports)


def test_h05_shared_pointers_drain_and_bypass_from_then_on(case: Case) -> None:
    reports = case.compare("open-both", "strided", "shared", "ordered", "twice", "visible", "close")
    assert "shared file pointer" in reasons(reports)


@pytest.mark.parametrize("step", ["shrink", "empty", "grow"])
def test_h13_a_changed_size_counts(mpich: Case, step: str) -> None:
    mpich.compare("open-both", "strided", step, "size", "visible", "twice", "size", "close")


@pytest.mark.parametrize("ranks", [1, 4])
def test_h14_the_size_is_that_of_what_was_written(mpich: Case, ranks: int) -> None:
    mpich.compare("open-both", "strided", "size", "twice", "size", "close", ranks=ranks)


LOOKED = ["open-both", "strided", "look", "backwards", "look", "close"]


@pytest.mark.parametrize("ranks", [1, 4])
def test_h14_looking_at_the_size_moves_nothing(case: Case, ranks: int) -> None:
    reports = case.compare(*LOOKED, ranks=ranks)
    assert total(reports, "redirected") == 2 * (SIZE - START)
    assert (total(reports, "brought_back"), total(reports, "brought_back", "requests")) == (SIZE - START, 1)
    case.original.unlink()
    _, reports = case.run("lease", *LOOKED, ranks=ranks)
    assert total(reports, "brought_back") == 0
    assert sum(report["left"] for report in reports) >= SIZE - START
    case.run("original", "open-both", "close", ranks=ranks)
    leased = case.original.read_bytes()
    case.original.unlink()
    case.run("native", *LOOKED, ranks=ranks)
    assert case.original.read_bytes() == leased


@pytest.mark.parametrize("debian_mpi", [debian_mpis()[0]], indirect=True)
def test_h14_parallel_hdf5_is_written_back_by_its_close(debian_mpi: Mpi, library: Path, tmp_path: Path) -> None:
    """HDF5 asks for the size of its file, and sets it, before it closes it. All of it is in one replica."""
    program = tmp_path / "hdf5"
    subprocess.run([debian_mpi.tool("h5pcc"), REPOSITORY / "tests/programs/hdf5.c", "-o", program], check=True)
    case = Case(debian_mpi, program, library, tmp_path / "case")
    case.directory.mkdir()
    case.prepare(Replica(size=1 << 16, length=1 << 16))
    for mode in ("close", "lease"):
        out = Path(tempfile.mkdtemp(dir=tmp_path))
        settings = [f"PDLA_MAP={case.directory / 'map'}", f"PDLA_REPORT={out}", f"PDLA_WRITES={mode}"]
        case.mpi.run(case.mpi.command(2, "env", *settings, f"LD_PRELOAD={library}", program, case.original))
        reports = [file for path in out.glob("*/*.json") for file in json.loads(path.read_text())["writes"]]
        assert total(reports, "redirected", "calls") > 0
        if mode == "close":
            assert total(reports, "brought_back", "requests") <= 4
            with h5py.File(case.original) as file:
                assert np.array_equal(file["chunks"][()], np.repeat([[1, 2]], 8, axis=0).repeat(4, axis=1))
            case.original.unlink()
        else:
            assert total(reports, "brought_back") == 0
            assert sum(report["left"] for report in reports) > 8 * 12 * 4


def test_h15_a_deleted_file_does_not_come_back(mpich: Case) -> None:
    mpich.compare("open", "strided", "unlink", "close")
    reports = mpich.compare("open-scratch", "strided", "own-reads", "close")
    assert not mpich.original.exists()
    assert {report["refused"] for report in reports} == {"deleted on close"}


def test_h16_appending_goes_to_the_original(mpich: Case) -> None:
    reports = mpich.compare("open-append", "pointer", "close", ranks=1, before=bytes(100))
    assert [report["refused"] for report in reports] == ["sequential access, or appending"]


def test_h17_a_misused_call_has_the_error_of_the_mpi(case: Case) -> None:
    case.compare("open", "misuse", "strided", "misuse", "close", ranks=2)


@pytest.mark.parametrize("steps", [["open-read", "refused"], ["open-both", "misuse"]], ids=["read only", "misused"])
def test_h17_a_call_that_mpi_refuses_leaves_replicas_valid(case: Case, steps: list[str]) -> None:
    before = os.urandom(SIZE)
    case.original.write_bytes(before)
    write_map(case.directory / "map", [(case.original, [columns().build(before, case.directory / "reading")])])
    native, _ = case.run("native", *steps, "own-reads", "close", ranks=2)
    assert case.run("original", *steps, "own-reads", "close", ranks=2)[0] == native
    reports = [json.loads(path.read_text())["files"][0] for path in case.directory.glob("*/*/*.json")]
    assert {replica["state"] for report in reports for replica in report["replicas"]} == {"valid"}
    assert total(reports, "redirected", "calls") == 2 * 2 * 9


LOOKS = ["examine", "open", "stream", "map", "cut", "times", "before"]


def test_h18_posix_calls_of_the_same_process_see_what_it_wrote(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    beside = build_coherence_library(library.with_name("libpdla-coherence.so"))
    program = mpi.compile(REPOSITORY / "tests/programs/posix_coherence.c", tmp_path / "beside", "-Wall", "-Wextra")
    made = [(tmp_path / how, [columns().prepare(tmp_path / f"replica-{how}")]) for how in LOOKS]
    write_map(tmp_path / "replicas.map", [], targets=made)
    out = tmp_path / "reports"
    out.mkdir()
    settings = [f"PDLA_MAP={tmp_path / 'replicas.map'}", f"PDLA_REPORT={out}", "PDLA_WRITES=close"]
    settings += [f"LD_PRELOAD={library}:{beside}"]
    results = []
    for more in ([], settings):
        mpi.run(mpi.command(2, "env", *more, program, tmp_path, tmp_path / "out", *LOOKS))
        seen = [(tmp_path / f"out.{rank}").read_text() for rank in range(2)]
        results.append((seen, {how: (tmp_path / how).read_bytes() for how in LOOKS}))
        for how in LOOKS:
            (tmp_path / how).unlink()
    assert results[0] == results[1]
    reports = [file for path in out.glob("*/*.json") for file in json.loads(path.read_text())["writes"]]
    redirected = {Path(file["path"]).name for file in reports if file["redirected"]["calls"]}
    assert redirected == {*LOOKS} - {"before"}
    assert "the program opened the file without MPI, too" in reasons(reports)
    assert "the program has the file open without MPI, too" in {file["refused"] for file in reports}


@pytest.mark.parametrize("mode", ["close", "lease"])
@pytest.mark.parametrize("first", [("lock", "open-both"), ("open-both", "lock")])
def test_h38_locks_of_the_program_stay(case: Case, first: Sequence[str], mode: str) -> None:
    """Redirected or not; a close by MPI ends them, natively, too."""
    case.compare(*first, "locked", "strided", "own-reads", "locked", "sync", "locked", "close", "locked", mode=mode)


@pytest.mark.parametrize("mode", ["close", "lease"])
def test_h38_a_close_leaves_no_descriptor_of_the_file(case: Case, mode: str) -> None:
    steps = ("open-both", "strided", "again", "close", "descriptors", "open-read", "close", "descriptors")
    case.compare(*steps, mode=mode)


@pytest.mark.parametrize("opened", ["open-both", "open-read"])
def test_h38_locks_stay_when_what_waits_is_read_or_written_back(case: Case, opened: str) -> None:
    """MPICH closes the file once when it creates it."""
    steps = ("lock", opened, "locked", "read-all", "locked", "close")
    native, _ = case.run("native", *steps)
    case.original.unlink()
    case.run("lease", "open", "strided", "close")
    assert len(case.journals) == 4
    seen, _ = case.run("original", *steps)
    assert LOCKED.findall(seen) == LOCKED.findall(native)
    assert native.count("locked 1") >= 2 * 3
    assert (case.journals == []) == (opened == "open-both")


def test_h19_a_reader_without_the_library_sees_the_last_sync_and_close(mpich: Case) -> None:
    seen = []
    for mode in ("native", "close"):
        mpich.original.unlink(missing_ok=True)
        # The launcher may take ranks that leave without MPI_Finalize for killed ones.
        with suppress(AssertionError):
            mpich.run(mode, "open", "strided", "sync", "stop")
        seen.append(mpich.original.read_bytes())
    assert seen[0] == seen[1] != b""


def test_h25_another_number_of_ranks_uses_the_same_replica(mpich: Case) -> None:
    for ranks in (3, 5):
        reports = mpich.compare("open", "strided", "close", "open-both", "collective", "close", ranks=ranks)
        assert total(reports, "redirected") > SIZE


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_h26_ranks_without_the_map_leave_all_writes_to_the_original(mpich: Case, how: str, bad: int) -> None:
    """Half of the ranks cannot read the map, or the entry of their file: no rank redirects or waits for ever."""
    if how == "damaged":
        image = bytearray((mpich.directory / "map").read_bytes())
        image[-1] ^= 1
        (mpich.directory / "nothing").write_bytes(image)
        (mpich.directory / "nothing").chmod(0o600)
    words: list[str | Path] = []
    for half in range(2):
        name = mpich.directory / ("nothing" if half == bad else "map")
        words += [":"] if half else []
        words += ["-n", "2", "env", f"PDLA_MAP={name}", "PDLA_WRITES=close", f"LD_PRELOAD={mpich.library}"]
        words += [mpich.program, mpich.original, mpich.directory / "rank", "open", "strided", "collective", "close"]
    mpich.mpi.run([*mpich.mpi.mpiexec, *map(str, words)])
    redirected = mpich.original.read_bytes()
    mpich.original.unlink()
    mpich.run("native", "open", "strided", "collective", "close")
    assert (mpich.original.read_bytes(), mpich.journals) == (redirected, [])


def test_without_a_place_for_journals_writes_go_to_the_original(mpich: Case) -> None:
    (mpich.directory / "journals" / "original").rmdir()
    reports = mpich.compare("open", "strided", "close")
    assert reports[0]["refused"] == "the journals cannot be locked"
    mpich.run("original", "open-read", "close")


def test_h34_a_program_that_is_aborted_leaves_its_journal(mpich: Case) -> None:
    with pytest.raises(AssertionError, match="exit"):
        mpich.run("close", "open", "strided", "abort")
    assert len(mpich.journals) == 4


@pytest.mark.parametrize("mode", ["close", "lease"])
@pytest.mark.parametrize(("ranks", "last"), [(4, "strided"), (1, "leave")])
def test_h34_a_file_that_is_not_closed_has_its_bytes_when_the_program_ends(
    case: Case, mode: str, ranks: int, last: str
) -> None:
    """At MPI_Finalize, and if a program ends without it."""
    seen = []
    for how in ("native", mode):
        case.original.unlink(missing_ok=True)
        # The launcher may take ranks that leave without MPI_Finalize for killed ones.
        with suppress(AssertionError) if last == "leave" else nullcontext():
            case.run(how, "open", "strided", last, ranks=ranks)
        seen.append(case.original.read_bytes())
    assert seen[0] == seen[1] != b""
    assert [len(read_journal(path).entries) for path in case.journals] == [0] * len(case.journals)


def test_h34_what_a_file_that_is_not_closed_cannot_have_is_reported(mpich: Case) -> None:
    out = mpich.directory / "out"
    out.mkdir()
    settings = [f"PDLA_MAP={mpich.directory / 'map'}", f"PDLA_REPORT={out}", "PDLA_WRITES=close"]
    words = [*settings, f"LD_PRELOAD={mpich.library}", mpich.program, mpich.original, out / "rank"]
    command = mpich.mpi.command(2, "env", *words, "open", "strided", "limit")
    done = subprocess.run(command, env={**os.environ, **mpich.mpi.env}, capture_output=True, text=True, check=True)
    line = f"pdla: {mpich.original}: the program did not close it, and the write-back failed (File too large): "
    line += "its newest bytes are in replicas (run pdla sync)"
    assert done.stderr.splitlines() == [line] * 2
    assert collect(out, "").errors == (f"{mpich.original}: File too large",)


@pytest.mark.parametrize("mode", ["close", "lease"])
def test_h60_a_write_beyond_the_limit_for_the_size_of_files_fails_at_the_call(case: Case, mode: str) -> None:
    """The signal is ignored."""
    reports = case.compare("open-both", "limit", "strided", "own-reads", "sync", "twice", "close", ranks=1, mode=mode)
    assert total(reports, "redirected") > 0 and "beyond the limit for the size of files" in reasons(reports)


@pytest.mark.parametrize("mode", ["close", "lease"])
@pytest.mark.thorough(1)
def test_h61_a_signal_handler_may_end_the_program_at_any_step(mpich: Case, mode: str) -> None:
    """Each piece is then what one of its writes left, and the later one if all were made."""
    mpich.run("native", "open", "strided", "close", ranks=1)
    first = mpich.original.read_bytes()
    mpich.run("native", "open", "strided", "sync", "twice", "close", ranks=1)
    later = mpich.original.read_bytes()
    out, report = mpich.directory / "out", mpich.directory / "report"
    report.mkdir()
    settings = {
        "LD_PRELOAD": f"{mpich.library}:{interrupter(mpich.directory)}",
        "PDLA_REPORT": str(report),
        "PDLA_MAP": str(mpich.directory / "map"),
        "PDLA_WRITES": mode,
        "INTERRUPT_HOW": "exit",
        "INTERRUPT_BELOW": f"{mpich.original}:{mpich.directory / 'journals'}:{mpich.directory / 'replica0'}",
    }
    for number in range(1, 4000, 61):
        mpich.original.unlink()
        words = [f"{name}={value}" for name, value in settings.items()]
        words += [f"INTERRUPT_AT={number}", str(mpich.program), str(mpich.original), str(out)]
        command = mpich.mpi.command(1, "env", *words, "open", "strided", "sync", "twice", "close")
        environment = {**os.environ, **mpich.mpi.env}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
        seen = Path(f"{out}.0").read_text()
        mpich.run("original", "open-both", "close", ranks=1)
        found = mpich.original.read_bytes()
        assert mpich.journals == []
        for at in range(START, SIZE if "-- sync" in seen else START, PIECE):
            piece = slice(at, at + PIECE)
            assert found[piece] in (first[piece], later[piece])
            assert found[piece] == later[piece] or "-- close" not in seen
        if "exits" not in done.stderr:
            break
    assert number > 61 and "exits" not in done.stderr


@pytest.mark.parametrize("signal", ["SIGPIPE", "SIGXFSZ"])
def test_h60_a_message_sends_the_program_no_signal(tmp_path: Path, signal: str) -> None:
    """Nobody reads it, or its file may not become longer. A signal that was pending before still comes."""
    library = tmp_path / "messages.so"
    compiled([*GCC, "-shared", "-fPIC", REPOSITORY / "pdla/interpose/messages.c", "-o", library])
    program = f"""
import ctypes, os, resource, signal
say = ctypes.CDLL({str(library)!r}).message_write
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing if {signal!r} == "SIGPIPE" else os.open("said", os.O_CREAT | os.O_WRONLY), 2)
signal.signal(signal.{signal}, signal.SIG_DFL)
say(b"line", 4)
print("lives", flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{signal}])
os.kill(os.getpid(), signal.{signal})
say(b"line", 4)
print(signal.sigpending() == {{signal.{signal}}}, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "lives\nTrue\n"


def test_h27_another_handle_on_the_file_ends_redirection(case: Case) -> None:
    reports = case.compare("open-both", "strided", "again", "twice", "visible", "close")
    assert "the file was opened again" in reasons(reports)


def test_a_file_that_is_read_later_is_served_as_it_was_written(mpich: Case) -> None:
    """A replica for reading of the bytes that are written is out of date from the first write on."""
    before = os.urandom(SIZE)
    mpich.original.write_bytes(before)
    reading = columns().build(before, mpich.directory / "reading")
    writing = columns().prepare(mpich.directory / "writing")
    results = []
    for mode in ("native", "close"):
        mpich.original.write_bytes(before)
        write_map(mpich.directory / "map", [(mpich.original, [reading])], targets=[(mpich.original, [writing])])
        steps = ["open-both", "own-reads", "strided", "own-reads", "visible", "close", "open-read", "read-all", "close"]
        results.append((mpich.run(mode, *steps)[0], mpich.original.read_bytes()))
    assert results[0] == results[1]


OWN = ["alone", "open-both", "strided", "visible", "twice", "own-reads", "visible"]


@pytest.mark.parametrize("mode", ["close", "lease"])
@pytest.mark.parametrize("end", ["close", "close-in-turn"])
def test_handles_that_ranks_open_by_themselves_are_redirected(case: Case, end: str, mode: str) -> None:
    reports = case.compare(*OWN, end, "together", "open-read", "read-all", "close", mode=mode)
    writing = [report for report in reports if report["redirected"]["calls"]]
    assert len(writing) == 4 and reasons(reports) <= {"shared file pointer"}


@pytest.mark.parametrize("mode", ["close", "lease"])
def test_ranks_may_open_files_in_different_orders(case: Case, mode: str) -> None:
    """Rank 0 waits until the others open the file; they wait for nothing that it holds."""
    case.compare("crossed", "strided", "visible", "close", "open-read", "read-all", "close", mode=mode)


@contextmanager
def holding(case: Case, mode: str) -> Iterator[Callable[[], None]]:
    """Next to a program of one rank that has written to the file, and keeps it open until it may end or is killed."""
    settings = {"PDLA_MAP": str(case.directory / "map"), "PDLA_WRITES": mode, "LD_PRELOAD": str(case.library)}
    words = [case.program, case.original, case.directory / "held", "open-both", "strided", "hold", "close"]
    running = subprocess.Popen(words, env={**os.environ, **settings})

    def let_go() -> None:
        case.original.with_name("original.go").touch()
        assert running.wait() == 0

    try:
        while not case.original.with_name("original.held").exists():
            assert running.poll() is None
            time.sleep(0.01)
        yield let_go
    finally:
        running.kill()
        running.wait()


def test_h34_a_killed_process_among_others_loses_nothing(mpich: Case) -> None:
    """The other one changes the original, and knows that it did."""
    with holding(mpich, "lease"):
        reports = mpich.run("lease", "open-both", "twice", "close", ranks=1)[1]
        assert total(reports, "redirected") > 0 and total(reports, "brought_back") > 0
        assert len(mpich.journals) == 2
    seen = mpich.run("original", "open-both", "read-all", "close", ranks=1)[0]
    content = mpich.original.read_bytes()
    assert mpich.journals == []
    mpich.original.unlink()
    mpich.run("native", "open-both", "strided", "close", ranks=1)
    mpich.run("native", "open-both", "twice", "close", ranks=1)
    assert mpich.original.read_bytes() == content
    assert mpich.run("native", "open-both", "read-all", "close", ranks=1)[0] == seen


def test_h20_a_change_while_files_are_open_is_seen_after_a_kill(mpich: Case) -> None:
    """A process that opens and closes the file later does not take it over."""
    with holding(mpich, "lease"):
        mpich.original.write_bytes(b"somebody else's")
        mpich.run("lease", "open-both", "close", ranks=1)
    seen, _ = mpich.run("original", "open-read", ranks=1)
    assert "open class=0" not in seen
    assert mpich.original.read_bytes() == b"somebody else's" and len(mpich.journals) == 1


def test_a_lease_is_kept_by_the_last_close_only(mpich: Case) -> None:
    with holding(mpich, "lease") as let_go:
        left = mpich.run("lease", "open-both", "strided", "close", ranks=1)[1]
        assert sum(report["left"] for report in left) == 0 < total(left, "redirected")
        assert mpich.original.stat().st_size == SIZE
        let_go()
    assert len(mpich.journals) == 1 and read_journal(mpich.journals[0]).bytes == SIZE - START


def test_h27_another_handle_reads_what_was_written_when_the_file_is_closed(mpich: Case) -> None:
    mpich.compare("open-both", "outlived", "open-read", "read-all", "close", mode="lease")


def test_journals_do_not_pile_up_while_a_file_stays_open(mpich: Case) -> None:
    with holding(mpich, "close") as let_go:
        mpich.run("close", *["open-both", "twice", "close"] * 5, ranks=1)
        assert len(mpich.journals) == 2
        let_go()
    assert mpich.journals == []


def test_nobody_joins_where_somebody_was_killed(mpich: Case) -> None:
    with holding(mpich, "close") as let_go:
        with suppress(subprocess.CalledProcessError):
            mpich.run("close", "open-both", "backwards", "stop", ranks=1)
        reports = mpich.run("close", "open-both", "twice", "close", ranks=1)[1]
        assert total(reports, "redirected") == 0
        assert [report["refused"] for report in reports] == ["bytes of an earlier run wait for pdla sync"]
        let_go()


CAREFUL = [["visible", "read-all"], ["visible", "across", "visible"], ["overtake"], ["atomic", "twice", "not-atomic"]]
CAREFUL += [["visible", "around", "visible"], ["visible", "around-later", "visible"]]
CAREFUL += [["visible", "shrink", "visible", "strided", "visible"], ["visible", "close", "open-both"]]


def random_steps(choose: random.Random) -> list[str]:
    """Steps in any order, with what MPI requires between accesses of several ranks to the same bytes."""
    steps = ["open-both", "strided", "visible"]
    for _ in range(choose.randint(4, 12)):
        steps += choose.choice(CAREFUL) if choose.random() < 0.4 else [choose.choice(FREE)]
    return [*steps, "close", "open-read", "read-all", "close"]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_leave_and_see_what_they_do_natively(mpich: Case, seed: int) -> None:
    choose = random.Random(seed)
    layouts: list[dict[str, Any]] = [{}, {"groups": 4, "strips": [1000], "section": ROWS * PIECE}]
    mpich.prepare_anew(columns(**choose.choice(layouts)))
    mpich.compare(*random_steps(choose), ranks=choose.randint(1, 4), mode=choose.choice(["close", "lease"]))


LEASED = ["open", "strided", "close", "open-both", "own-reads", "twice", "visible", "backwards", "close", "open-both"]


def test_h24_who_opens_a_leased_file_reads_what_was_written(case: Case) -> None:
    """The next open of the same program, and of another one, writes back what the close left."""
    reports = case.compare(*LEASED, "read-all", "close", mode="lease")
    assert total(reports, "redirected") > 0
    assert sum(report["left"] for report in reports) == 0
    assert total(reports, "earlier") == 0
    native = case.original.read_bytes()
    case.original.unlink()
    case.run("lease", "open", "strided", "close", "open-both", "twice", "visible", "backwards", "close")
    (node,) = {path.parent for path in case.journals}
    assert len(case.journals) == 4 and case.original.read_bytes() != native
    seen, reports = case.run("original", "open-both", "read-all", "close")
    assert (total(reports, "earlier"), total(reports, "brought_back")) == (SIZE - START, 0)
    assert all(report["earlier"]["seconds"] > 0 for report in reports)
    assert case.original.read_bytes() == native and case.journals == []
    assert node.parent.name == "original" and not node.exists()
    assert case.run("native", "open-both", "read-all", "close")[0] == seen


def test_h24_a_replica_that_was_built_while_bytes_wait_is_not_served(mpich: Case) -> None:
    other = mpich.directory / "other"
    other.write_bytes(bytes(10))
    writing = columns().prepare(mpich.directory / "writing")
    written = [(mpich.original, [writing])]
    write_map(mpich.directory / "map", [(other, [Replica(size=10, length=10).build(bytes(10), other.with_name("o"))])],
              targets=written)  # fmt: skip
    mpich.original.write_bytes(bytes(SIZE))
    mpich.run("lease", "open", "strided", "close")
    old = Replica(size=SIZE - START, start=START, length=SIZE - START)
    old.build(mpich.original.read_bytes(), mpich.directory / "reading")
    state = write_map(mpich.directory / "map", [(mpich.original, [old])], targets=written)
    seen = mpich.run("original", "open-read", "read-all", "close")[0]
    assert mpich.original.read_bytes() == bytes(SIZE)
    assert mpich.run("original", "open-both", "read-all", "close")[0] == seen.replace("open-read", "open-both")
    # Not "changed": where a clock ticks by seconds, the write-back may leave the times as they are.
    assert STALE_WHY[state.read_bytes()[STATE_HEADER.itemsize + STATE_FILE.itemsize]] != CHANGED
    assert mpich.run("native", "open-read", "read-all", "close")[0] == seen
    assert mpich.journals == [] and mpich.original.read_bytes() != bytes(SIZE)


def test_h15_what_waits_for_a_deleted_file_is_deleted_too(mpich: Case) -> None:
    mpich.compare(
        "open", "strided", "close", "unlink", "open-both", "visible", "twice", "visible", "close", mode="lease"
    )
    mpich.run("lease", "open", "strided", "close", "unlink")
    assert mpich.journals == [] and not mpich.original.exists()


def test_h20_what_waits_does_not_overwrite_what_somebody_else_wrote(mpich: Case) -> None:
    mpich.run("lease", "open", "strided", "close")
    mpich.original.write_bytes(b"somebody else's")
    seen, _ = mpich.run("lease", "open")
    assert seen.count("open class=32 ") == 4  # MPI_ERR_IO
    assert mpich.original.read_bytes() == b"somebody else's"
    assert len(mpich.journals) == 4


def test_writes_go_to_the_original_unless_asked_otherwise(mpich: Case) -> None:
    mpich.run("original", "open", "strided", "close")
    _, reports = mpich.run("original", "open", "strided", "close")
    assert {(report["refused"], report["redirected"]["calls"]) for report in reports} == {("not asked for", 0)}


BURST_RANKS, WORD = 3, 4
BURSTS = {
    "interleave": Replica(
        WORD * 5000 * BURST_RANKS,
        length=WORD,
        loops=[(5000, WORD * BURST_RANKS, WORD), (BURST_RANKS, WORD, WORD * 5000)],
        strips=[1000, 500],
    ),
    "shared": Replica(4096 * 4 * BURST_RANKS, length=4096 * 4 * BURST_RANKS),
    "dumps": Replica(WORD * 10000 * 6 * BURST_RANKS, length=WORD * 10000 * 6 * BURST_RANKS),
}


@pytest.mark.parametrize("mode", ["native", "original", "close", "lease"])
@pytest.mark.parametrize("step", BURSTS)
@pytest.mark.thorough(6)
def test_what_burst_buffers_get_wrong_is_right(mpi: Mpi, library: Path, tmp_path: Path, step: str, mode: str) -> None:
    """Strided writes of several ranks, the shared file pointer, and one checkpoint after another; then all is read."""
    case = Case(
        mpi, mpi.compile(REPOSITORY / "tests/programs/bursts.c", tmp_path / "bursts", "-Wall"), library, tmp_path
    )
    paths = [case.original.with_name(f"original.{dump}") for dump in range(6)] if step == "dumps" else [case.original]
    made = [(path, [replace(BURSTS[step]).prepare(tmp_path / f"{path.name}-replica")]) for path in paths]
    write_map(tmp_path / "map", [], targets=made)
    settings = [f"PDLA_MAP={tmp_path / 'map'}", f"PDLA_WRITES={mode}", f"PDLA_REPORT={tmp_path}"]
    words = ["env", *settings, f"LD_PRELOAD={library}"] if mode != "native" else []
    command = mpi.command(BURST_RANKS, *words, case.program, case.original, step)
    assert mpi.run(command) == "0 wrong\n"
    reports = [file for path in tmp_path.glob("*/*.json") for file in json.loads(path.read_text())["writes"]]
    assert (total(reports, "redirected") > 0) == (mode in ("close", "lease") and step != "shared")


@pytest.fixture
def gone(mpich: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    """With a replica on storage whose server may not answer."""
    monkeypatch.setenv("GONE_LOG", str(mpich.directory / "tries"))
    monkeypatch.setenv("GONE_PLACE", str(mpich.directory / "replica"))
    (mpich.directory / "tries").touch()
    return replace(mpich, library=Path(f"{mpich.library}:{compile_preloaded('gone', mpich.directory)}"))


STEPS = "open-both", "strided", "sync", "look", "backwards", "collective", "close"


@pytest.mark.parametrize("mode", ["close", "lease"])
def test_storage_that_does_not_answer_leaves_writes_to_the_original(
    gone: Case, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("GONE", "lorw")
    reports = gone.compare(*STEPS, *STEPS, mode=mode)
    assert total(reports, "redirected", "calls") == 0
    assert 1 <= len((gone.directory / "tries").read_text()) <= 4


@pytest.mark.parametrize("mode", ["close", "lease"])
def test_a_write_that_does_not_end_goes_to_the_original_with_all_after_it(
    gone: Case, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Earlier redirected writes are written back first; nothing is redirected while that write may still arrive."""
    monkeypatch.setenv("GONE", "w")
    monkeypatch.setenv("GONE_AFTER", "40")
    (report,) = gone.compare(*STEPS, *STEPS, ranks=1, mode=mode)
    assert (gone.directory / "tries").read_text() == "w"
    assert 0 < report["redirected"]["calls"] < 40
    assert report["refused"] == "an earlier write to the replicas has not ended"
    assert "the replica could not be written" in reasons([report])


@pytest.mark.parametrize("steps", [["sync", "close"], ["close"]])
def test_write_back_from_storage_that_does_not_answer_ends_with_an_error_and_loses_nothing(
    gone: Case, monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    steps = ["open", "strided", *steps]
    gone.run("native", *steps, ranks=1)
    written = gone.original.read_bytes()
    gone.original.unlink()
    monkeypatch.setenv("GONE", "r")
    seen, (report,) = gone.run("close", *steps, ranks=1)
    assert seen.count("write_at class=0") == 4 * ROWS
    assert f"{steps[2]} class=0" not in seen
    assert (report["left"], report["error"]) == (4 * ROWS * PIECE, "Connection timed out")
    monkeypatch.delenv("GONE_PLACE")
    write_places(gone.directory / "map.1.state", 0)
    gone.run("original", "open-both", "close", ranks=1)
    assert gone.journals == []
    assert gone.original.read_bytes() == written


def test_one_file_that_cannot_be_written_back_in_time_stands_for_those_after_it(
    gone: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank asks once, at the same time as the others."""
    monkeypatch.setenv("GONE", "r")
    seen, _ = gone.run("close", "open-both", "strided", "own-reads", "own-reads", "sync", "close")
    assert 1 <= len((gone.directory / "tries").read_text()) <= 4
    assert "close class=0" not in seen
