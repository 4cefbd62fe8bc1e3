"""The PDLA cost model (Tables 1 to 5), one function per term, for one *round*: p processes with a request each.

The symbols of the papers: p processes, m of them per client node, s bytes of a request, e seconds
of a connection, v seconds per byte of the network, a seconds of device start-up, b seconds per byte
of the device, n servers in g groups of w = n/g; k = ceil(p/g) is the number of requests of a round
that reach the busiest server.

    T_2D(g) = max(m*w, k)*e + max(m, k/w)*s*v + k*a + (k/w)*s*b

g = 1 is 1-DH and g = n is 1-DV, so no other formula is needed. An SSD server has its own a and b
for reads (a_sr, b_sr) and writes (a_sw, b_sw), with the same formula. As printed in the paper, the
2-D row fails both limits: Table 2 has m*ceil(p/n)*e instead of m*ceil(n/g)*e, max(m, ceil(p/g))*s*v
instead of max(m, k/w)*s*v, and another device term (also in Table 4, there without its divisor)
instead of (k/w)*s*b.
"""

from __future__ import annotations

from pdla.model import Cost


def busiest(processes: int, groups: int) -> int:
    """Requests of a round that reach one server: k = ceil(p/g).

    >>> busiest(8, 1), busiest(8, 3), busiest(8, 8)
    (8, 3, 1)
    """
    return -(-processes // groups)


def connect_time(per_node: int, k: int, w: int, e: float) -> float:
    """Seconds to connect: max(m*w, k)*e. A node opens m*w connections, a server accepts k (PDLA Table 2, corrected).

    >>> connect_time(per_node=2, k=4, w=4, e=1e-4)
    0.0008
    """
    return max(per_node * w, k) * e


def network_time(per_node: int, k: int, w: int, s: int, v: float) -> float:
    """Seconds on the network: max(m, k/w)*s*v, the busier of a node's and a server's link (PDLA Table 2, corrected).

    >>> network_time(per_node=1, k=8, w=2, s=1000, v=1e-6)
    0.004
    """
    return max(per_node, k / w) * s * v


def startup_time(k: int, a: float) -> float:
    """Seconds of device start-up: k*a (PDLA Table 2).

    >>> startup_time(k=4, a=0.25)
    1.0
    """
    return k * a


def transfer_time(k: int, w: int, s: int, b: float) -> float:
    """Seconds of device transfer: (k/w)*s*b (PDLA Tables 2 and 4, corrected).

    >>> transfer_time(k=4, w=2, s=1000, b=1e-6)
    0.002
    """
    return k / w * s * b


def round_time(per_node: int, k: int, w: int, s: int, e: float, v: float, a: float, b: float) -> Cost:
    """One round in which the busiest server serves ``k`` requests, each spread over ``w`` servers.

    >>> round_time(per_node=1, k=2, w=2, s=1000, e=0.5, v=1e-3, a=0.25, b=1e-3)
    Cost(connect=1.0, network=1.0, startup=0.5, transfer=1.0)
    """
    return Cost(
        connect=connect_time(per_node, k, w, e),
        network=network_time(per_node, k, w, s, v),
        startup=startup_time(k, a),
        transfer=transfer_time(k, w, s, b),
    )


def layout_time(
    processes: int, per_node: int, servers: int, groups: int, s: int, e: float, v: float, a: float, b: float
) -> Cost:
    """T_2D(g): one round of ``processes`` requests of ``s`` bytes on ``servers`` in ``groups`` (groups divide servers).

    >>> layout_time(8, 1, 4, 1, 1000, e=0.5, v=1e-3, a=0.25, b=1e-3)  # 1-DH
    Cost(connect=4.0, network=2.0, startup=2.0, transfer=2.0)
    >>> layout_time(8, 1, 4, 4, 1000, e=0.5, v=1e-3, a=0.25, b=1e-3)  # 1-DV
    Cost(connect=1.0, network=2.0, startup=0.5, transfer=2.0)
    >>> layout_time(8, 1, 4, 2, 1000, e=0.5, v=1e-3, a=0.0625, b=1e-4)  # 2-D on SSDs
    Cost(connect=2.0, network=2.0, startup=0.25, transfer=0.2)
    """
    return round_time(per_node, busiest(processes, groups), servers // groups, s, e, v, a, b)


def hybrid_time(
    processes: int, per_node: int, servers: tuple[int, int], strips: tuple[float, float], e: float, v: float,
    a: tuple[float, float], b: tuple[float, float],
) -> Cost:  # fmt: skip
    """T_HS: a round of ``processes`` requests in 1-DH over HDD and SSD servers together (PDLA Table 5, corrected).

    Every request puts ``strips`` = (s_h, s_s) bytes on each of the ``servers`` = (n_h, n_s), so that it has
    s = n_h*s_h + n_s*s_s. Start-up ``a`` and seconds per byte ``b`` are of (HDD, SSD) too; the slower kind counts:

        T_HS = max(p, m*(n_h+n_s))*e + max(m*s, p*s_h, p*s_s)*v + p*max(a_h + s_h*b_h, a_s + s_s*b_s)

    Table 5 prints ``max(ms, ps)*s*v``, which are bytes squared.

    >>> hybrid_time(8, 1, (4, 2), (100, 300), e=0.5, v=1e-3, a=(0.25, 0.0), b=(1e-3, 1e-3))
    Cost(connect=4.0, network=2.4, startup=2.0, transfer=0.8)
    """
    requested = sum(count * strip for count, strip in zip(servers, strips, strict=True))
    slower = max((0, 1), key=lambda kind: a[kind] + strips[kind] * b[kind])
    return Cost(
        connect=connect_time(per_node, processes, sum(servers), e),
        network=max(per_node * requested, processes * max(strips)) * v,
        startup=startup_time(processes, a[slower]),
        transfer=processes * strips[slower] * b[slower],
    )
