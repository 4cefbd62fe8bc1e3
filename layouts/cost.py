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

That is a round in which the four steps of all requests follow one another. Servers do not work so: while
a device serves one request, the next one connects. The terms of a whole pattern are below, one function
an equation; they read what the servers see of it (``seen.Seen``). They compute with arrays, an element for
each way to serve a pattern: a plan has tens of thousands of ways. ``pending.py`` collects them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdla.model import Cluster, Cost

if TYPE_CHECKING:
    from pdla.layouts.seen import Seen


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


Numbers = Any
"""An array with an element for each way, or the number of a single one."""

GATHERED, TURNS = 0.28, 0.7
"""Fitted to queues in a ring: how long clients that begin on the same servers need to spread out (``gathered``)."""


class Steps(NamedTuple):
    """Seconds of the steps of requests: their connections, the network, and the device."""

    connect: Numbers
    network: Numbers
    device: Numbers

    @property
    def seconds(self) -> Numbers:
        """All steps, one after the other."""
        return self.connect + self.network + self.device


class Costs(NamedTuple):
    """As ``Cost``, for many ways."""

    connect: Numbers
    network: Numbers
    startup: Numbers
    transfer: Numbers

    @property
    def total(self) -> Numbers:
        """The sum of all parts."""
        return self.connect + self.network + self.startup + self.transfer

    def each(self) -> list[Cost]:
        """The cost of each way."""
        return [Cost(*one) for one in zip(*(part.tolist() for part in self), strict=True)]


def slower(one: Costs, other: Costs) -> Costs:
    """For each way the one that takes longer; ``one`` if both take the same time."""
    return Costs(*np.where(one.total >= other.total, one, other))


def ratio(one: Numbers, other: Numbers) -> Numbers:
    """one/other, and 0 where ``other`` is 0."""
    return np.divide(one, other, out=np.zeros(np.shape(other)), where=other != 0)


def alone(seen: Seen, cluster: Cluster) -> Steps:
    """A request for which no other one has to wait: max(w*e, e + h), s*v and a + (s/w)*b, the means of the pattern.

    Its servers take ``handling`` h seconds each for it, side by side. If memory keeps what is written, it does not
    wait for the device.
    """
    e = cluster.connect_seconds
    served = np.where(seen.waits, (seen.startup + seen.transfer) / seen.parts, 0.0)
    return Steps(np.maximum(seen.width * e, e + seen.handling), seen.size * cluster.network_seconds_per_byte, served)


def busy(seen: Seen, cluster: Cluster) -> Steps:
    """How long the busiest node or server connects, has its link in use, and its device, in all rounds R.

    Connections: max(m*w*R*e, parts*(e + h)). Bytes: max(m*s*R, bytes)*v. The device: ``device_time``.
    """
    e = cluster.connect_seconds
    return Steps(
        np.maximum(seen.per_node * seen.width * seen.rounds * e, seen.parts * (e + seen.handling)),
        np.maximum(seen.per_node * seen.size * seen.rounds, seen.bytes) * cluster.network_seconds_per_byte,
        device_time(seen),
    )


def device_time(seen: Seen) -> Numbers:
    """A device with c channels is busy for max(transfer, (startup + transfer)/c).

    Its start-ups go side by side, as many as there are parts at a time; its transfers take turns.
    """
    device = seen.startup + seen.transfer
    several = np.maximum(seen.transfer, device / np.minimum(seen.channels, seen.together))
    return np.where(seen.channels == 1, device, several)


def of_a_part(seen: Seen, cluster: Cluster) -> Steps:
    """How long the busiest server has its acceptor, its link and its device in use for a part of a request."""
    return Steps(
        cluster.connect_seconds + seen.handling,
        seen.bytes / seen.parts * cluster.network_seconds_per_byte,
        device_time(seen) / seen.parts,
    )


def pipeline(one: Steps, all_: Steps) -> Steps:
    """A step that is busy all the time, once the first request has come to it and until the last one has left.

    The longest of all_i + the other steps of one request, over the steps i.

    >>> [seconds.tolist() for seconds in pipeline(Steps(1.0, 2.0, 3.0), Steps(10.0, 20.0, 15.0))]
    [1.0, 20.0, 3.0]
    """
    return Steps(*np.where(_longest(np.subtract(all_, one)), all_, one))


def _longest(steps: Numbers) -> Numbers:
    """Which of the steps of each way is the longest one, the first one of equals."""
    return np.moveaxis(np.arange(len(steps)) == np.argmax(steps, axis=0)[..., None], -1, 0)


