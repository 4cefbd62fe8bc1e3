"""Where a replica's logical bytes lie on its components: the striping rule of replicator/stub/mapfile.h.

With w = servers / groups and cycle = sum(strips), byte x is in section r = x // section, at y = x %
section of it. The section is in group r % groups. There, in cycle y // cycle, the server whose
strip holds y % cycle has the byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from pdla.model import Layout


class Piece(NamedTuple):
    """``length`` bytes at ``offset`` of a component, which are the replica's logical bytes from ``logical`` on."""

    component: int
    offset: int
    length: int
    logical: int


def locate(layout: Layout, start: int, stop: int) -> list[Piece]:
    """The pieces of the logical range [start, stop), in logical order, split at the end of every strip and section.

    >>> for piece in locate(Layout("hdd", 2, 1, (65536, 65536), 1 << 20), 61440, 69632):
    ...     print(*piece)
    0 61440 4096 61440
    1 0 4096 65536
    """
    return list(_pieces(layout, start, stop))


def _pieces(layout: Layout, start: int, stop: int) -> Iterator[Piece]:
    strips, before, cycle = layout.strips, _before(layout), sum(layout.strips)
    section_cycles = -(-layout.section // cycle)
    at = start
    while at < stop:
        section, y = divmod(at, layout.section)
        end = min(stop - at, layout.section - y) + y
        first = section % layout.groups * len(strips)
        row = section // layout.groups * section_cycles
        while y < end:
            number, z = divmod(y, cycle)
            for j, (strip, low) in enumerate(zip(strips, before, strict=True)):
                length = min(low + strip, z + end - y) - z
                if length > 0:
                    yield Piece(first + j, (row + number) * strip + z - low, length, at)
                    y, z, at = y + length, z + length, at + length


def component_sizes(layout: Layout, size: int) -> list[int]:
    """Bytes of every component file of a replica of ``size`` logical bytes (up to the last byte that it holds).

    >>> component_sizes(Layout("hdd", 4, 2, (65536, 65536), 262144), 524288 + 10)
    [131082, 131072, 131072, 131072]
    """
    sections, rest = divmod(size, layout.section)
    row, last = divmod(sections, layout.groups)
    section_cycles = -(-layout.section // sum(layout.strips))
    full, cut = _ends(layout, layout.section), _ends(layout, rest)

    def group(rows: int) -> list[int]:
        """The servers of a group with so many whole sections."""
        return [
            (rows - 1) * section_cycles * strip + end if rows and end else 0
            for strip, end in zip(layout.strips, full, strict=True)
        ]

    before, after = group(row + 1) if last else [], group(row)
    partial = [
        row * section_cycles * strip + end if end else held
        for strip, end, held in zip(layout.strips, cut, after, strict=True)
    ]
    return before * last + partial + after * (layout.groups - last - 1)


def _before(layout: Layout) -> tuple[int, ...]:
    """Bytes of a cycle before each server's strip."""
    return (0, *accumulate(layout.strips[:-1]))


def _ends(layout: Layout, count: int) -> list[int]:
    """How many of the first ``count`` bytes of a section each server of its group has."""
    cycles, left = divmod(count, sum(layout.strips))
    ends = []
    for strip in layout.strips:
        last = min(left, strip)
        ends.append(cycles * strip + last)
        left -= last
    return ends
