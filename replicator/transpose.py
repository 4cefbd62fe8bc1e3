"""From the order of the original to the order of a replica, window by window, in memory.

The original is read in large windows in file order. A regular map makes a window a strided array, and the replica's
order is another view of it: one vectorised copy moves millions of pieces.
"""

from __future__ import annotations

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
from pdla.units import MiB

WINDOW = 32 * MiB
# Reading on through a hole is cheaper than a seek: 8 ms at 150 MB/s are 1.2 MB.
HOLE = MiB

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
    """Blocks of the index space: the outer loops fixed, a stretch of one loop, all of those inside it."""
    # The bytes of a piece are one more loop, so that a piece longer than the window is nothing special.
    loops = (*access_map.loops, MapLoop(access_map.length, 1, 1))
    spans = [1]
    for loop in reversed(loops):
        spans.insert(0, spans[0] + loop.stride * (loop.count - 1))
    depth = next(depth for depth in range(len(loops)) if spans[depth + 1] <= window)
    outer, split, inner = loops[:depth], loops[depth], loops[depth + 1 :]
    step = (window - spans[depth + 1]) // split.stride + 1
    for digits in product(*(range(loop.count) for loop in outer)):
        start = access_map.start + sum(d * loop.stride for d, loop in zip(digits, outer, strict=True))
        to = access_map.replica_start + sum(d * loop.replica_stride for d, loop in zip(digits, outer, strict=True))
        for first in range(0, split.count, step):
            block = (split._replace(count=min(step, split.count - first)), *inner)
            reads = _block_reads(start + first * split.stride, block, spans[depth + 1 :])
            yield _Window(reads, partial(_transpose, block, to + first * split.replica_stride))


def _block_reads(offset: int, block: tuple[MapLoop, ...], inner_spans: list[int]) -> list[tuple[int, int, int]]:
    """The whole block at once, without the holes that are larger than ``HOLE``."""
    holes = [depth for depth, loop in enumerate(block) if loop.stride - inner_spans[depth] >= HOLE]
    cut = holes[-1] + 1 if holes else 0
    length = inner_spans[-1] + sum(loop.stride * (loop.count - 1) for loop in block[cut:])
    digits = product(*(range(loop.count) for loop in block[:cut]))
    starts = (sum(d * loop.stride for d, loop in zip(row, block, strict=False)) for row in digits)
    return [(offset + at, at, length) for at in starts]


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
