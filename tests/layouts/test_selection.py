"""The choice under capacity: against brute force, against the greedy one, and never more than there is room for."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.layouts.selection import CORE, GAP, Option, choose_greedy, choose_optimal

Instance = tuple[list[list[Option]], dict[str, int]]


def instance(choose: random.Random, patterns: int, most: int = 6) -> Instance:
    """Patterns of up to ``most`` options in one of three pools or two of them together, and room for a part of them."""
    pools = ["hdd", "ssd", "node"]
    asked = [
        [
            Option(
                choose.uniform(0.001, 10),
                {name: choose.randint(1, 1000) for name in choose.sample(pools, choose.choice([1, 1, 2]))},
            )
            for _ in range(choose.randint(0, most))
        ]
        for _ in range(patterns)
    ]
    return asked, {name: int(500 * patterns * choose.uniform(0.0, 0.5)) for name in pools}


def gain(asked: Sequence[Sequence[Option]], chosen: Sequence[int | None]) -> float:
    return sum(options[j].gain for options, j in zip(asked, chosen, strict=True) if j is not None)


def fits(asked: Sequence[Sequence[Option]], chosen: Sequence[int | None], room: Mapping[str, int]) -> bool:
    taken: Counter[str] = Counter()
    for options, j in zip(asked, chosen, strict=True):
        taken.update(options[j].space if j is not None else {})
    return all(size <= room[name] for name, size in taken.items())


@pytest.mark.parametrize("seed", range(60))
def test_the_optimum_is_that_of_brute_force(seed: int):
    choose = random.Random(seed)
    asked, room = instance(choose, choose.randint(1, 5), most=3)
    every = itertools.product(*[[None, *range(len(options))] for options in asked])
    best = max(gain(asked, chosen) for chosen in every if fits(asked, chosen, room))
    found = choose_optimal(asked, room)
    assert gain(asked, found.options) == pytest.approx(best, rel=1e-5)
    assert fits(asked, found.options, room)
    assert found.gap == 0.0


@pytest.mark.parametrize("seed", range(25))
def test_the_optimum_is_never_below_the_greedy_choice(seed: int):
    choose = random.Random(1000 + seed)
    asked, room = instance(choose, choose.randint(1, 40))
    optimal, greedy = choose_optimal(asked, room), choose_greedy(asked, room)
    assert gain(asked, optimal.options) >= gain(asked, greedy.options)
    assert fits(asked, optimal.options, room)
    assert fits(asked, greedy.options, room)


def test_a_thousand_patterns_are_decided_by_the_few_that_are_in_doubt():
    asked, room = instance(random.Random(7), 1000)
    found = choose_optimal(asked, room, seconds=60)
    assert fits(asked, found.options, room)
    assert found.gap <= GAP
    assert gain(asked, found.options) > gain(asked, choose_greedy(asked, room).options)


def test_what_was_not_proven_in_time_is_reported():
    asked, room = instance(random.Random(7), 40)
    hurried, best = choose_optimal(asked, room, seconds=0), choose_optimal(asked, room, seconds=60)
    assert gain(asked, hurried.options) == gain(asked, choose_greedy(asked, room).options)
    assert gain(asked, best.options) <= gain(asked, hurried.options) * (1 + hurried.gap)
    assert hurried.gap > 0.01


def test_with_room_for_all_every_pattern_has_its_best():
    asked = [[Option(1.0, {"ssd": 5}), Option(2.0, {"ssd": 6})]] * 3 + [[]]
    assert choose_optimal(asked, {"ssd": 18}).options == (1, 1, 1, None)
    assert choose_greedy(asked, {"ssd": 18}).options == (1, 1, 1, None)


def test_the_last_byte_is_used_and_not_one_more():
    asked = [[Option(1.0, {"ssd": (1 << 40) + 1})], [Option(1.0, {"ssd": (1 << 40) - 1})]]
    assert choose_optimal(asked, {"ssd": 2 << 40}).options == (0, 0)
    assert choose_optimal(asked, {"ssd": (2 << 40) - 1}).options in ((0, None), (None, 0))


def test_a_pattern_takes_the_next_best_where_the_best_has_no_room():
    asked = [[Option(3.0, {"ssd": 5}), Option(2.0, {"hdd": 5})]] * 2
    assert choose_greedy(asked, {"ssd": 5, "hdd": 5}).options == (0, 1)
    assert gain(asked, choose_optimal(asked, {"ssd": 5, "hdd": 5}).options) == 5.0


@given(st.integers(0, 1 << 32))
def test_nothing_better_fits_with_the_choice(seed: int):
    choose = random.Random(seed)
    asked, room = instance(choose, choose.randint(1, 6), most=3)
    for chosen in (choose_optimal(asked, room).options, choose_greedy(asked, room).options):
        for i, options in enumerate(asked):
            now = -1.0 if (j := chosen[i]) is None else options[j].gain
            for better, option in enumerate(options):
                if option.gain > now:
                    assert not fits(asked, [*chosen[:i], better, *chosen[i + 1 :]], room)


def test_the_same_is_chosen_every_time():
    asked, room = instance(random.Random(11), 30)
    assert choose_optimal(asked, room) == choose_optimal(asked, room)


def test_the_names_of_spaces_may_have_any_characters() -> None:
    choose = random.Random(5)
    patterns = [[Option(choose.uniform(1, 2), {"pool a": choose.randint(50, 100)})] for _ in range(3 * CORE)]
    named = [[Option(option.gain, {"a": option.space["pool a"]}) for option in options] for options in patterns]
    assert choose_optimal(patterns, {"pool a": 5000}) == choose_optimal(named, {"a": 5000})
    assert choose_optimal(patterns, {"pool a": 5000}).gap == 0.0
