"""The distances between successive requests to a server, from the loops alone: no request is ever enumerated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pdla.layouts.devices import seconds_per_byte, startup
from pdla.model import Loop, Op, Pool, Signature


class Gap(NamedTuple):
    """``times``, the next request begins ``distance`` bytes (in either direction) from the end of the previous one."""

    times: int
    distance: int


class Windows(NamedTuple):
    """A nest of windows, the nest of the pieces in one, and its bytes from the first to the last piece."""

    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    size: int


@dataclass(frozen=True)
class Pattern:
    """A signature as the model sees it: every rank makes ``calls``, each with ``pieces`` of ``length`` bytes.

    ``calls``, ``pieces`` and ``ranks`` are loops over the file, outermost first. A call has several
    pieces if the program uses a file view that is not contiguous.
    """

    op: Op
    start: int
    ranks: tuple[Loop, ...]
    calls: tuple[Loop, ...]
    pieces: tuple[Loop, ...]
    length: int

    @classmethod
    def of(cls, signature: Signature) -> Pattern:
        """The pattern of ``signature``. If its calls have different numbers of pieces, the largest number counts.

        If steps, lengths or counts grow, the pattern has their means.
        """
        nest = signature.nest.evened()
        ranks, inner = nest.loops[: signature.rank_loops], nest.loops[signature.rank_loops :]
        requests = count(inner)
        calls = min(max(1, round(signature.calls / len(signature.ranks))), requests) if signature.calls else requests
        outer, pieces = split(inner, -(-requests // calls))
        return cls(signature.op, nest.start, ranks, outer, pieces, nest.length)

    @cached_property
    def processes(self) -> int:
        """Number of ranks."""
        return count(self.ranks)

    @cached_property
    def sections(self) -> int:
        """Number of ranks that access other bytes than the ranks before them."""
        return count(distinct(self.ranks))

    @cached_property
    def rounds(self) -> int:
        """Calls of a rank."""
        return count(self.calls)

    @cached_property
    def distinct_rounds(self) -> int:
        """Calls of a rank that access other bytes than its calls before them."""
        return count(distinct(self.calls))

    @cached_property
    def call_span(self) -> int:
        """Bytes of the file from the first to the last byte of a call."""
        return self.length + sum(abs(loop.stride) * (loop.count - 1) for loop in self.pieces)

    @cached_property
    def call_bytes(self) -> int:
        """Distinct bytes of one call of one rank (an upper bound if its pieces overlap)."""
        return self.length * count(distinct(self.pieces))

    @cached_property
    def packed_calls(self) -> tuple[Loop, ...]:
        """The calls of a rank over its section of a replica."""
        return packed(self.calls, self.call_bytes)


def count(loops: Sequence[Loop]) -> int:
    """Number of iterations of the whole nest."""
    return math.prod([loop.count for loop in loops])


def distinct(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The loops that reach other bytes: those whose stride is not 0."""
    return tuple(loop for loop in loops if loop.stride != 0)


def split(loops: Sequence[Loop], times: int) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Split the nest in two; the inner one gets at least ``times`` iterations, or all. A loop may be cut for that.

    >>> split([Loop(100, 10), Loop(1, 8)], 16)
    ((Loop(stride=200, count=5),), (Loop(stride=100, count=2), Loop(stride=1, count=8)))
    """
    outer, inner = list(loops), list[Loop]()
    while times > 1 and outer:
        stride, loop_count = outer.pop()
        taken = min(loop_count, times)
        inner.insert(0, Loop(stride, taken))
        times = -(-times // taken)
        if taken < loop_count:
            outer.append(Loop(stride * taken, -(-loop_count // taken)))
    return tuple(outer), tuple(inner)


def in_file_order(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The nest of the same bytes, once each, in the order of the file."""
    return tuple(
        Loop(abs(stride), times) for stride, times in sorted(distinct(loops), key=lambda loop: -abs(loop.stride))
    )


def runs(loops: Sequence[Loop], length: int) -> tuple[tuple[Loop, ...], int]:
    """A nest in the order of the file as a nest of its contiguous runs, and the length of a run.

    >>> runs([Loop(1 << 20, 8), Loop(4096, 4)], 4096)
    ((Loop(stride=1048576, count=8),), 16384)
    """
    outer = list(loops)
    while outer and outer[-1].stride <= length:
        stride, times = outer.pop()
        length += stride * (times - 1)
    return tuple(outer), length


