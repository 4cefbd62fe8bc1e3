"""Scattered streams: strided streams whose accesses alternate in no fixed order, such as lists that are merged.

No step returns in the order of time. But in the order of the file the accesses of a stream are neighbours in equal
steps that come one after the other in time, too. Random accesses are not: twelve of them are in order once in 12!.

If streams share a part of the file, their accesses alternate in the order of the file, too. But where a stream comes
twice in a row, the step is its stride. In the order of the file modulo such a stride its accesses are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from pdla.analyzers.pattern_items import Items, spread
from pdla.analyzers.shapes import BoolArray
from pdla.model import Int64Array

FEWEST = 12
"""Accesses of a stream."""

LARGE = 64
"""Nests with fewer accesses are taken apart, if a stream needs more, or if all of them go into streams."""

STRIDES, OFTEN = 4, 12
"""Up to so many strides of a sequence are tried, which so many steps among its first items have."""

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
    strides = _strides(early, items)
    shown[items.sequence[early[_found(early, strides, items, rows, of) >= 0]]] = True
    if not shown.any():
        return rows, of
    chosen = np.flatnonzero(shown[items.sequence])
    stream = np.full(len(items), -1, np.int64)
    stream[chosen] = _found(chosen, strides, items, rows, of)
    return _with_streams(stream, items, rows, of) if (stream >= 0).any() else (rows, of)


def _strides(early: Int64Array, items: Items) -> Int64Array:
    """The steps that each sequence has most often among these items, of shape (STRIDES, sequences); 0: none."""
    strides = np.zeros((STRIDES, len(items.rank)), np.int64)
    same = items.shapes.child[items.shape[early[1:]]] < 0
    for key in (items.sequence, items.shape):
        same &= np.diff(key[early]) == 0
    step, sequence = np.abs(np.diff(items.start[early]))[same], items.sequence[early[1:]][same]
    order = np.lexsort((step, sequence))
    heads = np.flatnonzero((np.diff(step[order], prepend=-1) != 0) | (np.diff(sequence[order], prepend=-1) != 0))
    times = np.diff(np.append(heads, len(order)))
    often = (times >= OFTEN) & (step[order[heads]] > 0)
    heads, times = order[heads[often]], times[often]
    order = np.lexsort((-times, sequence[heads]))
    place = np.arange(len(order)) - np.searchsorted(sequence[heads[order]], sequence[heads[order]])
    most = place < STRIDES
    strides[place[most], sequence[heads[order[most]]]] = step[heads[order[most]]]
    return np.sort(strides, axis=0)  # small ones first: multiples of them would cut their streams


def _found(chosen: Int64Array, strides: Int64Array, items: Items, rows: Items, of: Int64Array) -> Int64Array:
    """The number of the stream of each of these items, -1 if it is in none; ``strides`` are those of `_strides`."""
    size = rows.shapes.size[rows.shape[of[chosen]]]
    single = items.shapes.child[items.shape[chosen]] < 0
    free = single & (size < LARGE)
    if not free.any():
        return np.full(len(chosen), -1, np.int64)
    nests, nest = np.unique(of[chosen], return_inverse=True)
    for _ in range(2):
        stream = _streams(chosen, free, strides, items, of)
        inside = np.bincount(nest, stream >= 0, len(nests))
        partly = ((inside > 0) & (inside < np.bincount(nest)))[nest] & (size >= FEWEST)
        if not partly.any():
            return stream
        free &= ~partly
    return _streams(chosen, single & (size < FEWEST), strides, items, of)


def _streams(chosen: Int64Array, free: BoolArray, strides: Int64Array, items: Items, of: Int64Array) -> Int64Array:
    """The number of the stream of each of these items, -1 if it is in none; only those that are free are in streams.

    Streams with parts of their own are looked for before those with common strides, or after them, whichever takes
    fewer numbers for a sequence: four for each stream, one for each item in none.
    """
    apart = np.zeros_like(strides[:1])  # streams with parts of their own are in the order of the file itself
    common = strides[strides.any(axis=1)]
    stream = _in_order(chosen, free, [*apart, *common], items, of)
    if not len(common):
        return stream
    other = _in_order(chosen, free, [*common, *apart], items, of)
    sequence = items.sequence[chosen]
    numbers = []
    for found in (stream, other):
        heads = np.unique(found, return_index=True)[1]
        told = np.bincount(sequence, found < 0, len(items.rank))
        numbers.append(told + 4 * np.bincount(sequence[heads[found[heads] >= 0]], minlength=len(items.rank)))
    better = (numbers[1] < numbers[0])[sequence]
    stream[better] = np.where(other[better] < 0, -1, other[better] + stream.max(initial=-1) + 1)
    return np.where(stream < 0, -1, np.unique(stream, return_inverse=True)[1])


def _in_order(
    chosen: Int64Array, free: BoolArray, strides: Sequence[Int64Array], items: Items, of: Int64Array
) -> Int64Array:
    """As `_streams`, for strides that are looked for one after the other; 0: any stride.

    What is all of one nest already is no stream.
    """
    stream = np.full(len(chosen), -1, np.int64)
    for of_sequence, direction in product(strides, (1, -1)):
        stride = of_sequence[items.sequence[chosen]]
        left = np.flatnonzero(free & (stream < 0) & ((stride > 0) | ~of_sequence.any()))
        at, stride = chosen[left], stride[left]
        home = np.where(stride > 0, items.start[at] % np.maximum(stride, 1), 0)
        order = np.lexsort((at, direction * items.start[at], home, items.shape[at], items.sequence[at]))
        left, at, stride, home = left[order], at[order], stride[order], home[order]
        step = np.diff(items.start[at])
        link = (step * direction > 0) & (np.diff(at) > 0) & (np.diff(home) == 0)
        link &= (stride[1:] == 0) | (step * direction == stride[1:])
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
