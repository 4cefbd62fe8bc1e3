"""Random MPI-IO programs whose library is refused memory, or gets errors of its system calls, now and then: a call sees
what it sees natively, or it fails. It never sees other bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.searches.killing_write_backs import interrupter
from tests.searches.mpiio import Job, Program, Runner, by_program, make
from tests.support.cached_writes import ON_CLOSE, make_case
from tests.support.leased_files import Leased
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, link_library
from tests.support.written_rounds import RANKS, ROWS, check

SOURCE = REPOSITORY / "tests/programs/failing_calls.c"
WRAPPED = (
    *("malloc", "calloc", "realloc", "aligned_alloc", "strdup", "mmap", "mremap", "msync", "pthread_create"),
    *("open", "read", "write", "pread", "pwrite", "preadv", "pwritev", "access", "fcntl"),
    *("stat", "fstat", "lstat", "statx"),
    *("fsync", "fdatasync", "ftruncate", "fallocate", "posix_fallocate", "rename", "link", "unlink", "mkdir"),
    *("opendir", "readdir"),
    *("agree_reduce", "agree_broadcast", "agree_merge", "clock_gettime"),
)
IO_ERROR = {"mpich": re.compile(r"class=32\b"), "openmpi": re.compile(r"class=35\b")}
MPICH, OPENMPI = available_mpis()


@pytest.fixture(scope="module")
def library(objects: Sequence[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with tests/programs/failing_calls.c."""
    flags = [f"-Wl,--wrap={name}" for name in WRAPPED]
    return link_library(tmp_path_factory.mktemp("failing") / "libpdla.so", objects, str(SOURCE), *flags)


def number_of(line: str) -> int:
    """Of the program's line that wrote this: "12:7 read_at class=0" is of line 7."""
    return int(line.split()[0].split(":")[1])


def compare(
    native: Sequence[Sequence[str]], redirected: Sequence[Sequence[str]], error: re.Pattern[str]
) -> tuple[int, set[str]]:
    """What the ranks saw of a program before a call failed in one of them: how many lines, and which call failed."""
    failures = [
        (number_of(line), line.split()[1])
        for one, other in zip(native, redirected, strict=True)
        for line in other
        if error.search(line) and line not in one
    ]
    end = min(failures, default=(1 << 30, ""))[0]
    pairs = [
        pair
        for one, other in zip(native, redirected, strict=True)
        for pair in zip_longest(*([line for line in seen if number_of(line) < end] for seen in (one, other)))
    ]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    return len(pairs), {call for number, call in failures if number == end}


def seen_by(
    runner: Runner, batch: Sequence[Program], directory: Path, writes: str, how: str
) -> Iterator[list[dict[int, list[str]]]]:
    """For each job what each rank saw of each program."""
    for number, scripts in enumerate(zip(*(program.scripts(writes) for program in batch), strict=True)):
        text = directory / f"{how}{number}"
        text.write_text("".join(script for _, script in scripts))
        yield [by_program(lines) for lines in runner.run(text, scripts[0][0], directory, how)]


