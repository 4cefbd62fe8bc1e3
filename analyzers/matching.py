"""From items to the nests that they make up, for a sequence as a whole or a part at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdla.analyzers.interleaved_streams import weave
from pdla.analyzers.linear_growth import continued_growing
from pdla.analyzers.pattern_items import Items, Rows, sorted_by
from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.analyzers.templates import Nests, match_shapes
from pdla.analyzers.whole_cycles import in_cycles
from pdla.model import Int64Array

AGAIN = 8
"""Nests at the end of a block that are matched again with the next block, if none of them goes on,"""

LATEST = 64
"""if they have so few items."""


def near(items: Items) -> tuple[Items, Int64Array]:
    """The nests that neighbours make up, and for each item the nest that it belongs to.

    A couple at the end of a block may be a couple, or the end of one turn and the beginning of
    another: the choice with fewer nests wins.
    """
    start, shape, first = _combined(items.start, items.shape, items.group, np.arange(len(items)), items.shapes)
    if items.bound.any():
        bound = _combined(*_coupled(items), items.shapes)
        start, shape, first = min((bound, (start, shape, first)), key=lambda found: len(found[0]))
    rows = Items(
        items.rank,
        items.stream,
        items.sequence[first],
        items.lane[first],
        start,
        shape,
        items.shapes,
        items.tally.total(first),
        np.zeros(len(first), np.bool_),
        items.place[:0],
    )
    return rows, np.repeat(np.arange(len(first)), np.diff(np.append(first, len(items))))


def woven(items: Items) -> tuple[Items, Int64Array]:
    """As `near`, then also nests with others between them, in order of first access."""
    nests, of = near(items)
    found = _woven(nests, of)
    rows = found[0]
    numbers = np.zeros(len(rows.rank), np.int64)
    np.add.at(numbers, rows.sequence, rows.shapes.numbers[rows.shape])
    cycles = in_cycles(items, nests, of, numbers)
    return found if cycles is None else _woven(*cycles)


def _woven(nests: Items, of: Int64Array) -> tuple[Items, Int64Array]:
    """As `woven`, from the nests that neighbours make up, and for each item the nest that it belongs to."""
    found = weave(Nests(nests.start, nests.shape, np.arange(len(nests)), nests.shapes), nests.sequence)
    if len(found.start) == len(nests):
        return replace(nests, lane=found.lane), of
    order = sorted_by(found.nest)
    heads = np.flatnonzero(np.diff(found.nest[order], prepend=-1))
    rows = replace(
        nests,
        sequence=found.sequence,
        lane=found.lane,
        start=found.start,
        shape=found.shape,
        tally=nests.tally.take(order).total(heads),
        bound=np.zeros(len(heads), np.bool_),
    )
    return rows, found.nest[of]


def pieces(items: Items, of: Int64Array, rows: Items) -> tuple[Items, Int64Array, Int64Array]:
    """The rows that items belong to, with couples cut in two; for each piece the row, and for each item the piece.

    Only neighbourhood joins a couple. A couple that is a single item, made by one call through a
    view, is left whole. Pieces are in the order of their first items.
    """
    order = sorted_by(of)
    row, size, places = of[order], items.size[order], np.arange(len(of))[order]
    heads = np.flatnonzero(np.diff(row, prepend=-1))
    before = np.cumsum(size) - size
    before -= np.repeat(before[heads], np.diff(np.append(heads, len(row))))
    couple = rows.shapes.count[rows.shape] == 2
    late = couple[row] & (before >= rows.size[row] // 2)
    heads = np.flatnonzero(np.diff(row * 2 + late, prepend=-1))
    whole, second = row[heads], late[heads]
    half = second.copy()
    half[:-1] |= second[1:]
    shape = rows.shape[whole]
    found = replace(
        rows,
        sequence=rows.sequence[whole],
        lane=rows.lane[whole],
        start=rows.start[whole] + rows.shapes.stride[shape] * second,
        shape=np.where(half, rows.shapes.child[shape], shape),
        tally=items.tally.take(order).total(heads),
        bound=second,
        place=rows.place[:0],
    )
    by_first = np.argsort(places[heads])
    found.bound[by_first[1:]] &= whole[by_first[1:]] == whole[by_first[:-1]]
    place = np.empty_like(by_first)
    place[by_first] = np.arange(len(by_first))
    piece = np.empty_like(of)
    piece[order] = np.repeat(place, np.diff(np.append(heads, len(row))))
    return found.take(by_first), whole[by_first], piece


def final_nests(items: Items, last: bool) -> tuple[Items, Items, Int64Array, Items]:
    """The nests at the beginning of sequences that are final, the items in them, their nests, and the other items.

    The other items are matched again with what follows: from the last turn on of a nest that seems
    to go on, with items that could be the beginning of its next turn. If the sequences end here
    (``last``), there are none. Couples are given as two, so that still only neighbourhood joins
    them at the end.
    """
    rows, of = near(items)
    done, rest = items, items.take(slice(0))
    if not last and len(items):
        rows, of, used = _before_last_turn(items, of, rows)
        end = np.count_nonzero(used)
        first: Rows = slice(end) if used[:end].all() else used
        done, of, rest = items.take(first), of[first], items.take(~used)
    found, _, piece = pieces(done, of, rows)
    return found, done, piece, rest


def _before_last_turn(items: Items, of: Int64Array, rows: Items) -> tuple[Items, Int64Array, BoolArray]:
    """The rows without the last turn of the nest that goes on and without all after it; and which items are in them."""
    first = np.flatnonzero(np.diff(of, prepend=-1))
    number = np.diff(np.append(first, len(items)))
    sequences = np.arange(len(items.rank))
    ends = np.searchsorted(items.sequence, sequences, side="right")
    oldest = np.searchsorted(rows.sequence, sequences, side="right") - AGAIN
    oldest = np.maximum(oldest, np.searchsorted(rows.sequence, sequences))
    recent = np.searchsorted(first, np.maximum(first[oldest], ends - min(LATEST, len(items) // 2)))
    cut = np.minimum(np.append(first, len(items))[recent], ends)

    # A nest seems to go on if less than one more turn of it follows, or to return if less than all
    # of it does. If there are several, the first one decides: it has the longest turns.
    shapes, shape = rows.shapes, rows.shape.copy()
    count, child = shapes.count[shape], shapes.child[shape]
    grows = shapes.growth[:, shape].any(axis=0)
    turn = np.where((child >= 0) & ~grows & (number % count == 0), number // count, 0)
    follow = ends[rows.sequence] - first - number
    on = np.flatnonzero(follow < np.maximum(turn, number - 1))
    on = on[np.flatnonzero(np.diff(rows.sequence[on], prepend=-1))]
    stop = first[on] + number[on] - np.where(follow[on] < turn[on], turn[on], 0)
    reach = np.append(0, np.cumsum(items.size))
    goes_on = reach[stop] - reach[first[on]] == (count[on] - 1) * shapes.size[child[on]]
    goes_on &= stop < first[on] + number[on]
    stop = np.where(goes_on, stop, first[on] + number[on])
    cut[rows.sequence[on]] = np.minimum(cut[rows.sequence[on]], stop)
    on = on[goes_on]
    shape[on] = np.where(count[on] == 2, child[on], shapes.loop(shapes.stride[shape[on]], count[on] - 1, child[on]))
    kept = first < cut[rows.sequence]
    used = np.arange(len(items)) < cut[items.sequence]
    return replace(rows, shape=shape).take(kept), (np.cumsum(kept) - 1)[of], used


def _coupled(items: Items) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """(start, shape, group, first item) of these items, with known couples as one item."""
    first = np.flatnonzero(~items.bound)
    shape = items.shape[first]
    if len(first) < len(items):
        couple = np.flatnonzero(np.diff(np.append(first, len(items))) == 2)
        step = items.start[first[couple] + 1] - items.start[first[couple]]
        shape[couple] = items.shapes.loop(step, np.full(len(couple), 2), shape[couple])
    return items.start[first], shape, items.group[first], first


def _combined(
    start: Int64Array, shape: Int64Array, group: Int64Array, first: Int64Array, shapes: Shapes
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(start, shape, first item) of the nests that neighbours make up; a nest that goes on in the next is one."""
    matched = False
    while True:
        ends = len(start)
        for go_on in (_continued, continued_growing):
            start, shape, heads = go_on(start, shape, group, shapes)
            first, group = first[heads], group[heads]
        if len(start) < ends:
            matched = False
            continue
        if matched:
            return start, shape, first
        found = match_shapes(start, shape, group, shapes)
        start, shape, first, group = found.start, found.shape, first[found.first], group[found.first]
        matched = True


