"""The requests to the servers of the original, which is striped: adjacent bytes may be on two servers."""

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
"""The number of requests at the start of a nest that stand for all, with regard to the strips."""


class Served(NamedTuple):
    """The work of the busiest server: its requests, the seconds of their start-up, and their bytes."""

    requests: float
    startup: float
    bytes: float


def served(cluster: Cluster, op: Op, start: int, loops: Sequence[Loop], length: int, readers: int = 1) -> Served:
    """The busiest home server, for requests of ``length`` bytes from ``start`` on in the order of the nest.

    A request is cut at the strips, and each server has its own distances between the parts that it
    gets. The first request is free: nobody knows where the server's head was, whatever file it
    served before. If start-up and transfer overlap, only the time by which start-up is longer than
    the transfer counts. Then requests are counted, not movements of a head: a request that
    continues where another of several ``readers`` stopped counts like any other, since read-ahead,
    which makes one request of many, works for each reader alone. A server with memory takes writes
    in the order of its addresses, a memory full at a time.

    CephFS gets requests of a strip at a time, from Linux (ceph_netfs_clamp_length in
    fs/ceph/addr.c) and, unless it reads far ahead, from ceph-fuse: the part of a request on a
    server is one start-up, and its further strips follow the first.
    """
    pool, servers, strip = cluster.pool(cluster.home_pool), cluster.home_servers, cluster.home_strip
    b = seconds_per_byte(pool, op)
    in_memory, by_strip = op == "write" and pool.device.memory > 0, pool.backend == "cephfs"
    counted = pool.overlap and (readers > 1 or by_strip) and not in_memory
    distances, seconds = zip(*pool.startup, strict=True)

    def startup(distance: Int64Array | int, size: Int64Array | int) -> npt.NDArray[np.float64]:
        far = np.where(np.equal(distance, 0), math.inf, distance) if counted else distance
        each = np.interp(far, distances, seconds)
        return np.asarray(np.maximum(each - size * b, 0.0) if pool.overlap else each)

    outer, inner = split(loops, SAMPLE)
    offsets = np.array([start], np.int64)
    for stride, times in inner:
        offsets = (offsets[:, None] + np.arange(times, dtype=np.int64) * stride).ravel()
    edges = _on_servers(np.concatenate((offsets, offsets + length)), cluster)
    low, high = edges[:, : len(offsets)], edges[:, len(offsets) :]
    part = np.flatnonzero(high > low)
    server, low, size = part // len(offsets), low.take(part), (high - low).take(part)
    if in_memory:
        before = np.cumsum(size) - size
        before -= before[np.searchsorted(server, server)]
        order = np.lexsort((low, before // pool.device.memory, server))
        low, size = low[order], size[order]
    strips = -(-(low + size) // strip) - low // strip if by_strip else 1
    each = size // strips if by_strip else size
    follows = server[1:] == server[:-1]
    waits = np.where(follows, startup(np.abs(low[1:] - (low + size)[:-1]), each[1:]), 0.0)
    waited = np.bincount(server[1:], waits, servers)
    if by_strip:
        waited = waited + np.bincount(server, (strips - 1) * startup(0, each), servers)
    moved = np.bincount(server, size, servers)
    busiest = int(np.lexsort((moved, waited + moved * b))[-1])

    share = count(loops) / len(offsets)
    mean = length // min(servers, -(-length // strip))
    outside = gaps((*outer, *inner), length)[sum(loop.count > 1 for loop in inner) :]
    first = min(mean, strip) if by_strip else mean
    jumps = sum(gap.times * float(startup(gap.distance // servers, first)) for gap in outside)
    return Served(
        share * float(np.count_nonzero(server == busiest)),
        share * float(waited[busiest]) + jumps,
        share * float(moved[busiest]),
    )


def _on_servers(edges: Int64Array, cluster: Cluster) -> Int64Array:
    """How many bytes of the file before each of ``edges`` each server has; a row for each edge."""
    strip, servers = cluster.home_strip, cluster.home_servers
    cycles, rest = np.divmod(edges, strip * servers)
    first = np.arange(servers, dtype=np.int64)[:, None] * strip
    # np.clip takes four times as long.
    return np.asarray(cycles * strip + np.minimum(np.maximum(rest - first, 0), strip))
