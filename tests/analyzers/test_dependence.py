"""Dependences by byte range and time, against a byte array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdla.analyzers.analysis import analyze
from pdla.analyzers.dependence import (
    RAW,
    UNSYNCED,
    WAR,
    WAW,
    dependences,
    pattern_dependences,
    read_early,
    write_dependences,
)
from pdla.collectors import workloads
from pdla.traces.file_views import View
from pdla.traces.tables import files_frame, records_frame
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace

READ, WRITE = "read", "write"
KINDS = {(READ, READ): 0, (READ, WRITE): WAR, (WRITE, READ): RAW, (WRITE, WRITE): WAW}


def found(accesses: list[tuple[str, int, int, float]], file: int = 0) -> list[int]:
    """Flags of (op, offset, length, t_start)."""
    table = pd.DataFrame(accesses, columns=["op", "offset", "length", "t_start"]).assign(file=file)
    return dependences(table).tolist()


@pytest.mark.parametrize(
    ("accesses", "flags"),
    [
        ([(READ, 0, 10, 0.0), (READ, 0, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (WRITE, 10, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (READ, 9, 10, 1.0)], [RAW, RAW]),
        ([(READ, 0, 10, 0.0), (WRITE, 9, 10, 1.0)], [WAR, WAR]),
        ([(WRITE, 0, 10, 0.0), (WRITE, 9, 10, 1.0)], [WAW, WAW]),
        ([(WRITE, 0, 10, 0.0), (READ, 10, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (READ, 2, 3, 1.0), (WRITE, 4, 9, 2.0)], [RAW + WAW, RAW + WAR, WAR + WAW]),
        ([(READ, 0, 10, 1.0), (WRITE, 5, 10, 1.0)], [0, 0]),
    ],
)
def test_the_dependences_of(accesses: list[tuple[str, int, int, float]], flags: list[int]) -> None:
    assert found(accesses) == flags


def test_files_do_not_depend_on_each_other() -> None:
    table = pd.DataFrame({"file": [0, 1], "op": ["write", "read"], "offset": 0, "length": 8, "t_start": [0.0, 1.0]})
    assert dependences(table).tolist() == [0, 0]


access = st.tuples(st.sampled_from([READ, WRITE]), st.integers(0, 60), st.integers(1, 40), st.integers(0, 9).map(float))


@settings(deadline=None)
@given(st.lists(access, max_size=25))
def test_they_are_those_of_every_pair_that_shares_a_byte(accesses: list[tuple[str, int, int, float]]) -> None:
    expected = np.zeros(len(accesses), np.int64)
    for i, (op, offset, length, time) in enumerate(accesses):
        for j, (later_op, later_offset, later_length, later_time) in enumerate(accesses):
            shared = max(offset, later_offset) < min(offset + length, later_offset + later_length)
            if shared and time < later_time:
                expected[[i, j]] |= KINDS[op, later_op]
    assert found(accesses) == expected.tolist()


def test_every_access_that_overlaps_many_is_found() -> None:
    offsets = np.random.default_rng(0).integers(0, 10**6, 10**5)
    table = pd.DataFrame(
        {
            "file": 0,
            "op": np.array([READ, WRITE])[np.arange(10**5) % 2],
            "offset": offsets,
            "length": 100,
            "t_start": 0.0,
        }
    )
    table["t_start"] = np.arange(10**5) * 1e-6
    assert (dependences(table) > 0).mean() > 0.99


def of_patterns(trace: Trace) -> list[int]:
    """The flags of the signatures, which must be those of their accesses."""
    analysis, accesses = analyze(trace), trace.accesses()
    flags = pattern_dependences(analysis, accesses)
    of_access = dependences(accesses)
    assert flags == [
        int(np.bitwise_or.reduce(of_access[analysis.owner == number])) for number in range(len(analysis.signatures))
    ]
    return flags


@pytest.mark.parametrize(
    ("trace", "flags"),
    [
        (workloads.ior(4, 65536, 4096, 4), [RAW, RAW]),
        (workloads.ior(4, 65536, 4096, 4, reorder_tasks=True), [RAW, RAW]),
        (workloads.coll_perf((2, 2, 2), (8, 8, 8)), [RAW, RAW]),
        (workloads.hpio(4, 8, 256, 128, repetitions=3), [WAW]),
        (workloads.mpi_tile_io(2, 2, 8, 8, 4, 2, 2), [0]),
        (workloads.btio((2, 2, 2), (8, 8, 8), 3), [0]),
        (workloads.lanl_app2_like(4), [0, 0, 0, 0]),
        (workloads.ior(2, 1 << 21, 2048, operations=["write", "read"], random_offset=True), []),
    ],
)
def test_patterns_are_compared_as_their_accesses_would_be(trace: Trace, flags: list[int]) -> None:
    assert of_patterns(trace) == flags


def test_interleaved_regions_share_no_byte() -> None:
    calls = [Call(0, "write", at, 10) for at in range(0, 1000, 100)]
    calls += [Call(0, "read", at + 10, 90) for at in range(0, 1000, 100)]
    assert of_patterns(make_trace(calls)) == [0, 0]


nest = st.tuples(
    st.sampled_from([READ, WRITE]),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(-12, 24),
    st.integers(1, 5),
    st.integers(0, 60),
    st.integers(1, 3),
)


@given(st.lists(nest, min_size=1, max_size=5), st.integers(1, 3))
def test_random_nests_are_compared_as_their_accesses_would_be(
    nests: list[tuple[str, int, int, int, int, int, int]], ranks: int
) -> None:
    of_patterns(
        make_trace(
            [
                Call(rank, op, 100 + rank * 7 + start + stride * i + outer * j, length)
                for rank in range(ranks)
                for op, start, length, stride, count, outer, times in nests
                for j in range(times)
                for i in range(count)
            ]
        )
    )


def of_events(*events: tuple[int, float, str, int, int]) -> list[int]:
    """The flags of the signatures of (rank, t_start, what, offset, length): ``read``, ``write`` or a File call."""
    rows = sorted(events, key=lambda event: event[:2])
    data = {"read": "read_at", "write": "write_at"}
    rank = np.array([row[0] for row in rows])
    records = records_frame(
        {
            "rank": rank,
            "kind": pd.Categorical([f"MPI_File_{data.get(row[2], row[2])}" for row in rows]),
            "file": 0,
            "op": pd.Categorical(
                [row[2] if row[2] in data else "other" for row in rows], categories=["read", "write", "other"]
            ),
            "offset": [row[3] for row in rows],
            "position": [row[3] for row in rows],
            "length": [row[4] for row in rows],
            "t_start": [row[1] for row in rows],
            "t_end": [row[1] + 0.5 for row in rows],
        }
    )
    trace = Trace(records, files_frame([{"path": "/data/a"}]), (View.plain(),), ranks=int(rank.max()) + 1)
    return write_dependences(analyze(trace), trace)


def both(time: float, call: str, late: float = 0.0) -> list[tuple[int, float, str, int, int]]:
    """A collective call; the second rank's begins ``late``."""
    return [(0, time, call, 0, 0), (1, time + late, call, 0, 0)]


