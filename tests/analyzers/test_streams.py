"""Interleaved streams are separated into their nests, and every nest keeps the order of its accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdla.analyzers import interleaved_streams
from pdla.analyzers.analysis import analyze
from pdla.analyzers.local_patterns import find_local
from pdla.analyzers.pattern_items import Ancestry
from pdla.model import STILL, Growth, Loop, Nest
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace


def found(accesses: Sequence[tuple[int, int]]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """(start, length, loops) of the nests of one rank's (offset, length), in the order of their first access."""
    return [(nest.start, nest.length, [tuple(loop) for loop in nest.loops]) for nest in nests(accesses)]


def nests(accesses: Sequence[tuple[int, int]]) -> list[Nest]:
    """The nests themselves."""
    return list(nests_of(in_order(make_trace([Call(0, "read", offset, length) for offset, length in accesses]))))


def nests_of(local) -> Iterator[Nest]:
    for start, shape in zip(local.column("start").tolist(), local.column("shape").tolist(), strict=True):
        yield local.shapes.nest(start, shape)


def in_order(trace: Trace):
    """The local patterns; each has its accesses in their order."""
    ancestry = Ancestry()
    local = find_local(trace.blocks(), ancestry)
    accesses, owners = trace.accesses(), ancestry.owners()
    for place, nest in zip(local.column("place"), nests_of(local), strict=True):
        mine = accesses[owners == place]
        assert mine[["offset", "length"]].to_numpy().tolist() == np.stack(nest.expand(), axis=1).tolist()
    return local


def cycle(deltas: Sequence[int], times: int, start: int = 0) -> list[tuple[int, int]]:
    offsets = np.cumsum([start, *(list(deltas) * times)[:-1]])
    return [(offset, 8) for offset in offsets.tolist()]


def interleaved(*streams: tuple[int, int], times: int) -> list[tuple[int, int]]:
    return [(start + turn * step, 8) for turn in range(times) for start, step in streams]


@pytest.mark.parametrize("length", range(3, 9))
def test_a_cycle_of_steps_is_as_many_streams(length: int) -> None:
    deltas = [17, 100, 41, 230, 65, 312, 27, 190][:length]
    starts = np.cumsum([0, *deltas[:-1]]).tolist()
    assert found(cycle(deltas, 10)) == [(start, 8, [(sum(deltas), 10)]) for start in starts]


def test_streams_on_steps_of_their_own() -> None:
    assert found(interleaved((0, 100), (10**6, 24), (5000, -8), times=20)) == [
        (0, 8, [(100, 20)]),
        (10**6, 8, [(24, 20)]),
        (5000, 8, [(-8, 20)]),
    ]


def test_a_batch_of_patterns_repeated_at_a_stride() -> None:
    batch = [(0, 8), (20, 8), (40, 8), (300, 4), (500, 8), (620, 8)]
    accesses = [(offset + turn * 1000, length) for turn in range(9) for offset, length in batch]
    assert found(accesses) == [
        (0, 8, [(1000, 9), (20, 3)]),
        (300, 4, [(1000, 9)]),
        (500, 8, [(1000, 9), (120, 2)]),
    ]


def test_a_cycle_in_a_loop() -> None:
    inner = interleaved((0, 50), (10**5, 70), (10**6, 30), times=7)
    accesses = [(offset + turn * 10**7, 8) for turn in range(5) for offset, _ in inner]
    assert found(accesses) == [
        (0, 8, [(10**7, 5), (50, 7)]),
        (10**5, 8, [(10**7, 5), (70, 7)]),
        (10**6, 8, [(10**7, 5), (30, 7)]),
    ]


