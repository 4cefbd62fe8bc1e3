"""What the servers see of a pattern that is served in one way: derived once, for all terms of its cost (docs/model.md).

The original is striped, so adjacent bytes may be on two servers: the first requests of the pattern, cut
at the strips, stand for all. In a replica every client has a section that it reads in order, so what a
server gets follows from the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.layouts.contiguity import Pattern, count, runs, split
from pdla.layouts.cost import Numbers, busiest
from pdla.layouts.devices import curve, handling, seconds_per_byte, startup, startups
from pdla.layouts.plugins import backend_class
from pdla.model import Cluster, Int64Array, Layout, Loop, Op, Pool

SAMPLE, CLIENTS, BALANCE = 256, 64, 4096
"""So many parts of requests at the start of a nest stand for all, with regard to the strips, of so many clients. More
requests say how they are spread over servers."""

FAR = 1 << 62
"""Bytes: a distance that is beyond all points of start-up curves."""

FloatArray = npt.NDArray[np.float64]

SHARED = 0.25
"""If more than this share of what is read ahead is for other clients, all wait for it."""


class Seen(NamedTuple):
    """What servers see while ``clients`` make ``rounds`` requests of ``size`` bytes each, one after the other.

    Of many ways to serve patterns, the attributes are arrays.

    Attributes:
        clients, per_node: ranks, or aggregators, that have a request at a time: on these servers, and on a node.
        rounds, size: their requests, one after the other, and bytes of each.
        width: servers that have a part of a request (a mean).
        parts, bytes: on the busiest server, of all requests.
        together: the most parts of a round on one server.
        startup, transfer: seconds of the busiest device, with what it reads ahead, and without what memory keeps.
        in_step: the same, if all clients stay in step: the sum over the rounds, each with its own busiest device.
        handling: seconds that a server itself takes for a part.
        channels: start-ups that the device makes at a time.
        turns: requests that a client makes to a server in a row, before it turns to another one.
        places: the groups of ``width`` servers to which clients turn one after another.
        follows: whether clients wait for what is read ahead for one of them, so that they stay in step.
        waits: whether a request waits for the device; not if memory keeps what is written.
    """

    clients: Numbers
    per_node: Numbers
    rounds: Numbers
    size: Numbers
    width: Numbers
    parts: Numbers
    bytes: Numbers
    together: Numbers
    startup: Numbers
    transfer: Numbers
    in_step: Numbers
    handling: Numbers = 0.0
    channels: Numbers = 1
    turns: Numbers = 1.0
    places: Numbers = 1.0
    follows: Numbers = False
    waits: Numbers = True


class Sample(NamedTuple):
    """The first ``requests`` of a pattern, in ``parts``; the rest is of the busiest server and its device.

    Attributes:
        own, bytes: its parts, and their bytes.
        together: the most parts of a round on one server.
        waits, moved: seconds of start-up, and bytes that the device moves.
        steps: the sum over the rounds, each with its own busiest device, in seconds.
        turns, follows: see ``Seen``.
    """

    requests: int
    parts: int
    own: int
    bytes: float
    together: int
    waits: float
    moved: float
    steps: float
    turns: float
    follows: bool


class Parts(NamedTuple):
    """Parts of requests in the order in which servers take them, server by server; arrays of the same length.

    ``turn`` is the round of a part, ``client`` its client, and ``low`` the address of its first byte.
    """

    server: Int64Array
    turn: Int64Array
    client: Int64Array
    low: Int64Array
    size: Int64Array


class Requests(NamedTuple):
    """How patterns access their replicas; arrays, or the numbers of one.

    Attributes:
        size, rounds: bytes of a request, and the requests of a rank.
        different: those of a rank's requests that access other bytes than those before them.
        sharing: the ranks that read or write a section.
        here, section: sections of the first group, and bytes of each.
        own, before: of a cycle of strips, the bytes of the server, and of the servers before it.
        cycle, servers: bytes of a cycle, and the servers of a group.
        per_node: ranks on a node.
    """

    size: Numbers
    rounds: Numbers
    different: Numbers
    sharing: Numbers
    here: Numbers
    section: Numbers
    own: Numbers
    before: Numbers
    cycle: Numbers
    servers: Numbers
    per_node: Numbers


class Sections(NamedTuple):
    """What a server has of each of many replicas; arrays.

    Attributes:
        here: number of its sections.
        sharing: the ranks that read or write a section.
        held: bytes that it has of each section; they are read or written ``part`` bytes at a time.
        apart: bytes from the begin of one section to that of the next.
    """

    here: Numbers
    sharing: Numbers
    held: Numbers
    part: Numbers
    apart: Numbers


class Ahead(NamedTuple):
    """What a server reads ahead.

    Attributes:
        hit: for each part, whether it is there when it is asked for.
        more: for each part, the bytes that the device reads with it.
        shared: whether much of it is for other clients than the one that reads.
    """

    hit: npt.NDArray[np.bool_]
    more: Int64Array
    shared: bool


def striped(
    cluster: Cluster,
    op: Op,
    start: int,
    rounds: Sequence[Loop],
    clients: Sequence[Loop],
    length: int,
    per_node: int,
    drift: bool = True,
) -> Seen:
    """The servers of the original, for requests of ``length`` bytes: each of ``clients`` makes one in every round.

    What the busiest server has to do in the first requests (``_sample``) stands for all. On a cluster with
    jitter, clients ``drift`` apart, unless they wait for one another.
    """
    drift = drift and cluster.jitter_seconds > 0
    pool, servers = cluster.pool(cluster.home_pool), cluster.home_servers
    device, b = pool.device, seconds_per_byte(pool, op)
    few = split(clients, CLIENTS)[1]
    wide = min(servers, -(-length // cluster.home_strip))
    early = split(rounds, max(SAMPLE // (wide * count(few)), 1))[1]
    stream = runs(rounds, length)[1] if op == "read" and device.read_ahead else 0
    cycle = cluster.home_strip * servers
    sample = _sample(cluster, op, start % cycle, early, few, length, stream, drift)
    share, width = count(rounds) * count(clients) / sample.requests, sample.parts / sample.requests
    scale = share
    if share > 1 and width < servers:
        # Few rounds may all be on few servers. Many more say what share of all parts the busiest server has.
        more = split(rounds, max(BALANCE // count(few), 1))[1]
        scale *= _most(cluster, start, (*more, *few), round(width)) * sample.parts / sample.own
    left = _left(pool, op, scale * sample.bytes)
    return Seen(
        clients=count(clients),
        per_node=per_node,
        rounds=count(rounds),
        size=length,
        width=width,
        parts=scale * sample.own,
        bytes=scale * sample.bytes,
        together=sample.together * count(clients) / count(few),
        startup=left * scale * sample.waits,
        transfer=left * scale * sample.moved * b,
        in_step=left * share * sample.steps,
        handling=handling(cluster, pool, count(clients)),
        channels=device.channels,
        turns=sample.turns,
        places=servers / max(width, 1.0),
        follows=sample.follows,
        waits=not (op == "write" and device.memory),
    )


@lru_cache(maxsize=1 << 14)
def _sample(
    cluster: Cluster,
    op: Op,
    start: int,
    rounds: tuple[Loop, ...],
    clients: tuple[Loop, ...],
    length: int,
    stream: int,
    drift: bool,
) -> Sample:
    """The first requests of a pattern, cut at the strips. Each server has its own distances (``_start_ups``).

    ``stream`` is the length of what the pattern reads without a gap, however many rounds it has.
    """
    pool, servers = cluster.pool(cluster.home_pool), cluster.home_servers
    reach, b = pool.device.read_ahead, seconds_per_byte(pool, op)
    time, side = offsets(rounds), offsets(clients)
    begin = start + (time[:, None] + side).ravel()
    parts = _in_order(_cut(cluster, begin, length, len(side)), pool, op)
    waits, moved = _start_ups(cluster, op, parts, drift), parts.size
    places = begin[:: len(side)] // cluster.home_strip % servers
    turns, follows = len(places) / (1 + int(np.count_nonzero(places[1:] != places[:-1]))), False
    if op == "read" and reach:
        ahead = _read_ahead(parts, reach, drift)
        follows = ahead.shared
        if stream > len(time) * length:
            # Streams that are longer than the sample: how they begin does not count.
            follows = follows and stream < servers * reach
            waits = waits * parts.size / (parts.size + reach)
        else:
            waits, moved = np.where(ahead.hit, 0.0, waits), np.where(ahead.hit, 0, parts.size + ahead.more)
        if not follows:
            turns = max(1.0, turns * (1 - int(np.count_nonzero(ahead.hit)) / len(ahead.hit)))

    work = waits + moved * b
    bytes_, load = (np.bincount(parts.server, each, servers) for each in (parts.size, work))
    busy = int((load if load.any() else bytes_).argmax())
    own = parts.server == busy
    seat = parts.turn * servers + parts.server
    steps = np.bincount(seat, work, len(time) * servers).reshape(-1, servers).max(axis=1)
    return Sample(
        requests=len(begin),
        parts=len(parts.server),
        own=int(np.count_nonzero(own)),
        bytes=float(bytes_[busy]),
        together=int(np.bincount(seat).max()),
        waits=float(waits[own].sum()),
        moved=float(moved[own].sum()),
        steps=float(steps.sum()),
        turns=turns,
        follows=follows,
    )


def _most(cluster: Cluster, start: int, requests: Sequence[Loop], width: int) -> float:
    """The share of all parts that the busiest server has, if each request has one on ``width`` servers in a row."""
    servers = cluster.home_servers
    at = (start + offsets(requests)) // cluster.home_strip % servers
    first = np.bincount(at, minlength=servers)
    before = np.append(0, np.cumsum(np.append(first, first)))
    return float((before[width:] - before[:-width]).max() / (width * len(at)))


def at_once(cluster: Cluster, pattern: Pattern, section: int, servers: int) -> int:
    """Bytes of a section that are asked for at once: a call's, or what a page cache reads ahead on so many servers."""
    if pattern.op == "read" and cluster.client_cache and pattern.distinct_rounds == pattern.rounds:
        return max(pattern.call_bytes, min(section, cluster.client_read_ahead * servers))
    return pattern.call_bytes


