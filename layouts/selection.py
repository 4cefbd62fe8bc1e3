"""Which replicas to make if there is not space for all: one option per pattern, within the capacity of every space.

This is a multiple-choice knapsack with several capacities. ``choose_optimal`` solves it as a
mixed-integer program with HiGHS; ``choose_greedy`` is PDLA's Algorithm 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pdla.layouts.prices import Asked, highs, prices_of_space

GAP = 1e-3
"""A choice that provably gains within this share of the best one is good enough: no cost model is more exact."""

SECONDS = 8.0
CORE = 64


@dataclass(frozen=True)
class Option:
    """What a pattern can gain, in seconds (more than 0), and the bytes that this takes in every space (capacity.py)."""

    gain: float
    space: Mapping[str, int]


@dataclass(frozen=True)
class Choice:
    """The index of every pattern's option, None for none. No other choice gains more than the share ``gap`` more."""

    options: tuple[int | None, ...]
    gap: float = 0.0


Patterns = Sequence[Sequence[Option]]
Choose = Callable[[Patterns, Mapping[str, int]], Choice]


def choose_greedy(patterns: Patterns, room: Mapping[str, int]) -> Choice:
    """Take the largest benefit first; each pattern gets its best option that still fits (PDLA Algorithm 1).

    As printed, the algorithm takes the space of pattern n for that of pattern i, and also counts it
    if nothing was placed; both are corrected here. It orders by benefit, not by benefit per byte.
    Equal benefits keep their order. Its distance from the best choice is not known: ``gap`` is the
    distance from all patterns having their best option.

    >>> small, large = Option(3.0, {"ssd": 10}), Option(4.0, {"ssd": 20})
    >>> choose_greedy([[small], [small], [large]], {"ssd": 20})
    Choice(options=(None, None, 0), gap=1.5)
    """
    found = _improved(patterns, [None] * len(patterns), room)
    return _choice(patterns, found, _ceiling(patterns))


def choose_optimal(patterns: Patterns, room: Mapping[str, int], seconds: float = SECONDS) -> Choice:
    """The options that gain most together, proven to within ``GAP`` unless ``seconds`` are over before.

    The result is never worse than the greedy choice. One mixed-integer program decides up to
    ``CORE`` patterns. If there are more, they are first relaxed to a linear program. Its prices of
    space show which option every pattern prefers, and how close it is to another one. The ``CORE``
    patterns that are closest are then decided by a mixed-integer program, while the others get what
    they prefer. The number is doubled until the gap is closed.

    >>> small, large = Option(3.0, {"ssd": 10}), Option(4.0, {"ssd": 20})
    >>> choose_optimal([[small], [small], [large]], {"ssd": 20})
    Choice(options=(0, 0, None), gap=0.0)
    """
    deadline = time.monotonic() + seconds
    best = list(choose_greedy(patterns, room).options)
    bound = _ceiling(patterns)
    if _gain(patterns, best) >= bound:
        return Choice(tuple(best))
    useful = [_undominated(options, room) for options in patterns]
    if len(patterns) > CORE:
        relaxed = _relax(patterns, useful, room)
    else:
        relaxed = _Relaxed(bound, [None] * len(patterns), list(range(len(patterns))))
    bound = min(bound, relaxed.bound)
    best = max(best, _improved(patterns, relaxed.preferred, room), key=lambda options: _gain(patterns, options))
    size = CORE
    while bound > _gain(patterns, best) * (1 + GAP / 2) and time.monotonic() < deadline:
        core = relaxed.nearest[:size]
        others = list(relaxed.preferred)
        for i in core:
            others[i] = None
        left = _left(patterns, others, room)
        if min(left.values()) >= 0:
            tolerance = GAP / (4 if len(core) < len(patterns) else 100) * _gain(patterns, best)
            solved = _solve(patterns, useful, core, left, tolerance, deadline - time.monotonic())
            found = _improved(patterns, _combined(others, solved.options), room)
            best = max(best, found, key=lambda options: _gain(patterns, options))
            if len(core) == len(patterns):
                bound = min(bound, solved.bound)
                break
        size *= 2
    return _choice(patterns, best, bound)


class _Relaxed(NamedTuple):
    """No choice gains more than ``bound``; the options that patterns prefer; the patterns, the most undecided first."""

    bound: float
    preferred: list[int | None]
    nearest: list[int]


class _Solved(NamedTuple):
    bound: float
    options: dict[int, int]


def _relax(patterns: Patterns, useful: Sequence[Sequence[int]], room: Mapping[str, int]) -> _Relaxed:
    """The linear relaxation: what each pattern prefers at its prices of space."""
    preferred: list[int | None] = [None] * len(patterns)
    regret = [math.inf] * len(patterns)
    columns = [(i, j) for i, allowed in enumerate(useful) for j in allowed]
    if not columns:
        return _Relaxed(0.0, preferred, list(range(len(patterns))))
    options = [patterns[i][j] for i, j in columns]
    gains = np.array([option.gain for option in options])
    takes = np.array([[option.space.get(name, 0) for option in options] for name in room], np.float64)
    first = np.flatnonzero(np.diff([i for i, _ in columns], prepend=-1))
    wanted, left = takes.any(axis=1), np.array(list(room.values()), np.float64)
    prices, bound = prices_of_space(Asked(first, gains, takes[wanted], left[wanted]))
    worth = (gains - prices @ takes[wanted]).tolist()
    for begin, end in pairwise([*first.tolist(), len(columns)]):
        i, best = columns[begin][0], max(range(begin, end), key=lambda n: worth[n])
        second = max((worth[n] for n in range(begin, end) if n != best), default=-math.inf)
        if worth[best] > 0:
            preferred[i] = columns[best][1]
        regret[i] = abs(worth[best]) if second < 0 else worth[best] - second
    return _Relaxed(bound, preferred, sorted(range(len(patterns)), key=lambda i: regret[i]))


