"""Views: expanding a part of the data stream gives the same as a walk byte by byte, at the cost of only that part."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.errors import FormatError
from pdla.traces.file_views import View, first_offsets
from pdla.traces.tables import ACCESS_COLUMNS
from tests.support.handmade_traces import Call, make_trace

BLOCK, LOOP, LIST, RUNS = range(4)

Tree = tuple  # of words, children nested


def words_of(tree: Tree) -> list[int]:
    kind, *rest = tree
    if kind == BLOCK:
        return [BLOCK, *rest]
    if kind == LOOP:
        count, stride, child = rest
        return [LOOP, count, stride, *words_of(child)]
    if kind == LIST:
        return [LIST, len(rest), *(word for offset, child in rest for word in (offset, *words_of(child)))]
    return [RUNS, len(rest), *(word for run in rest for word in run)]


def bytes_of(tree: Tree) -> list[int]:
    """The offset of every data byte, in typemap order: the definition."""
    kind, *rest = tree
    if kind == BLOCK:
        return list(range(rest[0]))
    if kind == LOOP:
        count, stride, child = rest
        return [turn * stride + offset for turn in range(count) for offset in bytes_of(child)]
    if kind == LIST:
        return [start + offset for start, child in rest for offset in bytes_of(child)]
    return [offset for start, length in rest for offset in range(start, start + length)]


def walk(view: View, data: list[int], position: int, length: int) -> list[tuple[int, int]]:
    """The extents of [position, position + length), one byte after the other."""
    extents: list[tuple[int, int]] = []
    for place in range(position, position + length):
        tile, byte = divmod(place, len(data))
        offset = view.displacement + tile * view.extent + data[byte]
        if extents and sum(extents[-1]) == offset:
            extents[-1] = extents[-1][0], extents[-1][1] + 1
        else:
            extents.append((offset, 1))
    return extents


def merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extents with neighbours merged."""
    found: list[tuple[int, int]] = []
    for offset, length in extents:
        if found and sum(found[-1]) == offset:
            offset, length = found[-1][0], found.pop()[1] + length
        found.append((offset, length))
    return found