def requests(cluster: Cluster, pattern: Pattern, layout: Layout, server: int = 0) -> Requests:
    """What a server of the first group gets of a pattern. A call is one request.

    A page cache (``client_cache``) reads ahead in a section, which is read in order: as many bytes at once
    from each server.
    """
    strips, size, rounds, different = layout.strips, pattern.call_bytes, pattern.rounds, pattern.distinct_rounds
    ahead = at_once(cluster, pattern, layout.section, len(strips))
    if ahead > size:
        size, rounds, different = ahead, -(-layout.section // ahead), -(-layout.section // ahead)
    return Requests(
        size=min(size, FAR),
        rounds=min(rounds, FAR),
        different=min(different, max(1, FAR // size)),  # together more bytes than any section has
        sharing=pattern.processes // pattern.sections,
        here=busiest(pattern.sections, layout.groups),
        section=layout.section,
        own=strips[server],
        before=sum(strips[:server]),
        cycle=sum(strips),
        servers=len(strips),
        per_node=cluster.per_node(pattern.processes),
    )


def sectioned(cluster: Cluster, pool: Pool, op: Op, asked: Sequence[Requests]) -> Seen:
    """Servers of replicas: the calls of a rank follow one another. An element for each of ``asked``.

    A server has a part of each of its sections, one after the other, and takes the parts of a round in this
    order.
    """
    of = Requests(*np.array(asked, np.int64).T)
    device, drift = pool.device, cluster.jitter_seconds > 0
    cycles, rest = np.divmod(np.minimum(of.section, of.different * of.size), of.cycle)
    held = np.maximum(cycles * of.own + np.minimum(np.maximum(rest - of.before, 0), of.own), 1)
    # Requests that begin and end inside of strips: between two ends of either there is a part.
    inside, common = of.size < of.cycle, np.gcd(of.own, of.size)
    crossed = -(-held // np.maximum(of.own, 1)) * (1 + (of.own - common) / of.size)
    pieces = np.where(inside, np.minimum(of.different, crossed), of.different)
    across = (of.size - common) * of.servers.astype(np.float64)
    width = np.where(inside, np.minimum(of.servers, 1 + across / of.cycle), of.servers)
    here, sharing, again = of.here.astype(np.float64), of.sharing, of.rounds / of.different
    found = Sections(here, sharing, held.astype(np.float64), held / pieces, -(-of.section // of.cycle) * of.own)
    turns, follows = np.maximum(1.0, of.own / of.size), np.zeros(len(asked), np.bool_)
    waits, moved = _section_jumps(pool, op, found, drift), here * held
    if op == "read" and device.read_ahead:
        ahead = pieces * here > 1
        waits, moved, follows = np.where(ahead, _sections_ahead(pool, found, drift), (waits, moved, follows))
        reach = found.part + device.read_ahead
        turns = np.where(ahead & (held > reach), np.maximum(1.0, of.own / reach), turns)
    times = again * sharing
    parts, bytes_ = pieces * here * times, here * held * times
    left = _left(pool, op, bytes_)
    waits, transfer = left * again * waits, left * times * moved * seconds_per_byte(pool, op)
    together = here * sharing
    return Seen(
        clients=together,
        per_node=of.per_node,
        rounds=of.rounds,
        size=of.size,
        width=width,
        parts=parts,
        bytes=bytes_,
        together=together,
        startup=waits,
        transfer=transfer,
        in_step=(waits + transfer) * np.maximum(1.0, together * of.rounds / parts),
        handling=np.zeros(len(asked)) + handling(cluster, pool, together),
        channels=device.channels,
        turns=turns,
        places=of.servers / width,
        follows=follows,
        waits=not (op == "write" and device.memory),
    )


def _section_jumps(pool: Pool, op: Op, found: Sections, drift: bool) -> Numbers:
    """Seconds of start-up of a server that goes from section to section, part by part.

    A server with one section goes on where it stopped; one with memory writes sections in their order.
    The very first part is free.
    """
    here, sharing, _, part, apart = found
    if op == "write" and pool.device.memory:
        return np.zeros(len(here))
    hidden = part * seconds_per_byte(pool, op) if pool.overlap else 0.0

    def jump(distance: Numbers) -> Numbers:
        if pool.overlap and op == "read":
            distance = np.where((here * sharing > 1) & (distance == 0), FAR, distance)
        return np.maximum(0.0, startups(pool, distance, op) - hidden)

    back = jump((here - 1) * apart)
    round_ = (here - 1) * jump(apart - part) + here * (sharing - 1) * jump(part) + back
    if drift:
        round_ += np.where(here > 1, back, 0.0)
    return found.held / part * round_ - back


def _sections_ahead(pool: Pool, found: Sections, drift: bool) -> tuple[Numbers, Numbers, Numbers]:
    """What a server reads ahead in sections: seconds of start-up, bytes, and whether all clients wait for it.

    The first part of each section is read alone, the next one with what is ahead, and so on. That is
    of one section, or of several small ones: then all their clients wait for it. If a section is one part,
    the sections themselves are a sequence.
    """
    here, _, held, part, apart = found
    reach = part + pool.device.read_ahead
    jump = startups(pool, apart - part)
    whole, small = part == held, held < pool.device.read_ahead
    more = here * np.ceil((held - part) / reach)
    waits = (here - 1 + np.where(here > 1, more, 0.0)) * jump
    of_small = np.minimum(np.ceil(here * held / reach), np.round((held / part - 1) * here))
    waits, more = np.where(small, ((here - 1) * jump, of_small), (waits, more))
    moved, follows = here * part + more * reach, small
    if drift:
        flights = np.minimum((here - 1) / 2, 1 + here * held / reach)
        alone = startups(pool, here * held), here * held + flights * pool.device.read_ahead, np.zeros(len(here))
    else:
        alone = np.zeros(len(here)), held + np.ceil((here - 1) * held / reach) * reach, here > 1
    waits, moved, follows = np.where(whole, alone, (waits, moved, follows))
    return waits, moved, follows


def offsets(loops: Sequence[Loop]) -> Int64Array:
    """Where the iterations of a nest begin, in the order of the nest; bytes, of shape (iterations,)."""
    found = np.zeros(1, np.int64)
    for stride, times in loops:
        found = (found[:, None] + np.arange(times, dtype=np.int64) * stride).ravel()
    return found


def _cut(cluster: Cluster, begin: Int64Array, length: int, clients: int) -> Parts:
    """The requests that begin there, round after round of ``clients``, cut at the strips of the original."""
    edges = _on_servers(np.concatenate((begin, begin + length)), cluster)
    low, high = edges[:, : len(begin)], edges[:, len(begin) :]
    part = np.flatnonzero(high > low)
    server, request = np.divmod(part, len(begin))
    turn, client = np.divmod(request, clients)
    low = low.take(part)
    return Parts(server, turn, client, low, high.take(part) - low)


def _in_order(parts: Parts, pool: Pool, op: Op) -> Parts:
    """In the order of time, or, if an elevator takes them, of the addresses in a round; memory is written when it is
    full, in the order of the addresses in it."""
    if op == "write" and pool.device.memory:
        before = np.cumsum(parts.size) - parts.size
        before -= before[np.searchsorted(parts.server, parts.server)]
        order = np.lexsort((parts.low, before // pool.device.memory, parts.server))
    elif pool.device.queue == "elevator":
        order = np.lexsort((parts.low, parts.turn, parts.server))
    else:
        return parts
    return Parts(*(each[order] for each in parts))


def _start_ups(cluster: Cluster, op: Op, parts: Parts, drift: bool) -> FloatArray:
    """Seconds of start-up of each part, by its distance from the one before it on its server.

    The first part is free: nobody knows where the server's head was, whatever file it served before.
    If start-up and transfer overlap, only the time by which start-up is longer than the transfer
    counts. Then requests are counted, not movements of a head: a read that continues where another
    client stopped counts like any other, since read-ahead, which makes one request of many, works for
    each reader alone.

    If clients send requests strip by strip, the part of a request on a server is one start-up, and its
    further strips follow the first.
    """
    pool, strip = cluster.pool(cluster.home_pool), cluster.home_strip
    server, _, _, low, size = parts
    distance = np.zeros(len(low), np.int64)
    np.abs(low[1:] - (low + size)[:-1], out=distance[1:])
    if pool.overlap and op == "read":
        distance = np.where(_goes_on(parts), 0, np.where(distance == 0, FAR, distance))
    points, seconds = zip(*curve(pool, op), strict=True)
    waits = np.asarray(np.interp(distance, points, seconds))
    if drift:
        # The first of a round to come is any one. An elevator goes up from there, back, and up again.
        begins = np.flatnonzero(np.append(True, (server[1:] != server[:-1]) | (parts.turn[1:] != parts.turn[:-1])))
        several = np.diff(np.append(begins, len(low))) > 1
        top = np.maximum.reduceat(low + size, begins)
        waits[begins[several]] += np.interp((top - low[begins])[several], points, seconds)
    waits[0] = 0.0
    waits[1:][server[1:] != server[:-1]] = 0.0
    strips: Int64Array | int = 1
    if backend_class(pool.backend).strip_by_strip:
        strips = -(-(low + size) // strip) - low // strip
    hidden = size / strips * seconds_per_byte(pool, op) if pool.overlap else 0.0
    further = np.maximum(startup(pool, FAR if pool.overlap else 0, op) - hidden, 0.0)
    return np.asarray(np.maximum(waits - hidden, 0.0) + (strips - 1) * further)


def _left(pool: Pool, op: Op, written: Numbers) -> Numbers:
    """The share of so many bytes that a device has written when memory has the rest."""
    return np.maximum(0.0, 1 - pool.device.memory / written) if op == "write" and pool.device.memory else 1.0


def _on_servers(edges: Int64Array, cluster: Cluster) -> Int64Array:
    """How many bytes of the file before each of ``edges`` each server has; a row for each edge."""
    strip, servers = cluster.home_strip, cluster.home_servers
    cycles, rest = np.divmod(edges, strip * servers)
    first = np.arange(servers, dtype=np.int64)[:, None] * strip
    # np.clip takes four times as long.
    return np.asarray(cycles * strip + np.minimum(np.maximum(rest - first, 0), strip))


def _goes_on(parts: Parts) -> npt.NDArray[np.bool_]:
    """Whether each part begins where the same client's previous part on the server ended."""
    server, _, client, low, size = parts
    order = np.lexsort((client, server))  # stable: in the order of time
    found = np.zeros(len(low), np.bool_)
    before, after = order[:-1], order[1:]
    same = (server[after] == server[before]) & (client[after] == client[before])
    found[after] = same & (low[after] == (low + size)[before])
    return found


def _read_ahead(parts: Parts, reach: int, drift: bool) -> Ahead:
    """What a server reads ahead, ``reach`` bytes after a part that continues another one.

    The first part of a chain of parts that touch is read alone. The second one is read with what is ahead,
    where the next parts need no device, and so on. In a chain, a part before which nothing was read yet
    begins a stream: it is read alone, too, and if its stream is longer than ``reach``, it begins a chain.
    """
    order = np.lexsort((parts.low, parts.server))
    of, when, who, start, size = (each[order] for each in parts)
    stop, place = start + size, np.arange(len(order))
    hit, more = np.zeros(len(order), np.bool_), np.zeros(len(order), np.int64)
    gap = np.full(len(order), reach)
    gap[1:][of[1:] == of[:-1]] = (start[1:] - stop[:-1])[of[1:] == of[:-1]]
    if gap.all():
        return Ahead(hit, more, False)
    fresh = (gap >= reach) | (gap < 0)
    begins = np.zeros(len(order), np.bool_)
    begins[1:] = ~fresh[1:] & (when[1:] < when[:-1])
    stream = np.cumsum(fresh | begins)
    fresh |= begins & (np.bincount(stream, size)[stream] >= reach)
    second = start[np.minimum(np.maximum.accumulate(np.where(fresh, place, 0)) + 1, len(order) - 1)]
    number = np.where(start < second, -1, (start - second) // (size + reach))
    ahead = np.zeros(len(order), np.bool_)
    ahead[1:] = (number[1:] == number[:-1]) & ~fresh[1:]
    reader = who[np.maximum.accumulate(np.where(ahead, 0, place))]
    ahead &= ~begins
    extra = np.where(ahead | fresh | begins, 0, reach)
    if drift:
        # Parts of a round that touch come in any order: half of them go on where another one has ended, until all that
        # follows is read ahead. That is in vain, unless it is of the rounds that follow.
        chain, heads = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
        alone = np.maximum.reduceat(when, heads) == np.minimum.reduceat(when, heads)
        same = np.zeros(len(order), np.bool_)
        same[1:] = (gap[1:] == 0) & (when[1:] == when[:-1]) & (who[1:] != who[:-1])
        same &= alone[chain]
        group = np.cumsum(~same)
        count_, length = np.bincount(group)[group], np.bincount(group, size)[group]
        ahead &= ~same
        extra = np.where(same, (np.minimum(0.5, (1 + length / reach) / count_) * reach).astype(np.int64), extra)
    hit[order] = ahead
    more[order] = extra
    return Ahead(hit, more, bool(np.count_nonzero(ahead & (who != reader)) > SHARED * np.count_nonzero(ahead)))
