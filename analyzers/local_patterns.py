"""Local patterns: the loop nests of what each rank does to each file, found a block of the trace at a time.

Reads and writes, collective and independent accesses are matched separately. A rank whose calls fit
in a block is matched as a whole. With more calls, each block is matched with the end of the
previous one, from the last turn of its last nest on; at the end the nests found are matched like
accesses. No access is ever lost. A nest that is cut by the ends of blocks is found as one nest if
each of its loops has three turns or more, and nearly always if one has only two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from pdla.analyzers.matching import final_nests, near, pieces, woven
from pdla.analyzers.pattern_items import Ancestry, FloatArray, Items, Tally, heads_of, items_of, joined, spread, united
from pdla.analyzers.scattered_streams import gather
from pdla.analyzers.shapes import BoolArray, Shapes
from pdla.model import Int64Array, Op
from pdla.traces.blocks import Block

OPS: tuple[Op, Op] = ("read", "write")

FRAGMENTS = 256
"""If a rank's accesses to a file make more nests than this, those with less than one in so many mean nothing..."""

LONG, MOST = 32, 4096
"""... unless they have at least so many accesses, and one in so many: a signature is shorter than a list of them."""

HELD = 1 << 19
"""Nests of one rank that are kept for the final matching; if there are more, the fragments among them are dropped."""

_TALLY = ("calls", "first", "t_start", "t_end", "low", "high")
_WHOLE = np.empty(0, np.int64)
_SUMS = {"nests": "sum", "requests": "sum", "bytes": "sum", "low": "min", "high": "max"}


@dataclass(frozen=True, eq=False)
class LocalPatterns:
    """Loop nests, and the accesses that are in none of them.

    Attributes:
        table: a row per nest, by rank, stream and first access: rank, stream (as in Items),
            sequence (a number for rank and stream), file, op (index into OPS), collective, start
            (bytes), shape (number in ``shapes``), calls (of MPI), first (its first call), t_start
            and t_end (seconds), low and high (bytes), part (the larger of its shares of the
            sequence's requests and bytes), siblings (nests in the sequence), whole (the number of
            the nest that it is a part of; its parts follow one another) and turn (accesses that a
            part has before the next part has its own).
        strays: a row for each sequence with fragments: rank, stream, nests, requests, bytes, low,
            high.
        shapes: the loops.
    """

    table: pd.DataFrame
    strays: pd.DataFrame
    shapes: Shapes

    def column(self, name: str) -> Int64Array:
        """A column of whole numbers of the table."""
        return self.table[name].to_numpy(np.int64)

    @property
    def wholes(self) -> int:
        """The number of nests, whatever their parts."""
        return int(self.table["whole"].iloc[-1]) + 1 if len(self.table) else 0

    @property
    def lone(self) -> BoolArray:
        """Which nests are a single access."""
        lone: BoolArray = self.shapes.child[self.column("shape")] < 0
        return lone

    @property
    def fragments(self) -> BoolArray:
        """Which nests are pieces of something irregular: small ones among very many."""
        size = self.shapes.size[self.column("shape")]
        return _are_fragments(size, self.column("siblings"), self.table["part"].to_numpy(np.float64))

    def cut(self, cuts: Int64Array) -> LocalPatterns:
        """These nests in parts: the number of the cut of each of them (Shapes.cuts).

        Calls, times and bytes are still those of the whole; `find_local` with these cuts finds those of the parts.
        """
        parts = _parts(self.column("start"), self.column("shape"), cuts, self.shapes)
        table = self.table.iloc[parts.whole].reset_index(drop=True)
        whole = parts.whole
        share, turn = table["part"] / parts.many[whole], parts.turn[whole]
        table = table.assign(start=parts.start, shape=parts.shape, part=share, whole=whole, turn=turn)
        return replace(self, table=table)

    def left(self, rows: Int64Array) -> pd.DataFrame:
        """These rows, as strays."""
        table = self.table.iloc[rows]
        size = self.shapes.size[table["shape"]]
        return table.assign(nests=1, requests=size, bytes=self.shapes.bytes[table["shape"]])[list(self.strays)]


