"""iBridge while a program runs: which parts of requests are fragments, and where they are written."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pdla.replicator.backends.lov import Striping
from pdla.replicator.backends.lov_components import END, encode_components
from pdla.simulator import core
from tests.support.cached_writes import IMMEDIATE, SIZES, Case, make_nodes
from tests.support.clusters import cluster_text
from tests.support.command_line import Launching
from tests.support.critical_requests import left_on_servers, logs
from tests.support.fragment_requests import COUNT, PIECE, RANKS, SERVERS, SLOW, STEPS, STRIP, costs
from tests.support.lov_attributes import INIT, blob, layout
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, compile_preloaded
from tests.support.small_file_systems import mounted
from tests.support.striping_mount import StripingMount, striping_mount

FAST = f"{STRIP} {SERVERS} 2 5e-9 1e-8 1e-8 1 0 0 1 0 0 1e-8 1e-8 1 0 60 1 0 60"


@pytest.fixture
def case(any_case: Case) -> Case:
    """Under each MPI."""
    return any_case


def requests(rank: int, place: int = 0, shift: int = 0) -> Iterator[tuple[int, int]]:
    """Those of the steps ``apart``, ``each``, ``back`` and ``over``."""
    for number in range(COUNT):
        start = ((place * COUNT + number) * RANKS + rank) * PIECE + 5 + shift
        yield start, start + PIECE


def fragments(start: int, stop: int, strip: int = STRIP, servers: int = SERVERS) -> list[tuple[int, int]]:
    """The parts of a request that are fewer bytes than a strip, if a server has one strip of it at most."""
    bounds = [start, *range((start // strip + 1) * strip, stop, strip), stop]
    parts = [*pairwise(bounds)]
    return [(low, high) for low, high in parts if high - low < strip] if len(parts) <= servers else []


def bytes_of(ranges: list[tuple[int, int]]) -> int:
    return sum(high - low for low, high in ranges)


ALL = [fragment for rank in range(RANKS) for one in requests(rank) for fragment in fragments(*one)]
"""Of the step ``apart:0``."""


# ---- the judge -------------------------------------------------------------------------------------------------------


class Split(ctypes.Structure):
    """struct caching_split."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("first", "siblings", "head", "tail"))


@pytest.fixture
def judge() -> ctypes.CDLL:
    """The functions of pdla/caching/fragments.c."""
    library = core.library()
    library.caching_split.restype = ctypes.c_bool
    library.caching_split.argtypes = (*[ctypes.c_int64] * 5, ctypes.POINTER(Split))
    library.caching_average.restype = library.caching_bonus.restype = ctypes.c_double
    library.caching_average.argtypes = (ctypes.c_double, ctypes.c_double)
    library.caching_in_order.restype = ctypes.c_bool
    library.caching_in_order.argtypes = (ctypes.POINTER(Streams), *[ctypes.c_int64] * 3)
    library.caching_bonus.argtypes = (ctypes.POINTER(ctypes.c_double), ctypes.c_int64, ctypes.c_int64)
    return library


def test_requests_are_split_at_strips(judge: ctypes.CDLL) -> None:
    found = Split()
    for start in range(40):
        for stop in range(start + 1, start + 60):
            said = judge.caching_split(10, 4, start, stop, 10, found)
            parts = fragments(start, stop, 10, 4)
            ends = [(start, start + found.head), (stop - found.tail, stop)]
            assert [end for end in ends if end[0] < end[1]] == parts and said == bool(parts), (start, stop)
            assert found.first == start // 10 and found.siblings == min((stop - 1) // 10 - start // 10 + 1, 4)


def test_the_slowest_of_the_servers_of_a_request_returns_more(judge: ctypes.CDLL) -> None:
    def bonus(*averages: float) -> list[float]:
        array = (ctypes.c_double * len(averages))(*averages)
        return [judge.caching_bonus(array, len(averages), number) for number in range(len(averages))]

    assert bonus(1.0, 4.0, 2.0) == [0, 6.0, 0]
    assert bonus(4.0, 4.0) == [0, 0]
    assert bonus(4.0) == [0]
    assert judge.caching_average(8.0, 16.0) == 15.0


