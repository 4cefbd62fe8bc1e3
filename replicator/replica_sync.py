"""What journals list of write replicas: which bytes can be written back, and how they are copied to the original."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from pdla.accessmap import AccessMap
from pdla.catalog import Component, Replica
from pdla.layouts.striping import locate
from pdla.model import Int64Array
from pdla.processes import this_boot
from pdla.replicator.intent import HeldIntent
from pdla.replicator.journals import Journal
from pdla.replicator.moves import cut, move, read_all
from pdla.replicator.transpose import Bytes
from pdla.replicator.verify import components_unchanged

_PIECES = 1 << 16


class InReplicas:
    """Bytes that wait in replicas.

    Attributes:
        size: the bytes that can be written back from here.
        beyond: the bytes that may be in the memory of another node only.
        unsynced: those of ``size`` that the program had not completed by a sync or close.
        kept: by the path of a journal that has to be kept because of bytes ``beyond``: how many of
            its entries the original had before.
    """

    place = "replicas"

    def __init__(self, journals: Sequence[Journal], replicas: Mapping[int, Replica]) -> None:
        self._replicas = replicas
        self._good, self._doubtful, away = _sorted_out(journals)
        self.size = _length(self._good)
        synced = _merged([journal.entries[: journal.synced] for journal in journals])
        self.unsynced = max(self.size - _length(synced), 0)
        self.beyond = _length(_merged([journal.entries[journal.synced :] for journal in away]))
        self.kept = {journal.path: journal.home for journal in away}
        self._nodes = sorted({journal.host for journal in away})

    @property
    def problem(self) -> str:
        """Why journals have to be kept: the nodes that have what is not within reach; "" if none has to."""
        nodes = " and ".join(self._nodes)
        return f"{self.beyond} bytes wait on node {nodes} (run pdla sync there)" if nodes else ""

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Extents (offset, length) of the original whose new bytes were not durable before the node crashed."""
        return _extents(self._replicas, self._doubtful)

    def copy(self, target: int, intent: HeldIntent, advance: Callable[[int], object]) -> None:
        """Copy all that can be written back to the open original; ``advance`` is called with bytes done."""
        numbers = np.unique(self._good[:, 0]).tolist()
        for number in numbers:
            if number not in self._replicas or not components_unchanged(self._replicas[number]):
                raise FileNotFoundError(f"replica {number} or a component of it is missing")
        for number in numbers:
            replica = self._replicas[number]
            mine = self._good[self._good[:, 0] == number][:, 1:]
            with ExitStack() as stack:
                files = [_open(component, stack) for component in replica.components]
                read = partial(_read, files, replica)
                for offsets, lengths, places in _batches(replica.access_map, mine):
                    intent.renew()
                    move(target, read, offsets, lengths, places)
                    advance(int(lengths.sum()))


def _open(component: Component, stack: ExitStack) -> int:
    """A component, for reading. RATIONALE: what was looked at before may have been replaced since."""
    file = os.open(component.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    stack.callback(os.close, file)
    found = os.fstat(file)
    if (found.st_ino, found.st_size) != (component.inode, component.size):
        raise FileNotFoundError(f"{component.path} is another file than the one that was built")
    return file


def _sorted_out(journals: Sequence[Journal]) -> tuple[Int64Array, Int64Array, list[Journal]]:
    """The ranges (replica, start, stop) that are valid, those that were not durable before this node crashed, and the
    journals of other nodes that have more: those nodes may have it in memory."""
    boot = this_boot()
    good, doubtful, away = [], [], []
    for journal in journals:
        believed = len(journal.entries) if journal.boot == boot else journal.synced
        good.append(journal.entries[:believed])
        if journal.is_of_this_node:
            doubtful.append(journal.entries[believed:])
        elif believed < len(journal.entries):
            away.append(journal)
    return _merged(good), _merged(doubtful), away


def _merged(parts: Sequence[Int64Array]) -> Int64Array:
    """The ranges sorted, with those that touch joined."""
    rows = np.concatenate([np.zeros((0, 3), np.int64), *parts])
    merged: list[list[int]] = []
    for replica, start, stop in rows[np.lexsort((rows[:, 1], rows[:, 0]))].tolist():
        if merged and merged[-1][0] == replica and start <= merged[-1][2]:
            merged[-1][2] = max(merged[-1][2], stop)
        else:
            merged.append([replica, start, stop])
    return np.array(merged, dtype=np.int64).reshape(-1, 3)


def _length(ranges: Int64Array) -> int:
    return int((ranges[:, 2] - ranges[:, 1]).sum())


def _batches(access_map: AccessMap, ranges: Int64Array) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """The pieces of ranges (start, stop) of a replica in the original's order: (offsets, lengths, replica offsets)."""
    low, high = access_map.extent
    step = max((high - low) // max(access_map.pieces // _PIECES, 1), 1)
    for start in range(low, high, step):
        offsets, lengths, places = access_map.tiles(start, min(start + step, high))
        first = np.searchsorted(ranges[:, 1], places, side="right")
        last = np.searchsorted(ranges[:, 0], places + lengths, side="left")
        counts = np.maximum(last - first, 0)
        piece = np.repeat(np.arange(len(places)), counts)
        inside = ranges[np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts) + first[piece]]
        begin = np.maximum(inside[:, 0], places[piece])
        end = np.minimum(inside[:, 1], places[piece] + lengths[piece])
        yield from cut(offsets[piece] + begin - places[piece], end - begin, begin)


def _read(files: Sequence[int], replica: Replica, start: int, length: int) -> Bytes:
    data = np.empty(length, dtype=np.uint8)
    for piece in locate(replica.rule, start, start + length):
        part = data[piece.logical - start :][: piece.length].data
        read_all(files[piece.component], part, piece.offset, replica.components[piece.component].path)
    return data


def _extents(replicas: Mapping[int, Replica], ranges: Int64Array) -> tuple[tuple[int, int], ...]:
    """Ranges of replicas as extents of the original; adjacent ones are joined."""
    found: list[tuple[int, int]] = []
    for number in np.unique(ranges[:, 0]).tolist():
        if (replica := replicas.get(number)) is not None:
            for offsets, lengths, _ in _batches(replica.access_map, ranges[ranges[:, 0] == number][:, 1:]):
                found += zip(offsets.tolist(), lengths.tolist(), strict=True)
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(found):
        if merged and sum(merged[-1]) >= offset:
            merged[-1] = (merged[-1][0], max(sum(merged[-1]), offset + length) - merged[-1][0])
        else:
            merged.append((offset, length))
    return tuple(merged)
