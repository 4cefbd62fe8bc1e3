"""Global patterns: local ones of equal shape whose starts are a grid over the ranks, with rank as the leading loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdla.analyzers.local import LocalPatterns
from pdla.analyzers.templates import BoolArray, Nests, match
from pdla.model import Int64Array, Loop

LONE_ACCESSES = 64
"""A rank that has more single accesses to a file than this has no pattern, whatever the other ranks do."""


@dataclass(frozen=True)
class GlobalPattern:
    """``members`` are rows of the local patterns in row-major order of ``rank_loops``."""

    start: int
    rank_loops: tuple[Loop, ...]
    members: Int64Array


def find_global(local: LocalPatterns) -> list[GlobalPattern]:
    """The global patterns that the local ones make up; a local pattern is part of at most one.

    The k-th pattern of a shape on one rank belongs with the k-th of that shape on the others. Starts are matched as a
    sequence over the ranks, as accesses are over time, in the order of the ranks or of the starts, whichever needs
    fewer nests.
    """
    rows = _candidates(local)
    occurrence = _occurrences(local, rows)
    keys = (occurrence, local.shape[rows], local.stream[rows])
    by_rank = rows[np.lexsort((local.rank[rows], *keys))]
    by_start = rows[np.lexsort((local.rank[rows], local.start[rows], *keys))]
    group = _numbered(*(key[np.lexsort((local.rank[rows], *keys))] for key in keys))
    groups = int(group[-1]) + 1 if len(group) else 0
    ranked = match(local.start[by_rank], local.shape[by_rank], group)
    placed = match(local.start[by_start], local.shape[by_start], group)
    better = np.bincount(group[placed.first], minlength=groups) < np.bincount(group[ranked.first], minlength=groups)
    found = _patterns(ranked, by_rank, group, ~better, local) + _patterns(placed, by_start, group, better, local)
    return sorted(found, key=lambda pattern: int(pattern.members[0]))


def _candidates(local: LocalPatterns) -> Int64Array:
    """Patterns that may be part of a global one: all but the single accesses of ranks that have very many."""
    lone = np.bincount(local.sequence, weights=local.lone)
    return np.flatnonzero(~local.lone | (lone[local.sequence] <= LONE_ACCESSES))


def _occurrences(local: LocalPatterns, rows: Int64Array) -> Int64Array:
    """0, 1, 2, ... among the patterns of one shape in one sequence."""
    order = np.lexsort((local.shape[rows], local.sequence[rows]))
    group = _numbered(local.shape[rows][order], local.sequence[rows][order])
    places = np.arange(len(rows))
    occurrence = np.empty(len(rows), np.int64)
    occurrence[order] = places - np.searchsorted(group, group)
    return occurrence


def _numbered(*keys: Int64Array) -> Int64Array:
    """Numbers for runs of equal keys."""
    begins = np.zeros(len(keys[0]), np.bool_)
    for key in keys:
        begins[1:] |= np.diff(key) != 0
    return np.cumsum(begins)


def _patterns(
    nests: Nests, rows: Int64Array, group: Int64Array, wanted: BoolArray, local: LocalPatterns
) -> list[GlobalPattern]:
    """The nests over more than one rank in the wanted groups."""
    size = nests.shapes.size[nests.shape]
    of_group = group[nests.first]
    ranks = np.bincount(group)
    # In a larger group two left-over ranks are always a pair; only in a group of two it means something.
    chosen = wanted[of_group] & ((size > 2) | ((size == 2) & (ranks[of_group] == 2)))
    chosen &= ~_chance_pairs(nests, rows, local, chosen & (size == 2))
    return [
        GlobalPattern(
            int(nests.start[number]),
            nests.shapes.loops(int(nests.shape[number])),
            rows[nests.first[number] : nests.first[number] + size[number]],
        )
        for number in np.flatnonzero(chosen)
    ]


def _chance_pairs(nests: Nests, rows: Int64Array, local: LocalPatterns, pairs: BoolArray) -> BoolArray:
    """Which pairs of single accesses say nothing: two ranks have several such pairs, each at another distance."""
    chance = np.zeros(len(nests), np.bool_)
    heads = rows[nests.first]
    lone = np.flatnonzero(pairs & local.lone[heads])
    stream, shape, stride = local.stream[heads[lone]], local.shape[heads[lone]], nests.shapes.stride[nests.shape[lone]]
    order = np.lexsort((stride, shape, stream))
    alike = _numbered(shape[order], stream[order])
    same = _numbered(stride[order], shape[order], stream[order])
    alone = (np.bincount(same)[same] == 1) & (np.bincount(alike)[alike] > 1)
    chance[lone[order[alone]]] = True
    return chance
