"""S4D-Cache while a program runs: which requests are critical, and where critical writes go."""

from __future__ import annotations

import ctypes
import math
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pdla.cli.caching import variables
from pdla.file_policies import FilePolicies
from pdla.layouts.config import load_cluster
from pdla.model import Device
from pdla.policies.s4d import benefit_of
from pdla.simulator import caching, core
from tests.support.cached_writes import AGAIN, IMMEDIATE, ON_CLOSE, SIZES, STEPS, Case
from tests.support.critical_requests import ALL, FAR, costs, left_on_servers, logs
from tests.support.mpi import REPOSITORY

WRITES = "65536 2 2 5e-9 1e-8 1e-8 1 0 0 1 0 0.01 1e-8 1e-8 1 0 0 1 0 0"
"""Only writes need a start-up of the disks."""
NONE = "65536 2 2 5e-9 1e-8 1e-8 1 0 0 1 0 0 1e-6 1e-6 1 0 0 1 0 0"
SLOW = "65536 1 2 1e-6 1e-6 1e-6 1 0 0 1 0 0 1e-8 1e-8 1 0 0 1 0 0"
"""The disks need no start-up."""
OSDS = "backend = 'cephfs'\nwhere = ['/a']\nservers = ['hdd:osd.0', 'hdd:osd.1']"


@pytest.fixture
def case(any_case: Case) -> Case:
    """Under each MPI."""
    return any_case


@pytest.mark.parametrize("model", [ALL, NONE, FAR], ids=["all", "none", "far"])
@pytest.mark.parametrize("steps", [*STEPS.values(), *SIZES.values(), *AGAIN.values()], ids=[*STEPS, *SIZES, *AGAIN])
@pytest.mark.thorough(8)
def test_a_program_sees_and_leaves_the_same_bytes(mpich_case: Case, steps: list[str], model: str) -> None:
    ran = mpich_case.same(IMMEDIATE, *steps, **costs(mpich_case, model))
    assert (ran.total("written", "bytes") > 0) == (model != NONE and steps[0] != "iwrite:0")
    assert left_on_servers(mpich_case) == [[], []]
    assert {cache["policy"] for cache in ran.caches} == {"s4d"}


@pytest.fixture
def synchronous(mpich_case: Case) -> Iterator[Case]:
    """SSD servers whose mounts are synchronous."""
    servers = [mpich_case.directory / f"ssd{number}" for number in range(2)]
    mounted = []
    try:
        for server in servers:
            server.mkdir()
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "sync,size=64m", "none", server], check=False).returncode:
                pytest.skip("a synchronous mount needs root")
            mounted.append(server)
        yield mpich_case
    finally:
        for server in mounted:
            subprocess.run(["umount", server], check=True)


@pytest.mark.parametrize("steps", [*STEPS.values(), *AGAIN.values()], ids=[*STEPS, *AGAIN])
def test_bytes_are_the_same_where_ssds_are_synchronous(synchronous: Case, steps: list[str]) -> None:
    synchronous.same(IMMEDIATE, *steps, **costs(synchronous, ALL, PDLA_SSD_BYTES=str(256 << 20)))
    assert left_on_servers(synchronous) == [[], []]


@pytest.mark.parametrize("room", [{}, {"PDLA_SSD_BYTES": str(256 << 20)}], ids=["free", "limited"])
@pytest.mark.parametrize(("flags", "laid_out"), [("sync", True), ("async", False)])
def test_cache_files_are_laid_out_where_each_write_to_a_new_place_writes_a_journal(
    synchronous: Case, flags: str, laid_out: bool, room: dict[str, str]
) -> None:
    """The processes write 19,200 bytes each in small pieces."""
    for number in range(2):
        subprocess.run(["mount", "-o", f"remount,{flags}", synchronous.directory / f"ssd{number}"], check=True)
    variables = {**synchronous.variables(IMMEDIATE), **costs(synchronous, ALL, **room)}
    synchronous.run(variables, "write:0", "kill", fails=True)
    files = [file for number in range(2) for file in (synchronous.directory / f"ssd{number}").glob("*/*.cache")]
    taken = [512 * file.stat().st_blocks for file in files]
    assert len(taken) == 3
    assert min(taken) == 1 << 20 if laid_out else max(taken) < 1 << 20


