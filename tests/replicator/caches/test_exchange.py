"""Collective writes of ranks on several nodes, whose pieces are exchanged before they go to the nodes' caches."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pdla.replicator.journals import read_journal
from tests.support.cached_writes import AGAIN, IMMEDIATE, ON_CLOSE, SIZES, STEPS, Case, make_nodes
from tests.support.command_line import PDLA
from tests.support.mpi import Mpi, available_mpis, debian_mpis, unavailable
from tests.support.namespace_nodes import on_nodes

PIECES = 200
"""That a rank writes in a step."""
UNIT = 1000
"""Bytes: small, so that a call has units for all ranks, and several for each."""
ALWAYS = {"PDLA_ROMIO_CB_WRITE": "enable", "PDLA_CB_BUFFER_SIZE": str(UNIT)}


@pytest.fixture
def case(tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under MPICH, on two nodes."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return make_nodes(mpi, tmp_path, library, programs)


@pytest.fixture(params=[*available_mpis(), *(mpi for mpi in debian_mpis() if mpi.id != "debian-mpich")])
def any_case(request: pytest.FixtureRequest, tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under each MPI, on two nodes.

    RATIONALE: between such nodes, programs of Debian's MPICH 4.0 sometimes do not leave MPI_Finalize, natively.
    """
    return make_nodes(request.param, tmp_path, library, programs)


ALL = STEPS | SIZES | AGAIN
ALL["pieces that are not in order"] = ["tangled:0", "write:1", "tangled:0", "tangled:1", "read:1", "all:1"]
ALL["an exchange after a sync"] = ["write:0", "sync", "iwrite:0", "again:0", "sync", "write:0", "iwrite:1", "all:0"]


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
@pytest.mark.parametrize("steps", ALL.values(), ids=ALL)
@pytest.mark.thorough(6)
def test_a_program_sees_and_leaves_the_same_bytes(case: Case, steps: list[str], flush: str) -> None:
    ran = case.same(flush, *steps, ranks=5, **ALWAYS)
    assert ran.total("exchange", "calls") > 0 or "iwrite:0" in steps


def test_pieces_are_exchanged_with_any_mpi(any_case: Case) -> None:
    ran = any_case.same(IMMEDIATE, "write:0", "again:0", "write:1", "sync", "write:2", "read:2", ranks=4, **ALWAYS)
    assert ran.total("exchange", "calls") == ran.total("written", "calls") == 4 * 4


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_any_number_of_ranks(case: Case, ranks: int) -> None:
    ran = case.same(ON_CLOSE, "write:0", "again:0", "write:1", "one:0", "all:0", ranks=ranks, **ALWAYS)
    assert ran.total("exchange", "calls") == 3 * ranks


def test_an_exchange_makes_the_requests_of_the_way_home_large(case: Case) -> None:
    """Without one each node brings home what lies between the pieces of the other."""
    never = {"PDLA_ROMIO_CB_WRITE": "disable"}
    apart = case.same(ON_CLOSE, "write:0", ranks=4, **never)
    found = case.same(ON_CLOSE, "write:0", ranks=4)
    assert (apart.total("exchange", "calls"), found.total("exchange", "calls")) == (0, 4)
    assert apart.total("home", "requests") == 4 * PIECES
    assert found.total("home", "requests") == 1
    exchanges = {tuple(cache["exchange"]["requests"]) for cache in found.caches}
    assert exchanges == {tuple(cache["exchange"]["requests"]) for cache in apart.caches}
    ((before, after, _),) = exchanges
    assert before == pytest.approx(4 * PIECES, rel=0.1)
    assert after == 1


def test_pieces_stay_where_an_exchange_does_not_pay(case: Case) -> None:
    """Of free requests a thousand cost as much as one."""
    ran = case.same(ON_CLOSE, "write:0", "again:0", ranks=4, PDLA_EXCHANGE_COSTS="0,1e-9,2e-5,1e-9,2e-10,0")
    assert ran.total("exchange", "calls") == 0
    assert all(cache["exchange"]["seconds"][0] < cache["exchange"]["seconds"][1] for cache in ran.caches)


@pytest.mark.parametrize(("overlap", "exchanged"), [(0, 1), (1, 0)])
def test_pieces_stay_where_their_requests_take_no_longer_than_their_bytes(
    case: Case, overlap: int, exchanged: int
) -> None:
    """If the storage takes the longer of both, fewer requests gain nothing."""
    given = f"1e-4,1e-5,1e-9,1e-12,1e-12,{overlap}"
    ran = case.same(ON_CLOSE, "write:0", ranks=4, PDLA_EXCHANGE_COSTS=given)
    assert ran.total("exchange", "calls") == exchanged * 4


