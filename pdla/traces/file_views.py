"""File views as loops, and what a call through a view touches.

A view is a datatype tiled at its extent from a displacement on (MPI 4.1, 14.3). Its tree is a
number system. A run is a leaf's contiguous bytes, and the loops are the digits of the run's number.
So a few divisions find a run from its number, and its number from a position in the data stream,
for an array of calls at once. Only what the calls touch is looked at.

Nodes begin at offset 0 (the rest goes into the displacement), and equal nodes have equal keys.
Views that differ only in where they begin, as the views of different ranks mostly do, are expanded
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.errors import FormatError
from pdla.model import Int64Array, Loop, Nest

BLOCK, LOOP, LIST, RUNS = range(4)  # typemap words, as in pdla/interpose/typemap.h
DEPTH = 32
NEST = 64
"""If a call has at least so many extents, they become nests if possible; fewer stay extents, as matching needs them."""

_LARGEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class _Runs:
    """A leaf: contiguous runs in the order of the data stream, with neighbours merged."""

    offsets: Int64Array
    lengths: Int64Array

    @cached_property
    def starts(self) -> Int64Array:
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def size(self) -> int:
        return int(self.lengths.sum())

    @property
    def runs(self) -> int:
        return len(self.offsets)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        return self.offsets.tobytes(), self.lengths.tobytes()

    def find(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The number of the run that holds each byte of the data stream, and how far into the run it is."""
        if self.runs == 1:
            return np.zeros_like(positions), positions
        found = np.searchsorted(self.starts, positions, side="right") - 1
        return found, positions - self.starts[found]

    def take(self, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(offsets, lengths) of the runs with these numbers."""
        return self.offsets[numbers], self.lengths[numbers]

    def begins(self, numbers: Int64Array) -> npt.NDArray[np.bool_]:
        """Which of these runs are the first of a part that stays apart from the part before it, even if they adjoin."""
        return np.zeros(len(numbers), np.bool_)


@dataclass(frozen=True, eq=False)
class _Loop:
    count: int
    stride: int
    child: _Node

    @property
    def size(self) -> int:
        return self.count * self.child.size

    @property
    def runs(self) -> int:
        return self.count * self.child.runs

    @property
    def key(self) -> tuple[Any, ...]:
        return self.count, self.stride, self.child.key

    def find(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        turns = positions // self.child.size
        found, within = self.child.find(positions - turns * self.child.size)
        return turns * self.child.runs + found, within

    def take(self, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
        turns = numbers // self.child.runs
        offsets, lengths = self.child.take(numbers - turns * self.child.runs)
        return offsets + turns * self.stride, lengths

    def begins(self, numbers: Int64Array) -> npt.NDArray[np.bool_]:
        return self.child.begins(numbers % self.child.runs)


@dataclass(frozen=True, eq=False)
class _List:
    """Children one after another; ``kinds`` says which of the few distinct ``children`` is at each offset."""

    offsets: Int64Array
    kinds: Int64Array
    children: tuple[_Node, ...]

    @cached_property
    def _size_ends(self) -> Int64Array:
        return np.cumsum(np.array([child.size for child in self.children], dtype=np.int64)[self.kinds])

    @cached_property
    def _run_ends(self) -> Int64Array:
        return np.cumsum(np.array([child.runs for child in self.children], dtype=np.int64)[self.kinds])

    @property
    def size(self) -> int:
        return int(self._size_ends[-1])

    @property
    def runs(self) -> int:
        return int(self._run_ends[-1])

    @cached_property
    def key(self) -> tuple[Any, ...]:
        return self.offsets.tobytes(), self.kinds.tobytes(), *(child.key for child in self.children)

    def find(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        places = np.searchsorted(self._size_ends, positions, side="right")
        found, within = np.empty_like(positions), np.empty_like(positions)
        for kind, child in enumerate(self.children):
            chosen = np.flatnonzero(self.kinds[places] == kind)
            place = places[chosen]
            number, within[chosen] = child.find(positions[chosen] - (self._size_ends[place] - child.size))
            found[chosen] = number + (self._run_ends[place] - child.runs)
        return found, within

    def take(self, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
        places = np.searchsorted(self._run_ends, numbers, side="right")
        offsets, lengths = np.empty_like(numbers), np.empty_like(numbers)
        for kind, child in enumerate(self.children):
            chosen = np.flatnonzero(self.kinds[places] == kind)
            place = places[chosen]
            offset, lengths[chosen] = child.take(numbers[chosen] - (self._run_ends[place] - child.runs))
            offsets[chosen] = offset + self.offsets[place]
        return offsets, lengths

    def begins(self, numbers: Int64Array) -> npt.NDArray[np.bool_]:
        runs = np.diff(self._run_ends, prepend=0)
        places = np.searchsorted(self._run_ends, numbers, side="right")
        within = numbers - (self._run_ends - runs)[places]
        found: npt.NDArray[np.bool_] = (within == 0) & (places > 0) & ((runs[places] > 1) | (runs[places - 1] > 1))
        for kind, child in enumerate(self.children):
            chosen = np.flatnonzero(self.kinds[places] == kind)
            found[chosen] |= child.begins(within[chosen])
        return found


_Node = _Runs | _Loop | _List


class _Parser:
    """Makes from typemap words the smallest tree that stands for the same runs; empty parts are dropped.

    Its functions return a node and the offset of the node.
    """

    def __init__(self, words: Int64Array) -> None:
        self.words = words
        self.place = 0

    def parse(self) -> tuple[int, _Node]:
        placed = self._node(0)
        if self.place != len(self.words):
            raise FormatError(f"a file view has {len(self.words)} typemap words, but its tree ends after {self.place}")
        return placed

    def _take(self, count: int) -> Int64Array:
        if count < 0 or count > len(self.words) - self.place:
            raise FormatError(f"the {len(self.words)} typemap words of a file view end in the middle of its tree")
        self.place += count
        return self.words[self.place - count : self.place]

    def _word(self) -> int:
        return int(self._take(1)[0])

    def _node(self, depth: int) -> tuple[int, _Node]:
        if depth > DEPTH:
            raise FormatError(f"the tree of a file view is deeper than {DEPTH}")
        kind = self._word()
        if kind == BLOCK:
            return _runs(np.zeros(1, dtype=np.int64), self._take(1))
        if kind == LOOP:
            count, stride = self._word(), self._word()
            return _loop(count, stride, *self._node(depth + 1))
        if kind == LIST:
            return self._list(self._word(), depth)
        if kind == RUNS:
            pairs = self._take(2 * self._word())
            return _runs(pairs[0::2], pairs[1::2])
        raise FormatError(f"the typemap words of a file view have a node of kind {kind} (only 0 to 3 are known)")

    def _list(self, count: int, depth: int) -> tuple[int, _Node]:
        offsets: list[int] = []
        kinds: list[int] = []
        children: dict[tuple[Any, ...], tuple[int, _Node]] = {}
        for _ in range(count):
            offset = self._word()
            inside, node = self._node(depth + 1)
            if node.size:
                offsets.append(offset + inside)
                kinds.append(children.setdefault(node.key, (len(children), node))[0])
        return _list(offsets, kinds, [node for _, node in children.values()])


def _runs(offsets: Int64Array, lengths: Int64Array) -> tuple[int, _Runs]:
    if len(lengths) and (lengths.min() < 0 or sum(lengths.tolist()) > _LARGEST):
        raise FormatError("a file view has a run of negative length, or more than 2**63 bytes")
    some = lengths > 0
    offsets, lengths = offsets[some], lengths[some]
    if len(offsets) == 0:
        return 0, _Runs(offsets, lengths)
    firsts = np.flatnonzero(np.append(True, offsets[1:] != offsets[:-1] + lengths[:-1]))
    return int(offsets[0]), _Runs(offsets[firsts] - offsets[0], np.add.reduceat(lengths, firsts))


def _loop(count: int, stride: int, offset: int, child: _Node) -> tuple[int, _Node]:
    if count < 0 or count * child.size > _LARGEST:
        raise FormatError(f"a file view has a loop of {count} turns over {child.size} bytes")
    if count == 0:
        return 0, _Runs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    if count == 1 or child.size == 0:
        return offset, child
    if child.runs == 1 and child.size == stride:
        return offset, _Runs(np.zeros(1, dtype=np.int64), np.array([count * stride]))
    return offset, _Loop(count, stride, child)


def _list(offsets: Sequence[int], kinds: Sequence[int], children: Sequence[_Node]) -> tuple[int, _Node]:
    if len(offsets) == 1:
        return offsets[0], children[0]
    if sum(children[kind].size for kind in kinds) > _LARGEST:
        raise FormatError("a file view has more than 2**63 bytes")
    places, which = np.array(offsets, dtype=np.int64), np.array(kinds, dtype=np.int64)
    leaves = [child for child in children if isinstance(child, _Runs)]
    if len(leaves) < len(children):
        return offsets[0], _List(places - offsets[0], which, tuple(children))
    lengths = np.array([leaf.lengths[0] for leaf in leaves], dtype=np.int64)
    if all(leaf.runs == 1 for leaf in leaves):
        return _runs(places, lengths[which])
    return _runs(
        np.concatenate([leaves[kind].offsets + offset for kind, offset in zip(kinds, offsets, strict=True)]),
        np.concatenate([leaves[kind].lengths for kind in kinds]),
    )


def _expand(tiles: _Loop, positions: Int64Array, lengths: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(request, offset, length) of every contiguous extent of many requests, in their order; lengths > 0.

    Runs that adjoin are one extent, except where two parts of a list meet that have several runs: each of them is a
    nest, and a row of both would be in neither.
    """
    first, skipped = tiles.find(positions)
    last, reached = tiles.find(positions + lengths - 1)
    counts = last - first + 1
    ends = np.cumsum(counts)
    heads, tails = ends - counts, ends - 1
    request = np.repeat(np.arange(len(positions)), counts)
    number = np.arange(ends[-1]) + np.repeat(first - heads, counts)
    offset, length = tiles.take(number)
    length[tails] = reached + 1
    offset[heads] += skipped
    length[heads] -= skipped
    apart = np.append(True, offset[1:] != offset[:-1] + length[:-1])
    apart[heads] = True
    meet = np.flatnonzero(~apart)
    apart[meet] = tiles.begins(number[meet])
    if apart.all():
        return request, offset, length
    firsts = np.flatnonzero(apart)
    return request[firsts], offset[firsts], np.add.reduceat(length, firsts)


@dataclass(frozen=True, eq=False)
class View:
    """A file view: a tile of ``size`` data bytes, repeated every ``extent`` bytes from ``displacement`` on (all bytes).

    ``words`` is the tile as typemap words (pdla/interpose/typemap.h). Views are equal if all of
    this is equal.

    Raises:
        FormatError: the words are not a tree, or stand for another size.
    """

    displacement: int
    etype_size: int
    extent: int
    size: int
    words: Int64Array
    _start: int = field(init=False, repr=False)  # the offset of the first byte of the data stream
    _tiles: _Loop = field(init=False, repr=False)

    def __post_init__(self) -> None:
        words = np.array(self.words, dtype=np.int64)
        words.flags.writeable = False
        offset, tile = _Parser(words).parse()
        if tile.size != self.size:
            raise FormatError(f"a file view gives {self.size} bytes for a tile, but its typemap words give {tile.size}")
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "_start", self.displacement + offset)
        object.__setattr__(self, "_tiles", _Loop(1, self.extent, tile))

    @classmethod
    def plain(cls) -> View:
        """The view of the file's bytes from 0."""
        return cls(0, 1, 1, 1, np.array([BLOCK, 1]))

    @cached_property
    def _key(self) -> tuple[int, int, int, int, bytes]:
        return self.displacement, self.etype_size, self.extent, self.size, self.words.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether every part of the data stream is one extent."""
        tile = self._tiles.child
        return tile.runs == 1 and tile.size == self.extent

    def first_offset(self, positions: npt.ArrayLike) -> Int64Array:
        """The absolute offset in the file of each of these bytes of the data stream.

        >>> int(View.plain().first_offset(7))
        7
        """
        places = np.asarray(positions, dtype=np.int64)
        if self.size == 0:
            return np.full_like(places, self._start)
        numbers, within = self._tiles.find(places)
        return np.asarray(self._tiles.take(numbers)[0] + within + self._start)

    def extents(self, position: int, length: int) -> tuple[Int64Array, Int64Array]:
        """(offsets, lengths) of ``length`` bytes of the data stream from byte ``position`` on, in the stream's order.

        Offsets are absolute; neighbours are merged, except those of two loops. The cost depends on the extents
        returned, not on the view's size.

        >>> view = View(100, 4, 16, 8, np.array([LOOP, 2, 8, BLOCK, 4]))
        >>> [array.tolist() for array in view.extents(2, 8)]
        [[102, 108, 116], [2, 4, 2]]

        Raises:
            ValueError: a negative position or length, or bytes asked of a view that has none.
        """
        if position < 0 or length < 0 or (length and not self.size):
            raise ValueError(f"no bytes [{position}, {position + length}) in a view of {self.size} bytes a tile")
        if length == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if self.is_contiguous:
            return self.first_offset([position]), np.array([length], dtype=np.int64)
        _, offsets, lengths = _expand(self._tiles, np.array([position]), np.array([length]))
        return offsets + self._start, lengths


@dataclass(frozen=True)
class _Nest:
    """Tiles whose runs are loops: ``units`` (runs in each, innermost first, then in a tile) are ``strides`` apart."""

    length: int
    units: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tiles: _Loop) -> _Nest | None:
        """The loops of these tiles; None if runs differ, or if runs of different turns adjoin."""
        loops = [(0, tiles.stride)]
        node = tiles.child
        while isinstance(node, _Loop):
            loops.append((node.count, node.stride))
            node = node.child
        if not isinstance(node, _Runs) or not node.runs or np.any(node.lengths != node.lengths[0]):
            return None
        length, steps = int(node.lengths[0]), np.diff(node.offsets)
        if node.runs > 1:
            if np.any(steps != steps[0]):
                return None
            loops.append((node.runs, int(steps[0])))
        units, reach = [1], length
        for count, stride in reversed(loops):
            if stride == reach:
                return None
            units.append(units[-1] * count)
            reach += (count - 1) * stride
        return cls(length, tuple(units[:-1]), tuple(stride for _, stride in reversed(loops)))

    def form(self, level: int, count: int) -> Nest:
        """``count`` units of this level."""
        counts = [outer // inner for outer, inner in zip(self.units[1:], self.units, strict=False)][:level]
        loops = [Loop(stride, turns) for stride, turns in zip(self.strides, [*counts, count], strict=False)]
        return Nest(0, self.length, tuple(reversed(loops if count > 1 else loops[:-1])))

    def parts(self, first: Int64Array, stop: Int64Array) -> Iterator[tuple[int, Int64Array, Int64Array]]:
        """(level, first run, units) of the largest units that make up the runs [first, stop), in their order.

        They go up to the end of each unit that holds the first run, then in whole tiles, then down
        to the last run.
        """
        for level, unit in enumerate(self.units):
            end = stop
            if level + 1 < len(self.units):
                end = np.minimum(stop, -(-first // self.units[level + 1]) * self.units[level + 1])
            count = (end - first) // unit
            yield level, first, count
            first = first + count * unit
        for level in reversed(range(len(self.units) - 1)):
            count = (stop - first) // self.units[level]
            yield level, first, count
            first = first + count * self.units[level]


@dataclass(frozen=True)
class Tilings:
    """Many views grouped by shape: views that differ only in where they begin are handled together."""

    tiles: tuple[_Loop, ...]
    shape: Int64Array  # of each view: index into tiles, or -1 if every part of the view is one extent
    start: Int64Array  # of each view: number to add to an offset in tiles, or to a position if the shape is -1

    @cached_property
    def nests(self) -> tuple[_Nest | None, ...]:
        """The loops of each of the tiles, if they have loops."""
        return tuple(map(_Nest.of, self.tiles))

    @classmethod
    def of(cls, views: Sequence[View]) -> Tilings:
        """The tilings of these views."""
        tiles: dict[tuple[Any, ...], tuple[int, _Loop]] = {}
        shape = [
            -1
            if view.is_contiguous
            else tiles.setdefault((view.extent, view._tiles.child.key), (len(tiles), view._tiles))[0]
            for view in views
        ]
        start = np.array([view._start for view in views], dtype=np.int64)
        return cls(tuple(tile for _, tile in tiles.values()), np.array(shape, dtype=np.int64), start)

    def group(self, view: npt.NDArray[np.integer]) -> Iterator[tuple[int, Int64Array]]:
        """(shape, calls) for each shape among the calls' views."""
        shape = self.shape[view]
        order = np.argsort(shape, kind="stable")
        ends = np.searchsorted(shape[order], np.arange(-1, len(self.tiles)), side="right")
        for number, calls in enumerate(np.split(order, ends[:-1]), start=-1):
            if len(calls):
                yield number, calls


