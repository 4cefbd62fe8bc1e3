"""From the order of the original to the order of a replica, window by window, in memory.

The original is read in large windows in file order. With a regular map a window is a strided array,
and the replica's order is another view of it: one vectorised copy moves millions of pieces.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pdla.accessmap import AccessMap, MapLoop
from pdla.errors import PdlaError
from pdla.model import Int64Array
from pdla.units import KiB, MiB

# Three of these are in use. A larger one would make longer runs if many ranks read small pieces.
WINDOW = 16 * MiB
# Shorter writes cost more for the calls than for the bytes.
RUN = 64 * KiB
# Shorter holes are read, too: that takes no longer than another request.
HOLE = 128 * KiB
# A block of this size stays in the processor's cache while it is rearranged, however often its
# lines are touched.
CACHED = 256 * KiB
# Longer pieces are copied as bytes: numpy has a call for each of the shorter ones.
ITEM = 512
# Direct I/O needs whole blocks of this size, in the file and in memory.
BLOCK = 4 * KiB
# Bytes read between two checks of what is cached.
AT_ONCE = 4 * MiB
# Extents of a table that are rearranged at a time; this bounds the memory for them.
EXTENTS = 1 << 16

Bytes = npt.NDArray[np.uint8]

_libc = ctypes.CDLL(None)


class Run(NamedTuple):
    """Consecutive bytes of a replica from ``start`` on; ``sparse``: some may come from holes of the original."""

    start: int
    data: Bytes
    sparse: bool


class _Window(NamedTuple):
    """A part of the original that fits into the buffer: what to read (file offset, buffer offset, length), and how the
    buffer becomes runs, with a second buffer for the bytes in the replica's order."""

    reads: list[tuple[int, int, int]]
    arrange: Callable[[Bytes, Bytes], Iterator[tuple[int, Bytes]]]


