"""Move pieces of one place of storage to the original: large reads, large writes in the order of the file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from mmap import PAGESIZE
from pathlib import Path

import numpy as np

from pdla.model import Int64Array
from pdla.replicator.transpose import Bytes
from pdla.units import KiB, MiB

BATCH = 16 * MiB
AHEAD, ASK, HOLE = 8 * MiB, MiB, 128 * KiB
"""Bytes of the original that are read, before a write to a part of them, in one request, and as one with holes."""

Read = Callable[[int, int], Bytes]
"""Reads a number of bytes from a place on."""


def cut(
    offsets: Int64Array, lengths: Int64Array, places: Int64Array
) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Batches of pieces with at most ``BATCH`` bytes together; longer pieces are cut."""
    parts = -(-lengths // BATCH)
    piece = np.repeat(np.arange(len(lengths)), parts)
    skip = (np.arange(len(piece)) - np.repeat(np.cumsum(parts) - parts, parts)) * BATCH
    offsets, places = offsets[piece] + skip, places[piece] + skip
    lengths = np.minimum(lengths[piece] - skip, BATCH)
    number = np.cumsum(lengths) // (BATCH + 1)
    for part in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(number)) + 1):
        if len(part):
            yield offsets[part], lengths[part], places[part]


def move(target: int, read: Read, offsets: Int64Array, lengths: Int64Array, places: Int64Array) -> None:
    """Read pieces in the order of their places; write them in the original's order, adjacent ones in one call."""
    at = np.cumsum(lengths) - lengths
    buffer = np.empty(int(lengths.sum()), dtype=np.uint8)
    order = np.argsort(places)
    for group in _neighbours(places[order], lengths[order]):
        run = order[group]
        data = read(int(places[run[0]]), int(lengths[run].sum()))
        begin = 0
        for start, length in zip(at[run].tolist(), lengths[run].tolist(), strict=True):
            buffer[start : start + length] = data[begin : begin + length]
            begin += length
    groups = _neighbours(offsets, lengths)
    first, last = [group.start for group in groups], [group.stop - 1 for group in groups]
    starts, stops = offsets[first], offsets[last] + lengths[last]
    asks = _asks(target, starts, stops)
    for begin, start, stop in zip(at[first].tolist(), starts.tolist(), stops.tolist(), strict=True):
        while asks and asks[0][0] < start + AHEAD:
            os.posix_fadvise(target, *asks.popleft(), os.POSIX_FADV_WILLNEED)
        _write(target, buffer[begin : begin + stop - start].data, start)


def _asks(target: int, starts: Int64Array, stops: Int64Array) -> deque[tuple[int, int]]:
    """The reads (offset, length) that the kernel should begin before extents are written.

    They are of the pages that are written in part, as in replicator/stub/partial_pages.c.
    """
    if os.major(os.fstat(target).st_dev) == 0:
        return deque()
    edges = np.concatenate([starts[starts % PAGESIZE > 0], stops[stops % PAGESIZE > 0]])
    pages = np.unique(edges // PAGESIZE) * PAGESIZE
    runs = np.split(pages, np.flatnonzero(np.diff(pages) > HOLE) + 1) if len(pages) else []
    found = ((int(run[0]), int(run[-1]) + PAGESIZE) for run in runs)
    return deque((at, min(stop - at, ASK)) for start, stop in found for at in range(start, stop, ASK))


def _neighbours(starts: Int64Array, lengths: Int64Array) -> list[slice]:
    """The groups of sorted pieces that are adjacent."""
    cuts = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
    return [slice(*group) for group in pairwise([0, *cuts.tolist(), len(starts)])]


def read_all(file: int, part: memoryview, place: int, path: Path) -> None:
    """Fill ``part`` from an open file."""
    done = 0
    while done < len(part):
        count = os.preadv(file, [part[done:]], place + done)
        if count == 0:
            raise OSError(f"{path} is shorter than it was")
        done += count


def _write(target: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(target, data[done:], offset + done)
