"""CRC32C of every 4 MiB extent of a component, while its bytes arrive in any order."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from functools import cache

import google_crc32c

from pdla.catalog import Checksum
from pdla.replicator.transpose import BLOCK, Bytes
from pdla.units import MiB

EXTENT = 4 * MiB
_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed


@dataclass
class _Extent:
    """What has arrived of an extent: the number of bytes, and the stretches by their end: (start, CRC32C)."""

    arrived: int = 0
    stretches: dict[int, tuple[int, int]] = field(default_factory=dict)


class ComponentChecksums:
    """Takes the pieces of a component of ``size`` bytes. Bytes that never arrive are zeros (holes of the striping).

    Several processes may each take some of the pieces; ``merge`` combines them.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[int, _Extent] = {}
        self._complete: dict[int, Checksum] = {}

    def add(self, offset: int, data: Bytes) -> list[Checksum]:
        """Add the bytes at ``offset``, which must not have arrived before; return the extents that they complete."""
        complete, done = [], 0
        while done < len(data):
            at = offset + done
            first = at - at % EXTENT
            part = data[done : done + first + EXTENT - at]
            done += len(part)
            extent = self._open.setdefault(first, _Extent())
            start, crc = extent.stretches.pop(at, (at, 0))
            extent.stretches[at + len(part)] = (start, google_crc32c.extend(crc, part))
            extent.arrived += len(part)
            if extent.arrived == min(EXTENT, self._size - first):
                complete.append(self._close(first))
        return complete

    def merge(self, other: ComponentChecksums) -> None:
        """Add what another process has of the same component."""
        self._complete |= other._complete
        for first, extent in other._open.items():
            mine = self._open.setdefault(first, _Extent())
            mine.stretches |= extent.stretches

    def finish(self) -> tuple[list[Checksum], list[Checksum]]:
        """The checksums of all extents; and those of them that no ``add`` has returned."""
        late = [self._close(first) for first in range(0, self._size, EXTENT) if first not in self._complete]
        return [self._complete[first] for first in range(0, self._size, EXTENT)], late

    def _close(self, first: int) -> Checksum:
        stop = min(first + EXTENT, self._size)
        stretches = self._open.pop(first, _Extent()).stretches
        at, crc = first, 0
        for start, end, part in sorted((start, end, part) for end, (start, part) in stretches.items()):
            crc = combine(_extend_zeros(crc, start - at), part, end - start)
            at = end
        self._complete[first] = Checksum(first, stop - first, _extend_zeros(crc, stop - at))
        return self._complete[first]


def is_stored(file: int, direct: int | None, checksum: Checksum, buffer: Bytes) -> bool:
    """Whether the bytes of an extent in storage have this checksum, whatever the page cache holds.

    ``direct`` is the same file open for direct I/O, if that is possible; ``buffer`` has ``EXTENT``
    page-aligned bytes.
    """
    os.posix_fadvise(file, checksum.offset, checksum.length, os.POSIX_FADV_DONTNEED)
    read = buffer[: -(-checksum.length // BLOCK) * BLOCK]
    count = 0
    while count < checksum.length and (more := _read(file, direct, read[count:], checksum.offset + count)):
        count += more
    return count >= checksum.length and google_crc32c.value(read[: checksum.length]) == checksum.crc32c


def _read(file: int, direct: int | None, into: Bytes, offset: int) -> int:
    try:
        return os.preadv(file if direct is None else direct, [into.data], offset)
    except OSError as error:
        if direct is None or error.errno != errno.EINVAL:
            raise
        return os.preadv(file, [into.data], offset)  # a file system that refuses direct I/O only now


def whole(checksums: list[Checksum]) -> int:
    """The CRC32C of a component from those of its extents."""
    crc = 0
    for checksum in checksums:
        crc = combine(crc, checksum.crc32c, checksum.length)
    return crc


def combine(first: int, second: int, length: int) -> int:
    """The CRC32C of two byte strings in a row, from their checksums and the length of the second.

    >>> combine(google_crc32c.value(b"1234"), google_crc32c.value(b"56789"), 5) == 0xE3069283
    True
    """
    return _multiply(first, _zeros(length)) ^ second if first else second


def _extend_zeros(crc: int, length: int) -> int:
    return int(google_crc32c.extend(crc, bytes(length))) if length else crc


@cache
def _zeros(length: int) -> int:
    """x^(8 * length) modulo the polynomial: the effect of ``length`` bytes on the checksum before them."""
    power, square = 1 << 31, 1 << 23  # x^0 and x^8: bit 31 is the coefficient of x^0
    while length:
        if length & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        length >>= 1
    return power


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo the polynomial of the CRC."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
