"""Put the times of processes on several nodes on one time line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def align(headers: Sequence[Mapping[str, Any]]) -> tuple[list[int], int]:
    """The nanoseconds to add to the times of each process, and the number of groups of nodes with only wall clocks.

    After the addition, 0 is the time at which the first process began. Processes that read the same
    clock need no addition. Clocks that were compared at MPI_Init differ by what was measured then,
    added up along the tree of the comparisons (collectors/shim/clocks.c). Groups without a
    comparison are aligned by their wall clocks.
    """
    parents: dict[int, tuple[int, int]] = {}
    for header in headers:
        clock, parent = int(header["clock"]["id"]), int(header["clock"]["parent"])
        # If several programs ran, the same clocks may have been compared again, also in the other
        # direction.
        if parent and clock not in parents and _root(parents, parent)[0] != clock:
            parents[clock] = parent, int(header["clock"]["offset_ns"])
    offsets: list[int] = []
    groups: set[Any] = set()
    wall_clocks: dict[int, int] = {}
    for header in headers:
        clock, started = int(header["clock"]["id"]), int(header["monotonic_ns"])
        root, offset = _root(parents, clock)
        wall_clock = int(header["realtime_ns"]) - (started + offset)
        offsets.append(offset + (wall_clocks.setdefault(root, wall_clock) if clock else wall_clock))
        groups.add(root if clock else header["host"])
    epoch = min(int(header["monotonic_ns"]) + offset for header, offset in zip(headers, offsets, strict=True))
    return [offset - epoch for offset in offsets], len(groups)


def _root(parents: Mapping[int, tuple[int, int]], clock: int) -> tuple[int, int]:
    """The clock that this one is measured by, perhaps over others, and the time to add to its times."""
    total = 0
    while clock in parents:
        clock, offset = parents[clock]
        total += offset
    return clock, total
