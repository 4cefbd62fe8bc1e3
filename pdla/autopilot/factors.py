"""How far the cost model is off for each pool, learned from predicted and measured gains.

An *observation* compares what a plan predicted of a replica with what the next run that read it
measured. ``factors`` takes all of them and returns a factor for each pool: the seconds that a pool
needs are so many times those that the model says. ``corrected`` is a cluster whose pools are
described so. Nothing is kept but the observations: without them, all factors are 1 again.

Why a median, and why of seconds rather than of gains: ADR 50.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from pdla.model import Cluster, Pool

RECENT = 15
"""The last observations of a pool that count."""
PRIOR = 2
"""So many observations that the model is right are thought to be there from the beginning."""
MOST = 4.0
"""No factor is larger than this, or smaller than its inverse."""


@dataclass(frozen=True)
class Observation:
    """A replica in a run that read it, as planned and as measured.

    Attributes:
        pool: its pool ("a+b" for a hybrid).
        before: seconds that the plan predicted for its accesses from the original, more than 0.
        after: the same from the replica.
        saved: seconds that the run saved by it, as measured; negative if it was slower.
        factor: that of the pool in the plan's cluster.
    """

    pool: str
    before: float
    after: float
    saved: float
    factor: float = 1.0

    @property
    def ratio(self) -> float:
        """Measured seconds from the replica, over those that the model predicts without a factor; in bounds.

        >>> Observation("ssd", before=10.0, after=2.0, saved=5.0).ratio
        2.5
        >>> Observation("ssd", before=10.0, after=2.0, saved=8.0, factor=0.5).ratio
        0.5
        """
        took = max(self.before - self.saved, 0.0)
        return _bounded(self.factor * took / self.after if self.after > 0 else MOST)


@dataclass(frozen=True)
class Factor:
    """The seconds of a pool are ``value`` times those of the model, from so many ``observations``."""

    value: float
    observations: int


def factors(observations: Iterable[Observation]) -> dict[str, Factor]:
    """The factor of each pool that has observations, which come oldest first.

    It is the median of the last ``RECENT`` ratios and of ``PRIOR`` ratios of 1: one odd run changes
    nothing, and half of them cannot move it out of the range of the others.

    >>> factors([Observation("ssd", 10.0, 2.0, 7.0)] * 5)
    {'ssd': Factor(value=1.5, observations=5)}
    >>> factors([Observation("ssd", 10.0, 2.0, 7.0)])
    {'ssd': Factor(value=1.0, observations=1)}
    """
    ratios: dict[str, list[float]] = {}
    for one in observations:
        ratios.setdefault(one.pool, []).append(one.ratio)
    return {pool: Factor(_typical(some[-RECENT:]), len(some)) for pool, some in ratios.items()}


def _typical(ratios: list[float]) -> float:
    return math.exp(median([0.0] * PRIOR + [math.log(ratio) for ratio in ratios]))


def corrected(cluster: Cluster, known: Mapping[str, Factor]) -> Cluster:
    """The cluster with the device times of each pool multiplied by its factor; originals keep theirs.

    Planning with it predicts what was measured. The pool of the originals is not changed: what a run
    takes without replicas is measured, not predicted. The factor of a hybrid is for plans to compare,
    and changes none of its two pools.
    """
    pools = [
        _scaled(pool, known[pool.name].value) if pool.name in known and pool.name != cluster.home_pool else pool
        for pool in cluster.pools
    ]
    return replace(cluster, pools=tuple(pools))


def _scaled(pool: Pool, factor: float) -> Pool:
    def curve(points: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        return tuple((distance, factor * seconds) for distance, seconds in points)

    return replace(
        pool,
        startup=curve(pool.startup),
        read_seconds_per_byte=factor * pool.read_seconds_per_byte,
        write_seconds_per_byte=factor * pool.write_seconds_per_byte,
        device=replace(pool.device, write_startup=curve(pool.device.write_startup)),
    )


def _bounded(ratio: float) -> float:
    return min(max(ratio, 1 / MOST), MOST)
