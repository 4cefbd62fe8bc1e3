"""Strips for a layout over disks and SSDs together (PDLA 4.2.2): a linear program, solved in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pdla.layouts.cost import hybrid_time, layout_time
from pdla.model import Cost


class Round(NamedTuple):
    """A round of ``processes`` requests of ``request`` bytes; pairs are (disks, SSDs), as in ``cost.py``."""

    processes: int
    per_node: int
    request: int
    servers: tuple[int, int]
    e: float
    v: float
    a: tuple[float, float]
    b: tuple[float, float]

    def time(self, strips: tuple[float, float]) -> Cost:
        """T_HS of these strips. If one strip is 0, its servers do nothing, and this is T_1DH of the other kind alone.

        >>> one = Round(8, 1, 1000, (4, 2), e=0.5, v=1e-3, a=(0.25, 0.0), b=(1e-3, 1e-3))
        >>> one.time((100, 300)).startup, one.time((0, 500)).startup
        (2.0, 0.0)
        """
        for kind in (0, 1):
            if strips[kind] == 0:
                other = 1 - kind
                return layout_time(
                    self.processes, self.per_node, self.servers[other], 1, self.request, self.e, self.v,
                    self.a[other], self.b[other],
                )  # fmt: skip
        return hybrid_time(self.processes, self.per_node, self.servers, strips, self.e, self.v, self.a, self.b)


def best_strips(one: Round) -> tuple[float, float]:
    """The strips (s_h, s_s), in bytes and not rounded, that make the round shortest.

        min v*t1 + p*t2  with  t1 >= m*s, t1 >= p*s_h, t1 >= p*s_s, t2 >= a_h + s_h*b_h, t2 >= a_s + s_s*b_s,
                               n_h*s_h + n_s*s_s = s, s_h >= 0, s_s >= 0

    Of this linear program only s_h is free. Along it t1 and t2 are each the largest of straight lines. So the
    optimum is at an end, or where two lines of t1 cross, or the two of t2. A kind of server without bytes
    costs neither connections nor start-up, which no linear program can express: the ends, all bytes on the disks
    and all on the SSDs, count with what they really take (PDLA Table 5 and 4.2.2, corrected).

    >>> best_strips(Round(8, 1, 6000, (4, 2), e=0.0, v=0.0, a=(0.0, 0.0), b=(2e-6, 1e-6)))
    (750.0, 1500.0)
    >>> best_strips(Round(8, 1, 6000, (4, 2), e=0.0, v=0.0, a=(1.0, 0.0), b=(2e-6, 1e-6)))
    (0.0, 3000.0)
    """
    disks, ssds = one.servers
    even, slope = one.per_node * one.request / one.processes, one.b[0] + one.b[1] * disks / ssds
    crossings = [
        even,  # a node's link and a disk's
        (one.request - ssds * even) / disks,  # a node's link and an SSD's
        one.request / (disks + ssds),  # the links of a disk and of an SSD
        (one.a[1] - one.a[0] + one.b[1] * one.request / ssds) / slope if slope else 0.0,  # a disk and an SSD
    ]
    ends = (one.request / disks, 0.0), (0.0, one.request / ssds)
    both = [(strip, (one.request - disks * strip) / ssds) for strip in crossings if 0 < strip < one.request / disks]
    return min((*ends, *both), key=lambda strips: one.time(strips).total)


def whole_strips(
    ideal: tuple[float, float], request: int, servers: tuple[int, int], grains: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """The strips nearest to ``ideal`` in whole grains that hold a request and give bytes to both kinds of servers.

    >>> list(whole_strips((750.0, 1500.0), 6000, (4, 2), (500, 500)))
    [(500, 2000), (1000, 1000)]
    >>> list(whole_strips((7.5, 15.0), 60, (4, 2), (500, 500)))
    []
    """
    nearest = int(ideal[0] // grains[0])
    for grain in range(max(nearest - 1, 1), nearest + 3):
        strip = grain * grains[0]
        left = request - servers[0] * strip
        if left > 0:
            yield strip, -(-left // (servers[1] * grains[1])) * grains[1]
