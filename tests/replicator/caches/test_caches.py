"""Writes that go to a cache on the node's own device while a program runs: the same bytes, whatever happens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdla.replicator.identity import identity_of
from pdla.replicator.intent import HeldIntent
from pdla.replicator.journals import read_journal, set_home
from tests.searches.killing_write_backs import interrupter
from tests.support.cached_writes import AGAIN, IMMEDIATE, ON_CLOSE, SIZES, STEPS, Case, Ran
from tests.support.handmade_journals import Image
from tests.support.mpi import unavailable
from tests.support.waiting import PATIENCE, wait_until

ERR_IO_LINE = "its newest bytes are in"
STAY = {"PDLA_ROMIO_CB_WRITE": "disable"}
"""Pieces with gaps go to the cache, too."""


def see_the_same(case: Case, flush: str, *steps: str) -> None:
    ran = case.same(flush, *steps, **STAY)
    assert ran.total("written", "bytes") > 0
    assert ran.total("home", "bytes") > 0


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_program_sees_and_leaves_the_same_bytes(case: Case, steps: list[str], flush: str) -> None:
    see_the_same(case, flush, *steps)


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.parametrize("steps", SIZES.values(), ids=SIZES)
def test_h45_a_cached_file_has_the_size_that_was_written(case: Case, steps: list[str], flush: str) -> None:
    see_the_same(case, flush, *steps)


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.parametrize("steps", AGAIN.values(), ids=AGAIN)
def test_h49_what_is_written_while_older_bytes_go_home_counts(case: Case, steps: list[str], flush: str) -> None:
    see_the_same(case, flush, *steps)


ACROSS = ["write:0", "barrier", "other:0", "barrier", "again:0", "barrier", "other:0", "read:0", "barrier", "again:1"]


def test_a_coherent_cache_lets_reads_of_other_nodes_wait(any_case: Case) -> None:
    """Ranks that look only at what MPI promises stand for ranks of several nodes."""
    apart = {"PDLA_COHERENCE": "mpi"}
    any_case.same(ON_CLOSE, *ACROSS, "barrier", "other:1", "other:0", PDLA_E10_CACHE="coherent", **apart)
    native = any_case.natively("write:0", "barrier", "other:0")
    any_case.original.unlink()
    ran = any_case.run(any_case.variables(ON_CLOSE, **apart), "write:0", "barrier", "other:0")
    assert ran.seen != native.seen


@pytest.mark.parametrize("apart", [True, False])
def test_reads_of_a_coherent_cache_see_all_bytes(case: Case, apart: bool) -> None:
    """Of a rank that has all of them, and of ranks whose pieces interleave; shared pointers may lead anywhere."""
    coherent = {"PDLA_E10_CACHE": "coherent", **({"PDLA_COHERENCE": "mpi"} if apart else {})}
    ran = case.same(ON_CLOSE, "write:0", "read:0", "again:0", "nap:150", "read:0", ranks=1, **coherent)
    assert ran.total("hits", "calls") >= 1
    case.same(ON_CLOSE, "write:0", "read:0", "ordered", "write:1", "barrier", "other:1", "ordered", **coherent)


def test_a_cache_that_cannot_be_coherent_is_not_used(case: Case) -> None:
    """The files for its locks cannot be made."""
    case.same(ON_CLOSE, "write:0", PDLA_E10_CACHE="coherent")
    for marks in (case.directory / "home/journals").glob("cache-*/marks.1"):
        marks.unlink()
        marks.mkdir()
    ran = case.same(ON_CLOSE, "write:0", "other:0", PDLA_E10_CACHE="coherent")
    assert ran.total("written", "bytes") == 0


def test_reads_take_what_the_cache_has_from_there_and_the_rest_from_the_file(any_case: Case) -> None:
    """A third of the pieces is in the cache. Nothing comes home for a read, unless the file ends before it."""
    ran = any_case.same(ON_CLOSE, "write:0", "sync", "holes:0", "read:0", "read:0", **STAY)
    assert ran.total("hits", "calls") == 6 and ran.total("hits", "bytes") == 2 * 3 * 67 * 96
    assert ran.total("home", "requests") == 1 + 200
    any_case.same(ON_CLOSE, "holes:0", "read:0", "other:0", **STAY)


SIEVED = "the MPI library sieves the gaps in less time than the pieces take"


def test_the_mpi_library_sieves_gaps(any_case: Case) -> None:
    """Each piece would go home by itself. What waits in the caches may be what is between them."""
    ran = any_case.same(ON_CLOSE, "holes:0", "holes:1", "other:0", "write:9", "holes:0", "write:0", "holes:0", "all:0")
    assert ran.passed == {SIEVED} and ran.total("written", "calls") == 3 * 3


def test_pieces_that_overlap_have_no_gaps(case: Case) -> None:
    ran = case.same(ON_CLOSE, "halo:0", "all:0")
    assert ran.passed == set() and ran.total("home", "requests") == 1


def test_gaps_that_later_calls_fill_go_to_the_cache(case: Case) -> None:
    """Once a call has done so, all others do, in later files from the first one on."""
    ran = case.same(ON_CLOSE, "holes:0", "between:0", "holes:0", "read:0", "file:1", "holes:0", "between:0", "all:0")
    assert {Path(cache["path"]).name: cache["written"]["calls"] for cache in ran.caches} == {"data": 2, "1.data": 2}


def test_gaps_go_to_the_cache_once_a_computation_hides_their_way_home(case: Case) -> None:
    ran = case.same(IMMEDIATE, "holes:0", "nap:1000", "file:1", "holes:0", "nap:300")
    assert {Path(cache["path"]).name: cache["written"]["calls"] for cache in ran.caches} == {"data": 0, "1.data": 1}


def slowed(case: Case, call: str, microseconds: int, but: str, variables: str = "") -> Case:
    """Each such call takes so much longer, but on ranks for which the shell's test ``but`` is true.

    ``variables`` are the environment of the slow ones.
    """
    if not shutil.which("strace"):
        unavailable("strace is not installed: it delays a rank")
    script = case.directory / "slowed"
    script.write_text(
        f'#!/bin/sh\nif [ {but} ]; then exec {case.program} "$@"; fi\n'
        f"exec env {variables} strace -f -o /dev/null -e trace={call} -e inject={call}:delay_enter={microseconds}"
        f' {case.program} "$@"\n'
    )
    script.chmod(0o755)
    return Case(case.mpi, script, case.libraries, case.directory)


@pytest.fixture
def slow(case: Case) -> Case:
    """Each write of the MPI library takes a third of a second, but on the rank FAST."""
    return slowed(case, "pwrite64", 300_000, '"$PMI_RANK" = "$FAST"')


def test_what_the_mpi_library_takes_is_no_computation(slow: Case) -> None:
    steps = ("holes:0", "sync", "holes:1", "holes:2", "sync", "holes:3")
    ran = slow.run(slow.variables(ON_CLOSE, COUNT="60"), *steps)
    assert ran.passed == {SIEVED} and ran.total("written", "calls") == 0


def test_h02_the_mpi_library_does_not_undo_what_another_open_cached(slow: Case) -> None:
    """What it has read of the gap is older than the bytes of the cache, which come home before it has written."""
    ran = slow.same(ON_CLOSE, "around:0", COUNT="10", FAST="2")
    assert ran.passed == set()


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
def test_h50_forks_and_signals_do_not_reach_the_mover(case: Case, flush: str) -> None:
    steps = ("write:0", "fork", "signals", "write:1", "nap:80", "fork", "signals", "read:0")
    see_the_same(case, flush, *steps)


@pytest.mark.parametrize("deferred_close", ["", "*data"])
def test_h38_locks_of_the_program_stay(any_case: Case, deferred_close: str) -> None:
    """Also when a deferred close ends, which natively was over before the lock was taken."""
    any_case.same(
        *(IMMEDIATE, "write:0", "lock:0", "write:1", "locked:0", "sync", "locked:0"),
        *("file:1", "lock:0", "nap:300", "locked:0", "file:2", "locked:0", "write:0", "lock:2", "locked:2"),
        PDLA_DEFERRED_CLOSE=deferred_close,
    )


def test_h38_locks_stay_when_what_a_killed_program_wrote_goes_home(any_case: Case) -> None:
    """The first rank brings it home. Natively, it loses its own where the open may create the file."""
    steps, exists = ("lock:1", "file:1", "locked:1", "all:0", "locked:1"), {"EXISTS": "1"}
    any_case.natively("file:1", "write:0")
    any_case.natively("write:0")
    native = any_case.run(exists, *steps)
    any_case.original.with_name("1.data").unlink()
    any_case.run(any_case.variables(ON_CLOSE), "file:1", "write:0", "kill", fails=True)
    assert any_case.journals != []
    assert any_case.run(any_case.variables(ON_CLOSE) | exists, *steps).seen == native.seen
    assert any_case.journals == [] and "".join(native.seen).count("locked 1") == 3 * 2


def test_h60_a_cache_file_that_may_not_become_longer_is_full(case: Case) -> None:
    """The file has 57,605 bytes; each process writes more than 100,000 in its cache file."""
    ran = case.same(ON_CLOSE, "limit:100000", *["write:0", "again:0"] * 5, "read:0", **STAY)
    assert ran.passed == {"no room in the cache"} and ran.total("written", "calls") >= 3 * 5


def test_h60_without_room_for_a_journal_nothing_is_redirected(case: Case) -> None:
    ran = case.same(IMMEDIATE, "limit:60000", "file:1", "write:0", "again:0", "other:0", **STAY)
    assert ran.total("written", "calls") == 0


def test_h60_a_program_that_writes_too_much_ends_at_that_call(case: Case) -> None:
    """Each place has 19,200 bytes."""
    steps = ("write:0", "limit:30000", "again:0", "write:1", "write:0")
    native = case.natively(*steps, ranks=1, fails=True)
    case.original.unlink()
    ran = case.run(case.variables(ON_CLOSE), *steps, ranks=1, fails=True)
    assert ran.seen == native.seen == ["write 19200\nagain 19200\n"]
    assert len(native.bytes) == 30000 and case.journals != []
    assert case.run(case.variables(ON_CLOSE), "size", ranks=1).bytes == native.bytes


def test_h60_what_is_written_back_below_a_limit_sends_no_signal(case: Case) -> None:
    """Natively, the file had these bytes when the limit came."""
    native = case.natively("write:0", "again:0")
    case.original.unlink()
    ran = case.run(case.variables(ON_CLOSE, **STAY), "write:0", "again:0", "limit:1000")
    assert "close failed" in ran.seen[0] and ran.bytes == b""
    assert len(case.journals) == 3
    assert case.run(case.variables(ON_CLOSE), "size").bytes == native.bytes


def test_h60_a_report_that_may_not_become_longer_is_not_made(case: Case) -> None:
    assert case.run(case.variables(IMMEDIATE), "write:0", "reopen", "limit:10").caches == []


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
def test_bytes_go_to_the_cache_with_any_mpi(any_case: Case, flush: str) -> None:
    ran = any_case.same(flush, "write:0", "again:0", "write:1", "sync", "write:2", "read:2")
    assert ran.total("written", "calls") == 4 * 3
    assert flush == IMMEDIATE or ran.total("hits", "calls") == 3


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_any_number_of_ranks(case: Case, ranks: int) -> None:
    case.same(IMMEDIATE, "write:0", "again:0", "write:1", "all:0", "write:2", "sync", "size", ranks=ranks)


def test_pieces_of_all_ranks_go_home_in_large_writes(case: Case) -> None:
    ran = case.same(ON_CLOSE, "write:0", "write:1", "write:2", "write:3")
    assert ran.total("home", "requests") == 1
    assert ran.total("home", "bytes") == ran.total("written", "bytes") == 4 * 3 * 200 * 96


def test_the_mover_brings_bytes_home_while_the_program_computes(case: Case) -> None:
    case.natively("write:0", "write:1")
    ran = case.run(case.variables(IMMEDIATE), "write:0", "write:1", "nap:1500", "kill", fails=True)
    assert ran.caches == []
    case.run(case.variables(IMMEDIATE), "read:0")
    native = case.natively("write:0", "write:1")
    assert ran.bytes == native.bytes


def test_movers_wait_for_ranks_that_have_not_ended_the_call(case: Case) -> None:
    """Rank 2 takes half a second to write to its cache, and its own mover brings nothing home."""
    ranked = slowed(case, "pwritev", 500_000, '"$PMI_RANK" != 2', f"PDLA_E10_CACHE_FLUSH_FLAG={ON_CLOSE}")
    native = case.natively("write:0", "write:1")
    case.original.unlink()
    ran = ranked.run(case.variables(IMMEDIATE), "write:0", "write:1", "nap:2000", "kill", fails=True)
    assert ran.bytes == native.bytes


@pytest.mark.parametrize("step", ["exit", "leave"])
@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
def test_h50_a_program_that_does_not_close_its_file_leaves_its_bytes(case: Case, flush: str, step: str) -> None:
    native = case.natively("write:0", "again:0", "write:1")
    case.original.unlink()
    case.run(case.variables(flush), "write:0", "again:0", "write:1", step, fails=True)
    # MPICH's launcher may kill ranks when the first one has ended.
    assert case.run(case.variables(flush), "size").bytes == native.bytes
    assert list(case.cache.iterdir()) == []


@pytest.mark.parametrize("follower", ["cache", "map", "preloaded"])
def test_h46_what_a_killed_program_wrote_is_there_at_the_next_open(case: Case, follower: str) -> None:
    native = case.natively("write:0", "again:0", "write:1", "other:0", "other:1", "size")
    case.original.unlink()
    ran = case.run(case.variables(ON_CLOSE), "write:0", "again:0", "write:1", "kill", fails=True)
    assert len(list(case.cache.iterdir())) == len(case.journals) == 3
    assert ran.bytes != native.bytes
    variables = case.variables(ON_CLOSE)
    if follower != "cache":
        del variables["PDLA_POLICY"]
    if follower == "preloaded":
        del variables["PDLA_MAP"]
    next_job = case.run(variables, "other:0", "other:1", "size")
    assert next_job.bytes == native.bytes
    assert [seen.splitlines() for seen in next_job.seen] == [seen.splitlines()[3:] for seen in native.seen]
    assert list(case.cache.iterdir()) == [] and case.journals == []


@dataclass
class Interrupted(Case):
    """Its runs can be killed at a change of the original, of journals or of cache files, or find a full disk."""

    def at(self, number: int, how: str, *below: Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": f"{self.libraries}:{interrupter(self.directory)}",
            "INTERRUPT_AT": str(number),
            "INTERRUPT_HOW": how,
            "INTERRUPT_BELOW": ":".join(map(str, below)),
        }


@pytest.fixture
def interrupted(case: Case) -> Interrupted:
    return Interrupted(case.mpi, case.program, case.libraries, case.directory)


@pytest.mark.parametrize("how", ["kill", "torn"])
@pytest.mark.thorough(1)
def test_h46_bringing_home_may_be_killed_at_any_step(interrupted: Interrupted, how: str) -> None:
    """Also where several journals name the same bytes: an older one that is left must not win."""
    steps = ["write:0", "overlap:0", "write:1"]
    native = interrupted.natively(*steps)
    size = f"size {len(native.bytes)}\n"
    places = (interrupted.original, interrupted.directory / "home", interrupted.cache)
    for number in range(1, 60):
        interrupted.original.unlink(missing_ok=True)
        interrupted.run(interrupted.variables(ON_CLOSE), *steps, "kill", fails=True)
        assert interrupted.journals
        variables = interrupted.variables(ON_CLOSE) | interrupted.at(number, how, *places)
        del variables["PDLA_POLICY"]  # so that all changes are those of the write-back
        ended = interrupted.run(variables, "size", ranks=1, fails=True).seen == [size]
        ran = interrupted.run(interrupted.variables(ON_CLOSE), "size", ranks=1)
        assert (ran.bytes, ran.seen) == (native.bytes, [size])
        assert interrupted.journals == [] and list(interrupted.cache.iterdir()) == []
        if ended:
            break
    assert number > 5


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.thorough(1)
def test_h61_a_signal_handler_may_end_the_program_at_any_step(interrupted: Interrupted, flush: str) -> None:
    """Within calls of the library, with its locks held: nothing is waited for, and nothing is lost."""
    native = interrupted.natively("write:0", "again:1", ranks=1)
    places = (interrupted.original, interrupted.directory / "home/journals", interrupted.cache)
    said = set()
    for number in range(1, 80):
        interrupted.original.unlink(missing_ok=True)
        variables = interrupted.variables(flush) | interrupted.at(number, "exit", *places)
        ran = interrupted.run(variables, "write:0", "nap:20", "again:1", "sync", "write:2", ranks=1, fails=True)
        said.add(re.sub(".*: ", "", next((line for line in ran.stderr.splitlines() if "handler" in line), "")))
        found = interrupted.run(interrupted.variables(flush), "size", ranks=1).bytes
        for place, step in enumerate(("write", "again")):
            start = place * 19200 + 5
            stop = start + (19200 if ran.seen and f"{step} 19200" in ran.seen[0] else 0)
            assert found[start:stop] == native.bytes[start:stop], number
        assert interrupted.journals == [] and list(interrupted.cache.iterdir()) == []
        if "exits" not in ran.stderr:
            break
    assert number > 5 and said == {"", "its newest bytes are in caches (run pdla sync)"}


def test_h46_a_rank_goes_on_where_another_one_was_killed(interrupted: Interrupted) -> None:
    """The one has begun to bring home the node's bytes, and the other one waits for them.

    MPICH's launcher kills all ranks when one of its processes has ended, so these are shells that end later.
    """
    patient = interrupted.directory / "patient"
    patient.write_text(f'#!/bin/sh\n"{interrupted.program}" "$@"\nsleep 2\n')
    patient.chmod(0o755)
    interrupted.program = patient
    steps = ["write:1", "write:0", "survivor:500"]
    interrupted.original.unlink(missing_ok=True)
    native = interrupted.run({}, *steps, ranks=2, fails=True)
    interrupted.original.unlink()
    killed = interrupted.at(1, "kill", interrupted.original) | {"INTERRUPT_RANK": "1"}
    ran = interrupted.run(interrupted.variables(ON_CLOSE) | killed, *steps, ranks=2, fails=True)
    assert "survivor" in native.seen[1] and "survivor" not in ran.seen[1]
    assert ran.seen[0] == native.seen[0]
    assert ran.bytes == native.bytes
    assert interrupted.run(interrupted.variables(ON_CLOSE), "size").bytes == native.bytes
    assert interrupted.journals == [] and list(interrupted.cache.iterdir()) == []


def test_h46_bytes_that_are_home_replace_older_ones_that_wait(case: Case) -> None:
    """A process was killed when it had noted in one of the journals what is home."""
    steps = ["write:0", "overlap:0"]
    native = case.natively(*steps)
    case.original.unlink()
    case.run(case.variables(ON_CLOSE), *steps, "kill", fails=True)
    newest = max(case.journals, key=lambda path: int(read_journal(path).stamps[-1]))
    with case.original.open("r+b") as original:
        HeldIntent(newest.parents[1], identity_of(original.fileno()))
        original.write(native.bytes)
    set_home(newest, len(read_journal(newest).entries))
    ran = case.run(case.variables(ON_CLOSE), "size")
    assert ran.bytes == native.bytes
    assert case.journals == []


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
def test_a_full_disk_at_home_is_an_error_and_loses_nothing(interrupted: Interrupted, flush: str) -> None:
    steps = ["write:0", "again:0", "write:1"]
    native = interrupted.natively(*steps)
    interrupted.original.unlink()
    full = interrupted.variables(flush) | interrupted.at(1, "full", interrupted.original)
    ran = interrupted.run(full, *steps, "nap:150", "sync", fails=True)
    assert {cache["error"] for cache in ran.caches} == {"No space left on device"}
    assert ran.total("dirty") > 0
    ran = interrupted.run(interrupted.variables(flush), "size")
    assert ran.bytes == native.bytes and interrupted.journals == []


def test_the_mover_tries_again_what_failed(interrupted: Interrupted) -> None:
    """A full disk gets room while the program makes no call."""
    steps = ["write:0", "write:1"]
    native = interrupted.natively(*steps)
    interrupted.original.unlink()
    gate, log, end = (interrupted.directory / name for name in ("gate", "log", "data.end"))
    full = interrupted.at(1, "full", interrupted.original) | {"INTERRUPT_GATE": str(gate), "INTERRUPT_LOG": str(log)}
    command = interrupted.command(interrupted.variables(IMMEDIATE) | full, *steps, "until", ranks=3)
    with subprocess.Popen(command, env={**os.environ, **interrupted.mpi.env}) as program:
        try:  # each write of each rank lets a mover try once
            wait_until(lambda: log.exists() and log.read_text().count("write") > 6)
            gate.touch()
            wait_until(lambda: interrupted.original.read_bytes() == native.bytes)
        finally:
            end.touch()
            program.wait(PATIENCE)


def test_a_device_that_is_full_lets_writes_go_home(interrupted: Interrupted) -> None:
    steps = ["write:0", "write:1", "write:2", "again:0", "other:1"]
    native = interrupted.natively(*steps)
    interrupted.original.unlink()
    full = interrupted.variables(ON_CLOSE) | interrupted.at(2, "full", interrupted.cache)
    ran = interrupted.run(full, *steps)
    assert (ran.bytes, ran.seen) == (native.bytes, native.seen)
    assert 0 < ran.total("written", "calls") < 12 and interrupted.journals == []


@pytest.mark.parametrize("harm", ["journal", "cache file", "another node"])
def test_h51_an_open_is_refused_while_newest_bytes_cannot_be_had(case: Case, harm: str) -> None:
    case.run(case.variables(ON_CLOSE), "write:0", "write:1", "kill", fails=True)
    before = case.original.read_bytes()
    spoiled = case.journals[0] if harm == "journal" else sorted(case.cache.iterdir())[0]
    image = spoiled.read_bytes()
    away = spoiled.with_suffix(".away")
    if harm == "another node":
        spoiled.rename(away)
    else:
        spoiled.write_bytes(image[:4200])
    ran = case.run(case.variables(ON_CLOSE), "read:0", fails=True)
    assert "cannot be opened" in ran.stderr
    assert (str(spoiled) in ran.stderr) == (harm == "another node")
    if harm == "another node":
        away.rename(spoiled)
    else:
        spoiled.write_bytes(image)
    native_steps = ["write:0", "write:1"]
    ran = case.run(case.variables(ON_CLOSE), "other:0")
    assert ran.bytes != before
    assert ran.bytes == case.natively(*native_steps).bytes


@pytest.mark.parametrize("which", ["waits", "home"])
def test_h47_an_open_is_refused_while_an_entry_is_damaged(case: Case, which: str) -> None:
    """Also one of bytes that are home, which may be newer than others that wait."""
    case.run(case.variables(ON_CLOSE), "write:0", "overlap:0", "kill", fails=True)
    before = case.original.read_bytes()
    newest = max(case.journals, key=lambda path: int(read_journal(path).stamps[-1]))
    if which == "home":
        set_home(newest, len(read_journal(newest).entries))
    image = Image(newest)
    image.entries[0]["seal"] -= 1
    newest.write_bytes(image.bytes)
    ran = case.run(case.variables(ON_CLOSE), "size", fails=True)
    assert "cannot be opened" in ran.stderr and "a journal is damaged" in ran.stderr
    assert case.original.read_bytes() == before and len(case.journals) == 3


def test_an_open_is_refused_while_its_file_has_no_room_for_newest_bytes(interrupted: Interrupted) -> None:
    native = interrupted.natively("write:0")
    interrupted.original.unlink()
    interrupted.run(interrupted.variables(ON_CLOSE), "write:0", "kill", fails=True)
    full = interrupted.variables(ON_CLOSE) | interrupted.at(1, "full", interrupted.original)
    ran = interrupted.run(full, "size", fails=True)
    assert "there is no space for them in the file" in ran.stderr
    assert interrupted.run(interrupted.variables(ON_CLOSE), "size").bytes == native.bytes


def test_h52_a_cache_that_is_full_lets_writes_go_home(case: Case) -> None:
    """Room for two and a half calls of each of three ranks."""
    room = {"PDLA_CACHE_BYTES": str(3 * 48000)}
    ran = case.same(ON_CLOSE, "write:0", "write:1", "write:2", "write:3", "again:0", "again:3", "read:3", **room)
    assert "no room in the cache" in ran.passed
    assert 0 < ran.total("written", "bytes") < 6 * 3 * 19200
    ran = case.same(ON_CLOSE, "write:0", "both:1", "write:1", **room)
    assert sorted(cache["written"]["calls"] for cache in ran.caches) == [1] * 3 + [2] * 3
    ran = case.same(IMMEDIATE, "write:0", "write:1", "sync", "write:2", "write:3", "sync", "write:4", **room)
    assert ran.total("written", "bytes") == 5 * 3 * 19200


MILLION = {"PIECE": "8", "COUNT": "125000"}
"""Of pieces, in eight writes."""
LARGER = {**MILLION, "PIECE": "32"}
WRITES = [f"write:{place}" for place in range(8)]


def test_a_million_pieces_of_a_process_are_cached(case: Case) -> None:
    """They also go home together with those of the other rank."""
    ran = case.same(ON_CLOSE, *WRITES, "again:3", "read:3", "sync", "write:0", ranks=2, **MILLION)
    assert ran.passed == set()
    assert ran.total("written", "calls") == 2 * 10


def test_a_process_has_memory_for_a_million_pieces_but_not_for_those_of_others(case: Case) -> None:
    """Three ranks have three million; natively they have the MPI library's buffers instead."""
    native, cached = (
        int(ran.stderr.split()[ran.stderr.split().index("memory") + 1]) >> 10
        for ran in (
            case.natively(*WRITES, "sync", "memory", **LARGER),
            case.same(ON_CLOSE, *WRITES, "sync", "memory", **LARGER),
        )
    )
    assert cached < native + 80


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
def test_small_pieces_are_cached_also_once_more_than_half_of_the_room_is_taken(case: Case, flush: str) -> None:
    ran = case.same(flush, *WRITES, ranks=2, PDLA_CACHE_BYTES=str(2 * 12 << 20), **MILLION)
    assert ran.passed == set()


