"""Template matching on sequences of accesses: contiguous, fixed-strided and nested (kd) strided, found level by level.

A *shape* is an access pattern without its place: a request length and the loops around it. A level looks at neighbours
of the same shape, makes a loop of every run of equal steps, and hands the loops as items to the next level. It ends
when no neighbours are left that make a loop, so that the time is linear in the accesses and the depth (PDLA 3.6.1 moves
a cursor over the records instead; the templates are those of Byna et al., SC'08).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.model import Int64Array, Loop

BoolArray = npt.NDArray[np.bool_]


class Nest(NamedTuple):
    """Accesses of ``length`` bytes at ``start + sum(i_k * stride_k)``, outermost loop first; no loops: one access."""

    start: int
    length: int
    loops: tuple[Loop, ...]


class Shapes:
    """The shapes met so far, each once, by number.

    ``stride`` and ``count`` are those of the outermost loop, ``child`` is the shape that it repeats (-1: none, a single
    access), ``length`` is the request length and ``size`` the accesses in all.
    """

    def __init__(self, lengths: Int64Array) -> None:
        self._lengths = np.unique(lengths)
        singles = len(self._lengths)
        self.length: Int64Array = self._lengths
        self.stride: Int64Array = np.zeros(singles, np.int64)
        self.count: Int64Array = np.ones(singles, np.int64)
        self.child: Int64Array = np.full(singles, -1, np.int64)
        self.size: Int64Array = np.ones(singles, np.int64)
        self._numbers: dict[tuple[int, int, int], int] = {}

    def single(self, lengths: Int64Array) -> Int64Array:
        """The shapes of single accesses with these lengths (which the table was made with)."""
        return np.searchsorted(self._lengths, lengths).astype(np.int64)

    def loop(self, stride: Int64Array, count: Int64Array, child: Int64Array) -> Int64Array:
        """The shapes that repeat ``child`` ``count`` times, ``stride`` bytes apart.

        Two loops that are one (the outer stride is the inner stride times the inner count) become one, so that equal
        patterns have equal numbers.
        """
        one = (self.child[child] >= 0) & (stride == self.stride[child] * self.count[child])
        stride = np.where(one, self.stride[child], stride)
        count = np.where(one, self.count[child] * count, count)
        child = np.where(one, self.child[child], child)

        order = np.lexsort((stride, count, child))
        keys = np.stack((stride[order], count[order], child[order]))
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
        known: list[int] = []
        added: list[tuple[int, int, int]] = []
        for key in map(tuple, keys[:, fresh].T.tolist()):
            number = self._numbers.setdefault(key, len(self.child) + len(added))
            known.append(number)
            if number == len(self.child) + len(added):
                added.append(key)
        if added:
            new = np.array(added, np.int64).T
            self.stride = np.concatenate((self.stride, new[0]))
            self.count = np.concatenate((self.count, new[1]))
            self.length = np.concatenate((self.length, self.length[new[2]]))
            self.size = np.concatenate((self.size, self.size[new[2]] * new[1]))
            self.child = np.concatenate((self.child, new[2]))
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.array(known, np.int64)[np.cumsum(fresh) - 1]
        return numbers

    def loops(self, shape: int) -> tuple[Loop, ...]:
        """The loops of a shape, outermost first."""
        found = []
        while self.child[shape] >= 0:
            found.append(Loop(int(self.stride[shape]), int(self.count[shape])))
            shape = int(self.child[shape])
        return tuple(found)


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
            yield Nest(start, int(self.shapes.length[shape]), self.shapes.loops(shape))


def match(offsets: Int64Array, lengths: Int64Array, groups: Int64Array | None = None) -> Nests:
    """The loop nests that a sequence of accesses consists of, with nothing lost: their expansions are the sequence.

    A nest of any depth comes back as the one nest that made it, in its shortest form. Accesses that repeat no step stay
    nests of one; two of them are a loop only when they stand by themselves, because any two neighbours would be.

    Args:
        offsets: bytes, >= 0, shape (accesses,), in the order of access.
        lengths: bytes, the same shape.
        groups: the same shape; several sequences in one call, one after the other: no nest reaches over their ends.

    >>> list(match(np.array([0, 50, 20, 70, 40, 90, 7]), np.full(7, 8)))[0]
    Nest(start=0, length=8, loops=(Loop(stride=20, count=3), Loop(stride=50, count=2)))
    """
    shapes = Shapes(lengths)
    return match_shapes(offsets, shapes.single(lengths), np.zeros_like(offsets) if groups is None else groups, shapes)


def match_shapes(
    starts: Int64Array, shape: Int64Array, groups: Int64Array, shapes: Shapes, lone_pairs: bool = True
) -> Nests:
    """As `match`, for a sequence of items that have a shape already.

    Without ``lone_pairs`` two single accesses that stand by themselves stay two.
    """
    start, first = starts, np.arange(len(starts), dtype=np.int64)
    while True:
        low, count = _loops(start, shape, groups, shapes, lone_pairs)
        if not len(low):
            break
        inside = np.zeros(len(start) + 1, np.int64)
        inside[low + 1] += 1
        inside[low + count] -= 1
        kept = np.cumsum(inside)[:-1] == 0
        shape = shape.copy()
        shape[low] = shapes.loop(start[low + 1] - start[low], count, shape[low])
        start, shape, groups, first = start[kept], shape[kept], groups[kept], first[kept]
    return _joined(start, shape, groups, first, shapes)


def expand(nest: Nest) -> Int64Array:
    """The offsets of a nest's accesses in order."""
    offsets = np.array([nest.start], np.int64)
    for loop in nest.loops:
        offsets = (offsets[:, None] + np.arange(loop.count, dtype=np.int64) * loop.stride).ravel()
    return offsets


