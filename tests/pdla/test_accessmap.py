"""Access maps against a model: the list of the original's bytes in the order in which a signature accesses them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.accessmap import MAX_EXTENTS, AccessMap, MapLoop, Tile
from pdla.errors import FormatError, PdlaError
from pdla.model import STILL, Growth, Loop, Signature


def signature(start: int, length: int, *loops: tuple[int, int], rank_loops: int = 0) -> Signature:
    ranks = int(np.prod([count for _, count in loops[:rank_loops]], dtype=int))
    return Signature(
        "f", "read", False, start, length, tuple(Loop(*loop) for loop in loops), tuple(range(ranks)), rank_loops
    )


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    loops = draw(st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 5)), max_size=4))
    low = sum(min(0, stride * (count - 1)) for stride, count in loops)
    return signature(draw(st.integers(0, 20)) - low, draw(st.integers(1, 12)), *loops)


@st.composite
def growing(draw: st.DrawFn) -> Signature:
    """Rows of a growing number of pieces of a growing length, up and down, with overlaps."""
    step, bend, longer, more = draw(st.tuples(st.integers(-30, 30), st.integers(-5, 5), *[st.integers(-1, 2)] * 2))
    rows, row = Loop(step, 5), Loop(draw(st.integers(-9, 9)), 5)
    made = signature(1000, draw(st.integers(5, 12)), rows, row)
    return replace(made, growth=(Growth(bend, longer, more), STILL))


def bytes_in_first_access_order(signature: Signature) -> list[int]:
    offsets, _, lengths = signature.expand()
    return list(
        dict.fromkeys(
            offset + j for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True) for j in range(length)
        )
    )


def replica_bytes(tiles: list[Tile]) -> dict[int, int]:
    return {tile.offset + j: tile.replica_offset + j for tile in tiles for j in range(tile.length)}


@given(signatures() | growing())
def test_the_replica_holds_the_distinct_bytes_in_the_order_of_their_first_access(signature: Signature):
    order = bytes_in_first_access_order(signature)
    access_map = AccessMap.from_signature(signature)
    assert access_map.size == len(order)
    assert access_map.extent == signature.extent
    assert replica_bytes(list(access_map.locate(*signature.extent))) == {byte: i for i, byte in enumerate(order)}


@given(signatures() | growing(), st.integers(-10, 1200), st.integers(0, 300))
def test_locate_gives_exactly_the_held_bytes_of_a_range_in_file_order(signature: Signature, start: int, length: int):
    held = {byte: i for i, byte in enumerate(bytes_in_first_access_order(signature))}
    access_map = AccessMap.from_signature(signature)
    tiles = list(access_map.locate(start, start + length))
    assert replica_bytes(tiles) == {byte: held[byte] for byte in held if start <= byte < start + length}
    assert all(a.offset + a.length <= b.offset for a, b in itertools.pairwise(tiles))
    assert [Tile(*row) for row in np.stack(access_map.tiles(start, start + length), axis=1).tolist()] == tiles


@given(signatures() | growing())
def test_json_gives_the_same_map_back(signature: Signature):
    access_map = AccessMap.from_signature(signature)
    assert AccessMap.from_json(access_map.to_json()) == access_map


def test_interleaved_ranks_become_one_section_each():
    """Four ranks read 4 KiB pieces in turn, 64 times: the loop over the ranks is the inner one in the original."""
    pattern = signature(0, 4096, (4096, 4), (16384, 64), rank_loops=1)
    assert AccessMap.from_signature(pattern) == AccessMap((MapLoop(64, 16384, 4096), MapLoop(4, 4096, 262144)), 0, 4096)
    assert AccessMap.section(pattern) == 262144
    assert list(AccessMap.from_signature(pattern).locate(18432, 20480 + 100)) == [
        Tile(18432, 2048, 6144),
        Tile(20480, 100, 266240),
    ]


def test_a_matrix_tile_keeps_both_loops_over_the_ranks():
    """A 64 x 64 matrix of bytes read in 2 x 2 tiles by 4 ranks."""
    pattern = signature(0, 32, (2048, 2), (32, 2), (64, 32), rank_loops=2)
    assert AccessMap.from_signature(pattern) == AccessMap(
        (MapLoop(2, 2048, 2048), MapLoop(32, 64, 32), MapLoop(2, 32, 1024)), 0, 32
    )


def test_a_contiguous_partition_becomes_one_block():
    assert AccessMap.from_signature(signature(8, 100, (1000, 4), (100, 10), rank_loops=1)) == AccessMap((), 8, 4000)


def test_repetitions_of_the_same_bytes_are_held_once():
    assert AccessMap.from_signature(signature(0, 4, (0, 3), (10, 5))) == AccessMap((MapLoop(5, 10, 4),), 0, 4)


def test_a_backward_walk_is_held_in_its_own_order():
    assert AccessMap.from_signature(signature(90, 10, (-30, 4))) == AccessMap((MapLoop(4, 30, -10),), 0, 10, 30)


def test_ghost_cells_fall_back_to_extents_without_duplicates():
    """Two ranks read 3 of 4 columns each, in 2 rows of 4 bytes: the columns in the middle go to the first."""
    pattern = signature(0, 3, (1, 2), (4, 2), rank_loops=1)
    assert AccessMap.from_signature(pattern).extents.tolist() == [[0, 3, 0], [3, 1, 6], [4, 3, 3], [7, 1, 7]]


@given(signatures() | growing(), st.data())
def test_a_map_that_is_cut_holds_the_bytes_before_the_cut_in_the_same_order(signature: Signature, data: st.DataObject):
    low, high = signature.extent
    end = data.draw(st.integers(max(0, low - 3), high + 3))
    order = [byte for byte in bytes_in_first_access_order(signature) if byte < end]
    cut = AccessMap.from_signature(signature).cut(end)
    assert replica_bytes(list(cut.locate(low, high))) == {byte: i for i, byte in enumerate(order)} if cut else not order


@pytest.mark.parametrize(
    ("end", "turns"), [(4_200_000, 1050), (4_199_999, 0), (4_000, 1), (4_396_000, 1099), (4_400_000, 1100)]
)
def test_a_regular_map_that_is_cut_between_turns_stays_regular(end: int, turns: int):
    whole = AccessMap.from_signature(signature(0, 1000, (1000, 4), (4000, 1100), rank_loops=1))
    cut = whole.cut(end)
    if turns == 1:
        assert cut == AccessMap((), 0, 4000)
    elif turns:
        assert cut == AccessMap((MapLoop(turns, 4000, 1000), MapLoop(4, 1000, 1000 * turns)), 0, 1000)
    else:
        assert cut.pieces > 1000 and cut.extent == (0, end)


@pytest.mark.parametrize(("end", "size"), [(10**9 + 45, 160_000_000), (400_000_003, 80_000_000), (45, 12), (7, 4)])
def test_a_map_of_too_many_pieces_loses_the_turn_in_which_it_is_cut(end: int, size: int):
    whole = AccessMap.from_signature(signature(0, 4, (10**9, 2), (40, 2 * MAX_EXTENTS), (10, 2)))
    assert whole.cut(end).size == size


def test_an_irregular_pattern_of_too_many_accesses_is_refused():
    with pytest.raises(PdlaError, match="at most 10000000"):
        AccessMap.from_signature(signature(0, 8, (4, MAX_EXTENTS + 1)))


def test_a_billion_requests_are_a_few_integers():
    pattern = signature(0, 64, (64, 100_000), (6_400_000, 10_000), rank_loops=1)
    access_map = AccessMap.from_signature(pattern)
    assert len(access_map.loops) == 2
    assert next(access_map.locate(6_400_000 * 9_999 + 64 * 99_999, 1 << 62)) == Tile(
        63_999_999_936, 64, 99_999 * 640_000 + 9_999 * 64
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"loops": (MapLoop(2, 8, 10),), "start": 0, "length": 10},  # overlaps in the original
        {"loops": (MapLoop(2, 20, 5),), "start": 0, "length": 10},  # overlaps in the replica
        {"loops": (MapLoop(2, 20, 30),), "start": 0, "length": 10},  # a hole in the replica
        {"loops": (MapLoop(2, 20, -10),), "start": 0, "length": 10},  # begins before the replica
        {"start": 0, "length": 0},
        {"extents": np.array([[0, 10, 0], [5, 10, 10]])},
        {"extents": np.array([[0, 10, 0], [20, 10, 5]])},
        {"extents": np.zeros((0, 3), dtype=np.int64)},
    ],
)
def test_what_is_not_a_bijection_is_refused(bad: dict[str, object]):
    with pytest.raises(FormatError, match="not an access map"):
        AccessMap(**bad)


def test_a_triangle_is_an_extent_table_of_its_rows():
    triangle = replace(signature(0, 8, (800, 100)), growth=(Growth(0, 8, 0),))
    access_map = AccessMap.from_signature(triangle)
    assert (access_map.pieces, access_map.size) == (100, 8 * 5050)
    assert list(access_map.locate(1604, 2410)) == [Tile(1604, 20, 28), Tile(2400, 10, 48)]


def test_a_triangle_of_too_many_rows_is_refused():
    rows = replace(signature(0, 8, (10**10, MAX_EXTENTS + 1)), growth=(Growth(0, 8, 0),))
    with pytest.raises(
        PdlaError, match="grows and has 10000001 accesses; a replica of an irregular pattern holds at most"
    ):
        AccessMap.from_signature(rows)