def test_h60_room_is_not_reserved_beyond_the_limit_for_the_size_of_files(mpich_case: Case) -> None:
    """The first step of a cache file would be 4 MiB."""
    room = costs(mpich_case, ALL, PDLA_SSD_BYTES=str(512 << 20))
    steps = ("limit:1000000", "write:0", "again:0", *["write:1", "again:1"] * 20, "read:1")
    ran = mpich_case.same(IMMEDIATE, *steps, **room)
    assert ran.total("written", "calls") > 0


def test_critical_writes_are_cached_and_others_are_not(case: Case) -> None:
    """Collective ones of 96 bytes each, and an independent one of 9600 bytes."""
    ran = case.same(ON_CLOSE, "write:0", "sync", "one:0", "again:1", **costs(case, FAR))
    assert ran.total("written", "calls") == 6 and ran.passed == {"not critical"}
    ran = case.same(ON_CLOSE, "write:0", "one:0", **costs(case, ALL))
    assert ran.total("written", "calls") == 4 and ran.passed == set()
    assert ran.total("written", "bytes") == 3 * 19200 + 9600
    assert ran.total("home", "requests") == 1


def test_writes_that_save_no_start_up_are_not_cached(case: Case) -> None:
    """On their way home they would cost the disks as much."""
    ran = case.same(ON_CLOSE, "write:0", "one:0", "read:0", **costs(case, SLOW))
    assert ran.total("written", "calls") == 0 and ran.passed == {"not critical"}
    assert [len(log["reads"]) for log in logs(case)] == [200] * 3


def test_writes_have_a_start_up_of_their_own(case: Case) -> None:
    ran = case.same(ON_CLOSE, "write:0", "one:0", "read:0", **costs(case, WRITES))
    assert ran.total("written", "calls") == 4 and ran.passed == set()
    assert logs(case) == []


@pytest.mark.parametrize(
    ("pool", "seconds"),
    [
        ("where = ['/a', '/b']", 5e-9),
        (OSDS, 5e-9 + 0.008 / 65536 / 2),
        (f"{OSDS}\nwrite_startup = [[0, 0.016]]", 5e-9 + 0.016 / 65536 / 2),
    ],
    ids=["directories", "cephfs", "flushes"],
)
def test_the_way_home_is_in_the_order_of_the_file(tmp_path: Path, pool: str, seconds: float) -> None:
    """CephFS takes each strip by itself."""
    device = "read_seconds_per_byte = 1e-8\nwrite_seconds_per_byte = 1e-8\n"
    file = tmp_path / "cluster.toml"
    file.write_text(
        "[home]\npool = 'hdd'\nservers = 2\nstrip = '64K'\n"
        "[clients]\nprocesses_per_node = 1\nconnect_seconds = 0.0\nnetwork_seconds_per_byte = 0.0\n"
        f"[pools.hdd]\nkind = 'hdd'\nstartup = [[0, 0.0], ['1M', 0.008]]\n{pool}\n{device}"
        f"[pools.ssd]\nkind = 'ssd'\nstartup = [[0, 0.0]]\nwhere = ['/c']\n{device}"
    )
    said = variables(FilePolicies(default="s4d"), "node", {}, load_cluster(file))["PDLA_SSD_COSTS"]
    strip, servers, ssds, way_home, *devices = map(float, said.split())
    assert (strip, servers, ssds) == (65536, 2, 1)
    assert way_home == pytest.approx(seconds)
    writes = [1, 0, 0.016] if "write_startup" in pool else [2, 0, 0, 1 << 20, 0.008]
    assert devices == [1e-8, 1e-8, 2, 0, 0, 1 << 20, 0.008, *writes, 1e-8, 1e-8, 1, 0, 0, 1, 0, 0]


