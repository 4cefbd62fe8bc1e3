"""Global patterns: local ones of equal shape whose starts form a grid over the ranks, with rank as the first loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdla.analyzers.linear_growth import Level, find_growing
from pdla.analyzers.local_patterns import LocalPatterns
from pdla.analyzers.shapes import BoolArray
from pdla.analyzers.templates import Nests, match
from pdla.model import Growth, Int64Array, Loop, Nest


@dataclass(frozen=True)
class GlobalPattern:
    """A global pattern: ``members`` are rows of the local patterns, in row-major order of the loops of ``ranks``; these
    loops reach the members' starts."""

    ranks: Nest
    members: Int64Array


def find_global(local: LocalPatterns) -> tuple[list[GlobalPattern], Int64Array]:
    """The global patterns that the local ones make up, and the rows that belong to none; no row belongs to two.

    The k-th pattern of a shape on one rank is matched with the k-th of that shape on the others.
    Starts are matched as a sequence over the ranks, as accesses are over time, in the order of the
    ranks or of the starts, whichever needs fewer nests. Patterns that are left over may differ only
    in lengths or counts that grow from rank to rank.
    """
    start, shape, stream, rank = (local.column(name) for name in ("start", "shape", "stream", "rank"))
    rows = np.flatnonzero(~local.fragments)
    keys = (_occurrences(local, rows, shape[rows]), shape[rows], stream[rows])
    order = np.lexsort((rank[rows], *keys))
    by_rank, by_start = rows[order], rows[np.lexsort((rank[rows], start[rows], *keys))]
    group = _numbered(*(key[order] for key in keys))
    ranked, placed = (match(start[by], shape[by], group) for by in (by_rank, by_start))
    groups = len(np.unique(group))
    fewer = np.bincount(group[placed.first], minlength=groups) < np.bincount(group[ranked.first], minlength=groups)
    found = _patterns(ranked, by_rank, group, ~fewer, local) + _patterns(placed, by_start, group, fewer, local)
    found += _growing(_left(local, found, rows), local)
    return found, _left(local, found, np.arange(len(start)))


def _left(local: LocalPatterns, found: list[GlobalPattern], rows: Int64Array) -> Int64Array:
    """The rows that belong to no pattern found."""
    part = np.zeros(len(local.table), np.bool_)
    for pattern in found:
        part[pattern.members] = True
    return rows[~part[rows]]


def _growing(rows: Int64Array, local: LocalPatterns) -> list[GlobalPattern]:
    """The patterns of four or more neighbouring ranks whose lengths or outermost counts grow from rank to rank."""
    shapes, rank = local.shapes, local.column("rank")[rows]
    family, stream = shapes.family[local.column("shape")[rows]], local.column("stream")[rows]
    keys = (_occurrences(local, rows, family), family, stream)
    order = np.lexsort((rank, *keys))
    rows, group = rows[order], _numbered(*(key[order] for key in keys))
    start, shape = local.column("start")[rows], local.column("shape")[rows]
    grown = find_growing(Level(start, shape, group, np.ones(len(rows), np.bool_)), shapes)
    return [
        GlobalPattern(
            Nest(
                int(start[low]),
                int(shapes.length[number]),
                (Loop(int(shapes.stride[number]), int(shapes.count[number])),),
                (Growth(*shapes.growth[:, number].tolist()),),
            ),
            rows[low : low + ranks],
        )
        for low, ranks, number in zip(*(values.tolist() for values in grown), strict=True)
    ]


def _occurrences(local: LocalPatterns, rows: Int64Array, kind: Int64Array) -> Int64Array:
    """The occurrence numbers 0, 1, 2, ... of the patterns of one kind in one sequence."""
    sequence = local.column("sequence")[rows]
    order = np.lexsort((kind, sequence))
    group = _numbered(kind[order], sequence[order])
    occurrence = np.empty(len(rows), np.int64)
    occurrence[order] = np.arange(len(rows)) - np.searchsorted(group, group)
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
    chosen = wanted[of_group] & (size > 1)
    pairs = np.flatnonzero(chosen & (size == 2) & local.lone[rows[nests.first]])
    # Any two ranks with single accesses make a pair: this means something only if the kind has no
    # other accesses.
    chosen[pairs] = (np.bincount(group)[of_group[pairs]] == 2) & _recurring(nests, pairs, rows, local)
    return [
        GlobalPattern(
            nests.shapes.nest(int(nests.start[number]), int(nests.shape[number])),
            rows[nests.first[number] : nests.first[number] + size[number]],
        )
        for number in np.flatnonzero(chosen)
    ]


def _recurring(nests: Nests, pairs: Int64Array, rows: Int64Array, local: LocalPatterns) -> BoolArray:
    """Which nests of two ranks are the only one in their stream and shape, or one of several at equal distance."""
    heads = rows[nests.first[pairs]]
    stream, shape = local.column("stream")[heads], local.column("shape")[heads]
    stride = nests.shapes.stride[nests.shape[pairs]]
    order = np.lexsort((stride, shape, stream))
    alike = _numbered(shape[order], stream[order])
    same = _numbered(stride[order], shape[order], stream[order])
    recurring = np.empty(len(pairs), np.bool_)
    recurring[order] = (np.bincount(same)[same] > 1) | (np.bincount(alike)[alike] == 1)
    return recurring
