"""The cost model of S4D-Cache (He et al., ICDCS 2014, Eqs. 1 to 8 and Table II), one function per equation.

It judges one request: its cost on M HDD servers, where its slowest sub-request counts, and on N SSD
servers. The symbols are those of the paper. ``stripe`` is str, ``beta`` seconds per byte;
``nearest`` = F(d) + R and ``farthest`` = S + R are the least and the largest start-up of a disk
(F(d) its seek time at distance d, S its longest seek, R its rotation).
"""

from __future__ import annotations


def startup_cdf(x: float, nearest: float, farthest: float) -> float:
    """P(alpha < x): a disk's start-up is uniform on [a, b], a = F(d) + R, b = S + R (Eq. 2).

    >>> startup_cdf(0.006, nearest=0.004, farthest=0.012)
    0.25
    """
    return min(max((x - nearest) / (farthest - nearest), 0.0), 1.0)


def slowest_density(x: float, servers: int, nearest: float, farthest: float) -> float:
    """The density of the largest of m start-ups: m*(x-a)^(m-1) / (b-a)^m on [a, b] (Eq. 3).

    >>> slowest_density(0.75, servers=2, nearest=0.5, farthest=1.0)
    2.0
    """
    if not nearest <= x <= farthest:
        return 0.0
    return float(servers * (x - nearest) ** (servers - 1) / (farthest - nearest) ** servers)


def slowest_startup(servers: int, nearest: float, farthest: float) -> float:
    """T_s = a + m/(m+1)*(b-a), the expected largest start-up of m servers, in seconds (Eq. 4).

    >>> slowest_startup(servers=3, nearest=0.004, farthest=0.012)
    0.01
    """
    return nearest + servers / (servers + 1) * (farthest - nearest)


def servers_involved(offset: int, length: int, stripe: int, servers: int) -> int:
    """m = min(E - B + 1, M), with B = floor(f/str) and E = floor((f+r-1)/str) (Eq. 6).

    The paper prints E = floor((f+r)/str), which counts one server too many if a request ends at the
    end of a stripe.

    >>> servers_involved(0, 65536, stripe=65536, servers=8), servers_involved(65535, 2, stripe=65536, servers=8)
    (1, 2)
    """
    return min((offset + length - 1) // stripe - offset // stripe + 1, servers)


def largest_subrequest(offset: int, length: int, stripe: int, servers: int) -> int:
    """s_m: bytes of the largest sub-request that one server gets (Table II; exact for every M except M = 1).

    >>> [largest_subrequest(1000, length, stripe=4096, servers=2) for length in (100, 4096, 8192, 12288)]
    [100, 3096, 4096, 7192]
    """
    if servers == 1:
        return length
    ahead = (offset + length - 1) // stripe - offset // stripe
    rows = -(-ahead // servers)
    first = stripe - offset % stripe
    last = (offset + length) % stripe or stripe
    if ahead == 0:
        return length
    if ahead % servers == 0:
        return max(first + last + (rows - 1) * stripe, rows * stripe)
    if ahead % servers == 1:
        return max(first, last) + (rows - 1) * stripe
    return rows * stripe


def hdd_transfer_time(offset: int, length: int, stripe: int, servers: int, beta: float) -> float:
    """T_t = s_m*beta_D in seconds (Eq. 5).

    >>> hdd_transfer_time(0, 131072, stripe=65536, servers=8, beta=1e-8)
    0.00065536
    """
    return largest_subrequest(offset, length, stripe, servers) * beta


def hdd_time(
    offset: int, length: int, stripe: int, servers: int, nearest: float, farthest: float, beta: float
) -> float:
    """T_D = T_s + T_t, the seconds of a request on the HDD servers (Eq. 1).

    >>> hdd_time(0, 131072, stripe=65536, servers=8, nearest=0.004, farthest=0.010, beta=1e-8)
    0.00865536
    """
    involved = servers_involved(offset, length, stripe, servers)
    transfer = hdd_transfer_time(offset, length, stripe, servers, beta)
    return slowest_startup(involved, nearest, farthest) + transfer


def ssd_time(offset: int, length: int, stripe: int, servers: int, beta: float) -> float:
    """T_C = S_n*beta_C, the seconds of a request on the SSD servers, which need no start-up (Eq. 7).

    >>> ssd_time(0, 131072, stripe=65536, servers=1, beta=1e-9)
    0.000131072
    """
    return largest_subrequest(offset, length, stripe, servers) * beta


def benefit(on_hdd: float, on_ssd: float) -> float:
    """B = T_D - T_C in seconds: a request is critical if B is positive (Eq. 8).

    >>> benefit(on_hdd=0.5, on_ssd=0.125)
    0.375
    """
    return on_hdd - on_ssd