def _continued(
    start: Int64Array, shape: Int64Array, group: Int64Array, shapes: Shapes
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(start, shape, head) of neighbours combined into one loop: its parts, and single turns before and after it."""
    if len(start) < 2 or shapes.child.max() < 0:
        return start, shape, np.arange(len(start))
    child, stride, count = shapes.child[shape], shapes.stride[shape], shapes.count[shape]
    step = np.diff(start)
    still = (child >= 0) & ~shapes.growth[:, shape].any(axis=0)
    goes_on = still[:-1] & (step == stride[:-1] * count[:-1]) & (group[1:] == group[:-1])
    parts = goes_on & still[1:] & (child[1:] == child[:-1]) & (stride[1:] == stride[:-1])
    after = goes_on & (shape[1:] == child[:-1])
    before = still[1:] & (child[1:] == shape[:-1]) & (step == stride[1:]) & (group[1:] == group[:-1])
    link = parts | after | before
    if not link.any():
        return start, shape, np.arange(len(start))
    turn = np.where(before, child[1:], child[:-1])
    pitch = np.where(before, stride[1:], stride[:-1])
    begins = np.ones(len(start), np.bool_)
    begins[1:] = ~link
    begins[2:] |= link[:-1] & ((turn[1:] != turn[:-1]) | (pitch[1:] != pitch[:-1]))
    heads = np.flatnonzero(begins)
    many = np.flatnonzero(np.diff(np.append(heads, len(start))) > 1)
    run = np.cumsum(begins) - 1
    turn, pitch = np.append(turn, 0)[heads], np.append(pitch, 0)[heads]
    turns = np.add.reduceat(np.where((child == turn[run]) & (stride == pitch[run]), count, 1), heads)
    shape = shape[heads]
    shape[many] = shapes.loop(pitch[many], turns[many], turn[many])
    return start[heads], shape, heads
