"""What a placement policy is: it sees what every pattern would cost where, and says which replicas to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pdla.model import Candidate, Pool
from pdla.units import format_bytes, format_seconds

LEAST_GAIN = 0.05
"""A replica must save this share of the time: less is within the error of any model."""


@dataclass(frozen=True)
class Costed:
    """A pattern's candidates (the original first) and the bytes that a replica of it takes."""

    candidates: tuple[Candidate, ...]
    size: int


@dataclass(frozen=True)
class Decision:
    """The index of the candidate chosen, one sentence that says why, and whether only space was wanting."""

    chosen: int
    reason: str
    no_room: bool = False


class Policy(Protocol):
    """Decides for all patterns of a run at once; the plan maker costs, the replicator enacts."""

    def uses(self, pool: Pool) -> bool:
        """Whether this policy may place replicas in ``pool``."""

    def decide(self, patterns: Sequence[Costed], room: Mapping[str, int], threshold: float) -> list[Decision]:
        """A decision per pattern; ``room`` is every pool's free bytes, ``threshold`` the seconds to save."""


@dataclass(frozen=True)
class Greedy:
    """Replicates critical patterns, the largest benefit first, while their pools have room (PDLA Algorithm 1).

    The benefit is what the cheapest candidate in a pool of one of ``kinds`` saves against the original; a pattern is
    critical if that exceeds the threshold and ``LEAST_GAIN``. The algorithm as printed takes the space of pattern n for
    that of pattern i, and counts it also where nothing was placed; both are put right here. Equal benefits keep the
    order of the patterns.
    """

    kinds: tuple[str, ...]

    def uses(self, pool: Pool) -> bool:
        """Pools of its kinds."""
        return pool.kind in self.kinds

    def decide(self, patterns: Sequence[Costed], room: Mapping[str, int], threshold: float) -> list[Decision]:
        """Greedy by benefit; see the class."""
        if not self.kinds:
            return [Decision(0, "left in the original: this policy makes no replicas") for _ in patterns]
        free = dict(room)
        decisions: dict[int, Decision] = {}
        for i in sorted(range(len(patterns)), key=lambda i: (-_benefit(patterns[i]), i)):
            decisions[i] = _place(patterns[i], free, threshold)
        return [decisions[i] for i in range(len(patterns))]


def _replicas(pattern: Costed) -> list[int]:
    """The candidates that are replicas, cheapest first."""
    indices = [i for i, candidate in enumerate(pattern.candidates) if candidate.layout is not None]
    return sorted(indices, key=lambda i: (pattern.candidates[i].cost.total, i))


def _benefit(pattern: Costed) -> float:
    """B of PDLA Eqs. 4-6, against the original: seconds that the cheapest replica saves."""
    before = pattern.candidates[0].cost.total
    return max((before - pattern.candidates[i].cost.total for i in _replicas(pattern)), default=0.0)


def _place(pattern: Costed, free: dict[str, int], threshold: float) -> Decision:
    """The cheapest candidate that is worth it and has room, which it then takes from ``free``."""
    before = pattern.candidates[0].cost.total
    ranked = _replicas(pattern)
    if not ranked:
        return Decision(0, "left in the original: the cluster has no pool that this policy uses")
    best = pattern.candidates[ranked[0]]
    worth = [i for i in ranked if _is_critical(before, pattern.candidates[i], threshold)]
    if not worth:
        return Decision(
            0,
            f"left in the original, {format_seconds(before)}: the best replica ({_where(best)}) would take "
            f"{format_seconds(best.cost.total)}, and must save {100 * LEAST_GAIN:.0f} % and more than "
            f"{format_seconds(threshold)}",
        )
    for i in worth:
        candidate = pattern.candidates[i]
        if pattern.size <= free[candidate.space]:
            free[candidate.space] -= pattern.size
            return Decision(i, _why(pattern, candidate))
    return Decision(
        0,
        f"left in the original: a replica needs {format_bytes(pattern.size)}, and pool {best.space} has "
        f"{format_bytes(free[best.space])} left",
        no_room=True,
    )


def _is_critical(before: float, candidate: Candidate, threshold: float) -> bool:
    saved = before - candidate.cost.total
    return saved > threshold and saved >= LEAST_GAIN * before


def _where(candidate: Candidate) -> str:
    assert candidate.layout is not None
    return f"{candidate.layout.name} on {candidate.space}"


def _why(pattern: Costed, candidate: Candidate) -> str:
    before, after = pattern.candidates[0].cost, candidate.cost
    terms = {
        "connections": (before.connect, after.connect),
        "network": (before.network, after.network),
        "device start-up": (before.startup, after.startup),
        "device transfer": (before.transfer, after.transfer),
    }
    term, (was, becomes) = max(terms.items(), key=lambda item: item[1][0] - item[1][1])
    return (
        f"contiguous replica in {_where(candidate)}: {format_seconds(after.total)} instead of "
        f"{format_seconds(before.total)}, most saved on {term} ({format_seconds(was)} to {format_seconds(becomes)})"
    )
