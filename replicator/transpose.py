"""From the order of the original to the order of a replica, window by window, in memory.

The original is read in large windows in file order. A regular map makes a window a strided array, and the replica's
order is another view of it: one vectorised copy moves millions of pieces.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.accessmap import AccessMap, MapLoop
from pdla.errors import PdlaError
from pdla.model import Int64Array
from pdla.units import KiB, MiB

# Three of these are in use; larger ones fall out of the processor's caches and cost more in page faults than they save.
WINDOW = 16 * MiB
# Shorter writes cost more in calls than in bytes.
RUN = 64 * KiB
# Shorter holes are read too: it takes no longer than another request.
HOLE = 128 * KiB

Bytes = npt.NDArray[np.uint8]


class Run(NamedTuple):
    """Consecutive bytes of a replica from ``start`` on."""

    start: int
    data: Bytes


class _Window(NamedTuple):
    """A part of the original that fits into the buffer: what to read (file offset, buffer offset, length), and how the
    buffer becomes runs, with a second buffer for the bytes in the replica's order."""

    reads: list[tuple[int, int, int]]
    arrange: Callable[[Bytes, Bytes], Iterator[Run]]


def runs(descriptor: int, path: Path, access_map: AccessMap, window: int = WINDOW) -> Iterator[Run]:
    """All bytes of the replica, read from the original; its runs in no particular order, each byte once.

    A run's ``data`` lasts until the next one is asked for. Memory: three times ``window`` bytes, for a window is
    read while the one before is arranged.

    Raises:
        PdlaError: the original ends before the map does.
    """
    windows = _regular_windows(access_map, window) if access_map.extents is None else _windows(access_map, window)
    filling, full, ordered = (np.empty(window, dtype=np.uint8) for _ in range(3))
    with ThreadPoolExecutor(1) as reader:
        current = next(windows, None)
        reading = current and reader.submit(_fill, descriptor, path, current, filling)
        while current and reading:
            reading.result()
            following = next(windows, None)
            filling, full = full, filling
            reading = following and reader.submit(_fill, descriptor, path, following, filling)
            yield from current.arrange(full, ordered)
            current = following


def _fill(descriptor: int, path: Path, window: _Window, buffer: Bytes) -> bool:
    for offset, at, length in window.reads:
        done = 0
        while done < length:
            count = os.preadv(descriptor, [buffer[at + done : at + length].data], offset + done)
            if count == 0:
                raise PdlaError(f"{path} ended at byte {offset + done} while it was copied: nothing was replicated")
            done += count
    return True


def _regular_windows(access_map: AccessMap, window: int) -> Iterator[_Window]:
    """The blocks of a grid over the index space, in file order."""
    # The bytes of a piece are one more loop, so that a piece longer than the window is nothing special.
    loops = (*access_map.loops, MapLoop(access_map.length, 1, 1))
    steps = _block_counts(loops, window)
    for corner in product(*(range(0, loop.count, step) for loop, step in zip(loops, steps, strict=True))):
        counts = [min(step, loop.count - at) for loop, step, at in zip(loops, steps, corner, strict=True)]
        packed = _pack(loops, counts)
        offset = access_map.start + sum(at * loop.stride for at, loop in zip(corner, loops, strict=True))
        to = access_map.replica_start + sum(at * loop.replica_stride for at, loop in zip(corner, loops, strict=True))
        digits = product(*(range(count) for count in counts[: packed.apart]))
        reads = [
            (
                offset + sum(d * loop.stride for d, loop in zip(row, loops, strict=False)),
                sum(d * stride for d, stride in zip(row, packed.strides, strict=False)),
                packed.read,
            )
            for row in digits
        ]
        block = tuple(
            MapLoop(count, stride, loop.replica_stride)
            for count, stride, loop in zip(counts, packed.strides, loops, strict=True)
        )
        yield _Window(reads, partial(_transpose, block, to))


