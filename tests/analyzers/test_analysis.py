"""From a whole trace to signatures, statistics and JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pdla.analyzers.analysis import analyze, to_json
from pdla.analyzers.aspects import describe
from pdla.analyzers.file_statistics import summarize
from pdla.analyzers.phases import find_phases
from pdla.collectors import workloads
from pdla.model import Loop
from pdla.traces.file_views import View
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace

BLOCK, LOOP = 0, 1
SIDE, TILE, ELEMENT = 16, 8, 4
ROW = SIDE * ELEMENT


def tile_view(rank: int) -> View:
    """Rank's tile of 8 x 8 elements in a matrix of 16 x 16 elements of 4 bytes."""
    corner = rank // 2 * TILE * ROW + rank % 2 * TILE * ELEMENT
    words = np.array([LOOP, TILE, ROW, BLOCK, TILE * ELEMENT])
    return View(corner, ELEMENT, SIDE * ROW, TILE * TILE * ELEMENT, words)


@pytest.fixture
def trace() -> Trace:
    """Four ranks read their tiles in two collective calls and write their results as blocks; rank 0 reads a header."""
    tile, half = TILE * TILE * ELEMENT, TILE * TILE * ELEMENT // 2
    calls = [
        Call(rank, "read", position, half, "/data/matrix", True, view=rank + 1)
        for rank in range(4)
        for position in (0, half)
    ]
    calls += [Call(rank, "write", rank * tile + i * 64, 64, "/data/result") for rank in range(4) for i in range(4)]
    calls += [Call(0, "read", 0, 100, "/data/header")]
    return make_trace(calls, [tile_view(rank) for rank in range(4)])


def test_tiles_through_a_view_blocks_and_a_header(trace: Trace) -> None:
    analysis = analyze(trace)
    assert [str(signature) for signature in analysis.signatures] == [
        "{READ, 0, 3, ([64, 32, 8], [32, 32, 2]r, [512, 32, 2]r), 1}",
        "{WRITE, 0, 2, ([64, 64, 4], [256, 64, 4]r), 1}",
        "{READ, 0, 1, ([0, 100, 1]), 1}",
    ]
    tiles = analysis.signatures[0]
    assert (tiles.file, tiles.collective, tiles.calls, tiles.requests, tiles.bytes) == (
        "/data/matrix",
        True,
        8,
        32,
        1024,
    )
    assert (tiles.t_start, tiles.t_end) == (0.0, 0.002)
    assert (analysis.requests, analysis.bytes, analysis.coverage) == (49, 2148, (1.0, 1.0))


def test_the_members_of_a_global_signature_are_local_ones(trace: Trace) -> None:
    tiles = analyze(trace).signatures[0]
    assert [(member.scope, member.ranks, member.start, member.calls) for member in tiles.members] == [
        ("local", (0,), 0, 2),
        ("local", (1,), 32, 2),
        ("local", (2,), 512, 2),
        ("local", (3,), 544, 2),
    ]
    assert tiles.members[3].loops == (Loop(64, 8),)


def test_records_with_headers_in_between_are_two_signatures() -> None:
    calls = [Call(0, "read", i * 1000 + at, length) for i in range(50) for at, length in ((0, 16), (16, 984))]
    assert [(s.start, s.length, s.loops) for s in analyze(make_trace(calls)).signatures] == [
        (16, 984, (Loop(1000, 50),)),
        (0, 16, (Loop(1000, 50),)),
    ]


def test_random_accesses_are_one_irregular_part_a_rank() -> None:
    places = np.random.default_rng(0).integers(0, 2**40, (3, 1000))
    calls = [Call(rank, "read", int(place), 512) for rank in range(3) for place in places[rank]]
    analysis = analyze(make_trace(calls))
    assert analysis.signatures == ()
    assert [(part.rank, part.requests, part.bytes) for part in analysis.irregular] == [
        (rank, 1000, 512000) for rank in range(3)
    ]
    assert analysis.irregular[2].extent == (places[2].min(), places[2].max() + 512)
    assert analysis.coverage == (0.0, 0.0)


def test_long_regular_pieces_at_random_places_keep_their_signatures() -> None:
    """Five hundred blocks of 40 pieces of 8 bytes, with an odd access after each."""
    rng = np.random.default_rng(2)
    starts, odd = rng.integers(0, 2**40, 500).tolist(), rng.integers(0, 2**40, 500).tolist()
    calls = [
        Call(0, "read", offset, length)
        for start, other in zip(starts, odd, strict=True)
        for offset, length in [*((start + at * 10, 8) for at in range(40)), (other, 4)]
    ]
    analysis = analyze(make_trace(calls))
    assert [(one.start, one.loops) for one in analysis.signatures] == [(at, (Loop(10, 40),)) for at in sorted(starts)]
    assert [(part.requests, part.bytes) for part in analysis.irregular] == [(500, 2000)]


def test_few_regular_accesses_among_many_random_ones_are_fragments() -> None:
    random = np.random.default_rng(0).integers(0, 2**40, 1000).tolist()
    offsets = [*random[:500], 10, 20, 30, *random[500:]]
    analysis = analyze(make_trace([Call(0, "read", offset, 8) for offset in offsets]))
    assert analysis.signatures == ()
    assert (analysis.irregular[0].requests, analysis.owner.tolist()) == (1003, [-1] * 1003)


