"""Interleaved streams: what comes back at every second to eighth place of a sequence, each on a step of its own.

Records read in turn with their index, the arrays of a time step, a list of patterns repeated at a stride: none of them
is one nest, but each of their streams is (docs/adr/0004-combinations-of-nests.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdla.analyzers.templates import Nests, Shapes, match_shapes
from pdla.model import Int64Array

LONGEST = 8
"""Streams in a cycle, at most."""


@dataclass(frozen=True, eq=False)
class Woven:
    """Nests put together from others: ``nest`` is the new one of each old one, the rest has a row per new one.

    New nests are in the order of their first access. ``lane`` differs where two of them overlap in time: such two would
    not be in order if they were combined.
    """

    nest: Int64Array
    start: Int64Array
    shape: Int64Array
    sequence: Int64Array
    lane: Int64Array


def weave(near: Nests, sequence: Int64Array) -> Woven:
    """Combines nests that others stand between: streams in cycles, as long as there are any, then equal shapes.

    Args:
        near: the nests that neighbours make up.
        sequence: of each of them; nothing is combined over its ends.
    """
    places = np.arange(len(near), dtype=np.int64)
    woven = Woven(places, near.start, near.shape, sequence, np.zeros_like(places))
    while True:
        head, turn = _cycles(woven)
        if not turn.any():
            break
        lanes = woven.lane * (LONGEST + 1) + turn
        woven = Woven(woven.nest, woven.start, woven.shape, woven.sequence, lanes)
        woven = _combined(woven, np.argsort(head, kind="stable"), (head,), near.shapes)
        order = np.arange(len(woven.start))
        woven = _combined(woven, order, (woven.sequence, woven.lane), near.shapes)
    order = np.lexsort((woven.shape, woven.lane, woven.sequence))
    return _combined(woven, order, (woven.sequence, woven.lane, woven.shape), near.shapes)


def _cycles(woven: Woven) -> tuple[Int64Array, Int64Array]:
    """Of each nest the first one of its stream, and its place in the cycle from 1 on; 0 where it is in no cycle.

    In a cycle of k streams every nest is as far from that k places before as that is from the one another k before. It
    counts when every stream has three nests or more. Short cycles come first.
    """
    total = len(woven.start)
    head, turn = np.arange(total, dtype=np.int64), np.zeros(total, np.int64)
    alike = np.stack((woven.shape, woven.sequence, woven.lane))
    for lag in range(2, LONGEST + 1):
        if total < 3 * lag:
            break
        step = woven.start[lag:] - woven.start[:-lag]
        same = np.all(alike[:, lag:] == alike[:, :-lag], axis=0) & (turn[lag:] == 0) & (turn[:-lag] == 0)
        again = np.concatenate(([False], same[lag:] & same[:-lag] & (step[lag:] == step[:-lag]), [False]))
        low = np.flatnonzero(again[1:] & ~again[:-1])
        high = np.flatnonzero(again[:-1] & ~again[1:]) + 2 * lag
        if not len(low):
            continue
        low[1:] = np.maximum(low[1:], high[:-1])  # what two cycles share goes to the first
        long = high - low >= 3 * lag
        low, high = low[long], high[long]
        size = high - low
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        place = np.repeat(low, size) + within
        turn[place] = within % lag + 1
        head[place] -= within - within % lag
    return head, turn


def _combined(woven: Woven, order: Int64Array, keys: tuple[Int64Array, ...], shapes: Shapes) -> Woven:
    """The nests taken in this order and combined where all keys are equal, in the order of their first access again."""
    begins = np.zeros(len(order), np.bool_)
    for key in keys:
        begins[1:] |= np.diff(key[order]) != 0
    # Any two accesses of one length would be a pair here, wherever they are: lone pairs mean nothing.
    found = match_shapes(woven.start[order], woven.shape[order], np.cumsum(begins), shapes, lone_pairs=False)
    first = order[found.first]
    by_first = np.argsort(first)
    place = np.empty_like(by_first)
    place[by_first] = np.arange(len(by_first))
    of_old = np.empty(len(order), np.int64)
    of_old[order] = np.repeat(place, np.diff(np.append(found.first, len(order))))
    first = first[by_first]
    return Woven(
        of_old[woven.nest],
        found.start[by_first],
        found.shape[by_first],
        woven.sequence[first],
        woven.lane[first],
    )