def test_pieces_stay_once_a_computation_hides_their_way_home(case: Case) -> None:
    """What the program computes before the first close is not known before."""
    dear = {"PDLA_EXCHANGE_COSTS": "1e-4,1e-9,2e-5,1e-9,2e-10,0"}
    ran = case.same(IMMEDIATE, "write:0", "nap:1000", "file:1", "write:0", "nap:300", ranks=4, **dear)
    exchanged = {Path(cache["path"]).name: cache["exchange"]["calls"] for cache in ran.caches}
    assert exchanged == {"data": 1, "1.data": 0}


@pytest.mark.parametrize(
    "steps",
    [
        ["write:0", "again:0", "holes:0", "overlap:0"],
        ["iwrite:0", "write:0"],
        ["write:0", "sync", "iwrite:0", "again:0"],
        ["write:0", "iwrite:0", "write:1"],
        ["write:0", "iwrite:0", "tangled:0", "split:0", "write:1"],
    ],
    ids=["exchanged", "after others", "after a sync and others", "before another", "before others"],
)
def test_each_byte_waits_on_one_node_only(case: Case, steps: list[str]) -> None:
    """Else nobody could tell which copy is the newest. Nonblocking and split calls are never exchanged."""
    case.run(case.variables(ON_CLOSE, **ALWAYS), *steps, "kill", ranks=4, fails=True)
    nodes: dict[int, set[str]] = {}
    for path in case.journals:
        journal = read_journal(path)
        for _, start, stop in journal.entries[journal.home :]:
            for unit in range(start // UNIT, -(-stop // UNIT)):
                nodes.setdefault(unit, set()).add(journal.host)
    assert len(nodes) > 4 and {len(names) for names in nodes.values()} == {1}
    assert set.union(*nodes.values()) == {"node0", "node1"}


def test_h46_what_a_killed_program_exchanged_comes_home_from_each_node(case: Case) -> None:
    native = case.natively("write:0", "again:0", "write:1", ranks=4)
    case.original.unlink()
    case.run(case.variables(ON_CLOSE, **ALWAYS), "write:0", "again:0", "write:1", "kill", ranks=4, fails=True)
    for node in ("0", "1"):
        words: list[str | Path] = [on_nodes(case.directory), PDLA, "sync"]
        variables = {**os.environ, "PMI_RANK": node, "PDLA_HOME": str(case.directory / "home")}
        subprocess.run(words, env=variables, capture_output=True, check=node == "1")
    assert case.original.read_bytes() == native.bytes
    assert case.journals == [] and list(case.cache.iterdir()) == []


def test_h52_where_a_cache_is_full_the_mpi_library_writes(case: Case) -> None:
    room = {"PDLA_CACHE_BYTES": str(60_000)}
    ran = case.same(ON_CLOSE, "write:0", "write:1", "again:0", "write:2", "again:1", ranks=4, **ALWAYS, **room)
    assert 0 < ran.total("exchange", "calls") < ran.total("written", "calls") + 20
    assert any("no room" in why for why in ran.passed)


def test_h53_a_rank_that_cannot_write_to_its_cache_keeps_all_from_it(case: Case, programs: Path) -> None:
    """The bytes of the call that it got are not lost: the MPI library writes all of them."""
    if not shutil.which("strace"):
        unavailable("strace is not installed: it makes a write fail")
    script = case.directory / "ranked"
    failing = "strace -f -o /dev/null -e trace=pwritev -e inject=pwritev:error=EIO:when=2"
    program = programs / f"cached-{case.mpi.name}"
    script.write_text(f'#!/bin/sh\n[ "$PMI_RANK" = 1 ] && exec {failing} {program} "$@"\nexec {program} "$@"\n')
    script.chmod(0o755)
    native = case.natively("write:0", "again:0", "write:1", "all:0", ranks=4)
    case.original.unlink()
    ranked = Case(case.mpi, on_nodes(case.directory, script), case.libraries, case.directory)
    ran = ranked.run(ranked.variables(ON_CLOSE, **ALWAYS), "write:0", "again:0", "write:1", "all:0", ranks=4)
    assert (ran.bytes, ran.seen) == (native.bytes, native.seen)
    assert "the cache could not be written" in ran.passed
