"""Every way to serve an access pattern, with its predicted cost (docs/model.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pdla.layouts.contiguity import Pattern, count, in_file_order, outermost, runs, windows
from pdla.layouts.cost import in_rounds, in_turns, side_by_side
from pdla.layouts.devices import seconds_per_byte
from pdla.layouts.hybrid import Round, best_strips, whole_strips
from pdla.layouts.seen import offsets, sectioned, striped
from pdla.layouts.write_cost import PAGE, flushed, pages_read, read_by_nodes, write_back_cost
from pdla.model import Candidate, Cluster, Cost, Layout, Pool, Signature
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
                found.append(Candidate(pool.name, layout, _replica(pattern, cluster, layout)))
    found += [candidate for pair in hybrids for candidate in _hybrid(pattern, size, cluster, pair)]
    if pattern.op == "read":
        return tuple(found)
    return tuple(
        replace(one, cost=write_back_cost(one.cost, pattern, size, cluster, one.layout, waited)) if one.layout else one
        for one in found
    )


class Costed:
    """The candidates of signatures on a cluster. Signatures of one shape, say of a file each step, are costed once.

    A shape is a pattern wherever it begins in a cycle of the original's strips.
    """

    def __init__(self, cluster: Cluster, pools: Iterable[Pool], hybrids: Iterable[tuple[Pool, Pool]]) -> None:
        self.cluster, self._spaces = cluster, (tuple(pools), tuple(hybrids))
        self._cycle = math.lcm(cluster.home_strip * cluster.home_servers, PAGE)
        self._known: dict[object, tuple[Candidate, ...]] = {}

    def candidates(self, signature: Signature, size: int, waited: float | None = None) -> tuple[Candidate, ...]:
        """``candidates`` of a signature."""
        one = Pattern.of(signature)
        nest = one.start % self._cycle, one.ranks, one.calls, one.pieces, one.length
        shape = one.op, nest, signature.collective, size, waited
        if shape not in self._known:
            self._known[shape] = candidates(signature, size, self.cluster, *self._spaces, waited)
        return self._known[shape]


def replica_layout(pattern: Pattern, size: int, pool: Pool, groups: int) -> Layout:
    """One section per rank. The strip spreads one call over a group, in whole grains of the pool.

    A smaller section is spread evenly: otherwise it would be padded to a whole cycle of strips.
    """
    width, section = pool.servers // groups, _section(pattern, size)
    grains = _ceil(_ceil(pattern.call_bytes, width), pool.grain) * pool.grain
    return Layout(pool.name, pool.servers, groups, (min(grains, _ceil(section, width)),) * width, section)


def _independent(pattern: Pattern, cluster: Cluster) -> Cost:
    """The original, in 1-DH on the home servers, with all ranks at once.

    A call of several pieces is served a buffer at a time, with the holes in it: ROMIO's data sieving,
    which is on unless a hint switches it off (``sieve_read`` and ``sieve_write`` of 0). A call that
    writes pieces first reads the range, under a lock, so that ranks whose ranges overlap take turns.
    """
    buffer = cluster.sieve_read if pattern.op == "read" else cluster.sieve_write
    per_node, sieved = cluster.per_node(pattern.processes), bool(pattern.pieces and buffer)
    rounds, length, step = (*pattern.calls, *pattern.pieces), pattern.length, 0
    if sieved:
        outer, _, length = windows(in_file_order(pattern.pieces), pattern.length, buffer)
        rounds = (*pattern.calls, *outer)
        if outer:
            length, step = min(buffer, pattern.call_span), outer[-1].stride
    if cluster.client_cache and pattern.op == "read":
        return read_by_nodes(cluster, pattern, rounds, length)
    if cluster.client_cache:
        before = read_by_nodes if sieved else pages_read
        return before(cluster, pattern, rounds, length) + flushed(cluster, pattern, rounds, length, per_node)
    seen = striped(cluster, pattern.op, pattern.start, rounds, pattern.ranks, length, per_node)
    if pattern.op == "read" or not sieved:
        return side_by_side(seen, cluster)
    first = striped(cluster, "read", pattern.start, rounds, pattern.ranks, length, per_node)
    near, free = 1, 1.0
    for stride, times in pattern.ranks:
        near *= min(times, _ceil(length, abs(stride))) if stride else times
        free += max(0, step - length) / abs(stride) if stride else 0.0
    apart = side_by_side(first, cluster) + side_by_side(seen, cluster)
    locked = in_turns(first, cluster, near, free) + in_turns(seen, cluster, near, free)
    return max(apart, locked, key=lambda cost: cost.total)


def _collective(pattern: Pattern, cluster: Cluster) -> Cost:
    """The original by two-phase collective buffering.

    An aggregator per node accesses its share of the range that all ranks' calls cover, a buffer at
    a time, from the first to the last byte that is wanted. Before they are written, holes in it are
    read. Every rank's bytes are shuffled over the node's link, but for those that stay on the node.
    All wait for one another after every step.
    """
    per_node, per_call = cluster.per_node(pattern.processes), (*pattern.ranks, *pattern.pieces)
    aggregators = _ceil(pattern.processes, per_node)
    first = pattern.start + sum(min(stride, 0) * (times - 1) for stride, times in per_call)
    span = pattern.length + sum(abs(stride) * (times - 1) for stride, times in per_call)
    together, run = runs(in_file_order(per_call), pattern.length)
    # A node's link has what leaves the node, and a processor moves what other ranks get.
    leaves = per_node * pattern.call_bytes * (1 - 1 / aggregators) * cluster.network_seconds_per_byte
    leaves += (pattern.processes - 1) * pattern.call_bytes / aggregators * cluster.exchange_seconds_per_byte
    domain = _ceil(span, aggregators)
    outer, inner, length = windows(together, run, min(cluster.collective_buffer, domain))
    if domain > cluster.collective_buffer:
        # Buffers begin at the same places in the shares of all aggregators. In a round some have nothing to do.
        begin = offsets(outer)
        place = np.concatenate((begin, begin + length - 1)) % domain // cluster.collective_buffer
        aggregators = max(1, len(begin) // len(set(place.tolist())))
    side, rest = outermost(outer, aggregators)
    rounds = (*pattern.calls, *rest)
    cost = in_rounds(striped(cluster, pattern.op, first, rounds, side, length, 1, drift=False), cluster)
    if pattern.op == "write" and run * count(inner) < length:
        cost += in_rounds(striped(cluster, "read", first, rounds, side, length, 1, drift=False), cluster)
    return cost + Cost(0.0, pattern.rounds * leaves, 0.0, 0.0)


def _replica(pattern: Pattern, cluster: Cluster, layout: Layout) -> Cost:
    """A replica: every call is one request, and the calls of a rank follow one another in its section.

    Of disks and SSDs together, the kind that takes longer counts.
    """
    first, found = 0, []
    pool = cluster.pool(layout.pool)
    for part in pool.parts or (pool,):
        found.append(side_by_side(sectioned(cluster, part, pattern, layout, first), cluster))
        first += part.servers
    return max(found, key=lambda cost: cost.total)


def _hybrid(pattern: Pattern, size: int, cluster: Cluster, pair: tuple[Pool, Pool]) -> list[Candidate]:
    """A replica in 1-DH over disks and SSDs together, if the shortest round uses both kinds.

    It is refused if its strips are less than a grain: a call would then reach only some of the
    servers.
    """
    section, request = _section(pattern, size), pattern.call_bytes
    servers = pair[0].servers, pair[1].servers
    name, grains = f"{pair[0].name}+{pair[1].name}", (pair[0].grain, pair[1].grain)
    b = seconds_per_byte(pair[0], pattern.op), seconds_per_byte(pair[1], pattern.op)

    def layout_of(strips: tuple[int, int]) -> Layout:
        each = (strips[0],) * servers[0] + (strips[1],) * servers[1]
        return Layout(name, sum(servers), 1, each, section)

    def round_of(strips: tuple[float, float]) -> Round:
        """The round, with the start-ups of servers that hold this much of every call."""
        layout = layout_of((max(int(strips[0]), 1), max(int(strips[1]), 1)))
        seen = [
            sectioned(cluster, pool, pattern, layout, first) for pool, first in zip(pair, (0, servers[0]), strict=True)
        ]
        a = tuple(one.startup / one.parts for one in seen)
        return Round(
            pattern.processes, cluster.per_node(pattern.processes), request, servers, cluster.connect_seconds,
            cluster.network_seconds_per_byte, (a[0], a[1]), b,
        )  # fmt: skip

    even = request / sum(servers)
    ideal = best_strips(round_of((even, even)))
    if min(ideal):
        # Start-up depends on the strips that it determines: solve once more, with those of the
        # first answer.
        ideal = best_strips(round_of(ideal))
    if not min(ideal):
        return []
    layouts = [layout_of(strips) for strips in whole_strips(ideal, request, servers, grains)]
    layouts = [layout for layout in layouts if section >= sum(layout.strips)]
    if layouts:
        costs = [_replica(pattern, cluster, layout) for layout in layouts]
        cost, layout = min(zip(costs, layouts, strict=True), key=lambda one: one[0].total)
        return [Candidate(name, layout, cost)]
    strips = max(int(ideal[0]), 1), max(int(ideal[1]), 1)
    why = f"strips of {format_bytes(strips[0])} and {format_bytes(strips[1])} are less than the grain of the pools"
    return [Candidate(name, layout_of(strips), _replica(pattern, cluster, layout_of(strips)), why)]


def _section(pattern: Pattern, size: int) -> int:
    """Bytes of a replica that belong to one rank, or to all ranks that access the same bytes."""
    return _ceil(size, pattern.sections)


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