def find_local(
    blocks: Iterable[Block], ancestry: Ancestry | None = None, held: int = HELD, cuts: Int64Array = _WHOLE
) -> LocalPatterns:
    """The local patterns in the calls of some ranks; an ``ancestry`` records the pattern that each access ends in.

    First neighbours are combined, then items with other accesses between them: interleaved streams,
    and items of the same shape, as when each record is read after its header; then streams in no
    order. With ``cuts``, a number for each of the patterns (Shapes.cuts), the result is these in parts.
    """
    done: list[LocalPatterns] = []
    rank = _Rank(ancestry, held)
    for block in blocks:
        items = items_of(block, ancestry)
        if block.whole:
            done.append(_patterns(*gather(items, *woven(items)), items, _strays(), ancestry, cuts))
        else:
            rank.add(items, block.last)
            if not block.last:
                continue
            done.append(rank.patterns(cuts))
            rank = _Rank(ancestry, held)
        cuts = cuts[done[-1].wholes :]
    return merged(done or [_nothing(ancestry)])


def _nothing(ancestry: Ancestry | None) -> LocalPatterns:
    """The patterns of no ranks."""
    none, no_time = np.empty(0, np.int64), np.empty(0, np.float64)
    tally = Tally(none, none, none, no_time, no_time, none, none)
    items = Items(none, none, none, none, none, none, Shapes(none), tally, np.empty(0, np.bool_), none)
    return _patterns(items, none, items, _strays(), ancestry, _WHOLE)


class _Rank:
    """What is known so far of a rank with more calls than fit in a block."""

    def __init__(self, ancestry: Ancestry | None, held: int) -> None:
        self._ancestry = ancestry
        self._held = held
        self._tail: list[Items] = []
        self._fresh: list[Items] = []  # nests of neighbours
        self._woven: list[Items] = []  # nests that overlap in time, each in its lane
        self._strays = _strays()

    def add(self, items: Items, last: bool) -> None:
        """Add the items of the rank's next block."""
        items = joined([*self._tail, items])
        nests, done, of, rest = final_nests(items, last)
        self._tail = [rest]
        self._fresh.append(_born(nests, done, of, self._ancestry))
        if sum(map(len, self._fresh)) > self._held:
            self._sift()

    def patterns(self, cuts: Int64Array) -> LocalPatterns:
        """The patterns, once all items have been added; cut as in `find_local`."""
        if not self._woven:
            items = joined(self._fresh)
            return _patterns(*gather(items, *woven(items)), items, self._strays, self._ancestry, cuts)
        if self._fresh:
            self._sift()
        items = joined(self._woven)
        return _patterns(*near(items), items, self._strays, self._ancestry, cuts)

    def _sift(self) -> None:
        """Combine the nests since the last time, and drop the fragments."""
        items = joined(self._fresh)
        rows, of = woven(items)
        nests, piece = pieces(items, of, rows)
        self._woven.append(_born(nests, items, piece, self._ancestry))
        self._fresh = []
        items = joined(self._woven)
        fragments = _are_fragments(items.size, *_shares(items, self._strays))
        self._strays = _strays(self._strays, items.take(fragments))
        self._woven = [items.take(~fragments)]


def _born(nests: Items, items: Items, of: Int64Array, ancestry: Ancestry | None) -> Items:
    """Record the nests in the ancestry as what the items have become part of."""
    if ancestry is None:
        return nests
    places = ancestry.born(len(nests))
    ancestry.link(items.place, places[of])
    return replace(nests, place=places)