def test_the_ranks_take_turns_on_the_servers_and_wait_before_they_bring_home(case: Case) -> None:
    native = case.natively("write:0", "write:1")
    case.original.unlink()
    variables = {**case.variables(IMMEDIATE), **costs(case, ALL)}
    ran = case.run(variables, "write:0", "write:1", "nap:300", "kill", fails=True)
    assert [len(files) for files in left_on_servers(case)] == [2, 1] and ran.bytes == b""
    ran = case.run(variables, "write:0", "write:1", "nap:3000", "kill", fails=True)
    assert ran.bytes == native.bytes


def test_what_a_killed_program_wrote_is_there_at_the_next_open(case: Case) -> None:
    native = case.natively("write:0", "again:0", "one:0", "other:0")
    case.original.unlink()
    variables = {**case.variables(IMMEDIATE), **costs(case, ALL)}
    case.run(variables, "write:0", "again:0", "one:0", "kill", fails=True)
    assert len(case.journals) == 3
    ran = case.run(variables, "other:0")
    assert ran.bytes == native.bytes and case.journals == [] and left_on_servers(case) == [[], []]


def test_h49_what_was_written_over_bytes_that_came_home_is_read(case: Case) -> None:
    """While later bytes of the cache file wait; the large write is not critical."""
    program = case.directory / "overtaken"
    case.mpi.compile(REPOSITORY / "tests/programs/overtaken.c", program, "-Wall", "-Wextra")
    variables = {**case.variables(IMMEDIATE), **costs(case, FAR)}
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), program, case.original]
    assert case.mpi.run(case.mpi.command(1, *words)).split() == ["0"]


def test_a_full_server_takes_what_fits(case: Case) -> None:
    variables = costs(case, ALL, PDLA_SSD_BYTES=str(4 * 19200))
    ran = case.same(IMMEDIATE, *(f"write:{i}" for i in range(8)), "one:3", **variables)
    assert 0 < ran.total("written", "bytes") < 8 * 3 * 19200 and "no room in the cache" in ran.passed


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("PDLA_SSD_COSTS", "65536 2 2 1e-8", "PDLA_SSD_COSTS has no cost model"),
        ("PDLA_SSD_COSTS", ALL + " 1", "PDLA_SSD_COSTS has no cost model"),
        ("PDLA_SSD_COSTS", ALL.replace("0.01", "nan"), "PDLA_SSD_COSTS has no cost model"),
        ("PDLA_SSD_COSTS", ALL.replace(" 1 0 0.01", " 1e9 0 0.01"), "PDLA_SSD_COSTS has no cost model"),
        ("PDLA_SSD_PATH", "", "PDLA_SSD_PATH does not name the directories of SSD servers"),
        ("PDLA_SSD_PATH", "relative", "PDLA_SSD_PATH does not name the directories of SSD servers"),
        ("PDLA_SSD_PATH", "/nowhere/at/all", "the cache file cannot be made on the SSD server"),
    ],
)
@pytest.mark.thorough(4)
def test_without_costs_or_servers_nothing_is_cached(case: Case, variable: str, value: str, why: str) -> None:
    ran = case.same(IMMEDIATE, "write:0", "other:0", **{**costs(case, ALL), variable: value})
    assert ran.total("written", "bytes") == 0 and why in {cache["refused"] for cache in ran.caches}


@pytest.mark.parametrize("other", ["e10", "none"])
def test_ranks_with_different_policies_do_not_wait_for_each_other(case: Case, other: str) -> None:
    """The last rank has another policy than the first one, or none."""
    case.natively("write:0", "write:1", "all:0")
    script = case.directory / "ranked"
    script.write_text(
        f'#!/bin/sh\nif [ "${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}" = 2 ]; then export PDLA_POLICY={other}; fi\n'
        f'exec {case.program} "$@"\n'
    )
    script.chmod(0o755)
    ranked = Case(case.mpi, script, case.libraries, case.directory)
    steps = ["write:0", "one:0", *["write:1"] * 5, "all:0", "other:1"]
    native = case.natively(*steps)
    case.original.unlink()
    ran = ranked.run({**case.variables(IMMEDIATE), **costs(case, ALL)}, *steps)
    assert ran.seen == native.seen and ran.bytes == native.bytes
    assert ran.total("written", "bytes") == 0