@pytest.mark.parametrize(
    ("steps", "found_loops"),
    [
        ((500, 210, 210), [(0, [(920, 9), (30, 3)]), (500, [(920, 9), (210, 2), (30, 3)])]),
        (
            (210, 500, 700, 210),
            [(0, [(1620, 9), (210, 2), (30, 3)]), (710, [(1620, 9), (30, 3)]), (1410, [(1620, 9), (30, 3)])],
        ),
        (
            (500, 210, 700, 210),
            [(0, [(1620, 9), (30, 3)]), (500, [(1620, 9), (210, 2), (30, 3)]), (1410, [(1620, 9), (30, 3)])],
        ),
    ],
)
def test_a_cycle_begins_where_the_accesses_do(
    steps: tuple[int, ...], found_loops: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    """Also if its last step equals others, so that neighbours make up loops from one turn to the next."""
    starts = np.cumsum([0, *(steps * 9)[:-1]]).tolist()
    assert [
        (start, loops) for start, _, loops in found([(start + 30 * row, 8) for start in starts for row in range(3)])
    ] == found_loops


def test_streams_that_grow() -> None:
    """A row of a triangle, an index entry after it, and a counter that is written elsewhere."""
    accesses = [
        access for row in range(12) for access in ((row * 800, 8 * row + 8), (10**6 + row * 12, 12), (10**7, 4))
    ]
    assert nests(accesses) == [
        Nest(0, 8, (Loop(800, 12),), (Growth(0, 8, 0),)),
        Nest(10**6, 12, (Loop(12, 12),)),
        Nest(10**7, 4, (Loop(0, 12),)),
    ]


def test_a_triangle_whose_rows_have_headers() -> None:
    accesses = [
        access
        for row in range(12)
        for access in [(10**6 + 64 * row, 64), *((row * 800 + at * 10, 8) for at in range(row + 3))]
    ]
    assert nests(accesses) == [
        Nest(10**6, 64, (Loop(64, 12),)),
        Nest(0, 8, (Loop(800, 12), Loop(10, 3)), (Growth(0, 0, 1), STILL)),
    ]


@pytest.mark.parametrize("piece", [1, 5, 8, 50])
def test_cycles_are_found_wherever_the_pieces_end_in_which_steps_are_compared(
    monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    growing = [(start + turn * turn * step, 8) for turn in range(20) for start, step in ((0, 40), (10**6, 72))]
    random = [(int(offset), 8) for offset in np.random.default_rng(3).integers(10**7, 10**8, 30)]
    accesses = [*random, *interleaved((0, 48), (7000, 16), (9000, 80), times=20), *growing, *cycle([17, 100, 41, 9], 9)]
    whole = nests(accesses)
    monkeypatch.setattr(interleaved_streams, "PIECE", piece)
    assert nests(accesses) == whole
    assert any(nest.growth for nest in whole)


def test_a_cycle_that_is_cut_short_keeps_its_last_turn() -> None:
    assert found(cycle([17, 100, 41], 10)[:-1]) == [
        (0, 8, [(158, 10)]),
        (17, 8, [(158, 10)]),
        (117, 8, [(158, 9)]),
    ]


def test_streams_of_one_shape_that_overlap_in_time_are_not_one_nest() -> None:
    streams = interleaved((0, 50), (1000, 50), (1700, 50), times=5)
    assert found(streams) == [(0, 8, [(50, 5)]), (1000, 8, [(50, 5)]), (1700, 8, [(50, 5)])]


def test_every_rank_in_a_cycle_makes_global_streams() -> None:
    calls = [Call(rank, "read", offset + rank * 8, 8) for rank in range(4) for offset, _ in cycle([64, 192, 1000], 30)]
    assert [str(signature) for signature in analyze(make_trace(calls)).signatures] == [
        "{READ, 0, 2, ([1256, 8, 30], [8, 8, 4]r), 1}",
        "{READ, 64, 2, ([1256, 8, 30], [8, 8, 4]r), 1}",
        "{READ, 256, 2, ([1256, 8, 30], [8, 8, 4]r), 1}",
    ]


def scattered(seed: int, *streams: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Streams of (start, step, accesses), the next one chosen at random."""
    turns = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(streams)), [one[2] for one in streams]))
    taken = [0] * len(streams)
    accesses = []
    for stream in turns.tolist():
        start, step, _ = streams[stream]
        accesses.append((start + taken[stream] * step, 8))
        taken[stream] += 1
    return accesses


@pytest.mark.parametrize("seed", range(5))
def test_streams_in_no_order_are_found(seed: int) -> None:
    streams = [(10**7 * (number + 1), step, 100) for number, step in enumerate((64, 8, -64, 4096, 64, 100, -8, 24))]
    are_found(seed, streams)


def are_found(seed: int, streams: list[tuple[int, int, int]]) -> None:
    calls = [Call(0, "read", *access) for access in scattered(seed, *streams)]
    in_order(make_trace(calls))
    analysis = analyze(make_trace(calls))
    assert sorted((one.start, *one.loops) for one in analysis.signatures) == [
        (start, Loop(step, accesses)) for start, step, accesses in streams
    ]
    assert analysis.coverage.requests == 1


@pytest.mark.parametrize("number", [2, 3, 8, 16])
def test_streams_in_no_order_are_found_in_one_part_of_the_file(number: int) -> None:
    """Each has every so many-th piece."""
    streams = [(piece * 8, number * 8, 100) for piece in range(number)]
    for seed in range(3):
        are_found(seed, streams)


def test_streams_in_no_order_may_have_different_strides_and_directions_in_one_part_of_the_file() -> None:
    streams = [(8, 64, 300), (16, 64, 100), (12800, -64, 200), (12832, -128, 100)]
    analysis = analyze(make_trace([Call(0, "read", *access) for access in scattered(1, *streams)]))
    assert sorted((one.start, *one.loops) for one in analysis.signatures) == [
        (start, Loop(step, accesses)) for start, step, accesses in streams
    ]


def test_random_accesses_beside_streams_in_no_order_stay_irregular() -> None:
    streams = scattered(0, (10**7, 64, 200), (2 * 10**7, 64, 200))
    noise = [(place, 8) for place in np.random.default_rng(1).integers(10**9, 2 * 10**9, 200).tolist()]
    accesses = [*streams[:200], *noise, *streams[200:]]
    analysis = analyze(make_trace([Call(0, "read", *access) for access in accesses]))
    assert [(one.start, one.loops) for one in analysis.signatures] == [
        (10**7, (Loop(64, 200),)),
        (2 * 10**7, (Loop(64, 200),)),
    ]
    assert sum(part.requests for part in analysis.irregular) == 200


@settings(deadline=None)
@given(
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 500), st.integers(-9, 9), st.integers(1, 40)), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 8)), max_size=60),
    st.integers(1, 2),
)
@example(0, [(0, 1, 2), (0, 1, 14)], [], 1)  # more rows than before
@example(0, [(0, 9, 40), (1, 9, 40), (2, -9, 40), (2, 1, 40)], [(5, 1)], 2)
def test_scattered_streams_lose_no_access(
    seed: int, streams: list[tuple[int, int, int]], noise: list[tuple[int, int]], times: int
) -> None:
    accesses = scattered(seed, *((start + 400, step, count) for start, step, count in streams))
    in_order(make_trace([Call(0, "read", *access) for access in (accesses + noise) * times]))


pieces = st.one_of(
    st.builds(
        lambda streams, times: interleaved(*streams, times=times),
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), min_size=1, max_size=9),
        st.integers(1, 5),
    ),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 2)), max_size=4),
)


@settings(deadline=None)
@given(st.lists(pieces, min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 40))
def test_no_access_is_lost_or_out_of_order_in_its_nest(
    parts: list[list[tuple[int, int]]], times: int, stride: int
) -> None:
    calls = [
        Call(0, "read", offset + turn * stride, length)
        for turn in range(times)
        for part in parts
        for offset, length in part
    ]
    if calls:
        in_order(make_trace(calls))


def test_accesses_that_are_all_fragments_have_their_places_too() -> None:
    one = interleaved((0, 0), (0, 0), (3, 0), (1, 0), (0, 0), (2, 0), (0, 0), (0, 0), (1, 0), times=5)
    other = interleaved((0, 0), (0, 0), (3, 0), (0, 0), (2, 0), times=4)
    local = in_order(make_trace([Call(0, "read", offset, length) for offset, length in (one + other) * 4]))
    assert local.table.empty
