"""The verbs on caches: pdla run sets one up, and what killed programs leave in cache files comes home or is named."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.replicator import intent, moves
from pdla.replicator.cache_status import cached_files
from pdla.replicator.cache_sync import newest
from pdla.replicator.daemon import Daemon
from pdla.replicator.journals import holder, locked, paths_in, read_journal, set_home
from pdla.replicator.metrics import Metrics
from pdla.replicator.sync import write_back
from pdla.replicator.throttling import Gate
from pdla.replicator.verify import gc
from tests.support.clusters import NODES
from tests.support.command_line import PDLA, PRINT, Launching
from tests.support.handmade_journals import Image
from tests.support.killed_caches import SIZE, Place
from tests.support.mpi import REPOSITORY, Mpi, available_mpis
from tests.support.namespace_nodes import Node
from tests.support.waiting import PATIENCE

OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


def test_gc_removes_directories_without_journals(place: Place) -> None:
    """Not while a program uses them, nor if bytes wait."""
    place.write(place.process(), 0, b"waits", 1)
    place.leave()
    (empty := place.noted.with_name("cache-" + 32 * "1")).mkdir()
    note = empty.parent / "inodes/5" / empty.name
    note.parent.mkdir(parents=True)
    note.touch()
    with locked(empty):
        gc(place.catalog)
        assert empty.is_dir() and note.exists()
    gc(place.catalog)
    assert not empty.exists() and not note.parent.exists()
    assert place.sync().problem == "" and place.is_clean()


def write_at_random(place: Place, seed: int, processes: int = 3, count: int = 60) -> bytes:
    """Processes write over each other's bytes, and are killed; what the file should have then."""
    choose = random.Random(seed)
    wanted = bytearray(place.original.read_bytes())
    journals = [place.process() for _ in range(processes)]
    for stamp in range(1, count + 1):
        start = choose.randrange(SIZE + 5000)
        data = choose.randbytes(choose.choice([1, 100, 5000, 20_000]))
        place.write(choose.choice(journals), start, data, stamp)
        wanted.extend(bytes(max(start + len(data) - len(wanted), 0)))
        wanted[start : start + len(data)] = data
    place.leave()
    return bytes(wanted)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=60),
)
def test_the_newest_bytes_are_those_of_the_last_extent(extents: list[tuple[int, int]]) -> None:
    wanted = np.full(100, -1)
    for number, (start, length) in enumerate(extents):
        wanted[start : start + length] = number
    starts = np.array([start for start, _ in extents], np.int64)
    parts = newest(starts, starts + np.array([length for _, length in extents], np.int64))
    found = np.full(100, -1)
    for start, stop, number in parts.tolist():
        assert (found[start:stop] == -1).all()
        found[start:stop] = number
    assert (found == wanted).all()
    assert (np.diff(parts[:, 0]) > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_newest_bytes_of_all_caches_come_home(place: Place, seed: int) -> None:
    wanted = write_at_random(place, seed)
    row = place.sync()
    assert (row.problem, row.lost, row.damaged, row.unsynced) == ("", (), 0, row.bytes)
    assert place.original.read_bytes() == wanted
    assert place.is_clean()
    assert write_back(place.catalog) == []


def test_within_a_journal_the_last_entry_counts_whatever_its_stamp(place: Place) -> None:
    first, second = place.process(), place.process()
    place.write(first, 0, b"old" * 4, 9)
    place.write(first, 0, b"new" * 4, 5)
    place.write(second, 0, b"x", 7)
    place.leave()
    place.sync()
    assert place.original.read_bytes()[:12] == b"new" * 4


def test_h46_cache_files_go_when_all_is_durable_and_then_their_journals(
    place: Place, done_to_files: list[tuple[str, str]]
) -> None:
    """The original, which the intent then says, cache files, journals and the intent."""
    write_at_random(place, 1)
    done_to_files.clear()
    place.sync()
    caches = {journal.cache.name for journal in place.journals}
    journals = {journal.path.name for journal in place.journals}
    interesting = {"data": "original", "intent": "intent"}
    interesting |= dict.fromkeys(caches, "cache") | dict.fromkeys(journals, "journal")
    steps = [(call, interesting[name]) for call, name in done_to_files if name in interesting]
    assert steps == [
        ("fsync", "original"),
        *[("unlink", "cache")] * 3,
        *[("unlink", "journal")] * 3,
        ("unlink", "intent"),
    ]


def test_h47_damaged_entries_are_named_and_the_others_come_home(place: Place) -> None:
    first, second = place.process(), place.process()
    for number in range(3):
        place.write(first, 100 * number, b"a" * 100, number + 1)
    place.write(second, 300, b"b" * 100, 9)
    place.leave()
    image = Image(first.path)
    image.entries[1]["start"] += 1
    first.path.write_bytes(image.bytes)
    row = place.sync()
    assert (row.damaged, row.bytes, row.problem) == (1, 300, "")
    assert place.original.read_bytes()[:400] == b"a" * 100 + bytes(100) + b"a" * 100 + b"b" * 100
    assert place.is_clean()


def test_h47_nothing_is_written_while_a_journal_cannot_be_read(place: Place) -> None:
    write_at_random(place, 1)
    place.journals[1].path.write_bytes(b"PDLAJNL3" + bytes(5000))
    row = place.sync()
    assert "is a damaged journal" in row.problem
    assert row.problem.endswith("bytes wait in cache files")
    assert place.original.read_bytes() == bytes(SIZE)
    assert place.sync(conflict="discard").dropped > 0
    assert place.original.read_bytes() == bytes(SIZE)
    assert paths_in(place.noted) == []


class KilledError(BaseException):
    """The process ends here."""


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int, run: Callable[[], object]) -> bool:
    """Run until the call ``number`` that changes a file, which is not made; whether there were so many calls."""
    left = number
    with monkeypatch.context() as patch:

        def counted(real: Callable[..., Any], *words: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise KilledError
            return real(*words, **more)

        for name in ("pwrite", "fsync", "unlink", "replace", "rename"):
            patch.setattr(os, name, partial(counted, getattr(os, name)))
        try:
            run()
        except KilledError:
            return True
    return False


@pytest.mark.parametrize("until", ["first", "second"])
def test_h46_a_sync_may_be_killed_at_any_call(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    """Once, or twice in a row: the next one does it again, and takes nothing for somebody else's change."""
    empty = place.original.read_bytes()
    for number in range(1, 200):
        place.original.write_bytes(empty)
        place.journals.clear()
        wanted = write_at_random(place, number, count=8)
        more = killed_at(monkeypatch, number, lambda: write_back(place.catalog))
        if until == "second":
            killed_at(monkeypatch, number // 2 + 1, lambda: write_back(place.catalog))
        for row in write_back(place.catalog):
            assert (row.problem, row.lost, row.damaged) == ("", (), 0), number
        assert place.original.read_bytes() == wanted, number
        assert place.is_clean(), number
        if not more:
            assert number > 20
            return
    raise AssertionError


def test_bytes_on_another_node_wait_and_the_line_names_node_file_and_bytes(place: Place) -> None:
    here, there = place.process(), place.process(host="n2", boot=OTHER_BOOT)
    place.write(here, 0, b"a" * 100, 1)
    place.write(there, 50, b"b" * 100, 2)
    there.synced = 1
    place.leave()
    away = there.cache.rename(place.directory / "away")
    row = place.sync()
    assert row.problem == f"100 bytes wait on node n2, in {there.cache} (run pdla sync there)"
    assert (row.bytes, row.lost) == (100, ())
    assert place.original.read_bytes()[:150] == b"a" * 100 + bytes(50)
    assert paths_in(place.noted) == [there.path]
    away.rename(there.cache)
    row = place.sync()
    assert (row.problem, row.bytes) == ("", 100)
    assert place.original.read_bytes()[:150] == b"a" * 50 + b"b" * 100
    assert place.is_clean()


def test_what_came_home_of_one_node_is_no_change_for_the_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also long after it."""
    here, there = place.process(), place.process(host="n2", boot=OTHER_BOOT)
    place.write(here, 0, b"a" * 100, 1)
    place.write(there, 50, b"b" * 100, 2)
    there.synced = 1
    place.leave()
    away = there.cache.rename(place.directory / "away")
    monkeypatch.setattr(intent, "PROMISE_NS", -60 * 10**9)
    assert place.sync().bytes == 100
    away.rename(there.cache)
    row = place.sync()
    assert (row.problem, row.bytes) == ("", 100)


def test_what_another_node_has_not_made_durable_waits_for_that_node(place: Place) -> None:
    journal = place.process(host="n2", boot=OTHER_BOOT)
    place.write(journal, 0, b"a" * 100, 1)
    place.write(journal, 500, b"b" * 30, 2)
    journal.synced = 1
    place.leave()
    row = place.sync()
    assert row.problem == f"30 bytes wait on node n2, in {journal.cache} (run pdla sync there)"
    assert row.bytes == 100
    before = place.original.stat().st_mtime_ns
    assert place.sync().bytes == 0
    assert place.original.stat().st_mtime_ns == before


@pytest.mark.parametrize("fate", ["gone", "short"])
def test_h33_the_bytes_of_a_lost_cache_file_are_named_until_somebody_drops_them(place: Place, fate: str) -> None:
    whole, lost = place.process(), place.process()
    place.write(whole, 0, b"a" * 100, 1)
    place.write(whole, 400, b"a" * 100, 2)
    place.write(lost, 50, b"b" * 100, 3)
    place.write(lost, 150, b"b" * 100, 4)
    place.leave()
    if fate == "gone":
        lost.cache.unlink()
    else:
        os.truncate(lost.cache, 199)
    rest = (50, 200) if fate == "gone" else (150, 100)
    row = place.sync()
    assert row.lost == (rest,)
    assert row.problem.startswith(f"{rest[1]} bytes are lost, unless {lost.cache} of node {lost.host} comes back")
    wanted = b"a" * 100 if fate == "gone" else b"a" * 50 + b"b" * 100
    assert place.original.read_bytes()[:150] == wanted.ljust(150, b"\0")
    assert not whole.cache.exists()
    again = place.sync()
    assert (again.problem, again.lost, again.bytes) == (row.problem, row.lost, 0)
    dropped = place.sync(conflict="discard")
    assert (dropped.problem, dropped.lost, dropped.dropped) == ("", row.lost, rest[1])
    assert place.is_clean()
    assert write_back(place.catalog) == []


def test_a_lost_cache_file_of_which_all_was_written_again_is_not_missed(place: Place) -> None:
    lost, newer = place.process(), place.process()
    place.write(lost, 50, b"a" * 100, 1)
    place.write(newer, 0, b"b" * 200, 2)
    place.leave()
    lost.cache.unlink()
    row = place.sync()
    assert (row.problem, row.lost, row.bytes) == ("", (), 200)
    assert place.is_clean()


def test_a_cache_file_that_comes_back_comes_home(place: Place) -> None:
    journal = place.process()
    place.write(journal, 50, b"b" * 100, 3)
    place.leave()
    away = journal.cache.rename(place.directory / "unmounted")
    assert "are lost, unless" in place.sync().problem
    away.rename(journal.cache)
    assert (place.sync().bytes, place.is_clean()) == (100, True)


def test_h33_after_a_crash_of_the_node_only_synced_bytes_come_home(place: Place) -> None:
    journal = place.process(boot=OTHER_BOOT)
    place.write(journal, 0, b"a" * 100, 1)
    place.write(journal, 50, b"b" * 100, 2)
    journal.synced = 1
    place.leave()
    row = place.sync()
    assert (row.problem, row.lost, row.bytes, row.unsynced) == ("", ((50, 100),), 100, 0)
    assert place.original.read_bytes()[:150] == b"a" * 100 + bytes(50)
    assert place.is_clean()


def test_entries_that_the_original_has_are_not_copied_and_hide_older_ones(place: Place) -> None:
    older, newer = place.process(), place.process()
    place.write(older, 0, b"a" * 100, 1)
    place.write(newer, 50, b"b" * 100, 2)
    newer.home = 1
    place.leave()
    row = place.sync()
    assert row.bytes == 50
    assert place.original.read_bytes()[:150] == b"a" * 50 + bytes(100)


def test_somebody_elses_change_is_kept_until_the_user_decides(place: Place) -> None:
    wanted = write_at_random(place, 1)
    content = bytearray(place.original.read_bytes())
    content[3] = 7
    place.original.write_bytes(content)
    row = place.sync()
    assert row.problem.startswith("somebody else has changed it since: ")
    assert "bytes wait in cache files" in row.problem
    assert place.original.read_bytes() == content
    place.sync(conflict="overwrite")
    assert place.original.read_bytes()[:3] + place.original.read_bytes()[4:] == wanted[:3] + wanted[4:]
    assert place.is_clean()


def test_discarded_bytes_leave_nothing_behind(place: Place) -> None:
    write_at_random(place, 1)
    os.utime(place.original, ns=(1, 1))
    row = place.sync(conflict="discard")
    assert row.dropped > 0
    assert place.original.read_bytes() == bytes(SIZE)
    assert place.is_clean()


def test_bytes_wait_where_the_intent_is_damaged_and_can_be_dropped(place: Place) -> None:
    """The original may be half old and half new."""
    write_at_random(place, 1)
    (place.noted / intent.NAME).write_bytes(bytes(intent.RECORD.itemsize))
    row = place.sync()
    assert "intent is not the record" in row.problem and "bytes wait in cache files" in row.problem
    assert place.original.read_bytes() == bytes(SIZE)
    assert place.sync(conflict="discard").dropped > 0
    assert place.is_clean()


def test_nothing_is_written_back_while_a_program_has_the_file_open(place: Place) -> None:
    wanted = write_at_random(place, 1)
    with locked(place.noted, "another"):
        row = place.sync()
        assert row.busy
        assert "another (process" in row.problem
        assert place.original.read_bytes() == bytes(SIZE)
    place.sync()
    assert place.original.read_bytes() == wanted


def test_a_full_file_system_leaves_all_for_later(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = write_at_random(place, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(moves, "_write", full)
        assert "No space left on device" in place.sync().problem
    assert [read_journal(path).home for path in paths_in(place.noted)] == [0, 0, 0]
    assert place.sync().problem == ""
    assert place.original.read_bytes() == wanted


# ---- pdla run --policy -----------------------------------------------------------------------------------------------


def set_for(pdla: Launching, *words: str | Path) -> dict[str, str]:
    """The variables that a program gets."""
    said = pdla.run("run", "--policy", "e10", *words, "--", *PRINT).stdout
    ours = dict(line.split("=", 1) for line in said.splitlines())
    always = {"PDLA_HOME", "PDLA_MAP", "PDLA_REPORT", "PDLA_WRITES"}
    return {name: ours[name] for name in ours.keys() - always - os.environ.keys()}


def test_run_hands_policy_coherence_and_hints_to_the_library(pdla: Launching) -> None:
    always = {"PDLA_POLICY": "e10", "PDLA_E10_CACHE": "enable"}
    assert set_for(pdla) == {**always, "PDLA_COHERENCE": "node"}
    hints = ("e10_cache_path=/local/ssd", "e10_cache=coherent", "ind_wr_buffer_size=4M", "cache_bytes=10G")
    flags = ("e10_cache_flush_flag=flush_onclose", "e10_cache_discard_flag=disable", "deferred_close=check*")
    words = [word for hint in (*hints, *flags) for word in ("--hint", hint)]
    assert set_for(pdla, "--coherence", "mpi", *words) == {
        "PDLA_POLICY": "e10",
        "PDLA_COHERENCE": "mpi",
        "PDLA_E10_CACHE": "coherent",
        "PDLA_E10_CACHE_PATH": "/local/ssd",
        "PDLA_E10_CACHE_FLUSH_FLAG": "flush_onclose",
        "PDLA_E10_CACHE_DISCARD_FLAG": "disable",
        "PDLA_IND_WR_BUFFER_SIZE": str(4 << 20),
        "PDLA_CACHE_BYTES": str(10 << 30),
        "PDLA_DEFERRED_CLOSE": "check*",
    }


def test_run_preloads_the_library_that_makes_posix_calls_see_cached_bytes(pdla: Launching) -> None:
    said = pdla.run("run", "--policy", "e10", "--", "sh", "-c", "echo $LD_PRELOAD").stdout
    assert "libpdla-coherence.so" in said


def test_planned_replicas_and_a_cache_go_together(pdla: Launching) -> None:
    said = pdla.run("run", "--policy", "e10", "--writes", "lease", "--", *PRINT).stdout
    assert {"PDLA_WRITES=lease", "PDLA_POLICY=e10"} <= set(said.splitlines())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--policy", "s4d"), "--policy s4d needs --cluster"),
        (("--policy", "s4d", "--hint", "e10_cache=enable"), "--policy s4d has no hint e10_cache: it has cache_bytes"),
        (("--policy", "liu"), "--policy liu needs --cluster"),
        (("--policy", "lru"), "unknown policy 'lru'"),
        (("--hint", "e10_cache=enable"), "need --policy"),
        (("--coherence", "mpi"), "need --policy"),
        (("--policy", "e10", "--hint", "e10_cache"), "'e10_cache' is not NAME=VALUE"),
        (("--policy", "e10", "--hint", "cb_nodes=4"), "unknown hint 'cb_nodes'"),
        (("--policy", "e10", "--hint", "e10_cache=yes"), "e10_cache must be enable, disable or coherent"),
        (("--policy", "e10", "--hint", "e10_cache_path=ssd"), "e10_cache_path must be an absolute path"),
        (("--policy", "e10", "--hint", "e10_cache_flush_flag=on"), "flush_immediate or flush_onclose (got 'on')"),
        (("--policy", "e10", "--hint", "deferred_close="), "deferred_close must be a file name, with *"),
        (("--policy", "e10", "--hint", "ind_wr_buffer_size=0"), "ind_wr_buffer_size must be a number of bytes"),
    ],
)
def test_run_refuses_wrong_policies_and_hints_before_the_program(
    pdla: Launching, words: tuple[str, ...], why: str
) -> None:
    done = pdla.run("run", *words, "--", "touch", "started", code=2)
    assert why in done.stderr.splitlines()[-1]
    assert not (pdla.directory / "started").exists()


def test_the_pool_of_the_nodes_gives_directory_and_size_of_the_cache(pdla: Launching) -> None:
    cluster = pdla.directory / "cluster.toml"
    cluster.write_text(NODES + 'where = ["/local/ssd"]\ncapacity = "30G"\n')
    found = set_for(pdla, "--cluster", cluster)
    assert (found["PDLA_E10_CACHE_PATH"], found["PDLA_CACHE_BYTES"]) == ("/local/ssd", str(30 << 30))
    found = set_for(pdla, "--cluster", cluster, "--hint", "cache_bytes=1G")
    assert (found["PDLA_E10_CACHE_PATH"], found["PDLA_CACHE_BYTES"]) == ("/local/ssd", str(1 << 30))
    cluster.write_text(NODES + 'where = ["/n0/ssd", "/n1/ssd"]\ncapacity = "30G"\n')
    done = pdla.run("run", "--policy", "e10", "--cluster", cluster, "--", "true", code=1)
    assert "has 2 directories, not one that all nodes have" in done.stderr
    found = set_for(pdla, "--cluster", cluster, "--hint", "e10_cache_path=/ssd")
    assert (found["PDLA_E10_CACHE_PATH"], found["PDLA_CACHE_BYTES"]) == ("/ssd", str(15 << 30))
    cluster.write_text(NODES.split("[pools.scratch]")[0])
    done = pdla.run("run", "--policy", "e10", "--cluster", cluster, "--", "true", code=1)
    assert 'needs a pool of kind "node"' in done.stderr


def test_without_replicas_a_run_with_a_cache_says_nothing_of_a_map(pdla: Launching) -> None:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    program = mpi.compile(REPOSITORY / "tests/programs/forms.c", pdla.directory / "forms")
    pdla.environment |= mpi.env
    job = mpi.command(1, program, pdla.directory / "data")
    done = pdla.run("run", "--policy", "e10", "--json", "--", *job)
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["map"], report["ranks"]) == ({}, 1)
    assert done.stderr == ""


# ---- pdla status and pdla drain --------------------------------------------------------------------------------------


def test_status_says_what_is_cached_dirty_and_at_what_rate_it_goes_home(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = place.process(), place.process(host="n2")
    for number in range(4):
        place.write(first, 1000 * number, bytes(1000), number)
    place.write(second, 5000, bytes(500), 9)
    first.home = 1
    place.leave()
    clock = iter([10.0, 12.0])

    def passes(seconds: float) -> None:
        """Meanwhile two entries of one journal, and all of the other, come home."""
        assert seconds == 0.5
        set_home(first.path, 3)
        second.path.unlink()

    monkeypatch.setattr(time, "sleep", passes)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    (row,) = cached_files()
    assert (row.original, row.files, row.nodes) == (place.original, 1, (first.host,))
    assert (row.cached, row.dirty, row.rate) == (4000, 1000, (2000 + 500) / 2.0)
    assert (row.holder, row.damaged) == ("", False)


def test_status_names_who_brings_bytes_home_and_takes_no_lock(place: Place) -> None:
    write_at_random(place, 1)
    with locked(place.noted, "pdla drain"):
        (row,) = cached_files(seconds=0)
        assert row.holder.startswith("pdla drain (process ") and row.holder.endswith("is doing the write-back")
    lock = os.open(place.noted / "lock", os.O_RDWR)
    fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0))
    (row,) = cached_files(seconds=0)
    assert row.holder == "a program is writing to it"
    os.close(lock)
    (row,) = cached_files(seconds=0)
    assert row.holder == ""
    assert holder(place.directory / "no such directory") == ""


@dataclass
class Cluster:
    """tests/programs/cached.c under pdla run --policy e10."""

    pdla: Launching
    mpi: Mpi
    program: Path
    original: Path

    def job(self, *steps: str) -> list[str | Path]:
        return self.mpi.command(3, self.program, self.original, self.pdla.directory / "out", *steps)

    def natively(self, *steps: str) -> bytes:
        """The bytes of the file without pdla."""
        self.mpi.run(self.job(*steps))
        content = self.original.read_bytes()
        self.original.unlink()
        return content

    def words(self, *steps: str, flush: str = "flush_immediate") -> list[str | Path]:
        hints = (f"e10_cache_path={self.pdla.directory / 'ssd'}", f"e10_cache_flush_flag={flush}")
        options = [word for hint in hints for word in ("--hint", hint)]
        return ["run", "--policy", "e10", *options, "--json", "--", *self.job(*steps)]

    @contextmanager
    def running(self, *steps: str) -> Iterator[subprocess.Popen[bytes]]:
        """The program with dirty bytes; in the end it has ended."""
        command = [PDLA, *map(str, self.words(*steps, flush="flush_onclose"))]
        silent = subprocess.DEVNULL
        job = subprocess.Popen(command, env=self.pdla.environment, stdout=silent, stderr=silent)
        try:
            while not any(row["dirty"] for row in self.pdla.json("status", "--json")["caches"]):
                assert job.poll() is None
                time.sleep(0.05)
            yield job
        finally:
            job.terminate()
            job.wait()


@pytest.fixture
def cluster(pdla: Launching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Under MPICH."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    pdla.environment |= mpi.env
    monkeypatch.setenv("PDLA_HOME", str(pdla.home))
    (tmp_path / "ssd").mkdir()
    program = mpi.compile(REPOSITORY / "tests/programs/cached.c", tmp_path / "cached")
    return Cluster(pdla, mpi, program, tmp_path / "data")


def test_a_run_says_what_its_cache_did_and_leaves_nothing(cluster: Cluster) -> None:
    steps = ("write:0", "write:1", "one:3", "again:0")
    native = cluster.natively(*steps)
    done = cluster.pdla.run(*cluster.words(*steps))
    cache = json.loads(done.stdout.splitlines()[-1])["cache"]
    assert cluster.original.read_bytes() == native
    assert cache["policy"] == "e10"
    assert (cache["written_bytes"], cache["dirty_bytes"]) == (9 * 96 * 200, 0)
    assert cache["home_bytes"] >= 6 * 96 * 200
    assert sum(one["calls"] for one in cache["refused"]) == 1
    assert cluster.pdla.json("status", "--json")["caches"] == []
    assert cluster.pdla.run("sync").stdout == "Nothing to write back.\n"
    assert cluster.pdla.run("drain", "--all").stdout == "All bytes are home.\n"
    assert list((cluster.pdla.directory / "ssd").iterdir()) == []


@pytest.mark.parametrize("verb", ["sync", "drain"])
def test_h32_after_a_kill_the_bytes_of_a_cache_come_home(cluster: Cluster, verb: str) -> None:
    steps = ("write:0", "write:1", "again:0")
    native = cluster.natively(*steps)
    done = cluster.pdla.run(*cluster.words(*steps, "kill", flush="flush_onclose"), code=9)
    assert f"of {cluster.original} are newer in cache files on" in done.stderr
    (row,) = cluster.pdla.json("status", "--json")["caches"]
    assert (row["original"], row["files"], row["holder"]) == (str(cluster.original), 3, "")
    assert (row["cached"], row["dirty"]) == (9 * 96 * 200, 6 * 96 * 200)
    assert "not home yet; nobody brings it home" in " ".join(cluster.pdla.run("status").stdout.split())
    words = ("sync",) if verb == "sync" else ("drain", cluster.original)
    assert f"{cluster.original}: 112 KiB written back" in cluster.pdla.run(*words).stdout
    assert cluster.original.read_bytes() == native
    assert list((cluster.pdla.directory / "ssd").iterdir()) == []
    assert cluster.pdla.run(*words).returncode == 0


def test_drain_waits_until_the_bytes_of_a_running_program_are_home(cluster: Cluster) -> None:
    steps = ("write:0", "nap:3000", "sync", "nap:60000")
    native = cluster.natively("write:0")
    with cluster.running(*steps) as job:
        said = " ".join(cluster.pdla.run("status").stdout.split())
        assert "56.2 KiB of it not home yet; a program is writing to it." in said
        done = cluster.pdla.run("drain", cluster.original)
        assert "not home yet: a program is writing to it" in done.stderr
        assert job.poll() is None
        assert cluster.original.read_bytes() == native


def test_drain_may_be_stopped(cluster: Cluster) -> None:
    with cluster.running("write:0", "nap:60000"):
        waiting = subprocess.Popen(
            [PDLA, "drain", "--all"],
            env=cluster.pdla.environment,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        )
        assert waiting.stderr is not None
        assert "not home yet" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(PATIENCE) == 128 + signal.SIGINT
    cluster.pdla.run("drain", "--all")
    assert len(cluster.original.read_bytes()) > 0


def test_h48_what_a_killed_program_left_on_a_node_comes_home_from_there(
    cluster: Cluster, nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    """The device of each node is its own. The other node names the first one, and touches nothing."""
    steps = ("write:0", "write:1", "again:0")
    native = cluster.natively(*steps)
    shared = Cluster(cluster.pdla, cluster.mpi, cluster.program, tmp_path / "shared/data")
    (tmp_path / "layers/upper/data").write_bytes(b"")
    for node in nodes:
        node.run("mount", "-t", "tmpfs", "tmpfs", tmp_path / "ssd")
    environment = {**cluster.pdla.environment, "PDLA_HOME": str(cluster.pdla.home)}

    def on(node: Node, *words: str | Path) -> tuple[int, str]:
        job = node.start(PDLA, *words, env=environment)
        out, _ = job.communicate(timeout=PATIENCE)
        return job.returncode, out

    here, there = nodes
    assert on(here, *shared.words(*steps, "kill", flush="flush_onclose"))[0] == 9
    before = (tmp_path / "layers/upper/data").read_bytes()
    code, said = on(there, "sync")
    assert code == 1
    assert f"{6 * 96 * 200} bytes wait on node node1, in {tmp_path}/ssd/pdla-node1-" in said
    assert "and 2 more cache files (run pdla sync there)" in said
    assert (tmp_path / "layers/upper/data").read_bytes() == before
    code, said = on(here, "sync")
    assert (code, "112 KiB written back" in said) == (0, True)
    assert (tmp_path / "layers/upper/data").read_bytes() == native
    assert here.run("ls", tmp_path / "ssd") == ""


def test_drain_leaves_other_files_alone(place: Place) -> None:
    wanted = write_at_random(place, 1)
    other = place.directory / "other"
    other.write_bytes(b"x")
    assert write_back(place.catalog, only=other) == []
    linked = place.directory / "linked"
    os.link(place.original, linked)
    assert [row.original for row in write_back(place.catalog, only=linked)] == [place.original]
    assert place.original.read_bytes() == wanted


def test_drain_says_what_cannot_come_home(place: Place, pdla: Launching) -> None:
    journal = place.process(host="n2", boot=OTHER_BOOT)
    place.write(journal, 0, b"a" * 100, 1)
    place.leave()
    journal.cache.unlink()
    done = pdla.run("drain", place.original, code=1)
    assert f"100 bytes wait on node n2, in {journal.cache} (run pdla sync there)" in done.stdout
    assert "there is no file" in pdla.run("drain", "no", code=1).stderr
    assert "give FILE or --all" in pdla.run("drain", code=2).stderr


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_the_daemon_counts_what_recorded_runs_did_with_their_caches(tmp_path: Path, place: Place) -> None:
    class Recorded:
        def __init__(self, cache: dict[str, Any] | None) -> None:
            self._cache = cache

        def to_json(self) -> dict[str, Any]:
            return {"files": [], "cache": self._cache}

    passed = [{"why": "atomic mode", "calls": 3, "bytes": 5}]
    cache = {"written_bytes": 100, "hit_bytes": 10, "home_bytes": 90, "refused": passed, "seconds_hidden": 1.5}
    for recorded in (Recorded(cache), Recorded(None), Recorded(cache)):
        place.catalog.results.add(recorded)
    told = tmp_path / "pdla.prom"
    daemon = Daemon(place.catalog, threading.Event(), Gate(1, 1 << 40), metrics=Metrics(told))
    daemon._update_metrics()
    place.catalog.results.add(Recorded(cache))
    daemon._update_metrics()
    said = told.read_text()
    assert 'pdla_cache_bytes_total{what="written"} 300.0' in said
    assert 'pdla_cache_bytes_total{what="hit"} 30.0' in said
    assert 'pdla_cache_bytes_total{what="home"} 270.0' in said
    assert "pdla_cache_hidden_seconds_total 4.5" in said
    assert 'pdla_cache_refused_calls_total{why="atomic mode"} 9.0' in said
