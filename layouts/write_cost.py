"""The cost of writes that memory keeps for a while, and of the write-back."""

from __future__ import annotations

from collections.abc import Sequence

from pdla.layouts.contiguity import Pattern, count, cut, in_file_order, runs, split, total_startup
from pdla.layouts.cost import busiest, connect_time, network_time
from pdla.layouts.devices import seconds_per_byte
from pdla.layouts.original_cost import served
from pdla.model import Cluster, Cost, Layout, Loop, Op, Pool
from pdla.units import MiB

FLUSHED = 4 * MiB
"""Bytes of a file that a node writes before it turns to another (Linux: MIN_WRITEBACK_PAGES in fs/fs-writeback.c)."""

PAGE = 4096


def flushed(pattern: Pattern, cluster: Cluster, per_node: int) -> Cost:
    """The original, from nodes that keep what ``per_node`` ranks write and flush it in the order of the file.

    Bytes that touch are then one request, whatever rank of the node wrote them, and no node waits
    for another's round.
    """
    pool, e, v = cluster.pool(cluster.home_pool), cluster.connect_seconds, cluster.network_seconds_per_byte
    nodes, own = split(pattern.ranks, per_node)
    first, in_order, run = _runs(pattern, own)
    apart, run = cut(in_order, run, FLUSHED)
    one = served(cluster, "write", first, (*apart, *nodes), run, count(nodes))
    width = min(cluster.home_servers, -(-run // cluster.home_strip))
    return Cost(
        connect=max(count(apart) * width, one.requests) * e,
        network=max(count(apart) * run, one.bytes) * v,
        startup=one.startup,
        transfer=one.bytes * seconds_per_byte(pool, "write"),
    )


def pages_read(cluster: Cluster, start: int, loops: Sequence[Loop], length: int) -> Cost:
    """The cost of whole pages in memory: a page that is written in part is read first.

    That is one page for every piece, unless all pieces are whole pages: the page at an end is also
    the next beginning's.
    """
    if not any(number % PAGE for number in (start, length, *(loop.stride for loop in loops))):
        return Cost(0.0, 0.0, 0.0, 0.0)
    pool = cluster.pool(cluster.home_pool)
    one = served(cluster, "read", start // PAGE * PAGE, loops, PAGE)
    return Cost(
        connect=one.requests * cluster.connect_seconds,
        network=one.bytes * cluster.network_seconds_per_byte,
        startup=one.startup,
        transfer=one.bytes * seconds_per_byte(pool, "read"),
    )


def _runs(pattern: Pattern, ranks: tuple[Loop, ...]) -> tuple[int, tuple[Loop, ...], int]:
    """What ``ranks`` write as contiguous runs in the order of the file: their start, their nest, their length."""
    loops = (*pattern.calls, *ranks, *pattern.pieces)
    first = pattern.start + sum(min(stride, 0) * (times - 1) for stride, times in loops)
    return first, *runs(in_file_order(loops), pattern.length)


def section_startup(pattern: Pattern, pool: Pool, section: int, here: int, spread: float) -> float:
    """Seconds of start-up of a server with memory that gets 1/``spread`` of each of ``here`` sections of a replica.

    The server takes writes in the order of its addresses, a memory full at a time.
    """
    apart, run = cut((), section, max(int(pool.device.memory * spread) // here, pattern.call_bytes))
    return total_startup(pool, "write", (*apart, Loop(section, here)), run, spread)


def write_back_cost(
    writing: Cost,
    pattern: Pattern,
    size: int,
    cluster: Cluster,
    layout: Layout,
    waited: float | None,
) -> Cost:
    """The cost of a replica that is written in ``writing`` and whose write-back all ranks do together.

    Without ``waited`` the write-back comes before the file is closed. What one node keeps is then
    read from memory, and nobody waits for the replica's devices. With it (a lease), the close waits
    until the replica has the bytes, and this share of them comes home when the program opens the
    file again; the rest comes home after the run.
    """
    kept = waited is None and cluster.client_cache and _nodes(pattern, cluster) == 1
    back = _write_back(pattern, size, cluster, layout, kept)
    if cluster.client_cache:
        writing = Cost(0.0, 0.0, 0.0, 0.0) if kept else _flushed_sections(pattern, size, cluster, layout)
    share = 1.0 if waited is None else waited
    return writing + Cost(share * back.connect, share * back.network, share * back.startup, share * back.transfer)


def _write_back(pattern: Pattern, size: int, cluster: Cluster, layout: Layout, kept: bool) -> Cost:
    """Each rank reads its share of the file from the replica, unless it is ``kept`` in memory, and writes it to the
    original, a buffer at a time; pieces of it that touch are one request."""
    pool, buffers = cluster.pool(layout.pool), -(-size // cluster.collective_buffer)
    writing = flushed(pattern, cluster, pattern.processes)
    if cluster.client_cache:
        writing += pages_read(cluster, *_runs(pattern, pattern.ranks))
    moved = network_time(1, 1, 1, size, cluster.network_seconds_per_byte) / _nodes(pattern, cluster)
    return Cost(
        connect=buffers * connect_time(layout.servers + cluster.home_servers, 1, 1, cluster.connect_seconds),
        network=moved if kept else 2 * moved,
        startup=writing.startup,
        transfer=writing.transfer if kept else writing.transfer + _reading(pool, size, layout),
    )


def _flushed_sections(pattern: Pattern, size: int, cluster: Cluster, layout: Layout) -> Cost:
    """A replica, from nodes that keep what their ranks write and flush it in the order of the file."""
    pool, nodes = cluster.pool(layout.pool), _nodes(pattern, cluster)
    here = busiest(pattern.sections, layout.groups)
    apart, run = cut((), layout.section, FLUSHED)
    sections = (Loop(layout.section, here),)
    order = (*sections, *apart) if nodes == 1 else (*apart, *sections)
    requests = here * count(apart)
    return Cost(
        connect=requests * cluster.connect_seconds,
        network=size / nodes * cluster.network_seconds_per_byte,
        startup=max(total_startup(part, "write", order, run, len(layout.strips)) for part in pool.parts or (pool,)),
        transfer=here * layout.section * _slowest(pool, layout, "write"),
    )


def _reading(pool: Pool, size: int, layout: Layout) -> float:
    return size / min(layout.groups, -(-size // layout.section)) * _slowest(pool, layout, "read")


def _slowest(pool: Pool, layout: Layout, op: Op) -> float:
    """Seconds per byte of a section on the server of its group that finishes last."""
    rates = [seconds_per_byte(part, op) for part in pool.parts or (pool,) for _ in range(part.servers)]
    return max(strip * rate for strip, rate in zip(layout.strips, rates, strict=False)) / sum(layout.strips)


def _nodes(pattern: Pattern, cluster: Cluster) -> int:
    return -(-pattern.processes // cluster.per_node(pattern.processes))
