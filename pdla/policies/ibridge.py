"""iBridge: an SSD next to each disk serves fragments and small random requests.

Source: Liu, Jiang, Davis, "Hard Disk/Solid State Drive Synergy [...]", LA-UR-12-23164, 2012
(slides).

A request that does not end at strip ends leaves a small first or last sub-request, a *fragment*,
which delays the other sub-requests. A request of one small sub-request is *random*. A server
compares the effects of serving either from its disk or its SSD on the disk's average service time,
and admits those whose return value is positive. A fragment counts for more if its server is the
slowest one of the request. What a rank reads in order, or ranks do in turns, stays on the disk
(docs/adr/0032). The SSD serves what it caches; dirty bytes are written back in the
background. The two kinds share the SSD's space by their mean return values, and each evicts its
oldest entry.

The slides state equations, but no thresholds, periods or shares: here they are parameters, or
documented choices. The SSD's log is not modelled.

What it decides while a program runs is in pdla/caching/ibridge.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pdla.errors import ConfigError
from pdla.model import Cluster, Pool
from pdla.policies.online import BuiltIn, Online, Space, pool_of


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

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """An SSD next to each disk server."""
        pool, servers = pool_of(cluster, "ssd", "ibridge"), cluster.home_servers
        if pool.servers < servers:
            raise ConfigError(
                f"ibridge needs an SSD for each of {servers} home servers, but pool {pool.name} has {pool.servers}"
            )
        return [Space(f"{pool.name}/{server}", _capacity(pool)) for server in range(servers)]

    def built_in(self, cluster: Cluster) -> BuiltIn:
        """pdla/caching/ibridge.c."""
        disk, ssd = cluster.pool(cluster.home_pool), pool_of(cluster, "ssd", "ibridge")
        limits = [cluster.home_strip if limit is None else limit for limit in (self.fragment, self.random)]
        return BuiltIn("ibridge", {"disk": disk, "ssd": ssd, "limit": tuple(limits), "capacity": _capacity(ssd)})


def _capacity(pool: Pool) -> int:
    """Bytes of each SSD."""
    return (pool.capacity or 1 << 60) // pool.servers