def first_offsets(views: Sequence[View], view: npt.NDArray[np.integer], position: Int64Array) -> Int64Array:
    """``views[view[i]].first_offset(position[i])`` for all i."""
    shapes = Tilings.of(views)
    offset: Int64Array = position + shapes.start[view]
    for number, calls in shapes.group(view) if shapes.tiles else ():
        if number >= 0:
            tiles = shapes.tiles[number]
            offset[calls] = shapes.start[view[calls]]
            if tiles.child.size:
                found, within = tiles.find(position[calls])
                offset[calls] += tiles.take(found)[0] + within
    return offset


def extents(
    shapes: Tilings, view: Int64Array, position: Int64Array, offset: Int64Array, length: Int64Array
) -> tuple[Int64Array | None, Int64Array, Int64Array]:
    """(call, offset, length) of the extents of these calls in their order; call is None if each call has just one."""
    if not shapes.tiles or not len(view):
        return None, offset, length
    parts = []
    for number, calls in shapes.group(view):
        if number < 0:
            parts.append((calls, offset[calls], length[calls]))
        else:
            request, offsets, lengths = _expand(shapes.tiles[number], position[calls], length[calls])
            parts.append((calls[request], offsets + shapes.start[view[calls]][request], lengths))
    call, offset, length = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(call, kind="stable")
    return call[order], offset[order], length[order]


