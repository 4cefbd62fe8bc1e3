"""LiU (Lift it Up): heads of segments on SSDs, so that reading them hides the disk's latency.

Source: Huang et al., "LiU: Hiding Disk Access Latency for HPC Applications with a New SSD-Enabled
Data Layout".

The part of a file on a data server is cut into segments with a head and a body each. A *lifted*
segment has a copy of its head on the server's SSD. A segment that is worth it is read as a whole
into a buffer in memory: the head and the sections of the body at once, asynchronously, while the
disk seeks. A request waits for the sections that it needs. A segment is worth it if at least the
share ``locality`` of it was requested while it was in the buffer, or would have been: the LRU stack
of the buffer also has *ghosts*, which keep only the flags of what was requested. When a segment is
evicted, ghosts at the bottom go with it; their locality is then known, for their next access.

What is written of the head of a lifted segment goes to the SSD, what is written of the body to the
disk (III-B: "writes 80% data into the disk and writes 20% data into the SSD simultaneously"). The
access that lifts a segment may itself be a write. A segment whose locality turns out too low is
de-lifted: its dirty bytes are written back, and the SSD's copies are dropped.

Head and body follow from the disks (II-B). They are whole strips on each server, so the segments of
one number on all servers are together a segment of the file: bytes of heads, then bytes of bodies.

Where the text is silent, this implementation decides: as long as the buffer
holds nothing, ghosts leave the stack when there are more of them than segments fit into the buffer
(otherwise none would ever be lifted); a head is copied to the SSD from the buffer; if the SSD is
full, the segment that was lifted first is de-lifted. The system's own write-back cache is not
modelled.

What it decides while a program runs is in pdla/caching/liu.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pdla.errors import ConfigError
from pdla.layouts.devices import startup
from pdla.model import Cluster, Pool
from pdla.policies.online import MEMORY, BuiltIn, Online, Space, pool_of

BODY = 4
"""Bytes of a body for each of the head (II-B: 4 MB and 1 MB).

If the head is B*t, the disk reads bodies at random with at least 4/5 of its bandwidth (Figure 3).
"""


def latency(pool: Pool, region: float = 10e9, share: float = 0.8) -> float:
    """Seconds within which ``share`` of the reads of one byte at random in ``region`` bytes of a disk start (II-B).

    Two points at random are more than the part x of the region apart with probability (1 - x)^2. The
    default is the paper's curve (Figure 2).

    >>> disk = Pool("d", "hdd", 1, ((0, 0.0), (10**10, 0.01)), 0.0, 0.0, 0, 1, "directories", ("d",))
    >>> round(latency(disk), 4)  # 1 - sqrt(0.2) of the region apart
    0.0055
    """
    import numpy as np

    steps = (np.arange(500) + 0.5) / 500
    seeks = [startup(pool, float(1 - (1 - step) ** 0.5) * region) for step in steps]
    return float(np.quantile(np.add.outer(seeks, steps * pool.device.rotation_seconds), share))


def head_bytes(bandwidth: float, latency: float) -> float:
    """The least head: B*t, the bytes that the disk would transfer while it seeks (II-B).

    ``latency`` is that of 80 % of random reads of one byte.

    >>> head_bytes(70e6, 0.012)  # of the paper: "0.84 MB and we choose 1 MB"
    840000.0
    """
    return bandwidth * latency


def segment_time(
    head: int, body: int, ssd_latency: float, ssd_bandwidth: float, latency: float, bandwidth: float
) -> float:
    """max(L_ssd + head/B2, t + body/B1): seconds in which head and body are read in parallel (Figure 1).

    >>> segment_time(2**20, 2**22, ssd_latency=0.25, ssd_bandwidth=2**20, latency=0.5, bandwidth=2**21)
    2.5
    """
    return max(ssd_latency + head / ssd_bandwidth, latency + body / bandwidth)


@dataclass(eq=False)
class LiU(Online):
    """The policy ``liu``.

    Attributes:
        head, body: bytes of a segment's head and body on a server (II-B). None: they follow from the
            disks: a head is a strip, doubled until it has at least B*t ("for management
            convenience"); a body is ``BODY`` heads.
        sections: the sections of the body, read asynchronously (II-C).
        buffer: bytes of a server's memory for segments (III-E).
        locality: a segment of which at least this share is requested is lifted and loaded. The text has "a
            pre-defined threshold" and no value.
    """

    head: int | None = None
    body: int | None = None
    sections: int = 4
    buffer: int = 256 << 20
    locality: float = 0.5
    by_part: bool = field(default=True, init=False)

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        """A buffer in the memory of each home server, which takes no writes; an SSD next to each."""
        pool, servers = pool_of(cluster, "ssd", "liu"), cluster.home_servers
        if pool.servers < servers:
            raise ConfigError(
                f"liu needs an SSD for each of {servers} home servers, but pool {pool.name} has {pool.servers}"
            )
        capacity = (pool.capacity or 1 << 60) // pool.servers
        buffers = [Space(f"{MEMORY}/{server}", self.buffer, writes=False) for server in range(servers)]
        return buffers + [Space(f"{pool.name}/{server}", capacity) for server in range(servers)]

    def built_in(self, cluster: Cluster) -> BuiltIn:
        """pdla/caching/liu.c."""
        head, body = self.segment(cluster)
        others = {name: getattr(self, name) for name in ("sections", "buffer", "locality")}
        return BuiltIn("liu", {"head": head, "body": body, **others})

    def segment(self, cluster: Cluster) -> tuple[int, int]:
        """Bytes of a segment's head and body on each home server."""
        disk, head = cluster.pool(cluster.home_pool), self.head
        if head is None:
            head, per_byte = cluster.home_strip, disk.read_seconds_per_byte
            least = head_bytes(1 / per_byte, latency(disk)) if per_byte > 0 else 0.0
            while head < least:
                head *= 2
        return head, BODY * head if self.body is None else self.body
