"""Every way to serve an access pattern, with its predicted cost (docs/model.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pdla.layouts.contiguity import Pattern, count, cut, distinct, in_file_order, runs, total_startup
from pdla.layouts.cost import busiest, round_time
from pdla.layouts.devices import seconds_per_byte
from pdla.layouts.hybrid import Round, best_strips, whole_strips
from pdla.layouts.original_cost import served
from pdla.layouts.write_cost import flushed, pages_read, section_startup, write_back_cost
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, Op, Pool, Signature
from pdla.units import format_bytes

PROGRAM_ONLY = "only the program can make its calls collective"


def candidates(
    signature: Signature,
    size: int,
    cluster: Cluster,
    pools: Iterable[Pool],
    hybrids: Iterable[tuple[Pool, Pool]] = (),
    waited: float | None = None,
) -> tuple[Candidate, ...]:
    """The costs of ``signature`` from the original (always first) and from a replica of ``size`` bytes in every layout.

    A replica is in one of ``pools``, or in 1-DH over the disks and SSDs of one of ``hybrids``
    together. The original of a collective pattern is accessed by two-phase collective buffering.
    For an independent pattern of several ranks this is a candidate of its own, "collective", which
    informs the reader of the plan. The cost of a write replica includes its write-back
    (write_cost.py): before the file is closed or, with ``waited``, later.
    """
    pattern = Pattern.of(signature)
    found = []
    if signature.collective:
        found.append(Candidate("original", None, _collective(pattern, cluster)))
    else:
        found.append(Candidate("original", None, _independent(pattern, cluster)))
        if pattern.processes > 1:
            found.append(Candidate("collective", None, _collective(pattern, cluster), PROGRAM_ONLY))
    for pool in pools:
        for groups in range(1, pool.servers + 1):
            if pool.servers % groups == 0:
                layout = replica_layout(pattern, size, pool, groups)
                found.append(Candidate(pool.name, layout, _replica(pattern, cluster, pool, layout)))
    found += [candidate for pair in hybrids for candidate in _hybrid(pattern, size, cluster, pair)]
    if pattern.op == "read":
        return tuple(found)
    return tuple(
        replace(one, cost=write_back_cost(one.cost, pattern, size, cluster, one.layout, waited)) if one.layout else one
        for one in found
    )


def replica_layout(pattern: Pattern, size: int, pool: Pool, groups: int) -> Layout:
    """One section per rank. The strip spreads one call over a group, in whole grains of the pool.

    A smaller section is spread evenly: otherwise it would be padded to a whole cycle of strips.
    """
    width, section = pool.servers // groups, _section(pattern, size)
    grains = _ceil(_ceil(pattern.call_bytes, width), pool.grain) * pool.grain
    return Layout(pool.name, pool.servers, groups, (min(grains, _ceil(section, width)),) * width, section)


def _independent(pattern: Pattern, cluster: Cluster) -> Cost:
    """The original, in 1-DH on the home servers, with all ranks at once.

    A call of several pieces is one request from its first to its last byte: ROMIO's data sieving,
    which is on unless a hint switches it off (``sieve_read`` and ``sieve_write`` of 0). A call that
    writes pieces first reads this range.
    """
    sieved = cluster.sieve_read if pattern.op == "read" else cluster.sieve_write
    if pattern.pieces and not sieved:
        pattern = replace(pattern, calls=(*pattern.calls, *pattern.pieces), pieces=())
    if pattern.op == "read" or pattern.pieces:
        cost = _in_step(pattern, cluster, pattern.op)
        return cost + _in_step(pattern, cluster, "read") if pattern.op == "write" else cost
    if not cluster.client_cache:
        return _in_step(pattern, cluster, "write")
    pages = pages_read(cluster, pattern.start, (*pattern.calls, *pattern.ranks), pattern.length)
    return pages + flushed(pattern, cluster, cluster.per_node(pattern.processes))


def _in_step(pattern: Pattern, cluster: Cluster, op: Op) -> Cost:
    """Rounds one after the other, each as long as its busiest server needs."""
    pool, length = cluster.pool(cluster.home_pool), pattern.call_span
    width = min(cluster.home_servers, _ceil(length, cluster.home_strip))
    k = _busiest_home_server(pattern, width, cluster)
    one = served(cluster, op, pattern.start, (*pattern.calls, *pattern.ranks), length, pattern.processes)
    startup = k * pattern.rounds * one.startup / one.requests
    return _all_rounds(pattern, cluster, pool, op, k, width, length, startup)


def _collective(pattern: Pattern, cluster: Cluster) -> Cost:
    """The original by two-phase collective buffering.

    An aggregator per node accesses its share of the range that all ranks' calls cover, a buffer at
    a time and in the order of the file. Every rank's bytes, s*v each, are shuffled over the node's
    link.
    """
    pool, servers, buffer = cluster.pool(cluster.home_pool), cluster.home_servers, cluster.collective_buffer
    per_node, per_call = cluster.per_node(pattern.processes), (*pattern.ranks, *pattern.pieces)
    aggregators = _ceil(pattern.processes, per_node)
    together = in_file_order(per_call)
    share = _ceil(pattern.length * count(together), aggregators)
    first = pattern.start + sum(min(stride, 0) * (times - 1) for stride, times in per_call)
    apart, run = cut(*runs(together, pattern.length), min(buffer, share))
    order = (*pattern.calls, *apart)
    one = served(cluster, pattern.op, first, order, run, aggregators)
    # Runs that are on few servers leave the others free for other aggregators, but only for as many
    # as there are.
    abreast = min(servers / min(servers, _ceil(run, cluster.home_strip)), aggregators)
    startup = count(order) / abreast * one.startup / one.requests

    b, v = seconds_per_byte(pool, pattern.op), cluster.network_seconds_per_byte
    accessed = Cost(0.0, 0.0, 0.0, 0.0)
    for times, request in ((share // buffer, buffer), (1, share % buffer)):
        if times and request:
            width = min(servers, _ceil(request, cluster.home_strip))
            k = _ceil(aggregators * width, servers)
            spread = round_time(1, k, width, request, cluster.connect_seconds, v, 0.0, b)
            accessed += Cost(times * spread.connect, times * spread.network, 0.0, times * spread.transfer)
    calls, shuffle = pattern.rounds, per_node * pattern.call_bytes * v
    return Cost(calls * accessed.connect, calls * (accessed.network + shuffle), startup, calls * accessed.transfer)


def _replica(pattern: Pattern, cluster: Cluster, pool: Pool, layout: Layout) -> Cost:
    """A replica: every call is one request, and the calls of a rank follow one another in its section."""
    width, request = len(layout.strips), pattern.call_bytes
    order, k = _section_order(pattern, layout)
    here = busiest(pattern.sections, layout.groups)
    startup = _section_startup(pattern, cluster, pool, order, layout.section, here, width)
    spread = min(width, _ceil(request, layout.strips[0]))
    return _all_rounds(pattern, cluster, pool, pattern.op, k, spread, request, startup)


def _hybrid(pattern: Pattern, size: int, cluster: Cluster, pair: tuple[Pool, Pool]) -> list[Candidate]:
    """A replica in 1-DH over disks and SSDs together, if the shortest round uses both kinds.

    It is refused if its strips are less than a grain: a call would then reach only some of the
    servers.
    """
    section, request, rounds = _section(pattern, size), pattern.call_bytes, pattern.rounds
    servers = pair[0].servers, pair[1].servers
    name, grains = f"{pair[0].name}+{pair[1].name}", (pair[0].grain, pair[1].grain)

    order, k = _section_order(pattern, Layout(name, sum(servers), 1, (1,) * sum(servers), section))

    def layout_of(strips: tuple[int, int]) -> Layout:
        each = (strips[0],) * servers[0] + (strips[1],) * servers[1]
        return Layout(name, sum(servers), 1, each, section)

    def round_of(strips: tuple[float, float]) -> Round:
        """The round, with the start-ups of servers that hold this much of every call."""
        a = tuple(
            _section_startup(pattern, cluster, pool, order, section, pattern.sections, request / max(strip, 1))
            / (rounds * k)
            for pool, strip in zip(pair, strips, strict=True)
        )
        b = tuple(seconds_per_byte(pool, pattern.op) for pool in pair)
        return Round(
            k, cluster.per_node(pattern.processes), request, servers, cluster.connect_seconds,
            cluster.network_seconds_per_byte, (a[0], a[1]), (b[0], b[1]),
        )  # fmt: skip

    def cost_of(strips: tuple[int, int]) -> Cost:
        one = round_of(strips).time(strips)
        return Cost(rounds * one.connect, rounds * one.network, rounds * one.startup, rounds * one.transfer)

    even = request / sum(servers)
    ideal = best_strips(round_of((even, even)))
    if min(ideal):
        # Start-up depends on the strips that it determines: solve once more, with those of the
        # first answer.
        ideal = best_strips(round_of(ideal))
    if not min(ideal):
        return []
    found = [(cost_of(strips), strips) for strips in whole_strips(ideal, request, servers, grains)]
    if found and section >= sum(layout_of(found[0][1]).strips):
        cost, strips = min(found, key=lambda one: one[0].total)
        return [Candidate(name, layout_of(strips), cost)]
    strips = max(int(ideal[0]), 1), max(int(ideal[1]), 1)
    why = f"strips of {format_bytes(strips[0])} and {format_bytes(strips[1])} are less than the grain of the pools"
    return [Candidate(name, layout_of(strips), cost_of(strips), why)]


def _all_rounds(
    pattern: Pattern, cluster: Cluster, pool: Pool, op: Op, k: int, width: int, request: int, startup: float
) -> Cost:
    """A round for every call of a rank; all are alike except for their start-up, whose sum is ``startup``."""
    e, v, b = cluster.connect_seconds, cluster.network_seconds_per_byte, seconds_per_byte(pool, op)
    one, rounds = round_time(cluster.per_node(pattern.processes), k, width, request, e, v, 0.0, b), pattern.rounds
    return Cost(rounds * one.connect, rounds * one.network, startup, rounds * one.transfer)


def _section_startup(
    pattern: Pattern, cluster: Cluster, pool: Pool, order: tuple[Loop, ...], section: int, here: int, spread: float
) -> float:
    """Seconds of start-up of the busiest server of a replica, which has ``here`` of its sections.

    A page cache reads ahead in a section, which is read in order: as many bytes at once from each
    server.
    """
    if pattern.op == "write" and pool.device.memory:
        return section_startup(pattern, pool, section, here, spread)
    ahead = min(section, int(cluster.client_read_ahead * spread)) if cluster.client_cache else 0
    if pattern.op == "read" and ahead > pattern.call_bytes and distinct(pattern.calls) == pattern.calls:
        windows = (Loop(ahead, _ceil(section, ahead)), *order[len(pattern.calls) :])
        return total_startup(pool, pattern.op, windows, ahead, spread)
    return total_startup(pool, pattern.op, order, pattern.call_bytes, spread)


def _section(pattern: Pattern, size: int) -> int:
    """Bytes of a replica that belong to one rank, or to all ranks that access the same bytes."""
    return _ceil(size, pattern.sections)


def _section_order(pattern: Pattern, layout: Layout) -> tuple[tuple[Loop, ...], int]:
    """The requests to the busiest server of a replica: the nest over its sections, and its requests of a round."""
    sections = pattern.sections
    here, sharing = busiest(sections, layout.groups), pattern.processes // sections
    return (*pattern.packed_calls, Loop(layout.section, here), Loop(0, sharing)), here * sharing


def _busiest_home_server(pattern: Pattern, width: int, cluster: Cluster) -> int:
    """How many requests of one round reach the busiest home server, if each is on ``width`` successive servers."""
    offsets = np.array([pattern.start], dtype=np.int64)
    for stride, times in pattern.ranks:
        offsets = (offsets[:, None] + np.arange(times, dtype=np.int64) * stride).ravel()
    servers = cluster.home_servers
    first = np.bincount(offsets // cluster.home_strip % servers, minlength=servers)
    begun = np.cumsum([0, *first[servers - width :], *first])
    return int((begun[width + 1 :] - begun[1 : servers + 1]).max())


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
