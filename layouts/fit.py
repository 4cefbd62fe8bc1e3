"""From timings of requests to the cost model's parameters: a as a function of distance, and b."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

DRAWS = 200  # of the bootstrap

_Data = Mapping[tuple[int, int], npt.NDArray[np.float64]]  # seconds by size and distance


class Timing(NamedTuple):
    """Requests of ``size`` bytes that began ``distance`` bytes from the one before took ``seconds`` each."""

    size: int
    distance: int
    seconds: float


class Estimate(NamedTuple):
    """A parameter and its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Misfit(NamedTuple):
    """For requests of this size at this distance the model says ``ratio`` times what was measured."""

    size: int
    distance: int
    ratio: float


@dataclass(frozen=True)
class Fit:
    """T = a(distance) + size*b, and how well that fits.

    ``startup`` is a, as (distance, seconds). ``deviation`` is the median of abs(T/measured - 1) over all timings,
    ``worst`` the kind of requests whose median it misses most. ``overlap``: max(a(distance), size*b) is much nearer.
    """

    startup: tuple[tuple[int, Estimate], ...]
    seconds_per_byte: Estimate
    deviation: float
    worst: Misfit
    overlap: bool


def fit(timings: Sequence[Timing], seed: int = 0) -> Fit:
    """The parameters of a device from the timings of one operation, of which at least two sizes at one distance.

    b is the median of the slopes between timings of different sizes (Theil-Sen, weighted by how far apart they are:
    Jaeckel, Annals of Mathematical Statistics 43(5), 1972), among requests in which the transfer dominates: those that
    take at least twice as long as the smallest, or else the two largest sizes. a(d) is the median of what the smallest
    requests at the distance d take beyond size*b. So neither is bent by sizes in between, where a device may overlap
    the two. Intervals are 2.5 and 97.5 % of a bootstrap over the timings of each kind.

    >>> exact = fit([Timing(s, 65536, 0.005 + s * 1e-8) for s in (4096, 65536, 1 << 20, 1 << 21)])
    >>> round(exact.seconds_per_byte.value, 12), round(exact.startup[0][1].value, 9), round(exact.deviation, 9)
    (1e-08, 0.005, 0.0)
    """
    kinds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for timing in timings:
        kinds[timing.size, timing.distance].append(timing.seconds)
    data = {kind: np.array(seconds) for kind, seconds in kinds.items()}
    rng = np.random.default_rng(seed)
    draws = [
        _parameters({kind: rng.choice(seconds, len(seconds)) for kind, seconds in data.items()}) for _ in range(DRAWS)
    ]
    startup, slope = _parameters(data)
    medians = _medians(data)
    ratios = [
        Misfit(size, distance, (startup[distance] + size * slope) / seconds)
        for (size, distance), seconds in medians.items()
    ]
    serial = sum(abs(math.log(misfit.ratio)) for misfit in ratios)
    parallel = sum(abs(math.log(max(startup[d], s * slope) / seconds)) for (s, d), seconds in medians.items())
    return Fit(
        startup=tuple((d, _estimate(startup[d], [draw[0][d] for draw in draws])) for d in sorted(startup)),
        seconds_per_byte=_estimate(slope, [draw[1] for draw in draws]),
        deviation=float(np.median([abs((startup[d] + s * slope) / seconds - 1) for s, d, seconds in timings])),
        worst=max(ratios, key=lambda misfit: abs(misfit.ratio - 1)),
        overlap=parallel < serial / 2,
    )


def _medians(data: _Data) -> dict[tuple[int, int], float]:
    return {kind: float(np.median(seconds)) for kind, seconds in data.items()}


def _parameters(data: _Data) -> tuple[dict[int, float], float]:
    """a by distance, and b."""
    medians = _medians(data)
    reference = max(data, key=lambda kind: kind[0])[1]
    sizes = sorted(size for size, distance in data if distance == reference)
    dominated = [size for size in sizes if medians[size, reference] >= 2 * medians[sizes[0], reference]]
    chosen = dominated if len(dominated) > 1 else sizes[-2:]
    slope = _slope({size: data[size, reference] for size in chosen})
    if slope <= 0:  # noise: but a byte takes no longer than a request takes per byte
        slope = medians[sizes[-1], reference] / sizes[-1]
    smallest = {distance: min(size for size, at in data if at == distance) for _, distance in data}
    return {d: max(0.0, medians[size, d] - size * slope) for d, size in smallest.items()}, slope


def _slope(data: dict[int, npt.NDArray[np.float64]]) -> float:
    """The median, weighted by the difference in size, of the slopes between all timings of different sizes."""
    slopes, weights = [], []
    for small, quick in data.items():
        for large, slow in data.items():
            if small < large:
                slopes.append(np.subtract.outer(slow, quick).ravel() / (large - small))
                weights.append(np.full(slow.size * quick.size, float(large - small)))
    every, weight = np.concatenate(slopes), np.concatenate(weights)
    order = np.argsort(every)
    half = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    return float(every[order][half])


def _estimate(value: float, draws: Sequence[float]) -> Estimate:
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(value, float(low), float(high))
