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
    ranks or of the starts, whichever needs fewer nests. If ranks have several patterns of a shape,
    all of them are matched in the order of the starts, too. Patterns that are left over may differ
    only in lengths or counts that grow from rank to rank.
    """
    start, shape, stream, rank = (local.column(name) for name in ("start", "shape", "stream", "rank"))
    rows = np.flatnonzero(~local.fragments)
    turn = _occurrences(local, rows, shape[rows])
    keys = (turn, shape[rows], stream[rows])
    order = np.lexsort((rank[rows], *keys))
    by_rank, by_start = rows[order], rows[np.lexsort((rank[rows], start[rows], *keys))]
    group = _numbered(*(key[order] for key in keys))
    ranked, placed = (match(start[by], shape[by], group) for by in (by_rank, by_start))
    of_rank, of_start = (
        np.bincount(group[nests.first], minlength=group.max(initial=-1) + 1) for nests in (ranked, placed)
    )
    fewer = of_start < of_rank
    found = _patterns(ranked, by_rank, group, ~fewer, local) + _patterns(placed, by_start, group, fewer, local)
    if turn.any():
        found = _in_planes(found, rows, local)
    found += _growing(_left(local, found, rows), local)
    return found, _left(local, found, np.arange(len(start)))


def _in_planes(found: list[GlobalPattern], rows: Int64Array, local: LocalPatterns) -> list[GlobalPattern]:
    """The patterns found, or for each shape those of all its rows in the order of their starts, if these are fewer.

    Ranks have several rows of a shape there: a nest is cut into the turns of its outermost loop until each rank has one
    in it. An example are the cells of BT-IO, a cube of which each rank has one in every plane.
    """
    start, shape, stream, rank = (local.column(name) for name in ("start", "shape", "stream", "rank"))
    by_start = rows[np.lexsort((rank[rows], start[rows], shape[rows], stream[rows]))]
    group = _numbered(shape[by_start], stream[by_start])
    nests = match(start[by_start], shape[by_start], group)
    of_row = np.full(len(start), -1)
    of_row[by_start] = group
    size = nests.shapes.size[nests.shape]
    planes = [
        pattern
        for number in np.flatnonzero(size > 2)
        for pattern in _planes(
            nests.shapes.nest(int(nests.start[number]), int(nests.shape[number])),
            by_start[nests.first[number] : nests.first[number] + size[number]],
            rank,
        )
    ]
    # Rows in no pattern are patterns of their own.
    saved = np.zeros(group.max(initial=-1) + 1, np.int64)
    for sign, patterns in ((1, planes), (-1, found)):
        for one in patterns:
            saved[of_row[one.members[0]]] += sign * (len(one.members) - 1)
    better = saved > 0
    return [
        one
        for patterns, good in ((found, ~better), (planes, better))
        for one in patterns
        if good[of_row[one.members[0]]]
    ]


def _planes(nest: Nest, members: Int64Array, rank: Int64Array) -> list[GlobalPattern]:
    """The parts of a nest over rows in which no rank has two rows, from the outermost loop on."""
    if nest.growth or not nest.loops:
        return []
    if len(np.unique(rank[members])) == len(members):
        return [GlobalPattern(nest, members)]
    (stride, count), *inner = nest.loops
    if not inner:
        return []
    return [
        pattern
        for turn, part in enumerate(np.split(members, count))
        for pattern in _planes(Nest(nest.start + turn * stride, nest.length, tuple(inner)), part, rank)
    ]


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