def _block_counts(loops: tuple[MapLoop, ...], window: int) -> list[int]:
    """How many iterations of every loop a block has: first what gives runs of ``RUN`` bytes in the replica, then what
    is next in the original, until the window is full. Both sides see large pieces, also where rows become columns.
    """
    counts = [1] * len(loops)

    def grow(depth: int, limit: int) -> None:
        # Largest count that fits; the bytes of a block never become fewer when a count grows.
        low, high = counts[depth], max(counts[depth], min(loops[depth].count, limit))
        while low < high:
            counts[depth] = (low + high + 1) // 2
            low, high = (counts[depth], high) if _pack(loops, counts).size <= window else (low, counts[depth] - 1)
        counts[depth] = low

    for depth in sorted(range(len(loops)), key=lambda depth: abs(loops[depth].replica_stride)):
        grow(depth, -(-RUN // math.prod(counts)))
    for depth in reversed(range(len(loops))):
        grow(depth, loops[depth].count)
    return counts


class _Packed(NamedTuple):
    """How a block lies in the buffer: the stride of every loop, how many of the outer loops are read iteration by
    iteration, the bytes of such a read, and of all."""

    strides: list[int]
    apart: int
    read: int
    size: int


def _pack(loops: tuple[MapLoop, ...], counts: list[int]) -> _Packed:
    """A block keeps its holes up to ``HOLE``, which are read; what is further apart is packed."""
    strides: list[int] = []
    apart, size, read = 0, 1, 0
    for depth in reversed(range(len(loops))):
        stride = loops[depth].stride
        if counts[depth] > 1 and (apart or stride - size >= HOLE):
            if not apart:
                apart, read = depth + 1, size
            stride = size
        strides.insert(0, stride)
        size += stride * (counts[depth] - 1)
    return _Packed(strides, apart, read or size, size)


def _transpose(block: tuple[MapLoop, ...], to: int, buffer: Bytes, ordered: Bytes) -> Iterator[Run]:
    """The runs of a block whose first byte (all digits 0) is the buffer's first and goes to ``to``."""
    shape = [loop.count for loop in block]
    view = np.lib.stride_tricks.as_strided(buffer, shape, [loop.stride for loop in block], writeable=False)
    for axis, loop in enumerate(block):
        if loop.replica_stride < 0:
            view = np.flip(view, axis)
            to += loop.replica_stride * (loop.count - 1)
    axes = sorted(range(len(block)), key=lambda axis: -abs(block[axis].replica_stride))
    length, scattered = 1, len(axes)
    while scattered and abs(block[axes[scattered - 1]].replica_stride) == length:
        scattered -= 1
        length *= shape[axes[scattered]]
    starts = np.array([to], dtype=np.int64)
    for axis in axes[:scattered]:
        steps = np.arange(shape[axis], dtype=np.int64) * abs(block[axis].replica_stride)
        starts = (starts[:, None] + steps).ravel()
    data = ordered[: view.size]
    np.copyto(data.reshape([shape[axis] for axis in axes]), view.transpose(axes))
    for start, row in zip(starts.tolist(), data.reshape(len(starts), length), strict=True):
        yield Run(start, row)


def _windows(access_map: AccessMap, window: int) -> Iterator[_Window]:
    """Stretches of the original that begin with an extent of the table."""
    at, end = access_map.extent
    while (tile := next(access_map.locate(at, end), None)) is not None:
        start, at = tile.offset, tile.offset + window
        offsets, lengths, replica = access_map.tiles(start, at)
        offsets -= start
        reads = [
            (start + int(offsets[first]), int(offsets[first]), int(offsets[last] + lengths[last] - offsets[first]))
            for first, last in _neighbours(offsets, lengths, HOLE)
        ]
        yield _Window(reads, partial(_gather, offsets, lengths, replica))


def _gather(
    offsets: Int64Array, lengths: Int64Array, replica: Int64Array, buffer: Bytes, ordered: Bytes
) -> Iterator[Run]:
    """The runs of extents at ``offsets`` of the buffer."""
    order = np.argsort(replica)
    offsets, lengths, replica = offsets[order], lengths[order], replica[order]
    pieces = [buffer.data[offset : offset + length] for offset, length in np.stack([offsets, lengths], 1).tolist()]
    for first, last in _neighbours(replica, lengths, 1):
        data = b"".join(pieces[first : last + 1])
        yield Run(int(replica[first]), np.frombuffer(data, dtype=np.uint8))


def _neighbours(starts: Int64Array, lengths: Int64Array, gap: int) -> Iterator[tuple[int, int]]:
    """(first, last) of the groups of sorted extents between which there are at least ``gap`` bytes."""
    cuts = np.flatnonzero(starts[1:] - starts[:-1] - lengths[:-1] >= gap)
    return zip([0, *(cuts + 1).tolist()], [*cuts.tolist(), len(starts) - 1], strict=True)
