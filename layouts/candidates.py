"""Every way to serve an access pattern, with its predicted cost (docs/model.md)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pdla.layouts.contiguity import Pattern, count, distinct, packed, total_startup
from pdla.layouts.cost import busiest, round_time
from pdla.layouts.devices import seconds_per_byte
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, Pool, Signature


def candidates(signature: Signature, size: int, cluster: Cluster, pools: Iterable[Pool]) -> tuple[Candidate, ...]:
    """What ``signature`` costs from the original (always first) and from a replica of ``size`` bytes in every layout.

    The original of a collective pattern is read by two-phase collective buffering. For an independent one of several
    ranks that is a candidate of its own, "collective": only the program can choose it, but a reader of the plan wants
    to know.
    """
    pattern = Pattern.of(signature)
    found = []
    if signature.collective:
        found.append(Candidate("original", None, _collective(pattern, cluster)))
    else:
        found.append(Candidate("original", None, _independent(pattern, cluster)))
        if pattern.processes > 1:
            found.append(Candidate("collective", None, _collective(pattern, cluster)))
    for pool in pools:
        for groups in range(1, pool.servers + 1):
            if pool.servers % groups == 0:
                layout = replica_layout(pattern, size, pool, groups)
                found.append(Candidate(pool.name, layout, _replica(pattern, cluster, pool, layout)))
    return tuple(found)


def replica_layout(pattern: Pattern, size: int, pool: Pool, groups: int) -> Layout:
    """One section per rank; the strip spreads one call over a group, in whole grains of the pool.

    A section smaller than that is spread evenly: it would otherwise be padded to a whole cycle of strips.
    """
    width, section = pool.servers // groups, _ceil(size, count(distinct(pattern.ranks)))
    grains = _ceil(_ceil(pattern.call_bytes, width), pool.grain) * pool.grain
    return Layout(pool.name, pool.servers, groups, (min(grains, _ceil(section, width)),) * width, section)


def _independent(pattern: Pattern, cluster: Cluster) -> Cost:
    """The original, 1-DH on the home servers, the ranks side by side.

    A call of several pieces is one request for all from its first to its last byte: ROMIO's data sieving, which is on
    for reads unless a hint switches it off.
    """
    pool, length = cluster.pool(cluster.home_pool), pattern.call_span
    width = min(cluster.home_servers, _ceil(length, cluster.home_strip))
    k = _busiest_home_server(pattern, width, cluster)
    # Of all requests, in the order of time, a server sees k of every round: their start-ups are the mean of all.
    share = k / pattern.processes
    startup = share * total_startup(pool, (*pattern.calls, *pattern.ranks), length, width)
    return _all_rounds(pattern, cluster, pool, _per_node(pattern, cluster), k, width, length, startup)


def _collective(pattern: Pattern, cluster: Cluster) -> Cost:
    """The original by two-phase collective buffering: an aggregator per node reads its share of what all ranks' calls
    cover, in the order of the file, and sends every rank its bytes, s*v each over the node's link."""
    pool, servers = cluster.pool(cluster.home_pool), cluster.home_servers
    per_node = _per_node(pattern, cluster)
    aggregators = _ceil(pattern.processes, per_node)
    together = tuple(
        Loop(abs(stride), times)
        for stride, times in sorted(distinct((*pattern.ranks, *pattern.pieces)), key=lambda loop: -abs(loop.stride))
    )
    covered = pattern.length * count(together)
    request = _ceil(covered, aggregators)
    width = min(servers, _ceil(request, cluster.home_strip))
    k = _ceil(aggregators * width, servers)

    runs, run = 1, pattern.length
    for stride, times in reversed(together):
        if runs == 1 and stride <= run:
            run += stride * (times - 1)
        else:
            runs *= times
    run_width = min(servers, _ceil(run, cluster.home_strip))
    # Runs that are on few servers keep the others free for other aggregators, but for no more than there are.
    at_once = min(servers / run_width, aggregators)
    startup = total_startup(pool, (*pattern.calls, *together), pattern.length, run_width) / at_once

    read = _all_rounds(pattern, cluster, pool, 1, k, width, request, startup)
    shuffle = count(pattern.calls) * per_node * pattern.call_bytes * cluster.network_seconds_per_byte
    return Cost(read.connect, read.network + shuffle, read.startup, read.transfer)


def _replica(pattern: Pattern, cluster: Cluster, pool: Pool, layout: Layout) -> Cost:
    """A replica: every call is one request, and every rank's calls follow one another in its section."""
    width, request = len(layout.strips), pattern.call_bytes
    sections = count(distinct(pattern.ranks))
    sections_per_group, sharing = busiest(sections, layout.groups), pattern.processes // sections
    k = sections_per_group * sharing
    one_rank = packed(pattern.calls, request)
    order = (*one_rank, Loop(layout.section, sections_per_group), Loop(0, sharing))
    startup = total_startup(pool, order, request, width)
    spread = min(width, _ceil(request, layout.strips[0]))
    return _all_rounds(pattern, cluster, pool, _per_node(pattern, cluster), k, spread, request, startup)


def _all_rounds(
    pattern: Pattern, cluster: Cluster, pool: Pool, per_node: int, k: int, width: int, request: int, startup: float
) -> Cost:
    """A round for every call of a rank, all alike but for their start-up, of which ``startup`` is the sum."""
    e, v, b = cluster.connect_seconds, cluster.network_seconds_per_byte, seconds_per_byte(pool, pattern.op)
    one, rounds = round_time(per_node, k, width, request, e, v, 0.0, b), count(pattern.calls)
    return Cost(rounds * one.connect, rounds * one.network, startup, rounds * one.transfer)


def _per_node(pattern: Pattern, cluster: Cluster) -> int:
    return min(cluster.processes_per_node, pattern.processes)


def _busiest_home_server(pattern: Pattern, width: int, cluster: Cluster) -> int:
    """How many requests of one round reach the busiest home server, each being on ``width`` successive ones."""
    offsets = np.array([pattern.start], dtype=np.int64)
    for stride, times in pattern.ranks:
        offsets = (offsets[:, None] + np.arange(times, dtype=np.int64) * stride).ravel()
    first = np.bincount(offsets // cluster.home_strip % cluster.home_servers, minlength=cluster.home_servers)
    return int(np.sum([np.roll(first, shift) for shift in range(width)], axis=0).max())


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
