"""What local patterns are made of: accesses and nests of some sequences, and the calls behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.errors import FormatError
from pdla.model import Int64Array, Nest
from pdla.traces.blocks import TOO_FAR, Block

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64 | np.bool_] | slice
"""Some of several rows, in some order. With a slice they are not copied."""
_NONE = np.empty(0, np.int64)
_COLUMNS = ("stride", "count", "size", "bytes", "growth")


@dataclass(frozen=True, eq=False)
class Tally:
    """For each item its MPI calls: how many, the first and the last, when, and the bytes [low, high)."""

    calls: Int64Array
    first: Int64Array
    last: Int64Array
    t_start: FloatArray
    t_end: FloatArray
    low: Int64Array
    high: Int64Array

    def take(self, rows: Rows) -> Tally:
        """Some of the items."""
        return Tally(*(getattr(self, column.name)[rows] for column in fields(self)))

    def total(self, heads: Int64Array) -> Tally:
        """The total of each group of neighbours; the groups begin at ``heads``. A call that continues counts once."""
        number = np.diff(np.append(heads, len(self.calls)))
        many = np.flatnonzero(number > 1)
        if not len(many):
            return self
        at: Rows
        total, inside, at = self.take(heads), self, slice(None)
        if 2 * len(many) < len(heads):  # random accesses are mostly groups of one, of which the total is a copy
            inside, at = self.take(spread(heads[many], number[many])), many
            heads = np.cumsum(number[many]) - number[many]
        again = np.zeros(len(inside.calls), np.bool_)
        again[1:] = inside.first[1:] == inside.last[:-1]
        again[heads] = False
        total.calls[at] = np.add.reduceat(inside.calls - again, heads)
        total.last[at] = inside.last[np.append(heads, len(inside.calls))[1:] - 1]
        for least in ("t_start", "low"):
            getattr(total, least)[at] = np.minimum.reduceat(getattr(inside, least), heads)
        for most in ("t_end", "high"):
            getattr(total, most)[at] = np.maximum.reduceat(getattr(inside, most), heads)
        return total

    @classmethod
    def joined(cls, parts: Sequence[Tally]) -> Tally:
        """The parts one after the other."""
        return cls(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)))


@dataclass(frozen=True, eq=False)
class Items:
    """Accesses and nests, sequence by sequence, each in its order.

    A *sequence* is what one rank does to one *stream*: a file, an operation, collective or not.

    Attributes:
        rank, stream: of each sequence, in this order; ``stream`` is ``(file * 2 + written) * 2 +
            collective``.
        sequence: of each item, an index into these.
        lane: items of a sequence in different lanes overlap in time and must not be combined.
        start, shape: of each item, its byte, and its number in ``shapes``.
        tally: the calls of the items.
        bound: which items are the second half of a couple; the item before is the first half.
        place: the numbers of the items in an Ancestry; empty if there is none.
    """

    rank: Int64Array
    stream: Int64Array
    sequence: Int64Array
    lane: Int64Array
    start: Int64Array
    shape: Int64Array
    shapes: Shapes
    tally: Tally
    bound: BoolArray
    place: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def group(self) -> Int64Array:
        """A number for each run of equal sequence and lane."""
        return numbered(self.sequence, self.lane) if self.lane.any() else self.sequence

    @property
    def size(self) -> Int64Array:
        """Number of accesses in each item."""
        return self.shapes.size[self.shape]

    def take(self, rows: Rows) -> Items:
        """Some of the items."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)  # once, not for each column
            if len(rows) == len(self):
                return self
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in ("sequence", "lane", "start", "shape", "bound")},
            tally=self.tally.take(rows),
            place=self.place[rows] if len(self.place) else self.place,
        )


class Ancestry:
    """Records which items became part of which, to find the final owner of each access."""

    def __init__(self) -> None:
        self.known = 0
        self._links: list[tuple[Int64Array, Int64Array]] = []
        self._read: list[tuple[Int64Array, Int64Array]] = []

    def born(self, count: int) -> Int64Array:
        """Numbers for new items."""
        self.known += count
        return np.arange(self.known - count, self.known, dtype=np.int64)

    def read(self, size: Int64Array) -> Int64Array:
        """Numbers for items that stand for the next accesses of the trace, ``size`` each."""
        places = self.born(len(size))
        self._read.append((places, size))
        return places

    def link(self, children: Int64Array, parents: Int64Array) -> None:
        """Record that ``children`` became part of ``parents``."""
        self._links.append((children, parents))

    def owners(self) -> Int64Array:
        """For each access of the trace the item that it ended in."""
        parent = np.arange(self.known, dtype=np.int64)
        for children, parents in self._links:
            parent[children] = parents
        above = parent[parent]
        while not np.array_equal(above, parent):
            parent, above = above, above[above]
        return np.concatenate([_NONE, *(np.repeat(parent[places], size) for places, size in self._read)])