class Touched(NamedTuple):
    """What calls touch, in their order: extents, and nests of extents.

    ``call`` is None if each call has one extent. A nest has its ``form``, an index into ``forms``;
    an extent has -1.
    """

    call: Int64Array | None
    offset: Int64Array
    length: Int64Array
    form: Int64Array
    forms: tuple[Nest, ...]


def run_counts(shapes: Tilings, view: Int64Array, position: Int64Array, length: Int64Array) -> Int64Array:
    """The number of extents that `extents` makes of each of these calls, or a little more, as runs may adjoin."""
    runs = np.ones(len(view), np.int64)
    for number, calls in shapes.group(view) if shapes.tiles else ():
        if number >= 0:
            runs[calls] = _runs_in(shapes.tiles[number], position[calls], length[calls])
    return runs


def runs_of(shapes: Tilings, view: Int64Array, position: Int64Array, length: Int64Array) -> Int64Array:
    """The approximate number of extents and nests that `touched` makes of each of these calls."""
    runs = np.ones(len(view), np.int64)
    for number, calls in shapes.group(view) if shapes.tiles else ():
        if number >= 0:
            nest = shapes.nests[number]
            runs[calls] = _runs_in(shapes.tiles[number], position[calls], length[calls])
            if nest is not None:
                runs[calls[runs[calls] >= NEST]] = 2 * len(nest.units) + 1
    return runs


