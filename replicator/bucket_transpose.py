"""Irregular patterns of small pieces, in two steps: into buckets that fit into memory, then into order within each.

A piece of its own for every write would be a call each, in no order. A bucket is a range of the replica; its bytes are
first put there in the order in which the original has them, which makes long runs, and then read, rearranged, and
written again. No space is needed but the replica's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pdla.accessmap import AccessMap
from pdla.model import Int64Array
from pdla.replicator.transpose import RUN, Bytes, gathered
from pdla.units import MiB

BUCKET = 32 * MiB


class Buckets(NamedTuple):
    """``collected``: the map of the first step; ``bounds``: where the buckets begin, and where the last one ends; for
    the second step (first, last) numbers of the rows of each, and the rows (place in the first step, length, place)."""

    collected: AccessMap
    bounds: Int64Array
    numbers: Int64Array
    rows: Int64Array

    def ordered(self, number: int, data: Bytes, memory: Bytes) -> Iterator[tuple[int, Bytes]]:
        """The bytes of a bucket in the order of the replica: (replica offset, bytes), each lasting until the next."""
        low = self.bounds[number]
        places, lengths, replica = self.rows[self.numbers[number] : self.numbers[number + 1]].T
        yield from gathered(places - low, lengths, replica, data, memory)


def buckets_of(access_map: AccessMap) -> Buckets | None:
    """The two steps to a replica of this map; None where its pieces are long, or follow a rule."""
    table = access_map.extents
    if table is None or access_map.size >= RUN * len(table) or table[:, 1].max() > BUCKET // 2:
        return None
    starts, lengths, replica = table.T
    order = np.argsort(replica)
    firsts = np.searchsorted(replica[order], np.arange(0, access_map.size, BUCKET // 2))
    bounds = np.unique(np.append(replica[order][firsts[firsts < len(order)]], access_map.size))
    bucket = np.searchsorted(bounds, replica, side="right") - 1
    order = np.lexsort((starts, bucket))
    places = np.empty_like(replica)
    places[order] = np.cumsum(lengths[order]) - lengths[order]
    numbers = np.searchsorted(bucket[order], np.arange(len(bounds)))
    return Buckets(
        AccessMap(extents=np.stack([starts, lengths, places], axis=1)),
        bounds,
        numbers,
        np.stack([places[order], lengths[order], replica[order]], axis=1),
    )