def test_critical_reads_are_left_in_a_log(case: Case) -> None:
    steps = ["write:0", "read:0", "read:0", "all:0"]
    case.same(IMMEDIATE, *steps, **costs(case, FAR))
    found, sieves = logs(case), "mpich" in case.mpi.name
    assert [log["rank"] for log in found] == [0, 1, 2]
    for log in found:
        # ROMIO sieves independent reads; of others, each piece is critical.
        assert log["requests"] == 2 * 200 + 2 * (1 if sieves else 200)
        pieces = [(5 + (i * 3 + log["rank"]) * 96, 5 + (i * 3 + log["rank"] + 1) * 96) for i in range(200)]
        assert [row[:2] for row in log["reads"]] == pieces
        assert {row[3] for row in log["reads"]} == {1 if sieves else 3}
        assert all(row[2] > 0 for row in log["reads"])


def test_a_full_table_is_left_and_an_empty_one_begins(case: Case) -> None:
    """Of nearly half a million reads one each time that it is full is missing."""
    count = 240_000
    with case.original.open("wb") as file:
        file.truncate(5 + 2 * 200 * count)
    variables = {**case.variables(IMMEDIATE), **costs(case, ALL), "PIECE": "200", "COUNT": str(count)}
    case.run({**variables, "READ_ONLY": "1"}, "read:0", ranks=2)
    found = logs(case)
    assert [log["rank"] for log in found] == [0, 0, 1, 1]
    starts = [row[0] for log in found for row in log["reads"]]
    assert len({*starts}) == len(starts) >= 2 * count - 2


@pytest.mark.parametrize("count", [2000, 20_000])
def test_pieces_that_take_longer_to_redirect_than_to_stream_are_left_alone(case: Case, count: int) -> None:
    """Each takes a microsecond; the disks need 10 ms for the start-up and 10 ns for a byte."""
    steps = ("write:0", "single:0", "sync", "read:0", "all:0")
    ran = case.same(IMMEDIATE, *steps, **costs(case, ALL), PIECE="4", COUNT=str(count))
    assert (ran.total("written", "bytes") > 0) == bool(logs(case)) == (count == 2000)


def test_without_data_sieving_each_piece_is_a_request(case: Case) -> None:
    hints = case.directory / "hints"
    hints.write_text("romio_ds_read disable\nromio_ds_write disable\n")
    ran = case.same(IMMEDIATE, "spread:1", "sync", "barrier", "read:1", **costs(case, ALL), ROMIO_HINTS=str(hints))
    assert ran.total("written", "bytes") == 3 * 19200 and ran.passed == set()
    assert {log["requests"] for log in logs(case)} == {2 * 200}


def test_what_is_sieved_is_one_request(case: Case) -> None:
    """It is cached only if the ranks together leave no gaps: pieces would come home one by one."""
    ran = case.same(IMMEDIATE, "spread:1", "single:0", "read:0", **costs(case, ALL))
    sieves = "mpich" in case.mpi.name
    assert ran.total("written", "bytes") == (3 if sieves else 6) * 19200
    assert ran.passed == ({"not critical"} if sieves else set())
    for log in logs(case):
        assert log["requests"] == (3 if sieves else 600)
        starts = [5 + (i * 3 + log["rank"]) * 96 for i in range(200)]
        assert [row[:2] for row in log["reads"]] == [(start, start + 96) for start in starts]
        assert math.fsum(row[2] for row in log["reads"]) == pytest.approx(0.01 * (1 if sieves else 200), rel=0.3)


