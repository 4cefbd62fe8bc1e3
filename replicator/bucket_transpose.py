"""Irregular patterns of small pieces, in two steps: first into buckets that fit into memory, then into order in each.

Without buckets every piece would be a write of its own, in no order. A bucket is a range of the
replica. The first step puts its bytes there in the order of the original, which makes long runs.
The second step reads the bucket, rearranges it and writes it again. This needs no more space than
the replica.
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
    """``collected``: the map of the first step. ``bounds``: where the buckets begin, and where the last one ends. For
    the second step: (first, last) row numbers of each bucket, and the rows (place in the first
    step, length, place)."""

    collected: AccessMap
    bounds: Int64Array
    numbers: Int64Array
    rows: Int64Array

    def ordered(self, number: int, data: Bytes, memory: Bytes) -> Iterator[tuple[int, Bytes]]:
        """The bytes of a bucket in the order of the replica: (replica offset, bytes), each valid until the next."""
        low = self.bounds[number]
        places, lengths, replica = self.rows[self.numbers[number] : self.numbers[number + 1]].T
        yield from gathered(places - low, lengths, replica, data, memory)


def buckets_of(access_map: AccessMap) -> Buckets | None:
    """The two steps to a replica of this map; None if its pieces are long, or regular."""
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
