"""Strips for a layout over disks and SSDs together (PDLA 4.2.2): a linear program, and the ends that it cannot see."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pdla.layouts.cost import connect_time, hybrid_time, layout_time
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


@lru_cache(maxsize=1 << 14)
def best_strips(one: Round) -> tuple[float, float]:
    """The strips (s_h, s_s), in bytes and not rounded, that make the round shortest.

        min v*t1 + p*t2  with  t1 >= m*s, t1 >= p*s_h, t1 >= p*s_s, t2 >= a_h + s_h*b_h, t2 >= a_s + s_s*b_s,
                               n_h*s_h + n_s*s_s = s, s_h >= 0, s_s >= 0

    solved by HiGHS. A kind of server without bytes costs neither connections nor start-up. No
    linear program can express this step, so all bytes on the disks and all on the SSDs are compared
    separately (PDLA Table 5 and 4.2.2, corrected).

    >>> best_strips(Round(8, 1, 6000, (4, 2), e=0.0, v=0.0, a=(0.0, 0.0), b=(2e-6, 1e-6)))
    (750.0, 1500.0)
    >>> best_strips(Round(8, 1, 6000, (4, 2), e=0.0, v=0.0, a=(1.0, 0.0), b=(2e-6, 1e-6)))
    (0.0, 3000.0)
    """
    ends = (one.request / one.servers[0], 0.0), (0.0, one.request / one.servers[1])
    end = min(ends, key=lambda strips: one.time(strips).total)
    if _floor(one) >= one.time(end).total:
        return end
    return min((end, _both(one)), key=lambda strips: one.time(strips).total)


def _floor(one: Round) -> float:
    """A lower bound for strips of both kinds: each term at its own best."""
    share = one.request / sum(one.servers)
    rate = sum(count / b if b else math.inf for count, b in zip(one.servers, one.b, strict=True))
    return (
        connect_time(one.per_node, one.processes, sum(one.servers), one.e)
        + max(one.per_node * one.request, one.processes * share) * one.v
        + one.processes * max(*one.a, one.request / rate)
    )


def _both(one: Round) -> tuple[float, float]:
    """Solve the linear program, in shares of a request and of the longest times, so that its numbers are near 1."""
    import pulp  # type: ignore[import-untyped]

    device = max(one.a) + one.request * max(one.b) or 1.0
    network = one.v * one.request
    whole = network + one.processes * device
    program = pulp.LpProblem("strips", pulp.LpMinimize)
    disks, ssds = program.add_variable("disks", 0, 1), program.add_variable("ssds", 0, 1)
    carried, served = program.add_variable("carried", one.per_node), program.add_variable("served", 0)
    program += (network / whole) * carried + (one.processes * device / whole) * served
    program += one.servers[0] * disks + one.servers[1] * ssds == 1
    for share, a, b in zip((disks, ssds), one.a, one.b, strict=True):
        program += carried >= one.processes * share
        program += served >= a / device + (one.request * b / device) * share
    program.solve(pulp.HiGHS(msg=False, threads=1))
    # In (0.9999999, 1e-8) the second number is the solver's tolerance, not a strip.
    shares = [round(variable.value(), 9) for variable in (disks, ssds)]
    return shares[0] * one.request, shares[1] * one.request


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
