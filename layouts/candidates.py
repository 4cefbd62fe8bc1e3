"""Every way to serve an access pattern, with its predicted cost (docs/model.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pdla.layouts.contiguity import Pattern, count, in_file_order, outermost, runs, windows
from pdla.layouts.cost import Costs, side_by_side, slower
from pdla.layouts.devices import seconds_per_byte
from pdla.layouts.hybrid import Round, best_strips, whole_strips
from pdla.layouts.pending import Pending, computed
from pdla.layouts.seen import Seen, at_once, offsets, requests, sectioned, striped
from pdla.layouts.write_cost import PAGE, flushed, keeps_writes, pages_read, read_by_nodes, write_back_cost
from pdla.model import Candidate, Cluster, Cost, Layout, Op, Pool, Signature
from pdla.units import format_bytes

PROGRAM_ONLY = "only the program can make its calls collective"
GRAINS = 16
"""A strip of so many grains is within 3 % of the best one."""


class Asked(NamedTuple):
    """A signature, and the bytes of its replica.

    ``waited``: the share of a write-back for which the program waits later, if not before the file is closed.
    """

    signature: Signature
    size: int
    waited: float | None = None


class Shape(NamedTuple):
    """What costs depend on: a pattern that begins in the first cycle of the original's strips."""

    pattern: Pattern
    collective: bool
    size: int
    waited: float | None


Way = tuple[Pattern, Layout]
"""A pattern, and the layout of its replica."""


def candidates(
    signature: Signature,
    size: int,
    cluster: Cluster,
    pools: Iterable[Pool],
    hybrids: Iterable[tuple[Pool, Pool]] = (),
    waited: float | None = None,
) -> tuple[Candidate, ...]:
    """``Costed.candidates`` of a single signature."""
    return Costed(cluster, pools, hybrids).candidates([Asked(signature, size, waited)])[0]


class Costed:
    """The candidates of signatures on a cluster. Signatures of one shape, say of a file each step, are costed once.

    A replica is in one of ``pools``, or in 1-DH over the disks and SSDs of one of ``hybrids``
    together.
    """

    def __init__(self, cluster: Cluster, pools: Iterable[Pool], hybrids: Iterable[tuple[Pool, Pool]] = ()) -> None:
        self.cluster, self._pools, self._hybrids = cluster, tuple(pools), tuple(hybrids)
        self._cycle = math.lcm(cluster.home_strip * cluster.home_servers, PAGE)
        self._known: dict[Shape, tuple[Candidate, ...]] = {}

    def candidates(self, asked: Sequence[Asked]) -> list[tuple[Candidate, ...]]:
        """For each signature its costs from the original (always first) and from a replica in every layout.

        The original of a collective pattern is accessed by two-phase collective buffering. For an
        independent pattern of several ranks this is a candidate of its own, "collective", which informs
        the reader of the plan. The cost of a write replica includes its write-back (write_cost.py):
        before the file is closed or, with ``waited``, later. Many signatures at once take least time.
        """
        shapes, new = [], dict[Shape, Pattern]()
        for signature, size, waited in asked:
            one = Pattern.of(signature)
            first = replace(one, start=one.start % self._cycle)
            shape = Shape(first, signature.collective, size, waited)
            shapes.append(shape)
            if shape not in self._known:
                new.setdefault(shape, one)
        for op in ("read", "write"):
            self._learn(op, {shape: pattern for shape, pattern in new.items() if shape.pattern.op == op})
        return [self._known[shape] for shape in shapes]

    def _learn(self, op: Op, patterns: Mapping[Shape, Pattern]) -> None:
        """Compute the candidates of shapes with this ``op``."""
        if not patterns:
            return
        cluster, sized = self.cluster, [(pattern, shape.size) for shape, pattern in patterns.items()]
        parts = [[_originals(pattern, shape.collective, cluster) for shape, pattern in patterns.items()]]
        parts += [_in_pool(cluster, pool, op, sized) for pool in self._pools]
        parts += [_in_pair(cluster, pair, op, sized) for pair in self._hybrids]
        made = [[one for part in mine for one in part] for mine in zip(*parts, strict=True)]
        if op == "write":
            made = [
                [_written_back(one, pattern, shape, cluster) for one in mine]
                for mine, (shape, pattern) in zip(made, patterns.items(), strict=True)
            ]
        costs = iter(computed([one.cost for mine in made for one in mine], cluster))
        for shape, mine in zip(patterns, made, strict=True):
            self._known[shape] = tuple(Candidate(one.space, one.layout, next(costs), one.refused) for one in mine)


