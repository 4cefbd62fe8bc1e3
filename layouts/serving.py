"""What the servers of the original see of requests: it is striped, and neighbours in it need not be on one server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.layouts.contiguity import count, gaps, split
from pdla.layouts.devices import seconds_per_byte
from pdla.model import Cluster, Int64Array, Loop, Op

SAMPLE = 256
"""Requests, the first of a nest, that stand for all in what they have to do with strips."""


class Served(NamedTuple):
    """What the busiest server has to do: its requests, the seconds of their start-up, and their bytes."""

    requests: float
    startup: float
    bytes: float


def served(cluster: Cluster, op: Op, start: int, loops: Sequence[Loop], length: int, readers: int = 1) -> Served:
    """The busiest home server, of requests of ``length`` bytes from ``start`` on in the order of the nest.

    A request is cut where it meets the strips, and each server has distances of its own: between its parts. The first
    is free: nobody knows where the server's head was, whichever file it turns to. Where start-up and transfer overlap,
    only what start-up takes longer than the transfer counts; and as it is then that requests are counted, not that a
    head moves, one that goes on where another of several ``readers`` has stopped is like any other: read-ahead, which
    makes one request of many, is for each reader. A server with memory takes what is written in the order of its
    addresses, a memory full at a time.

    CephFS is asked for a strip at a time, by Linux (ceph_netfs_clamp_length in fs/ceph/addr.c) and, but where much is
    read ahead, by ceph-fuse: what it has of a request is one start-up, and its other strips follow the one before.
    """
    pool, servers, strip = cluster.pool(cluster.home_pool), cluster.home_servers, cluster.home_strip
    b = seconds_per_byte(pool, op)
    in_memory, by_strip = op == "write" and pool.device.memory > 0, pool.backend == "cephfs"
    counted = pool.overlap and (readers > 1 or by_strip) and not in_memory
    distances, seconds = zip(*pool.startup, strict=True)

    def startup(distance: Int64Array, size: Int64Array | int) -> npt.NDArray[np.float64]:
        reached = np.where((distance == 0) & counted, math.inf, distance)
        hidden = size * b if pool.overlap else 0.0
        return np.asarray(np.maximum(np.interp(reached, distances, seconds) - hidden, 0.0))

    outer, inner = split(loops, SAMPLE)
    offsets = np.array([start], np.int64)
    for stride, times in inner:
        offsets = (offsets[:, None] + np.arange(times, dtype=np.int64) * stride).ravel()
    low, high = _on_servers(offsets, cluster), _on_servers(offsets + length, cluster)
    server, request = np.nonzero(high > low)
    low, size = low[server, request], (high - low)[server, request]
    if in_memory:
        before = np.cumsum(size) - size
        before -= before[np.searchsorted(server, server)]
        order = np.lexsort((low, before // pool.device.memory, server))
        low, size = low[order], size[order]
    same = 1 + np.flatnonzero(server[1:] == server[:-1])
    distance = np.abs(low[same] - low[same - 1] - size[same - 1])
    if by_strip:
        strips = -(-(low + size) // strip) - low // strip
        each = size // strips
        waited = np.bincount(server, (strips - 1) * startup(np.zeros_like(low), each), servers)
        waited += np.bincount(server[same], startup(distance, each[same]), servers)
    else:
        waited = np.bincount(server[same], startup(distance, size[same]), servers)
    moved = np.bincount(server, size, servers)
    busiest = int(np.lexsort((moved, waited + moved * b))[-1])

    share = count(loops) / len(offsets)
    part = length // min(servers, -(-length // strip))
    outside = gaps((*outer, *inner), length)[sum(loop.count > 1 for loop in inner) :]
    far = np.array([gap.distance // servers for gap in outside], np.int64)
    jumps = startup(far, min(part, strip) if by_strip else part)
    return Served(
        share * float(np.count_nonzero(server == busiest)),
        share * float(waited[busiest]) + float(np.dot([gap.times for gap in outside], jumps)),
        share * float(moved[busiest]),
    )


def _on_servers(edge: Int64Array, cluster: Cluster) -> Int64Array:
    """How many bytes before ``edge`` of the file each server has; a row for each."""
    strip, cycle = cluster.home_strip, cluster.home_strip * cluster.home_servers
    first = np.arange(cluster.home_servers, dtype=np.int64)[:, None] * strip
    return np.asarray(edge // cycle * strip + np.clip(edge % cycle - first, 0, strip))
