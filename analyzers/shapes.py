"""The shapes of access patterns: a pattern without its place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.model import STILL, Growth, Int64Array, Loop, Nest

BoolArray = npt.NDArray[np.bool_]

PARTS = 64
"""Largest number of parts that a shape is cut into."""


class Cut(NamedTuple):
    """A shape in parts of equal shape at these offsets, which take turns of ``turn`` accesses."""

    shape: int
    turn: int
    offsets: Int64Array


class Shapes:
    """The shapes found so far, each once, by number.

    ``stride``, ``count`` and ``growth`` (a column of three) are those of the outermost loop, which
    ``grows`` if one of the three is not 0.
    ``child`` is the shape of its first iteration (-1: none, a single access). ``length`` is the
    length of the first request, ``size`` the total number of accesses and ``bytes`` their bytes.
    ``numbers`` is how many numbers say such a pattern: its first byte, the length, and each loop's
    stride, count and what it grows by. Shapes of one ``family`` differ only in the count of their
    outermost loop and the lengths of their requests; if ``bare`` is equal, too, only in the
    lengths.
    """

    def __init__(self, lengths: Int64Array) -> None:
        self._lengths = np.unique(lengths)
        self.singles = len(self._lengths)
        self.length: Int64Array = self._lengths
        self.stride: Int64Array = np.zeros(self.singles, np.int64)
        self.count: Int64Array = np.ones(self.singles, np.int64)
        self.growth: Int64Array = np.zeros((3, self.singles), np.int64)
        self.grows: BoolArray = np.zeros(self.singles, np.bool_)
        self.child: Int64Array = np.full(self.singles, -1, np.int64)
        self.size: Int64Array = np.ones(self.singles, np.int64)
        self.bytes: Int64Array = self._lengths
        self.numbers: Int64Array = np.full(self.singles, 2, np.int64)
        self.family: Int64Array = np.zeros(self.singles, np.int64)
        self.bare: Int64Array = np.zeros(self.singles, np.int64)
        self._numbers: dict[tuple[int, ...], int] = {}
        self._families: dict[tuple[int, ...], int] = {}
        self._bares: dict[tuple[int, int], int] = {}
        self._cuts: dict[int, list[Cut]] = {}

    def single(self, lengths: Int64Array) -> Int64Array:
        """The shapes of single accesses with these lengths, which must be those that the table was made with."""
        return np.searchsorted(self._lengths, lengths).astype(np.int64)

    def loop(self, stride: Int64Array, count: Int64Array, child: Int64Array) -> Int64Array:
        """The shapes that repeat ``child`` ``count`` times, ``stride`` bytes apart.

        If the outer stride is the inner stride times the inner count, the two loops become one, so
        that equal patterns have equal numbers.
        """
        # Neighbours are mostly equal: what follows is computed once for each run of equal ones.
        begins = np.ones(len(child), np.bool_)
        begins[1:] = (stride[1:] != stride[:-1]) | (count[1:] != count[:-1]) | (child[1:] != child[:-1])
        stride, count, child = stride[begins], count[begins], child[begins]
        one = (self.child[child] >= 0) & (stride == self.stride[child] * self.count[child])
        one &= ~self.grows[child]
        stride = np.where(one, self.stride[child], stride)
        count = np.where(one, self.count[child] * count, count)
        child = np.where(one, self.child[child], child)
        numbers: Int64Array = self.row(stride, count, child)[np.cumsum(begins) - 1]
        return numbers

    def row(self, stride: Int64Array, count: Int64Array, child: Int64Array) -> Int64Array:
        """The shapes of first rows of growing loops: loops that may have a count of 1, and are not joined."""
        return self._known(np.stack((stride, count, child)), self.size[child] * count, self.bytes[child] * count)

    def grown(
        self,
        stride: Int64Array,
        count: Int64Array,
        child: Int64Array,
        growth: Int64Array,
        size: Int64Array,
        nbytes: Int64Array,
    ) -> Int64Array:
        """The shapes whose first iteration is ``child`` and that grow by ``growth``, of shape (3, shapes)."""
        return self._known(np.vstack((stride, count, child, growth)), size, nbytes)

    def _known(self, keys: Int64Array, size: Int64Array, nbytes: Int64Array) -> Int64Array:
        """The numbers of the shapes with these keys, a column each; new ones are added."""
        order = np.lexsort(keys)
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = np.any(keys[:, order[1:]] != keys[:, order[:-1]], axis=0)
        known: list[int] = []
        added: list[int] = []
        for place, key in zip(order[fresh].tolist(), map(tuple, keys[:, order[fresh]].T.tolist()), strict=True):
            number = self._numbers.setdefault(key, len(self.child) + len(added))
            known.append(number)
            if number == len(self.child) + len(added):
                added.append(place)
        if added:
            self._add(keys[:, added], size[added], nbytes[added])
        numbers = np.empty(keys.shape[1], np.int64)
        numbers[order] = np.array(known, np.int64)[np.cumsum(fresh) - 1]
        return numbers

    def _add(self, keys: Int64Array, size: Int64Array, nbytes: Int64Array) -> None:
        stride, count, child = keys[:3]
        growth = keys[3:] if len(keys) > 3 else np.zeros((3, len(child)), np.int64)
        families = zip(*np.vstack((stride, growth, self.bare[child])).tolist(), strict=True)
        family = [self._families.setdefault(key, len(self._families) + 1) for key in families]
        bares = zip(family, count.tolist(), strict=True)
        bare = [self._bares.setdefault(key, len(self._bares) + 1) for key in bares]
        self.stride = np.concatenate((self.stride, stride))
        self.count = np.concatenate((self.count, count))
        self.growth = np.concatenate((self.growth, growth), axis=1)
        self.grows = np.append(self.grows, growth.any(axis=0))
        self.length = np.concatenate((self.length, self.length[child]))
        self.size = np.concatenate((self.size, size))
        self.bytes = np.concatenate((self.bytes, nbytes))
        self.numbers = np.concatenate((self.numbers, self.numbers[child] + 2 + np.count_nonzero(growth, axis=0)))
        self.family = np.concatenate((self.family, np.array(family, np.int64)))
        self.bare = np.concatenate((self.bare, np.array(bare, np.int64)))
        self.child = np.concatenate((self.child, child))

    def cuts(self, shape: int) -> list[Cut]:
        """The ways to cut this shape into the turns of a loop, or of loops directly inside each other.

        The first one leaves it whole. The others make 2 to PARTS parts. No loop around the parts grows.
        """
        if shape in self._cuts:
            return self._cuts[shape]
        found = self._cuts[shape] = [Cut(shape, int(self.size[shape]), np.zeros(1, np.int64))]
        outer: list[int] = []
        while self.child[shape] >= 0:
            inner, offsets = shape, np.zeros(1, np.int64)
            while self.child[inner] >= 0 and not self.grows[inner]:
                turns = np.arange(self.count[inner]) * self.stride[inner]
                inner = int(self.child[inner])
                if len(offsets) * len(turns) > PARTS:
                    break
                offsets = np.add.outer(offsets, turns).ravel()
                found.append(Cut(self._inside(outer, inner), int(self.size[inner]), offsets))
            if self.grows[shape]:
                break
            outer.append(shape)
            shape = int(self.child[shape])
        return found

    def _inside(self, outer: list[int], shape: int) -> int:
        """The shape that repeats this one as the outermost loops of the ``outer`` ones do."""
        number = np.array([shape])
        for loop in reversed(outer):
            number = self.loop(self.stride[[loop]], self.count[[loop]], number)
        return int(number[0])

    def nest(self, start: int, shape: int) -> Nest:
        """The nest of this shape at ``start``."""
        length, loops, growth = int(self.length[shape]), [], []
        while self.child[shape] >= 0:
            loops.append(Loop(int(self.stride[shape]), int(self.count[shape])))
            growth.append(Growth(*self.growth[:, shape].tolist()))
            shape = int(self.child[shape])
        return Nest(start, length, tuple(loops), tuple(growth) if any(grows != STILL for grows in growth) else ())