def cut(loops: Sequence[Loop], length: int, most: int) -> tuple[tuple[Loop, ...], int]:
    """A nest of requests of ``length`` bytes as one of requests of at most ``most`` bytes.

    >>> cut([Loop(1 << 20, 8)], 10_000, 4096)
    ((Loop(stride=1048576, count=8), Loop(stride=4096, count=3)), 4096)
    """
    return ((*loops, Loop(most, -(-length // most))), most) if length > most else (tuple(loops), length)


def outermost(loops: Sequence[Loop], times: int) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Split the nest in two; the outer one gets at most ``times`` iterations, as near to that as even shares allow.

    >>> outermost([Loop(100, 10), Loop(1, 8)], 4)
    ((Loop(stride=300, count=4),), (Loop(stride=100, count=3), Loop(stride=1, count=8)))
    """
    outer, inner = list[Loop](), list(loops)
    while times > 1 and inner:
        stride, loop_count = inner.pop(0)
        share = -(-loop_count // times)
        outer.append(Loop(stride * share, -(-loop_count // share)))
        if share > 1:
            inner.insert(0, Loop(stride, share))
        times //= loop_count
    return tuple(outer), tuple(inner)


def windows(loops: Sequence[Loop], length: int, most: int) -> Windows:
    """A nest in the order of the file, taken at most ``most`` bytes at once, each time from a piece on.

    >>> windows([Loop(1 << 20, 8), Loop(100, 8)], 60, 500).outer
    (Loop(stride=1048576, count=8), Loop(stride=500, count=2))
    """
    outer, inner, size = list(loops), list[Loop](), length
    if length > most:
        times = -(-length // most)
        size = -(-length // times)
        return Windows((*outer, Loop(size, times)), (), size)
    while outer:
        stride, loop_count = outer.pop()
        inside = min(loop_count, (most - size) // stride + 1)
        size += stride * (inside - 1)
        if inside > 1:
            inner.insert(0, Loop(stride, inside))
        if inside < loop_count:
            outer.append(Loop(stride * inside, -(-loop_count // inside)))
            break
    return Windows(tuple(outer), tuple(inner), size)


def packed(loops: Sequence[Loop], length: int) -> tuple[Loop, ...]:
    """The same nest over a replica, which holds the pieces of ``length`` bytes one after the other.

    >>> packed([Loop(1 << 20, 4), Loop(0, 3), Loop(8192, 128)], 4096)
    (Loop(stride=524288, count=4), Loop(stride=0, count=3), Loop(stride=4096, count=128))
    """
    result: list[Loop] = []
    for stride, loop_count in reversed(loops):
        result.insert(0, Loop(length if stride else 0, loop_count))
        length *= loop_count if stride else 1
    return tuple(result)


def gaps(loops: Sequence[Loop], length: int) -> list[Gap]:
    """The distances between successive requests of ``length`` bytes in the order of the nest, innermost loop first.

    A step of a loop resets the loops inside it: the next request begins ``stride - sum(inner
    strides * (count - 1))`` bytes from the previous start. The sum of all ``times`` is the number
    of requests less one.

    >>> gaps([Loop(65536, 3), Loop(4096, 4)], 4096)
    [Gap(times=9, distance=0), Gap(times=2, distance=49152)]
    """
    result: list[Gap] = []
    back, outer = 0, count(loops)
    for stride, loop_count in reversed(loops):
        outer //= loop_count
        if loop_count > 1:
            result.append(Gap((loop_count - 1) * outer, abs(stride - back - length)))
        back += stride * (loop_count - 1)
    return result


def total_startup(pool: Pool, op: Op, loops: Sequence[Loop], length: int, spread: float) -> float:
    """Seconds of start-up of the nest's requests on one server that holds 1/``spread`` of each.

    The server also holds only that share of the bytes between two requests, so every distance
    shrinks by ``spread``. The first request is free: nobody knows where the server's head was,
    whatever file it served before. If start-up and transfer overlap, only the time by which
    start-up is longer than the transfer counts.
    """
    hidden = length / spread * seconds_per_byte(pool, op) if pool.overlap else 0.0
    return sum(
        (times * max(0.0, startup(pool, distance / spread, op) - hidden) for times, distance in gaps(loops, length)),
        start=0.0,
    )