class Streams(ctypes.Structure):
    """struct caching_streams."""

    _fields_ = (("stop", ctypes.c_int64 * 4),)


def test_reads_go_on_after_others_of_the_rank_or_after_what_the_other_ranks_read(judge: ctypes.CDLL) -> None:
    streams = Streams()

    def in_order(start: int, stop: int, ranks: int = 3) -> bool:
        said: bool = judge.caching_in_order(streams, start, stop, ranks)
        return said

    assert in_order(20, 30) and in_order(50, 60) and in_order(60, 70)
    assert not in_order(91, 101) and not in_order(60, 70, ranks=1)
    assert in_order(101, 111) and in_order(70, 80)


def test_a_rank_reads_several_parts_of_a_file_in_turns(judge: ctypes.CDLL) -> None:
    for parts, goes_on in ((4, True), (5, False)):
        streams = Streams()
        starts = [1000 * part + 10 * number for number in range(1, 9) for part in range(1, parts + 1)]
        found = [judge.caching_in_order(streams, start, start + 10, 1) for start in starts]
        assert not any(found[:parts]) and set(found[parts:]) == {goes_on}


# ---- writes ----------------------------------------------------------------------------------------------------------


def test_fragments_of_writes_are_cached_and_the_rest_is_not(case: Case) -> None:
    ran = case.same(IMMEDIATE, "apart:0", "sync", "each:0", **costs(case))
    assert 0 < bytes_of(ALL) < RANKS * PIECE * COUNT
    assert ran.total("written", "bytes") == bytes_of(ALL)
    assert ran.passed == {"whole strips, beside fragments"}
    assert left_on_servers(case) == [[], []]
    assert {cache["policy"] for cache in ran.caches} == {"ibridge"}


@pytest.mark.parametrize("steps", [*STEPS.values(), *SIZES.values()], ids=[*STEPS, *SIZES])
@pytest.mark.parametrize("coherence", ["node", "mpi"])
def test_a_program_sees_and_leaves_the_same_bytes(mpich_case: Case, steps: list[str], coherence: str) -> None:
    if coherence == "mpi":
        steps = [one for step in steps for one in (["sync", "barrier", "sync"] if step == "barrier" else [step])]
    mpich_case.same(IMMEDIATE, *steps, **costs(mpich_case, PDLA_COHERENCE=coherence))
    assert left_on_servers(mpich_case) == [[], []]


def test_h49_what_is_written_to_the_original_is_newer_than_older_fragments(case: Case) -> None:
    """Of this rank, and of the others of the node."""
    ran = case.same(IMMEDIATE, "apart:0", "barrier", "over:0", "barrier", "each:0", **costs(case))
    shift = PIECE // 2 + 1
    over = [part for rank in range(RANKS) for one in requests(rank, 0, shift) for part in fragments(*one)]
    assert ran.total("written", "bytes") == bytes_of(ALL) + bytes_of(over)


def test_what_the_ssds_are_not_faster_for_goes_home(case: Case) -> None:
    ran = case.same(IMMEDIATE, "apart:0", "each:0", **costs(case, FAST))
    assert ran.total("written", "bytes") == 0 and ran.passed == {"no fragment"}
    assert logs(case) == []


def test_the_requests_of_collective_and_sieved_writes_are_not_known(case: Case) -> None:
    ran = case.same(IMMEDIATE, "write:0", "spread:1", "split:2", **costs(case))
    collective = "the requests of a collective write are those of aggregators"
    sieved = {"data sieving"} if "mpich" in case.mpi.name else set()
    assert {collective} | sieved <= ran.passed