def _patterns(
    rows: Items, of: Int64Array, items: Items, strays: pd.DataFrame, ancestry: Ancestry | None, cuts: Int64Array
) -> LocalPatterns:
    """Finished nests as patterns, without the fragments, cut as the first of ``cuts`` say, if there are any.

    ``strays`` are the fragments of the same sequences dropped before.
    """
    if rows.lane.any():
        order = np.lexsort((rows.tally.first, rows.sequence))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        rows, of = rows.take(order), place[of]
    rows = _born(rows, items, of, ancestry)
    siblings, part = _shares(rows, strays)
    fragments = _are_fragments(rows.size, siblings, part)
    kept = rows.take(~fragments)
    table = _table(kept, part[~fragments], siblings[~fragments], ancestry)
    found = LocalPatterns(table, _strays(strays, rows.take(fragments)), rows.shapes)
    if not len(cuts):
        return found
    found = found.cut(cuts[: len(kept)])
    parts = _parts(kept.start, kept.shape, cuts[: len(kept)], kept.shapes)
    cut = np.zeros(len(rows), np.bool_)
    cut[~fragments] = parts.many > 1
    inside, place = np.flatnonzero(cut[of]), np.cumsum(~fragments) - 1
    tally, at = _tally(parts, items.take(inside), place[of[inside]]), np.flatnonzero(parts.many[parts.whole] > 1)
    columns = {name: found.table[name].to_numpy(copy=True) for name in _TALLY}
    for name, column in columns.items():
        column[at] = getattr(tally, name)
    return replace(found, table=found.table.assign(**columns))


class _Parts(NamedTuple):
    """Nests in parts: of each nest how many and the accesses of a turn; of each part its nest, start and shape."""

    many: Int64Array
    turn: Int64Array
    whole: Int64Array
    start: Int64Array
    shape: Int64Array


def _parts(start: Int64Array, shape: Int64Array, cuts: Int64Array, shapes: Shapes) -> _Parts:
    """The parts of nests of these starts and shapes, cut in these ways (Shapes.cuts)."""
    kinds, of = np.unique(np.stack((shape, cuts)), axis=1, return_inverse=True)
    of = of.ravel()
    found = [shapes.cuts(number)[cut] for number, cut in kinds.T.tolist()]
    offsets = [one.offsets for one in found]
    counts = np.array([len(one) for one in offsets], np.int64)
    count = counts[of]
    whole = np.repeat(np.arange(len(start)), count)
    offset = np.concatenate([np.empty(0, np.int64), *offsets])[spread((np.cumsum(counts) - counts)[of], count)]
    part = np.array([one.shape for one in found], np.int64)
    return _Parts(
        count, np.array([one.turn for one in found], np.int64)[of], whole, start[whole] + offset, part[of][whole]
    )


