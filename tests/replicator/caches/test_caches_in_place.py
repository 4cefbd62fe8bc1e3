"""What ended programs left in cache files is read where it is, by any job, or is brought home first."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pdla.replicator.journals import read_journal
from pdla.replicator.write_targets import cache_journals_of
from tests.support.cached_writes import ON_CLOSE, Case, Ran
from tests.support.critical_requests import ALL, costs
from tests.support.handmade_journals import CacheJournal
from tests.support.mpi import unavailable
from tests.support.waiting import PATIENCE

WRITES = ["write:0", "again:0", "write:1", "write:2", "overlap:0", "holes:0", "again:1"]
READS = ["other:0", "other:1", "read:0", "all:1", "other:2", "size", "end"]
CALL = 200 * 96  # bytes that a rank reads or writes in a call


def variables(case: Case, policy: str) -> dict[str, str]:
    return {**case.variables(ON_CLOSE), **(costs(case, ALL) if policy == "s4d" else {})}


def files(case: Case) -> list[Path]:
    """The cache files."""
    return [path for name in ("cache", "ssd0", "ssd1") for path in (case.directory / name).rglob("*.cache")]


def kill_writer(case: Case, policy: str, *steps: str, ranks: int = 3) -> Ran:
    """Run the steps natively, and then with a cache, killed before the close. What a native reader sees."""
    case.natively(*steps, ranks=ranks)
    native = case.run({"READ_ONLY": "1"}, *READS, ranks=ranks)
    case.original.unlink()
    case.run(variables(case, policy), *steps, "kill", fails=True, ranks=ranks)
    assert len(case.journals) == len(files(case)) == ranks
    return native


def consume(case: Case, *steps: str, ranks: int = 3, policy: str = "e10", fails: bool = False) -> Ran:
    return case.run({**variables(case, policy), "READ_ONLY": "1"}, *(steps or READS), ranks=ranks, fails=fails)


@pytest.mark.parametrize("policy", ["e10", "s4d"])
@pytest.mark.thorough(2)
def test_a_job_reads_where_the_bytes_are(any_case: Case, policy: str) -> None:
    """Of several copies of a byte the newest; nothing is brought home, and the file has its size."""
    native = kill_writer(any_case, policy, *WRITES)
    for _ in range(2):
        ran = consume(any_case, policy=policy)
        assert ran.seen == native.seen
        assert ran.total("hits", "bytes") > 5 * CALL and ran.total("home", "bytes") == 0
        assert len(any_case.journals) == len(files(any_case)) == 3
        assert len(ran.bytes) == len(native.bytes) and ran.bytes != native.bytes
    # An open to write brings all home.
    any_case.run(variables(any_case, policy), "size")
    assert any_case.journals == files(any_case) == []
    assert any_case.original.read_bytes() == native.bytes


@pytest.mark.parametrize("ranks", [1, 5])
def test_any_number_of_ranks_reads(case: Case, ranks: int) -> None:
    reads = ["other:0", "all:0", "size"]
    case.natively(*WRITES)
    native = case.run({"READ_ONLY": "1"}, *reads, ranks=ranks)
    case.original.unlink()
    case.run(variables(case, "e10"), *WRITES, "kill", fails=True)
    ran = consume(case, *reads, ranks=ranks)
    assert ran.seen == native.seen and ran.total("hits", "calls") > 0 and len(case.journals) == 3


def test_bytes_that_are_home_or_were_never_cached_come_from_the_original(case: Case) -> None:
    """After a sync, and of an independent write, which E10 does not cache."""
    native = kill_writer(case, "e10", "write:0", "write:1", "sync", "one:9", "again:0")
    for journal in case.journals:
        assert 0 < len(read_journal(journal).waiting) <= 200
    ran = consume(case, *READS, "all:9")
    assert ran.seen[0].startswith(native.seen[0]) and 0 < ran.total("hits", "bytes") <= 3 * 2 * CALL


def checksum(data: bytes) -> str:
    total = 5381
    for byte in data:
        total = (33 * total + byte) % 2**64
    return f"{total:x}"


def put(data: bytearray, start: int, part: bytes) -> None:
    """Write to a file's bytes, which become longer where they must."""
    data.extend(bytes(max(start + len(part) - len(data), 0)))
    data[start : start + len(part)] = part


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_copy_of_each_byte_counts(case: Case, seed: int) -> None:
    """Entries of any lengths, written in turns by three processes; the mover had brought home some."""
    choose, whole = random.Random(seed), 3 * CALL + 5
    original = bytearray(choose.randbytes(choose.choice([whole, 20_000, 0])))
    expected = bytearray(original)
    case.original.touch()
    settings = variables(case, "e10")
    noted = case.directory / "home/journals/cache-0123456789abcdef"
    journals = [
        CacheJournal(noted, case.original, case.cache / f"{i}.cache", number=i, home=choose.randrange(40))
        for i in range(3)
    ]
    caches = [bytearray() for _ in journals]
    for stamp in range(1, 200):
        number, start = choose.randrange(3), choose.randrange(whole - 1) if stamp > 1 else whole - 1
        part = choose.randbytes(choose.randint(1, min(choose.choice([50, 5000, 30_000]), whole - start)))
        if len(journals[number].entries) < journals[number].home:
            put(original, start, part)
        journals[number].entries.append((len(caches[number]), start, len(part), stamp))
        caches[number] += part
        put(expected, start, part)
    case.original.write_bytes(original)
    for journal, cache in zip(journals, caches, strict=True):
        journal.cache.write_bytes(cache)
        journal.write()
    place = noted.parent / "inodes" / str(case.original.stat().st_ino)
    place.mkdir(parents=True)
    (place / noted.name).touch()
    steps = ["read:0", "read:1", "read:2", "size"]
    ran = case.run({**settings, "READ_ONLY": "1"}, *steps, ranks=1)
    assert ran.total("hits", "calls") == 3 and len(files(case)) == 3
    assert ran.seen == case.run(settings, *steps, ranks=1).seen  # an open for writing brings them home
    assert case.original.read_bytes() == expected and files(case) == []
    assert ran.seen == case.run({}, *steps, ranks=1).seen