def test_reads_that_are_not_critical_leave_no_log(case: Case) -> None:
    case.same(IMMEDIATE, "write:0", "read:0", "all:0", **costs(case, NONE))
    assert logs(case) == []


def test_a_log_that_cannot_be_written_disturbs_nobody(case: Case) -> None:
    variables = {**costs(case, ALL), "PDLA_CRITICAL_LOG": "/nowhere/at/all"}
    assert case.same(IMMEDIATE, "write:0", "read:0", **variables).stderr == ""


# ---- the identifier --------------------------------------------------------------------------------------------------


class Critical(ctypes.Structure):
    """struct caching_critical."""

    _fields_ = (*((name, ctypes.c_int64) for name in ("file", "start", "stop", "reads")), ("benefit", ctypes.c_double))


@pytest.fixture
def calls() -> ctypes.CDLL:
    """The functions of pdla/caching/identifier.c."""
    library = core.library()
    library.caching_identifier_new.restype = ctypes.c_void_p
    library.caching_identifier_new.argtypes = (ctypes.POINTER(caching.S4D), *[ctypes.c_int64] * 3)
    library.caching_identifier_free.argtypes = (ctypes.c_void_p,)
    library.caching_identify.restype = library.caching_critical.restype = ctypes.c_bool
    library.caching_identify.argtypes = (ctypes.c_void_p, ctypes.POINTER(caching.Request))
    library.caching_critical.argtypes = (
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(Critical),
    )
    return library


@pytest.mark.parametrize("limit", [1 << 24, 1 << 16])
def test_the_identifier_judges_by_eqs_1_to_8(calls: ctypes.CDLL, limit: int) -> None:
    """As Python does; what is in the table stays critical; a table without memory takes no more, and judges on."""
    cluster = load_cluster("s4d-cache")
    disks = Device(write_startup=((0, 0.0), (1 << 20, 0.05)))
    changed = {"ssd": {"read_seconds_per_byte": 1e-7}, "hdd": {"device": disks}}
    cluster = replace(cluster, pools=tuple(replace(pool, **changed.get(pool.kind, {})) for pool in cluster.pools))
    ssd = next(pool for pool in cluster.pools if pool.kind == "ssd")
    disk = cluster.pool(cluster.home_pool)
    of = caching.S4D(caching.Device.of(disk), caching.Device.of(ssd), ssd.servers)
    identifier = calls.caching_identifier_new(of, cluster.home_strip, cluster.home_servers, limit)
    choose = random.Random(7)
    known: dict[tuple[int, int], list[float]] = {}
    end, judged = None, 0
    for number in range(4000):
        length = choose.choice([4096, 16384, 65536, 1 << 20, 4 << 20])
        start = end if end is not None and choose.random() < 0.5 else choose.randrange(1 << 12) * 4096
        op = choose.randrange(2)
        said = calls.caching_identify(
            identifier, caching.Request(rank=0, file=0, op=op, start=start, stop=start + length)
        )
        saved = benefit_of(
            cluster, "write" if op else "read", start, length, math.inf if end is None else abs(start - end)
        )
        end = start + length
        if limit == 1 << 24:
            assert said == (saved > 0 or (start, end) in known), number
        elif saved > 0:
            assert said, number
        judged += saved > 0
        if saved > 0 or (start, end) in known:
            known.setdefault((start, end), [saved, 0])[1] += op == 0
    assert 100 < judged < 3900
    at, found = ctypes.c_int64(0), Critical()
    rows = []
    while calls.caching_critical(identifier, at, found):
        rows.append(((found.start, found.stop), found.benefit, found.reads))
    calls.caching_identifier_free(identifier)
    wanted = [(place, pytest.approx(saved), reads) for place, (saved, reads) in known.items()]
    assert rows == wanted[: len(rows)] and (len(rows) == len(wanted)) == (limit == 1 << 24)
    assert all(one != other for one, other in pairwise(rows)) and len(rows) > 10