def _tally(parts: _Parts, items: Items, of: Int64Array) -> Tally:
    """The tally of each part of the nests that the items are of; ``of``: the nest of each item.

    An item that is in several parts, such as a call through a view, is one of the calls of all of them; if each of its
    accesses is a call, the parts share them.
    """
    order = np.argsort(of, kind="stable")
    row, accesses = of[order], items.size[order]
    heads = np.flatnonzero(np.diff(row, prepend=-1))
    before = np.cumsum(accesses) - accesses
    before -= np.repeat(before[heads], np.diff(np.append(heads, len(row))))
    count, turn = parts.many[row], parts.turn[row]
    first, last = before // turn, (before + accesses - 1) // turn
    several = np.minimum(last - first + 1, count)
    place = np.repeat(np.arange(len(row)), several)
    part = spread(first, several) % count[place]
    item = order[place]
    calls = items.tally.calls[item]
    calls = np.where(calls == items.size[item], calls // several[place], calls)
    number = (np.cumsum(parts.many) - parts.many)[row[place]] + part
    by_part = np.lexsort((item, number))
    tally = replace(items.tally.take(item), calls=calls).take(by_part)
    return tally.total(np.flatnonzero(np.diff(number[by_part], prepend=-1)))


def _table(rows: Items, part: FloatArray, siblings: Int64Array, ancestry: Ancestry | None) -> pd.DataFrame:
    """The columns of LocalPatterns.table; with an ancestry also the places in it."""
    stream = rows.stream[rows.sequence]
    place = {} if ancestry is None else {"place": rows.place}
    return pd.DataFrame(
        {
            "rank": rows.rank[rows.sequence],
            "stream": stream,
            "sequence": rows.sequence,
            "file": stream // 4,
            "op": stream // 2 % 2,
            "collective": stream % 2,
            "start": rows.start,
            "shape": rows.shape,
            **{name: getattr(rows.tally, name) for name in _TALLY},
            "part": part,
            "siblings": siblings,
            "whole": np.arange(len(rows)),
            "turn": rows.size,
            **place,
        }
    )


def merged(parts: Sequence[LocalPatterns]) -> LocalPatterns:
    """The patterns of all ranks, from those of some ranks each, in the order of the ranks."""
    shapes, numbers = united([(part.shapes, part.column("shape")) for part in parts])
    tables, wholes, sequences = [], 0, 0
    for part, number in zip(parts, numbers, strict=True):
        table = part.table
        tables.append(table.assign(shape=number, sequence=table["sequence"] + sequences, whole=table["whole"] + wholes))
        wholes, sequences = wholes + part.wholes, sequences + int(table["sequence"].max() + 1 if len(table) else 0)
    return LocalPatterns(
        pd.concat(tables, ignore_index=True), pd.concat([part.strays for part in parts], ignore_index=True), shapes
    )


def _shares(rows: Items, strays: pd.DataFrame) -> tuple[Int64Array, FloatArray]:
    """(siblings, part) of these nests, as in LocalPatterns."""
    size, nbytes = rows.size, rows.shapes.bytes[rows.shape]
    nests, requests, total = (np.zeros(len(rows.rank), np.int64) for _ in range(3))
    if len(strays):
        keys = pd.MultiIndex.from_arrays((rows.rank, rows.stream))
        before = strays.set_index(["rank", "stream"]).reindex(keys, fill_value=0)
        nests, requests, total = (before[name].to_numpy(np.int64, copy=True) for name in ("nests", "requests", "bytes"))
    heads = heads_of(rows.sequence)
    present = rows.sequence[heads]
    nests[present] += np.diff(np.append(heads, len(rows)))
    requests[present] += np.add.reduceat(size, heads)
    total[present] += np.add.reduceat(nbytes, heads)
    of = rows.sequence
    return nests[of], np.maximum(size / requests[of], nbytes / total[of])


def _are_fragments(size: Int64Array, siblings: Int64Array, part: FloatArray) -> BoolArray:
    fragments: BoolArray = (siblings > FRAGMENTS) & (part < np.where(size < LONG, 1 / FRAGMENTS, 1 / MOST))
    return fragments


def _strays(known: pd.DataFrame | None = None, rows: Items | None = None) -> pd.DataFrame:
    """The fragments of sequences: those known, and these nests."""
    if known is None or rows is None:
        return pd.DataFrame({name: np.empty(0, np.int64) for name in ("rank", "stream", *_SUMS)})
    if not len(rows):
        return known
    heads = heads_of(rows.sequence)
    of = rows.sequence[heads]
    fresh = {
        "rank": rows.rank[of],
        "stream": rows.stream[of],
        "nests": np.diff(np.append(heads, len(rows))),
        "requests": np.add.reduceat(rows.size, heads),
        "bytes": np.add.reduceat(rows.shapes.bytes[rows.shape], heads),
        "low": np.minimum.reduceat(rows.tally.low, heads),
        "high": np.maximum.reduceat(rows.tally.high, heads),
    }
    return together(pd.concat((known, pd.DataFrame(fresh))))


def together(strays: pd.DataFrame) -> pd.DataFrame:
    """A row for each sequence (the columns of LocalPatterns.strays)."""
    if not len(strays):
        return strays
    return strays.groupby(["rank", "stream"], as_index=False).agg(_SUMS)
