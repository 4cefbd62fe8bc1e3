"""Findings in what the MPI library makes of the calls: sieving, two-phase I/O, and shared file pointers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pdla.findings import commands
from pdla.findings.draft import Draft
from pdla.findings.finding import Bar
from pdla.findings.outlook import Outlook, as_it_is, with_aggregators, with_buffer, without_sieving
from pdla.findings.seen import Bools, Floats, Group, Seen
from pdla.model import Int64Array
from pdla.traces.tables import OPS
from pdla.units import MiB, format_bytes, format_count, format_seconds, format_share

LARGE = MiB
"""Two-phase I/O only copies requests of this size, or more, that each rank could make by itself."""

READ_TOO = 0.2
"""A write call reads if the library reads so many bytes for each that it writes."""

SIEVED = 1.5
"""Data sieving reads too much from so many bytes for each byte asked for on."""

SMALL_BUFFER = MiB
"""A collective buffer is small if aggregators make requests of less than this where they could make larger ones."""


def detect(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """Of each file and operation what the library does badly; most of it only if POSIX calls were recorded."""
    posix = _Posix(seen)
    shared = seen.is_data & seen.trace.records["kind"].str.contains("_shared|_ordered").to_numpy(np.bool_)
    yield from _shared_pointers(seen, shared)
    for group in seen.groups:
        if shared[group.rows].any():
            continue
        if group.collective:
            yield from _two_phase(seen, outlook, group, posix)
        else:
            yield from _sieving(seen, outlook, group, posix)


class _Posix:
    """The POSIX calls in the MPI calls of a group: bytes and seconds, by operation; nothing if they were not
    recorded."""

    def __init__(self, seen: Seen) -> None:
        posix = seen.trace.posix
        within = posix[(posix["call"] >= 0) & (posix["op"] != "other")]
        rank, length = (within[name].to_numpy(np.int64) for name in ("rank", "length"))
        row = seen.first_row[rank] + within["call"].to_numpy(np.int64)
        key = 2 * seen.key[row] + (within["op"] == "write").to_numpy(np.int64)
        order = np.argsort(key, kind="stable")
        self._key, self._rank, self._length = key[order], rank[order], length[order]
        self.known = len(posix) > 0

    def requests(self, group: Group, op: str) -> tuple[Int64Array, Int64Array]:
        """The ranks and lengths of the reads, or writes, in the calls of a group."""
        key = 2 * group.key + (op == "write")
        low, high = np.searchsorted(self._key, (key, key + 1))
        return self._rank[low:high], self._length[low:high]


def _shared_pointers(seen: Seen, shared: Bools) -> Iterator[Draft]:
    """By file and operation. Where the calls lead may not be known: they may be in no group."""
    length, op = seen.trace.records["length"].to_numpy(np.int64), seen.trace.records["op"].to_numpy(object)
    for file in np.unique(seen.file[shared]).tolist():
        for one in OPS[:2]:
            rows = np.flatnonzero(shared & (seen.file == file) & (op == one))
            if not len(rows):
                continue
            yield Draft(
                kind="shared-pointer",
                file=seen.path(file),
                title=f"{format_count(len(rows))} {one}s go through the shared file pointer.",
                lost=seen.spent(rows),
                evidence=f"Each waits for the one before, of {format_bytes(float(length[rows].mean()))} on average: "
                "the MPI library keeps the pointer in a file of its own, under a lock.",
                bars=_calls(seen, rows, "shared pointer", "other calls"),
                remedy="Use explicit offsets (MPI_File_write_at): compute them once with MPI_Exscan of the sizes.",
                sure="medium",
                why="the time of these calls was measured; some of it is needed with explicit offsets, too",
            )


def _two_phase(seen: Seen, outlook: Outlook, group: Group, posix: _Posix) -> Iterator[Draft]:
    """Collective calls on large contiguous pieces, and poor hints."""
    each = np.bincount(group.call, minlength=len(group.rows))
    contiguous = each.max() == 1 and "holes_unknown" not in group.doubts
    large = contiguous and float(np.median(group.length)) >= LARGE
    if posix.known:
        if large:
            inside = seen.inside["read"] + seen.inside["write"] + seen.inside["other"]
            storage = float(np.bincount(seen.rank[group.rows], inside[group.rows], minlength=1).max(initial=0.0))
            needs = f"the storage needs {format_seconds(storage)} of that"
            yield _useless(seen, outlook, group, 1 - storage / max(seen.slowest(group.rows), storage, 1e-12), needs)
        yield from _hints(seen, outlook, group, posix)
    elif large and (predicted := outlook.independent()) and predicted.ratio < 1:
        yield _useless(seen, outlook, group, 1 - predicted.ratio, "simulated, independent calls take less")


def _useless(seen: Seen, outlook: Outlook, group: Group, share: float, needs: str) -> Draft:
    spent = seen.slowest(group.rows)
    copied = share * spent
    return Draft(
        kind="collective-useless",
        file=seen.path(group.file),
        title=f"Collective {group.op}s of large contiguous pieces are only copied between ranks.",
        lost=seen.spent(group.rows, share),
        evidence=f"Each rank's piece has {format_bytes(float(np.median(group.length)))}; the calls take "
        f"{format_seconds(spent)}, and {needs}.",
        bars=(
            Bar("exchange", copied, format_seconds(copied)),
            Bar("storage", spent - copied, format_seconds(spent - copied)),
        ),
        remedy=f"Make these calls independent (MPI_File_{group.op}_at), or switch two-phase I/O off "
        f"(romio_cb_{group.op} disable).",
        command=commands.hints(seen, **{f"romio_cb_{group.op}": "disable"}),
        predict=outlook.independent,
    )


def _hints(seen: Seen, outlook: Outlook, group: Group, posix: _Posix) -> Iterator[Draft]:
    """Fewer aggregators than servers, or a small buffer."""
    rank, length = posix.requests(group, group.op)
    if not len(rank):
        return
    aggregators, servers = len(np.unique(rank)), seen.cluster.home_servers
    if not seen.is_nominal and aggregators < min(servers, seen.trace.ranks):
        wanted = min(servers, seen.trace.ranks)
        nodes = -(-seen.trace.ranks // seen.cluster.per_node(seen.trace.ranks))
        several = {"cb_config_list": "*:*"} if wanted > nodes else {}  # ROMIO's default is one on each node
        yield Draft(
            kind="hints",
            file=seen.path(group.file),
            title=f"{aggregators} of {seen.trace.ranks} ranks make all requests of the collective {group.op}s.",
            lost=seen.spent(group.rows, 1 - aggregators / wanted),
            evidence=f"{format_count(len(rank))} requests are made by {aggregators} aggregators; the file system has "
            f"{servers} servers.",
            bars=(Bar("aggregators", aggregators, str(aggregators)), Bar("servers", servers, str(servers))),
            remedy=f"Use {wanted} aggregators: the hint cb_nodes.",
            command=commands.hints(seen, cb_nodes=wanted, **several),
            predict=lambda: outlook.changed(with_aggregators(aggregators), with_aggregators(wanted), "changes"),
            sure="medium",
            why="servers are taken to share the work evenly",
        )
    largest = int(length.max())
    exchanged = group.bytes / max(len(group.rows) / max(seen.trace.ranks, 1), 1) / aggregators
    if largest < SMALL_BUFFER and exchanged >= 2 * largest:
        buffer = seen.cluster.collective_buffer
        yield Draft(
            kind="hints",
            file=seen.path(group.file),
            title=f"Aggregators make requests of at most {format_bytes(largest)}.",
            lost=seen.spent(group.rows, 1 - largest / min(exchanged, buffer)),
            evidence=f"A collective call moves {format_bytes(exchanged)} for each aggregator, in "
            f"{format_count(len(length))} requests of at most {format_bytes(largest)}.",
            bars=(
                Bar("largest request", largest, format_bytes(largest)),
                Bar("bytes an aggregator", exchanged, format_bytes(exchanged)),
            ),
            remedy="Use a larger buffer: the hint cb_buffer_size.",
            command=commands.hints(seen, cb_buffer_size=buffer),
            predict=lambda: outlook.changed(with_buffer(largest), with_buffer(buffer), "changes"),
            sure="medium",
            why="the time is taken to be that of the requests' number",
        )


def _sieving(seen: Seen, outlook: Outlook, group: Group, posix: _Posix) -> Iterator[Draft]:
    """Independent writes that read, and reads that read too much."""
    read, written = (int(posix.requests(group, op)[1].sum()) for op in ("read", "write"))
    if group.op == "write" and read > READ_TOO * max(written, 1):
        yield Draft(
            kind="read-modify-write",
            file=seen.path(group.file),
            title=f"To write {format_bytes(group.bytes)}, the MPI library also reads {format_bytes(read)}.",
            lost=seen.spent(group.rows, np.maximum(_reading(seen, group), 1 - group.bytes / (read + written)))
            + seen.brought_home(group, 1 - group.bytes / max(written, group.bytes)),
            evidence=f"Data sieving reads blocks, changes pieces of them and writes {format_bytes(written)} back, "
            "under a lock.",
            bars=_moved(asked=group.bytes, read=read, written=written),
            remedy="Make the calls collective, or switch data sieving of writes off (romio_ds_write disable). A write "
            "replica needs no sieving, either (pdla run --writes close).",
            command=commands.hints(seen, romio_ds_write="disable"),
            predict=lambda: outlook.changed(as_it_is, without_sieving("write")),
        )
    elif group.op == "read" and read > SIEVED * group.bytes:
        yield Draft(
            kind="hints",
            file=seen.path(group.file),
            title=f"To read {format_bytes(group.bytes)}, the MPI library reads {format_bytes(read)}.",
            lost=seen.spent(group.rows, 1 - group.bytes / read),
            evidence=f"Data sieving reads {read / group.bytes:.3g} bytes for each that the program wants.",
            bars=_moved(asked=group.bytes, read=read, written=written),
            remedy="Make the calls collective, switch data sieving of reads off (romio_ds_read disable), or use a "
            "replica.",
            command=commands.hints(seen, romio_ds_read="disable"),
            predict=lambda: outlook.changed(as_it_is, without_sieving("read")),
        )


def _reading(seen: Seen, group: Group) -> Floats:
    """The share of each call's time that it spends in POSIX reads."""
    own = np.maximum(seen.own[group.rows], 1e-12)
    return np.minimum(seen.inside["read"][group.rows] / own, 1.0)


def _moved(*, asked: int, read: int, written: int) -> tuple[Bar, ...]:
    found = (("asked for", asked), ("read", read), ("written", written))
    return tuple(Bar(label, count, format_bytes(count)) for label, count in found if count)


def _calls(seen: Seen, rows: Int64Array, one: str, other: str) -> tuple[Bar, ...]:
    seconds = seen.slowest(rows), seen.seconds
    return (
        Bar(one, seconds[0], format_seconds(seconds[0])),
        Bar(other, seconds[1] - seconds[0], format_share(seconds[1] - seconds[0], seconds[1])),
    )
