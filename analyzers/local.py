"""Local patterns: the loop nests of what each rank does to each file.

Reads and writes, collective and independent accesses are matched apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pdla.analyzers.templates import BoolArray, Nests, Shapes, match_shapes
from pdla.model import Int64Array, Op

if TYPE_CHECKING:
    import pandas as pd

OPS: tuple[Op, Op] = ("read", "write")


@dataclass(frozen=True)
class LocalPatterns:
    """Nests as columns, one row each, sorted by sequence and first access. A *sequence* is what one rank does to one
    *stream*: a file, an operation (index into OPS), collective or not.

    ``accesses`` (sorted by sequence and call) are the rows that were matched, ``nest`` is the nest of each of them.
    """

    sequence: Int64Array
    stream: Int64Array
    rank: Int64Array
    file: Int64Array
    op: Int64Array
    collective: BoolArray
    start: Int64Array
    shape: Int64Array
    calls: Int64Array
    t_start: npt.NDArray[np.float64]
    t_end: npt.NDArray[np.float64]
    shapes: Shapes
    accesses: pd.DataFrame
    nest: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def lone(self) -> BoolArray:
        """Which nests are a single access."""
        return self.shapes.child[self.shape] < 0


def find_local(accesses: pd.DataFrame) -> LocalPatterns:
    """The local patterns in a trace's accesses (ACCESS_COLUMNS, in the order of rank and call).

    First neighbours are combined; then what has the same shape but other accesses in between, as where each record is
    read after its header.
    """
    file, rank = accesses["file"].to_numpy(np.int64), accesses["rank"].to_numpy(np.int64)
    op, collective = (accesses["op"] == "write").to_numpy(np.bool_), accesses["collective"].to_numpy(np.bool_)
    stream = (file * 2 + op) * 2 + collective
    rows = np.lexsort((stream, rank))
    accesses = accesses.iloc[rows]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (np.diff(stream[rows]) != 0) | (np.diff(rank[rows]) != 0)
    sequence = np.cumsum(begins) - 1
    offset, length = accesses["offset"].to_numpy(np.int64), accesses["length"].to_numpy(np.int64)

    shapes = Shapes(length)
    near = match_shapes(offset, shapes.single(length), sequence, shapes)
    nest, woven, first = _weave(near, sequence, len(offset))
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    nest, first = place[nest], first[order]
    calls, t_start, t_end = _times(accesses, nest, len(first))
    row = rows[first]
    return LocalPatterns(
        sequence=sequence[first],
        stream=stream[row],
        rank=rank[row],
        file=file[row],
        op=op[row].astype(np.int64),
        collective=collective[row],
        start=woven.start[order],
        shape=woven.shape[order],
        calls=calls,
        t_start=t_start,
        t_end=t_end,
        shapes=shapes,
        accesses=accesses,
        nest=nest,
    )


def _weave(near: Nests, sequence: Int64Array, accesses: int) -> tuple[Int64Array, Nests, Int64Array]:
    """Combines nests of equal shape that others stand between: (the nest of each access, the nests, first accesses)."""
    group = sequence[near.first]
    order = np.lexsort((near.shape, group))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(group[order]) != 0) | (np.diff(near.shape[order]) != 0)
    # Any two accesses of one length would be a pair here, wherever they are: lone pairs mean nothing.
    woven = match_shapes(near.start[order], near.shape[order], np.cumsum(begins) - 1, near.shapes, lone_pairs=False)
    of_near = np.empty(len(order), np.int64)
    of_near[order] = np.repeat(np.arange(len(woven)), np.diff(np.append(woven.first, len(order))))
    nest = np.repeat(of_near, np.diff(np.append(near.first, accesses)))
    return nest, woven, near.first[order[woven.first]]


def _times(
    accesses: pd.DataFrame, nest: Int64Array, nests: int
) -> tuple[Int64Array, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """MPI calls, start of the first and end of the last, for each nest."""
    order = np.argsort(nest, kind="stable")
    heads = np.searchsorted(nest[order], np.arange(nests))
    call = accesses["call"].to_numpy(np.int64)[order]
    fresh = np.ones(len(call), np.int64)
    fresh[1:] = np.diff(call) != 0
    fresh[heads] = 1
    if not nests:
        return heads, np.empty(0), np.empty(0)
    t_start, t_end = accesses["t_start"].to_numpy()[order], accesses["t_end"].to_numpy()[order]
    return np.add.reduceat(fresh, heads), np.minimum.reduceat(t_start, heads), np.maximum.reduceat(t_end, heads)
