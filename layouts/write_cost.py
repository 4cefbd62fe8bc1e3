"""The cost of writes that memory of nodes keeps for a while, and of the write-back."""

from __future__ import annotations

from collections.abc import Sequence

from pdla.layouts.contiguity import Pattern, count, cut, in_file_order, runs, split, total_startup, windows
from pdla.layouts.cost import busiest
from pdla.layouts.devices import handling, seconds_per_byte, startup
from pdla.layouts.pending import Pending
from pdla.layouts.plugins import backend_class
from pdla.layouts.seen import Seen, striped
from pdla.model import Cluster, Cost, Layout, Loop, Pool
from pdla.units import MiB

FLUSHED = 4 * MiB
"""Bytes of a file that a node writes before it turns to another (Linux: MIN_WRITEBACK_PAGES in fs/fs-writeback.c)."""

PAGE = 4096
BATCH, SHARE_GRAIN = 16 * MiB, MiB
"""Of the library's write-back: the bytes that a rank moves at a time, and what a rank's share is a multiple of."""

NOTHING = Pending.fixed(Cost(0.0, 0.0, 0.0, 0.0))


def keeps_writes(cluster: Cluster, pattern: Pattern, layout: Layout | None = None) -> bool:
    """Whether nodes keep in memory what they write to the original or, with ``layout``, to a replica.

    Of some storage a node keeps only what is of a file that no other node has open
    (``Backend.cache_alone``). Ranks open those components of a replica to which they write: in 1-DV,
    a rank has one for itself if there are as many servers as ranks.
    """
    pool = cluster.pool(layout.pool if layout else cluster.home_pool)
    alone = _nodes(pattern, cluster) == 1 or (layout is not None and pattern.sections <= layout.groups)
    return cluster.client_cache and (alone or not backend_class(pool.backend).cache_alone)


def flushed(cluster: Cluster, pattern: Pattern, rounds: Sequence[Loop], length: int, per_node: int) -> Pending:
    """The original, from nodes that keep what ``per_node`` ranks write and flush it in the order of the file.

    Bytes that touch are then one request, whatever rank of the node wrote them, of at most what a node
    writes at once. No request waits for another one.
    """
    nodes, own = split(pattern.ranks, per_node)
    first, in_order, run = _runs(pattern.start, (*rounds, *own), length)
    apart, run = cut(in_order, run, cluster.client_read_ahead or run)
    return Pending.aside(striped(cluster, "write", first, apart, nodes, run, 1)._replace(waits=False))


def read_by_nodes(cluster: Cluster, pattern: Pattern, rounds: Sequence[Loop], length: int) -> Pending:
    """The original, read by ranks through the page caches of their nodes.

    If what the ranks of a node read adjoins, for longer than a page cache reads ahead, it is read once, in
    the order of the file, as much at a time as is read ahead.
    """
    per_node, ahead = cluster.per_node(pattern.processes), cluster.client_read_ahead
    nodes, own = split(pattern.ranks, per_node)
    first, in_order, run = _runs(pattern.start, (*rounds, *own), length)
    if not ahead or run <= max(ahead, length):
        return Pending.aside(striped(cluster, "read", pattern.start, rounds, pattern.ranks, length, per_node))
    apart, run = cut(in_order, run, ahead)
    return Pending.aside(striped(cluster, "read", first, apart, nodes, run, 1))


def pages_read(cluster: Cluster, pattern: Pattern, rounds: Sequence[Loop], length: int) -> Pending:
    """The cost of whole pages in memory: a page that is written in part is read first.

    That is one page for every piece, unless all pieces are whole pages: the page at an end is also
    the next beginning's.
    """
    return _pages_read(cluster, pattern.start, rounds, pattern.ranks, length)


