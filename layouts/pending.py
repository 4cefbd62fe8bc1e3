"""Costs that are computed later, all at once: the equations of cost.py compute with arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pdla.layouts.cost import Costs, in_rounds, in_turns, side_by_side
from pdla.layouts.seen import Seen
from pdla.model import Cluster, Cost


class Term(NamedTuple):
    """An equation, what the servers see, and what else the equation reads."""

    equation: Callable[..., Costs]
    seen: Seen
    further: tuple[float, ...] = ()


class Pending:
    """A cost that ``made`` makes of the costs of its terms. It can be added and multiplied like a cost.

    >>> one = Pending.fixed(Cost(1.0, 0.0, 0.0, 0.5))
    >>> (one + 2.0 * one).made([])
    Cost(connect=3.0, network=0.0, startup=0.0, transfer=1.5)
    """

    __slots__ = ("made", "terms")

    def __init__(self, terms: Sequence[Term], made: Callable[[Sequence[Cost]], Cost]) -> None:
        self.terms, self.made = terms, made

    @classmethod
    def fixed(cls, cost: Cost) -> Pending:
        """A cost that is known already."""
        return cls((), lambda costs: cost)

    @classmethod
    def aside(cls, seen: Seen) -> Pending:
        """``cost.side_by_side``."""
        return cls((Term(side_by_side, seen),), _only)

    @classmethod
    def rounds(cls, seen: Seen) -> Pending:
        """``cost.in_rounds``."""
        return cls((Term(in_rounds, seen),), _only)

    @classmethod
    def turns(cls, seen: Seen, clients: float, free: float) -> Pending:
        """``cost.in_turns``."""
        return cls((Term(in_turns, seen, (clients, free)),), _only)

    @classmethod
    def slowest(cls, several: Sequence[Pending]) -> Pending:
        """The one that takes longest, the first of equals."""
        one, *others = several
        if not others:
            return one
        rest = cls.slowest(others)
        return one._with(rest, lambda one, other: one if one.total >= other.total else other)

    def __add__(self, other: Pending) -> Pending:
        return self._with(other, Cost.__add__)

    def __rmul__(self, times: float) -> Pending:
        return Pending(self.terms, lambda costs: times * self.made(costs))

    def _with(self, other: Pending, both: Callable[[Cost, Cost], Cost]) -> Pending:
        first = len(self.terms)
        return Pending(
            (*self.terms, *other.terms), lambda costs: both(self.made(costs[:first]), other.made(costs[first:]))
        )


def _only(costs: Sequence[Cost]) -> Cost:
    return costs[0]


def computed(pending: Sequence[Pending], cluster: Cluster) -> list[Cost]:
    """The costs: each equation is computed once, for all terms."""
    terms = [term for one in pending for term in one.terms]
    costs = dict[int, Cost]()
    for equation in {term.equation for term in terms}:
        places = [place for place, term in enumerate(terms) if term.equation is equation]
        columns: Any = np.array([(*terms[place].seen, *terms[place].further) for place in places], np.float64).T
        seen, further = columns[: len(Seen._fields)], columns[len(Seen._fields) :]
        costs.update(zip(places, equation(Seen(*seen), cluster, *further).each(), strict=True))
    found, first = [], 0
    for one in pending:
        stop = first + len(one.terms)
        found.append(one.made([costs[place] for place in range(first, stop)]))
        first = stop
    return found