def test_nonblocking_writes_do_not_wait_for_the_original(case: Case) -> None:
    ran = case.same(IMMEDIATE, "iapart:0", **costs(case))
    assert "a nonblocking write would wait for the original" in ran.passed
    alone = [one for rank in range(RANKS) for one in requests(rank) if bytes_of(fragments(*one)) == PIECE]
    assert ran.total("written", "bytes") == len(alone) * PIECE


def test_memory_that_is_not_contiguous_is_divided_too(case: Case) -> None:
    ran = case.same(IMMEDIATE, "halves:0", **costs(case))
    assert ran.total("written", "bytes") == bytes_of(ALL)


def test_fragments_come_home_when_the_home_servers_are_idle(case: Case) -> None:
    native = case.natively("apart:0")
    case.original.unlink()
    variables = {**case.variables(IMMEDIATE), **costs(case)}
    ran = case.run(variables, "apart:0", "barrier", "nap:3000", "kill", fails=True)
    assert ran.bytes == native.bytes


def test_home_servers_are_not_idle_while_a_request_may_be_under_way(case: Case) -> None:
    """With strips of 64 KiB all is for the SSDs, so that the times of the disks stay what they were."""
    variables = {**case.variables(IMMEDIATE), **costs(case, SLOW.replace(f"{STRIP} ", "65536 ", 1))}
    times = case.directory / "critical" / f"{socket.gethostname()}.times"
    times.write_bytes(struct.pack("<q65d", 0, *[1e6] * 65))
    case.run(variables, "apart:0", "barrier", "nap:2000", "kill", fails=True)
    assert case.original.read_bytes().strip(b"\0") == b""


def test_home_servers_are_not_idle_while_the_program_writes_to_the_ssds(case: Case) -> None:
    """All is for the SSDs. The first value of the times is when a request was made last."""
    variables = {**case.variables(IMMEDIATE), **costs(case, SLOW.replace(f"{STRIP} ", "65536 ", 1))}
    case.run(variables, "apart:0", "kill", fails=True)
    (times,) = (case.directory / "critical").glob("*.times")
    assert struct.unpack("<q", times.read_bytes()[:8])[0] > 0


def test_what_a_killed_program_wrote_is_there_at_the_next_open(case: Case) -> None:
    native = case.natively("apart:0", "barrier", "over:0")
    case.original.unlink()
    variables = {**case.variables(IMMEDIATE), **costs(case)}
    case.run(variables, "apart:0", "barrier", "over:0", "barrier", "kill", fails=True)
    assert len(case.journals) == 3
    ran = case.run(variables, "other:1")
    assert ran.bytes == native.bytes and case.journals == [] and left_on_servers(case) == [[], []]


def test_a_full_server_takes_what_fits(case: Case) -> None:
    variables = costs(case, PDLA_SSD_BYTES="8192")
    ran = case.same(IMMEDIATE, *(f"apart:{i}" for i in range(4)), "over:2", **variables)
    assert 0 < ran.total("written", "bytes") < 4 * bytes_of(ALL)


# ---- reads -----------------------------------------------------------------------------------------------------------


def test_fragments_of_reads_are_left_in_a_log(case: Case) -> None:
    case.same(IMMEDIATE, "write:1", "back:1", "back:1", "all:1", **costs(case))
    found = logs(case)
    for log in found:
        wanted = [fragment for one in requests(log["rank"], 1) for fragment in fragments(*one)]
        assert sorted(row[:2] for row in log["reads"]) == wanted
        assert {row[3] for row in log["reads"]} == {2} and all(row[2] > 0 for row in log["reads"])
        assert log["requests"] == 2 * COUNT


def test_fragments_of_reads_in_order_stay_on_the_disks(mpich_case: Case) -> None:
    """But for the first request of the last rank, which does not begin where the file does."""
    mpich_case.same(IMMEDIATE, "write:0", "each:0", "each:0", **costs(mpich_case))
    (log,) = logs(mpich_case)
    assert log["rank"] == RANKS - 1 and all(stop <= 5 + RANKS * PIECE for _, stop, *_ in log["reads"])