def test_a_run_among_random_accesses_is_a_signature() -> None:
    random = np.random.default_rng(0).integers(0, 2**40, 1000).tolist()
    offsets = [*random[:500], *range(0, 80000, 16), *random[500:]]
    analysis = analyze(make_trace([Call(0, "read", offset, 8) for offset in offsets]))
    assert [str(signature) for signature in analysis.signatures] == ["{READ, 0, 1, ([16, 8, 5000]), 1}"]
    assert analysis.coverage.requests == pytest.approx(5000 / 6000)


def test_an_empty_trace_has_no_signatures() -> None:
    analysis = analyze(make_trace([]))
    assert (analysis.signatures, analysis.irregular, analysis.requests, analysis.bytes) == ((), (), 0, 0)
    assert analysis.coverage == (1.0, 1.0)


def test_json_is_what_the_documentation_says(trace: Trace) -> None:
    analysis = analyze(trace)
    aspects = [one.to_json() for one in describe(trace, analysis, find_phases(trace))]
    answer = json.loads(json.dumps(to_json(analysis, aspects)))
    assert set(answer) == {"signatures", "irregular", "phases", "phases_left_out", "coverage"}
    members = answer["signatures"][1].pop("members")
    assert answer["signatures"][1].pop("members_left_out") == 0
    assert answer["signatures"][1] == {
        "scope": "global",
        "file": "/data/result",
        "op": "write",
        "collective": False,
        "ranks": [0, 1, 2, 3],
        "start": 0,
        "length": 64,
        "loops": [[256, 4], [64, 4]],
        "growth": [],
        "rank_loops": 1,
        "requests": 16,
        "bytes": 1024,
        "calls": 16,
        "repeats": 1,
        "share": {"requests": 16 / 49, "bytes": 1024 / 2148},
        "notation": "{WRITE, 0, 2, ([64, 64, 4], [256, 64, 4]r), 1}",
        "aspects": {
            "spatial": "contiguous",
            "size": "small",
            "temporal": "fixed",
            "period": 0.001,
            "repetition": "once",
            "operation": "write-only",
            "dependences": [],
            "phases": [0, 0],
        },
    }
    assert [(member["scope"], member["ranks"], member["start"]) for member in members] == [
        ("local", [rank], rank * 256) for rank in range(4)
    ]
    assert answer["coverage"] == {"requests": 1.0, "bytes": 1.0}


def test_ten_thousand_ranks_are_one_signature_with_a_few_members_in_json() -> None:
    analysis = analyze(workloads.ior(10_000, 32768, 16384, 2, operations=["read"]))
    notation = "{READ, 0, 3, ([16384, 16384, 2], [327680000, 16384, 2], [32768, 16384, 10000]r), 1}"
    assert [str(signature) for signature in analysis.signatures] == [notation]
    (answer,) = to_json(analysis, [{}])["signatures"]
    assert (len(answer["members"]), answer["members_left_out"]) == (64, 9936)


def test_json_of_an_irregular_part() -> None:
    calls = [Call(2, "write", offset, 8) for offset in (5, 900, 17, 300)]
    assert to_json(analyze(make_trace(calls)), []) == {
        "signatures": [],
        "irregular": [
            {
                "file": "/data/a",
                "op": "write",
                "collective": False,
                "rank": 2,
                "requests": 4,
                "bytes": 32,
                "share": {"requests": 1.0, "bytes": 1.0},
            }
        ],
        "phases": [],
        "phases_left_out": 0,
        "coverage": {"requests": 0.0, "bytes": 0.0},
    }


def test_statistics_of_each_file_and_operation(trace: Trace) -> None:
    summary = summarize(trace)
    rows = {(row.file, row.op): row for row in summary.files}
    assert set(rows) == {("/data/matrix", "read"), ("/data/result", "write"), ("/data/header", "read")}
    matrix, result = rows["/data/matrix", "read"], rows["/data/result", "write"]
    assert (matrix.calls, matrix.requests, matrix.bytes, matrix.contiguous) == (8, 32, 1024, 0.0)
    assert (result.calls, result.requests, result.bytes, result.contiguous) == (16, 16, 1024, 0.75)
    assert (result.smallest, result.median, result.largest) == (64, 64.0, 64)
    assert result.seconds == pytest.approx(0.004)
    assert result.bandwidth == pytest.approx(1024 / 0.004)


def test_the_slowest_rank_gives_the_io_seconds(trace: Trace) -> None:
    summary = summarize(trace)
    assert summary.rank_seconds == pytest.approx({0: 0.007, 1: 0.006, 2: 0.006, 3: 0.006})
    assert summary.io_seconds == pytest.approx(0.007)


def test_a_contiguous_request_starts_where_the_same_rank_stopped_before_in_this_file() -> None:
    calls = [
        Call(0, "read", 0, 10, "/data/a"),
        Call(0, "read", 500, 10, "/data/b"),
        Call(0, "read", 10, 10, "/data/a"),
        Call(0, "write", 20, 10, "/data/a"),
        Call(0, "read", 20, 10, "/data/a"),
        Call(1, "read", 30, 10, "/data/a"),
    ]
    summary = summarize(make_trace(calls))
    assert [(row.file, row.op, row.contiguous) for row in summary.files] == [
        ("/data/a", "read", 0.5),
        ("/data/a", "write", 0.0),
        ("/data/b", "read", 0.0),
    ]
    assert summary.contiguous == pytest.approx(2 / 6)


def test_statistics_of_an_empty_trace() -> None:
    summary = summarize(make_trace([]))
    assert (summary.files, summary.io_seconds, summary.requests, summary.contiguous) == ((), 0.0, 0, 0.0)
