"""iBridge: an SSD next to each disk serves fragments and small random requests.

Source: Liu, Jiang, Davis, "Hard Disk/Solid State Drive Synergy [...]", LA-UR-12-23164, 2012
(slides).

A request that does not end at strip ends leaves a small first or last sub-request, a *fragment*,
which delays the other sub-requests. A request of one small sub-request is *random*. A server
compares the effects of serving either from its disk or its SSD on the disk's average service time,
and admits those whose return value is positive. A fragment counts for more if its server is the
slowest one of the request. The SSD serves what it caches; dirty bytes are written back in the
background. The two kinds share the SSD's space by their mean return values, and each evicts its
oldest entry.

The slides state equations, but no thresholds, periods or shares: here they are parameters, or
documented choices. The SSD's log is not modelled.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pdla.errors import ConfigError
from pdla.layouts.devices import seconds_per_byte, startup
from pdla.model import Cluster, Op
from pdla.policies.online import HOME, Drop, Online, Part, Place, Request, Space, View, Wish, WriteBack, pool_of

Kind = Literal["fragment", "random"]
KINDS: tuple[Kind, Kind] = ("fragment", "random")
_Key = tuple[int, int, int]  # file, start, stop


def service_average(previous: float, startup: float, size: int, seconds_per_byte: float) -> float:
    """T_i = T_(i-1)/8 + (D_to_T(L_i - L_(i-1)) + R + Size_i/B)*7/8, the average service time of a disk in seconds.

    ``startup`` is D_to_T + R, ``seconds_per_byte`` 1/B (slide "Management of SSDs"; L are disk addresses).

    >>> service_average(8.0, startup=1.0, size=2, seconds_per_byte=0.5)
    2.75
    """
    return previous / 8 + (startup + size * seconds_per_byte) * 7 / 8


def fragment_return(gain: float, averages: Sequence[float], server: int) -> float:
    """T_ret_frag = T_ret + (T_max - T_sec_max)*n, in seconds, of a fragment whose server has the largest average.

    ``averages`` are those of the n servers of its request, its own at index ``server``. The slides do not say what n
    is; here the number of sub-requests, all of which wait for the slowest. Elsewhere a fragment returns T_ret.

    >>> fragment_return(0.5, [1.0, 4.0, 3.0], server=1), fragment_return(0.5, [1.0, 4.0, 3.0], server=2)
    (3.5, 0.5)
    """
    largest, second = sorted(averages, reverse=True)[:2]
    return gain + (largest - second) * len(averages) if averages[server] == largest else gain


class _Share:
    """What an SSD holds of one kind, the least recently used first, with the return value of each."""

    def __init__(self) -> None:
        self.held: OrderedDict[_Key, float] = OrderedDict()
        self.bytes = 0
        self.total = 0.0

    def add(self, key: _Key, gain: float) -> None:
        if key in self.held:
            self.pop(key)
        self.held[key] = gain
        self.bytes += key[2] - key[1]
        self.total += gain

    def pop(self, key: _Key) -> None:
        self.total -= self.held.pop(key)
        self.bytes -= key[2] - key[1]

    @property
    def mean(self) -> float:
        return self.total / len(self.held) if self.held else 0.0


@dataclass(eq=False)
class IBridge(Online):
    """The policy ``ibridge``.

    Attributes:
        fragment, random: a sub-request of fewer bytes is of this kind; None: of fewer bytes than
            the strip ("can be much smaller than the striping unit").
        period: seconds between two exchanges of the averages, and between write-backs.
    """

    fragment: int | None = None
    random: int | None = None
    period: float | None = 1.0
    by_part: bool = field(default=True, init=False)
    _pool: str = field(default="", init=False)
    _capacity: int = field(default=0, init=False)
    _averages: list[float] = field(default_factory=list, init=False)  # T_i of each server
    _exchanged: list[float] = field(default_factory=list, init=False)  # as the servers know those of one another
    _heads: list[tuple[int, int]] = field(default_factory=list, init=False)  # L_i of each: file and byte
    _shares: list[dict[Kind, _Share]] = field(default_factory=list, init=False)
    _dirty: dict[tuple[int, int, int, int], None] = field(default_factory=dict, init=False)

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """An SSD next to each disk server."""
        pool, servers = pool_of(cluster, "ssd", "ibridge"), cluster.home_servers
        if pool.servers < servers:
            raise ConfigError(
                f"ibridge needs an SSD for each of {servers} home servers, but pool {pool.name} has {pool.servers}"
            )
        self._pool, self._capacity = pool.name, (pool.capacity or 1 << 60) // pool.servers
        self._averages, self._exchanged = [0.0] * servers, [0.0] * servers
        self._heads = [(-1, 0)] * servers
        self._shares = [{kind: _Share() for kind in KINDS} for _ in range(servers)]
        return [Space(f"{pool.name}/{server}", self._capacity) for server in range(servers)]

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        """Handle each sub-request on its server."""
        found = view.parts(request.start, request.stop)
        averages = [self._exchanged[part.server] for part in found]
        for number, part in enumerate(found):
            yield from self._sub_request(request, part, number, averages, view)

    def tick(self, view: View) -> Iterator[Wish]:
        """The servers exchange their averages, and write back."""
        self._exchanged = list(self._averages)
        dirty, self._dirty = self._dirty, {}
        for server, file, start, stop in dirty:
            yield WriteBack(file, start, stop, "dirty", part=server)

    def _sub_request(
        self, request: Request, part: Part, number: int, averages: Sequence[float], view: View
    ) -> Iterator[Wish]:
        file, (server, start, stop) = request.file, part
        space, shares = f"{self._pool}/{server}", self._shares[server]
        extents = view.extents(file, start, stop, server)
        missed = [(extent.start, extent.stop) for extent in extents if extent.space == HOME]
        for share in shares.values():
            if (file, start, stop) in share.held:
                share.held.move_to_end((file, start, stop))
        if request.op == "write":
            self._dirty |= {(server, file, low, high): None for _, low, high, at, *_ in extents if at != HOME}
        if not missed:
            return
        on_disk, gain = self._values(server, file, start, stop - start, request.op, view.cluster)
        kind = self._kind(stop - start, len(averages), view.cluster)
        if kind == "fragment":
            gain = fragment_return(gain, averages, number)
        admitted = kind is not None and gain > 0
        if kind is not None and admitted:
            for low, high in missed:
                yield from self._make_room(server, kind, gain, high - low, view)
                if view.room(space) < high - low:
                    admitted = False
                    break
                yield Place(file, low, high, space, f"a {kind} with a return of {gain:.3g} s", part=server)
                shares[kind].add((file, low, high), gain)
                if request.op == "write":
                    self._dirty[server, file, low, high] = None
        if request.op == "read" or not admitted:
            self._averages[server] = on_disk
            self._heads[server] = file, stop

    def _values(self, server: int, file: int, start: int, size: int, op: Op, cluster: Cluster) -> tuple[float, float]:
        """T_disk and T_ret = T_disk - T_ssd: the average if the disk serves the request, and the gain if the SSD does.

        The slides do not define T_ssd: here it is the same recursion with the SSD's start-up and
        bandwidth.
        """
        disk, ssd = cluster.pool(cluster.home_pool), cluster.pool(self._pool)
        last_file, last = self._heads[server]
        distance = abs(start - last) if last_file == file else math.inf
        before = self._averages[server]
        on_disk = service_average(before, startup(disk, distance), size, seconds_per_byte(disk, op))
        return on_disk, on_disk - service_average(before, startup(ssd, math.inf), size, seconds_per_byte(ssd, op))

    def _kind(self, size: int, siblings: int, cluster: Cluster) -> Kind | None:
        limit = self.fragment if siblings > 1 else self.random
        if size >= (cluster.home_strip if limit is None else limit):
            return None
        return "fragment" if siblings > 1 else "random"

    def _make_room(self, server: int, kind: Kind, gain: float, length: int, view: View) -> Iterator[Wish]:
        """Evict clean entries until there is room for ``length`` bytes of ``kind``, which return ``gain``.

        Entries of the other kind go first, as long as that kind has more than its share of the SSD.
        The share of a kind is its mean return value relative to the sum of both. Then entries of
        this kind go.
        """
        shares, space = self._shares[server], f"{self._pool}/{server}"
        other: Kind = "random" if kind == "fragment" else "fragment"
        own = (shares[kind].total + gain) / (len(shares[kind].held) + 1)
        limit = self._capacity * shares[other].mean / (shares[other].mean + own)
        missing = length - view.room(space)
        for one in (other, kind):
            spare = shares[one].bytes - limit if one == other else math.inf
            victims = []
            for key in shares[one].held:
                if missing <= 0 or spare <= 0:
                    break
                file, start, stop = key
                if not any(extent.dirty for extent in view.extents(file, start, stop, server)):
                    victims.append(key)
                    missing, spare = missing - (stop - start), spare - (stop - start)
            for key in victims:
                shares[one].pop(key)
                yield Drop(*key, space, f"the least recently used {one}", server)
