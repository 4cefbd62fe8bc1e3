"""The component files of a replica while it is built: written in large pieces, read back from storage and compared."""

from __future__ import annotations

import ctypes
import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
from typing import NamedTuple, Self

import numpy as np

from pdla.catalog import Checksum
from pdla.errors import PdlaError
from pdla.layouts.striping import locate
from pdla.model import Layout
from pdla.replicator.backends.base import NewComponent
from pdla.replicator.checksums import EXTENT, ComponentChecksums, is_stored
from pdla.replicator.transpose import BLOCK, WINDOW, Bytes, Run, aligned, reopened_direct
from pdla.units import KiB, MiB

# Shorter pieces go through the page cache, which joins them; shorter stretches of zeros are
# written, not punched.
SHORT = 16 * KiB
BATCH = MiB
THREADS = 4

_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_libc = ctypes.CDLL(None, use_errno=True)


class _Write(NamedTuple):
    component: int
    offset: int
    data: Bytes
    sparse: bool


class _Half:
    """One half of the write buffer: the bytes in use, their writes, and the extents that they complete."""

    def __init__(self) -> None:
        # A run may be as long as a window and begin anywhere in a block.
        self.memory = aligned(WINDOW + BLOCK)
        self.used = 0
        self.writes: list[Future[None]] = []
        self.complete: list[tuple[int, Checksum]] = []


