"""Scattered streams: strided streams whose accesses alternate in no fixed order, such as lists that are merged.

No step returns in the order of time. But in the order of the file the accesses of a stream are neighbours in equal
steps that come one after the other in time, too. Random accesses are not: twelve of them are in order once in 12!.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdla.analyzers.pattern_items import Items, spread
from pdla.analyzers.shapes import BoolArray
from pdla.model import Int64Array

FEWEST = 12
"""Accesses of a stream."""

LARGE = 64
"""Nests with fewer accesses are taken apart, if a stream needs more, or if all of them go into streams."""

SAMPLE = 2048
"""If the first so many items of a sequence show no stream, no more are looked at."""


def gather(items: Items, rows: Items, of: Int64Array) -> tuple[Items, Int64Array]:
    """(rows, of) with the streams that are scattered over small nests, in the order of first access.

    Args:
        items: accesses and nests in their order; only single accesses are put into streams.
        rows: the nests that they make up.
        of: for each item the row that it belongs to.

    The rows overlap in time: they must not be combined any more.
    """
    sequences = np.arange(len(items.rank))
    first, last = (np.searchsorted(items.sequence, sequences, side) for side in ("left", "right"))
    shown = np.zeros(len(sequences), np.bool_)
    early = spread(first, np.minimum(last - first, SAMPLE))
    shown[items.sequence[early[_found(early, items, rows, of) >= 0]]] = True
    if not shown.any():
        return rows, of
    chosen = np.flatnonzero(shown[items.sequence])
    stream = np.full(len(items), -1, np.int64)
    stream[chosen] = _found(chosen, items, rows, of)
    return _with_streams(stream, items, rows, of) if (stream >= 0).any() else (rows, of)


def _found(chosen: Int64Array, items: Items, rows: Items, of: Int64Array) -> Int64Array:
    """The number of the stream of each of these items, -1 if it is in none."""
    size = rows.shapes.size[rows.shape[of[chosen]]]
    single = items.shapes.child[items.shape[chosen]] < 0
    free = single & (size < LARGE)
    if not free.any():
        return np.full(len(chosen), -1, np.int64)
    nests, nest = np.unique(of[chosen], return_inverse=True)
    for _ in range(2):
        stream = _streams(chosen, free, items, of)
        inside = np.bincount(nest, stream >= 0, len(nests))
        partly = ((inside > 0) & (inside < np.bincount(nest)))[nest] & (size >= FEWEST)
        if not partly.any():
            return stream
        free &= ~partly
    return _streams(chosen, single & (size < FEWEST), items, of)


def _streams(chosen: Int64Array, free: BoolArray, items: Items, of: Int64Array) -> Int64Array:
    """The number of the stream of each of these items, -1 if it is in none; only those that are free are in streams.

    What is all of one nest already is no stream.
    """
    stream = np.full(len(chosen), -1, np.int64)
    for direction in (1, -1):
        left = np.flatnonzero(free & (stream < 0))
        at = chosen[left]
        order = np.lexsort((at, direction * items.start[at], items.shape[at], items.sequence[at]))
        left, at = left[order], at[order]
        step = np.diff(items.start[at])
        link = (step * direction > 0) & (np.diff(at) > 0)
        for key in (items.sequence, items.shape):
            link &= np.diff(key[at]) == 0
        begins = np.ones(len(step), np.bool_)
        begins[1:] = ~link[1:] | ~link[:-1] | (step[1:] != step[:-1])
        low = np.flatnonzero(begins)
        high = np.append(low, len(step))[1:] + 1
        nest = np.append(0, np.cumsum(np.diff(of[at]) != 0))
        long = link[low] & (high - low >= FEWEST) & (nest[high - 1] > nest[low])
        low, high = low[long], high[long]
        low[1:] = np.maximum(low[1:], high[:-1])  # what two streams share goes to the first one
        size = high - low
        stream[left[spread(low, size)]] = np.repeat(np.arange(len(low)), size) + stream.max(initial=-1) + 1
    return stream


def _with_streams(stream: Int64Array, items: Items, rows: Items, of: Int64Array) -> tuple[Items, Int64Array]:
    """(rows, of) with these streams as rows; other items of nests that had some of their items become single rows."""
    inside = stream >= 0
    cut = np.zeros(len(rows), np.bool_)
    cut[of[inside]] = True
    alone = cut[of] & ~inside
    label = np.where(inside, len(rows) + stream, of)
    label[alone] = len(rows) + stream.max() + 1 + np.arange(np.count_nonzero(alone))
    order = np.argsort(label, kind="stable")
    heads = np.flatnonzero(np.diff(label[order], prepend=-1))
    size = np.diff(np.append(heads, len(order)))
    head = order[heads]
    kept = ~inside[head] & ~alone[head]
    shape = np.where(kept, rows.shape[of[head]], items.shape[head])
    whole = np.flatnonzero(inside[head])
    step = items.start[order[heads[whole] + 1]] - items.start[head[whole]]
    shape[whole] = items.shapes.loop(step, size[whole], shape[whole])
    lane, start = rows.lane[of[head]], rows.start[of[head]]
    by_first = np.argsort(head)
    place = np.empty_like(by_first)
    place[by_first] = np.arange(len(by_first))
    of = np.empty_like(of)
    of[order] = np.repeat(place, size)
    found = replace(
        rows,
        sequence=items.sequence[head],
        lane=lane,
        start=np.where(kept, start, items.start[head]),
        shape=shape,
        tally=items.tally.take(order).total(heads),
        bound=np.zeros(len(head), np.bool_),
    )
    return found.take(by_first), of
