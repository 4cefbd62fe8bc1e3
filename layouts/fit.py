"""Fit the cost model's parameters to timings of requests: a as a function of distance, and b."""

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
    """Requests of ``size`` bytes that began ``distance`` bytes from the previous one took ``seconds`` each."""

    size: int
    distance: int
    seconds: float


class Estimate(NamedTuple):
    """A parameter and its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Misfit(NamedTuple):
    """For requests of this size at this distance the model predicts ``ratio`` times the measured time."""

    size: int
    distance: int
    ratio: float


@dataclass(frozen=True)
class Fit:
    """T = a(distance) + size*b, or max(a(distance), size*b) if the two ``overlap``, and how well that fits.

    ``startup`` is a, as (distance, seconds). ``deviation`` is the median of abs(T/measured - 1)
    over all timings. ``worst`` is the kind of requests whose median the model misses most.
    """

    startup: tuple[tuple[int, Estimate], ...]
    seconds_per_byte: Estimate
    overlap: bool
    deviation: float
    worst: Misfit


def fit(timings: Sequence[Timing], seed: int = 0) -> Fit:
    """The parameters of a device from the timings of one operation. They need at least two sizes at one distance.

    b is the median of the slopes between timings of different sizes (Theil-Sen, weighted by the difference in size:
    Jaeckel, Annals of Mathematical Statistics 43(5), 1972), among requests in which the transfer
    dominates: those that take at least twice as long as the smallest, or else the two largest
    sizes. a(d) is the median of the time that the smallest requests at the distance d take beyond
    size*b, or of their whole time if start-up hides the transfer. So the sizes in between influence
    neither. They determine whether start-up and transfer overlap: they do if that halves the
    misfit. Intervals are 2.5 and 97.5 % of a bootstrap over the timings of each kind.

    >>> exact = fit([Timing(s, 65536, 0.005 + s * 1e-8) for s in (4096, 65536, 1 << 20, 1 << 21)])
    >>> round(exact.seconds_per_byte.value, 12), round(exact.startup[0][1].value, 9), round(exact.deviation, 9)
    (1e-08, 0.005, 0.0)
    """
    kinds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for timing in timings:
        kinds[timing.size, timing.distance].append(timing.seconds)
    data = {kind: np.array(seconds) for kind, seconds in kinds.items()}
    medians = _medians(data)
    overlap = _misfit(_model(data, True), medians) < _misfit(_model(data, False), medians) / 2
    model = _model(data, overlap)
    rng = np.random.default_rng(seed)
    draws = [
        _model({kind: rng.choice(seconds, len(seconds)) for kind, seconds in data.items()}, overlap)
        for _ in range(DRAWS)
    ]
    return Fit(
        startup=tuple(
            (distance, _estimate(seconds, [draw.startup[distance] for draw in draws]))
            for distance, seconds in sorted(model.startup.items())
        ),
        seconds_per_byte=_estimate(model.seconds_per_byte, [draw.seconds_per_byte for draw in draws]),
        overlap=overlap,
        deviation=float(np.median([abs(model.seconds(size, at) / seconds - 1) for size, at, seconds in timings])),
        worst=max(
            (Misfit(size, at, model.seconds(size, at) / seconds) for (size, at), seconds in medians.items()),
            key=lambda misfit: abs(misfit.ratio - 1),
        ),
    )


class _Model(NamedTuple):
    startup: Mapping[int, float]
    seconds_per_byte: float
    overlap: bool

    def seconds(self, size: int, distance: int) -> float:
        """Seconds of a request."""
        startup, transfer = self.startup[distance], size * self.seconds_per_byte
        return max(startup, transfer) if self.overlap else startup + transfer


def _model(data: _Data, overlap: bool) -> _Model:
    medians = _medians(data)
    reference = max(data)[1]
    sizes = sorted(size for size, distance in data if distance == reference)
    dominated = [size for size in sizes if medians[size, reference] >= 2 * medians[sizes[0], reference]]
    chosen = dominated if len(dominated) > 1 else sizes[-2:]
    slope = _slope({size: data[size, reference] for size in chosen})
    if slope <= 0:  # noise: but a byte takes no longer than a request takes per byte
        slope = medians[sizes[-1], reference] / sizes[-1]
    startup = {}
    for distance in {distance for _, distance in data}:
        size = min(size for size, at in data if at == distance)
        seconds, transfer = medians[size, distance], size * slope
        startup[distance] = seconds if overlap and seconds >= 2 * transfer else max(0.0, seconds - transfer)
    return _Model(startup, slope, overlap)


def _misfit(model: _Model, medians: Mapping[tuple[int, int], float]) -> float:
    """The misfit, summed over the kinds of requests."""
    return sum(abs(math.log(model.seconds(*kind) / seconds)) for kind, seconds in medians.items())


def _medians(data: _Data) -> dict[tuple[int, int], float]:
    return {kind: float(np.median(seconds)) for kind, seconds in data.items()}


def _slope(data: dict[int, npt.NDArray[np.float64]]) -> float:
    """The median of the slopes between all timings of different sizes, weighted by the difference in size."""
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
