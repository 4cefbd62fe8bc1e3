"""What a byte of each space is worth where there is not space for all: the prices of the linear relaxation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CLOSE, MOST = 1e-5, 1000
"""The bound is within this share of the least one, or so many prices were tried: any prices give a bound."""


class Asked(NamedTuple):
    """The options of many patterns, those of a pattern one after another.

    Attributes:
        first: the first option of every pattern that has some, of shape (patterns,).
        gains: seconds saved by each option, of shape (options,).
        takes: bytes of each space that each option takes, of shape (spaces, options).
        room: bytes of each space, of shape (spaces,).
    """

    first: Ints
    gains: Floats
    takes: Floats
    room: Floats


class Prices(NamedTuple):
    """Seconds a byte of each space, of shape (spaces,). No choice that fits saves more than ``bound`` seconds."""

    each: Floats
    bound: float


def prices_of_space(asked: Asked) -> Prices:
    """The prices with the least bound.

    At any prices, the price of all the room and what each pattern's best option saves beyond its price
    are a bound together. The bound is convex in the prices, the Lagrange multipliers of the capacities.
    Cutting planes find its least (J. E. Kelley, 1960): each bound has a tangent, and where all tangents
    together are lowest is the next prices' place. So HiGHS solves programs of as many variables as there are
    spaces, however many patterns ask.

    >>> asked = Asked(np.array([0, 1]), np.array([3.0, 2.0]), np.array([[10.0, 10.0]]), np.array([15.0]))
    >>> prices, bound = prices_of_space(asked)
    >>> [round(float(price), 3) for price in prices], round(float(bound), 3)
    ([0.2], 4.0)
    """
    unit, most = asked.takes.max(axis=1), asked.gains.sum()
    takes, room, gains = asked.takes / unit[:, None], asked.room / unit, asked.gains / most
    highest = np.array([(gains[one > 0] / one[one > 0]).max() for one in takes])
    of = np.repeat(np.arange(len(asked.first)), np.diff(asked.first, append=len(gains)))
    tangents, numbers = _tangents(highest), [*range(len(unit) + 1)]
    prices = best = np.zeros(len(unit))
    bound = math.inf
    for _ in range(MOST):
        worth = gains - prices @ takes
        top = np.maximum.reduceat(worth, asked.first)
        ahead = np.flatnonzero(worth == top[of])
        chosen = ahead[np.unique(of[ahead], return_index=True)[1]][top > 0]
        value, slope = float(prices @ room + worth[chosen].sum()), room - takes[:, chosen].sum(axis=1)
        if value < bound:
            bound, best = value, prices
        # The bound at other prices is at least value + slope * (those prices - these).
        tangents.addRow(value - float(slope @ prices), math.inf, len(numbers), numbers, [*(-slope), 1.0])
        tangents.run()
        *found, least = tangents.getSolution().col_value
        if bound - least <= CLOSE * bound:
            break
        prices = np.clip(found, 0.0, highest)
    return Prices(best * most / unit, bound * most)


def _tangents(highest: Floats) -> Any:
    """The program of the prices, each at most so high, and of the bound, which is to be least."""
    model, columns = highs(), len(highest) + 1
    model.addCols(columns, [*[0.0] * len(highest), 1.0], [0.0] * columns, [*highest, math.inf], 0, [], [], [])
    return model


def highs() -> Any:
    """HiGHS, on one processor, printing nothing."""
    import highspy

    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    return model
