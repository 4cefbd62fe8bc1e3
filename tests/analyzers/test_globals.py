"""Local patterns of the ranks become one global pattern if rank is a loop, and stay local otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdla.analyzers.analysis import Analysis, analyze
from pdla.model import Growth, Loop, Nest, Signature
from pdla.traces.blocks import Block
from pdla.traces.file_views import View
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace


def reads(starts: dict[int, list[int]], length: int = 64) -> Trace:
    return make_trace([Call(rank, "read", offset, length) for rank, offsets in starts.items() for offset in offsets])


def one(trace: Trace) -> Signature:
    (signature,) = analyze(trace).signatures
    return signature


def test_one_block_a_rank_is_a_global_signature() -> None:
    signature = one(reads({rank: [rank * 1000] for rank in range(5)}))
    assert str(signature) == "{READ, 0, 1, ([1000, 64, 5]r), 1}"
    assert (signature.rank_loops, signature.ranks, signature.requests) == (1, (0, 1, 2, 3, 4), 5)


def test_blocks_of_contiguous_requests_keep_the_rank_loop_apart() -> None:
    """Rank 1 continues where rank 0 ends, but they are two loops."""
    signature = one(reads({rank: [rank * 256 + i * 64 for i in range(4)] for rank in range(3)}))
    assert (signature.start, signature.loops, signature.rank_loops) == (0, (Loop(256, 3), Loop(64, 4)), 1)


def test_two_by_two_tiles_of_a_matrix_by_rows() -> None:
    tiles = {rank: [rank // 2 * 8000 + rank % 2 * 500 + row * 1000 for row in range(8)] for rank in range(4)}
    signature = one(reads(tiles, 500))
    assert signature.loops == (Loop(8000, 2), Loop(500, 2), Loop(1000, 8))
    assert (signature.rank_loops, signature.ranks) == (2, (0, 1, 2, 3))


def test_tiles_of_ranks_in_column_order() -> None:
    tiles = {rank: [rank % 2 * 8000 + rank // 2 * 500 + row * 1000 for row in range(8)] for rank in range(4)}
    assert one(reads(tiles, 500)).loops == (Loop(500, 2), Loop(8000, 2), Loop(1000, 8))


def test_two_by_two_by_two_cubes() -> None:
    def start(rank: int) -> int:
        return rank // 4 * 40000 + rank // 2 % 2 * 4000 + rank % 2 * 500

    cubes = {
        rank: [start(rank) + plane * 10000 + row * 1000 for plane in range(3) for row in range(4)] for rank in range(8)
    }
    signature = one(reads(cubes, 500))
    assert signature.loops == (Loop(40000, 2), Loop(4000, 2), Loop(500, 2), Loop(10000, 3), Loop(1000, 4))
    assert signature.rank_loops == 3


def test_all_ranks_read_the_same_bytes() -> None:
    signature = one(reads({rank: [0, 100, 200] for rank in range(4)}))
    assert (signature.loops, signature.rank_loops, signature.repeats) == ((Loop(0, 4), Loop(100, 3)), 1, 1)


def test_a_subgroup_of_ranks() -> None:
    odd = [Call(rank, "read", rank * 100 + i * 10, 10) for rank in range(1, 12, 2) for i in range(10)]
    even = [Call(rank, "read", rank**3 * 1000 + i * 20, 10) for rank in range(0, 12, 2) for i in range(10)]
    first, *rest = analyze(make_trace(odd + even)).signatures
    assert (first.ranks, first.start, first.loops) == ((1, 3, 5, 7, 9, 11), 100, (Loop(200, 6), Loop(10, 10)))
    assert [(signature.scope, signature.ranks) for signature in rest] == [("local", (r,)) for r in (0, 2, 4, 6, 8, 10)]


def test_ranks_in_the_order_of_their_starts_where_that_is_the_grid() -> None:
    """Even ranks share one half of the file and odd ones the other, in blocks of another distance."""
    starts = {rank: [(rank // 2) * 100 if rank % 2 == 0 else 10**6 + (rank // 2) * 333] for rank in range(8)}
    first, second = analyze(reads(starts)).signatures
    assert (first.ranks, first.loops) == ((0, 2, 4, 6), (Loop(100, 4),))
    assert (second.ranks, second.start, second.loops) == ((1, 3, 5, 7), 10**6, (Loop(333, 4),))


def test_ranks_whose_rows_are_longer_from_rank_to_rank() -> None:
    """Rows of a lower triangle in turn: rank r reads the rows r, r + 6, r + 12, ... up to the diagonal."""
    rows = [Call(rank, "read", row * 800, 8 * row + 8) for rank in range(6) for row in range(rank, 60, 6)]
    signature = one(make_trace(rows))
    assert (signature.start, signature.length, signature.rank_loops) == (0, 8, 1)
    assert (signature.loops, signature.growth) == ((Loop(800, 6), Loop(4800, 10)), (Growth(0, 8, 0), Growth(0, 48, 0)))
    offsets, ranks, lengths = signature.expand()
    assert list(zip(ranks, offsets, lengths, strict=True)) == [(call.rank, call.position, call.length) for call in rows]


def test_ranks_that_have_one_row_more_from_rank_to_rank() -> None:
    """Rank 0 has a single row, which is not a loop: it stays local."""
    first, alone = analyze(
        reads({rank: [rank * 10**5 + i * 100 for i in range(rank + 1)] for rank in range(7)})
    ).signatures
    assert (first.ranks, first.loops) == ((1, 2, 3, 4, 5, 6), (Loop(10**5, 6), Loop(100, 2)))
    assert first.growth == (Growth(0, 0, 1), Growth(0, 0, 0))
    assert first.requests == 27
    assert (alone.ranks, alone.loops) == ((0,), ())


def test_ranks_that_are_farther_and_farther_apart() -> None:
    signature = one(reads({rank: [rank * (rank + 1) * 500 + i * 100 for i in range(5)] for rank in range(8)}))
    assert (signature.loops, signature.growth[0]) == ((Loop(1000, 8), Loop(100, 5)), Growth(1000, 0, 0))


def test_the_last_rank_of_a_ceiling_division_has_less_and_stays_local() -> None:
    first, last = analyze(
        reads({rank: [(rank * 13 + i) * 100 for i in range(13 - rank // 7)] for rank in range(8)})
    ).signatures
    assert (first.ranks, first.loops) == ((0, 1, 2, 3, 4, 5, 6), (Loop(1300, 7), Loop(100, 13)))
    assert (last.ranks, last.start, last.loops) == ((7,), 9100, (Loop(100, 12),))


def test_cubes_of_ranks_in_column_order() -> None:
    cubes = {
        rank: [rank % 2 * 40000 + rank // 2 % 3 * 4000 + rank // 6 * 500 + row * 1000 for row in range(4)]
        for rank in range(24)
    }
    assert one(reads(cubes, 500)).loops == (Loop(500, 4), Loop(4000, 3), Loop(40000, 2), Loop(1000, 4))


def test_the_first_half_of_the_ranks() -> None:
    starts = {
        rank: [rank * 1000 + i * 100 for i in range(5)] if rank < 4 else [7**rank + i * rank * 10 for i in range(3)]
        for rank in range(8)
    }
    first, *rest = analyze(reads(starts)).signatures
    assert (first.ranks, first.loops) == ((0, 1, 2, 3), (Loop(1000, 4), Loop(100, 5)))
    assert [one.ranks for one in rest] == [(4,), (5,), (6,), (7,)]


def test_irregular_starts_stay_local() -> None:
    starts = {rank: [7**rank % 100003 * 1000 + i * 100 for i in range(5)] for rank in range(8)}
    assert [one.scope for one in analyze(reads(starts)).signatures] == ["local"] * 8


def test_a_rank_that_disagrees_stays_local() -> None:
    starts = {rank: [rank * 1000 + i * 100 for i in range(4)] for rank in range(6)}
    starts[2] = [70000 + i * 300 for i in range(4)]
    analysis = analyze(reads(starts))
    assert [(s.scope, s.ranks, s.start, s.loops) for s in analysis.signatures] == [
        ("global", (3, 4, 5), 3000, (Loop(1000, 3), Loop(100, 4))),
        ("global", (0, 1), 0, (Loop(1000, 2), Loop(100, 4))),
        ("local", (2,), 70000, (Loop(300, 4),)),
    ]


def test_random_accesses_of_two_ranks_are_irregular() -> None:
    analysis = analyze(reads({0: [5, 700, 90, 411, 333], 1: [81, 10, 777, 300, 12]}))
    assert analysis.signatures == ()
    assert [(part.requests, part.extent) for part in analysis.irregular] == [(5, (5, 764)), (5, (10, 841))]


def test_random_places_where_two_ranks_keep_their_distance_are_global() -> None:
    places = [5, 70000, 9000, 41100, 333]
    signatures = analyze(reads({rank: [place + rank * 64 for place in places] for rank in range(2)})).signatures
    assert [(s.start, s.loops) for s in signatures] == [
        (place, (Loop(64, 2),)) for place in (5, 333, 9000, 41100, 70000)
    ]


def test_the_second_pattern_of_a_shape_goes_with_the_second_on_other_ranks() -> None:
    starts = {
        rank: [rank * 1000, rank * 1000 + 100, 50, 10**6 + rank * 777, 10**6 + rank * 777 + 100] for rank in range(3)
    }
    trace = make_trace(
        [
            Call(rank, "read", offset, 64 if offset != 50 else 1)
            for rank, offsets in starts.items()
            for offset in offsets
        ]
    )
    assert [(s.start, s.loops) for s in analyze(trace).signatures] == [
        (0, (Loop(1000, 3), Loop(100, 2))),
        (10**6, (Loop(777, 3), Loop(100, 2))),
        (50, (Loop(0, 3),)),
    ]


def test_ranks_of_unequal_shares_make_a_signature_for_each_share() -> None:
    counts = {0: 3, 1: 3, 2: 4, 3: 4}
    starts = {rank: [rank * 1000 + i * 100 for i in range(count)] for rank, count in counts.items()}
    signatures = analyze(reads(starts)).signatures
    assert [(s.ranks, s.loops) for s in signatures] == [
        ((2, 3), (Loop(1000, 2), Loop(100, 4))),
        ((0, 1), (Loop(1000, 2), Loop(100, 3))),
    ]


def test_two_nests_of_a_rank_without_counterparts_stay_a_loop() -> None:
    starts = {0: [0, 100, 200, 5000, 5100, 5200], 1: [70000, 70300, 70600, 90000, 90300, 90600]}
    assert [(s.scope, s.start, s.loops) for s in analyze(reads(starts)).signatures] == [
        ("local", 0, (Loop(5000, 2), Loop(100, 3))),
        ("local", 70000, (Loop(20000, 2), Loop(300, 3))),
    ]


BTIO = [
    "{WRITE, 0, 5, ([480, 240, 6], [5760, 240, 6], [69120, 240, 12], [240, 240, 2]r, [2880, 240, 2]r), 1}",
    "{WRITE, 37680, 5, ([480, 240, 6], [5760, 240, 6], [69120, 240, 12], [-240, 240, 2]r, [-2880, 240, 2]r), 1}",
]


def diagonal_cells(side: int, points: int, full: bool) -> Trace:
    """BT-IO with side^2 ranks in 12 steps: in each of ``side`` planes of cells, a rank has the one on its diagonal.

    With 4 ranks and 12 points, the last row of rank 3's first cell ends where the first row of its second cell begins.
    """
    edges = [points // side + (cell < points % side) for cell in range(side)]
    corner = np.cumsum([0, *edges])
    row, plane, step = 40 * points, 40 * points**2, 40 * points**3
    calls, views = [], []
    for rank in range(side**2):
        places = [((rank % side + z) % side, (rank // side - z) % side, z) for z in range(side)]
        cells = [
            (corner[z] * plane + corner[y] * row + corner[x] * 40, edges[z], edges[y], edges[x] * 40)
            for x, y, z in places
        ]
        words = [word for at, z, y, length in cells for word in (at, 1, z, plane, 1, y, row, 0, length)]
        size = sum(z * y * length for _, z, y, length in cells)
        views.append(View(0, 40, step, size, np.array([2, side, *words])))
        if full:
            calls += [Call(rank, "write", turn * size, size, collective=True, view=rank + 1) for turn in range(12)]
        else:
            calls += [
                Call(rank, "write", int(turn * step + at + z * plane + y * row), length)
                for turn in range(12)
                for at, planes, rows, length in cells
                for z in range(planes)
                for y in range(rows)
            ]
    return make_trace(calls, views)


@dataclass
class InBlocks:
    """A trace of which so many calls are analyzed at a time."""

    trace: Trace
    rows: int

    @property
    def files(self) -> pd.DataFrame:
        return self.trace.files

    def blocks(self, part: int = 0, parts: int = 1) -> Iterator[Block]:
        return self.trace.blocks(part, parts, rows=self.rows)


def members(trace: Trace, analysis: Analysis) -> Iterator[tuple[Signature, pd.DataFrame]]:
    """The members of each signature, and the accesses of each, which are in its order."""
    accesses = trace.accesses()
    for number, one in enumerate(analysis.signatures):
        for member in one.members or (one,):
            mine = accesses[(analysis.owner == number) & (accesses["rank"] == member.ranks[0])]
            assert mine["offset"].tolist() == member.expand()[0].tolist()
            yield member, mine


def exact(trace: Trace) -> Analysis:
    """The analysis; each member has its accesses in their order, and knows when they were."""
    analysis = analyze(trace)
    for member, mine in members(trace, analysis):
        assert (member.t_start, member.t_end) == (mine["t_start"].min(), mine["t_end"].max())
        assert member.calls == mine["call"].nunique()
    return analysis


@pytest.mark.parametrize("full", [False, True])
def test_two_cells_of_each_rank_in_every_step_are_two_signatures(full: bool) -> None:
    """Their distance differs from rank to rank."""
    analysis = exact(diagonal_cells(2, 12, full))
    assert [str(one) for one in analysis.signatures] == BTIO
    assert [one.calls for one in analysis.signatures] == ([48, 48] if full else [1728, 1728])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("side", [3, 4, 5])
def test_cells_on_a_diagonal_are_a_signature_for_each_plane_of_cells(side: int, full: bool) -> None:
    """Each has all ranks; some ranks have cells in equal steps, also from the last one of a step to the next step."""
    analysis = exact(diagonal_cells(side, 3 * side, full))
    assert len(analysis.signatures) == side
    for one in analysis.signatures:
        assert sorted(one.ranks) == list(range(side**2))
        assert one.loops[one.rank_loops :] == (
            Loop(40 * (3 * side) ** 3, 12),
            Loop(40 * (3 * side) ** 2, 3),
            Loop(120 * side, 3),
        )


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("side", "rows"), [(2, 7), (2, 50), (3, 7), (3, 50), (4, 20)])
@pytest.mark.thorough(1)
def test_cells_of_ranks_longer_than_a_block_have_their_own_accesses(side: int, rows: int, full: bool) -> None:
    """There may be more signatures, if the ends of blocks are in the loops."""
    trace = diagonal_cells(side, 3 * side, full)
    analysis = analyze(InBlocks(trace, rows))
    assert sum(len(mine) for _, mine in members(trace, analysis)) == len(trace.accesses())
    assert analysis.coverage.requests == 1


def test_cells_of_eight_shapes_are_as_many_signatures_and_one_where_ranks_have_two() -> None:
    """10 points are cells of 4, 3 and 3: in the planes of 3, some ranks have two cells of 3 x 3 x 3."""
    assert len(exact(diagonal_cells(3, 10, False)).signatures) == 9


inner = st.lists(st.tuples(st.integers(1, 30), st.integers(3, 4)), max_size=2)


@settings(deadline=None)
@given(inner, inner, st.lists(st.integers(-500, 500), min_size=2, max_size=4))
def test_every_access_belongs_to_its_own_half(
    outer: list[tuple[int, int]], inner: list[tuple[int, int]], distances: list[int]
) -> None:
    calls = []
    for rank, distance in enumerate(distances):
        loops = (*(Loop(stride * 1000, n) for stride, n in outer), Loop(distance, 2), *(Loop(*one) for one in inner))
        calls += [Call(rank, "read", at, 1) for at in Nest(10**5 + rank * 777, 1, loops).expand()[0].tolist()]
    exact(make_trace(calls))


calls = st.lists(
    st.builds(
        Call,
        st.integers(0, 4),
        st.sampled_from(["read", "write"]),
        st.integers(0, 30),
        st.integers(1, 2),
        st.sampled_from(["/data/a", "/data/b"]),
        st.booleans(),
        st.just(0),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(calls)
def test_signatures_and_the_irregular_rest_are_exactly_the_accesses_of_the_trace(calls: list[Call]) -> None:
    trace = make_trace(calls)
    analysis = analyze(trace)
    paths = dict(zip(trace.files["file"], trace.files["path"], strict=True))
    expected: dict[tuple[str, str, bool, int], list[tuple[int, int]]] = defaultdict(list)
    for row in trace.accesses().itertuples():
        expected[paths[row.file], row.op, row.collective, row.rank].append((row.offset, row.length))
    actual: dict[tuple[str, str, bool, int], list[tuple[int, int]]] = defaultdict(list)
    for signature in analysis.signatures:
        for offset, rank, length in np.stack(signature.expand(), axis=1).tolist():
            actual[signature.file, signature.op, signature.collective, rank].append((offset, length))
    left: dict[tuple[str, str, bool, int], list[tuple[int, int]]] = defaultdict(list)
    for row in trace.accesses()[analysis.owner < 0].itertuples():
        left[paths[row.file], row.op, row.collective, row.rank].append((row.offset, row.length))
    for part in analysis.irregular:
        pairs = left[part.file, part.op, part.collective, part.rank]
        assert (part.requests, part.bytes) == (len(pairs), sum(length for _, length in pairs))
        assert part.extent == (min(pairs)[0], max(offset + length for offset, length in pairs))
    assert len(left) == len(analysis.irregular)
    for key, pairs in left.items():
        actual[key] += pairs
    assert {key: sorted(pairs) for key, pairs in actual.items()} == {key: sorted(p) for key, p in expected.items()}


@settings(deadline=None)
@given(calls)
def test_a_global_signature_is_its_members_rank_for_rank(calls: list[Call]) -> None:
    for signature in analyze(make_trace(calls)).signatures:
        if signature.scope == "global":
            of_members = np.concatenate([member.expand() for member in signature.members], axis=1)
            assert np.array(signature.expand()).tolist() == of_members.tolist()
            assert signature.calls == sum(member.calls for member in signature.members)
