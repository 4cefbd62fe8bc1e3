"""S4D-Cache between runs: what processes found critical, the table of it, and the replicas with what saves most."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdla.catalog import Occurrence, Run, open_catalog
from pdla.critical_data import FADING, CriticalData, chosen, held_bytes
from pdla.errors import BusyError, FormatError
from pdla.layouts.config import load_cluster
from pdla.model import Loop, Op, Signature
from pdla.policies.s4d import benefit_of
from pdla.replicator.critical_logs import ROW, CriticalLog, joined, logs_in, read_log, read_logs
from pdla.replicator.critical_patterns import critical_reads_of, seed
from pdla.replicator.critical_reads import FETCHING, fetch, serving
from pdla.replicator.daemon import Daemon
from pdla.replicator.mapfile import read_map
from pdla.replicator.throttling import Gate, Limit
from tests.support.clusters import cluster_text
from tests.support.command_line import Launching
from tests.support.critical_reads import SIZE, Pools, log, per_byte, random_reads
from tests.support.mpi import REPOSITORY, Mpi, available_mpis

# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_each_byte_saves_what_all_its_reads_save(seed: int) -> None:
    starts, stops, seconds = random_reads(seed)
    saved = np.zeros(SIZE)
    for start, stop, each in zip(starts, stops, seconds, strict=True):
        saved[start:stop] += each / (stop - start)
    data = CriticalData.of_reads(starts, stops, seconds)
    np.testing.assert_allclose(per_byte(data), saved, atol=1e-12)
    assert data.bytes == (saved > 0).sum()
    newer = CriticalData.of_reads(*random_reads(seed + 100))
    np.testing.assert_allclose(per_byte(data.after(newer)), saved * FADING + per_byte(newer), atol=1e-12)
    again = CriticalData.from_json(json.loads(json.dumps(data.to_json())))
    assert (per_byte(again) == per_byte(data)).all()
    np.testing.assert_array_equal(per_byte(data.below(77))[:77], per_byte(data)[:77])
    assert data.below(77).stops.max() <= 77


@pytest.mark.parametrize("seed", range(20))
def test_what_saves_least_is_what_is_missing(seed: int) -> None:
    """No other choice of as many bytes saves more."""
    tables = {name: CriticalData.of_reads(*random_reads(1000 * i + seed)) for i, name in enumerate("ab")}
    worth = np.concatenate([per_byte(table) for table in tables.values()])
    for room in (0, 1, 50, 111, 10**6):
        found = chosen(tables, room)
        taken = {name: int(extents[:, 1].sum()) for name, extents in found.items()}
        assert sum(taken.values()) == min(room, int((worth > 0).sum()))
        saved = sum(tables[name].saved_in(extents) for name, extents in found.items())
        assert saved == pytest.approx(np.sort(worth)[::-1][:room].sum())
        for extents in found.values():
            assert (extents[1:, 0] > extents[:-1, 0] + extents[:-1, 1]).all()
            assert (extents[:, 2] == np.cumsum(extents[:, 1]) - extents[:, 1]).all()


def test_the_bytes_of_a_range_that_an_extent_table_has() -> None:
    extents = np.array([[10, 5, 0], [20, 10, 5]])
    starts, stops = np.array([0, 0, 12, 14, 25, 40, 0]), np.array([10, 11, 22, 20, 28, 50, 100])
    assert held_bytes(extents, starts, stops).tolist() == [0, 1, 5, 1, 3, 0, 15]


@pytest.mark.parametrize(
    ("starts", "stops", "saved"),
    [([5, 0], [6, 1], [1, 1]), ([0, 3], [4, 5], [1, 1]), ([0], [0], [1]), ([-1], [2], [1]), ([0], [2], [0.0])],
)
def test_other_tables_are_refused(starts: list[int], stops: list[int], saved: list[float]) -> None:
    with pytest.raises(FormatError):
        CriticalData(np.array(starts), np.array(stops), np.array(saved, float))
    with pytest.raises(FormatError):
        CriticalData.from_json({"columns": "AAAA"})


def test_bytes_side_by_side_that_save_the_same_are_one_extent() -> None:
    """They may come from many reads, whose benefits differ by roundings."""
    starts = np.arange(0, 48, 3)
    data = CriticalData.of_reads(starts, starts + 3, np.full(len(starts), 0.3) * (1 + 1e-12 * starts))
    assert (data.starts.tolist(), data.stops.tolist()) == ([0], [48])
    data = CriticalData.of_reads(starts, starts + 3, np.where(starts < 24, 0.3, 0.4))
    assert (data.starts.tolist(), data.stops.tolist()) == ([0, 24], [24, 48])
    data = CriticalData.of_reads(np.array([0, 4]), np.array([3, 7]), np.array([0.3, 0.3]))
    assert (data.starts.tolist(), data.stops.tolist()) == ([0, 4], [3, 7])


# ---- the logs --------------------------------------------------------------------------------------------------------


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    original = tmp_path / os.fsdecode(b"m\xe4rz")
    found = read_log(log(tmp_path / "n-1-0.cdt", original, [(0, 16, 0.5, 3), (32, 48, 0.25, 1)]))
    assert (found.path, found.requests) == (original, 9)
    assert found.rows.tolist() == [(0, 16, 0.5, 3), (32, 48, 0.25, 1)]


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([(0, 16, 0.5, 3)], {"magic": b"PDLACDT1"}),
        ([(0, 16, 0.5, 3)], {"checksum": 1}),
        ([(0, 16, 0.5, 3)], {"length": 3}),
        ([(16, 16, 0.5, 3)], {}),
        ([(-1, 16, 0.5, 3)], {}),
        ([(0, 16, float("nan"), 3)], {}),
        ([(0, 16, 0.5, 0)], {}),
        ([(0, 16, -0.5, 1)], {}),
        ([(0, 16, 0.5, 1)], {"segments": (100, 8, 0)}),
        ([(0, 16, 0.5, 1)], {"segments": (100, -8, 8)}),
    ],
)
def test_a_damaged_log_is_told_and_the_others_count(
    tmp_path: Path, rows: list[tuple[int, int, float, int]], more: dict[str, Any]
) -> None:
    log(tmp_path / "n-1-0.cdt", tmp_path / "data", rows, **more)
    log(tmp_path / "n-2-0.cdt", tmp_path / "data", [(0, 16, 0.5, 3)])
    (tmp_path / "n-3-0.cdt").write_bytes((tmp_path / "n-2-0.cdt").read_bytes()[:70])
    (tmp_path / "n-4-0.cdt").touch()
    (tmp_path / "n-5-0.cdt.new").touch()  # of a process that was killed
    found, problems = read_logs(logs_in(tmp_path))
    assert [log.rows.tolist() for log in found.values()] == [[(0, 16, 0.5, 3)]] and len(problems) == 3


@pytest.mark.parametrize("seed", range(5))
def test_logs_are_joined(seed: int) -> None:
    choose = np.random.default_rng(seed)
    logs, counted = [], {}
    for _ in range(3):
        rows = [(start, start + 5, benefit, 2) for start, benefit in choose.integers(1, 4, (choose.integers(9), 2))]
        logs.append(CriticalLog(Path("f"), 7, np.array(rows, ROW)))
        for *kind, reads in rows:
            counted[tuple(kind)] = counted.get(tuple(kind), 0) + reads
    found = joined(logs)
    assert found.requests == 21 and found.rows.tolist() == sorted((*kind, reads) for kind, reads in counted.items())


# ---- the replicas ----------------------------------------------------------------------------------------------------


def test_what_saves_most_is_copied_and_the_least_is_missing(pools: Pools) -> None:
    pools.found((0, 4096, 0.001, 1), (8192, 12288, 0.001, 5), (50_000, 54_096, 0.001, 3))
    assert pools.fetch('"8K"') == {} and pools.extents() == [[8192, 4096], [50_000, 4096]]
    # Writes have a part of the space.
    pools.found((0, 4096, 0.001, 9), file="data")
    assert pools.fetch('"8K"', reserved=4096) == {} and pools.extents() == [[0, 4096]]
    assert pools.fetch('"1M"') == {} and pools.extents() == [[0, 4096], [8192, 4096], [50_000, 4096]]
    stored = [path for path in pools.directory.glob("ssd*/**/*") if path.is_file()]
    assert sum(path.stat().st_size for path in stored) == 3 * 4096


def test_the_capacity_holds_for_all_files_together(pools: Pools) -> None:
    (pools.directory / "other").write_bytes(os.urandom(100_000))
    pools.found((0, 8192, 0.001, 1))
    pools.found((0, 8192, 0.004, 1), file="other")
    assert pools.fetch('"12K"') == {}
    assert (pools.extents("other"), pools.extents()) == ([[0, 8192]], [[0, 4096]])


def test_replicas_stay_while_another_choice_saves_little_more(pools: Pools) -> None:
    pools.found(*((i * 4096, (i + 1) * 4096, 0.001, 1) for i in range(20)))
    pools.fetch()
    first = serving(pools.catalog)[pools.original].id
    pools.found((81920, 81920 + 100, 0.000_001, 1))
    pools.fetch()
    assert serving(pools.catalog)[pools.original].id == first
    pools.found((81920, 86016, 0.1, 1))
    pools.fetch()
    assert pools.extents() == [[0, 86016]]
    assert [one.state for one in pools.catalog.replicas.listing()] == ["valid"]


def test_a_file_that_changed_is_copied_anew(pools: Pools) -> None:
    pools.found((0, 4096, 0.001, 1), (90_000, 94_096, 0.001, 1))
    pools.fetch()
    first = serving(pools.catalog)[pools.original].id
    pools.original.write_bytes(os.urandom(92_000))
    assert pools.fetch() == {} and pools.extents() == [[0, 4096], [90_000, 2000]]
    assert [one.id for one in pools.catalog.replicas.listing()] != [first]
    pools.original.unlink()
    assert pools.fetch() == {} and pools.extents() == []


def test_a_replica_that_lost_a_component_is_made_again(pools: Pools) -> None:
    pools.found((0, 16384, 0.001, 1))
    pools.fetch()
    (component, *_) = (path for path in pools.directory.glob("ssd1/**/*") if path.is_file())
    component.unlink()
    assert pools.extents() == []
    assert pools.fetch() == {} and pools.extents() == [[0, 16384]]


def test_a_file_that_cannot_be_copied_is_told_and_the_others_are_copied(pools: Pools) -> None:
    pools.found((0, 4096, 0.001, 1))
    pools.found((0, 1, 0.001, 1), file="logs")
    problems = pools.fetch()
    assert list(problems) == [pools.directory / "logs"] and "regular file" in str(*problems.values())
    assert pools.extents() == [[0, 4096]]


def test_one_process_at_a_time_makes_the_replicas(pools: Pools) -> None:
    pools.found((0, 4096, 0.001, 1))
    with pools.catalog.leases.hold(FETCHING), pytest.raises(BusyError, match="the replicas of critical reads"):
        pools.fetch()
    assert pools.extents() == []


def test_what_others_find_meanwhile_is_copied_by_who_is_at_work(pools: Pools) -> None:
    (pools.directory / "other").write_bytes(os.urandom(100_000))
    pools.found((0, 4096, 0.001, 1))
    refused = []

    def progress(*_: Any) -> None:
        if not refused:
            pools.found((0, 4096, 0.001, 1), file="other")
            with pytest.raises(BusyError) as busy:
                pools.fetch()
            refused.append(busy)

    cluster = load_cluster(str(pools.cluster()))
    assert fetch(pools.catalog, cluster, 0, pools.directory / "home/map", progress) == {}
    assert refused and pools.extents() == pools.extents("other") == [[0, 4096]]


def test_one_look_at_the_replicas_is_enough_for_all_files(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a thousand files take a thousand times a thousand looks."""
    for number in range(5):
        (pools.directory / f"{number}").write_bytes(os.urandom(10_000))
        pools.found((0, 4096, 0.001, 1), file=f"{number}")
    assert pools.fetch() == {}
    looks, find = [], type(pools.catalog.replicas).find

    def counted(*words: Any, **more: Any) -> Any:
        looks.append(words)
        return find(*words, **more)

    monkeypatch.setattr(type(pools.catalog.replicas), "find", counted)
    assert len(serving(pools.catalog)) == 5 and len(looks) == 1
    assert pools.fetch() == {} and len(looks) <= 5


