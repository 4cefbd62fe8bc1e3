"""The analysis of a trace block by block: nothing is lost, and nests cut by the ends of blocks are found as one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdla.analyzers.local_patterns import LocalPatterns, find_local
from pdla.analyzers.pattern_items import Ancestry
from pdla.cli import cli
from pdla.collectors import workloads
from pdla.collectors.tracefile import stored_trace, write_trace
from pdla.model import STILL, Growth, Loop, Nest
from pdla.traces import file_views
from pdla.traces.blocks import blocks
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace

WORKLOADS = {
    "ior": workloads.ior(3, 96, 16, 5),
    "ior, a file for each": workloads.ior(3, 96, 16, 5, file_per_proc=True),
    "pio simple strided": workloads.pio_simple_strided(3, 8, 40),
    "pio nested strided": workloads.pio_nested_strided(3, 8, 6, 7, 1000),
    "pio segmented": workloads.pio_segmented(3, 8, 50),
    "pio tiled": workloads.pio_tiled((2, 2), 8, 6, 5),
    "tiles": workloads.mpi_tile_io(2, 2, 8, 90, 4, 2, 2),
    "hpio": workloads.hpio(2, 100, 8, 3, repetitions=4),
    "btio full": workloads.btio((1, 2, 2), (6, 20, 20), 3),
    "btio simple": workloads.btio((1, 2, 2), (6, 8, 8), 3, "simple"),
    "coll_perf": workloads.coll_perf((2, 1, 2), (16, 16, 16)),
    "flash": workloads.flash_io(2, 2, 2, 2, 3),
    "lanl": workloads.lanl_app2_like(2, 32),
}


def in_blocks(trace: Trace, rows: int, held: int = 1 << 20) -> LocalPatterns:
    return find_local(trace.blocks(rows=rows), held=held)


def nests_of(local: LocalPatterns) -> list[Nest]:
    """Of each pattern."""
    pairs = zip(local.table["start"].tolist(), local.table["shape"].tolist(), strict=True)
    return [local.shapes.nest(start, shape) for start, shape in pairs]


def described(local: LocalPatterns) -> list[tuple[object, ...]]:
    """All that there is to know of the patterns."""
    names = ["rank", "stream", "calls", "t_start", "t_end", "low", "high"]
    rows = zip(local.table[names].itertuples(index=False, name=None), nests_of(local), strict=True)
    return list(rows)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("rows", [7, 50])
def test_known_workloads_have_the_same_patterns_in_small_blocks(name: str, rows: int) -> None:
    assert described(in_blocks(WORKLOADS[name], rows)) == described(find_local(WORKLOADS[name].blocks()))


@pytest.mark.parametrize("name", ["tiles", "hpio", "btio full", "coll_perf"])
def test_calls_taken_as_nests_have_the_same_patterns_as_their_extents(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extents = in_blocks(WORKLOADS[name], 10**6)
    monkeypatch.setattr(file_views, "NEST", 2)
    assert described(in_blocks(WORKLOADS[name], 10**6)) == described(extents)
    assert described(in_blocks(WORKLOADS[name], 7)) == described(extents)


loops = st.lists(st.builds(Loop, st.integers(1, 4000), st.integers(3, 7)), min_size=1, max_size=4)


@settings(deadline=None, max_examples=50)
@given(loops.filter(lambda some: np.prod([loop.count for loop in some]) < 500), st.sampled_from([7, 16, 40]))
def test_a_nest_cut_by_the_ends_of_blocks_is_one(some: list[Loop], rows: int) -> None:
    trace = make_trace([Call(0, "read", offset, 8) for offset in Nest(0, 8, tuple(some)).expand()[0].tolist()])
    assert described(in_blocks(trace, rows)) == described(find_local(trace.blocks()))


GROWING = {
    "steps that grow": Nest(0, 8, (Loop(100, 60),), (Growth(7, 0, 0),)),
    "rows of a growing size": Nest(0, 8, (Loop(800, 60),), (Growth(0, 8, 0),)),
    "a lower triangle": Nest(0, 8, (Loop(800, 30), Loop(10, 1)), (Growth(0, 0, 1), STILL)),
    "an upper triangle": Nest(0, 8, (Loop(810, 30), Loop(10, 30)), (Growth(0, 0, -1), STILL)),
    "a triangle in every plane": Nest(
        0, 8, (Loop(10**6, 12), Loop(800, 9), Loop(10, 1)), (STILL, Growth(0, 0, 1), STILL)
    ),
}


@pytest.mark.parametrize("rows", [7, 16, 40, 100])
@pytest.mark.parametrize("nest", GROWING.values(), ids=GROWING.keys())
def test_what_grows_is_one_nest_across_the_ends_of_blocks(nest: Nest, rows: int) -> None:
    accesses = zip(*(part.tolist() for part in nest.expand()), strict=True)
    trace = make_trace([Call(0, "read", offset, length) for offset, length in accesses])
    assert nests_of(in_blocks(trace, rows)) == [nest]


noise = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 2)), max_size=20)
runs = st.builds(
    lambda start, stride, count: [(start + stride * turn, 1) for turn in range(count)],
    st.integers(0, 60),
    st.integers(0, 9),
    st.integers(2, 30),
)
streams = st.builds(
    lambda starts, count: [(start + 7 * turn, 1) for turn in range(count) for start in starts],
    st.lists(st.integers(0, 60), min_size=2, max_size=4),
    st.integers(2, 12),
)


def rows_of(numbers: list[int], step: int = 10) -> list[tuple[int, int]]:
    """Rows of three accesses, 100 bytes apart, in this order."""
    return [(number * 100 + step * turn, 1) for number in numbers for turn in range(3)]


any_rows = st.builds(rows_of, st.lists(st.integers(0, 9), min_size=4, max_size=12), st.integers(1, 9))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(noise | runs | streams | any_rows, min_size=1, max_size=6),
    st.sampled_from([1, 3, 7, 20]),
    st.sampled_from([2, 5, 15, 1 << 20]),
)
@example([rows_of([0, 3, 4, 5, 1]), [(7777, 1)], rows_of([2]), [(91, 1), (4, 1)]], 20, 5)
def test_no_access_is_lost_or_out_of_order_in_its_nest(
    parts: list[list[tuple[int, int]]], rows: int, held: int
) -> None:
    trace = make_trace([Call(rank, "read", *access) for rank in range(2) for part in parts for access in part])
    accesses, ancestry = trace.accesses(), Ancestry()
    local = find_local(trace.blocks(rows=rows), ancestry, held=held)
    owners = ancestry.owners()
    for row, nest in zip(local.table.itertuples(), nests_of(local), strict=True):
        mine = accesses[owners == row.place]
        assert mine[["offset", "length"]].to_numpy().tolist() == np.stack(nest.expand(), axis=1).tolist()
        assert row.calls == mine["call"].nunique()
        assert (row.t_start, row.t_end) == (mine["t_start"].min(), mine["t_end"].max())
        assert (row.low, row.high) == (mine["offset"].min(), (mine["offset"] + mine["length"]).max())
    assert local.shapes.size[local.column("shape")].sum() + local.strays["requests"].sum() == len(accesses)


@pytest.mark.parametrize("rows", [7, 50])
def test_the_accesses_of_signatures_are_known_if_a_rank_with_several_streams_is_cut_into_blocks(rows: int) -> None:
    calls = [Call(0, op, start + 64 * turn, 8) for turn in range(60) for op, start in (("read", 0), ("write", 10**6))]
    trace = make_trace(calls)
    accesses, ancestry = trace.accesses(), Ancestry()
    local = find_local(trace.blocks(rows=rows), ancestry)
    for row, nest in zip(local.table.itertuples(), nests_of(local), strict=True):
        mine = accesses[ancestry.owners() == row.place]
        assert mine["offset"].tolist() == nest.expand()[0].tolist()


def test_random_offsets_are_dropped_as_they_come() -> None:
    offsets = np.random.default_rng(0).integers(0, 2**40, 5000).tolist()
    trace = make_trace([Call(0, "read", offset, 8) for offset in offsets])
    local = find_local(trace.blocks(rows=100), held=500)
    assert local.table.empty
    assert local.strays.to_numpy().tolist() == [[0, 0, 5000, 5000, 40000, min(offsets), max(offsets) + 8]]


def test_interleaved_streams_longer_than_what_is_held_are_still_nests() -> None:
    offsets = [start + 100 * turn for turn in range(1000) for start in (0, 10**6, 5 * 10**6)]
    trace = make_trace([Call(0, "read", offset, 8) for offset in offsets])
    local = find_local(trace.blocks(rows=200), held=1000)
    assert local.strays.empty
    assert len(local.table) < 12


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 20])
def test_the_parts_of_the_ranks_are_all_of_them_in_order(parts: int) -> None:
    trace = WORKLOADS["btio full"]
    found = [call for part in range(parts) for block in trace.blocks(part, parts) for call in block.call.tolist()]
    assert found == [call for block in trace.blocks() for call in block.call.tolist()]


def test_where_blocks_end_does_not_depend_on_the_other_ranks() -> None:
    trace = WORKLOADS["ior"]
    alone = replace(trace, records=trace.records[trace.records["rank"] == 1].reset_index(drop=True))
    whole = [block for block in trace.blocks(rows=10) if block.rank[0] == 1]
    assert [len(block.rank) for block in alone.blocks(rows=10)] == [len(block.rank) for block in whole]


def test_a_trace_left_in_its_file_has_the_same_patterns(tmp_path: Path) -> None:
    for name in ("btio full", "ior, a file for each", "lanl"):
        write_trace(WORKLOADS[name], tmp_path / "run.h5")
        with stored_trace(tmp_path / "run.h5") as stored:
            assert stored.rows == len(WORKLOADS[name].records)
            assert described(find_local(stored.blocks())) == described(find_local(WORKLOADS[name].blocks()))
            assert described(find_local(blocks(stored, rows=7))) == described(find_local(WORKLOADS[name].blocks()))


def test_bad_records_break_nothing() -> None:
    """Ranks that are missing, calls of no bytes, at an unknown place, and with clocks that jump."""
    trace = make_trace([Call(rank, "write", i * 10, 10) for rank in (0, 3, 7) for i in range(20)])
    records = trace.records.copy()
    records.loc[5, "length"] = 0
    records.loc[6, "offset"] = -1
    records.loc[7, ["t_start", "t_end"]] = [9.0, 2.0]
    records.loc[30, ["t_start", "t_end"]] = [-5.0, -6.0]
    bad = replace(trace, records=records)
    local = in_blocks(bad, 7)
    assert described(local) == described(find_local(bad.blocks()))
    assert [(nest.start, nest.loops) for nest in nests_of(local)] == [
        (0, (Loop(10, 5),)),
        (70, (Loop(10, 13),)),
        (0, (Loop(10, 20),)),
        (0, (Loop(10, 20),)),
    ]


def test_a_trace_too_large_for_memory_is_described_without_what_needs_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(workloads.ior(4, 96, 16, 5), tmp_path / "run.h5")
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    whole = json.loads(CliRunner().invoke(cli, ["analyze", str(tmp_path / "run.h5"), "--json"]).stdout)
    monkeypatch.setattr(sys.modules["pdla.cli.analyze"], "WHOLE", 10)
    streamed = json.loads(CliRunner().invoke(cli, ["analyze", str(tmp_path / "run.h5"), "--json"]).stdout)
    assert [one["notation"] for one in streamed["signatures"]] == [
        "{READ, 0, 3, ([16, 16, 6], [384, 16, 5], [96, 16, 4]r), 1}",
        "{WRITE, 0, 3, ([16, 16, 6], [384, 16, 5], [96, 16, 4]r), 1}",
    ]
    assert streamed["signatures"][0]["aspects"] == {
        "spatial": "nested",
        "size": "small",
        "temporal": None,
        "period": None,
        "repetition": "once",
        "operation": "read-write",
        "dependences": ["read-after-write"],
        "phases": None,
    }
    for answer in (whole, streamed):
        del answer["phases"]
        for one in answer["signatures"]:
            del one["aspects"]
    assert streamed == whole
    assert "nested, small" in CliRunner().invoke(cli, ["analyze", str(tmp_path / "run.h5")]).stdout