@pytest.mark.parametrize(("piece", "count"), [(384, 15000), (1536, 3750)])
def test_pieces_go_home_a_few_chunks_at_a_time(case: Case, piece: int, count: int) -> None:
    """They lie in ten chunks, which other pieces cross. Of 210,000 pieces a thread knows those of three chunks at a
    time; of 52,500 it knows all."""
    pieces = {"PIECE": str(piece), "COUNT": str(count)}
    steps = [f"write:{place}" for place in range(7)]
    ran = case.same(ON_CLOSE, *steps, "again:5", "sync", "again:1", "read:5", ranks=2, **pieces)
    assert ran.passed == set()


def test_h52_a_call_of_more_pieces_than_the_core_has_memory_for_goes_home(case: Case) -> None:
    """What was cached before, and what is written after it is home, is not concerned."""
    ran = case.same(ON_CLOSE, "write:0", "one:1", "sync", ranks=2, PIECE="1", COUNT="1500000")
    assert ran.passed == {"no room in the cache", "not a collective write"}


def test_h53_a_rank_whose_device_refuses_keeps_all_from_the_cache(case: Case) -> None:
    """The directory is there for rank 0 only."""
    script = case.directory / "ranked"
    script.write_text(
        '#!/bin/sh\nif [ "$PMI_RANK" = 0 ]; then PDLA_E10_CACHE_PATH=$CACHE; else PDLA_E10_CACHE_PATH=/nowhere; fi\n'
        f'export PDLA_E10_CACHE_PATH\nexec {case.program} "$@"\n'
    )
    script.chmod(0o755)
    ranked = Case(case.mpi, script, case.libraries, case.directory)
    native = case.natively("write:0", "write:1", "other:0")
    case.original.unlink()
    ran = ranked.run({**case.variables(IMMEDIATE), "CACHE": str(case.cache)}, "write:0", "write:1", "other:0")
    assert (ran.bytes, ran.seen) == (native.bytes, native.seen)
    assert ran.total("written", "bytes") == 0