def test_a_damaged_table_is_begun_anew(pools: Pools) -> None:
    pools.found((0, 4096, 0.001, 1))
    assert pools.fetch() == {}
    with sqlite3.connect(pools.directory / "home/catalog.db") as database:
        database.execute("""UPDATE critical SET reads = '{"columns": "AAAA"}'""")
    assert [file.data.bytes for file in pools.catalog.critical.all()] == [0]
    pools.found((8192, 12288, 0.001, 1))
    assert pools.fetch() == {} and pools.extents() == [[8192, 4096]]


def test_the_daemon_copies_what_a_killed_command_left(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory has the logs; one of them is damaged."""
    left = pools.directory / "home/run.killed"
    left.mkdir()
    log(left / "n-1-0.cdt", pools.original, [(8192, 12288, 0.001, 5)])
    log(left / "n-2-0.cdt", pools.original, [(0, 4096, 0.001, 5)], checksum=1)
    cluster = load_cluster(str(pools.cluster('"16K"')))

    def daemon(*more: Any) -> None:
        Daemon(pools.catalog, threading.Event(), Gate(1.0, 1e15), *more, map_path=pools.directory / "home/map").once()

    daemon()
    assert not left.exists() and len(pools.catalog.critical.all()) == 1 and pools.extents() == []
    daemon(None, None, cluster)
    assert pools.extents() == [[8192, 4096]]
    pools.found(*((i * 4096, (i + 1) * 4096, 0.002, 1) for i in range(2, 9)))
    daemon(None, None, cluster)
    assert sum(length for _, length in pools.extents()) == 12288  # the rest is for writes


def test_a_daemon_that_must_end_leaves_nothing_half_copied(pools: Pools) -> None:
    pools.found((0, 98_304, 0.001, 1))
    stop = threading.Event()
    limit = Limit(1000)
    cluster = load_cluster(str(pools.cluster()))
    daemon = Daemon(pools.catalog, stop, Gate(1.0, 1e15), limit, None, cluster, map_path=pools.directory / "home/map")
    timer = threading.Timer(1, stop.set)
    timer.start()
    daemon.once()
    timer.join()
    assert pools.extents() == [] and pools.catalog.replicas.listing() == []
    assert [path for path in pools.directory.glob("ssd*/**/*") if path.is_file()] == []


# ---- what traces tell ------------------------------------------------------------------------------------------------


def pattern(*loops: Loop, start: int = 0, length: int = 4096, ranks: int = 1, op: Op = "read") -> Signature:
    return Signature("data", op, False, start, length, loops, tuple(range(ranks)), rank_loops=int(ranks > 1))


def test_a_pattern_is_judged_like_a_process_judges_its_requests(pools: Pools) -> None:
    cluster = load_cluster(str(pools.cluster()))
    far, near = benefit_of(cluster, "read", 0, 4096, math.inf), benefit_of(cluster, "read", 8192, 4096, 4096)
    assert far > near > 0
    data = critical_reads_of([pattern(Loop(8192, 5))], cluster)
    assert data.starts.tolist() == [8192 * i for i in range(5)] and (data.stops - data.starts == 4096).all()
    assert data.saved * 4096 == pytest.approx([far, near, near, near, near])
    # Each rank has a first request; and what is read twice saves twice as much.
    data = critical_reads_of([pattern(Loop(8192, 2), Loop(16384, 3), ranks=2)] * 2, cluster)
    assert data.saved * 4096 == pytest.approx(
        [2 * far, 2 * far, *[2 * benefit_of(cluster, "read", 0, 4096, 12288)] * 4]
    )


def test_requests_that_disks_serve_as_fast_are_not_critical(pools: Pools) -> None:
    """SSD servers that are slow for each byte: what is large is not faster there."""
    path = pools.cluster()
    disks, ssds = path.read_text().split("[pools.ssd]")
    path.write_text(f"{disks}[pools.ssd]{ssds.replace('5e-9', '5e-8')}")
    cluster = load_cluster(str(path))
    assert len(critical_reads_of([pattern(Loop(1 << 24, 3), length=1 << 24)], cluster).starts) == 0
    assert len(critical_reads_of([pattern(Loop(1 << 24, 3))], cluster).starts) == 3
    assert len(critical_reads_of([], cluster).starts) == 0


def test_a_traced_file_is_looked_at_once(pools: Pools) -> None:
    """Even if nothing of it is critical."""
    run = Run("app", 1, "trace", "/t.h5", "csv", None, "", (), {}, (str(pools.original),), 1, 1)
    written = replace(pattern(Loop(8192, 5), op="write"), file=str(pools.original))
    pools.catalog.runs.record(run, [Occurrence(written, {})])
    cluster = load_cluster(str(pools.cluster()))
    assert seed(pools.catalog, cluster, lambda _: True) == [pools.original]
    assert seed(pools.catalog, cluster, lambda _: True) == [] and pools.fetch() == {} and pools.extents() == []
    pools.found((0, 4096, 0.001, 1))
    pools.fetch()
    assert pools.extents() == [[0, 4096]]


# ---- runs ------------------------------------------------------------------------------------------------------------

PROGRAM = REPOSITORY / "tests/programs/random_pieces.c"
PIECE, COUNT, HOT = 16384, 96, 16


@dataclass
class Job:
    """tests/programs/random_pieces.c, with S4D-Cache."""

    pdla: Launching
    mpi: Mpi
    program: Path

    @property
    def original(self) -> Path:
        return self.pdla.directory / "data"

    def words(self, what: str, ranks: int) -> list[str | Path]:
        return self.mpi.command(ranks, self.program, self.original, what, str(PIECE), str(COUNT), str(HOT))

    def cluster(self, capacity: str = '"16M"') -> Path:
        path = self.pdla.directory / "cluster.toml"
        path.write_text(cluster_text(self.pdla.directory, capacity))
        return path

    def run(self, what: str, ranks: int, capacity: str = '"16M"', *options: str) -> tuple[str, dict[str, Any]]:
        """The checksum of what it read, and the report."""
        policy = ("--policy", "s4d", "--cluster", self.cluster(capacity), *options)
        *said, answer = self.pdla.run("run", *policy, "--json", "--", *self.words(what, ranks)).stdout.splitlines()
        return "".join(said), json.loads(answer)


@pytest.fixture
def job(pdla: Launching, any_mpi: Mpi) -> Job:
    pdla.environment |= any_mpi.env
    program = any_mpi.compile(
        REPOSITORY / "tests/programs/random_pieces.c", pdla.directory / "pieces", "-Wall", "-Wextra"
    )
    return Job(pdla, any_mpi, program)


@pytest.mark.thorough(1)
def test_the_second_run_reads_from_the_ssds(job: Job) -> None:
    """With another number of ranks; and the table says what it gained."""
    job.original.write_bytes(os.urandom(PIECE * COUNT))
    native = job.mpi.run(job.words("read", 2)).strip()
    said, report = job.run("read", 2)
    (row,) = report["critical"]
    assert said == native and report["redirected_bytes"] == 0
    assert row["reads"] >= 0.9 * (COUNT + 3 * HOT) and row["served_bytes"] == 0
    assert row["cached_bytes"] == row["fetched_bytes"] == row["critical_bytes"] >= 0.9 * PIECE * COUNT
    said, report = job.run("read", 3)
    (row,) = report["critical"]
    assert said == native and report["replica_bytes"] >= 0.9 * PIECE * (COUNT + 3 * HOT)
    assert row["served_bytes"] > 0.9 * row["read_bytes"] and row["saved_seconds"] > 0.1
    table = " ".join(job.pdla.run("status").stdout.split())
    assert "are critical, " in table
    (seen,) = job.pdla.json("status", "--json")["critical"]
    assert seen["path"] == str(job.original) and seen["cached_bytes"] == row["cached_bytes"]


@pytest.mark.thorough(1)
def test_a_program_reads_from_the_ssds_what_it_read_before(pdla: Launching, any_mpi: Mpi) -> None:
    """It closes the file, waits until the bytes are there, and opens it again; and the run counts as one."""
    pdla.environment |= {**any_mpi.env, "READ_ONLY": "1"}
    program = any_mpi.compile(REPOSITORY / "tests/programs/cached.c", pdla.directory / "cached")
    original = pdla.directory / "data"
    original.write_bytes(os.urandom(1 << 20))

    def words(*steps: str) -> list[str | Path]:
        return any_mpi.command(3, program, original, pdla.directory / "out", *steps)

    path = pdla.directory / "cluster.toml"
    path.write_text(cluster_text(pdla.directory, '"16M"').replace('["1M", 0.005], ["100G", 0.012]', "[100, 0.005]"))
    catalog = open_catalog(f"sqlite:///{pdla.home / 'catalog.db'}")
    ended = threading.Event()

    def is_published() -> bool:
        with suppress(FormatError):  # there is no map yet
            return original in [one.path for one in read_map(pdla.home / "replicas.map").originals]
        return False

    def let_it_go_on() -> None:
        while not ended.wait(0.05) and not is_published():
            pass
        original.with_name("data.end").touch()

    thread = threading.Thread(target=let_it_go_on)
    thread.start()
    steps = ("read:0", "reopen", "until", "reopen", "read:0", "reopen", "read:0")
    run = pdla.run("run", "--policy", "s4d", "--cluster", path, "--json", "--", *words(*steps))
    ended.set()
    thread.join()
    (row,) = json.loads(run.stdout.splitlines()[-1])["critical"]
    once = 3 * 200 * 96
    assert (row["read_bytes"], row["served_bytes"]) == (3 * once, 2 * once)
    assert row["cached_bytes"] == row["fetched_bytes"] == row["critical_bytes"] == once
    (found,) = catalog.critical.all()
    twice = found.data.saved_in(np.array([[0, 1 << 20, 0]]))
    assert row["saved_seconds"] == pytest.approx(twice * 2 / 3, rel=0.01)  # the reads of one run, which do not fade
    said = [(pdla.directory / f"out.{rank}").read_text() for rank in range(3)]
    original.with_name("data.end").touch()
    any_mpi.run(words(*steps))
    assert [(pdla.directory / f"out.{rank}").read_text() for rank in range(3)] == said


@pytest.mark.thorough(1)
def test_what_traces_know_is_served_in_the_first_run(pdla: Launching, any_mpi: Mpi) -> None:
    """Each of three ranks reads 200 pieces of 96 bytes, and what the trace told is what the run finds."""
    hints = pdla.directory / "hints"
    hints.write_text("romio_ds_read disable\n")
    pdla.environment |= {**any_mpi.env, "ROMIO_HINTS": str(hints)}
    program = any_mpi.compile(REPOSITORY / "tests/programs/cached.c", pdla.directory / "cached")
    original = pdla.directory / "data"

    def words(*steps: str) -> list[str | Path]:
        return any_mpi.command(3, program, original, pdla.directory / "out", *steps)

    any_mpi.run(words("write:0"))
    native = original.read_bytes()
    path = pdla.directory / "cluster.toml"
    path.write_text(cluster_text(pdla.directory, '"16M"').replace('["1M", 0.005], ["100G", 0.012]', "[100, 0.005]"))
    pdla.run("trace", "-o", pdla.directory / "run.h5", "--", *words("read:0"))
    pdla.run("analyze", pdla.directory / "run.h5")
    catalog = open_catalog(f"sqlite:///{pdla.home / 'catalog.db'}")
    assert seed(catalog, load_cluster(str(path)), lambda _: True) == [original]
    (traced,) = catalog.critical.all()
    catalog.close()
    (pdla.home / "catalog.db").unlink()
    pdla.run("analyze", pdla.directory / "run.h5")
    run = pdla.run("run", "--policy", "s4d", "--cluster", path, "--json", "--", *words("read:0"))
    (row,) = json.loads(run.stdout.splitlines()[-1])["critical"]
    assert row["served_bytes"] == row["read_bytes"] == 3 * 200 * 96
    catalog = open_catalog(f"sqlite:///{pdla.home / 'catalog.db'}")
    (found,) = catalog.critical.all()
    assert found.data.bytes == traced.data.bytes == 3 * 200 * 96
    whole = np.array([[0, len(native), 0]])
    # The table has half of what the trace told, and what the run found.
    assert found.data.saved_in(whole) == pytest.approx((1 + FADING) * traced.data.saved_in(whole), rel=0.01)
    assert seed(catalog, load_cluster(str(path)), lambda _: True) == [] and original.read_bytes() == native


def test_a_small_cache_has_what_is_read_most(pdla: Launching) -> None:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    pdla.environment |= mpi.env
    job = Job(pdla, mpi, mpi.compile(PROGRAM, pdla.directory / "pieces"))
    job.original.write_bytes(os.urandom(PIECE * COUNT))
    room = HOT * PIECE
    job.run("read", 2, f'"{2 * room}"', "--hint", f"cache_bytes={room}")
    _, report = job.run("read", 2, f'"{2 * room}"', "--hint", f"cache_bytes={room}")
    (row,) = report["critical"]
    assert row["cached_bytes"] == room
    assert report["replica_bytes"] >= 0.9 * 4 * room


@pytest.mark.thorough(1)
def test_writes_go_to_the_ssds_and_what_they_replace_is_not_read(job: Job) -> None:
    job.original.write_bytes(os.urandom(PIECE * COUNT))
    job.run("read", 2)
    _, report = job.run("write", 2)
    (row,) = report["critical"]
    assert row["written_bytes"] >= 0.9 * PIECE * COUNT and row["home_bytes"] >= 0.9 * PIECE * COUNT
    native = job.mpi.run(job.words("read", 2)).strip()
    for ranks in (2, 1):
        said, report = job.run("read", ranks)
        assert said == native
    assert report["replica_bytes"] > 0 and report["critical"][0]["served_bytes"] > 0
    assert list(job.pdla.directory.glob("ssd*/**/*.cache")) == []


def test_a_program_that_fails_keeps_its_exit_code_and_a_table_is_printed(job: Job) -> None:
    job.original.write_bytes(os.urandom(PIECE * COUNT))
    cluster = job.pdla.directory / "cluster.toml"
    cluster.write_text(cluster_text(job.pdla.directory, "0"))
    policy = ("--policy", "s4d", "--cluster", cluster)
    done = job.pdla.run("run", *policy, "--", *job.words("read", 2))
    assert "fetched" in done.stderr and str(job.original)[-8:] in done.stderr.replace("\n", "").replace(" ", "")
    assert job.pdla.run("run", *policy, "--", "sh", "-c", "exit 7", code=7).stderr


def test_a_program_runs_without_a_catalog_and_keeps_its_exit_code(pdla: Launching) -> None:
    path = pdla.directory / "cluster.toml"
    path.write_text(cluster_text(pdla.directory, '"16M"'))
    pdla.home.mkdir()
    (pdla.home / "catalog.db").write_bytes(os.urandom(9000))
    done = pdla.run("run", "--policy", "s4d", "--cluster", path, "--", "sh", "-c", "echo ran; exit 7", code=7)
    assert done.stdout == "ran\n" and "what is known to be critical cannot be looked up" in done.stderr


def test_the_next_run_copies_what_a_killed_one_found(pdla: Launching) -> None:
    path = pdla.directory / "cluster.toml"
    path.write_text(cluster_text(pdla.directory, '"16M"'))
    original, left = pdla.directory / "data", pdla.home / "run.killed"
    original.write_bytes(os.urandom(100_000))
    left.mkdir(parents=True)
    log(left / "n-1-0.cdt", original, [(8192, 12288, 0.001, 5)])
    pdla.run("run", "--policy", "s4d", "--cluster", path, "--", "true")
    catalog = open_catalog(f"sqlite:///{pdla.home / 'catalog.db'}")
    assert not left.exists()
    assert np.asarray(serving(catalog)[original].access_map.extents)[:, :2].tolist() == [[8192, 4096]]
