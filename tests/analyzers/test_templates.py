"""Template matching on one sequence: regular accesses are found as the loops that made them, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pdla.analyzers.templates import match
from pdla.model import STILL, Growth, Loop, Nest

LENGTH = 8


def found(offsets: Sequence[int]) -> list[tuple[int, list[tuple[int, int]]]]:
    """(start, loops) of the nests in accesses of 8 bytes."""
    nests = list(match(np.array(offsets, np.int64), np.full(len(offsets), LENGTH, np.int64)))
    assert all(nest.length == LENGTH for nest in nests)
    return [(nest.start, [tuple(loop) for loop in nest.loops]) for nest in nests]


def expanded(nests: Sequence[Nest]) -> list[tuple[int, int]]:
    return [access for nest in nests for access in zip(*(part.tolist() for part in nest.expand()), strict=True)]


CASES = {
    "no accesses": ([], []),
    "one access": ([40], [(40, [])]),
    "contiguous requests are a loop, not one longer request": ([0, 8, 16, 24], [(0, [(8, 4)])]),
    "fixed-strided": ([0, 100, 200, 300], [(0, [(100, 4)])]),
    "backwards": ([300, 200, 100], [(300, [(-100, 3)])]),
    "the same bytes again and again": ([7, 7, 7], [(7, [(0, 3)])]),
    "two accesses by themselves": ([7, 90], [(7, [(83, 2)])]),
    "nested": ([0, 10, 20, 100, 110, 120], [(0, [(100, 2), (10, 3)])]),
    "nested three deep": (
        [0, 10, 100, 110, 5000, 5010, 5100, 5110],
        [(0, [(5000, 2), (100, 2), (10, 2)])],
    ),
    "inner loops of two": ([0, 50, 20, 70, 40, 90], [(0, [(20, 3), (50, 2)])]),
    "a nest read twice": ([0, 10, 20, 100, 110, 120] * 2, [(0, [(0, 2), (100, 2), (10, 3)])]),
    "each row read three times": ([0, 10, 0, 10, 0, 10, 99, 109, 99, 109, 99, 109], [(0, [(99, 2), (0, 3), (10, 2)])]),
    "an odd access before a run leaves the run whole": ([5, 100, 110, 120, 130], [(5, []), (100, [(10, 4)])]),
    "an odd access after a run": ([100, 110, 120, 130, 5], [(100, [(10, 4)]), (5, [])]),
    "an odd access before a nest of twos": ([7, 100, 105, 200, 205, 300, 305], [(7, []), (100, [(100, 3), (5, 2)])]),
    "an odd access after a nest of twos": ([100, 105, 200, 205, 300, 305, 7], [(100, [(100, 3), (5, 2)]), (7, [])]),
    "an odd access between nests of twos that are each other's mirror": (
        [0, 5, 100, 105, 200, 205, 1000, 2000, 2095, 2100, 2195, 2200, 2295],
        [(0, [(100, 3), (5, 2)]), (1000, []), (2000, [(100, 3), (95, 2)])],
    ),
    "rows that adjoin are still rows": ([0, 5, 100, 105, 110, 115, 210, 215], [(0, [(110, 2), (100, 2), (5, 2)])]),
    "runs that adjoin by chance stay one": ([0, 5, 1000, 1005, 1010, 1015], [(0, [(5, 2)]), (1000, [(5, 4)])]),
    "the item between two runs goes to the longer one": (
        [0, 10, 20, 40, 60, 80, 100],
        [(0, [(10, 2)]), (20, [(20, 5)])],
    ),
    "and to the first of two equal ones": ([0, 10, 20, 30, 50, 70, 90], [(0, [(10, 4)]), (50, [(20, 3)])]),
    "the last row is cut short": ([0, 10, 20, 100, 110, 120, 200, 210], [(0, [(100, 2), (10, 3)]), (200, [(10, 2)])]),
    "random accesses are no loops": ([3, 90, 41, 17, 66], [(3, []), (90, []), (41, []), (17, []), (66, [])]),
}


@pytest.mark.parametrize(("offsets", "nests"), CASES.values(), ids=CASES.keys())
def test_the_nests_of(offsets: list[int], nests: list[tuple[int, list[tuple[int, int]]]]) -> None:
    assert found(offsets) == nests


def test_requests_of_other_lengths_are_other_nests() -> None:
    offsets, lengths = np.array([0, 10, 20, 30, 40, 50]), np.array([4, 4, 4, 2, 2, 2])
    assert list(match(offsets, lengths)) == [Nest(0, 4, (Loop(10, 3),)), Nest(30, 2, (Loop(10, 3),))]


def test_no_nest_reaches_from_one_group_to_the_next() -> None:
    offsets = np.array([0, 10, 20, 30, 40, 50])
    nests = match(offsets, np.full(6, 4), np.array([0, 0, 0, 1, 1, 1]))
    assert list(nests) == [Nest(0, 4, (Loop(10, 3),)), Nest(30, 4, (Loop(10, 3),))]
    assert nests.first.tolist() == [0, 3]


GROWING = {
    "rows of a growing size": Nest(0, 8, (Loop(800, 20),), (Growth(0, 8, 0),)),
    "rows of a shrinking size, each one closer": Nest(0, 800, (Loop(900, 20),), (Growth(-9, -8, 0),)),
    "a lower triangle, packed by rows": Nest(0, 8, (Loop(8, 20),), (Growth(8, 8, 0),)),
    "steps that grow from negative ones": Nest(5000, 8, (Loop(-100, 20),), (Growth(13, 0, 0),)),
    "a lower triangle by elements": Nest(0, 8, (Loop(800, 20), Loop(10, 1)), (Growth(0, 0, 1), STILL)),
    "a lower triangle of four rows": Nest(0, 8, (Loop(800, 4), Loop(10, 1)), (Growth(0, 0, 1), STILL)),
    "an upper triangle of four rows": Nest(0, 8, (Loop(810, 4), Loop(10, 4)), (Growth(5, 0, -1), STILL)),
    "an upper triangle by elements": Nest(0, 8, (Loop(810, 20), Loop(10, 20)), (Growth(0, 0, -1), STILL)),
    "rows of 2, 4, 6, ...": Nest(0, 8, (Loop(800, 20), Loop(10, 2)), (Growth(0, 0, 2), STILL)),
    "rows of 1, 3, 5, ..., packed with gaps": Nest(0, 8, (Loop(10, 20), Loop(9, 1)), (Growth(20, 0, 2), STILL)),
    "rows of blocks": Nest(0, 8, (Loop(8000, 20), Loop(100, 1), Loop(10, 3)), (Growth(0, 0, 1), STILL, STILL)),
    "a triangle in every plane": Nest(
        0, 8, (Loop(10**5, 3), Loop(800, 9), Loop(10, 1)), (STILL, Growth(0, 0, 1), STILL)
    ),
    "an upper one in every plane": Nest(
        0, 8, (Loop(9**5, 3), Loop(810, 9), Loop(10, 9)), (STILL, Growth(0, 0, -1), STILL)
    ),
    "triangles farther and farther apart": Nest(
        0, 8, (Loop(10**5, 4), Loop(800, 9), Loop(10, 1)), (Growth(70, 2, 0), Growth(0, 0, 1), STILL)
    ),
    "all at once": Nest(0, 8, (Loop(10**6, 9), Loop(800, 4), Loop(10, 5)), (Growth(40, 3, 1), STILL, STILL)),
}


@pytest.mark.parametrize("nest", GROWING.values(), ids=GROWING.keys())
def test_what_grows_is_one_nest(nest: Nest) -> None:
    assert list(match(*nest.expand())) == [nest]


def test_a_growth_takes_four_iterations() -> None:
    """Three of anything have a constant second difference."""
    assert found([0, 100, 210]) == [(0, []), (100, []), (210, [])]
    assert list(match(np.array([0, 100, 210, 330]), np.full(4, 8))) == [
        Nest(0, 8, (Loop(100, 4),), (Growth(10, 0, 0),))
    ]


accesses = st.lists(st.tuples(st.integers(0, 2**62), st.integers(1, 2**40)), max_size=60)
few_values = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 2)), max_size=60)


@settings(deadline=None)
@given(accesses | few_values)
def test_the_expansion_of_the_nests_is_the_sequence(pairs: list[tuple[int, int]]) -> None:
    offsets, lengths = (np.array([pair[part] for pair in pairs], np.int64) for part in (0, 1))
    assert expanded(list(match(offsets, lengths))) == pairs


@st.composite
def nests(draw: st.DrawFn, least: int = 1, most: int = 40) -> Nest:
    """A nest in its shortest form, up to four loops deep."""
    depth = draw(st.integers(1, 4))
    strides = draw(st.lists(st.integers(least, most), min_size=depth, max_size=depth, unique=True))
    counts = draw(st.lists(st.integers(2, 5), min_size=depth, max_size=depth))
    loops = tuple(map(Loop, strides, counts))
    for outer, inner in pairwise(loops):
        assume(outer.stride != inner.stride * inner.count)
    return Nest(1000, LENGTH, loops)


@settings(deadline=None)
@given(nests())
def test_a_nest_comes_back_as_the_one_nest_that_made_it(nest: Nest) -> None:
    offsets, lengths = nest.expand()
    assert list(match(offsets, lengths)) == [nest]


@settings(deadline=None)
@given(nests(-20, 20))
def test_a_nest_with_strides_that_are_negative_or_zero_too(nest: Nest) -> None:
    offsets, lengths = nest.expand()
    assert list(match(offsets, lengths)) == [nest]


def random_nest(rng: np.random.Generator, far: int, grows: bool) -> Nest:
    """A nest in canonical form up to five loops deep with strides up to ``far``, negative ones and overlaps too."""
    while True:
        depth = int(rng.integers(1, 6))
        most = 6 if depth > 3 else 8
        loops = [Loop(int(rng.integers(-far, far)), int(rng.integers(3, most))) for _ in range(depth)]
        growth = [STILL] * depth
        if grows:
            level = int(rng.integers(0, depth))
            growth[level] = Growth(
                *(int(value) for value in (rng.integers(-far, far) // 10, rng.integers(-3, 9), rng.integers(-2, 3)))
            )
            if level + 1 == depth:
                growth[level] = growth[level]._replace(count=0)
            else:
                down = min(0, growth[level].count) * (max(4, loops[level].count) - 1)
                loops[level + 1] = loops[level + 1]._replace(count=max(1, loops[level + 1].count + down) - down)
            loops[level] = loops[level]._replace(count=max(4, loops[level].count))
        nest = Nest(10**9, 100, tuple(loops), tuple(growth) if any(one != STILL for one in growth) else ())
        merged = (
            outer.stride == inner.stride * inner.count and growing == (inner.stride * growing.count, 0, growing.count)
            for (outer, growing), (inner, _) in pairwise(nest.levels)
        )
        if not any(merged):
            return nest


@pytest.mark.parametrize(("far", "grows"), [(10, False), (1000, False), (10**6, False), (10**6, True)])
def test_random_nests_come_back_as_the_loops_that_made_them(far: int, grows: bool) -> None:
    rng = np.random.default_rng(far + grows)
    for _ in range(150):
        nest = random_nest(rng, far, grows)
        assert list(match(*nest.expand())) == [nest]


@pytest.mark.parametrize("grows", [False, True])
def test_random_nests_are_found_among_noise_and_one_another(grows: bool) -> None:
    rng = np.random.default_rng(11)
    for _ in range(80):
        nests = [random_nest(rng, 10**6, grows)._replace(start=int(rng.integers(10**9, 10**10))) for _ in range(3)]
        parts = [nest.expand() for nest in nests]
        for place in range(4):
            noise = int(rng.integers(0, 4))
            parts.insert(2 * place, (rng.integers(0, 10**8, noise), np.full(noise, 100)))
        offsets, lengths = np.concatenate(parts, axis=1)
        found = list(match(offsets, lengths))
        assert expanded(found) == list(zip(offsets.tolist(), lengths.tolist(), strict=True))
        assert set(nests) <= set(found)


@settings(deadline=None)
@given(nests(), nests())
def test_two_nests_that_share_no_step_come_back_as_two(one: Nest, other: Nest) -> None:
    assume(not {loop.stride for loop in one.loops} & {loop.stride for loop in other.loops})
    other = other._replace(start=10**9, length=LENGTH + 1)
    offsets, lengths = np.concatenate((one.expand(), other.expand()), axis=1)
    assert list(match(offsets, lengths)) == [one, other]


def test_a_million_random_accesses_are_a_million_nests() -> None:
    offsets = np.random.default_rng(0).integers(0, 2**40, 10**6)
    assert len(match(offsets, np.full_like(offsets, LENGTH))) == 10**6


def test_a_million_accesses_row_by_row_are_one_nest() -> None:
    nest = Nest(0, LENGTH, (Loop(10**6, 1000), Loop(24, 500), Loop(10, 2)))
    offsets, lengths = nest.expand()
    assert list(match(offsets, lengths)) == [nest]