def aligned(size: int) -> Bytes:
    """Page-aligned memory, in large pages if the system has them."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


def runs(
    descriptor: int, path: Path, access_map: AccessMap, window: int = WINDOW, part: int = 0, parts: int = 1
) -> Iterator[Run]:
    """The bytes of the replica, read from the original: its runs in no particular order, each byte once.

    With ``parts`` the original is cut into so many consecutive parts that together hold every byte;
    this reads number ``part``. A run's ``data`` lasts until the next run is asked for. Memory:
    three times ``window`` bytes, because a window is read while the previous one is rearranged.

    Raises:
        PdlaError: the original ends before the map does, or cannot be read.
    """
    find = _regular_windows if access_map.extents is None else _windows
    windows = find(access_map, window, part, parts)
    filling, full, ordered = aligned(window + BLOCK), aligned(window + BLOCK), aligned(window)
    with _Original(descriptor, path) as original, ThreadPoolExecutor(1) as reader:

        def read(wanted: _Window | None, memory: Bytes) -> Future[bool] | None:
            return wanted and reader.submit(original.fill, wanted.reads, memory[wanted.reads[0][0] % BLOCK :])

        current = next(windows, None)
        reading = read(current, filling)
        while current and reading:
            sparse = reading.result()
            following = next(windows, None)
            filling, full = full, filling
            reading = read(following, filling)
            for start, data in current.arrange(full[current.reads[0][0] % BLOCK :], ordered):
                yield Run(start, data, sparse)
            current = following


class _Original:
    """The file to copy, read in large pieces.

    Cached bytes come from the page cache, the others by direct I/O, which saves more than half of the processor time.
    Holes are not read.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._end = os.fstat(descriptor).st_size
        self._has_holes = self._next_hole(0) < self._end
        self._direct = reopened_direct(descriptor, os.O_RDONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._direct is not None:
            os.close(self._direct)

    def fill(self, reads: list[tuple[int, int, int]], buffer: Bytes) -> bool:
        """Read (file offset, buffer offset, length) pieces; return whether there were holes in them."""
        sparse = False
        for offset, at, length in reads:
            into = buffer[at : at + length]
            done = 0
            while done < length:
                data, hole = self._next_data(offset + done, offset + length)
                sparse |= (data, hole) != (offset + done, offset + length)
                into[done : data - offset] = 0
                self._read(data, into[data - offset : hole - offset])
                done = hole - offset
        return sparse

    def _next_data(self, start: int, stop: int) -> tuple[int, int]:
        """The first part of [start, stop) to read: holes before it, and long holes after it, are skipped."""
        if not self._has_holes:
            return start, stop
        try:
            first = min(stop, os.lseek(self._descriptor, start, os.SEEK_DATA))
        except OSError:  # nothing but a hole
            return stop, stop
        end = after = self._next_hole(first)
        while end < stop and after - end < HOLE:
            end = self._next_hole(after)
            try:
                after = os.lseek(self._descriptor, end, os.SEEK_DATA)
            except OSError:
                break
        return first, min(end, stop)

    def _next_hole(self, start: int) -> int:
        try:
            return os.lseek(self._descriptor, start, os.SEEK_HOLE)
        except OSError:  # this file system cannot find holes, or the file ends earlier
            return self._end

    def _read(self, offset: int, into: Bytes) -> None:
        done = 0
        while done < len(into):
            try:
                count = self._some(offset + done, into[done:])
            except OSError as error:
                raise PdlaError(
                    f"cannot read the original {self._path} at byte {offset + done}: {error.strerror}: "
                    "nothing was replicated"
                ) from error
            if count == 0:
                raise PdlaError(
                    f"{self._path} ended at byte {offset + done} while it was copied: nothing was replicated"
                )
            done += count

    def _some(self, offset: int, into: Bytes) -> int:
        """Read some bytes: by direct I/O if their places in the file and in memory allow it and few are cached."""
        into = into[:AT_ONCE]
        if self._direct is not None and (into.__array_interface__["data"][0] - offset) % BLOCK == 0:
            before = -offset % BLOCK
            whole = into[: len(into) // BLOCK * BLOCK]
            if before == 0 and len(whole) and self._mostly_stored(offset, len(whole)):
                return os.preadv(self._direct, [whole.data], offset)
            into = into[: before or len(into)]
        return os.preadv(self._descriptor, [into.data], offset)

    def _mostly_stored(self, offset: int, length: int) -> bool:
        """Whether less than half of the range is in the page cache."""
        within = offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(self._descriptor, within + length, prot=mmap.PROT_READ, offset=offset - within)
        except (OSError, ValueError):  # the file cannot be mapped, or ends earlier
            return False
        view = np.frombuffer(mapped, dtype=np.uint8)
        cached = np.zeros(-(-len(view) // mmap.PAGESIZE), dtype=np.uint8)
        _libc.mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(view)), ctypes.c_void_p(cached.ctypes.data)
        )
        return 2 * int(np.count_nonzero(cached & 1)) < len(cached)


def reopened_direct(file: int, access: int) -> int | None:
    """The same file open for direct I/O, or None if the file system does not support it."""
    try:
        return os.open(f"/proc/self/fd/{file}", access | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None


def _regular_windows(access_map: AccessMap, window: int, part: int = 0, parts: int = 1) -> Iterator[_Window]:
    """The blocks of a grid over the index space, in file order."""
    # The bytes of a piece are one more loop, so a piece longer than the window needs no special
    # case.
    loops = (*access_map.loops, MapLoop(access_map.length, 1, 1))
    steps = _block_counts(loops, window)
    grid = [range(0, loop.count, step) for loop, step in zip(loops, steps, strict=True)]
    blocks = math.prod(map(len, grid))
    for corner in islice(product(*grid), blocks * part // parts, blocks * (part + 1) // parts):
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
    """How many iterations of every loop a block has.

    First come enough for runs of ``RUN`` bytes in the replica, then the next ones of the original,
    until the window is full. Both sides see large pieces, even if rows become columns.
    """
    counts = [1] * len(loops)

    def grow(depth: int, limit: int) -> None:
        # The largest count that fits; a block never has fewer bytes if a count grows.
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
    iteration, the bytes of one such read, and of all."""

    strides: list[int]
    apart: int
    read: int
    size: int


def _pack(loops: tuple[MapLoop, ...], counts: list[int]) -> _Packed:
    """A block keeps holes of up to ``HOLE`` bytes, which are read; parts that are further apart are packed."""
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


def _transpose(block: tuple[MapLoop, ...], to: int, buffer: Bytes, ordered: Bytes) -> Iterator[tuple[int, Bytes]]:
    """The runs of a block whose first byte (all digits 0) is the buffer's first and goes to ``to``."""
    *outer, piece = block
    size = math.prod(loop.count for loop in block)
    item = _item(piece.count)
    loops = outer if item.itemsize == piece.count else block
    shape = [loop.count for loop in loops]
    view = np.ndarray(shape, item, buffer.data, strides=[loop.stride for loop in loops])
    for axis, loop in enumerate(loops):
        if loop.replica_stride < 0:
            view = np.flip(view, axis)
            to += loop.replica_stride * (loop.count - 1)
    axes = sorted(range(len(loops)), key=lambda axis: -abs(loops[axis].replica_stride))
    length, scattered = item.itemsize, len(axes)
    while scattered and abs(loops[axes[scattered - 1]].replica_stride) == length:
        scattered -= 1
        length *= shape[axes[scattered]]
    starts = np.array([to], dtype=np.int64)
    for axis in axes[:scattered]:
        steps = np.arange(shape[axis], dtype=np.int64) * abs(loops[axis].replica_stride)
        starts = (starts[:, None] + steps).ravel()
    data = ordered[:size]
    target = data.view(item).reshape([shape[axis] for axis in axes])
    _copy(target.transpose(np.argsort(axes)), view)
    yield from zip(starts.tolist(), data.reshape(len(starts), length), strict=True)


def _item(length: int) -> np.dtype[Any]:
    """The type of a piece of ``length`` bytes if numpy can copy it at once; otherwise that of a byte."""
    if length > ITEM:
        return np.dtype(np.uint8)
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}.get(length, f"V{length}"))


def _copy(target: npt.NDArray[Any], view: npt.NDArray[Any]) -> None:
    """Copy in blocks that fit into the cache; the axes of ``view`` are in the order of memory."""
    stride = abs(view.strides[0]) if view.ndim else 0
    if len(view.shape) < 2 or len(view) * stride <= CACHED:
        np.copyto(target, view)
    elif stride > CACHED // 2:
        for part, block in zip(target, view, strict=True):
            _copy(part, block)
    else:
        rows = CACHED // stride
        for first in range(0, len(view), rows):
            np.copyto(target[first : first + rows], view[first : first + rows])


def _windows(access_map: AccessMap, window: int, part: int = 0, parts: int = 1) -> Iterator[_Window]:
    """Stretches of the original, each of which begins with an extent of the table."""
    low, high = access_map.extent
    at, end = (low + (high - low) * number // parts for number in (part, part + 1))
    while (tile := next(access_map.locate(at, end), None)) is not None:
        start, at = tile.offset, min(tile.offset + window, end)
        offsets, lengths, replica = access_map.tiles(start, at)
        offsets -= start
        reads = [
            (start + int(offsets[first]), int(offsets[first]), int(offsets[last] + lengths[last] - offsets[first]))
            for first, last in _neighbours(offsets, lengths, HOLE)
        ]
        yield _Window(reads, partial(gathered, offsets, lengths, replica))


def gathered(
    offsets: Int64Array, lengths: Int64Array, replica: Int64Array, buffer: Bytes, ordered: Bytes
) -> Iterator[tuple[int, Bytes]]:
    """The runs of extents at ``offsets`` of the buffer: (place in the replica, bytes), each valid until the next."""
    order = np.argsort(replica)
    for first in range(0, len(order), EXTENTS):
        some = order[first : first + EXTENTS]
        yield from _gathered(offsets[some], lengths[some], replica[some], buffer, ordered)


def _gathered(
    offsets: Int64Array, lengths: Int64Array, replica: Int64Array, buffer: Bytes, ordered: Bytes
) -> Iterator[tuple[int, Bytes]]:
    length = int(lengths[0])
    if length <= ITEM and (lengths == length).all():
        item = _item(length)
        view = np.ndarray(len(buffer) - length + 1, item, buffer.data, strides=[1])
        data = ordered[: length * len(offsets)]
        data.view(item)[:] = view[offsets]  # np.take would first make an array of its own of the overlapping view
    else:
        spans = zip(offsets.tolist(), (offsets + lengths).tolist(), strict=True)
        data = np.frombuffer(b"".join([buffer.data[start:stop] for start, stop in spans]), dtype=np.uint8)
    ends = np.cumsum(lengths)
    for first, last in _neighbours(replica, lengths, 1):
        yield int(replica[first]), data[ends[first] - lengths[first] : ends[last]]


def _neighbours(starts: Int64Array, lengths: Int64Array, gap: int) -> Iterator[tuple[int, int]]:
    """(first, last) of the groups of sorted extents with at least ``gap`` bytes between the groups."""
    cuts = np.flatnonzero(starts[1:] - starts[:-1] - lengths[:-1] >= gap)
    return zip([0, *(cuts + 1).tolist()], [*cuts.tolist(), len(starts) - 1], strict=True)