def side_by_side(seen: Seen, cluster: Cluster) -> Costs:
    """Clients that do not wait for one another: those that are ``spread``, and before that ``gathered``.

    If they ``follow`` one another, they stay in step: R connections and requests, and the device of each
    round. Two clients that meet on a device either stay together, so that each of their requests costs a
    start-up, or part, so that a start-up is for all their ``turns``: the geometric mean.
    """
    steps = spread(seen, cluster)
    seconds = steps.seconds
    seconds = seconds + gathered(seen, cluster, seconds)
    meet = (seen.follows == 0) & (seen.clients == 2) & (seen.turns > 1) & (seen.places > 1)
    if meet.any():
        parted = spread(seen._replace(startup=seen.startup / seen.turns), cluster)
        seconds = np.where(meet, np.sqrt(seconds * parted.seconds), seconds)
    if seen.follows.any():
        one, longer = alone(seen, cluster), ratio(seen.in_step, seen.startup + seen.transfer)
        stepping = Steps(one.connect * seen.rounds, one.network * seen.rounds, device_time(seen) * longer)
        in_step = (seen.follows != 0) & (stepping.seconds > seconds)
        steps, seconds = Steps(*np.where(in_step, stepping, steps)), np.where(in_step, stepping.seconds, seconds)
    return _costs(seen, steps, seconds)


def spread(seen: Seen, cluster: Cluster) -> Steps:
    """Every client waits only for its own requests, R*t, or one step is busy all the time (``pipeline``).

    In the first round the last client waits for the others that come to the same server.
    """
    one, part = alone(seen, cluster), of_a_part(seen, cluster)
    waits = seen.together * np.array(part) - one
    chain = Steps(*(seen.rounds * np.array(one) + np.where(_longest(waits), np.maximum(waits, 0.0), 0.0)))
    piped = pipeline(one, busy(seen, cluster))
    return Steps(*np.where(chain.seconds >= piped.seconds, chain, piped))


def gathered(seen: Seen, cluster: Cluster, seconds: Numbers) -> Numbers:
    """Seconds until clients that begin on the same servers have spread over all ``places``, in addition to ``spread``.

    A server is left only after some ``turns``, and others queue there meanwhile. One that is served first
    gets ahead by one request at each server. With u seconds of the server's busiest step for a part, this is

        0.28 * log2(places) * turns^0.7 * together*turns*u

    (fitted to queues in a ring), and never more than in step: R*together*u in all.
    """
    first = seen.together * np.max(of_a_part(seen, cluster), axis=0)
    visits = GATHERED * np.log2(seen.places) * seen.turns**TURNS * seen.turns
    longer = np.maximum(np.minimum(visits * first, seen.rounds * first - seconds), 0.0)
    return np.where((seen.turns <= 1) | (seen.places <= 1), 0.0, longer)


def in_rounds(seen: Seen, cluster: Cluster) -> Costs:
    """Clients that wait for one another after each round: the sum of the rounds, each a ``pipeline``.

    Connections of a round: max(m*w*e, k*(e + h)); bytes: max(m*s, those of k parts)*v. The device is the
    busiest one of that round.
    """
    one, part = alone(seen, cluster), of_a_part(seen, cluster)
    longer = ratio(seen.in_step, seen.startup + seen.transfer) / seen.rounds
    round_ = Steps(
        np.maximum(seen.per_node * seen.width * cluster.connect_seconds, seen.together * part.connect),
        np.maximum(seen.per_node * one.network, seen.together * part.network),
        device_time(seen) * longer,
    )
    found = pipeline(one, round_)
    return _costs(seen, found, found.seconds, seen.rounds)


def in_turns(seen: Seen, cluster: Cluster, clients: Numbers, free: Numbers) -> Costs:
    """``clients`` lock the same bytes, and ``free`` of them can be at work side by side: R * clients/free * t.

    It is at least (R + clients - 1) * t: one after the other goes ahead.
    """
    one = alone(seen, cluster)
    return _costs(seen, one, one.seconds, np.maximum(seen.rounds * clients / free, seen.rounds + clients - 1))


def _costs(seen: Seen, steps: Steps, seconds: Numbers, times: Numbers = 1.0) -> Costs:
    """So many seconds, ``times`` as often, in the proportions of ``steps``. Of a device, the rest is start-up."""
    scale = ratio(times * seconds, steps.seconds)
    transfer = ratio(seen.transfer, device_time(seen))
    device = scale * steps.device
    return Costs(scale * steps.connect, scale * steps.network, device * (1 - transfer), device * transfer)
