"""Template matching of linear change: loops whose steps, request lengths or inner counts grow.

These are the patterns of variable size or offset of Byna et al. (SC'08), and triangular nests: each
row is longer than the previous one, or has more requests, by the same amount. Lower and upper
triangles, full or packed, of rows or blocks, are cases of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.model import Int64Array

FEWEST = 4
"""Iterations that show a growth: for any three numbers the second difference is constant."""


class Level(NamedTuple):
    """One level of a sequence: the byte ``start``, ``shape`` and ``group`` of each item, and which are ``free``."""

    start: Int64Array
    shape: Int64Array
    group: Int64Array
    free: BoolArray


class Growing(NamedTuple):
    """Loops that grow: their first item, the number of their items, and the shape that these make up."""

    low: Int64Array
    items: Int64Array
    shape: Int64Array


@dataclass
class _Runs:
    """Runs of rows whose steps, lengths and counts change linearly.

    ``low`` is the first item and ``high`` the one after the last. ``like`` is the shape of a row;
    all ``rows`` have it, except for length and count. ``step`` is the distance from the first row
    to the second, ``bend`` its growth. ``length`` and ``count`` are those of the first row,
    ``longer`` and ``more`` their growth. ``whole``: the first row is one item.
    """

    low: Int64Array
    high: Int64Array
    like: Int64Array
    rows: Int64Array
    step: Int64Array
    bend: Int64Array
    length: Int64Array
    longer: Int64Array
    count: Int64Array
    more: Int64Array
    whole: BoolArray

    def only(self, which: BoolArray) -> _Runs:
        """Some of the runs."""
        return _Runs(*(getattr(self, field.name)[which] for field in fields(self)))

    def merged(self, others: _Runs) -> _Runs:
        """These runs and others, in order."""
        if not len(others.low):
            return self
        order = np.argsort(np.append(self.low, others.low))
        both = (np.append(getattr(self, field.name), getattr(others, field.name)) for field in fields(self))
        return _Runs(*(values[order] for values in both))


def covered(total: int, low: Int64Array, count: Int64Array) -> BoolArray:
    """Which of ``total`` items are in these runs of items, which do not overlap."""
    many = count.sum()
    if many in (0, total):
        return np.full(total, many > 0)
    edges = np.zeros(total + 1, np.int8)
    edges[low] += 1
    edges[low + count] -= 1
    inside: BoolArray = np.cumsum(edges[:-1], dtype=np.int8) > 0
    return inside


def find_growing(level: Level, shapes: Shapes) -> Growing:
    """The loops of one level that grow, in order and without overlap, made of neighbours that are free.

    They have four iterations or more. If counts grow, rows of one or two items, which are not loops
    by themselves, are also found next to the longer rows, of which there must be at least two.
    """
    if np.count_nonzero(level.free) < FEWEST:
        return Growing(*(np.empty(0, np.int64) for _ in Growing._fields))
    runs = _linear(level, shapes)
    runs = runs.merged(_two_rows(level, shapes, runs))
    _take_short_rows(runs, level, shapes)
    runs = runs.only(runs.rows >= FEWEST)
    if not len(runs.low):
        return Growing(runs.low, runs.low, runs.low)
    child = level.shape[runs.low]
    if not runs.whole.all():
        short = ~runs.whole
        child[short] = shapes.row(shapes.stride[runs.like[short]], runs.count[short], child[short])
    size, nbytes = (np.append(0, np.cumsum(of_shape[level.shape])) for of_shape in (shapes.size, shapes.bytes))
    shape = shapes.grown(
        runs.step,
        runs.rows,
        child,
        np.stack((runs.bend, runs.longer, runs.more)),
        size[runs.high] - size[runs.low],
        nbytes[runs.high] - nbytes[runs.low],
    )
    return Growing(runs.low, runs.high - runs.low, shape)


def _linear(level: Level, shapes: Shapes) -> _Runs:
    """The runs of four items or more that change linearly; also runs of three if the counts grow."""
    start, shape, group, free = level
    bend = np.diff(start, 2)
    possible = np.zeros(len(bend), np.bool_)
    if len(bend) > 1:
        possible[1:] = bend[1:] == bend[:-1]
        possible[:-1] |= possible[1:]
    loop = shape >= shapes.singles
    possible |= loop[:-2] & loop[1:-1] & loop[2:]
    possible &= free[:-2] & free[1:-1] & free[2:]
    at = np.flatnonzero(possible)
    at = at[group[at] == group[at + 2]]
    linear, (longer, more) = bend[at] != 0, np.zeros((2, len(at)), np.int64)
    one, two, three = (shape[at + place] for place in range(3))
    mixed = np.flatnonzero((one != two) | (two != three))
    if len(mixed):
        one, two, three = one[mixed], two[mixed], three[mixed]
        same = (shapes.family[one] == shapes.family[two]) & (shapes.family[one] == shapes.family[three])
        for growth, of_shape in ((longer, shapes.length), (more, shapes.count)):
            growth[mixed] = of_shape[two] - of_shape[one]
            same &= of_shape[three] - of_shape[two] == growth[mixed]
        linear[mixed] = same & (linear[mixed] | (longer[mixed] != 0) | (more[mixed] != 0))
    chosen = np.flatnonzero(linear)
    at, longer, more = at[chosen], longer[chosen], more[chosen]

    begins = np.ones(len(at), np.bool_)
    begins[1:] = (np.diff(at) != 1) | (np.diff(bend[at]) != 0)
    heads = np.flatnonzero(begins)
    low, high = at[heads], at[heads] + np.diff(np.append(heads, len(at))) + 2
    for _ in range(2):
        fewest = np.where(more[heads] != 0, FEWEST - 1, FEWEST)
        heads, low, high = (values[high - low >= fewest] for values in (heads, low, high))
        low[1:] = np.maximum(low[1:], high[:-1])  # what two runs share goes to the first one
    like = shape[low]
    return _Runs(
        low=low,
        high=high,
        like=like,
        rows=high - low,
        step=start[low + 1] - start[low],
        bend=bend[at[heads]],
        length=shapes.length[like],
        longer=longer[heads],
        count=shapes.count[like],
        more=more[heads],
        whole=np.ones(len(low), np.bool_),
    )


def _two_rows(level: Level, shapes: Shapes, runs: _Runs) -> _Runs:
    """Rows of three and four items, or of four and three, in none of the runs: the middle of a triangle of four rows.

    The growth of the step follows from where the row of two would begin, whether it is there or
    not.
    """
    start, shape, group, free = level
    total = len(start)
    loop = (shape >= shapes.singles) & free
    if loop.any():
        loop &= ~covered(total, runs.low, runs.high - runs.low)
    at = np.flatnonzero(loop[1:] & loop[:-1])
    count, other = shapes.count[shape[at]], shapes.count[shape[at + 1]]
    more = other - count
    third = np.where(more > 0, at - 2, at + 2)
    fits = (count + other == 7) & (np.abs(more) == 1) & (third >= 0) & (third < total) & (group[at] == group[at + 1])
    fits &= shapes.family[shape[at]] == shapes.family[shape[at + 1]]
    at, more, third = at[fits], more[fits], third[fits]
    apart = np.ones(len(at), np.bool_)
    apart[1:] = np.diff(at) > 1
    at, more, third = at[apart], more[apart], third[apart]
    like = shape[at]
    step = start[at + 1] - start[at]
    return _Runs(
        low=at,
        high=at + 2,
        like=like,
        rows=np.full(len(at), 2),
        step=step,
        bend=np.where(more > 0, step - (start[at] - start[third]), start[third] - start[at + 1] - step),
        length=shapes.length[like],
        longer=shapes.length[shape[at + 1]] - shapes.length[like],
        count=shapes.count[like],
        more=more,
        whole=np.ones(len(at), np.bool_),
    )


def _take_short_rows(runs: _Runs, level: Level, shapes: Shapes) -> None:
    """Add rows of one or two items: before the others if the counts grow, after them if they shrink."""
    start, total = level.start, len(level.start)
    after_last, before_first = np.append(runs.low[1:], total), np.append(0, runs.high[:-1])[: len(runs.low)]
    front = runs.more > 0
    while True:
        rows = np.where(front, -1, runs.rows)  # the number of the row to add
        count, length = runs.count + rows * runs.more, runs.length + rows * runs.longer
        place = start[runs.low] + rows * runs.step + runs.bend * (rows * (rows - 1) // 2)
        low = np.where(front, runs.low - count, runs.high)
        fits = (runs.more != 0) & (count >= 1) & (count <= 2)
        fits &= np.where(front, low >= before_first, low + count <= after_last)
        for number in (0, 1):
            there = fits & (number < count)
            at = np.where(there, low + number, 0)
            good = level.free[at] & (level.group[at] == level.group[runs.low])
            good &= shapes.bare[level.shape[at]] == shapes.bare[shapes.child[runs.like]]
            good &= (shapes.length[level.shape[at]] == length) & (
                start[at] == place + number * shapes.stride[runs.like]
            )
            fits &= good | ~there
        if not fits.any():
            return
        early = fits & front
        runs.rows = runs.rows + fits
        runs.step = runs.step - early * runs.bend
        runs.low, runs.high = np.where(early, low, runs.low), np.where(fits & ~front, low + count, runs.high)
        runs.count, runs.length = np.where(early, count, runs.count), np.where(early, length, runs.length)
        runs.whole = runs.whole & ~early


def continued_growing(
    start: Int64Array, shape: Int64Array, group: Int64Array, shapes: Shapes
) -> tuple[Int64Array, Int64Array, Int64Array | slice]:
    """(start, shape, head) of neighbours combined into one growing loop: its parts, and rows before and after it."""
    if not shapes.grows.any():
        return start, shape, slice(None)
    heads = np.arange(len(start))
    while (grows := shapes.grows[shape]).any():
        one, other, step = shape[:-1], shape[1:], np.diff(start)
        reach = shapes.count[one]
        bend = shapes.growth[0, one]
        after = _is_row(other, one, reach, shapes) & grows[:-1]
        part = grows[:-1] & grows[1:] & (shapes.stride[other] == shapes.stride[one] + reach * bend)
        part &= (shapes.growth[:, other] == shapes.growth[:, one]).all(axis=0)
        part &= _is_row(np.where(part, shapes.child[other], other), one, reach, shapes)
        after |= part
        after &= step == reach * shapes.stride[one] + bend * (reach * (reach - 1) // 2)
        before = _is_row(one, other, np.full(len(one), -1), shapes) & grows[1:]
        before &= step == shapes.stride[other] - shapes.growth[0, other]
        link = (after | before) & (group[1:] == group[:-1])
        at = np.flatnonzero(link)
        run = np.ones(len(at), np.bool_)
        run[1:] = np.diff(at) != 1
        place = np.arange(len(at))
        at = at[(place - np.maximum.accumulate(np.where(run, place, 0))) % 2 == 0]  # two at a time
        if not len(at):
            break
        early = ~after[at]
        left, right = shape[at], shape[at + 1]
        whole, rest = np.where(early, right, left), np.where(early, left, right)
        child = np.where(early, left, shapes.child[left])
        short = np.flatnonzero(early & (shapes.family[left] != shapes.family[shapes.child[right]]))
        if len(short):
            child[short] = shapes.row(
                shapes.stride[shapes.child[right[short]]], np.ones(len(short), np.int64), left[short]
            )
        rows = shapes.count[whole] + np.where(part[at] & ~early, shapes.count[rest], 1)
        shape = shape.copy()
        shape[at] = shapes.grown(
            shapes.stride[whole] - early * shapes.growth[0, whole],
            rows,
            child,
            shapes.growth[:, whole],
            shapes.size[left] + shapes.size[right],
            shapes.bytes[left] + shapes.bytes[right],
        )
        kept = np.ones(len(start), np.bool_)
        kept[at + 1] = False
        start, shape, group, heads = start[kept], shape[kept], group[kept], heads[kept]
    return start, shape, heads


def _is_row(item: Int64Array, whole: Int64Array, number: Int64Array, shapes: Shapes) -> BoolArray:
    """Which items are the row of this number of these growing loops, at any place; a row of one may be no loop."""
    child = shapes.child[whole]
    count = shapes.count[child] + number * shapes.growth[2, whole]
    row: BoolArray = (shapes.family[item] == shapes.family[child]) & (shapes.count[item] == count)
    row |= (count == 1) & (shapes.growth[2, whole] != 0) & (shapes.bare[item] == shapes.bare[shapes.child[child]])
    row &= shapes.length[item] == shapes.length[whole] + number * shapes.growth[1, whole]
    return row