def numbered(*keys: Int64Array) -> Int64Array:
    """Numbers for runs of equal keys."""
    begins = np.zeros(len(keys[0]), np.bool_)
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return np.cumsum(begins)


def sorted_by(*keys: Int64Array) -> Rows:
    """The rows in the order of the last key, then of the one before it, and so on: all of them, if they are already.

    Most are, and then nothing needs to be moved.
    """
    rising, equal = np.ones(max(len(keys[0]) - 1, 0), np.bool_), np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in reversed(keys):
        rising &= ~equal | (key[1:] >= key[:-1])
        equal &= key[1:] == key[:-1]
    return slice(None) if rising.all() else np.lexsort(keys)


def heads_of(*keys: npt.NDArray[np.int64 | np.bool_]) -> Int64Array:
    """Where runs of equal keys begin."""
    begins = np.ones(len(keys[0]), np.bool_)
    begins[1:] = keys[0][1:] != keys[0][:-1]
    for key in keys[1:]:
        begins[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(begins)


def runs_of(heads: Int64Array, total: int) -> Int64Array:
    """For each of so many items the number of its run; runs begin at ``heads``."""
    if 4 * len(heads) < total:
        return np.repeat(np.arange(len(heads)), np.diff(np.append(heads, total)))
    begins = np.zeros(total, np.bool_)
    begins[heads] = True
    return np.cumsum(begins) - 1


def spread(start: Int64Array, count: Int64Array) -> Int64Array:
    """The indices [start, start + count) of each pair, one after the other."""
    ends = np.cumsum(count)
    return np.repeat(start - (ends - count), count) + np.arange(ends[-1] if len(ends) else 0)


def _extents(forms: Sequence[Nest]) -> Int64Array:
    """[low, high) of each form, relative to its first byte."""
    try:
        return np.array([nest.extent for nest in forms], np.int64)
    except OverflowError:
        raise FormatError(TOO_FAR) from None


def items_of(block: Block, ancestry: Ancestry | None = None) -> Items:
    """The items of a block's calls.

    Raises:
        FormatError: a call touches bytes that cannot be in a file.
    """
    rank = block.rank
    heads = heads_of(rank, block.file, block.written, block.collective)
    stream = (block.file[heads].astype(np.int64) * 2 + block.written[heads]) * 2 + block.collective[heads]
    items = len(block.offset)
    first = heads if block.of is None else np.searchsorted(block.of, heads)
    count = np.diff(np.append(first, items))
    ranks = rank[heads].astype(np.int64)
    order = np.lexsort((stream, ranks))
    ranks, streams, count = ranks[order], stream[order], count[order]
    rows: Int64Array | slice = slice(None)
    if np.any(order[1:] < order[:-1]):
        rows = spread(first[order], count)
    of_run = numbered(ranks, streams)
    sequences = np.flatnonzero(np.diff(of_run, prepend=-1))
    sequence = np.repeat(of_run, count)

    call = rows if block.of is None else block.of[rows]
    start, length, form = (column[rows] for column in (block.offset, block.length, block.form))
    shapes, shape = _shapes(length, form, block.forms)
    low, high = start, start + length
    if block.forms:
        nests = np.flatnonzero(form >= 0)
        extents = _extents(block.forms)
        low = start.copy()
        low[nests] = start[nests] + extents[form[nests], 0]
        high[nests] = start[nests] + extents[form[nests], 1]
    place = _NONE
    if ancestry is not None:
        of_form = np.array([*(nest.requests for nest in block.forms), 1], np.int64)
        place = ancestry.read(of_form[block.form])[rows]
    return Items(
        ranks[sequences],
        streams[sequences],
        sequence,
        np.zeros(items, np.int64),
        start,
        shape,
        shapes,
        Tally(
            np.ones(items, np.int64),
            block.call[call],
            block.call[call],
            block.t_start[call],
            block.t_end[call],
            low,
            high,
        ),
        np.zeros(items, np.bool_),
        place,
    )


def _shapes(length: Int64Array, form: Int64Array, forms: Sequence[Nest]) -> tuple[Shapes, Int64Array]:
    """The shapes of accesses of these lengths, or of nests if ``form`` says so."""
    if len(length) and length.min() == length.max():
        shapes = Shapes(length[:1])
        shape = np.zeros(len(length), np.int64)
    else:
        shapes = Shapes(length)
        shape = shapes.single(length)
    if forms:
        of_form = []
        for one in forms:
            number = shapes.single(np.array([one.length]))
            for stride, count in reversed(one.loops):
                number = shapes.loop(np.array([stride]), np.array([count]), number)
            of_form.append(number)
        shape = np.where(form >= 0, np.concatenate(of_form)[form], shape)
    return shapes, shape


def joined(parts: Sequence[Items]) -> Items:
    """The items of several parts together; those of a sequence are in the order of the parts."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    shapes, numbers = united([(part.shapes, part.shape) for part in parts])
    lane, start, bound, place = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("lane", "start", "bound", "place")
    )
    keys = np.concatenate([np.stack((part.rank, part.stream)) for part in parts], axis=1)
    keys, of_part = np.unique(keys, axis=1, return_inverse=True)
    numbers_of = np.split(of_part.ravel(), np.cumsum([len(part.rank) for part in parts])[:-1])
    sequence = np.concatenate([number[part.sequence] for number, part in zip(numbers_of, parts, strict=True)])
    order = sorted_by(lane, sequence) if lane.any() else sorted_by(sequence)
    sequence = sequence[order]
    present = sequence[heads_of(sequence)]
    if len(present) < keys.shape[1]:
        sequence = np.searchsorted(present, sequence)
    tally = Tally.joined([part.tally for part in parts])
    rank, stream = keys[:, present]
    found = Items(rank, stream, sequence, lane, start, np.concatenate(numbers), shapes, tally, bound, place)
    return replace(found.take(order), sequence=sequence)


def united(parts: Sequence[tuple[Shapes, Int64Array]]) -> tuple[Shapes, list[Int64Array]]:
    """One table for the shapes of several tables, and their numbers in it. It does not depend on how they were found.

    Only shapes in use are taken over.
    """
    depths = [_depth(shapes, numbers) for shapes, numbers in parts]
    singles = [shapes.length[depth == 0] for (shapes, _), depth in zip(parts, depths, strict=True)]
    table = Shapes(np.concatenate([_NONE, *singles]))
    new = [np.full(len(depth), -1, np.int64) for depth in depths]
    for (shapes, _), depth, number in zip(parts, depths, new, strict=True):
        number[depth == 0] = table.single(shapes.length[depth == 0])
    for level in range(1, max((int(depth.max(initial=0)) for depth in depths), default=0) + 1):
        for grows in (False, True):
            chosen = [
                np.flatnonzero((depth == level) & (shapes.grows == grows))
                for (shapes, _), depth in zip(parts, depths, strict=True)
            ]
            of_level = [
                (number[shapes.child[at]], *(getattr(shapes, name).T[at] for name in _COLUMNS))
                for (shapes, _), at, number in zip(parts, chosen, new, strict=True)
            ]
            child, stride, count, size, nbytes, growth = map(np.concatenate, zip(*of_level, strict=True))
            if not len(child):
                continue
            if grows:
                numbers = table.grown(stride, count, child, growth.T, size, nbytes)
            else:
                numbers = table.row(stride, count, child)
            ends = np.cumsum([len(at) for at in chosen])
            for number, at, part in zip(new, chosen, np.split(numbers, ends[:-1]), strict=True):
                number[at] = part
    return table, [number[numbers] for (_, numbers), number in zip(parts, new, strict=True)]


def _depth(shapes: Shapes, numbers: Int64Array) -> Int64Array:
    """The number of loops of each shape that these consist of; -1 for shapes that are not needed."""
    depth = np.full(len(shapes.child), -1, np.int64)
    one = len(numbers) > 0 and len(shapes.child) == 1
    layers = [np.zeros(1, np.int64) if one else np.flatnonzero(np.bincount(numbers, minlength=1))]
    while len(layers[-1]):
        inner = shapes.child[layers[-1]]
        layers.append(np.unique(inner[inner >= 0]))
    # A shape comes after its child; a shape that is needed at several depths has the same number of
    # loops in each.
    for layer in reversed(layers):
        inner = shapes.child[layer]
        depth[layer] = np.where(inner >= 0, depth[inner] + 1, 0)
    return depth
