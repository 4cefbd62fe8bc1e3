"""Times of processes on several nodes on one time line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def align(headers: Sequence[Mapping[str, Any]]) -> tuple[list[int], int]:
    """What is to be added to the times of each process (ns), so that 0 is where the first of them began, and the number
    of groups of nodes that only their wall clocks align.

    Processes that read the same clock need nothing. Clocks that were compared at MPI_Init differ by what was measured
    then, added up along the tree of the comparisons (collectors/shim/clocks.c).
    """
    parents: dict[int, tuple[int, int]] = {}
    for header in headers:
        clock, parent = int(header["clock"]["id"]), int(header["clock"]["parent"])
        # Where several programs ran, the same clocks may have been compared again, and the other way round.
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
    """The clock that this one is measured by, over others, and what is to be added to its times to have that one's."""
    total = 0
    while clock in parents:
        clock, offset = parents[clock]
        total += offset
    return clock, total