def _runs_in(tiles: _Loop, position: Int64Array, length: Int64Array) -> Int64Array:
    first, last = (tiles.find(place)[0] for place in (position, position + length - 1))
    return last - first + 1


def touched(shapes: Tilings, view: Int64Array, position: Int64Array, offset: Int64Array, length: Int64Array) -> Touched:
    """What these calls touch. Many extents of one call that are loops become nests, a few for each dimension."""
    if not shapes.tiles:
        return Touched(None, offset, length, np.full(len(offset), -1, np.int64), ())
    nested = np.zeros(len(view), np.bool_)
    parts: list[tuple[Int64Array, Int64Array, Int64Array, Int64Array]] = []
    forms: dict[Nest, int] = {}
    for number, calls in shapes.group(view):
        nest = shapes.nests[number] if number >= 0 else None
        if nest is not None:
            tiles = shapes.tiles[number]
            first, skipped = tiles.find(position[calls])
            last, reached = tiles.find(position[calls] + length[calls] - 1)
            many = last - first + 1 >= NEST
            calls, first, last, skipped, left = (
                column[many] for column in (calls, first, last, skipped, nest.length - 1 - reached)
            )
            nested[calls] = True
            start = shapes.start[view[calls]]
            for column in _nests(nest, tiles, first, last, skipped, left, forms):
                of, places, lengths, form = column
                parts.append((calls[of], places + start[of], lengths, form))
    flat = np.flatnonzero(~nested)
    call, places, lengths = extents(shapes, view[flat], position[flat], offset[flat], length[flat])
    if not parts:
        return Touched(call, places, lengths, np.full(len(places), -1, np.int64), ())
    parts.append((flat if call is None else flat[call], places, lengths, np.full(len(places), -1, np.int64)))
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    call, places, lengths, form = (column[order] for column in columns)
    return Touched(call, places, lengths, form, tuple(forms))