NO_GAIN = "for the last such file the computation hid nothing"
LARGE = {"PIECE": "1024", "COUNT": "1024"}
"""Of smaller files nothing is learned."""


def cached_calls(ran: Ran) -> dict[str, set[int]]:
    """How many calls each rank has cached, by file."""
    return {
        name: {cache["written"]["calls"] for cache in ran.caches if Path(cache["path"]).name == name}
        for name in sorted({Path(cache["path"]).name for cache in ran.caches})
    }


def test_after_a_file_that_gained_nothing_the_next_one_goes_straight_home(case: Case) -> None:
    """With flush_onclose nothing ever does. Files of another name know nothing of that."""
    steps = ("write:0", "iwrite:1", "split:2", "single:3", "sync", "again:0", "other:0", "all:1")
    ran = case.same(ON_CLOSE, "file:1", *steps, "file:2", *steps, **LARGE)
    assert cached_calls(ran) == {"1.data": {4}, "2.data": {0}, "data": {0}}
    straight = [cache["passed"] for cache in ran.caches if cache["path"].endswith("2.data")]
    assert [{one["why"]: one["calls"] for one in passed}[NO_GAIN] for passed in straight] == [4] * 3
    ran = case.same(ON_CLOSE, "file:1", "write:0", "file:2", "write:0")
    assert cached_calls(ran) == {"1.data": {1}, "2.data": {1}, "data": {0}}