def _pages_read(cluster: Cluster, start: int, rounds: Sequence[Loop], clients: Sequence[Loop], length: int) -> Pending:
    if not any(number % PAGE for number in (start, length, *(loop.stride for loop in (*rounds, *clients)))):
        return NOTHING
    per_node = cluster.per_node(count(clients))
    return Pending.aside(striped(cluster, "read", start // PAGE * PAGE, rounds, clients, PAGE, per_node))


def write_back_cost(
    writing: Pending,
    pattern: Pattern,
    size: int,
    cluster: Cluster,
    layout: Layout,
    waited: float | None,
) -> Pending:
    """The cost of a replica that is written in ``writing`` and whose write-back all ranks do together.

    Without ``waited`` the write-back comes before the file is closed. What one node keeps is then
    read from memory, and nobody waits for the replica's devices. With it (a lease), the close waits
    until the replica has the bytes, and this share of them comes home when the program opens the
    file again; the rest comes home after the run.
    """
    kept = waited is None and cluster.client_cache and _nodes(pattern, cluster) == 1
    if keeps_writes(cluster, pattern, layout):
        writing = NOTHING if kept else _flushed_sections(pattern, size, cluster, layout)
    if waited == 0:
        return writing
    back = _home(pattern, size, cluster) + (NOTHING if kept else _read_back(pattern, size, cluster, layout))
    share = 1.0 if waited is None else waited
    return writing + share * back


def _read_back(pattern: Pattern, size: int, cluster: Cluster, layout: Layout) -> Pending:
    """Each rank reads its share of the file from the replica, a batch at a time: of each section what is in its share.

    All ranks wait for one another after every batch. If a single batch has everything, an elevator reads
    a server from its first byte to its last. Before that, a device with memory ends the write that it has
    begun, and its head goes back.
    """
    _, ranks, batches = _shares(pattern, size)
    extent = _extent(pattern)
    own = pattern.call_span + sum(abs(stride) * (times - 1) for stride, times in pattern.calls)
    pieces = max(1, min(pattern.sections, round(pattern.sections * (own / extent + 1 / (ranks * batches)))))
    pool, servers, cycle = cluster.pool(layout.pool), len(layout.strips), sum(layout.strips)
    piece = size / (ranks * batches * pieces)
    width = min(servers, 1 + piece * servers / cycle)
    share = busiest(pattern.sections, layout.groups) / pattern.sections
    parts = max(1.0, ranks * batches * pieces * width * share / servers)
    costs, first = [], 0
    for kind in pool.parts or (pool,):
        held = size * share * layout.strips[first] / cycle
        first += kind.servers
        back = startup(kind, held)
        swept = pieces == 1 or (batches == 1 and kind.device.queue == "elevator")
        waits = back if swept else back + (parts - 1) * startup(kind, layout.section / servers)
        transfer = held * seconds_per_byte(kind, "read")
        seen = Seen(
            clients=ranks * pieces,
            per_node=min(cluster.per_node(pattern.processes), ranks) * pieces,
            rounds=batches,
            size=piece,
            width=width,
            parts=parts,
            bytes=held,
            together=parts / batches,
            startup=waits,
            transfer=transfer,
            in_step=waits + transfer,
            handling=handling(cluster, kind, ranks),
            channels=kind.device.channels,
        )
        cost = Pending.rounds(seen)
        if kind.device.memory:
            written = pattern.call_bytes / min(servers, 1 + pattern.call_bytes * servers / cycle)
            cost += Pending.fixed(Cost(0.0, 0.0, back, written * seconds_per_byte(kind, "write")))
        costs.append(cost)
    return Pending.slowest(costs)


def _home(pattern: Pattern, size: int, cluster: Cluster) -> Pending:
    """Each rank writes its share to the original in the file's order; pieces of a batch that touch are one request.

    All ranks wait for one another after every request, or write to the pages of their nodes.
    """
    first, in_order, run = _all_runs(pattern)
    if keeps_writes(cluster, pattern):
        return flushed(
            cluster, pattern, (*pattern.calls, *pattern.pieces), pattern.length, pattern.processes
        ) + _pages_read(cluster, first, in_order, (), run)
    share, ranks, batches = _shares(pattern, size)
    apart, run = cut(in_order, run, -(-size // (ranks * batches)))
    _, inner, _ = windows(apart, run, share)
    per_node = min(cluster.per_node(pattern.processes), ranks)

    def of(clients: int, times: float) -> Pending:
        """So many of the first ranks, for this part of their rounds."""
        return times * Pending.rounds(
            striped(cluster, "write", first, inner, (Loop(share, clients),), run, per_node, drift=False)
        )

    # The last rank's share is smaller.
    last = _extent(pattern) / share - (ranks - 1)
    return of(ranks, last) + of(ranks - 1, 1 - last) if ranks > 1 and last < 1 and count(inner) > 1 else of(ranks, 1.0)


def _shares(pattern: Pattern, size: int) -> tuple[int, int, int]:
    """Bytes of the file that are a rank's share, the number of ranks that have one, and each rank's batches."""
    extent = _extent(pattern)
    share = -(-extent // pattern.processes)
    share += -share % SHARE_GRAIN
    ranks = -(-extent // share)
    return share, ranks, -(-size // (ranks * BATCH))


def _extent(pattern: Pattern) -> int:
    """Bytes from the first to the last one."""
    _, in_order, run = _all_runs(pattern)
    return run + sum(stride * (times - 1) for stride, times in in_order)


def _all_runs(pattern: Pattern) -> tuple[int, tuple[Loop, ...], int]:
    """What all ranks access as contiguous runs in the order of the file: their start, their nest, their length."""
    return _runs(pattern.start, (*pattern.calls, *pattern.ranks, *pattern.pieces), pattern.length)


def _runs(start: int, loops: Sequence[Loop], length: int) -> tuple[int, tuple[Loop, ...], int]:
    """The same of any nest."""
    return start + sum(min(stride, 0) * (times - 1) for stride, times in loops), *runs(in_file_order(loops), length)


def _flushed_sections(pattern: Pattern, size: int, cluster: Cluster, layout: Layout) -> Pending:
    """A replica, from nodes that keep what their ranks write and flush it in the order of the file."""
    pool, nodes = cluster.pool(layout.pool), _nodes(pattern, cluster)
    here = busiest(pattern.sections, layout.groups)
    apart, run = cut((), layout.section, FLUSHED)
    sections = (Loop(layout.section, here),)
    order = (*sections, *apart) if nodes == 1 else (*apart, *sections)
    requests = here * count(apart)
    return Pending.fixed(
        Cost(
            connect=requests * cluster.connect_seconds,
            network=size / nodes * cluster.network_seconds_per_byte,
            startup=max(total_startup(part, "write", order, run, len(layout.strips)) for part in pool.parts or (pool,)),
            transfer=here * layout.section * _slowest(pool, layout),
        )
    )


def _slowest(pool: Pool, layout: Layout) -> float:
    """Seconds per byte of a section that is written to the server of its group that finishes last."""
    rates = [seconds_per_byte(part, "write") for part in pool.parts or (pool,) for _ in range(part.servers)]
    return max(strip * rate for strip, rate in zip(layout.strips, rates, strict=False)) / sum(layout.strips)


def _nodes(pattern: Pattern, cluster: Cluster) -> int:
    return -(-pattern.processes // cluster.per_node(pattern.processes))
