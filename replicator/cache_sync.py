"""What journals list of cache files: which bytes are the newest, which are within reach, and how they come home."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import IntEnum

import numpy as np

from pdla.model import Int64Array
from pdla.own_files import open_cache
from pdla.processes import this_boot
from pdla.replicator.intent import HeldIntent
from pdla.replicator.journals import Journal
from pdla.replicator.moves import cut, move, read_all
from pdla.replicator.transpose import Bytes


class _State(IntEnum):
    """Of an entry: the original has its bytes, or they are in a cache file, or why they are not within reach."""

    HOME, HERE, TORN, GONE, AWAY = range(5)


class InCaches:
    """Bytes that wait in cache files.

    Attributes:
        size: the bytes that can be written back from here.
        beyond: the bytes that are gone or on another node.
        unsynced: those of them that the program had not completed by a sync or close.
        kept: by the path of a journal that has to be kept because bytes that it lists are gone or
            on another node: how many of its entries the original has after the write-back.
    """

    place = "cache files"

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = journals
        sizes = [_size(journal) for journal in journals]
        states = [_states(journal, size) for journal, size in zip(journals, sizes, strict=True)]
        # A place in all cache files one behind the other. RATIONALE: the byte between two keeps
        # pieces of different files from being adjacent.
        self._bases = np.cumsum([0, *(max(size, 0) + 1 for size in sizes)])
        self._rows, self._states = _by_age(journals, states, self._bases)
        # RATIONALE: an entry that the original has already hides older ones that it does not have.
        self._parts = self._newest(self._states <= _State.HERE, _State.HERE)
        self.size = _length(self._parts)
        self.unsynced = _length(self._parts[self._rows[self._parts[:, 2], _UNSYNCED] == 1])
        self._gone = self._newest(self._states < _State.AWAY, _State.GONE)
        # RATIONALE: stamps of two nodes cannot be compared.
        self._away = self._newest(self._states == _State.AWAY, _State.AWAY)
        self.beyond = _length(self._gone) + _length(self._away)
        self.kept = {
            journal.path: _first(journal, state)
            for journal, state in zip(journals, states, strict=True)
            if self.beyond and (state >= _State.GONE).any()
        }

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Extents (offset, length) of the original whose new bytes were not durable before the node crashed, or
        whose cache file is gone or has become shorter."""
        return _extents(self._newest(self._states < _State.AWAY, _State.TORN, _State.GONE))

    def _newest(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]], *states: _State) -> Int64Array:
        """The parts (start, stop, row) of entries in ``states`` that none of the newer entries ``which`` covers."""
        chosen = np.flatnonzero(which)
        parts = newest(self._rows[chosen, _START], self._rows[chosen, _STOP])
        parts[:, 2] = chosen[parts[:, 2]]
        return parts[np.isin(self._states[parts[:, 2]], states)]

    def copy(self, target: int, intent: HeldIntent, advance: Callable[[int], object]) -> None:
        """Copy all that can be written back to the open original; ``advance`` is called with bytes done."""
        starts, stops, rows = self._parts.T
        places = self._rows[rows, _PLACE] + starts - self._rows[rows, _START]
        with ExitStack() as stack:
            files: dict[int, int] = {}
            for number in np.unique(np.searchsorted(self._bases, places, side="right") - 1).tolist():
                path = self._journals[number].cache
                assert path is not None
                files[number] = open_cache(path, self._journals[number].cache_inode)
                stack.callback(os.close, files[number])
            bases = self._bases.tolist()

            def read(place: int, length: int) -> Bytes:
                number = bisect_right(bases, place) - 1
                path = self._journals[number].cache
                assert path is not None
                data = np.empty(length, dtype=np.uint8)
                read_all(files[number], data.data, place - bases[number], path)
                return data

            for offsets, lengths, places_there in cut(starts, stops - starts, places):
                intent.renew()
                move(target, read, offsets, lengths, places_there)
                advance(int(lengths.sum()))

    @property
    def problem(self) -> str:
        """Why journals have to be kept: the bytes, files and nodes of what is not within reach; "" if none has to."""
        said = []
        if len(self._gone):
            numbers = np.unique(self._owners(self._gone)).tolist()
            said.append(
                f"{_length(self._gone)} bytes are lost, unless {self._named(numbers)} of node "
                f"{self._journals[numbers[0]].host} comes back as it was"
            )
        owners = self._owners(self._away)
        for host in sorted({self._journals[number].host for number in np.unique(owners).tolist()}):
            numbers = [number for number in np.unique(owners).tolist() if self._journals[number].host == host]
            count = _length(self._away[np.isin(owners, numbers)])
            said.append(f"{count} bytes wait on node {host}, in {self._named(numbers)} (run pdla sync there)")
        return "; ".join(said)

    def _owners(self, parts: Int64Array) -> Int64Array:
        """The journals of parts."""
        owners: Int64Array = self._rows[parts[:, 2], _JOURNAL]
        return owners

    def _named(self, numbers: Sequence[int]) -> str:
        more = f" and {len(numbers) - 1} more cache files" if len(numbers) > 1 else ""
        return f"{self._journals[numbers[0]].cache}{more}"


