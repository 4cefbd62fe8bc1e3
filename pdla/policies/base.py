"""The interface of a placement policy: from what a pattern would cost in each place it decides where its bytes go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Protocol

from pdla.model import Candidate, Cluster, Layout, Pool, Signature
from pdla.units import format_seconds

LEAST_GAIN = 0.05
"""A replica must save at least this share of the time: less is within the error of any model."""

Obstacle = Callable[[Pool, Layout, int], str]
"""A function that says why a pool's storage cannot hold a replica of so many bytes in a layout; empty if it can."""


@dataclass(frozen=True)
class Place:
    """A wish: the candidate with this index should hold the pattern's bytes, because it saves so many seconds.

    ``reason`` is the reason, or a function that words it: only that of the wish that is granted is worded.
    """

    candidate: int
    gain: float
    reason: str | Callable[[], str]

    @property
    def why(self) -> str:
        """The reason, in words."""
        return self.reason if isinstance(self.reason, str) else self.reason()


class Policy(Protocol):
    """Says where bytes should be, and nothing else: the enactor takes care of capacity, dependences and back ends.

    ``spaces`` and ``place`` are the interface before a run (during a run: online.Online). The
    enactor (``plan.make_plan``) predicts the cost of every pattern in the spaces, asks the policy
    once per pattern, and may refuse each wish.
    """

    def spaces(self, cluster: Cluster) -> tuple[list[Pool], list[tuple[Pool, Pool]]]:
        """The pools in which replicas may be, and the pairs (disks, SSDs) that may share a replica."""

    def place(self, signature: Signature, candidates: tuple[Candidate, ...], cluster: Cluster) -> Iterator[Place]:
        """The wishes for one pattern; ``candidates[0]`` is its original."""


@dataclass(frozen=True)
class Replicate:
    """Wishes a replica of every critical pattern, in every layout that is worth it (PDLA 3.4, 4.3).

    The benefit of a replica is what it saves against the original. A pattern is critical if its
    benefit exceeds the threshold and ``LEAST_GAIN``. ``kinds`` are the pools to use; ``hybrid``
    adds disks and SSDs together.
    """

    kinds: tuple[str, ...]
    hybrid: bool = False

    def spaces(self, cluster: Cluster) -> tuple[list[Pool], list[tuple[Pool, Pool]]]:
        """The pools of its kinds; with ``hybrid`` also each pool of disks with each pool of SSDs."""
        disks, ssds = ([pool for pool in cluster.pools if pool.kind == kind] for kind in ("hdd", "ssd"))
        pools = [pool for pool in cluster.pools if pool.kind in self.kinds]
        return pools, list(product(disks, ssds)) if self.hybrid else []

    def place(self, signature: Signature, candidates: tuple[Candidate, ...], cluster: Cluster) -> Iterator[Place]:
        """All candidates that save enough, in their order."""
        original, before = candidates[0], candidates[0].seconds
        for i, candidate in enumerate(candidates):
            saved = before - candidate.seconds
            if candidate.layout and saved > cluster.threshold_seconds and saved >= LEAST_GAIN * before:
                yield Place(i, saved, partial(_why, original, candidate))


def _why(original: Candidate, candidate: Candidate) -> str:
    assert candidate.layout is not None
    before, after = original.cost, candidate.cost
    terms = {
        "connections": (before.connect, after.connect),
        "network": (before.network, after.network),
        "device start-up": (before.startup, after.startup),
        "device transfer": (before.transfer, after.transfer),
    }
    term, (was, becomes) = max(terms.items(), key=lambda item: item[1][0] - item[1][1])
    replica = f"contiguous replica in {candidate.layout.name} on {candidate.space}"
    seconds = f"{format_seconds(candidate.seconds)} instead of {format_seconds(original.seconds)}"
    if candidate.simulated is not None:
        return f"{replica}: simulated, {seconds}"
    return f"{replica}: {seconds}, most saved on {term} ({format_seconds(was)} to {format_seconds(becomes)})"