def test_files_are_cached_again_once_a_computation_hides_their_way_home(case: Case) -> None:
    """A write to a cache takes a third of a second."""
    if not shutil.which("strace"):
        unavailable("strace is not installed: it makes a cache slow")
    script = case.directory / "slow"
    script.write_text(
        "#!/bin/sh\nexec strace -f -o /dev/null -e trace=pwritev -e inject=pwritev:delay_enter=300000"
        f' {case.program} "$@"\n'
    )
    script.chmod(0o755)
    slow = Case(case.mpi, script, case.libraries, case.directory)
    steps = ("file:1", "write:0", "file:2", "write:0", "nap:1500", "file:3", "write:0", "nap:1500", "file:4", "write:0")
    ran = slow.run(slow.variables(IMMEDIATE, **LARGE), *steps)
    assert cached_calls(ran) == {"1.data": {1}, "2.data": {0}, "3.data": {1}, "4.data": {1}, "data": {0}}


def test_h53_all_ranks_go_straight_home_or_none(case: Case) -> None:
    """What one rank says is against what the others have seen."""
    script = case.directory / "ranked"
    script.write_text(
        f'#!/bin/sh\nif [ "$PMI_RANK" = 2 ]; then export PDLA_E10_CACHE_FLUSH_FLAG={ON_CLOSE}; fi\n'
        f'exec {case.program} "$@"\n'
    )
    script.chmod(0o755)
    ranked = Case(case.mpi, script, case.libraries, case.directory)
    ran = ranked.same(IMMEDIATE, "file:1", "write:0", "nap:1500", "file:2", "write:0", **LARGE)
    assert cached_calls(ran) == {"1.data": {1}, "2.data": {1}, "data": {0}}