def test_service_times_are_measured_on_the_node(case: Case) -> None:
    case.same(IMMEDIATE, "apart:0", "sync", "each:0", **costs(case))
    (times,) = (case.directory / "critical").glob("*.times")
    _, *averages = struct.unpack("<q65d", times.read_bytes())
    servers, ssds = averages[:SERVERS], averages[-1]
    assert all(0 < seconds < 10 for seconds in [*servers, ssds]) and not any(averages[SERVERS:-1])


def test_where_service_times_have_no_room_each_process_has_its_own(mpich_case: Case) -> None:
    variables = costs(mpich_case)
    with mounted(["-t", "tmpfs", "-o", "size=4k", "tmpfs"], mpich_case.directory / "critical"):
        (mpich_case.directory / "critical/all").write_bytes(bytes(4096))
        ran = mpich_case.same(IMMEDIATE, "apart:0", "each:0", **variables)
    assert ran.total("written", "bytes") == bytes_of(ALL)


def test_nodes_exchange_their_service_times(tmp_path: Path, library: Path, programs: Path) -> None:
    """In the close, after which nothing more is measured."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    case = make_nodes(mpi, tmp_path, library, programs)
    case.same(IMMEDIATE, "apart:0", **costs(case))
    times = [path.read_bytes()[8:] for path in (case.directory / "critical").glob("*.times")]
    assert len(times) == 2 and times[0] == times[1] and any(times[0])


@pytest.mark.thorough(1)
def test_the_second_run_reads_its_fragments_from_the_ssds(pdla: Launching, any_mpi: Mpi) -> None:
    pdla.environment |= any_mpi.env
    program = any_mpi.compile(REPOSITORY / "tests/programs/cached.c", pdla.directory / "cached")
    cluster = pdla.directory / "cluster.toml"
    text = cluster_text(pdla.directory, '"16M"').replace("strip = '4K'", f"strip = {STRIP}")
    cluster.write_text(text.replace('[[0, 0.0], ["1M", 0.005], ["100G", 0.012]]', "[[0, 60.0]]"))
    pieces = [one for rank in range(RANKS) for one in requests(rank, 1)]
    wanted = bytes_of([part for one in pieces for part in fragments(*one, servers=2)])

    def run(step: str) -> tuple[dict[str, Any], str]:
        words = any_mpi.command(RANKS, program, pdla.directory / "data", pdla.directory / "out", step)
        done = pdla.run("run", "--policy", "ibridge", "--cluster", cluster, "--json", "--", *words)
        report = json.loads(done.stdout.splitlines()[-1])
        (row,) = report["critical"]
        return {**row, "replica_bytes": report["replica_bytes"]}, (pdla.directory / "out.1").read_text()

    written, _ = run("apart:1")
    assert written["written_bytes"] == written["home_bytes"] == wanted
    first, native = run("back:1")
    assert (first["read_bytes"], first["served_bytes"], first["replica_bytes"]) == (wanted, 0, 0)
    assert first["cached_bytes"] == first["fetched_bytes"] == first["critical_bytes"] == wanted
    second, said = run("back:1")
    assert second["served_bytes"] == second["read_bytes"] == second["replica_bytes"] == wanted and said == native


# ---- how files are striped -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/programs/recorded_xattrs.c."""
    return compile_preloaded("recorded_xattrs", tmp_path_factory.mktemp("recorded"))


def lustre(magic: int, pattern: int, strip: int, strips: int) -> bytes:
    return struct.pack("<II16xIHH", magic, pattern, strip, strips, 0) + bytes(24 * strips)


