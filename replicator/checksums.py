"""CRC32C of every 4 MiB of a component while its bytes arrive in whatever order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import google_crc32c
import numpy as np

from pdla.catalog import Checksum
from pdla.replicator.transpose import Bytes
from pdla.units import MiB

EXTENT = 4 * MiB
_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed


class ComponentChecksums:
    """Takes the pieces of a component of ``size`` bytes; bytes that never come are zeros (holes of the striping)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._spans: dict[int, tuple[int, int]] = {}  # end -> (start, CRC32C of the bytes between)

    def add(self, offset: int, data: Bytes) -> None:
        """Bytes at ``offset``; none of them may have come before."""
        done = 0
        while done < len(data):
            at = offset + done
            part = data[done : done + EXTENT - at % EXTENT]
            start, crc = self._spans.pop(at, (at, 0)) if at % EXTENT else (at, 0)
            done += len(part)
            self._spans[at + len(part)] = (start, google_crc32c.extend(crc, part))

    def finish(self) -> list[Checksum]:
        """The checksums of all extents."""
        spans = sorted((start, end, crc) for end, (start, crc) in self._spans.items())
        result, position = [], 0
        for extent in range(0, self._size, EXTENT):
            stop = min(extent + EXTENT, self._size)
            at, crc = extent, 0
            while position < len(spans) and spans[position][0] < stop:
                start, end, part = spans[position]
                crc = combine(_extend_zeros(crc, start - at), part, end - start)
                at, position = end, position + 1
            result.append(Checksum(extent, stop - extent, _extend_zeros(crc, stop - at)))
        return result


def first_damage(descriptor: int, checksums: Sequence[Checksum]) -> Checksum | None:
    """The first extent of a file whose bytes are not those of its checksum."""
    buffer = np.empty(EXTENT, dtype=np.uint8)
    for checksum in checksums:
        part = buffer[: checksum.length]
        count = os.preadv(descriptor, [part.data], checksum.offset)
        if count != checksum.length or google_crc32c.value(part) != checksum.crc32c:
            return checksum
    return None


def whole(checksums: list[Checksum]) -> int:
    """The CRC32C of a component from those of its extents."""
    crc = 0
    for checksum in checksums:
        crc = combine(crc, checksum.crc32c, checksum.length)
    return crc


def combine(first: int, second: int, length: int) -> int:
    """The CRC32C of two byte strings one after the other, from theirs and the length of the second.

    >>> combine(google_crc32c.value(b"1234"), google_crc32c.value(b"56789"), 5) == 0xE3069283
    True
    """
    return _multiply(first, _zeros(length)) ^ second if first else second


def _extend_zeros(crc: int, length: int) -> int:
    return int(google_crc32c.extend(crc, bytes(length))) if length else crc


@cache
def _zeros(length: int) -> int:
    """x^(8 * length) modulo the polynomial: what ``length`` bytes do to the checksum before them."""
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