def _loops(
    start: Int64Array, shape: Int64Array, groups: Int64Array, shapes: Shapes, lone_pairs: bool
) -> tuple[Int64Array, Int64Array]:
    """The loops of one level: (first item, number of items), in order and without overlap."""
    step = np.diff(start)
    links = np.flatnonzero((shape[1:] == shape[:-1]) & (groups[1:] == groups[:-1]))
    begins = np.ones(len(links), np.bool_)
    begins[1:] = (np.diff(links) != 1) | (step[links[1:]] != step[links[:-1]])
    low = links[begins]
    steps = _lengths(begins)
    high = low + steps  # the last item
    touch = high[:-1] == low[1:]  # a run and the next one both want the item between them
    alone = steps == 1
    long_left, long_right = np.zeros_like(alone), np.zeros_like(alone)
    long_left[1:] = touch & ~alone[:-1]
    long_right[:-1] = touch & ~alone[1:]

    # The item goes to the longer run. Runs of one step that touch only their like are left to _pairs.
    left_wins = touch & (steps[:-1] >= steps[1:])
    right_wins = touch & ~left_wins
    count = steps + 1
    long_low = low.copy()
    long_low[1:] += left_wins
    count[1:] -= left_wins
    count[:-1] -= right_wins
    chosen = ~alone & (count >= 2)

    pairs = np.flatnonzero(alone & ~long_left & ~long_right)
    if len(pairs):
        allowed = lone_pairs | (shapes.size[shape[low[pairs]]] > 1)
        joined = (np.diff(pairs) == 1) & touch[pairs[:-1]]
        taken = pairs[_pairs(step[low[pairs]], joined, allowed)]
        chosen[taken] = True
        long_low[taken], count[taken] = low[taken], 2
    low, count = long_low[chosen], count[chosen]
    return _halved(low, count, step[low], shape[low], groups[low])


