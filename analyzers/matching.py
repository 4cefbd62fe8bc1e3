"""From items to the nests that they make up, for a sequence as a whole or a part at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pdla.analyzers.interleaved_streams import weave
from pdla.analyzers.linear_growth import continued_growing, covered
from pdla.analyzers.pattern_items import Items, Rows, heads_of, runs_of, sorted_by, spread
from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.analyzers.templates import Nests, match_shapes
from pdla.analyzers.whole_cycles import in_cycles
from pdla.model import Int64Array

AGAIN = 8
"""Nests at the end of a block that are matched again with the next block, if none of them goes on,"""

LATEST = 64
"""if they have so few items."""


class Neighbours(NamedTuple):
    """Nests that neighbours make up: the byte, the shape and the first item of each."""

    start: Int64Array
    shape: Int64Array
    first: Int64Array


def near(items: Items) -> tuple[Items, Int64Array]:
    """The nests that neighbours make up, and for each item the nest that it belongs to."""
    return _rows(items, _neighbours(items))


def _neighbours(items: Items) -> Neighbours:
    """The nests that neighbours make up.

    A couple at the end of a block may be a couple, or the end of one turn and the beginning of
    another: the choice with fewer nests wins.
    """
    found = _combined(items.start, items.shape, items.group, np.arange(len(items)), items.shapes)
    if items.bound.any():
        found = min(_combined(*_coupled(items), items.shapes), found, key=lambda one: len(one.first))
    return found


def _rows(items: Items, nests: Neighbours) -> tuple[Items, Int64Array]:
    """These nests of the items, and for each item the nest that it belongs to."""
    first = nests.first
    rows = Items(
        items.rank,
        items.stream,
        items.sequence[first],
        items.lane[first],
        nests.start,
        nests.shape,
        items.shapes,
        items.tally.total(first),
        np.zeros(len(first), np.bool_),
        items.place[:0],
    )
    return rows, runs_of(first, len(items))


def woven(items: Items) -> tuple[Items, Int64Array]:
    """As `near`, then also nests with others between them, in order of first access."""
    nests, of = near(items)
    found = _woven(nests, of)
    rows = found[0]
    numbers = np.bincount(rows.sequence, rows.shapes.numbers[rows.shape], len(rows.rank))
    cycles = in_cycles(items, nests, of, numbers.astype(np.int64))
    return found if cycles is None else _woven(*cycles)


def _woven(nests: Items, of: Int64Array) -> tuple[Items, Int64Array]:
    """As `woven`, from the nests that neighbours make up, and for each item the nest that it belongs to."""
    found = weave(Nests(nests.start, nests.shape, np.arange(len(nests)), nests.shapes), nests.sequence)
    if len(found.start) == len(nests):
        return replace(nests, lane=found.lane), of
    order = sorted_by(found.nest)
    heads = heads_of(found.nest[order])
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


def pieces(items: Items, of: Int64Array, rows: Items) -> tuple[Items, Int64Array]:
    """The rows that items belong to, with couples cut in two, and for each item the piece that it belongs to.

    Only neighbourhood joins a couple. A couple that is a single item, made by one call through a
    view, is left whole. Pieces are in the order of their first items.
    """
    order = sorted_by(of)
    row, size = of[order], items.shapes.size[items.shape[order]]
    heads = heads_of(row)
    cuts = _halves(row, size, heads, rows)
    if not len(cuts) and isinstance(order, slice):
        return rows, of
    heads = np.sort(np.append(heads, cuts))
    whole, second = row[heads], np.zeros(len(heads), np.bool_)
    second[np.searchsorted(heads, cuts)] = True
    first = np.flatnonzero(second) - 1
    start, shape = rows.start[whole], rows.shape[whole]
    start[second] += rows.shapes.stride[shape[second]]
    shape[second] = shape[first] = rows.shapes.child[shape[second]]
    found = replace(
        rows,
        sequence=rows.sequence[whole],
        lane=rows.lane[whole],
        start=start,
        shape=shape,
        tally=items.tally.take(order).total(heads),
        bound=second,
        place=rows.place[:0],
    )
    piece = runs_of(heads, len(of))
    if isinstance(order, slice):
        return found, piece
    by_first = np.argsort(order[heads])
    found.bound[by_first[1:]] &= whole[by_first[1:]] == whole[by_first[:-1]]
    place, of_item = np.empty_like(by_first), np.empty_like(of)
    place[by_first] = np.arange(len(by_first))
    of_item[order] = place[piece]
    return found.take(by_first), of_item


def _halves(row: Int64Array, size: Int64Array, heads: Int64Array, rows: Items) -> Int64Array:
    """The items at which the second half of a couple begins; ``size`` and ``row`` are those of the items of each row,
    which begin at ``heads``."""
    number = np.diff(np.append(heads, len(row)))
    couples = np.flatnonzero(number > 1)
    couples = couples[rows.shapes.count[rows.shape[row[heads[couples]]]] == 2]
    number, inside = number[couples], spread(heads[couples], number[couples])
    before = np.cumsum(size[inside]) - size[inside]
    late = before - np.repeat(before[np.cumsum(number) - number], number) >= rows.size[row[inside]] // 2
    return inside[np.flatnonzero(late[1:] & ~late[:-1]) + 1]


def final_nests(items: Items, last: bool) -> tuple[Items, Items, Int64Array, Items]:
    """The nests at the beginning of sequences that are final, the items in them, their nests, and the other items.

    The other items are matched again with what follows: from the last turn on of a nest that seems
    to go on, with items that could be the beginning of its next turn. If the sequences end here
    (``last``), there are none. Couples are given as two, so that still only neighbourhood joins
    them at the end.
    """
    nests, done, rest = _neighbours(items), items, items.take(slice(0))
    if not last and len(items):
        nests, used = _before_last_turn(items, nests)
        end = np.count_nonzero(used)
        if used[:end].all():  # so it is if the rank does but one thing
            done, rest = items.take(slice(end)), items.take(slice(end, None))
        else:
            done, rest = items.take(used), items.take(~used)
    rows, of = _rows(done, nests)
    found, piece = pieces(done, of, rows)
    return found, done, piece, rest


def _before_last_turn(items: Items, nests: Neighbours) -> tuple[Neighbours, BoolArray]:
    """The nests without the last turn of the one that goes on and without all after it; and which items are in them."""
    first, stop = nests.first, np.append(nests.first, len(items))[1:]
    of = items.sequence[first]
    sequences = np.arange(len(items.rank))
    begins, ends = (np.searchsorted(items.sequence, sequences, side) for side in ("left", "right"))
    oldest = np.maximum(np.searchsorted(of, sequences, "right") - AGAIN, np.searchsorted(of, sequences))
    recent = np.searchsorted(first, np.maximum(first[oldest], ends - min(LATEST, len(items) // 2)))
    cut = np.minimum(np.append(first, len(items))[recent], ends)

    # A nest seems to go on if less than one more turn of it follows, or to return if less than all
    # of it does. If there are several, the first one decides: it has the longest turns.
    shapes = items.shapes
    on = np.flatnonzero(ends[of] - stop < stop - first)
    number, follow, shape = stop[on] - first[on], ends[of[on]] - stop[on], nests.shape[on]
    count, child = shapes.count[shape], shapes.child[shape]
    turn = np.where((child >= 0) & ~shapes.grows[shape] & (number % count == 0), number // count, 0)
    chosen = np.flatnonzero(follow < np.maximum(turn, number - 1))
    chosen = chosen[heads_of(of[on[chosen]])]
    on, number, follow, turn, shape, count, child = (
        column[chosen] for column in (on, number, follow, turn, shape, count, child)
    )
    before = number - np.where(follow < turn, turn, 0)
    reach = np.append(0, np.cumsum(shapes.size[items.shape[spread(first[on], before)]]))
    after = np.cumsum(before)
    goes_on = reach[after] - reach[after - before] == (count - 1) * shapes.size[child]
    goes_on &= before < number
    cut[of[on]] = np.minimum(cut[of[on]], first[on] + np.where(goes_on, before, number))
    on, shape, count, child = (column[goes_on] for column in (on, shape, count, child))
    shorter = nests.shape.copy()
    shorter[on] = np.where(count == 2, child, shapes.loop(shapes.stride[shape], count - 1, child))
    lows, highs = np.searchsorted(first, begins), np.searchsorted(first, cut)
    kept: Rows = slice(highs[0]) if len(cut) == 1 else spread(lows, highs - lows)
    number = np.minimum(stop[kept], cut[of[kept]]) - first[kept]
    some = cut > begins
    used = covered(len(items), begins[some], (cut - begins)[some])
    return Neighbours(nests.start[kept], shorter[kept], np.cumsum(number) - number), used


def _coupled(items: Items) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """(start, shape, group, first item) of these items, with known couples as one item."""
    first = np.flatnonzero(~items.bound)
    shape = items.shape[first]
    if len(first) < len(items):
        couple = np.flatnonzero(np.diff(np.append(first, len(items))) == 2)
        step = items.start[first[couple] + 1] - items.start[first[couple]]
        shape[couple] = items.shapes.loop(step, np.full(len(couple), 2), shape[couple])
    return items.start[first], shape, items.group[first], first


def _combined(start: Int64Array, shape: Int64Array, group: Int64Array, first: Int64Array, shapes: Shapes) -> Neighbours:
    """The nests that neighbours make up; a nest that goes on in the next is one."""
    matched = False
    while True:
        ends = len(start)
        for go_on in (_continued, continued_growing):
            start, shape, heads = go_on(start, shape, group, shapes)
            if len(start) < len(group):
                first, group = first[heads], group[heads]
        if len(start) < ends:
            matched = False
            continue
        if matched:
            return Neighbours(start, shape, first)
        found = match_shapes(start, shape, group, shapes)
        if len(found) == ends:
            return Neighbours(start, shape, first)
        start, shape, first, group = found.start, found.shape, first[found.first], group[found.first]
        matched = True


def _continued(
    start: Int64Array, shape: Int64Array, group: Int64Array, shapes: Shapes
) -> tuple[Int64Array, Int64Array, Int64Array | slice]:
    """(start, shape, head) of neighbours combined into one loop: its parts, and single turns before and after it."""
    loop = shape >= shapes.singles
    at = np.flatnonzero((loop[1:] | loop[:-1]) & (group[1:] == group[:-1]))
    one, other, step = shape[at], shape[at + 1], start[at + 1] - start[at]
    (child, next_child), (stride, next_stride) = ((of[one], of[other]) for of in (shapes.child, shapes.stride))
    goes_on = (child >= 0) & ~shapes.grows[one] & (step == stride * shapes.count[one])
    still = (next_child >= 0) & ~shapes.grows[other]
    parts = goes_on & still & (next_child == child) & (next_stride == stride)
    before = still & (next_child == one) & (step == next_stride)
    link = np.flatnonzero(parts | (goes_on & (other == child)) | before)
    if not len(link):
        return start, shape, slice(None)
    at, turn, pitch = at[link], np.where(before, next_child, child)[link], np.where(before, next_stride, stride)[link]
    begins = np.ones(len(start), np.bool_)
    begins[at + 1] = False
    begins[at[1:] + 1] |= (np.diff(at) == 1) & ((np.diff(turn) != 0) | (np.diff(pitch) != 0))
    heads = np.flatnonzero(begins)
    number = np.diff(np.append(heads, len(start)))
    many = np.flatnonzero(number > 1)
    first, number = np.searchsorted(at, heads[many]), number[many]
    turn, pitch = turn[first], pitch[first]
    inside = shape[spread(heads[many], number)]
    whole = (shapes.child[inside] == np.repeat(turn, number)) & (shapes.stride[inside] == np.repeat(pitch, number))
    turns = np.add.reduceat(np.where(whole, shapes.count[inside], 1), np.cumsum(number) - number)
    shape = shape[heads]
    shape[many] = shapes.loop(pitch, turns, turn)
    return start[heads], shape, heads