_PLACE, _START, _STOP, _JOURNAL, _UNSYNCED = range(5)


def _size(journal: Journal) -> int:
    """The size of the cache file of a journal; -1: it is not here, or not the one that this user's program wrote."""
    assert journal.cache is not None
    try:
        descriptor = open_cache(journal.cache, journal.cache_inode)
    except OSError:
        return -1
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _states(journal: Journal, size: int) -> Int64Array:
    """The states of a journal's entries."""
    states = np.full(len(journal.entries), int(_State.HERE))
    mine = journal.is_of_this_node
    if journal.boot != this_boot():
        # RATIONALE: another node may not see yet what is not durable there.
        states[journal.synced :] = _State.TORN if mine else _State.AWAY
    places, starts, stops = journal.entries.T
    beyond = places + stops - starts > size
    states[(states == _State.HERE) & beyond] = _State.GONE if mine else _State.AWAY
    states[: journal.home] = _State.HOME
    return states


def _first(journal: Journal, states: Int64Array) -> int:
    """How many entries at the beginning of a journal are within reach."""
    if len(journal.entries) < journal.count:
        return journal.home  # RATIONALE: damaged entries are not among them, so their numbers are not known.
    return int(np.argmax(states >= _State.GONE))


def _by_age(
    journals: Sequence[Journal], states: Sequence[Int64Array], bases: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """All entries as rows (place, start, stop, journal, unsynced), the oldest first, and their states.

    Stamps of an earlier boot are of another clock: these entries are older.
    """
    rows = [np.zeros((0, 5), np.int64)]
    ages = [np.zeros((2, 0), np.int64)]
    boot = this_boot()
    for number, journal in enumerate(journals):
        count = len(journal.entries)
        places, starts, stops = journal.entries.T
        unsynced = (np.arange(count) >= journal.synced).astype(np.int64)
        rows.append(np.stack([places + bases[number], starts, stops, np.full(count, number), unsynced], axis=1))
        # Within a journal the last entry counts, whatever its stamp.
        stamps = np.maximum.accumulate(journal.stamps)
        ages.append(np.stack([stamps, np.full(count, int(journal.boot == boot))]))
    order = np.lexsort(np.concatenate(ages, axis=1))
    return np.concatenate(rows)[order], np.concatenate([np.zeros(0, np.int64), *states])[order]


def newest(starts: Int64Array, stops: Int64Array) -> Int64Array:
    """The parts of extents that no later extent covers, in the order of the file: rows (start, stop, extent).

    >>> newest(np.array([0, 4, 2]), np.array([10, 6, 5])).tolist()
    [[0, 2, 0], [2, 5, 2], [5, 6, 1], [6, 10, 0]]
    """
    if len(starts) == 0:
        return np.zeros((0, 3), np.int64)
    both = np.concatenate([starts, stops])
    order = np.argsort(both)
    ranks = np.concatenate([[0], np.cumsum(np.diff(both[order]) > 0)])
    edges = np.zeros(ranks[-1] + 1, np.int64)
    edges[ranks] = both[order]
    numbered = np.empty(len(both), np.int64)
    numbered[order] = ranks
    first, last = numbered[: len(starts)], numbered[len(starts) :]
    level = np.frexp(last - first)[1] - 1
    # An extent is two ranges of 2^level pieces. From the largest level on, the latest extent of a
    # range is that of both of its halves, too.
    latest = np.full(len(edges) - 1, -1)
    for power in range(int(level.max()), -1, -1):
        numbers = np.flatnonzero(level == power)
        np.maximum.at(latest, first[numbers], numbers)
        np.maximum.at(latest, last[numbers] - (1 << power), numbers)
        if power:
            half = 1 << (power - 1)
            ranges, latest = latest, latest.copy()
            np.maximum(latest[half:], ranges[:-half], out=latest[half:])
    cuts = np.flatnonzero(np.diff(latest)) + 1
    begin, end = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(latest)]])
    parts = np.stack([edges[begin], edges[end], latest[begin]], axis=1)
    return parts[parts[:, 2] >= 0]


def _length(parts: Int64Array) -> int:
    return int((parts[:, 1] - parts[:, 0]).sum())


def _extents(parts: Int64Array) -> tuple[tuple[int, int], ...]:
    """Sorted parts as extents (offset, length); adjacent ones are joined."""
    if len(parts) == 0:
        return ()
    cuts = np.flatnonzero(parts[1:, 0] != parts[:-1, 1]) + 1
    starts = parts[np.concatenate([[0], cuts]), 0]
    stops = parts[np.concatenate([cuts, [len(parts)]]) - 1, 1]
    return tuple(zip(starts.tolist(), (stops - starts).tolist(), strict=True))
