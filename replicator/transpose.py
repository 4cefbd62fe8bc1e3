"""From the order of the original to the order of a replica, window by window, in memory.

The original is read in large windows in file order. A regular map makes a window a strided array, and the replica's
order is another view of it: one vectorised copy moves millions of pieces.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.accessmap import AccessMap, MapLoop
from pdla.errors import PdlaError
from pdla.model import Int64Array
from pdla.units import MiB

WINDOW = 64 * MiB
# Reading on through a hole is cheaper than a seek: 8 ms at 150 MB/s are 1.2 MB.
HOLE = MiB

Bytes = npt.NDArray[np.uint8]


class Run(NamedTuple):
    """Consecutive bytes of a replica from ``start`` on."""

    start: int
    data: Bytes


def runs(descriptor: int, path: Path, access_map: AccessMap, window: int = WINDOW) -> Iterator[Run]:
    """All bytes of the replica, read from the original; its runs in no particular order, each byte once.

    ``data`` is overwritten by the next step of the iterator. Memory: about twice ``window`` bytes.

    Raises:
        PdlaError: the original ends before the map does.
    """
    buffer = np.empty(window, dtype=np.uint8)
    if access_map.extents is not None:
        return _irregular_runs(descriptor, path, access_map, buffer)
    return _regular_runs(descriptor, path, access_map, buffer)


def _regular_runs(descriptor: int, path: Path, access_map: AccessMap, buffer: Bytes) -> Iterator[Run]:
    # The bytes of a piece are one more loop, so that a piece longer than the window is nothing special.
    loops = (*access_map.loops, MapLoop(access_map.length, 1, 1))
    spans = [1]
    for loop in reversed(loops):
        spans.insert(0, spans[0] + loop.stride * (loop.count - 1))
    depth = next(depth for depth in range(len(loops)) if spans[depth + 1] <= len(buffer))
    split, inner = loops[depth], loops[depth + 1 :]
    step = (len(buffer) - spans[depth + 1]) // split.stride + 1
    for digits in product(*(range(loop.count) for loop in loops[:depth])):
        start = access_map.start + sum(d * loop.stride for d, loop in zip(digits, loops, strict=False))
        to = access_map.replica_start + sum(d * loop.replica_stride for d, loop in zip(digits, loops, strict=False))
        for first in range(0, split.count, step):
            block = (split._replace(count=min(step, split.count - first)), *inner)
            offset = start + first * split.stride
            span = spans[depth + 1] + (block[0].count - 1) * split.stride
            _read_block(descriptor, path, offset, block, spans[depth:], span, buffer)
            yield from _transpose(buffer, block, to + first * split.replica_stride)


def _read_block(
    descriptor: int, path: Path, offset: int, block: tuple[MapLoop, ...], spans: list[int], span: int, buffer: Bytes
) -> None:
    """Read a block into the buffer, leaving out the holes that are larger than ``HOLE``."""
    holes = [depth for depth, loop in enumerate(block) if loop.count > 1 and loop.stride - spans[depth + 1] >= HOLE]
    if not holes:
        _read(descriptor, path, offset, buffer[:span])
        return
    outer, length = block[: holes[-1] + 1], spans[holes[-1] + 1]
    for digits in product(*(range(loop.count) for loop in outer)):
        at = sum(d * loop.stride for d, loop in zip(digits, outer, strict=True))
        _read(descriptor, path, offset + at, buffer[at : at + length])


def _transpose(buffer: Bytes, block: tuple[MapLoop, ...], to: int) -> Iterator[Run]:
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
    data = np.ascontiguousarray(view.transpose(axes)).reshape(len(starts), length)
    for start, row in zip(starts.tolist(), data, strict=True):
        yield Run(start, row)


def _irregular_runs(descriptor: int, path: Path, access_map: AccessMap, buffer: Bytes) -> Iterator[Run]:
    at, end = access_map.extent
    while (tile := next(access_map.locate(at, end), None)) is not None:
        window, at = tile.offset, tile.offset + len(buffer)
        offsets, lengths, replica = access_map.tiles(window, at)
        for first, stop in _neighbours(offsets, lengths, HOLE):
            low, high = int(offsets[first]), int(offsets[stop - 1] + lengths[stop - 1])
            _read(descriptor, path, low, buffer[low - window : high - window])
        order = np.argsort(replica)
        offsets, lengths, replica = offsets[order] - window, lengths[order], replica[order]
        view = buffer.data
        for first, stop in _neighbours(replica, lengths, 1):
            pieces = zip(offsets[first:stop].tolist(), lengths[first:stop].tolist(), strict=True)
            data = b"".join([view[offset : offset + length] for offset, length in pieces])
            yield Run(int(replica[first]), np.frombuffer(data, dtype=np.uint8))


def _neighbours(starts: Int64Array, lengths: Int64Array, gap: int) -> Iterator[tuple[int, int]]:
    """The half-open index ranges of sorted extents between which there are at least ``gap`` bytes."""
    cuts = np.flatnonzero(starts[1:] - starts[:-1] - lengths[:-1] >= gap) + 1
    bounds = [0, *cuts.tolist(), len(starts)]
    return pairwise(bounds)


def _read(descriptor: int, path: Path, offset: int, into: Bytes) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:].data], offset + done)
        if count == 0:
            raise PdlaError(f"{path} ended at byte {offset + done} while it was copied: nothing was replicated")
        done += count