class _Proposed(NamedTuple):
    """A candidate whose cost is still to be computed."""

    space: str
    layout: Layout | None
    cost: Pending
    refused: str = ""


def _originals(pattern: Pattern, collective: bool, cluster: Cluster) -> list[_Proposed]:
    if collective:
        return [_Proposed("original", None, _collective(pattern, cluster))]
    alone = _Proposed("original", None, _independent(pattern, cluster))
    if pattern.processes == 1:
        return [alone]
    return [alone, _Proposed("collective", None, _collective(pattern, cluster), PROGRAM_ONLY)]


def _in_pool(cluster: Cluster, pool: Pool, op: Op, sized: Sequence[tuple[Pattern, int]]) -> list[list[_Proposed]]:
    """Replicas of each pattern, of so many bytes, in every layout."""
    numbers = [groups for groups in range(1, pool.servers + 1) if pool.servers % groups == 0]
    ways = [(pattern, replica_layout(pattern, size, pool, groups)) for pattern, size in sized for groups in numbers]
    costs = _replicas(cluster, pool.parts or (pool,), op, ways).each()
    found = [_Proposed(pool.name, layout, Pending.fixed(cost)) for (_, layout), cost in zip(ways, costs, strict=True)]
    return [found[first : first + len(numbers)] for first in range(0, len(found), len(numbers))]


def _written_back(one: _Proposed, pattern: Pattern, shape: Shape, cluster: Cluster) -> _Proposed:
    if one.layout is None:
        return one
    return one._replace(cost=write_back_cost(one.cost, pattern, shape.size, cluster, one.layout, shape.waited))


def replica_layout(pattern: Pattern, size: int, pool: Pool, groups: int) -> Layout:
    """One section per rank. The strip spreads one call over a group, in whole grains of the pool.

    A smaller section is spread evenly: otherwise it would be padded to a whole cycle of strips.
    """
    width, section = pool.servers // groups, _section(pattern, size)
    grains = _ceil(_ceil(pattern.call_bytes, width), pool.grain) * pool.grain
    return Layout(pool.name, pool.servers, groups, (min(grains, _ceil(section, width)),) * width, section)


def _independent(pattern: Pattern, cluster: Cluster) -> Pending:
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
    if keeps_writes(cluster, pattern):
        before = read_by_nodes if sieved else pages_read
        return before(cluster, pattern, rounds, length) + flushed(cluster, pattern, rounds, length, per_node)
    seen = striped(cluster, pattern.op, pattern.start, rounds, pattern.ranks, length, per_node)
    if pattern.op == "read" or not sieved:
        return Pending.aside(seen)
    first = striped(cluster, "read", pattern.start, rounds, pattern.ranks, length, per_node)
    near, free = 1, 1.0
    for stride, times in pattern.ranks:
        near *= min(times, _ceil(length, abs(stride))) if stride else times
        free += max(0, step - length) / abs(stride) if stride else 0.0
    apart = Pending.aside(first) + Pending.aside(seen)
    locked = Pending.turns(first, near, free) + Pending.turns(seen, near, free)
    return Pending.slowest((apart, locked))


def _collective(pattern: Pattern, cluster: Cluster) -> Pending:
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
    cost = Pending.rounds(striped(cluster, pattern.op, first, rounds, side, length, 1, drift=False))
    if pattern.op == "write" and run * count(inner) < length:
        cost += Pending.rounds(striped(cluster, "read", first, rounds, side, length, 1, drift=False))
    return cost + Pending.fixed(Cost(0.0, pattern.rounds * leaves, 0.0, 0.0))


def _replicas(cluster: Cluster, kinds: Sequence[Pool], op: Op, ways: Sequence[Way]) -> Costs:
    """Replicas on these kinds of servers: the calls of a rank follow one another in its section.

    Of disks and SSDs together, the kind that takes longer counts.
    """
    first, *others = (side_by_side(seen, cluster) for seen in _on_each(cluster, kinds, op, ways))
    return reduce(slower, others, first)


def _on_each(cluster: Cluster, kinds: Sequence[Pool], op: Op, ways: Sequence[Way]) -> Iterator[Seen]:
    """What a server of each kind sees."""
    first = 0
    for kind in kinds:
        yield sectioned(cluster, kind, op, [requests(cluster, *way, first) for way in ways])
        first += kind.servers