HINTS = {
    "disabled": ({"PDLA_E10_CACHE": "disable"}, "the hint e10_cache does not enable the cache"),
    "no directory": ({"PDLA_E10_CACHE_PATH": ""}, "no hint e10_cache_path names a directory of the node's own device"),
    "not absolute": ({"PDLA_E10_CACHE_PATH": "here"}, "the hint e10_cache_path is not an absolute path"),
    "not there": (
        {"PDLA_E10_CACHE_PATH": "/nowhere"},
        "the cache file cannot be made in the directory e10_cache_path",
    ),
}


@pytest.mark.parametrize(("hints", "why"), HINTS.values(), ids=HINTS)
def test_hints_that_do_not_enable_a_cache_say_why(case: Case, hints: dict[str, str], why: str) -> None:
    ran = case.same(IMMEDIATE, "write:0", "other:0", **hints)
    assert ran.total("written", "bytes") == 0
    assert why in {cache["refused"] for cache in ran.caches}


def test_hints_of_a_file_come_before_those_of_variables(case: Case) -> None:
    hints = case.directory / "hints"
    hints.write_text(f"# of this test\ne10_cache enable\ne10_cache_path {case.cache}\nind_wr_buffer_size 4096\n")
    ran = case.same(
        ON_CLOSE, "write:0", "write:1", PDLA_E10_CACHE="disable", PDLA_E10_CACHE_PATH="", ROMIO_HINTS=str(hints)
    )
    assert ran.total("written", "calls") == 6
    assert ran.total("home", "requests") == -(-2 * 3 * 19200 // 4096)


def test_the_cache_file_stays_if_the_hint_says_so(case: Case) -> None:
    case.run(case.variables(ON_CLOSE, PDLA_E10_CACHE_DISCARD_FLAG="disable"), "write:0")
    assert len(list(case.cache.iterdir())) == 3 and case.journals == []


# ---- a close that does not wait --------------------------------------------------------------------------------------

FILES = ["write:0", "file:1", "write:0", "write:1", "file:0", "read:0", "other:0", "file:2", "again:0", "alone:1"]
ENDS = ["delete:1", "file:3", "write:2", "overlap:2", "file:2", "other:0", "end", "file:1", "write:0", "sync"]


def deferred(case: Case, flush: str, pattern: str = "*data") -> dict[str, str]:
    return case.variables(flush, PDLA_DEFERRED_CLOSE=pattern)


def files_of(case: Case) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in case.directory.glob("*data")}