class ComponentFiles:
    """Takes the runs of a replica, which is striped by ``rule``.

    Bytes go to storage directly, and every extent is read back as soon as it is complete, while
    others are written. If a file system has no direct I/O, or is slower with it, bytes go through
    the page cache and are read back at the end.

    Holes of the original become holes again: the space that was reserved for them is given back.

    ``files`` are open for reading and writing; the caller closes them. Memory: ``2 * WINDOW +
    THREADS * EXTENT``.
    """

    def __init__(self, components: Sequence[NewComponent], files: Sequence[int], rule: Layout) -> None:
        self._components = components
        self._files = files
        self._rule = rule
        self._reopened = [reopened_direct(file, os.O_RDWR) for file in files]
        self._direct = list(self._reopened)
        self._sums = [ComponentChecksums(component.size) for component in components]
        self._filling, self._flying = _Half(), _Half()
        self._batch: list[_Write] = []
        self._batched = 0
        self._verifying: deque[Future[int]] = deque()
        self._to_verify = self._verified = 0
        self._late: list[tuple[int, Checksum]] = []
        self._buffers = local()
        self._threads = ThreadPoolExecutor(THREADS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for file in self._reopened:
            if file is not None:
                os.close(file)

    def read(self, start: int, data: Bytes) -> None:
        """Fill ``data`` with the bytes of the replica from ``start`` on, read from the files."""
        for component, offset, length, logical in locate(self._rule, start, start + len(data)):
            part, count = data[logical - start :][:length], 0
            with self._reported("read back", component):
                while count < length and (
                    more := os.preadv(self._files[component], [part[count:].data], offset + count)
                ):
                    count += more
            if count < length:
                raise PdlaError(f"{self._components[component].path} became shorter: nothing was replicated")

    def write(self, run: Run) -> None:
        """Write a run where the layout says. A later call may report the failure."""
        for component, offset, pieces in _parts(self._rule, run.start, run.data):
            length = sum(piece.size for piece in pieces)
            at = self._filling.used
            if length >= SHORT:  # aligned as in the file, for direct I/O
                at = -(-at // BLOCK) * BLOCK + offset % BLOCK
            if at + length > len(self._filling.memory):
                self._turn()
                at = offset % BLOCK
            self._filling.used = at + length
            data = self._filling.memory[at : at + length]
            for piece in pieces:
                np.copyto(data[: piece.size].reshape(piece.shape), piece)
                data = data[piece.size :]
            data = self._filling.memory[at : at + length]
            self._filling.complete += [(component, done) for done in self._sums[component].add(offset, data)]
            self._batch.append(_Write(component, offset, data, run.sparse))
            self._batched += length
            if self._batched >= BATCH:
                self._submit()

    def flush(self) -> list[ComponentChecksums]:
        """Make everything written durable; return the checksums of it."""
        self._turn()
        self._turn()
        list(self._threads.map(self._sync, range(len(self._files))))
        return self._sums

    def verify(self, extents: Sequence[tuple[int, Checksum]], progress: Callable[[int, int], None]) -> None:
        """Check all extents that were not read back yet: those given, by component, and those of this process.

        ``progress`` is called with the bytes verified so far, and the total.

        Raises:
            PdlaError: storage returned other bytes than were written.
        """
        for component, checksum in (*self._late, *extents):
            self._read_back(component, checksum)
        while self._verifying:
            self._wait_for_next()
            progress(self._verified, self._to_verify)

    def _read_back(self, component: int, checksum: Checksum) -> None:
        self._to_verify += checksum.length
        self._verifying.append(self._threads.submit(self._verify, component, checksum))

    def _wait_for_next(self) -> None:
        self._verified += self._verifying.popleft().result()

    def _submit(self) -> None:
        if self._batch:
            self._filling.writes.append(self._threads.submit(self._store, self._batch))
            self._batch, self._batched = [], 0

    def _turn(self) -> None:
        """Wait for the other half's writes, read back the extents that they completed, and go on with that half."""
        self._submit()
        landed = self._flying
        for write in landed.writes:
            write.result()
        for component, checksum in landed.complete:
            if self._direct[component] is None or not self._components[component].direct:
                self._late.append((component, checksum))
            else:
                self._read_back(component, checksum)
        while len(self._verifying) > 2 * THREADS:
            self._wait_for_next()
        landed.used, landed.writes, landed.complete = 0, [], []
        self._filling, self._flying = landed, self._filling

    @contextmanager
    def _reported(self, what: str, component: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = self._components[component].path
            raise PdlaError(f"cannot {what} {path}: {error.strerror}: nothing was replicated") from error

    def _sync(self, component: int) -> None:
        with self._reported("make durable", component):
            os.fsync(self._files[component])

    def _store(self, writes: list[_Write]) -> None:
        for component, offset, data, sparse in writes:
            with self._reported("write", component):
                for start, stop in _holes(offset, data) if sparse else ():
                    self._put(component, offset, data[: start - offset])
                    _punch(self._files[component], start, stop - start)
                    offset, data = stop, data[stop - offset :]
                self._put(component, offset, data)

    def _put(self, component: int, offset: int, data: Bytes) -> None:
        file, direct = self._files[component], self._direct[component]
        first, last = -(-offset // BLOCK) * BLOCK, (offset + len(data)) // BLOCK * BLOCK
        if direct is None or not self._components[component].direct or last - first < SHORT:
            _write(file, offset, data)
            return
        # RATIONALE: the page cache and direct I/O never share a block: one might not see what the
        # other wrote.
        _write(file, offset, data[: first - offset])
        try:
            _write(direct, first, data[first - offset : last - offset])
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._direct[component] = None  # this file system refuses direct I/O only now
            _write(file, first, data[first - offset : last - offset])
        _write(file, last, data[last - offset :])

    def _verify(self, component: int, checksum: Checksum) -> int:
        if not hasattr(self._buffers, "extent"):
            self._buffers.extent = aligned(EXTENT)
        file, direct = self._files[component], self._direct[component]
        with self._reported("read back", component):
            stored = is_stored(file, direct, checksum, self._buffers.extent)
        if not stored:
            raise PdlaError(
                f"storage did not return {self._components[component].path} as it was written: nothing was replicated"
            )
        return checksum.length


def _parts(layout: Layout, start: int, data: Bytes) -> Iterator[tuple[int, int, list[Bytes]]]:
    """The parts of the replica's bytes from ``start`` on: component, offset, and the bytes, in which strips of the same
    length are the rows of a matrix (the striping rule of layouts/striping.py)."""
    cycle = sum(layout.strips)
    section_cycles = -(-layout.section // cycle)
    width = len(layout.strips)
    at = start
    while at < start + len(data):
        section, low = divmod(at, layout.section)
        high = min(layout.section, low + start + len(data) - at)
        part = data[at - start :][: high - low]
        row, group = divmod(section, layout.groups)
        before = 0
        for number, strip in enumerate(layout.strips):
            held = low // cycle * strip + min(max(low % cycle - before, 0), strip)
            pieces = [piece for piece in _strips(part, low, cycle, before, strip) if piece.size]
            if pieces:
                yield group * width + number, row * section_cycles * strip + held, pieces
            before += strip
        at += high - low


def _strips(part: Bytes, low: int, cycle: int, before: int, strip: int) -> list[Bytes]:
    """The bytes of a section, from ``low`` on, that are in the strip ``before`` bytes into every cycle."""
    first, last = low // cycle, (low + len(part) - 1) // cycle

    def cut(number: int) -> Bytes:
        at = number * cycle + before - low
        return part[max(at, 0) : max(at + strip, 0)]

    if last - first < 2:
        return [cut(number) for number in range(first, last + 1)]
    between = part[(first + 1) * cycle - low : last * cycle - low].reshape(-1, cycle)
    return [cut(first), between[:, before : before + strip], cut(last)]


def _holes(offset: int, data: Bytes) -> Iterator[tuple[int, int]]:
    """The long stretches of whole blocks of zeros, as file offsets."""
    first, last = -(-offset // BLOCK) * BLOCK, (offset + len(data)) // BLOCK * BLOCK
    if last - first < SHORT:
        return
    blocks = data[first - offset : last - offset].view(np.uint64).reshape(-1, BLOCK // 8)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], ~blocks.any(axis=1), [0]]).astype(np.int8)))
    for start, stop in (first + edges.reshape(-1, 2) * BLOCK).tolist():
        if stop - start >= SHORT:
            yield start, stop


def _punch(file: int, offset: int, length: int) -> None:
    """Give space back, if the file system can. It reads as zeros in any case: nothing was written to it."""
    _libc.fallocate(file, _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length))


def _write(file: int, offset: int, data: Bytes) -> None:
    while len(data):
        count = os.pwritev(file, [data.data], offset)
        offset, data = offset + count, data[count:]