def _in_pair(
    cluster: Cluster, pair: tuple[Pool, Pool], op: Op, sized: Sequence[tuple[Pattern, int]]
) -> list[list[_Proposed]]:
    """A replica of each pattern in 1-DH over disks and SSDs together, if the shortest round uses both kinds.

    It is refused if no strips of whole grains hold a call, or the calls that are read at once.
    """
    servers, grains = (pair[0].servers, pair[1].servers), (pair[0].grain, pair[1].grain)
    name = f"{pair[0].name}+{pair[1].name}"
    b = seconds_per_byte(pair[0], op), seconds_per_byte(pair[1], op)

    def layout_of(number: int, strips: tuple[float, float]) -> Layout:
        each = tuple(max(int(strip), 1) for strip, count in zip(strips, servers, strict=True) for _ in range(count))
        return Layout(name, sum(servers), 1, each, _section(*sized[number]))

    def ideal(numbers: Sequence[int], strips: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """The best strips of a call, with the start-ups of servers that hold this much of every call.

        They are those of what is asked for at once: a page cache that reads ahead joins calls.
        """
        ways = [(sized[number][0], layout_of(number, each)) for number, each in zip(numbers, strips, strict=True)]
        startups = [(seen.startup / seen.parts).tolist() for seen in _on_each(cluster, pair, op, ways)]
        found = []
        for (pattern, layout), a in zip(ways, zip(*startups, strict=True), strict=True):
            request = at_once(cluster, pattern, layout.section, sum(servers))
            disks, ssds = best_strips(
                Round(
                    pattern.processes, cluster.per_node(pattern.processes), request, servers, cluster.connect_seconds,
                    cluster.network_seconds_per_byte, a, b,
                )
            )  # fmt: skip
            found.append((disks * pattern.call_bytes / request, ssds * pattern.call_bytes / request))
        return found

    def most_calls(number: int, strips: tuple[float, float]) -> int:
        """Calls in a cycle of strips: so many that strips have ``GRAINS``, of those that are read at once.

        Ranks that read the same bytes go on in sections of others, too: tiles that overlap, in strips of three calls,
        were read at 0.4 of their rate in strips of one (ADR 58).
        """
        (pattern, size), section = sized[number], _section(*sized[number])
        if size < pattern.processes * pattern.rounds * pattern.call_bytes:
            return 1
        wanted = max(math.ceil(GRAINS * grain / strip) for strip, grain in zip(strips, grains, strict=True))
        return max(1, min(wanted, at_once(cluster, pattern, section, sum(servers)) // pattern.call_bytes))

    even = [(pattern.call_bytes / sum(servers),) * 2 for pattern, _ in sized]
    best = dict(enumerate(ideal(range(len(sized)), even)))
    # Start-up depends on the strips that it determines: solve once more, with those of the first answer.
    both = [number for number, strips in best.items() if min(strips)]
    best = dict(zip(both, ideal(both, [best[number] for number in both]), strict=True)) if both else {}
    tried, why = list[tuple[int, Layout]](), dict[int, str]()
    for number, strips in best.items():
        if not min(strips):
            continue
        request = sized[number][0].call_bytes
        whole = [
            each
            for calls in sorted({1, most_calls(number, strips)})
            for each in whole_strips((calls * strips[0], calls * strips[1]), calls * request, servers, grains)
        ]
        layouts = [layout for each in whole if (layout := layout_of(number, each)).section >= sum(layout.strips)]
        if not layouts:
            layouts = [layout_of(number, strips)]
            sizes = [format_bytes(strip) for strip in (layouts[0].strips[0], layouts[0].strips[-1])]
            why[number] = f"strips of {sizes[0]} and {sizes[1]} are less than the grain of the pools"
        tried += [(number, layout) for layout in layouts]
    found: list[list[_Proposed]] = [[] for _ in sized]
    if tried:
        costs = _replicas(cluster, pair, op, [(sized[number][0], layout) for number, layout in tried]).each()
        for number, several in groupby(zip(tried, costs, strict=True), key=lambda one: one[0][0]):
            (_, layout), cost = min(several, key=lambda one: one[1].total)
            found[number] = [_Proposed(name, layout, Pending.fixed(cost), why.get(number, ""))]
    return found


def _section(pattern: Pattern, size: int) -> int:
    """Bytes of a replica that belong to one rank, or to all ranks that access the same bytes."""
    return _ceil(size, pattern.sections)


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