def remove_files(case: Case) -> None:
    for path in case.directory.glob("*data"):
        path.unlink()


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.thorough(4)
def test_a_program_with_deferred_closes_sees_and_leaves_the_same_bytes(any_case: Case, flush: str, ranks: int) -> None:
    native = any_case.natively(*FILES, *ENDS, ranks=ranks)
    wanted = files_of(any_case)
    remove_files(any_case)
    ran = any_case.run(deferred(any_case, flush), *FILES, *ENDS, ranks=ranks)
    assert ran.seen == native.seen
    assert files_of(any_case) == wanted
    assert ran.total("dirty") == 0 and ran.total("written", "bytes") > 0
    assert list(any_case.cache.iterdir()) == [] and any_case.journals == []


def test_a_child_of_the_program_does_not_keep_a_deferred_close_waiting(case: Case) -> None:
    steps = ["write:0", "child", "file:1", "write:0", "file:0", "other:0"]
    native = case.natively(*steps)
    wanted = files_of(case)
    remove_files(case)
    assert case.run(deferred(case, ON_CLOSE), *steps).seen == native.seen
    assert files_of(case) == wanted and case.journals == []


@dataclass
class Held:
    """A program whose first byte on its way home to a file is held up until the gate opens."""

    case: Interrupted
    native: dict[str, bytes]
    steps: tuple[str, ...]

    @property
    def gate(self) -> Path:
        return self.case.directory / "gate"

    @contextmanager
    def running(self, pattern: str, *, until: str, name: str = "data") -> Iterator[subprocess.Popen[bytes]]:
        """The program, when a rank has said ``until``; the original has its size already, but not its bytes."""
        remove_files(self.case)
        held_file = self.case.original.with_name(name)
        held_file.write_bytes(bytes(len(self.native[name])))
        held = self.case.at(1, "held", held_file) | {"INTERRUPT_GATE": str(self.gate)}
        command = self.case.command(deferred(self.case, ON_CLOSE, pattern) | held, *self.steps, ranks=2)
        with subprocess.Popen(command, env={**os.environ, **self.case.mpi.env}) as program:
            try:
                wait_until(lambda: until in said(self.case.directory / "out"))
                yield program
            finally:
                self.gate.touch()
                program.wait(PATIENCE)


