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
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pdla.layouts import s4d
from pdla.layouts.devices import seconds_per_byte, startup
from pdla.model import Candidate, Cluster, Op, Pool, Signature
from pdla.policies import base
from pdla.policies.online import HOME, Drop, Online, Place, Request, Space, View, Wish, WriteBack, pool_of, whole_pool
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
    _space: str = field(default="", init=False)
    _ends: dict[tuple[int, int], int] = field(default_factory=dict, init=False)  # by rank and file
    _critical: dict[tuple[int, int, int], float] = field(default_factory=dict, init=False)  # the CDT, and benefits
    # The CDT's C_flags, with benefits and the node that reads; and what was placed in the cache,
    # least benefit first.
    _flagged: dict[tuple[int, int, int], tuple[float, int]] = field(default_factory=dict, init=False)
    _cached: list[tuple[float, int, int, int]] = field(default_factory=list, init=False)
    _dirty: dict[tuple[int, int, int], None] = field(default_factory=dict, init=False)  # the DMT's D_flags

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """The SSD servers, striped like the home servers (both are PVFS2 with its default, V.A)."""
        pool = pool_of(cluster, "ssd", "s4d")
        self._space = pool.name
        layout = whole_pool(cluster, pool.name, cluster.home_strip)
        return [Space(pool.name, pool.capacity or 1 << 60, layout, chunk=self.chunk)]

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """Algorithm 1, for bytes that are not cached; the enactor redirects cached ones."""
        entry = request.file, request.start, request.stop
        benefit = self._benefit(request, view.cluster)
        if benefit > 0:
            self._critical.setdefault(entry, benefit)
        critical = entry in self._critical
        for extent in view.extents(request.file, request.start, request.stop):
            missed = extent.space == HOME
            if request.op == "write" and (critical or not missed):
                self._dirty[request.file, extent.start, extent.stop] = None
            if missed and critical and request.op == "write":
                yield from self._make_room(extent.stop - extent.start, view)
                yield Place(request.file, extent.start, extent.stop, self._space, "a critical write")
                heapq.heappush(self._cached, (self._critical[entry], request.file, extent.start, extent.stop))
            elif missed and critical:
                self._flagged[request.file, extent.start, extent.stop] = self._critical[entry], request.node

    def tick(self, view: View) -> Iterator[Wish]:
        """The rebuilder: write dirty bytes back; fetch flagged bytes in place of those that benefit less."""
        dirty, self._dirty = self._dirty, {}
        for file, start, stop in sorted(dirty):
            yield WriteBack(file, start, stop, "rebuilder: dirty")
        flagged, self._flagged = self._flagged, {}
        for (file, start, stop), (benefit, node) in sorted(flagged.items(), key=lambda one: -one[1][0]):
            yield from self._displace(stop - start, benefit, view)
            if view.room(self._space) < stop - start:
                break
            yield Place(file, start, stop, self._space, "rebuilder: a critical read", fetch=True, node=node)
            heapq.heappush(self._cached, (benefit, file, start, stop))

    def _displace(self, length: int, benefit: float, view: View) -> Iterator[Wish]:
        """Clean copies that benefit less, those with the least benefit first."""
        stay = []
        while view.room(self._space) < length and self._cached and self._cached[0][0] < benefit:
            one = heapq.heappop(self._cached)
            _, file, start, stop = one
            if any(extent.dirty for extent in view.extents(file, start, stop)):
                stay.append(one)
            else:
                yield Drop(file, start, stop, self._space, "another read benefits more")
        for one in stay:
            heapq.heappush(self._cached, one)

    def _make_room(self, length: int, view: View) -> Iterator[Wish]:
        """Use free space, or that of the least recently used clean copies; if both do not suffice, drop nothing."""
        missing = length - view.room(self._space)
        victims = []
        for victim in view.coldest(self._space) if missing > 0 else ():
            victims.append(victim)
            missing -= victim.stop - victim.start
            if missing <= 0:
                break
        for victim in victims if missing <= 0 else ():
            yield Drop(victim.file, victim.start, victim.stop, self._space, "clean and least recently used")

    def _benefit(self, request: Request, cluster: Cluster) -> float:
        last = self._ends.get((request.rank, request.file))
        self._ends[request.rank, request.file] = request.stop
        distance = math.inf if last is None else abs(request.start - last)
        return benefit_of(cluster, request.op, request.start, request.stop - request.start, distance)


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
    nearest, farthest = startup(home, distance), startup(home, math.inf)
    on_hdd = s4d.hdd_time(offset, length, stripe, cluster.home_servers, nearest, farthest, seconds_per_byte(home, op))
    return s4d.benefit(on_hdd, s4d.ssd_time(offset, length, stripe, ssd.servers, seconds_per_byte(ssd, op)))
