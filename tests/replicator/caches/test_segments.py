"""LiU while programs run: which segments are worth it, and how they are read."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdla.cli.caching import variables
from pdla.critical_data import CriticalData
from pdla.file_policies import FilePolicies
from pdla.layouts.config import load_cluster
from pdla.replicator.critical_logs import ROW, Segments, joined, logs_in, read_log, read_logs, record
from tests.support.cached_writes import IMMEDIATE, SIZES, Case, make_case, make_nodes
from tests.support.clusters import cluster_text
from tests.support.command_line import Launching
from tests.support.critical_reads import SIZE, Pools, log, per_byte, random_reads
from tests.support.critical_requests import logs
from tests.support.fragment_requests import STEPS
from tests.support.handmade_maps import heads, lift
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, compile_preloaded
from tests.support.small_file_systems import mounted

HEAD, BODY = 512, 2048
RANKS, PIECE, COUNT = 3, 96, 200
"""Of tests/programs/cached.c."""
END = 5 + RANKS * PIECE * COUNT
STARTS = range(0, END, HEAD + BODY)
HEADS = sum(stop - start for start, stop in heads(END, HEAD, BODY))
COSTS = {"PDLA_SSD_COSTS": "64 2 2 5e-9 1e-8 1e-8 1 0 1e-6 1 0 1e-6 1e-8 1e-8 1 0 0 1 0 0"}
FAST = {"PDLA_SSD_COSTS": "64 2 2 5e-9 1e-15 1e-8 1 0 1e-6 1 0 1e-6 1e-8 1e-8 1 0 0 1 0 0"}
"""Disks that read a byte in next to no time: a turn to load is over before the program reads its next piece."""
SLOW = {"PDLA_SSD_COSTS": "64 2 2 5e-9 1 1 1 0 0 1 0 0 1e-8 1e-8 1 0 0 1 0 0"}
"""Disks that need a second for a byte: a turn to load lasts as long as it may."""


@pytest.fixture(params=available_mpis())
def case(request: pytest.FixtureRequest, tmp_path: Path, library: Path, programs: Path) -> Case:
    """Under MPICH and Open MPI."""
    return make_case(request.param, tmp_path, library, programs)


def segments(buffer: int = 400, locality: float = 0.5) -> dict[str, str]:
    """The variable of segments and a ``buffer`` for so many of them."""
    return {"PDLA_SEGMENTS": f"{HEAD} {BODY} {buffer * (HEAD + BODY)} {locality}"}


def costs(case: Case) -> dict[str, str]:
    """The variables of ``pdla run --policy liu`` with two SSD servers."""
    for name in ("ssd0", "ssd1", "critical"):
        (case.directory / name).mkdir(exist_ok=True)
    servers = ":".join(str(case.directory / f"ssd{i}") for i in range(2))
    log = str(case.directory / "critical")
    return {
        "PDLA_POLICY": "liu", **COSTS, **segments(), "PDLA_SSD_PATH": servers, "PDLA_CRITICAL_LOG": log,
    }  # fmt: skip


def cut(start: int, stop: int) -> list[tuple[int, int]]:
    """At the bounds of heads and bodies."""
    whole = HEAD + BODY
    bounds = [bound for k in range(stop // whole + 1) for bound in (k * whole, k * whole + HEAD)]
    return list(pairwise([start, *(bound for bound in bounds if start < bound < stop), stop]))


def lifted(case: Case, *steps: str, ranks: int = RANKS, besides: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Make the file, and a map as if its segments were lifted, ``besides`` these; their bodies: (start, length)."""
    case.natively(*steps, ranks=ranks)
    size = case.original.stat().st_size
    found = [part for number, part in enumerate(heads(size, HEAD, BODY)) if number not in besides]
    (case.directory / "home").mkdir(exist_ok=True)
    lift(case.directory / "home/replicas.map", case.original, found)
    return [(stop, min(BODY, size - stop)) for _, stop in found if stop < size]


