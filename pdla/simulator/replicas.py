"""The replicas of a plan on a simulated machine, and what brings home the bytes that are written to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from pdla.accessmap import AccessMap
from pdla.model import Layout, Plan
from pdla.simulator.core import MAP, TRANSFER, Array
from pdla.simulator.machine import Machine
from pdla.simulator.workload import Workload

BATCH, SHARE_GRAIN = 16 << 20, 1 << 20
"""Of the library's write-back: the bytes that a rank moves at a time, and what a rank's share is a multiple of."""

MOST_PIECES = 1 << 20
"""So many pieces of a replica are written back one by one; if there are more, as if they adjoined."""

_END = 1 << 62


@dataclass
class Replicas:
    """The replicas of a plan on a machine, as the core reads them."""

    maps: list[list[tuple[int, ...]]]  # of each file
    loops: list[tuple[int, int, int]] = field(default_factory=list)
    extents: list[Array] = field(default_factory=list)
    written: list[tuple[int, AccessMap, int]] = field(default_factory=list)  # (file, map, object)
    sizes: dict[str, int] = field(default_factory=dict)  # bytes in each space

    @classmethod
    def of(cls, plan: Plan | None, workload: Workload, machine: Machine) -> Replicas:
        """The replicas of ``plan`` for files of ``workload``, put on ``machine``."""
        self = cls([[] for _ in workload.files])
        files = {path: number for number, path in enumerate(workload.files)}
        for pattern in plan.patterns if plan else ():
            layout, signature = pattern.choice.layout, pattern.signature
            if layout and signature.file in files:
                self.add(files[signature.file], AccessMap.from_signature(signature), layout, signature.op, machine)
        return self

    def add(self, file: int, access_map: AccessMap, layout: Layout, op: str, machine: Machine) -> None:
        """Put one more on ``machine``: it has those bytes of a file that ``access_map`` names, for this operation."""
        number = machine.add(layout, access_map.size)
        self.sizes[layout.pool] = self.sizes.get(layout.pool, 0) + access_map.size
        extents, count = sum(map(len, self.extents)), 0
        if access_map.extents is not None:
            self.extents.append(access_map.extents)
            count = len(access_map.extents)
        writes = op == "write"
        loops = (len(self.loops), len(access_map.loops))
        place = (access_map.start, access_map.length, access_map.replica_start)
        self.maps[file].append((number, 2 if writes else 1, *loops, *place, extents, count))
        self.loops += access_map.loops
        if writes:
            self.written.append((file, access_map, number))

    def arrays(self) -> dict[str, Array]:
        """The members of struct sim_input that say where the replicas' bytes are."""
        return {
            "first_map": np.cumsum([0, *map(len, self.maps)]),
            "map": np.array([one for of_file in self.maps for one in of_file], MAP),
            "map_loops": np.array(self.loops, np.int64).reshape(-1, 3),
            "extents": np.concatenate([np.empty((0, 3), np.int64), *self.extents]),
        }

    def written_back(self, files: Collection[int], ranks: int, per_node: int) -> Array:
        """The transfers that bring home what the replicas of ``files`` have, of shape (transfers, 7).

        Ranks share the range of a file. A rank reads ``BATCH`` bytes of its share from the replicas
        and writes them to the original, in the order of the file. It makes one request after the
        other; pieces that touch in the file are one. All ranks do so at the same time
        (replicator/stub/writeback.c).
        """
        found, stage = [np.empty((0, len(TRANSFER.names or ())), np.int64)], 0
        for file in sorted(files):
            pieces = _in_file_order([one[1:] for one in self.written if one[0] == file])
            if len(pieces):
                found.append(_homeward(pieces, file, ranks, per_node, stage))
                stage = int(found[-1][-1, 0]) + 1
        return np.concatenate(found)


def _in_file_order(replicas: Sequence[tuple[AccessMap, int]]) -> Array:
    """The pieces of the file that replicas hold: (offset, length, replica offset, object), of shape (pieces, 4)."""
    tables = [np.empty((0, 4), np.int64)]
    for access_map, number in replicas:
        if access_map.pieces > MOST_PIECES:
            tables.append(np.array([[access_map.extent[0], access_map.size, 0, number]]))
        else:
            held = np.stack(access_map.tiles(0, _END), axis=1)
            tables.append(np.column_stack([held, np.full(len(held), number)]))
    pieces = np.concatenate(tables)
    return pieces[np.argsort(pieces[:, 0], kind="stable")]


def _homeward(pieces: Array, file: int, ranks: int, per_node: int, stage: int) -> Array:
    """The transfers for one file, from ``stage`` on."""
    offset, length = pieces[:, 0], pieces[:, 1]
    before = np.cumsum(length) - length  # bytes in front of each piece
    size, low = int(length.sum()), int(offset[0])
    share = -(-(int((offset + length).max()) - low) // ranks)
    share += -share % SHARE_GRAIN
    places = np.arange(low, low + ranks * share, share)
    near = np.searchsorted(offset, places, side="right") - 1
    begins = np.unique(before[near] + np.minimum(places - offset[near], length[near]))  # of the shares, in these bytes
    begins = begins[begins < size]
    of_share = [np.arange(a, b, BATCH) for a, b in zip(begins, [*begins[1:], size], strict=True)]
    batches = np.concatenate(of_share)
    turn = np.concatenate([np.arange(len(one)) for one in of_share])
    rank = np.repeat(np.arange(len(of_share)), [len(one) for one in of_share])

    at = np.union1d(before, batches)  # where a piece or a batch begins
    piece, batch = (np.searchsorted(one, at, side="right") - 1 for one in (before, batches))
    skip, part = at - before[piece], np.diff(at, append=size)
    reads = _joined(batch, pieces[piece, 3], pieces[piece, 2] + skip, part)
    writes = _joined(batch, np.full(len(at), file), offset[piece] + skip, part)
    number = np.arange(len(writes)) - np.searchsorted(writes[:, 0], writes[:, 0])  # of a request in its batch
    most = np.zeros(int(turn.max()) + 1, np.int64)
    np.maximum.at(most, turn[writes[:, 0]], number + 2)
    first = stage + np.cumsum(most) - most  # stage of each turn
    rows = [
        np.column_stack([when, one[:, 1], np.full(len(one), -1), np.full(len(one), op), one[:, 2:], node])
        for one, op, when in (
            (reads, 0, first[turn[reads[:, 0]]]),
            (writes, 1, first[turn[writes[:, 0]]] + 1 + number),
        )
        for node in [rank[one[:, 0]] // per_node]
    ]
    found = np.concatenate(rows)
    return found[np.argsort(found[:, 0], kind="stable")]


def _joined(batch: Array, number: Array, start: Array, length: Array) -> Array:
    """Ranges of objects in the order of batches, with those that touch joined: rows (batch, object, start, stop)."""
    order = np.lexsort((start, number, batch))
    batch, number, start, stop = batch[order], number[order], start[order], (start + length)[order]
    fresh = np.append(True, (np.diff(batch) != 0) | (np.diff(number) != 0) | (start[1:] != stop[:-1]))
    last = np.append(fresh[1:], True)
    return np.column_stack([batch[fresh], number[fresh], start[fresh], stop[last]])