def _solve(
    patterns: Patterns, useful: Sequence[Sequence[int]], core: Sequence[int], room: Mapping[str, int], gap: float,
    seconds: float,
) -> _Solved:  # fmt: skip
    """The mixed-integer program of the patterns ``core``: a bound on their total gain, and their options."""
    import highspy

    model, columns = _program(patterns, useful, core, room)
    for number in range(len(columns)):
        model.changeColIntegrality(number, highspy.HighsVarType.kInteger)
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", gap), ("time_limit", max(seconds, 0.1))):
        model.setOptionValue(option, value)
    model.run()
    found = zip(columns, model.getSolution().col_value, strict=False)  # no values if there was no time for any
    return _Solved(-model.getInfo().mip_dual_bound, {i: j for (i, j), value in found if value > 0.5})


def _program(
    patterns: Patterns, useful: Sequence[Sequence[int]], core: Iterable[int], room: Mapping[str, int]
) -> tuple[Any, list[tuple[int, int]]]:
    """A program for HiGHS, and the pattern and option of each column.

    It has at most one option per pattern, within the capacity of each space, with the largest gain.
    """
    import highspy

    # The order decides between choices that are equally good: it is that of earlier versions, by names.
    columns = sorted(((i, j) for i in core for j in useful[i]), key=lambda one: f"{one[0]}_{one[1]}")
    place = {column: number for number, column in enumerate(columns)}
    model = highs()
    gains, zeros = np.array([patterns[i][j].gain for i, j in columns]), np.zeros(len(columns))
    model.addCols(len(columns), -gains, zeros, zeros + 1, 0, [], [], [])

    def at_most(limit: float, numbers: Sequence[int], shares: Sequence[float]) -> None:
        model.addRow(-highspy.kHighsInf, limit, len(numbers), numbers, shares)

    for i in core:
        if len(useful[i]) > 1:
            at_most(1.0, [place[i, j] for j in useful[i]], [1.0] * len(useful[i]))
    for name, bytes_ in room.items():
        unit = _unit(patterns, name)
        taken = {n: size / unit for (i, j), n in place.items() if (size := patterns[i][j].space.get(name, 0))}
        if taken:
            at_most(bytes_ / unit, list(taken), list(taken.values()))
    return model, columns


def _unit(patterns: Patterns, name: str) -> int:
    """The bytes of the largest option: the solver needs numbers near 1."""
    return max((option.space.get(name, 0) for options in patterns for option in options), default=0) or 1


def _undominated(options: Sequence[Option], room: Mapping[str, int]) -> list[int]:
    """The options that fit at all, and gain more than every option that takes no more of any pool."""
    kept: list[int] = []
    for j in sorted(range(len(options)), key=lambda j: (-options[j].gain, sum(options[j].space.values()), j)):
        space = options[j].space
        if _fits(space, room) and not any(_fits(options[better].space, space) for better in kept):
            kept.append(j)
    return kept


def _fits(space: Mapping[str, int], room: Mapping[str, int]) -> bool:
    for name, taken in space.items():  # noqa: SIM110 (all() takes three times as long)
        if taken > room.get(name, 0):
            return False
    return True


def _combined(fixed: Sequence[int | None], solved: Mapping[int, int]) -> list[int | None]:
    return [solved.get(i, option) for i, option in enumerate(fixed)]


def _improved(patterns: Patterns, found: Sequence[int | None], room: Mapping[str, int]) -> list[int | None]:
    """Give every pattern, largest benefit first, a better option as long as there is room for one.

    Options that do not fit are first taken back: a solver's whole numbers are whole only within a
    tolerance.
    """
    free, result = dict(room), list(found)
    for i, j in enumerate(found):
        if j is not None:
            if _fits(patterns[i][j].space, free):
                take(free, patterns[i][j].space, 1)
            else:
                result[i] = None
    ranked = [sorted(range(len(options)), key=lambda j: -options[j].gain) for options in patterns]
    order = sorted(range(len(patterns)), key=lambda i: -_best(patterns[i]))
    before: list[int | None] = []
    # Again, because a pattern that moves to another pool leaves room behind.
    while before != result:
        before = list(result)
        for i in order:
            options, j = patterns[i], result[i]
            if j is not None:
                if j == ranked[i][0]:
                    continue
                take(free, options[j].space, -1)
            result[i] = None
            for best in ranked[i]:
                if best == j or _fits(options[best].space, free):
                    result[i] = best
                    take(free, options[best].space, 1)
                    break
    return result


def take(free: dict[str, int], space: Mapping[str, int], sign: int) -> None:
    """Take bytes of each space (``sign`` 1), or give them back (-1)."""
    for name, taken in space.items():
        free[name] -= sign * taken


def _left(patterns: Patterns, found: Sequence[int | None], room: Mapping[str, int]) -> dict[str, int]:
    left = dict(room)
    for options, j in zip(patterns, found, strict=True):
        if j is not None:
            take(left, options[j].space, 1)
    return left


def _best(options: Sequence[Option]) -> float:
    return max((option.gain for option in options), default=0.0)


def _ceiling(patterns: Patterns) -> float:
    return sum(map(_best, patterns))


def _gain(patterns: Patterns, found: Sequence[int | None]) -> float:
    return sum(options[j].gain for options, j in zip(patterns, found, strict=True) if j is not None)


def _choice(patterns: Patterns, found: Sequence[int | None], bound: float) -> Choice:
    gain = _gain(patterns, found)
    gap = bound / gain - 1 if gain else 0.0
    return Choice(tuple(found), gap if gap > GAP else 0.0)
