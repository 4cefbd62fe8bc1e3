"""E10: collective writes go to the aggregators' own devices; write-back happens in the background.

Source: Congiu et al., "Improving Collective I/O Performance Using Non-Volatile Memory Devices".

An aggregator writes its blocks to a cache file on its node. With ``flush = "immediate"`` the
write-back of a block begins when it is written, with ``"close"`` when the file is closed. In both
cases the close waits until all blocks are written back. One thread of a node moves them, ``chunk``
bytes at a time (``ind_wr_buffer_size``). The cache is not read: a read waits until its bytes are
written back (the paper forbids a read before; III-B). A block for which the device has no room goes
directly to the original, as when ``fallocate`` fails.

``pdla run --policy e10`` is different in two ways, which are the default here. Pieces are exchanged
only if that pays (``exchange``). And what all ranks of a node have written comes home together, in
rounds (docs/adr/0028-caches-come-home-by-nodes.md).

What it decides while a program runs is in pdla/caching/e10.c.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pdla.layouts.devices import startup
from pdla.model import Candidate, Cluster, Signature
from pdla.policies import base
from pdla.policies.online import BuiltIn, Online, Space, pool_of

HOME_CHUNK = 8 << 20
"""Bytes that a node brings home at a time (replicator/stub/homeward.h)."""


EXCHANGES = ("two-phase", "auto", "enable", "disable")
"""How a collective write gets to caches: enum sim_exchange."""


class ExchangeCosts(NamedTuple):
    """What an exchange of pieces between nodes costs, and what it saves: ``struct caching_costs`` of pdla/caching.

    Attributes:
        request: seconds of the storage for a request, with all nodes at work.
        byte: likewise for a byte.
        message: seconds for a message from rank to rank.
        network: seconds for a byte between nodes.
        copy: seconds for a byte that is copied in memory.
        overlap: 1: the storage takes the longer of the seconds of requests and of bytes; 0: it takes both.
    """

    request: float
    byte: float
    message: float
    network: float
    copy: float
    overlap: float


def exchange_costs(cluster: Cluster) -> ExchangeCosts:
    """Those of a cluster; its servers share the requests, and each of these may need the longest start-up."""
    home = cluster.pool(cluster.home_pool)
    return ExchangeCosts(
        request=startup(home, math.inf, "write") / cluster.home_servers,
        byte=home.write_seconds_per_byte / cluster.home_servers,
        message=cluster.connect_seconds,
        network=cluster.network_seconds_per_byte,
        copy=cluster.copy_seconds_per_byte + cluster.exchange_seconds_per_byte,
        overlap=float(home.overlap),
    )


@dataclass(eq=False)
class E10(Online):
    """The policy ``e10``, with the hints of Table II.

    Attributes:
        flush: ``e10_cache_flush_flag``.
        discard: ``e10_cache_discard_flag``: remove the cache file when the file is closed.
        exchange: how a collective write gets to the caches. ``"two-phase"``: as in the paper, by two-phase I/O, with
            an aggregator for each node. All others are the library's: ``"disable"``: each rank writes its own pieces
            to the cache of its node; ``"enable"``: all ranks are aggregators, and get units of the file in turn;
            ``"auto"``: whichever of these two the core finds better (pdla/caching/pieces.c).
        chunk: ``ind_wr_buffer_size``, in bytes; 512 KB in IV. None: that if ``exchange`` is ``"two-phase"``; else
            requests are as large as what a node has.
    """

    flush: Literal["immediate", "close"] = "immediate"
    discard: bool = True
    exchange: Literal["auto", "enable", "disable", "two-phase"] = "auto"
    chunk: int | None = None

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """The device of every node, which is written and not read."""
        pool = pool_of(cluster, "node", "e10")
        capacity = (pool.capacity or 1 << 60) // pool.servers
        chunk = self.chunk or (512 << 10 if self.exchange == "two-phase" else HOME_CHUNK)
        return [Space(f"{pool.name}/{node}", capacity, reads=False, chunk=chunk) for node in range(pool.servers)]

    def clients(self, cluster: Cluster) -> Mapping[str, Any]:
        """How the library writes to caches, and brings home what they have."""
        return {
            "exchange": EXCHANGES.index(self.exchange),
            "home_chunk": HOME_CHUNK,
            "home_request": self.chunk or 0,
            "home_cached": cluster.client_cache,
            "exchange_costs": exchange_costs(cluster),
        }

    def built_in(self, cluster: Cluster) -> BuiltIn:
        """pdla/caching/e10.c."""
        return BuiltIn("e10", {"flush_on_close": self.flush == "close", "discard": self.discard})


@dataclass(frozen=True)
class CollectiveWrites(base.Replicate):
    """The policy before a run: patterns that write collectively may have replicas on the nodes' devices.

    They are written there, and the write-back happens at the close (``pdla run --writes close``),
    as with ``flush = "close"``. E10 hides that time behind computation; here the benefit counts it.
    """

    def place(self, signature: Signature, candidates: tuple[Candidate, ...], cluster: Cluster) -> Iterator[base.Place]:
        """The candidates that save enough."""
        if signature.op == "write" and signature.collective:
            yield from super().place(signature, candidates, cluster)


COLLECTIVE_WRITES = CollectiveWrites(kinds=("node",))


class Phase(NamedTuple):
    """A phase that writes: ``size`` bytes in ``cache`` seconds (T_c), and ``sync`` more for the write-back (T_s).

    ``compute`` are the seconds until the file is closed, those of the next phase's computation:
    C(k+1).
    """

    size: int
    cache: float
    sync: float
    compute: float

    @property
    def not_hidden(self) -> float:
        """Seconds for which the close waits: max(0, T_s(k) - C(k+1))."""
        return max(0.0, self.sync - self.compute)


def bandwidth(phases: Iterable[Phase]) -> float:
    """Bytes/s that a program perceives: bw(k) of one phase (Eq. 1), BW of all (Eq. 2).
    BW = sum S(k) / sum (T_c(k) + max(0, T_s(k) - C(k+1))); as printed in Eq. 2, the sum might end
    before the maximum.

    >>> bandwidth([Phase(32 << 30, cache=2.0, sync=20.0, compute=30.0)]) / (1 << 30)
    16.0
    >>> bandwidth([Phase(32 << 30, 2.0, 20.0, 30.0)] * 3 + [Phase(32 << 30, 2.0, 20.0, 0.0)]) / (1 << 30)
    4.571428571428571
    """
    phases = list(phases)
    return sum(phase.size for phase in phases) / sum(phase.cache + phase.not_hidden for phase in phases)