@pytest.fixture(scope="session")
def hinted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/programs/hinted.c."""
    return compile_preloaded("hinted", tmp_path_factory.mktemp("hinted"))


def reads(
    case: Case, hinted: Path, step: str = "each:0", more: Mapping[str, str] = {}, ranks: int = RANKS
) -> Counter[tuple[int, int]]:
    """Which bodies, (start, length), are loaded how often by a run that reads, and sees what it would see natively."""
    native = case.run({}, step, ranks=ranks)
    hints = case.directory / "hints"
    hints.write_text("")
    preloaded = {"LD_PRELOAD": f"{case.libraries}:{hinted}", "HINTED": str(hints)}
    ran = case.run(case.variables(IMMEDIATE, **costs(case) | FAST, **preloaded) | more, step, ranks=ranks)
    assert ran.seen == native.seen
    return loaded(hints, case.original)


def loaded(hints: Path, original: Path) -> Counter[tuple[int, int]]:
    """What tests/programs/hinted.c has written of a file."""
    inode = original.stat().st_ino
    rows = [tuple(map(int, line.split())) for line in hints.read_text().splitlines()]
    return Counter((start, length) for of, start, length in rows if of == inode and start % (HEAD + BODY) == HEAD)


def small_segments(pdla: Launching) -> Path:
    """A cluster.toml with two home servers, whose disks give segments of HEAD and BODY."""
    cluster = pdla.directory / "cluster.toml"
    text = cluster_text(pdla.directory, '"16M"').replace("strip = '4K'", "strip = 64")
    cluster.write_text(text.replace('[[0, 0.0], ["1M", 0.005], ["100G", 0.012]]', "[[0, 1e-6]]"))
    return cluster


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_of_some_ranges_are_removed(seed: int) -> None:
    data = CriticalData.of_reads(*random_reads(seed))
    bounds = np.sort(np.random.default_rng(seed).choice(SIZE, 8, replace=False)).reshape(4, 2)
    bounds[0] = 0, 1  # before the first entry of most tables
    wanted = per_byte(data)
    for start, stop in bounds:
        wanted[start:stop] = 0
    np.testing.assert_array_equal(per_byte(data.without(bounds)), wanted)


@pytest.mark.parametrize("seed", range(20))
def test_heads_of_segments_that_were_read_for_the_most_part_are_lifted(seed: int) -> None:
    """Whoever reads which part, how often, and in which order; the last segment may be short."""
    choose = np.random.default_rng(seed)
    head, body, size = 3, 7, 95
    rows, wanted, touched = [], np.zeros(size, bool), set()
    for number in range(10):
        for _ in range(choose.integers(4)):
            low, high = (number * 10, number * 10 + 3) if choose.integers(2) else (number * 10 + 3, number * 10 + 10)
            start, stop = np.sort(choose.integers(low, min(high, size) + 1, 2)).tolist() if low < size else (0, 0)
            if start < stop:
                rows.append((start, stop, 0.5 * (stop - start), choose.integers(1, 3)))
                wanted[start:stop] = True
                touched.add(number)
    found, numbers = Segments(head, body, size, {"a": choose.permutation(np.array(rows, ROW))}).lifted()
    shares = [wanted[k * 10 : k * 10 + 10].mean() for k in range(10)]
    assert numbers.tolist() == sorted(touched)
    assert found.starts.tolist() == [10 * k for k in range(10) if shares[k] >= 0.5]
    assert (found.stops - found.starts == head).all() and (found.saved >= 0.5).all()


def test_ranks_of_several_nodes_do_not_lift_a_segment_together() -> None:
    """Each node would load all of it."""
    parts = {node: np.array([(start, start + 4, 0.5, 1)], ROW) for node, start in (("a", 3), ("b", 6), ("c", 24))}
    found, numbers = Segments(3, 7, 30, {**parts, "d": np.array([(13, 18, 0.5, 1)], ROW)}).lifted()
    assert (found.starts.tolist(), numbers.tolist()) == ([10], [0, 1, 2])


def test_a_run_says_anew_which_of_the_segments_that_it_reads_are_lifted(pools: Pools) -> None:
    """What several processes left counts together, also in parts. Segments that are not read stay as they are."""
    pools.original.write_bytes(bytes(300))
    for where in (pools.directory / "logs").iterdir():
        where.unlink()

    def run(*parts: list[tuple[int, int]]) -> list[list[int]]:
        before: dict[Path, Any] = {}
        for part in parts:
            for number, (start, stop) in enumerate(part):
                name = pools.directory / "logs" / f"n-{number}-0.cdt"
                log(name, pools.original, [(start, stop, 1e-3, 1)], segments=(300, 20, 80))
            found = read_logs(logs_in(pools.directory / "logs"))[0]
            record(found, pools.catalog, before)
            before = {path: joined([before[path], one]) if path in before else one for path, one in found.items()}
            for path in logs_in(pools.directory / "logs"):
                path.unlink()
        assert pools.fetch() == {}
        return pools.extents()

    assert run([(20, 50), (40, 60)], [(60, 75), (120, 160)]) == [[0, 20]]
    assert run([(100, 120)], [(120, 160)]) == [[0, 20], [100, 20]]
    assert run([(0, 10), (200, 220), (220, 260)]) == [[100, 20], [200, 20]]


def test_a_log_has_the_segments(tmp_path: Path) -> None:
    rows = [(0, 8, 0.5, 3), (8, 16, 0.5, 1)]
    found = read_log(log(tmp_path / "a-node-1-0.cdt", tmp_path / "data", rows, segments=(16, 8, 24)))
    assert found.segments is not None
    assert (found.segments.head, found.segments.body, found.segments.size) == (8, 24, 16)
    assert found.rows["start"].tolist() == [0]
    assert {node: rows["start"].tolist() for node, rows in found.segments.nodes.items()} == {"a-node": [0, 8]}


def test_segments_are_those_of_the_cluster() -> None:
    """1 MiB and 4 MiB on each of six home servers."""
    cluster = load_cluster("liu")
    named = variables(FilePolicies(default="liu"), "node", {}, cluster)
    assert named["PDLA_SEGMENTS"] == f"{6 << 20} {24 << 20} {6 * 256 << 20} 0.5"
    assert "PDLA_SEGMENTS" not in variables(FilePolicies(default="s4d"), "node", {}, cluster)


# ---- while a program runs --------------------------------------------------------------------------------------------


def test_all_reads_are_left_in_a_log(case: Case) -> None:
    case.same(IMMEDIATE, "write:0", "each:0", "each:0", **costs(case))
    for one in logs(case):
        pieces = [5 + (i * RANKS + one["rank"]) * PIECE for i in range(COUNT)]
        assert [row[:2] for row in one["reads"]] == [part for start in pieces for part in cut(start, start + PIECE)]
        assert {row[3] for row in one["reads"]} == {2} and one["segment"] == (HEAD, BODY)
        assert all(row[2] == pytest.approx((row[1] - row[0]) * 5e-9) for row in one["reads"])


def test_heads_of_lifted_segments_are_written_to_the_cache_and_bodies_home(case: Case) -> None:
    lifted(case, "write:0")
    ran = case.same(IMMEDIATE, "apart:0", "sync", "each:0", **costs(case))
    assert (ran.total("written", "bytes"), ran.total("home", "bytes")) == (HEADS - 5, HEADS - 5)
    assert ran.passed == {"bodies, beside heads", "no head of a lifted segment"}


def test_the_heads_of_a_file_that_each_run_makes_anew_are_cached_from_the_second_run_on(pdla: Launching) -> None:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    program = mpi.compile(REPOSITORY / "tests/programs/cached.c", pdla.directory / "cached")
    cluster, data = small_segments(pdla), pdla.directory / "data"

    def cached() -> int:
        data.unlink(missing_ok=True)
        command = mpi.command(RANKS, program, data, pdla.directory / "out", "apart:0")
        done = pdla.run("run", "--policy", "liu", "--cluster", cluster, "--json", "--", *command)
        return sum(one["written_bytes"] for one in json.loads(done.stdout.splitlines()[-1])["caches"])

    assert [cached() for _ in range(3)] == [0, HEADS - 5, HEADS - 5]


@pytest.mark.parametrize("steps", [*STEPS.values(), *SIZES.values()], ids=[*STEPS, *SIZES])
def test_a_program_sees_and_leaves_the_same_bytes(mpich_case: Case, steps: list[str]) -> None:
    lifted(mpich_case, "apart:0", "apart:1", "apart:2")
    ran = mpich_case.same(IMMEDIATE, *steps, **costs(mpich_case))
    assert ran.total("written", "bytes") > 0 or "apart:0" not in steps


@pytest.mark.parametrize(
    "sizes", ["", "512", "512 2048 1", "512 2048 1 0.5 1", "0 2048 1 0.5", "512 -1 1 0.5", "512 2048 1 nan"]
)
def test_without_segments_nothing_is_done(mpich_case: Case, sizes: str) -> None:
    mpich_case.same(IMMEDIATE, "write:0", "each:0", **costs(mpich_case) | {"PDLA_SEGMENTS": sizes})
    assert logs(mpich_case) == []


def test_the_next_run_reads_heads_from_the_ssds_and_loads_bodies(pdla: Launching, hinted: Path) -> None:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    program = mpi.compile(REPOSITORY / "tests/programs/cached.c", pdla.directory / "cached")
    cluster, data, hints = small_segments(pdla), pdla.directory / "data", pdla.directory / "hints"

    def run(step: str) -> tuple[dict[str, Any], str]:
        preloaded = f'LD_PRELOAD="$LD_PRELOAD {hinted}" HINTED={hints} exec "$@"'
        command = mpi.command(RANKS, "sh", "-c", preloaded, "sh", program, data, pdla.directory / "out", step)
        hints.write_text("")
        done = pdla.run("run", "--policy", "liu", "--cluster", cluster, "--json", "--", *command)
        report = json.loads(done.stdout.splitlines()[-1])
        (row,) = report["critical"] or [{}]
        return {**row, "replica_bytes": report["replica_bytes"]}, (pdla.directory / "out.1").read_text()

    run("write:0")
    first, native = run("each:0")
    assert (first["served_bytes"], first["replica_bytes"], loaded(hints, data)) == (0, 0, Counter())
    assert first["cached_bytes"] == first["fetched_bytes"] == first["critical_bytes"] == HEADS
    second, said = run("each:0")
    assert said == native
    assert second["served_bytes"] == second["read_bytes"] == second["replica_bytes"] == HEADS - 5
    assert len(loaded(hints, data)) > 0


def test_lifted_segments_are_loaded(case: Case, hinted: Path) -> None:
    """By a node once, whoever reads from them first."""
    bodies = lifted(case, "write:0", besides=[3, 7, 8])
    found = reads(case, hinted)
    assert sorted(found) == bodies
    # Of two processes that come at the same time, the second one may not know it yet.
    assert found.total() < 2 * len(bodies)


@pytest.mark.parametrize("step", ["read:0", "all:0"])
def test_a_call_loads_all_segments_that_it_reads_from(case: Case, hinted: Path, step: str) -> None:
    """Also a collective one, which leaves all else to the MPI library."""
    bodies = lifted(case, "write:0", ranks=1, besides=[3, 5])
    assert reads(case, hinted, step, SLOW, ranks=1) == Counter(bodies)


def test_only_segments_whose_head_is_replicated_and_not_the_body_are_loaded(case: Case, hinted: Path) -> None:
    case.natively("write:0")
    parts = heads(END, HEAD, BODY)
    parts[3:6] = [(parts[3][0] + 1, parts[3][1] + 1), (parts[4][0], parts[4][1] - 1), (parts[5][0], parts[5][1] + 1)]
    (case.directory / "home").mkdir()
    lift(case.directory / "home/replicas.map", case.original, parts)
    assert sorted(start // (HEAD + BODY) for start, _ in reads(case, hinted)) == [0, 1, 2, *range(6, len(STARTS))]


def test_one_segment_is_loaded_at_a_time(case: Case, hinted: Path) -> None:
    """A turn ends by itself, whatever becomes of the process, and a clock that began anew does not make it longer."""
    lifted(case, "write:0")
    assert reads(case, hinted, more=SLOW).total() == 1
    assert reads(case, hinted, more=SLOW) == Counter()
    (turn,) = (case.directory / "home").glob("*.turn")
    for until in (0, 1 << 62):
        turn.write_bytes(struct.pack("<q", until))
        assert reads(case, hinted, more=SLOW).total() == 1


def test_what_a_node_has_loaded_is_loaded_again_when_the_buffer_had_room_for_others_only(
    case: Case, hinted: Path
) -> None:
    bodies = lifted(case, "write:0", ranks=1)
    small, large = len(bodies) - 2, len(bodies) + 2
    found = [reads(case, hinted, more=segments(many), ranks=1) for many in (large, small, large, 0)]
    assert found == [Counter(bodies), Counter(bodies), Counter(), Counter()]


@pytest.mark.parametrize(("locality", "most"), [(0.5, len(STARTS) // 2), (0.2, len(STARTS))])
def test_a_node_that_reads_too_little_of_what_it_loads_stops_loading(
    tmp_path: Path, library: Path, programs: Path, hinted: Path, locality: float, most: int
) -> None:
    """Of two nodes one has one rank of three, which reads a third of each segment."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    case = make_nodes(mpi, tmp_path, library, programs)
    lifted(case, "write:0")
    reads(case, hinted, more=segments(locality=locality) | {"READ_ONLY": "1"})
    counts = [struct.unpack_from("<qq", path.read_bytes()) for path in (case.directory / "critical").glob("*.loads")]
    assert len(counts) == 2
    assert most - 2 <= min(count for count, _ in counts) <= most


def test_where_what_is_loaded_has_no_room_each_process_knows_its_own(mpich_case: Case, hinted: Path) -> None:
    bodies = lifted(mpich_case, "write:0")
    costs(mpich_case)
    with mounted(["-t", "tmpfs", "-o", "size=4k", "tmpfs"], mpich_case.directory / "critical"):
        (mpich_case.directory / "critical/all").write_bytes(bytes(4096))
        assert sorted(reads(mpich_case, hinted, more=segments(locality=0.1))) == bodies


def test_a_write_at_the_end_of_all_offsets_fails_as_it_does_natively(mpich_case: Case) -> None:
    ran = mpich_case.same(IMMEDIATE, "apart:0", "beyond", "each:0", **costs(mpich_case))
    assert all("beyond failed" in said for said in ran.seen)
