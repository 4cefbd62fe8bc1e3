"""S4D-Cache: SSD servers cache what the cost model finds critical.

Source: He, Sun, Feng, "S4D-Cache: Smart Selective SSD Cache for Parallel I/O Systems", ICDCS 2014;
its equations are in layouts/s4d.py.

The *identifier* judges every request by Eqs. 1 to 8 and records critical ones in the critical data
table (CDT). The *redirector* (Algorithm 1) serves cached bytes from the SSD servers, admits
critical writes into free space or that of the least recently used clean copies, and flags critical
reads. The *rebuilder*, at low priority, writes dirty bytes back, in the order of the files. It also
fetches flagged bytes, those with the most benefit first (III-B: the benefit is to "prioritize their
eligibility for caching"), into free space or that of clean copies with less benefit. The enactor's
extents are the data mapping table (DMT), by file and extent (with the paper's key of program,
number of processes and rank, another rank would miss dirty data). A request that is cached in part
is split.

The distance d of Eq. 2 is that from the end of the same rank's previous request to the file: each
process has an identifier of its own. F(d) + R is the start-up curve of the home pool, S + R its
last point, beta the device's seconds per byte. The text gives no period of the rebuilder. Not
modelled are the persistence of the tables (metadata written to the SSD servers) and the
identifier's own time.

What it decides while a program runs is in pdla/caching/s4d.c.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdla.layouts import s4d
from pdla.layouts.devices import seconds_per_byte, startup
from pdla.model import Candidate, Cluster, Op, Pool, Signature
from pdla.policies import base
from pdla.policies.online import BuiltIn, Online, Space, pool_of, whole_pool
from pdla.units import format_seconds


@dataclass(eq=False)
class S4D(Online):
    """The policy ``s4d``.

    Attributes:
        period: seconds between two runs of the rebuilder.
        chunk: bytes that the rebuilder moves at a time.
    """

    period: float | None = 1.0
    chunk: int = 1 << 20

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """The SSD servers, striped like the home servers (both are PVFS2 with its default, V.A)."""
        pool = pool_of(cluster, "ssd", "s4d")
        layout = whole_pool(cluster, pool.name, cluster.home_strip)
        return [Space(pool.name, pool.capacity or 1 << 60, layout, chunk=self.chunk)]

    def built_in(self, cluster: Cluster) -> BuiltIn:
        """pdla/caching/s4d.c."""
        ssd = pool_of(cluster, "ssd", "s4d")
        return BuiltIn("s4d", {"disk": cluster.pool(cluster.home_pool), "ssd": ssd, "ssds": ssd.servers})


class Critical:
    """The policy before a run: patterns whose requests are critical may have replicas over all SSD servers."""

    def spaces(self, cluster: Cluster) -> tuple[list[Pool], list[tuple[Pool, Pool]]]:
        """The first pool of SSDs."""
        return [pool for pool in cluster.pools if pool.kind == "ssd"][:1], []

    def place(self, signature: Signature, candidates: tuple[Candidate, ...], cluster: Cluster) -> Iterator[base.Place]:
        """1-DH, as S4D-Cache stripes, if Eq. 8 is positive for a request; the gain is that of all requests.

        The distance between two requests is that of the innermost loop of a rank.
        """
        strides = [loop.stride for loop in signature.loops[signature.rank_loops :] if loop.count > 1]
        distance = abs(strides[-1] - signature.length) if strides else math.inf
        for number, one in enumerate(candidates):
            if one.layout and one.layout.groups == 1:
                saved = benefit_of(cluster, signature.op, signature.start, signature.length, distance)
                if saved > 0:
                    reason = f"critical: a request saves {format_seconds(saved)} on {one.space} (S4D-Cache, Eq. 8)"
                    yield base.Place(number, saved * signature.requests, reason)


def benefit_of(cluster: Cluster, op: Op, offset: int, length: int, distance: float) -> float:
    """Seconds that a request saves on the SSD servers of ``cluster``, ``distance`` from the previous one (Eq. 8).

    Raises:
        ConfigError: the cluster has no SSD servers.
    """
    home, ssd = cluster.pool(cluster.home_pool), pool_of(cluster, "ssd", "s4d")
    stripe = cluster.home_strip
    nearest, farthest = startup(home, distance, op), startup(home, math.inf, op)
    on_hdd = s4d.hdd_time(offset, length, stripe, cluster.home_servers, nearest, farthest, seconds_per_byte(home, op))
    return s4d.benefit(on_hdd, s4d.ssd_time(offset, length, stripe, ssd.servers, seconds_per_byte(ssd, op)))
