"""Local patterns: the loop nests of what each rank does to each file.

Reads and writes, collective and independent accesses are matched apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.analyzers.streams import weave
from pdla.analyzers.templates import match_shapes
from pdla.model import Int64Array, Op

OPS: tuple[Op, Op] = ("read", "write")

FRAGMENTS = 256
"""Where a rank's accesses to a file are more nests than this, those of less than one in so many mean nothing."""


@dataclass(frozen=True, eq=False)
class LocalPatterns:
    """Loop nests, and the accesses that they are made of.

    A *sequence* is what one rank does to one *stream*: a file, an operation, collective or not.

    Attributes:
        table: a row per nest, by sequence and first access: sequence, stream, rank, file, op (index into OPS),
            collective, start (bytes), shape (number in ``shapes``), calls (of MPI), t_start and t_end (seconds), part
            (the larger of its shares of the sequence's requests and bytes), siblings (nests in the sequence).
        shapes: the loops.
        accesses: a row per access, by sequence and call: the first six columns of ``table``, call, offset, length,
            access (the row among the trace's accesses), t_start, t_end. The index is the place in this order.
        nest: the row in ``table`` of each access.
    """

    table: pd.DataFrame
    shapes: Shapes
    accesses: pd.DataFrame
    nest: Int64Array

    def column(self, name: str) -> Int64Array:
        """A column of whole numbers of the table."""
        return self.table[name].to_numpy(np.int64)

    @property
    def lone(self) -> BoolArray:
        """Which nests are a single access."""
        lone: BoolArray = self.shapes.child[self.column("shape")] < 0
        return lone

    @property
    def couples(self) -> BoolArray:
        """Which nests are two of something, so that nothing but their neighbourhood joins them."""
        couples: BoolArray = self.shapes.count[self.column("shape")] == 2
        return couples

    @property
    def fragments(self) -> BoolArray:
        """Which nests are pieces of something irregular: small ones among very many."""
        siblings, part = self.column("siblings"), self.table["part"].to_numpy(np.float64)
        fragments: BoolArray = (siblings > FRAGMENTS) & (part < 1 / FRAGMENTS)
        return fragments

    def halved(self, rows: Int64Array) -> tuple[LocalPatterns, Int64Array]:
        """Only these rows, couples cut in two; and for each new row the old one that it comes from."""
        kept, couple = np.zeros(len(self.table), np.bool_), self.couples
        kept[rows] = True
        size = self.shapes.size[self.column("shape")]
        order, heads = _grouped(self.nest, len(self.table))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        late = couple[self.nest] & (place - heads[self.nest] >= size[self.nest] // 2)

        becomes = np.where(kept, 1 + couple, 0)
        pieces = np.repeat(np.arange(len(kept)), becomes)
        number = np.cumsum(becomes) - becomes
        second = np.zeros(len(pieces), np.bool_)
        second[1:] = pieces[1:] == pieces[:-1]
        shape = self.column("shape")[pieces]
        start = self.column("start")[pieces] + self.shapes.stride[shape] * second
        shape = np.where(couple[pieces], self.shapes.child[shape], shape)
        used = kept[self.nest]
        nest = (number[self.nest] + late)[used]
        patterns, order = _patterns(self.accesses[used], nest, start, shape, self.shapes)
        whole = pieces[order]
        patterns.table["part"] = self.table["part"].to_numpy(np.float64)[whole] / np.where(couple[whole], 2, 1)
        patterns.table["siblings"] = self.column("siblings")[whole]
        return patterns, whole


def find_local(accesses: pd.DataFrame) -> LocalPatterns:
    """The local patterns in a trace's accesses (ACCESS_COLUMNS, in the order of rank and call).

    First neighbours are combined; then what has other accesses in between: interleaved streams, and what has the same
    shape, as where each record is read after its header.
    """
    rank, file = accesses["rank"].to_numpy(np.int64), accesses["file"].to_numpy(np.int64)
    op, collective = (accesses["op"] == "write").to_numpy(np.int64), accesses["collective"].to_numpy(np.int64)
    stream = (file * 2 + op) * 2 + collective
    rows = np.lexsort((stream, rank))
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (np.diff(stream[rows]) != 0) | (np.diff(rank[rows]) != 0)
    sequence = np.cumsum(begins) - 1
    offset, length = accesses["offset"].to_numpy(np.int64)[rows], accesses["length"].to_numpy(np.int64)[rows]
    sorted_accesses = pd.DataFrame(
        {
            "sequence": sequence,
            "stream": stream[rows],
            "rank": rank[rows],
            "file": file[rows],
            "op": op[rows],
            "collective": collective[rows],
            "offset": offset,
            "length": length,
            "access": rows,
            **{name: accesses[name].to_numpy()[rows] for name in ("call", "t_start", "t_end")},
        },
        copy=False,
    )
    shapes = Shapes(length)
    near = match_shapes(offset, shapes.single(length), sequence, shapes)
    woven = weave(near, sequence[near.first])
    nest = np.repeat(woven.nest, np.diff(np.append(near.first, len(sequence))))
    patterns, _ = _patterns(sorted_accesses, nest, woven.start, woven.shape, shapes)
    of, size = patterns.column("sequence"), shapes.size[patterns.column("shape")]
    of_requests = size / np.bincount(sequence)[of]
    of_bytes = shapes.bytes[patterns.column("shape")] / np.bincount(sequence, weights=length)[of]
    patterns.table["part"] = np.maximum(of_requests, of_bytes)
    patterns.table["siblings"] = np.bincount(of)[of]
    return patterns


def _grouped(nest: Int64Array, nests: int) -> tuple[Int64Array, Int64Array]:
    """The accesses nest by nest, in their order, and where in there each nest begins."""
    order = np.argsort(nest, kind="stable")
    return order, np.searchsorted(nest[order], np.arange(nests))


def _patterns(
    accesses: pd.DataFrame, nest: Int64Array, start: Int64Array, shape: Int64Array, shapes: Shapes
) -> tuple[LocalPatterns, Int64Array]:
    """The patterns with what their accesses tell about them, and in which order they are now."""
    order, heads = _grouped(nest, len(start))
    first = order[heads]
    by_first = np.argsort(first)
    table = accesses[["sequence", "stream", "rank", "file", "op", "collective"]].iloc[first[by_first]]
    table = table.reset_index(drop=True)
    call = accesses["call"].to_numpy(np.int64)[order]
    fresh = np.ones(len(call), np.int64)
    fresh[1:] = np.diff(call) != 0
    fresh[heads] = 1
    table["calls"] = np.add.reduceat(fresh, heads)[by_first]
    table["t_start"] = np.minimum.reduceat(accesses["t_start"].to_numpy(np.float64)[order], heads)[by_first]
    table["t_end"] = np.maximum.reduceat(accesses["t_end"].to_numpy(np.float64)[order], heads)[by_first]
    table["start"], table["shape"] = start[by_first], shape[by_first]
    place = np.empty_like(by_first)
    place[by_first] = np.arange(len(by_first))
    return LocalPatterns(table, shapes, accesses, place[nest]), by_first
