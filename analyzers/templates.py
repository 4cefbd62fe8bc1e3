"""Template matching on sequences of accesses: strided at any depth, and linear growth, found level by level.

A *shape* is an access pattern without its place: a request length and the loops around it. A level
looks at neighbours of the same shape, makes a loop of every run of equal steps, and passes the
loops as items to the next level. It ends when no neighbours make a loop any more, so that the time
is linear in the accesses and the depth (PDLA 3.6.1 moves a cursor over the records instead).

The templates as loops, from Byna et al. (SC'08) and PDLA 3.2 unless marked otherwise:

- single: none; repeated: one of stride 0; contiguous: one whose stride is the length - fixed
strided, also backwards: one of any other stride; kd-strided: several, one in the other - variable
size or stride: a loop whose steps or lengths grow (linear_growth.py) - triangular, ours: a loop in
which the inner counts or lengths grow (linear_growth.py) - cycles, interleaved streams, batches of
patterns at a stride: a combination of nests (interleaved_streams.py) - random: nests of one access,
kept as they are
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pdla.analyzers.linear_growth import Level, covered, find_growing
from pdla.analyzers.pattern_items import runs_of
from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.model import Int64Array, Nest


@dataclass(frozen=True)
class Nests:
    """Nests in the order of the sequence: their expansions, one after the other, are the sequence.

    ``start`` is a byte, ``shape`` a number in ``shapes``, ``first`` the index of the nest's first item in the sequence.
    """

    start: Int64Array
    shape: Int64Array
    first: Int64Array
    shapes: Shapes

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Nest]:
        for start, shape in zip(self.start.tolist(), self.shape.tolist(), strict=True):
            yield self.shapes.nest(start, shape)


def match(offsets: Int64Array, lengths: Int64Array, groups: Int64Array | None = None) -> Nests:
    """The loop nests that a sequence of accesses consists of. Nothing is lost: their expansions are the sequence.

    A nest of any depth whose loops have three iterations or more (four, if one grows) is found as
    the loops that made it, in canonical form, alone or among others: no loop only continues where
    the loop inside it ends, and nothing grows that need not grow. For loops of two iterations this
    holds if the nest is alone and has other loops, too; among others, two of anything may be a loop
    of another nest. The same is true for rows whose step to the next row happens to be the step
    inside them.

    Accesses that repeat no step stay nests of one. Two of them become a loop only if they stand by
    themselves, because any two neighbours would be a loop.

    Args:
        offsets: bytes, >= 0, shape (accesses,), in the order of access.
        lengths: bytes, the same shape.
        groups: the same shape; several sequences in one call, one after the other: no nest reaches over their ends.

    >>> list(match(np.array([0, 50, 20, 70, 40, 90, 7]), np.full(7, 8)))[0]
    Nest(start=0, length=8, loops=(Loop(stride=20, count=3), Loop(stride=50, count=2)), growth=())
    """
    shapes = Shapes(lengths)
    return match_shapes(offsets, shapes.single(lengths), np.zeros_like(offsets) if groups is None else groups, shapes)


def match_shapes(
    starts: Int64Array, shape: Int64Array, groups: Int64Array, shapes: Shapes, lone_pairs: bool = True
) -> Nests:
    """As `match`, for a sequence of items that have shapes already.

    Without ``lone_pairs`` two single accesses that stand by themselves stay two nests.
    """
    start, first = starts, np.arange(len(starts), dtype=np.int64)
    while True:
        low, count, lone = _loops(start, shape, groups, shapes, lone_pairs)
        sure = ~lone
        free = ~covered(len(start), low[sure], count[sure])
        grown = find_growing(Level(start, shape, groups, free), shapes)
        if sure.any() or len(grown.low):
            low, count = low[sure], count[sure]
        elif len(low):  # nothing else is left: two that stand by themselves are a loop
            free = ~covered(len(start), low, count)
        else:
            break
        kept = free & ~covered(len(start), grown.low, grown.items) if len(grown.low) else free
        kept[low] = kept[grown.low] = True
        at = np.flatnonzero(kept)
        of_loops = shapes.loop(start[low + 1] - start[low], count, shape[low])
        shape = shape.copy()
        shape[low], shape[grown.low] = of_loops, grown.shape
        start, shape, groups, first = start[at], shape[at], groups[at], first[at]
    return _joined(start, shape, groups, first, shapes)


def _loops(
    start: Int64Array, shape: Int64Array, groups: Int64Array, shapes: Shapes, lone_pairs: bool
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """The loops of one level: (first item, number of items, whether it is a lone pair), in order, without overlap."""
    step = np.diff(start)
    link = (shape[1:] == shape[:-1]) & (groups[1:] == groups[:-1])
    again = np.zeros(len(link) + 1, np.bool_)  # a link that goes on with the step of the one before
    again[1:-1] = link[1:] & link[:-1] & (step[1:] == step[:-1])
    if not again.any() and not (link[2:] & link[1:-1] & link[:-2] & (step[2:] == step[:-2])).any():
        # No step returns, as among random accesses: then only two that stand by themselves are a loop.
        beside = np.append(False, link[:-1]) | np.append(link[1:], False)
        low = np.flatnonzero(link & ~beside)
        low = low[lone_pairs | (shapes.size[shape[low]] > 1)]
        return low, np.full(len(low), 2), np.ones(len(low), np.bool_)
    low, high = np.flatnonzero(link & ~again[:-1]), np.flatnonzero(link & ~again[1:]) + 1  # the first and the last item
    steps, count = high - low, np.full(len(low), 2)
    touch = high[:-1] == low[1:]  # a run and the next one both want the item between them
    alone = steps == 1
    beside = np.zeros_like(alone)  # beside a long run
    beside[1:] = touch & ~alone[:-1]
    beside[:-1] |= touch & ~alone[1:]

    # The item goes to the longer run. Runs of one step that touch only runs of one step are left to
    # _pairs.
    chosen = ~alone
    long = np.flatnonzero(chosen)
    if len(long):
        left_wins = np.append(False, touch)[long] & (steps[long - 1] >= steps[long])
        right_wins = np.append(touch, False)[long] & (steps[long] < steps.take(long + 1, mode="clip"))
        low[long] += left_wins
        count[long] = steps[long] + 1 - left_wins - right_wins
        chosen[long] = count[long] >= 2

    lone = np.zeros_like(alone)
    pair = alone & ~beside
    pairs = np.flatnonzero(pair)
    if len(pairs):
        joined = (pair[1:] & pair[:-1] & touch)[pairs[:-1]]
        single = pairs[np.append(True, ~joined) & np.append(~joined, True)]
        lone[single[lone_pairs | (shapes.size[shape[low[single]]] > 1)]] = True
        chosen |= lone
        chosen[pairs[_pairs(step[low[pairs]], joined)]] = True
    at = np.flatnonzero(chosen)
    low, count, lone = low[at], count[at], lone[at]
    return _halved(low, count, lone, step[low], shape[low], groups[low])


def _pairs(step: Int64Array, joined: BoolArray) -> BoolArray:
    """Which single steps become loops of two: steps that return at every second place (50 in 0 50 20 70 40 90), those
    that return more often first. ``joined``: a step and the next one both want the item between
    them."""
    pairs = np.zeros(len(step), np.bool_)
    again = _again(step, joined)
    if again.any():
        # Among random steps such steps are few: it is enough to look at the steps around them.
        around = np.zeros(len(step) + 4, np.bool_)
        for distance in range(5):
            around[distance : distance + len(step)] |= again
        near = np.flatnonzero(around[3:-1])
        pairs[near] = _best_pairs(step[near], joined[near[:-1]] & (np.diff(near) == 1))
    return pairs


def _again(step: Int64Array, joined: BoolArray) -> BoolArray:
    """Which steps equal the step two places before."""
    again = np.zeros(len(step), np.bool_)
    again[2:] = joined[:-1] & joined[1:] & (step[2:] == step[:-2])
    return again


def _best_pairs(step: Int64Array, joined: BoolArray) -> BoolArray:
    total = len(step)
    again = _again(step, joined)
    worth = np.empty(total, np.int64)
    for parity in (0, 1):
        begins = ~again[parity::2]
        heads = np.flatnonzero(begins)
        worth[parity::2] = _lengths(begins)[runs_of(heads, len(begins))]
    best = worth >= 2
    best[1:] &= ~joined | (worth[1:] >= worth[:-1])
    best[:-1] &= ~joined | (worth[:-1] >= worth[1:])

    # Two neighbours can both be the best only if they are equal: then every second one, from the
    # left.
    begins = best.copy()
    begins[1:] &= ~(best[:-1] & joined)
    begins[0] = True
    heads = np.flatnonzero(begins)
    second: BoolArray = (np.arange(total) - heads[runs_of(heads, total)]) % 2 == 1
    return best & ~second


def _halved(
    low: Int64Array, count: Int64Array, lone: BoolArray, step: Int64Array, shape: Int64Array, groups: Int64Array
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """The loops; a loop that is two rows of a nest which happen to adjoin is cut in half.

    In 0 5 100 105 110 115 210 215 the rows 100 105 and 110 115 adjoin. Such a loop stands among
    loops of the same step and half the count, and lone pairs among these are certain. Never do more
    than two rows adjoin: otherwise their loop and the next one would be one loop.
    """
    if not len(low) or count.min() == count.max():
        return low, count, lone
    chained = (low[1:] == low[:-1] + count[:-1]) & (step[1:] == step[:-1]) & (shape[1:] == shape[:-1])
    begins = np.ones(len(low), np.bool_)
    begins[1:] = ~chained | (groups[1:] != groups[:-1])
    heads, chain = np.flatnonzero(begins), np.cumsum(begins) - 1
    least, most = np.minimum.reduceat(count, heads), np.maximum.reduceat(count, heads)
    halves = (count == least[chain]) | (count == 2 * least[chain])
    regular: BoolArray = np.logical_and.reduceat(halves, heads) & (most == 2 * least)
    halve = regular[chain] & (count == most[chain])
    pieces = np.repeat(np.arange(len(low)), 1 + halve)
    low, count, second = low[pieces], np.where(halve, count // 2, count)[pieces], np.zeros(len(pieces), np.bool_)
    second[1:] = pieces[1:] == pieces[:-1]
    return np.where(second, low + count, low), count, (lone & ~regular[chain])[pieces]


def _joined(start: Int64Array, shape: Int64Array, groups: Int64Array, first: Int64Array, shapes: Shapes) -> Nests:
    """Rejoin what one loop can express: neighbours of which the second continues where the first ends."""
    at = np.flatnonzero((shape[:-1] >= shapes.singles) & (groups[1:] == groups[:-1]))
    one, other = shape[at], shape[at + 1]
    same = (shapes.child[other] == shapes.child[one]) & (shapes.stride[other] == shapes.stride[one])
    same &= start[at + 1] - start[at] == shapes.stride[one] * shapes.count[one]
    same &= ~shapes.grows[one] & ~shapes.grows[other]
    if same.any():
        begins = np.ones(len(start), np.bool_)
        begins[at[same] + 1] = False
        heads = np.flatnonzero(begins)
        many = np.flatnonzero(_lengths(begins) > 1)
        total = np.add.reduceat(shapes.count[shape], heads)
        whole = shape[heads[many]]
        shape = shape[heads]
        shape[many] = shapes.loop(shapes.stride[whole], total[many], shapes.child[whole])
        start, first = start[heads], first[heads]
    return Nests(start, shape, first, shapes)


def _lengths(begins: BoolArray) -> Int64Array:
    """The lengths of the runs that begin where ``begins`` is true."""
    return np.diff(np.append(np.flatnonzero(begins), len(begins))).astype(np.int64)