def _pairs(step: Int64Array, joined: BoolArray, allowed: npt.NDArray[np.bool_] | bool) -> BoolArray:
    """Which single steps become loops of two.

    Those that come back at every second place (50 in 0 50 20 70 40 90), the more often the better, and those that touch
    no other (if allowed).
    """
    total = len(step)
    ends_left, ends_right = np.ones(total, np.bool_), np.ones(total, np.bool_)
    ends_left[1:], ends_right[:-1] = ~joined, ~joined
    again = np.zeros(total, np.bool_)  # the same as two places before
    again[2:] = joined[:-1] & joined[1:] & (step[2:] == step[:-2])
    worth = np.empty(total, np.int64)
    for parity in (0, 1):
        begins = ~again[parity::2]
        runs = _lengths(begins)
        worth[parity::2] = runs[np.cumsum(begins) - 1]
    left, right = np.zeros(total, np.int64), np.zeros(total, np.int64)
    left[1:], right[:-1] = worth[:-1] * joined, worth[1:] * joined
    best = np.where(ends_left & ends_right, allowed, (worth >= 2) & (worth >= left) & (worth >= right))

    # Neighbours can only both be the best when they are equal: then every second one, from the left.
    begins = best.copy()
    begins[1:] &= ~(best[:-1] & joined)
    places = np.arange(total)
    position = places - np.maximum.accumulate(np.where(begins, places, 0))
    second: BoolArray = position % 2 == 1
    return best & ~second


def _halved(
    low: Int64Array, count: Int64Array, step: Int64Array, shape: Int64Array, groups: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """The loops, with those cut in half that are two rows of a nest which happen to adjoin.

    In 0 5 100 105 110 115 210 215 the rows 100 105 and 110 115 do. Such a loop stands among loops of the same step and
    half the count. Never do more than two rows adjoin: then their loop and the next would be one.
    """
    if len(low) < 2:
        return low, count
    before, after = count[:-1], count[1:]
    chained = (low[1:] == low[:-1] + before) & (step[1:] == step[:-1]) & (shape[1:] == shape[:-1])
    chained &= (groups[1:] == groups[:-1]) & ((before == after) | (before == 2 * after) | (2 * before == after))
    begins = np.ones(len(low), np.bool_)
    begins[1:] = ~chained
    heads, chain = np.flatnonzero(begins), np.cumsum(begins) - 1
    least = np.minimum.reduceat(count, heads)
    regular = np.maximum.reduceat(count, heads) == 2 * least  # so every count is the least or twice that
    halve = regular[chain] & (count == 2 * least[chain])
    pieces = np.repeat(np.arange(len(low)), 1 + halve)
    low, count, second = low[pieces], np.where(halve, count // 2, count)[pieces], np.zeros(len(pieces), np.bool_)
    second[1:] = pieces[1:] == pieces[:-1]
    return np.where(second, low + count, low), count


def _joined(start: Int64Array, shape: Int64Array, groups: Int64Array, first: Int64Array, shapes: Shapes) -> Nests:
    """Puts together again what one loop can say: neighbours of which the second goes on where the first ends."""
    stride, count, child = shapes.stride[shape], shapes.count[shape], shapes.child[shape]
    begins = np.ones(len(start), np.bool_)
    begins[1:] = (child[:-1] < 0) | (child[1:] != child[:-1]) | (stride[1:] != stride[:-1])
    begins[1:] |= (groups[1:] != groups[:-1]) | (np.diff(start) != stride[:-1] * count[:-1])
    if not begins.all():
        heads = np.flatnonzero(begins)
        many = np.flatnonzero(_lengths(begins) > 1)
        total = np.add.reduceat(count, heads)
        shape = shape[heads]
        shape[many] = shapes.loop(stride[heads[many]], total[many], child[heads[many]])
        start, first = start[heads], first[heads]
    return Nests(start, shape, first, shapes)


def _lengths(begins: BoolArray) -> Int64Array:
    """The lengths of the runs that begin where ``begins`` is true."""
    return np.diff(np.append(np.flatnonzero(begins), len(begins))).astype(np.int64)
