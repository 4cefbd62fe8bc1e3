"""Which scheme serves files in a program's next run: the best one that was measured, or one that promises to be better.

A *scheme* is what ``pdla run`` does: with replicas only (``REPLICAS``), or with a policy besides. ``choose`` knows
nothing but the seconds that runs took, and those that a simulation predicts. Why it tries so little: ADR 57.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from pdla.units import format_seconds

NATIVE, REPLICAS = "native", "replicas"
"""A run to which nothing was served; one that read from replicas. Neither has a policy."""
POLICIES = ("e10", "s4d", "ibridge", "liu")
"""The policies that are chosen from."""
ALIKE = 0.05
"""Runs whose bytes differ by a smaller share did the same work."""
PROMISE = 0.8
"""A scheme is tried if its predicted seconds are at most this share of the best measured ones."""
TRIES = 2
"""So many policies are tried until something changes."""
WORSE = 1.1
"""A policy that takes so many times as long as the program natively while it learns is given up."""
AWAITED = 3
"""After so many runs without them replicas are not waited for any more."""
RECENT = 3
"""The runs of a scheme that count: the last ones."""


class Taken(NamedTuple):
    """What files took in a run: their scheme, and the seconds of the slowest rank in calls of MPI-IO on them."""

    scheme: str
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The policy of the next run ("": none), and why. ``settled``: nothing else is to be tried."""

    policy: str
    why: str
    settled: bool


def choose(runs: Sequence[Taken], predicted: Mapping[str, float], lead: Mapping[str, int]) -> Choice:
    """Choose for the next run.

    Args:
        runs: those that did the same, oldest first.
        predicted: the seconds that the next run would take with a scheme. One without an entry is
            not tried.
        lead: the runs from which a policy learns before it serves; 0 without an entry.

    >>> choose([Taken("native", 10.0)], {"s4d": 2.0, "e10": 9.0}, {}).policy
    's4d'
    >>> choose([Taken("native", 10.0), Taken("s4d", 2.5)], {"s4d": 2.0, "e10": 9.0}, {}).policy
    's4d'
    >>> choose([Taken("native", 10.0), Taken("s4d", 11.0)], {"s4d": 2.0, "e10": 9.0}, {}).policy
    ''
    """
    measured = measured_seconds(runs, lead)
    if not measured:
        return Choice("", "the first runs are measured as they are", settled=False)
    last = runs[-1].scheme
    if last in POLICIES and last not in measured and not _is_worse(runs, last):
        return Choice(last, f"{last} learns from {lead[last]} of its runs before it serves", settled=False)
    best = min(measured, key=lambda one: measured[one])
    tried = {one.scheme for one in runs if one.scheme in POLICIES}
    expected = dict(predicted)
    if sum(one.scheme == NATIVE for one in runs) > AWAITED:
        expected.pop(REPLICAS, None)
    promising = [one for one in expected if one not in tried | measured.keys() and _promises(one, expected, measured)]
    if promising:
        new = min(promising, key=lambda one: predicted[one])
        if new not in POLICIES:
            return Choice("", f"replicas are predicted to make it {format_seconds(predicted[new])}", settled=False)
        if len(tried) < TRIES:
            why = (
                f"{new} is predicted to take {format_seconds(predicted[new])}; {best} took "
                f"{format_seconds(measured[best])}"
            )
            return Choice(new, why, settled=False)
    others = (f"{one} {format_seconds(measured[one])}" for one in sorted(measured, key=lambda one: measured[one])[1:])
    compared = ", ".join(others) or "nothing else promises to be clearly faster"
    why = f"{best} took {format_seconds(measured[best])}; {compared}"
    return Choice(best if best in POLICIES else "", why, settled=True)


def measured_seconds(runs: Iterable[Taken], lead: Mapping[str, int]) -> dict[str, float]:
    """The median seconds of the last runs of each scheme, without those from which it only learned."""
    found: dict[str, list[float]] = {}
    for one in runs:
        found.setdefault(one.scheme, []).append(one.seconds)
    learned = {scheme: taken[lead.get(scheme, 0) :] for scheme, taken in found.items()}
    return {scheme: median(taken[-RECENT:]) for scheme, taken in learned.items() if taken}


def _is_worse(runs: Sequence[Taken], scheme: str) -> bool:
    """Whether the runs from which a policy learned are slower already than the program as it is."""
    native = [one.seconds for one in runs if one.scheme == NATIVE]
    return bool(native) and runs[-1].scheme == scheme and runs[-1].seconds > WORSE * median(native[-RECENT:])


def _promises(scheme: str, predicted: Mapping[str, float], measured: Mapping[str, float]) -> bool:
    """Whether a scheme is predicted to be clearly better than what was measured.

    Replicas serve besides any policy: one that adds little to what is predicted of them is not worth a try.
    """
    best = min(measured.values())
    if scheme in POLICIES:
        best = min(best, predicted.get(REPLICAS, best))
    return predicted[scheme] <= PROMISE * best