def said(out: Path) -> str:
    return "".join(path.read_text() for path in out.parent.glob(f"{out.name}.*"))


@pytest.fixture
def held(interrupted: Interrupted) -> Held:
    steps = ("write:0", "write:1", "file:1", "write:0", "size", "nap:1", "file:0", "other:0")
    interrupted.natively(*steps, ranks=2)
    return Held(interrupted, files_of(interrupted), steps)


def test_a_deferred_close_returns_before_the_bytes_are_home(held: Held) -> None:
    """The files have different guards, so the open of the second does not wait. That of the first again does."""
    with held.running("data", until="size") as program:
        assert not any(held.case.original.read_bytes())
        time.sleep(0.2)
        assert "other" not in said(held.case.directory / "out")
        assert program.poll() is None
    assert files_of(held.case) == held.native


def test_the_next_open_with_the_same_guard_waits(held: Held) -> None:
    with held.running("*data", until="") as program:
        wait_until(lambda: len(held.case.journals) == 2)
        time.sleep(0.2)
        assert program.poll() is None and "size" not in said(held.case.directory / "out")
    assert files_of(held.case) == held.native


def test_files_that_are_open_at_the_same_time_are_closed_one_after_another(held: Held) -> None:
    """The file that is closed first comes home first; the other one is closed by then."""
    held.steps = ("write:0", "both:1", "file:2", "size")
    held.case.natively(*held.steps, ranks=2)
    held.native = files_of(held.case)
    with held.running("*data", until="write", name="1.data") as program:
        wait_until(lambda: said(held.case.directory / "out").count("write") == 6)
        time.sleep(0.2)
        assert program.poll() is None and "size" not in said(held.case.directory / "out")
    assert files_of(held.case) == held.native


