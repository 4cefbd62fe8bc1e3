"""Access maps: which bytes of an original a replica holds, and where. The mirror of replicator/stub/mapfile.h.

The map of a regular pattern is a few integers. Its index space is walked by two nests of loops:
``offset = start + sum(i_k * stride_k)`` in the original and ``replica_offset = replica_start +
sum(i_k * replica_stride_k)`` in the replica. A pattern whose loops do not nest has a sorted extent
table instead.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pdla.errors import FormatError, PdlaError
from pdla.model import STILL, Int64Array, Signature

MAX_EXTENTS = 10_000_000

NEVER = np.iinfo(np.int64).max


class MapLoop(NamedTuple):
    """``count`` repetitions, ``stride`` bytes apart in the original, ``replica_stride`` (may be < 0) in the replica."""

    count: int  # type: ignore[assignment]
    stride: int
    replica_stride: int


class Tile(NamedTuple):
    """``length`` bytes that are at ``offset`` in the original and at ``replica_offset`` in the replica."""

    offset: int
    length: int
    replica_offset: int


@dataclass(frozen=True, eq=False)
class AccessMap:
    """Which bytes of an original a replica holds, and where: a bijection onto the replica's bytes [0, size).

    ``loops`` run outermost (largest stride) first. Every stride is at least the span of the loops
    inside it, so that a division finds each index. ``extents``, if given, replaces the loops: rows
    (start, length, replica_start), sorted by start.

    Raises:
        FormatError: the loops do not nest, the extents overlap, or the replica's bytes are not each mapped once.
    """

    loops: tuple[MapLoop, ...] = ()
    start: int = 0
    length: int = 0
    replica_start: int = 0
    extents: Int64Array | None = None

    def __post_init__(self) -> None:
        problem = self._loop_problem() if self.extents is None else self._extent_problem(self.extents)
        if problem:
            raise FormatError(f"not an access map: {problem}")

    def _loop_problem(self) -> str:
        if self.length < 1 or self.start < 0:
            return f"want start >= 0 and length > 0, got start={self.start}, length={self.length}"
        span = self.length
        for loop in reversed(self.loops):
            if loop.count < 1 or loop.stride < span:
                return f"want count > 0 and stride >= the {span} bytes inside it, got {loop}"
            span += loop.stride * (loop.count - 1)
        dense, lowest = self.length, self.replica_start
        for loop in sorted(self.loops, key=lambda loop: abs(loop.replica_stride)):
            if loop.count > 1 and abs(loop.replica_stride) != dense:
                return f"replica bytes overlap or have holes at {loop} (want a replica stride of {dense})"
            lowest += min(0, loop.replica_stride * (loop.count - 1))
            dense *= loop.count
        return "" if lowest == 0 else f"the replica's first byte is {lowest}, not 0"

    def _extent_problem(self, table: Int64Array) -> str:
        if (
            table.ndim != 2
            or table.shape[1] != 3
            or not len(table)
            or (self.loops, self.start, self.length) != ((), 0, 0)
        ):
            return "an extent table needs at least one row of 3 columns, and no loops"
        starts, lengths, replica = table.T
        if starts[0] < 0 or lengths.min() < 1 or (starts[1:] < starts[:-1] + lengths[:-1]).any():
            return "extents must be sorted, must not be empty and must not overlap"
        order = np.argsort(replica, kind="stable")
        ends = np.cumsum(lengths[order])
        return "" if (replica[order] == ends - lengths[order]).all() else "replica bytes overlap or have holes"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessMap) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.loops, self.start, self.length, self.replica_start, self.size))

    @classmethod
    def from_signature(cls, signature: Signature) -> AccessMap:
        """The map of the replica whose bytes are in the order in which ``signature`` accesses them, rank after rank.

        A byte that is accessed more than once (stride 0, overlaps) is held once, in the place of
        its first access. A pattern that overlaps itself or grows becomes an extent table.

        Raises:
            PdlaError: the pattern has more than ``MAX_EXTENTS`` accesses and needs an extent table.
        """
        if any(grows != STILL for grows in signature.growth):
            return cls(extents=_first_access_extents(signature))
        loops: list[MapLoop] = []
        start, dense, replica_start = signature.start, signature.length, 0
        for stride, count in reversed(signature.loops):
            if count == 1 or stride == 0:
                continue
            if stride < 0:
                start += stride * (count - 1)
                replica_start += dense * (count - 1)
            loops.append(MapLoop(count, abs(stride), dense if stride > 0 else -dense))
            dense *= count
        loops.sort(key=lambda loop: -loop.stride)
        if not _nested(loops, signature.length):
            return cls(extents=_first_access_extents(signature))
        merged, length = _merge(loops, signature.length)
        return cls(merged, start, length, replica_start)

    def cut(self, end: int) -> AccessMap | None:
        """The map of what is before byte ``end`` of the original, in the same order; None if that is nothing.

        It stays a few integers if ``end`` is not within a turn of the outermost loop. If a table of what is left would
        be too long, that turn is left out, too.
        """
        if end <= self.extent[0]:
            return None
        if end >= self.extent[1]:
            return self
        if self.extents is None and self.loops:
            outer = self.loops[0]
            turns, rest = divmod(end - self.start, outer.stride)
            inside = self.extent[1] - self.start - outer.stride * (outer.count - 1)
            if rest >= inside:
                return self._repeated(turns + 1)
            too_many = self._first_ending_after(end) > MAX_EXTENTS
            if rest == 0 or (too_many and turns):
                return self._repeated(turns)
            if too_many:
                return self._repeated(1).cut(end)
        offsets, lengths, replica = self.tiles(0, end)
        order = np.argsort(replica)
        return AccessMap(extents=_joined(offsets, lengths, _packed(lengths, order)))

    def _repeated(self, turns: int) -> AccessMap:
        """The map of the first turns of the outermost loop."""
        outer, *inner = self.loops
        loops = [*([outer._replace(count=turns)] if turns > 1 else []), *inner]
        dense, first = self.length, 0
        for number, loop in sorted(enumerate(loops), key=lambda one: abs(one[1].replica_stride)):
            backwards = loop.replica_stride < 0
            loops[number] = loop._replace(replica_stride=-dense if backwards else dense)
            first += backwards * dense * (loop.count - 1)
            dense *= loop.count
        merged, length = _merge(loops, self.length)
        return AccessMap(merged, self.start, length, first)

    @staticmethod
    def section(signature: Signature) -> int:
        """Bytes of one rank's part of the replica: the mean, and an upper bound if a rank's own accesses overlap."""
        return -(-signature.bytes // (signature.repeats * len(signature.ranks)))

    @cached_property
    def size(self) -> int:
        """Bytes of the replica."""
        if self.extents is not None:
            return int(self.extents[:, 1].sum())
        return self.length * math.prod(loop.count for loop in self.loops)

    @property
    def extent(self) -> tuple[int, int]:
        """The half-open range of the original from the first to the last byte that the replica holds."""
        if self.extents is not None:
            return int(self.extents[0, 0]), int(self.extents[-1, 0] + self.extents[-1, 1])
        return self.start, self.start + sum(loop.stride * (loop.count - 1) for loop in self.loops) + self.length

    @property
    def pieces(self) -> int:
        """Number of contiguous pieces of the original that the map holds (innermost iterations, or extents)."""
        return len(self.extents) if self.extents is not None else math.prod(loop.count for loop in self.loops)

    def locate(self, start: int, stop: int) -> Iterator[Tile]:
        """The parts of [start, stop) that the replica holds, in the order of the original."""
        for number in range(self._first_ending_after(start), self.pieces):
            tile = self._piece(number)
            if tile.offset >= stop:
                return
            skip = max(0, start - tile.offset)
            length = min(tile.offset + tile.length, stop) - tile.offset - skip
            if length > 0:
                yield Tile(tile.offset + skip, length, tile.replica_offset + skip)

    def tiles(self, start: int, stop: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """``locate`` as arrays: (offsets, lengths, replica offsets)."""
        first = self._first_ending_after(start)
        numbers = np.arange(first, max(first, self._first_ending_after(stop) + 1), dtype=np.int64)
        numbers = numbers[numbers < self.pieces]
        if self.extents is not None:
            offsets, lengths, replica = self.extents[numbers].T
        else:
            offsets, replica = np.full(len(numbers), self.start), np.full(len(numbers), self.replica_start)
            lengths = np.full(len(numbers), self.length)
            for loop in reversed(self.loops):
                numbers, digits = np.divmod(numbers, loop.count)
                offsets, replica = offsets + digits * loop.stride, replica + digits * loop.replica_stride
        skip = np.maximum(0, start - offsets)
        lengths = np.minimum(offsets + lengths, stop) - offsets - skip
        held = lengths > 0
        return (offsets + skip)[held], lengths[held], (replica + skip)[held]

    def _first_ending_after(self, offset: int) -> int:
        """The number, in the original's order, of the first piece that ends after ``offset``; ``pieces`` if none."""
        if self.extents is not None:
            number = int(np.searchsorted(self.extents[:, 0], offset, side="right")) - 1
            return number if number >= 0 and offset < self.extents[number, 0] + self.extents[number, 1] else number + 1
        rest, number = offset - self.start, 0
        if rest < 0:
            return 0
        for loop in self.loops:
            digit = min(rest // loop.stride, loop.count - 1)
            rest -= digit * loop.stride
            number = number * loop.count + digit
        return number if rest < self.length else number + 1

    def _piece(self, number: int) -> Tile:
        if self.extents is not None:
            return Tile(*(int(value) for value in self.extents[number]))
        offset, replica = self.start, self.replica_start
        for loop in reversed(self.loops):
            number, digit = divmod(number, loop.count)
            offset += digit * loop.stride
            replica += digit * loop.replica_stride
        return Tile(offset, self.length, replica)

    def to_json(self) -> dict[str, Any]:
        """Plain values. An extent table becomes the base64 of the zlib of its int64 rows (little endian)."""
        if self.extents is not None:
            packed = zlib.compress(np.ascontiguousarray(self.extents, dtype="<i8").tobytes(), 1)
            return {"extents": base64.b64encode(packed).decode("ascii")}
        return {
            "loops": [list(loop) for loop in self.loops],
            "start": self.start,
            "length": self.length,
            "replica_start": self.replica_start,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AccessMap:
        """The inverse of ``to_json``.

        Raises:
            FormatError: ``value`` is not what ``to_json`` makes.
        """
        try:
            if "extents" in value:
                rows = np.frombuffer(zlib.decompress(base64.b64decode(value["extents"])), dtype="<i8")
                return cls(extents=rows.astype(np.int64).reshape(-1, 3))
            loops = tuple(MapLoop(*(int(number) for number in loop)) for loop in value["loops"])
            return cls(loops, int(value["start"]), int(value["length"]), int(value["replica_start"]))
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise FormatError(f"not an access map: {error!r}") from error


def _nested(loops: list[MapLoop], length: int) -> bool:
    span = length
    for loop in reversed(loops):
        if loop.stride < span:
            return False
        span += loop.stride * (loop.count - 1)
    return True


def _merge(loops: list[MapLoop], length: int) -> tuple[tuple[MapLoop, ...], int]:
    """Join loops that continue one another in both spaces; a contiguous innermost loop becomes part of the length."""
    merged: list[MapLoop] = []
    for outer in reversed(loops):
        if outer.stride == length == outer.replica_stride and not merged:
            length *= outer.count
            continue
        inner = merged[-1] if merged else None
        if inner and (outer.stride, outer.replica_stride) == (
            inner.stride * inner.count,
            inner.replica_stride * inner.count,
        ):
            merged[-1] = inner._replace(count=inner.count * outer.count)
        else:
            merged.append(outer)
    return tuple(reversed(merged)), length


def _first_access_extents(signature: Signature) -> Int64Array:
    """The extent table of the distinct bytes of ``signature`` in the order of their first access."""
    once = signature.nest.once()
    if (requests := once.requests) > MAX_EXTENTS:
        why = "grows" if once.growth else "overlaps itself"
        raise PdlaError(
            f"{signature.file}: the pattern {signature} {why} and has {requests} accesses; a replica of an irregular "
            f"pattern holds at most {MAX_EXTENTS}. The pattern stays in the original"
        )
    offsets, sizes = once.expand()
    bounds = np.unique(np.concatenate([offsets, offsets + sizes]))
    first, last = np.searchsorted(bounds, offsets), np.searchsorted(bounds, offsets + sizes)
    owner = cover_minimum(first, last, np.arange(requests), len(bounds))[:-1]
    covered = owner != NEVER
    segments, lengths, owner = bounds[:-1][covered], np.diff(bounds)[covered], owner[covered]

    return _joined(segments, lengths, _packed(lengths, np.lexsort((segments, owner))))


def _packed(lengths: Int64Array, order: Int64Array) -> Int64Array:
    """Where segments begin in a replica that holds them in this order."""
    replica = np.empty_like(lengths)
    replica[order] = np.cumsum(lengths[order]) - lengths[order]
    return replica


def _joined(segments: Int64Array, lengths: Int64Array, replica: Int64Array) -> Int64Array:
    """The extent table of sorted segments; those that continue one another in original and replica become one."""
    continues = (segments[1:] == segments[:-1] + lengths[:-1]) & (replica[1:] == replica[:-1] + lengths[:-1])
    heads = np.flatnonzero(np.concatenate([[True], ~continues]))
    return np.stack([segments[heads], np.add.reduceat(lengths, heads), replica[heads]], axis=1)


def cover_minimum(first: Int64Array, last: Int64Array, value: Int64Array, segments: int) -> Int64Array:
    """The least value of the ranges of segments [first, last) that cover each segment; ``NEVER`` if no range covers it.

    Two windows whose length is a power of two make up a range. From the largest windows to the
    smallest, each window hands its value to its two halves.
    """
    level = np.frexp(last - first)[1] - 1
    least = np.full(segments, NEVER)
    for size in range(int(level.max(initial=0)), -1, -1):
        at = level == size
        np.minimum.at(least, first[at], value[at])
        np.minimum.at(least, last[at] - (1 << size), value[at])
        if size:
            half = 1 << (size - 1)
            least[half:] = np.minimum(least[half:], least[:-half])
    return least