@pytest.mark.parametrize("damage", ["removed", "shorter", "journal"])
def test_what_cannot_be_read_where_it_is(case: Case, damage: str) -> None:
    """A cache file or a journal is damaged: the open fails, as before; nobody gets old bytes."""
    kill_writer(case, "e10", *WRITES)
    if damage == "removed":
        files(case)[0].unlink()
    elif damage == "shorter":
        os.truncate(files(case)[0], 100)
    else:
        with case.journals[0].open("r+b") as journal:
            journal.seek(4096 + 8)
            journal.write(b"\xff" * 4)
    ran = consume(case, "size", fails=True)
    assert all("open failed" in seen for seen in ran.seen) and "run pdla sync" in ran.stderr


def test_journals_are_where_the_verbs_look_for_those_of_a_path(case: Case) -> None:
    kill_writer(case, "e10", *WRITES)
    noted = cache_journals_of(case.directory / "home/replicas.map", case.original)
    assert case.journals and {journal.parents[1] for journal in case.journals} == {noted}


def test_a_rank_that_cannot_open_the_cache_files(case: Case) -> None:
    """They are on the device of another node: the bytes are brought home before anybody reads."""
    native = kill_writer(case, "e10", *WRITES)
    script = case.directory / "ranked"
    hide = f"unshare --mount sh -c 'mount -t tmpfs none {case.cache} && exec {case.program} \"$@\"' sh"
    script.write_text(f'#!/bin/sh\n[ "$PMI_RANK" = 1 ] && exec {hide} "$@"\nexec {case.program} "$@"\n')
    script.chmod(0o755)
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        unavailable("only root can hide a directory from a process")
    ran = consume(Case(case.mpi, script, case.libraries, case.directory))
    assert ran.seen == native.seen and ran.bytes == native.bytes
    assert case.journals == files(case) == []


@contextmanager
def reading(case: Case, *steps: str) -> Iterator[None]:
    """A job of three ranks that has read its first bytes in place, and makes the steps at the end of the block."""
    command = case.command({**variables(case, "e10"), "READ_ONLY": "1"}, "other:0", "until", *steps, ranks=3)
    with subprocess.Popen(command, env={**os.environ, **case.mpi.env}) as reader:
        while not all(path.exists() and path.read_text() for path in (case.directory / f"out.{i}" for i in range(3))):
            assert reader.poll() is None
        yield
        Path(f"{case.original}.end").touch()
        assert reader.wait(PATIENCE) == 0


def seen(case: Case) -> list[str]:
    return [path.read_text() for path in sorted(case.directory.glob("out.*"))]


def test_pdla_sync_beside_a_reader(case: Case) -> None:
    """It brings home what a reader reads in place; the reader goes on with the original."""
    native = kill_writer(case, "e10", *WRITES)
    with reading(case, *READS[1:]):
        assert len(files(case)) == 3
        sync = [str(Path(sys.executable).with_name("pdla")), "sync"]
        environment = {**os.environ, "PDLA_HOME": str(case.directory / "home")}
        subprocess.run(sync, env=environment, check=True, capture_output=True)
        assert case.journals == files(case) == [] and case.original.read_bytes() == native.bytes
    assert seen(case) == native.seen


def test_a_writer_beside_a_reader(case: Case) -> None:
    """It brings home what the reader reads in place, and caches its own; the reader sees what is there then."""
    kill_writer(case, "e10", *WRITES)
    with reading(case, *READS[1:]):
        words = [f"{name}={value}" for name, value in variables(case, "e10").items()]
        command = case.mpi.command(
            3, "env", *words, case.program, case.original, case.directory / "writer", "write:1", "write:9"
        )
        subprocess.run(command, env={**os.environ, **case.mpi.env}, check=True, capture_output=True)
        reports = [json.loads(path.read_text()) for path in (case.directory / "reports").glob("*/*.json")]
        assert sum(cache["written"]["bytes"] for report in reports for cache in report["caches"]) == 6 * CALL
        assert case.journals == files(case) == []
    mixed = seen(case)
    native = case.run({"READ_ONLY": "1"}, *READS)
    assert mixed == native.seen