def test_another_job_waits_for_a_file_whose_close_was_deferred(held: Held) -> None:
    variables = held.case.variables(ON_CLOSE)
    words = ["env", *(f"{name}={value}" for name, value in variables.items())]
    out = held.case.directory / "other"
    command = held.case.mpi.command(1, *words, held.case.program, held.case.original, out, "size", "alone:0")
    with held.running("data", until="size"):
        other = subprocess.Popen(command, env={**os.environ, **held.case.mpi.env})
        time.sleep(0.3)
        assert "size" not in said(out)
    assert other.wait(PATIENCE) == 0
    rank_files = sorted(path.read_text() for path in held.case.directory.glob("other.*"))
    held.case.run({}, "size", "alone:0", ranks=1)
    assert rank_files == [(held.case.directory / "out.0").read_text()]


def test_h46_a_program_killed_after_a_deferred_close_loses_nothing(held: Held) -> None:
    held.steps = (*held.steps[:2], "file:1", "kill")
    with held.running("data", until="write") as program:
        assert program.wait(PATIENCE) != 0
    assert not any(held.case.original.read_bytes())
    assert held.case.run(held.case.variables(ON_CLOSE), "size", "file:1", "size").bytes == held.native["data"]
    assert list(held.case.cache.iterdir()) == [] and held.case.journals == []


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_deferred_close_that_fails_is_said_by_the_next_call(interrupted: Interrupted, ranks: int) -> None:
    """The next open with the same guard, if the bytes are still on their way, or whichever of MPI comes next, perhaps
    the close itself; and nothing is lost."""
    steps = ["write:0", "write:1"]
    native = interrupted.natively(*steps, ranks=ranks)
    for pattern, then in [("*data", ["file:1"]), ("data", ["file:1", "nap:300", "stat"])]:
        remove_files(interrupted)
        interrupted.original.write_bytes(bytes(len(native.bytes)))
        full = deferred(interrupted, ON_CLOSE, pattern) | interrupted.at(1, "full", interrupted.original)
        ran = interrupted.run(full, *steps, *then, ranks=ranks, fails=True)
        assert {"failed" in seen for seen in ran.seen} == {True}, ran.seen
        assert "could not be brought home (No space left on device)" in ran.stderr
        assert ran.total("dirty") > 0
        ran = interrupted.run(interrupted.variables(ON_CLOSE), "size")
        assert ran.bytes == native.bytes and interrupted.journals == []