def orangefs(name: bytes, *parameters: int) -> bytes:
    text = struct.pack("<I", len(name)) + name + b"\0"
    return text.ljust(-(-len(text) // 8) * 8, b"\0") + struct.pack(f"<{len(parameters)}q", *parameters)


MIRRORED = bytearray(
    layout([(1 << 16 | 1, INIT, 0, END, blob(128, (1,))), (2 << 16 | 1, INIT, 0, END, blob(64, (2,)))])
)
MIRRORED[16] = 1  # lcm_mirror_count, less 1
CEPH, LUSTRE, ORANGEFS, FILES = "ceph.file.layout", "lustre.lov", "system.pvfs2.md", "system.pvfs2.dh"


@pytest.mark.parametrize(
    ("attributes", "strip", "servers"),
    [
        ({}, STRIP, SERVERS),
        ({CEPH: b"stripe_unit=40 stripe_count=4 object_size=400 pool=data"}, 40, 4),
        ({CEPH: b"stripe_unit=40 stripe_count=1 object_size=48 pool=data pool_namespace=a"}, 48, SERVERS),
        ({LUSTRE: lustre(0x0BD10BD0, 1, 56, 5)}, 56, 5),
        ({LUSTRE: lustre(0x0BD30BD0, 1, 56, 5)}, 56, 5),
        ({LUSTRE: lustre(0x0BD10BD0, 0x201, 56, 5)}, 56, 5),
        ({LUSTRE: lustre(0x0BD30BD0, 0x801, 56, 400)}, 56, 400),
        ({ORANGEFS: orangefs(b"simple_stripe", 72), FILES: bytes(8 * 4)}, 72, 4),
    ],
    ids=["home", "ceph", "ceph-objects", "lustre-1", "lustre-3", "overstriped", "wide", "orangefs"],
)
def test_the_file_system_says_how_a_file_is_striped(
    mpich_case: Case, recorded: Path, attributes: Mapping[str, bytes], strip: int, servers: int
) -> None:
    """Of CephFS, Lustre and OrangeFS by recorded values."""
    ran = mpich_case.same(IMMEDIATE, "apart:0", **answering(mpich_case, recorded, attributes))
    wanted = [part for rank in range(RANKS) for one in requests(rank) for part in fragments(*one, strip, servers)]
    assert ran.total("written", "bytes") == bytes_of(wanted) > 0


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({CEPH: b"stripe_unit=0 stripe_count=4 object_size=400"}, "its layout cannot be read"),
        ({CEPH: b"inherited"}, "its layout cannot be read"),
        ({CEPH: b"a" * 65537}, "its layout cannot be read"),
        ({LUSTRE: lustre(0x0BD10BD0, 2, 128, 5)}, "its layout cannot be read"),
        ({LUSTRE: lustre(0x0BD10BD0, 1, 128, 0xFFFF)[:32]}, "its layout cannot be read"),
        ({LUSTRE: lustre(0x0BD10BD0, 1, 128, 5)[:20]}, "its layout cannot be read"),
        ({LUSTRE: lustre(0x0BD10BD0, 0x100, 128, 0)}, "its bytes are on a metadata server"),
        ({LUSTRE: lustre(0x0BD10BD0, 1 << 31 | 1, 128, 5)}, "its bytes are archived (lfs hsm_restore gets them back)"),
        ({LUSTRE: struct.pack("<4I", 0x0BD70BD0, 0, 0, 0)}, "another system has its bytes, and Lustre its name only"),
        ({LUSTRE: layout([(1, 0, 0, END, blob(128, (), count=5))])}, "no component of its layout has strips yet"),
        ({LUSTRE: layout([(1, INIT, 0, END, blob(128, (1,)))])[:70]}, "its layout cannot be read"),
        ({LUSTRE: MIRRORED}, "it has several mirrors"),
        ({ORANGEFS: orangefs(b"basic_dist")}, "its distribution is not simple_stripe"),
        ({ORANGEFS: orangefs(b"simple_stripe", 144)}, "its layout cannot be read"),
    ],
)
def test_without_a_known_striping_nothing_is_done(
    mpich_case: Case, recorded: Path, attributes: Mapping[str, bytes], why: str
) -> None:
    variables = answering(mpich_case, recorded, attributes)
    ran = mpich_case.same(IMMEDIATE, "apart:0", "each:0", **variables)
    assert {cache["refused"] for cache in ran.caches} == {f"how the file is striped is not known: {why}"}
    assert ran.total("written", "bytes") == 0 and logs(mpich_case) == []
    ran = mpich_case.run({**mpich_case.variables(IMMEDIATE), **variables, "READ_ONLY": "1"}, "each:0")
    assert f"how the file is striped is not known: {why}" in {cache["refused"] for cache in ran.caches}
    assert logs(mpich_case) == []