# After an error in one rank the ranks of a program may go different ways and wait for each other. System calls
# that writes need fail so often that these programs have one rank.
@pytest.mark.parametrize(
    ("mpi", "ranks", "writes", "failures"),
    [
        pytest.param(*MPICH.values, 2, "original", "memory 12"),
        pytest.param(*MPICH.values, 2, "original", "files 30"),
        pytest.param(*OPENMPI.values, 1, "original", "files 30"),
        pytest.param(*MPICH.values, 2, "close", "memory 40"),
        pytest.param(*MPICH.values, 1, "close", "files 60"),
        pytest.param(*MPICH.values, 2, "lease", "memory 40"),
        pytest.param(*MPICH.values, 1, "lease", "files 60"),
        pytest.param(*MPICH.values, 2, "original", "agreements 12"),
        pytest.param(*MPICH.values, 2, "close", "agreements 12"),
        pytest.param(*MPICH.values, 2, "lease", "agreements 12"),
        pytest.param(*MPICH.values, 2, "e10", "memory 40"),
        pytest.param(*MPICH.values, 1, "e10", "files 60"),
        pytest.param(*MPICH.values, 2, "e10-coherent", "agreements 12"),
        pytest.param(*MPICH.values, 2, "e10-coherent", "memory 40"),
        pytest.param(*MPICH.values, 1, "e10-coherent", "files 60"),
        pytest.param(*MPICH.values, 2, "e10-deferred", "memory 40"),
        pytest.param(*MPICH.values, 1, "e10-deferred", "files 60"),
        pytest.param(*MPICH.values, 2, "e10-exchange", "agreements 12"),
        pytest.param(*MPICH.values, 2, "e10-exchange", "memory 40"),
        pytest.param(*MPICH.values, 1, "e10-exchange", "files 60"),
        pytest.param(*MPICH.values, 2, "s4d", "agreements 12"),
        pytest.param(*MPICH.values, 2, "s4d", "memory 40"),
        pytest.param(*MPICH.values, 1, "s4d", "files 60"),
        pytest.param(*MPICH.values, 2, "ibridge", "agreements 12"),
        pytest.param(*MPICH.values, 2, "ibridge", "memory 40"),
        pytest.param(*MPICH.values, 1, "ibridge", "files 60"),
        pytest.param(*MPICH.values, 2, "liu", "memory 40"),
        pytest.param(*MPICH.values, 1, "liu", "files 60"),
        pytest.param(*MPICH.values, 2, "original", "short 2"),
        pytest.param(*MPICH.values, 2, "close", "short 2"),
        pytest.param(*MPICH.values, 2, "lease", "short 2"),
        pytest.param(*MPICH.values, 2, "e10", "short 2"),
        pytest.param(*MPICH.values, 2, "s4d", "short 2"),
        pytest.param(*MPICH.values, 2, "ibridge", "short 2"),
    ],
    indirect=["mpi"],
    ids=lambda value: value.name if isinstance(value, Mpi) else str(value),
)
@pytest.mark.thorough(4)
def test_a_call_sees_the_same_or_fails(
    mpi: Mpi, ranks: int, writes: str, failures: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, directory = Runner.prepare(mpi, tmp_path, library), tmp_path / "case"
    monkeypatch.setenv("PDLA_TEST_FAILING", failures)
    jobs = [Job(ranks, writes), Job(1, writes), Job(ranks, "original")]
    batch = [make(n, ranks, writes=writes, shared=mpi.name == "mpich", jobs=jobs) for n in range(20, 40)]
    directory.mkdir()
    runner.make_files(batch, directory, writes)
    native, redirected = (list(seen_by(runner, batch, directory, writes, how)) for how in ("native", "redirected"))
    compared = 0
    failed: set[str] = set()
    for program in batch:
        for pair in zip(native, redirected, strict=True):
            seen = ([rank[program.number] for rank in one] for one in pair)
            lines, calls = compare(*seen, IO_ERROR[mpi.name])
            compared += lines
            failed |= calls
            if calls:
                break
    assert compared > 300
    assert failed == set() if failures == "short 2" else failed <= {"open"} if writes == "original" else failed


def check_next_open(leased: Leased) -> None:
    """An open at which nothing fails writes back what the lease has."""
    leased.open("original", "b", "look")
    assert leased.place.journals == []
    check(leased.place, 1, 1)


@pytest.mark.parametrize("calls", ["opendir 1", "readdir 1", "opendir -1", "readdir -4", "fcntl 1", "statx 1"])
@pytest.mark.thorough(2)
def test_h47_a_lookup_that_fails_is_not_taken_for_no_journals(either_leased: Leased, calls: str) -> None:
    """The first lookup is for the directories of journals, the next for the journals in one of them."""
    either_leased.write()
    journals = either_leased.place.journals
    seen = either_leased.open("original", "b", "look", extra=[f"PDLA_TEST_FAILING={calls}"])
    error = {"mpich": 32, "openmpi": 35}[either_leased.place.mpi.name]
    assert seen == f"open class={error} -1\n" * 2
    assert either_leased.place.journals == journals
    check_next_open(either_leased)


@pytest.mark.parametrize(
    "calls",
    ["rename 1", "write 1", "fsync 1", "fdatasync 1", "pwrite 1", "realloc 1", "calloc 1", "malloc -1", "mmap -1"],
)
def test_h46_a_write_back_that_fails_at_an_open_is_made_at_the_next(either_leased: Leased, calls: str) -> None:
    either_leased.write()
    either_leased.open("original", "b", "look", extra=[f"PDLA_TEST_FAILING={calls}"])
    check_next_open(either_leased)


def test_h47_writes_whose_note_fails_are_not_redirected(either_leased: Leased) -> None:
    """An open of a program that knows no map finds journals by the note only. Here something else has its place."""
    journals = either_leased.place.map.parent / "journals"
    journals.mkdir(exist_ok=True)
    (journals / "inodes").touch()
    either_leased.write(journals=0)
    check(either_leased.place, 1, 1)


def test_h47_old_bytes_are_seen_where_the_user_allows_them(either_leased: Leased) -> None:
    either_leased.write()
    seen = either_leased.open("original", "b", "look", extra=["PDLA_TEST_FAILING=fdatasync 1", "PDLA_OLD_BYTES=1"])
    assert "position" in seen
    check_next_open(either_leased)


@pytest.mark.parametrize(
    "calls", [*(f"agreements {number}th" for number in range(1, 13)), "msync 1", "fdatasync 1", "mmap 3th"]
)
@pytest.mark.parametrize("writes", ["close", "lease"])
@pytest.mark.thorough(4)
def test_what_was_acknowledged_stays_when_a_call_fails(file: Leased, writes: str, calls: str) -> None:
    place, said = file.place, file.place.directory / "said"
    failing = ["env", f"PDLA_TEST_FAILING={calls}"]
    file.original.write_bytes(b"")
    place.mpi.run(place.words(*failing, str(file.writer), str(file.original), str(said), "close", writes=writes))
    file.open("original", "b", "look")
    done = all("done 1" in said.with_name(f"said.{rank}").read_text() for rank in range(RANKS))
    assert place.journals == []
    check(place, int(done), 1)


@pytest.mark.parametrize("calls", [*(f"agreements {n}th" for n in range(1, 9)), *(f"open {n}th" for n in range(2, 12))])
def test_an_open_at_which_a_call_fails_loses_nothing(file: Leased, calls: str) -> None:
    file.write()
    file.open("original", "b", "look", extra=[f"PDLA_TEST_FAILING={calls}"])
    check_next_open(file)


@pytest.mark.parametrize(
    "calls",
    [
        *(f"agreements {number}th" for number in range(1, 13)),
        *("opendir 1", "readdir -4", "fcntl 1", "statx 1", "rename 1", "write 1", "fsync 1", "pwrite 1", "preadv 1"),
        *("calloc 1", "calloc 3", "malloc -1", "malloc 4", "strdup 1", "strdup 3", "open -9", "open 5th", "open 8th"),
        *("stat -1", "fstat -2", "lstat 1", "access 1", "busy 1th"),
    ],
)
@pytest.mark.thorough(8)
def test_h47_a_reader_sees_the_newest_bytes_or_an_error_when_a_call_fails(either_leased: Leased, calls: str) -> None:
    steps = ("look", "seek-end", "read", "look")
    either_leased.write("native")
    native = either_leased.open("native", "r", *steps)
    either_leased.write()
    error = IO_ERROR[either_leased.place.mpi.name]
    seen = either_leased.open("original", "r", *steps, extra=[f"PDLA_TEST_FAILING={calls}"])
    opened = [line for line in seen.splitlines() if not error.search(line)]
    assert set(opened) <= set(native.splitlines())
    assert opened or seen.count("open class=") == len(seen.splitlines()) == 2
    assert either_leased.open("original", "r", *steps) == native
    check_next_open(either_leased)


def test_h46_a_long_write_back_that_is_killed_is_not_taken_for_somebody_elses_change(file: Leased) -> None:
    """Its intent was to end ten seconds before the kill, and has been renewed."""
    late = "PDLA_TEST_FAILING=clock_gettime 1th"
    file.write()
    file.open("original", "b", "look", extra=[late])
    assert file.place.journals == []
    file.write()
    preload = f"LD_PRELOAD={file.place.library}:{interrupter(file.place.directory)}"
    killed = ["INTERRUPT_AT=1", "INTERRUPT_HOW=torn", f"INTERRUPT_BELOW={file.original}"]
    with pytest.raises(AssertionError, match=r"exit 9|KILLED|signal"):
        file.open("original", "b", "look", extra=[preload, *killed, late], ranks=1)
    assert file.place.journals != []
    check_next_open(file)


@pytest.mark.parametrize("number", range(2, 26))
@pytest.mark.thorough(4)
def test_a_call_that_brings_a_cache_home_ends_when_memory_is_refused(
    number: int, library: Path, tmp_path: Path
) -> None:
    """Nobody else would bring home what waits, and another job reads it where it is."""
    case = make_case(*MPICH.values, tmp_path, library, tmp_path)
    writes, reads = ("write:0", "sync", "write:1"), ("all:0", "all:1")
    (native,) = case.natively(*writes, *reads, ranks=1).seen
    case.original.unlink()
    (seen,) = case.run(case.variables(ON_CLOSE, PDLA_TEST_FAILING=f"malloc {number}th"), *writes, ranks=1).seen
    assert native.startswith(seen.removesuffix("close failed\n"))
    (newest,) = case.run(case.variables(ON_CLOSE), *reads, ranks=1).seen
    assert native.endswith(newest)


@pytest.mark.parametrize("calls", ["pread 1th", "preadv 1th"])
def test_a_size_that_a_cache_cannot_say_is_an_error(calls: str, library: Path, tmp_path: Path) -> None:
    """The last byte waits in the cache, and is read there to be written to the original."""
    case = make_case(*MPICH.values, tmp_path, library, tmp_path)
    steps = ("write:0", "size", "size")
    (native,) = case.natively(*steps, ranks=1).seen
    written = case.original.read_bytes()
    case.original.unlink()
    (seen,) = case.run(case.variables(ON_CLOSE, PDLA_TEST_FAILING=calls), *steps, ranks=1).seen
    assert set(seen.splitlines()) <= {*native.splitlines(), "size failed"}
    assert seen.splitlines()[-1] == native.splitlines()[-1]
    assert ("size failed" in seen) == (calls == "preadv 1th")
    assert case.original.read_bytes() == written


def test_statuses_of_many_requests_are_right_when_memory_is_used_up(either_leased: Leased) -> None:
    place, mpi = either_leased.place, either_leased.place.mpi
    program = mpi.compile(REPOSITORY / "tests/programs/many_requests.c", place.directory / "many", "-Wall", "-Wextra")
    assert mpi.run(place.words(str(program), str(place.original), writes="lease")).split() == [str(ROWS)] * RANKS
    assert len(place.journals) == RANKS
    either_leased.open("original", "b", "look")
    check(place, 1, 1)