@pytest.mark.parametrize(
    ("between", "early"),
    [
        ([], True),
        (both(3, "sync"), False),
        (both(3, "sync", late=-2.5), False),
        ([*both(3, "close"), *both(4, "open")], False),
        ([(1, 3, "sync", 0, 0)], True),
        ([(0, 3, "sync", 0, 0)], True),
        ([(0, 3, "close", 0, 0), (1, 4, "open", 0, 0)], False),
        ([(1, 3, "open", 0, 0), (0, 4, "close", 0, 0)], True),
        ([(0, 3, "set_view", 0, 0), (1, 3, "get_size", 0, 0)], True),
    ],
)
def test_a_read_of_another_rank_is_early_unless_the_writer_and_then_the_reader_synced(
    between: list[tuple[int, float, str, int, int]], early: bool
) -> None:
    write = [(0, 1 + i / 10, "write", 10 * i, 10) for i in range(4)]
    read = [(1, 6 + i / 10, "read", 10 * i, 10) for i in range(4)]
    assert of_events(*both(0, "open"), *write, *between, *read) == [RAW, RAW | UNSYNCED if early else RAW]


def test_opens_of_ranks_by_themselves_are_no_collective_ones() -> None:
    """Both ranks open and close the file: one after the other, or the reader while the writer still has it open."""
    write = [(0, 1 + i / 10, "write", 10 * i, 10) for i in range(4)]
    read = [(1, 6 + i / 10, "read", 10 * i, 10) for i in range(4)]
    for close, flag in ((3, 0), (8, UNSYNCED)):
        alone = [(0, 0, "open", 0, 0), (0, close, "close", 0, 0), (1, 5, "open", 0, 0), (1, 9, "close", 0, 0)]
        assert of_events(*alone, *write, *read) == [RAW, RAW | flag]


def test_the_ranks_own_reads_are_not_early() -> None:
    calls = [(rank, 1 + i / 10, "write", 100 * rank + 10 * i, 10) for rank in (0, 1) for i in range(4)]
    calls += [(rank, 3 + i / 10, "read", 100 * rank + 10 * i, 10) for rank in (0, 1) for i in range(4)]
    assert of_events(*both(0, "open"), *calls) == [RAW, RAW]


turn = st.tuples(st.integers(0, 2), st.sampled_from(["read", "write", "sync"]), st.integers(0, 5), st.integers(1, 3))


@given(st.lists(turn, max_size=20))
def test_early_reads_are_those_of_every_pair(turns: list[tuple[int, str, int, int]]) -> None:
    """One call after another, of three ranks; syncs are of each rank by itself, and nothing is written twice."""
    events: list[tuple[int, float, str, int, int]] = [(rank, rank, "open", 0, 0) for rank in (0, 1, 2)]
    accessed: set[int] = set()
    for time, (rank, what, start, length) in enumerate(turns, 3):
        if what != "write" or accessed.isdisjoint(range(start, start + length)):
            events.append((rank, time, what, start, 0 if what == "sync" else length))
            accessed |= set(range(start, start + length)) if what != "sync" else set()
    early = set()
    for rank, time, _, start, length in (event for event in events if event[2] == "write"):
        synced = min((at for by, at, what, *_ in events if (by, what) == (rank, "sync") and at > time), default=99.0)
        for by, at, what, at_start, at_length in events:
            shared = max(start, at_start) < min(start + length, at_start + at_length)
            if what == "read" and by != rank and at > time and shared:
                acquired = any(own == by and kind == "sync" and synced < when < at for own, when, kind, *_ in events)
                if not acquired:
                    early.add((rank, start))
    table = pd.DataFrame(events, columns=["rank", "t_start", "kind", "offset", "length"]).sort_values(
        ["rank", "t_start"], kind="stable"
    )
    table["call"] = table.groupby("rank").cumcount()
    table["t_end"] = table["t_start"] + 0.5
    table["file"] = 0
    accesses = table[table["kind"].isin(["read", "write"])]
    write = (accesses["kind"] == "write").to_numpy()
    if write.any():
        records = table.assign(kind="MPI_File_" + table["kind"])
        found = accesses[read_early(records, accesses, write, 0)]
        assert set(zip(found["rank"], found["offset"], strict=True)) == early
