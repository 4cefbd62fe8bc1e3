"""What a server needs before the first byte: its device, by the distance, and the server itself, by its clients."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from pdla.model import Cluster, Op, Pool


def curve(pool: Pool, op: Op) -> tuple[tuple[int, float], ...]:
    """The points (bytes, seconds) of a device's start-up; for writes its own ones, if it has some."""
    return pool.device.write_startup or pool.startup if op == "write" else pool.startup


def startup(pool: Pool, distance: float, op: Op = "read") -> float:
    """Start-up seconds of a request that begins ``distance`` bytes from the end of the server's previous one.

    Linear between the points of the curve, constant beyond the first and the last: S4D-Cache's F(d) + R
    in measured form (as a(distance), with a(0) ~ 0 for a sequential successor).

    >>> disk = Pool("d", "hdd", 1, ((0, 0.0), (1000, 0.25), (9000, 0.75)), 0.0, 0.0, 0, 1, "directories", ("d",))
    >>> [startup(disk, distance) for distance in (0, 500, 5000, 10**12)]
    [0.0, 0.125, 0.5, 0.75]
    """
    points = curve(pool, op)
    if distance <= points[0][0]:
        return points[0][1]
    if distance >= points[-1][0]:
        return points[-1][1]
    after = bisect_right(points, distance, key=lambda point: point[0])
    (near, near_seconds), (far, far_seconds) = points[after - 1], points[after]
    return near_seconds + (far_seconds - near_seconds) * (distance - near) / (far - near)


def startups(pool: Pool, distances: Any, op: Op = "read") -> Any:
    """``startup`` of an array of distances.

    >>> startups(Pool("d", "hdd", 1, ((0, 0.0), (8, 0.5)), 0.0, 0.0, 0, 1, "directories", ("d",)), [4, 9]).tolist()
    [0.25, 0.5]
    """
    import numpy as np

    points, seconds = zip(*curve(pool, op), strict=True)
    return np.interp(distances, points, seconds)


def handling(cluster: Cluster, pool: Pool, clients: Any) -> Any:
    """Seconds that a server of the pool itself takes for a request, if so many clients make requests to it."""
    import numpy as np

    points = cluster.pool(pool.device.inside or pool.name).device.clients_cost
    if not points:
        return 0.0
    counts, seconds = zip(*points, strict=True)
    return np.interp(clients, counts, seconds)


def seconds_per_byte(pool: Pool, op: Op) -> float:
    """The paper's b: b_h of a disk, b_sr or b_sw of an SSD (PDLA Tables 1 and 3)."""
    return pool.read_seconds_per_byte if op == "read" else pool.write_seconds_per_byte
