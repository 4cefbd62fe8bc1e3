"""Nests that may grow: their properties agree with their accesses, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pdla.model import STILL, Growth, Loop, Nest, Signature


def accesses(nest: Nest) -> list[tuple[int, int]]:
    """(offset, length) of every access, by the definition of Growth."""
    return list(_inside(nest.start, nest.length, 0, nest.levels))


def _inside(start: int, length: int, more: int, levels: Sequence[tuple[Loop, Growth]]) -> Iterator[tuple[int, int]]:
    if not levels:
        yield start, length
        return
    (loop, grows), *inner = levels
    step = loop.stride
    for number in range(loop.count + more):
        yield from _inside(start, length + number * grows.length, number * grows.count, inner)
        start += step
        step += grows.stride


small = st.integers(-3, 3)


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """A nest up to four loops deep whose counts and lengths stay positive."""
    depth = draw(st.integers(1, 4))
    loops = tuple(Loop(draw(st.integers(-40, 40)), draw(st.integers(1, 5))) for _ in range(depth))
    growth = tuple(draw(st.just(STILL) | st.builds(Growth, small, small, small)) for _ in range(depth - 1))
    nest = Nest(1000, draw(st.integers(1, 20)), loops, (*growth, draw(st.builds(Growth, small, small, st.just(0)))))
    more = 0
    for loop, grows in nest.levels:
        assume(loop.count + min(0, more) > 0)
        more = grows.count * (loop.count + max(0, more) - 1)
    assume(all(length > 0 for _, length in accesses(nest)))
    return nest


@given(nests())
def test_a_nest_expands_to_its_accesses_and_counts_them(nest: Nest) -> None:
    every = accesses(nest)
    assert list(zip(*(part.tolist() for part in nest.expand()), strict=True)) == every
    assert (nest.requests, nest.bytes) == (len(every), sum(length for _, length in every))
    assert nest.extent == (min(offset for offset, _ in every), max(sum(access) for access in every))


@given(nests())
def test_a_nest_without_its_repetitions_has_the_same_bytes(nest: Nest) -> None:
    assert list(dict.fromkeys(accesses(nest.once()))) == list(dict.fromkeys(accesses(nest)))


@given(nests())
def test_evening_keeps_the_requests_to_half_an_iteration_of_each_loop(nest: Nest) -> None:
    even = nest.evened()
    assert even.growth == ()
    assert [loop.count for loop in even.loops][:1] == [loop.count for loop in nest.loops][:1]
    assert even.length == -(-nest.bytes // nest.requests)


def test_a_triangle_of_a_billion_rows_is_counted_without_enumerating_them() -> None:
    triangle = Nest(0, 8, (Loop(8 * 10**9, 10**9), Loop(8, 1)), (Growth(0, 0, 1), STILL))
    assert triangle.requests == 500_000_000_500_000_000
    assert triangle.bytes == 8 * triangle.requests


NOTATIONS = {
    "rows of a growing size": (
        Nest(0, 8, (Loop(800, 100),), (Growth(0, 8, 0),)),
        "{READ, 0, 1, ([800, 8+8, 100]), 1}",
    ),
    "packed rows": (Nest(0, 8, (Loop(8, 100),), (Growth(8, 8, 0),)), "{READ, 0, 1, ([8+8, 8+8, 100]), 1}"),
    "an upper triangle by elements, three times": (
        Nest(0, 8, (Loop(0, 3), Loop(808, 100), Loop(8, 100)), (STILL, Growth(0, 0, -1), STILL)),
        "{READ, 0, 2, ([8, 8, 100-1], [808, 8, 100]), 3}",
    ),
    "the same bytes more and more often": (
        Nest(0, 8, (Loop(8, 9), Loop(0, 1)), (Growth(0, 0, 1), STILL)),
        "{READ, 0, 2, ([0, 8, 1+1], [8, 8, 9]), 1}",
    ),
}


@pytest.mark.parametrize(("nest", "notation"), NOTATIONS.values(), ids=NOTATIONS.keys())
def test_the_notation_of(nest: Nest, notation: str) -> None:
    signature = Signature("f", "read", False, nest.start, nest.length, nest.loops, (0,), growth=nest.growth)
    assert str(signature) == notation


def test_ranks_of_growing_shares() -> None:
    """Rank r reads r + 1 rows of two pieces."""
    signature = Signature(
        "f", "read", False, 0, 8, (Loop(1000, 3), Loop(100, 1), Loop(10, 2)), (4, 5, 6), 1,
        growth=(Growth(0, 0, 1), STILL, STILL),
    )  # fmt: skip
    offsets, ranks, lengths = signature.expand()
    assert offsets.tolist() == [0, 10, 1000, 1010, 1100, 1110, 2000, 2010, 2100, 2110, 2200, 2210]
    assert ranks.tolist() == [4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6]
    assert lengths.tolist() == [8] * 12