def pairs(extents: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return list(zip(*(array.tolist() for array in extents), strict=True))


offsets = st.integers(-20, 40)
leaves = st.tuples(st.just(BLOCK), st.integers(0, 6)) | st.lists(st.tuples(offsets, st.integers(0, 5)), max_size=4).map(
    lambda runs: (RUNS, *runs)
)
trees = st.recursive(
    leaves,
    lambda child: (
        st.tuples(st.just(LOOP), st.integers(0, 4), st.integers(-9, 20), child)
        | st.lists(st.tuples(offsets, child), max_size=4).map(lambda children: (LIST, *children))
    ),
    max_leaves=6,
)


@st.composite
def views(draw: st.DrawFn) -> tuple[View, list[int]]:
    tree = draw(trees)
    data = bytes_of(tree)
    extent = draw(st.integers(0, 60) | st.just(len(data)))
    return View(draw(st.integers(10**6, 10**6 + 50)), 1, extent, len(data), np.array(words_of(tree))), data


@given(views(), st.integers(0, 200), st.integers(0, 120))
def test_extents_are_those_of_a_walk_byte_by_byte(made: tuple[View, list[int]], position: int, length: int) -> None:
    view, data = made
    if data:
        assert merged(pairs(view.extents(position, length))) == walk(view, data, position, length)
    else:
        assert pairs(view.extents(position, 0)) == []


@given(views(), st.lists(st.integers(0, 300), min_size=1))
def test_first_offset_is_that_of_a_walk_byte_by_byte(made: tuple[View, list[int]], positions: list[int]) -> None:
    view, data = made
    wanted = [walk(view, data, position, 1)[0][0] if data else view.displacement for position in positions]
    assert view.first_offset(positions).tolist() == wanted
    assert first_offsets(
        [View.plain(), view], np.ones(len(positions), dtype=np.int32), np.array(positions)
    ).tolist() == (wanted)


calls = st.tuples(
    st.integers(0, 2), st.sampled_from(["read", "write"]), st.integers(0, 100), st.integers(0, 50), st.integers(0, 3)
)


@given(st.lists(views().filter(lambda made: made[1] != []), min_size=3, max_size=3), st.lists(calls, max_size=12))
def test_accesses_are_the_extents_of_every_call_in_order(made: list[tuple[View, list[int]]], drawn: list) -> None:
    trace = make_trace(
        [Call(rank, op, position, length, view=view) for rank, op, position, length, view in drawn],
        [view for view, _ in made],
    )
    wanted = [
        (record.rank, record.call, record.op, offset, length)
        for record in trace.records.itertuples()
        for offset, length in pairs(trace.views[record.view].extents(record.position, record.length))
    ]
    got = trace.accesses()
    assert list(got[["rank", "call", "op", "offset", "length"]].itertuples(index=False, name=None)) == wanted
    assert got.dtypes.astype(str).to_dict() == dict(ACCESS_COLUMNS)


def test_the_plain_view_is_the_bytes_of_the_file() -> None:
    plain = View.plain()
    assert pairs(plain.extents(5, 1 << 40)) == [(5, 1 << 40)]
    assert plain.is_contiguous


def test_pieces_that_meet_across_loops_and_tiles_are_one_extent() -> None:
    # A tile of 12 bytes with data at [0, 4) and [8, 12): the second piece touches the first one of the next tile.
    view = View(100, 1, 12, 8, np.array([RUNS, 2, 0, 4, 8, 4]))
    assert pairs(view.extents(0, 24)) == [(100, 4), (108, 8), (120, 8), (132, 4)]


def test_loops_that_meet_stay_apart() -> None:
    """Two tiles of a matrix, of which the second begins where the last row of the first ends; and then a block."""
    words = [LIST, 3, 0, LOOP, 3, 8, BLOCK, 4, 20, LOOP, 2, 8, BLOCK, 4, 32, BLOCK, 9]
    view = View(0, 1, 100, 29, np.array(words))
    assert pairs(view.extents(0, 29)) == [(0, 4), (8, 4), (16, 4), (20, 4), (28, 4), (32, 9)]
    assert pairs(view.extents(10, 10)) == [(18, 2), (20, 4), (28, 4)]
    blocks = View(0, 1, 100, 13, np.array([LIST, 3, 0, BLOCK, 4, 4, BLOCK, 4, 8, BLOCK, 5]))
    assert pairs(blocks.extents(0, 13)) == [(0, 13)]


def test_a_vector_that_fills_its_extent_is_contiguous() -> None:
    view = View(64, 8, 800, 800, np.array([LOOP, 100, 8, BLOCK, 8]))
    assert view.is_contiguous
    assert pairs(view.extents(792, 16)) == [(856, 16)]


def test_a_part_of_a_huge_view_costs_only_the_part() -> None:
    view = View(0, 8, 80 * 10**8, 8 * 10**8, np.array([LOOP, 10**8, 80, BLOCK, 8]))
    start = time.process_time()
    for _ in range(100):
        extents = view.extents(8 * 10**8 - 16, 32)
    assert time.process_time() - start < 1.0
    assert pairs(extents) == [(7999999840, 8), (7999999920, 8), (8000000000, 8), (8000000080, 8)]


def test_a_million_calls_through_a_strided_view_take_a_second() -> None:
    strided = View(4096, 8, 64, 8, np.array([BLOCK, 8]))
    trace = make_trace([Call(0, "read", 0, 8, view=1)], [strided])
    records = trace.records.loc[np.zeros(10**6, dtype=np.int64)].reset_index(drop=True)
    records["position"] = np.arange(10**6) * 8
    start = time.process_time()
    accesses = replace(trace, records=records).accesses()
    assert time.process_time() - start < 1.0
    assert accesses["offset"].iloc[[0, 1, -1]].tolist() == [4096, 4160, 4096 + 64 * 999_999]


def test_views_that_differ_only_in_where_they_begin_are_expanded_together() -> None:
    """A subarray view a slab, as programs set before each read: 2,000 views, 100 pieces each, in a second."""
    slabs = [View(0, 4, 10**9, 400, np.array([LIST, 1, slab * 8000, LOOP, 100, 80, BLOCK, 4])) for slab in range(2000)]
    trace = make_trace([Call(0, "read", 0, 400, view=1 + slab) for slab in range(2000)], slabs)
    start = time.process_time()
    accesses = trace.accesses()
    assert time.process_time() - start < 0.5
    assert accesses["offset"].tolist() == [place * 80 for place in range(200_000)]


def test_calls_whose_place_is_not_known_and_empty_calls_have_no_access() -> None:
    trace = make_trace([Call(0, "read", 0, 8), Call(0, "read", 8, 0), Call(0, "write", 16, 8)])
    records = trace.records.copy()
    records.loc[2, "offset"] = -1
    assert replace(trace, records=records).accesses()["offset"].tolist() == [0]


def test_views_are_equal_when_all_of_them_is() -> None:
    words = np.array([BLOCK, 8])
    assert View(0, 1, 64, 8, words) == View(0, 1, 64, 8, words.copy())
    assert len({View(0, 1, 64, 8, words), View(0, 1, 64, 8, words.copy()), View(8, 1, 64, 8, words)}) == 2


@pytest.mark.parametrize(
    ("words", "size", "message"),
    [
        ([], 0, "end in the middle"),
        ([LOOP, 3, 8], 0, "end in the middle"),
        ([RUNS, 1 << 40, 0, 8], 8, "end in the middle"),
        ([RUNS, -1], 8, "end in the middle"),
        ([LIST, 2, 0, BLOCK, 8, 8], 16, "end in the middle"),
        ([BLOCK, 8, 0], 8, "ends after 2"),
        ([7, 8], 8, "node of kind 7"),
        ([BLOCK, -8], -8, "negative length"),
        ([LOOP, -1, 8, BLOCK, 8], 8, "loop of -1 turns"),
        ([LOOP, 1 << 62, 8, BLOCK, 8], 8, "loop of 4611686018427387904 turns"),
        ([BLOCK, 8], 16, "a file view gives 16 bytes for a tile, but its typemap words give 8"),
        ([LOOP, 2, 64] * 33 + [BLOCK, 8], 8, "deeper than 32"),
    ],
)
def test_words_that_are_no_tree_are_refused(words: list[int], size: int, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        View(0, 1, 64, size, np.array(words, dtype=np.int64))


def test_bytes_before_the_start_or_of_an_empty_view_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no bytes \[-1, 7\)"):
        View.plain().extents(-1, 8)
    with pytest.raises(ValueError, match="0 bytes a tile"):
        View(0, 1, 64, 0, np.array([BLOCK, 0])).extents(0, 8)
