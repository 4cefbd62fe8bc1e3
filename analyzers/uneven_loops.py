"""Uneven loops: loops of a few turns whose stride differs from rank to rank, such as over the cells of a rank in BT-IO.

The nests with such loops have no counterpart on other ranks, but their turns have. Cut into these, they are global
patterns, if that takes fewer numbers (ADR 36).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from pdla.analyzers.description_length import accesses, numbers_of
from pdla.analyzers.global_patterns import GlobalPattern, find_global
from pdla.analyzers.local_patterns import LocalPatterns
from pdla.model import Int64Array

TRIES = 4
"""Ways to cut that are tried."""

KINDS = 1024
"""Nests without counterpart of more shapes than this have nothing in common."""


def uneven(local: LocalPatterns, found: list[GlobalPattern], rest: Int64Array) -> Int64Array | None:
    """How to cut the nests (the number of a cut of each: Shapes.cuts), or None if that takes no fewer numbers.

    Args:
        local: nests that are not cut yet.
        found: the global patterns that they make up.
        rest: those that are in none.
    """
    best, settled = None, np.zeros(len(local.table), np.bool_)
    ways = _ways(local, rest)
    if not ways:
        return None
    of_many, of_row = numbers_of(local, found, rest)
    least = of_many.sum() + of_row.sum()
    share = np.zeros(len(local.table))
    share[rest] = of_row
    for one, numbers in zip(found, of_many.tolist(), strict=True):
        share[one.members] = numbers / len(one.members)
    most = np.array([share[way.rows].sum() + share[way.alike].sum() - way.least for way in ways])
    for number in np.argsort(-most, kind="stable")[:TRIES].tolist():
        way = ways[number]
        free = ~settled[way.rows]
        if most[number] <= 0 or not free.any():
            continue
        cuts = np.zeros(len(local.table), np.int64) if best is None else best.copy()
        cuts[way.rows[free]] = way.cuts[free]
        parts = local.cut(cuts)
        total = sum(int(numbers.sum()) for numbers in numbers_of(parts, *find_global(parts)))
        if total < least:
            best, least = cuts, total
            settled[way.rows] = settled[way.alike] = True
    return best


class _Way(NamedTuple):
    """Nests, the number of the cut of each that makes them parts of one shape, the nests that have this shape, and how
    many numbers all of these take at least."""

    rows: Int64Array
    cuts: Int64Array
    alike: Int64Array
    least: int


def _ways(local: LocalPatterns, rest: Int64Array) -> list[_Way]:
    """The ways to cut nests of streams with some that are in no pattern, into parts that several ranks have.

    Some of many random accesses are in loops by chance. So the nests of a way and those like their parts have a 16th
    of the accesses of the stream, or more; if the parts are single accesses, the nests alone have half of them.
    """
    stream, shape, rank = (local.column(name) for name in ("stream", "shape", "rank"))
    size = local.shapes.size[shape]
    loops = ~local.fragments & (local.shapes.child[shape] >= 0)
    rows = np.flatnonzero(loops & np.isin(stream, stream[rest[loops[rest]]]))
    kinds, of = np.unique(np.stack((stream[rows], shape[rows])), axis=1, return_inverse=True)
    if not 0 < kinds.shape[1] <= KINDS:
        return []
    several: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for kind, (of_stream, number) in enumerate(kinds.T.tolist()):
        for cut, one in enumerate(local.shapes.cuts(number)[1:], 1):
            several[of_stream, one.shape].append((kind, cut))
    members = np.split(rows[np.argsort(of.ravel(), kind="stable")], np.cumsum(np.bincount(of.ravel()))[:-1])
    total = accesses(local)
    ways = []
    for (of_stream, number), several_cuts in several.items():
        nests = np.concatenate([members[kind] for kind, _ in several_cuts])
        alike = np.flatnonzero((stream == of_stream) & (shape == number))
        ranks = len(np.union1d(rank[nests], rank[alike]))
        if local.shapes.child[number] < 0:
            chance = 2 * size[nests].sum() < total[of_stream]
        else:
            chance = 16 * (size[nests].sum() + size[alike].sum()) < total[of_stream]
        if ranks > 1 and not chance:
            cuts = np.repeat([cut for _, cut in several_cuts], [len(members[kind]) for kind, _ in several_cuts])
            parts = size[nests].sum() // local.shapes.size[number] + len(alike)
            least = -(-parts // ranks) * (local.shapes.numbers[number] + 2)
            ways.append(_Way(nests, cuts, alike, int(least)))
    return ways
