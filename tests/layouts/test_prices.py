"""The prices of space: their bound is that of the linear relaxation, as a solver finds it."""

from __future__ import annotations

import random

import numpy as np
import pulp  # type: ignore[import-untyped]
import pytest

from pdla.layouts.prices import Asked, prices_of_space


def random_asked(choose: random.Random, patterns: int, spaces: int) -> Asked:
    """Patterns of up to six options, each of which takes bytes of one space or two, and room for a part of them."""
    counts = [choose.randint(1, 6) for _ in range(patterns)]
    takes = np.zeros((spaces, sum(counts)))
    for option in range(sum(counts)):
        for space in choose.sample(range(spaces), min(choose.choice([1, 1, 2]), spaces)):
            takes[space, option] = choose.randint(1, 1000) * 1000**space
    takes[:, 0] = 1.0
    gains = np.array([choose.uniform(0.001, 10) for _ in range(sum(counts))])
    room = np.array([500 * patterns * choose.uniform(0.0, 0.5) * 1000**space for space in range(spaces)])
    return Asked(np.cumsum([0, *counts[:-1]]), gains, takes, room)


def relaxation(asked: Asked) -> float:
    """The most that all patterns can gain together if an option may be taken in part."""
    program = pulp.LpProblem("relaxation", pulp.LpMaximize)
    taken = [program.add_variable(f"taken{number}", 0, 1) for number in range(len(asked.gains))]
    program += pulp.lpSum(gain * one for gain, one in zip(asked.gains, taken, strict=True))
    for begin, end in zip(asked.first, [*asked.first[1:], len(taken)], strict=True):
        program += pulp.lpSum(taken[begin:end]) <= 1
    for takes, room in zip(asked.takes, asked.room, strict=True):
        unit = takes.max()
        program += pulp.lpSum(size / unit * one for size, one in zip(takes, taken, strict=True)) <= room / unit
    program.solve(pulp.HiGHS(msg=False, threads=1))
    return float(program.objective.value())


@pytest.mark.parametrize("spaces", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(10))
def test_the_bound_is_that_of_the_relaxation(seed: int, spaces: int):
    choose = random.Random(seed)
    asked = random_asked(choose, choose.choice([1, 5, 100, 300]), spaces)
    found, least = prices_of_space(asked), relaxation(asked)
    assert least * (1 - 1e-6) <= found.bound <= least * (1 + 1e-4)
    beyond = np.maximum.reduceat(asked.gains - found.each @ asked.takes, asked.first)
    assert found.bound == pytest.approx(float(found.each @ asked.room + np.maximum(beyond, 0).sum()))


def test_space_that_is_left_over_costs_nothing():
    asked = Asked(np.array([0, 1]), np.array([3.0, 2.0]), np.array([[10.0, 10.0], [1.0, 1.0]]), np.array([15.0, 9.0]))
    prices = prices_of_space(asked)
    assert prices.each.tolist() == pytest.approx([0.2, 0.0], abs=1e-6)
    assert prices.bound == pytest.approx(4.0, rel=1e-4)


def test_equal_options_count_once():
    asked = Asked(np.array([0]), np.array([3.0, 3.0]), np.array([[10.0, 10.0]]), np.array([5.0]))
    assert prices_of_space(asked).bound == pytest.approx(1.5, rel=1e-4)