def _nests(
    nest: _Nest,
    tiles: _Loop,
    first: Int64Array,
    last: Int64Array,
    skipped: Int64Array,
    left: Int64Array,
    forms: dict[Nest, int],
) -> Iterator[tuple[Int64Array, Int64Array, Int64Array, Int64Array]]:
    """(request, offset, length, form) of the parts of requests of several runs, of each request in order.

    The request does not include ``skipped`` bytes of the first run and ``left`` bytes of the last
    one.
    """

    def single(chosen: Int64Array, runs: Int64Array, skip: Int64Array | int, cut: Int64Array) -> Any:
        offset, length = tiles.take(runs[chosen])
        return chosen, offset + skip, length - cut[chosen], np.full(len(chosen), -1, np.int64)

    head, tail = np.flatnonzero(skipped), np.flatnonzero(left)
    yield single(head, first, skipped[head], skipped)
    for level, run, count in nest.parts(first + (skipped > 0), last + (left == 0)):
        for turns in np.unique(count[count > 0]).tolist():
            chosen = np.flatnonzero(count == turns)
            form = nest.form(level, turns)
            number = forms.setdefault(form, len(forms)) if form.loops else -1
            offset = tiles.take(run[chosen])[0]
            yield chosen, offset, np.full(len(chosen), nest.length), np.full(len(chosen), number)
    yield single(tail, last, 0, left)
