"""NS-PDLA, with which PDLA 5.2 compares S-PDLA. (S-ORIG is not a policy: its originals are elsewhere.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdla.model import Candidate, Cluster, Signature
from pdla.policies.base import Place, Replicate


@dataclass(frozen=True)
class Indiscriminate(Replicate):
    """Wishes a replica of every pattern in the best layout, "without considering replication benefits"."""

    def place(self, signature: Signature, candidates: tuple[Candidate, ...], cluster: Cluster) -> Iterator[Place]:
        """The cheapest replica; if there is not room for all, those that save more come first."""
        found = enumerate(candidates)
        replicas = [(one.seconds, number) for number, one in found if one.layout and not one.refused]
        if replicas:
            cost, cheapest = min(replicas)
            yield Place(cheapest, max(candidates[0].seconds - cost, 1e-9), "replicated, whatever it saves")


NS_PDLA = Indiscriminate(kinds=("ssd",))