@pytest.fixture(scope="session")
def like_beegfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount("beegfs", tmp_path_factory.mktemp("beegfs")) as mounted:
        yield mounted


def test_each_component_of_a_progressive_file_has_its_own_strips(mpich_case: Case, recorded: Path) -> None:
    """What is in no component with objects, or in two, is left to the disks."""
    ends = [19_200, 38_400, END]
    parts = [(1, INIT, 0, 19_200, blob(56, range(5))), (2, INIT, 19_200, 38_400, blob(72, range(4)))]
    value = layout([*parts, (3, 0, 38_400, END, blob(64, (), count=3))])
    ran = mpich_case.same(IMMEDIATE, "apart:0", **answering(mpich_case, recorded, {LUSTRE: value}))
    wanted = []
    for start, stop in (one for rank in range(RANKS) for one in requests(rank)):
        if stop <= ends[0]:
            wanted += fragments(start, stop, 56, 5)
        elif ends[0] <= start and stop <= ends[1]:
            wanted += fragments(start, stop, 72, 4)
    assert ran.total("written", "bytes") == bytes_of(wanted) > 0


class StripedCase(Case):
    """The original is on a file system that stripes."""

    mount: Path

    @property
    def original(self) -> Path:
        return self.mount / "data"


def test_beegfs_says_how_a_file_is_striped(mpich_case: Case, like_beegfs: StripingMount) -> None:
    """By its ioctls: strips of 64 KiB. By those of [home], a part of each request would be no fragment."""
    case = StripedCase(**vars(mpich_case))
    case.mount = like_beegfs.mount
    ran = case.same(IMMEDIATE, "apart:0", **costs(case))
    wanted = [part for rank in range(RANKS) for one in requests(rank) for part in fragments(*one, 1 << 16, 4)]
    assert ran.total("written", "bytes") == bytes_of(wanted) > bytes_of(ALL)


@pytest.fixture(scope="session")
def like_lustre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount("lustre", tmp_path_factory.mktemp("lustre")) as mounted:
        yield mounted


def test_fragments_of_a_progressive_file_of_a_mounted_file_system_are_those_of_its_parts(
    mpich_case: Case, like_lustre: StripingMount
) -> None:
    """The program makes the file in a directory whose files are progressive, and its requests cross strips."""
    place = like_lustre.mount / "progressive"
    place.mkdir()
    parts = [(1 << 16, Striping(1 << 16, (0,))), (END, Striping(1 << 16, (0, 0, 0)))]
    os.setxattr(place, "lustre.lov", encode_components(parts))
    case = StripedCase(**vars(mpich_case))
    case.mount = place
    ran = case.same(IMMEDIATE, "apart:0", "apart:1", **costs(case))
    wanted = [one for rank in range(RANKS) for step in (0, 1) for one in requests(rank, step)]
    in_one = [one for one in wanted if one[0] >> 16 == (one[1] - 1) >> 16]
    assert len(in_one) == len(wanted) - 1
    assert ran.total("written", "bytes") == bytes_of(in_one)


def answering(case: Case, recorded: Path, attributes: Mapping[str, bytes]) -> dict[str, str]:
    """The variables of a run whose files have these extended attributes."""
    values = case.directory / "values"
    values.mkdir()
    for name, value in attributes.items():
        (values / name).write_bytes(value)
    case.libraries = f"{recorded}:{case.libraries}"
    return costs(case, RECORDED_XATTRS=str(values))
