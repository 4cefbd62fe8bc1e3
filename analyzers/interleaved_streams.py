"""Interleaved streams: items that return at every second to eighth place of a sequence, each with its own step.

Examples are records read in turn with their index, the arrays of a time step, a list of patterns
repeated at a stride. None of these is one nest, but each of their streams is
(docs/adr/0004-nests-growth-and-combinations.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pdla.analyzers.linear_growth import FEWEST
from pdla.analyzers.pattern_items import numbered, runs_of, sorted_by
from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.analyzers.templates import Nests, match_shapes
from pdla.model import Int64Array

LONGEST = 8
"""Largest number of streams in a cycle."""

PIECE = 1 << 15
"""Nests whose steps are compared at once, so that they stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Woven:
    """Nests combined from others: ``nest`` is the new one of each old one; the other fields have a row per new one.

    New nests are in the order of their first access. Two of them that overlap in time have
    different ``lane``s: combined, they would not be in order.
    """

    nest: Int64Array
    start: Int64Array
    shape: Int64Array
    sequence: Int64Array
    lane: Int64Array


def weave(near: Nests, sequence: Int64Array) -> Woven:
    """Combine nests that have others between them: first streams in cycles, if there are any, then equal shapes.

    Args:
        near: the nests that neighbours make up.
        sequence: the sequence of each of them; nothing is combined across the end of a sequence.
    """
    places = np.arange(len(near), dtype=np.int64)
    woven = Woven(places, near.start, near.shape, sequence, np.zeros_like(places))
    while True:
        head, turn = _cycles(woven, near.shapes)
        if not turn.any():
            break
        lanes = woven.lane * (LONGEST + 1) + turn
        woven = Woven(woven.nest, woven.start, woven.shape, woven.sequence, lanes)
        woven = _combined(woven, head, near.shapes)
        woven = _combined(woven, numbered(woven.sequence, woven.lane), near.shapes)
    kind = woven.shape
    if woven.lane.any():
        lanes = np.unique(woven.lane, return_inverse=True)[1] * len(near.shapes.child)
        kind = np.unique(lanes + kind, return_inverse=True)[1]
    key = woven.sequence * (kind.max(initial=0) + 1) + kind
    found = _combined(replace(woven, nest=np.arange(len(key))), key, near.shapes)
    lane = found.lane
    if len(lane) < len(key):
        # What was combined has nests of other kinds between its parts.
        parts, own = np.bincount(found.nest), np.empty_like(lane)
        own[found.nest] = woven.lane.max() + 1 + kind
        lane = np.where(parts > 1, own, lane)
    return replace(found, nest=found.nest[woven.nest], lane=lane)


def _cycles(woven: Woven, shapes: Shapes) -> tuple[Int64Array, Int64Array]:
    """For each nest the first one of its stream, and its place in the cycle from 1 on; 0 if it is in no cycle.

    In a cycle of k streams the distance of every nest from the one k places before it is constant.
    A cycle counts if every stream has three nests or more. Short cycles come first, and after them
    cycles in which a stream grows: there the distance, the length or the count changes by the same
    amount every time, in four nests or more.
    """
    total = len(woven.start)
    head, turn = np.arange(total, dtype=np.int64), np.zeros(total, np.int64)
    for turns, lag, even in _even(woven.start):
        again = _again(woven, shapes, even, turn == 0, lag, turns)
        edges = np.diff(again.astype(np.int8), prepend=0, append=0)
        low, high = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0) + (turns - 1) * lag
        if not len(low):
            continue
        low[1:] = np.maximum(low[1:], high[:-1])  # what two cycles share goes to the first one
        long = high - low >= turns * lag
        low, high = low[long], high[long]
        size = high - low
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        place = np.repeat(low, size) + within
        turn[place] = within % lag + 1
        head[place] -= within - within % lag
    return head, turn


def _even(start: Int64Array) -> Iterator[tuple[int, int, BoolArray]]:
    """(turns, lag, which nests begin ``turns`` in equal steps, or in steps that grow equally, each ``lag`` places on).

    Steps grow in FEWEST turns. Lags with fewer such nests than places are left out: they have no cycle.
    """
    growing = []
    for lag in range(2, LONGEST + 1):
        even, grows = (np.empty(max(len(start) - turns * lag, 0), np.bool_) for turns in (2, FEWEST - 1))
        for low in range(0, len(start), PIECE):
            steps = _lagged(start[low : low + PIECE + (FEWEST - 1) * lag], lag, 1)
            even[low : low + PIECE] = (steps[lag:] == steps[:-lag])[:PIECE]
            bend = _lagged(steps, lag, FEWEST - 3)
            grows[low : low + PIECE] = (bend[lag:] == bend[:-lag])[:PIECE]
        if np.count_nonzero(even) >= lag:
            yield 3, lag, even
        if np.count_nonzero(grows) >= lag:
            growing.append((FEWEST, lag, grows))
    yield from growing


def _again(woven: Woven, shapes: Shapes, even: BoolArray, free: BoolArray, lag: int, turns: int) -> BoolArray:
    """Which ``even`` nests are free together with those at the next ``turns - 1`` multiples of ``lag`` and change
    linearly from one to the next; with 3 turns only their place changes, in equal steps."""
    again = even.copy()
    kind = (woven.shape,) if turns == 3 else (shapes.family[woven.shape],)
    for key in (woven.sequence, woven.lane, *kind):
        again &= _all_along(key[lag:] == key[:-lag], lag, turns - 1)
    if turns > 3:
        for of_shape in (shapes.length, shapes.count):
            again &= _all_along(_lagged(of_shape[woven.shape], lag, 2) == 0, lag, turns - 2)
    again &= _all_along(free, lag, turns)
    return again


def _lagged(values: Int64Array, lag: int, times: int) -> Int64Array:
    """The differences from each value to the one ``lag`` places on, then the differences of these, and so on."""
    for _ in range(times):
        values = values[lag:] - values[:-lag]
    return values


def _all_along(flags: BoolArray, lag: int, times: int) -> BoolArray:
    """Where this flag and those at the next ``times - 1`` multiples of ``lag`` are all true."""
    kept = len(flags) - (times - 1) * lag
    all_along = flags[:kept].copy()
    for turn in range(1, times):
        all_along &= flags[turn * lag : turn * lag + kept]
    return all_along


def _combined(woven: Woven, key: Int64Array, shapes: Shapes) -> Woven:
    """Combine the nests that have equal keys, and put the result in the order of first access."""
    order = sorted_by(key)
    # Any two accesses of one length would be a pair here, wherever they are: lone pairs mean
    # nothing.
    found = match_shapes(woven.start[order], woven.shape[order], key[order], shapes, lone_pairs=False)
    if len(found) == len(key):
        return woven
    of_old = np.empty(len(key), np.int64)
    of_old[order] = runs_of(found.first, len(key))
    first = np.arange(len(key))[order][found.first]
    by_first = np.argsort(first, kind="stable")
    place = np.empty_like(by_first)
    place[by_first] = np.arange(len(by_first))
    first = first[by_first]
    return Woven(
        place[of_old][woven.nest],
        found.start[by_first],
        found.shape[by_first],
        woven.sequence[first],
        woven.lane[first],
    )
