"""Findings in bytes that are moved in vain: read again, read back, or overwritten or deleted before they were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from pdla.findings.draft import Draft
from pdla.findings.finding import Bar
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Floats, Group, Seen, union
from pdla.model import Int64Array
from pdla.units import format_bytes, format_seconds, format_share

AGAIN = 0.2
"""Bytes that are moved more than once are reported from this share of the bytes on."""


def detect(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """For each file that is read, or written, what is moved more than once."""
    # Groups are in the order of their files.
    for _, groups in groupby(seen.groups, lambda group: group.file):
        of_file = list(groups)
        reads, writes = ([group for group in of_file if group.op == op] for op in ("read", "write"))
        if reads:
            yield from _read_again(seen, reads)
        if reads and writes:
            yield from _read_back(seen, reads, writes)
        if writes:
            yield from _unread(seen, reads, writes)


def _read_again(seen: Seen, reads: Sequence[Group]) -> Iterator[Draft]:
    """By the same rank, or independently by several."""
    total = sum(group.bytes for group in reads)
    rank, start, stop = _requests(reads)
    own = _distinct_by_rank(rank, start, stop)
    alone = [group for group in reads if not group.collective]
    if total - own >= AGAIN * total:
        again = (total - own) / total
        yield Draft(
            kind="re-read",
            file=seen.path(reads[0].file),
            title=f"{format_share(total - own, total)} of the bytes read have been read before by the same rank.",
            lost=seen.spent(_rows(reads), again),
            evidence=f"The ranks read {format_bytes(total)}, but only {format_bytes(own)} of it are different.",
            bars=_bars(("read", total), ("different", own)),
            remedy="Read them once and keep them in memory; if they do not fit, a replica makes the later reads cheap.",
        )
    elif alone and not _may_have_holes(alone):
        rank, start, stop = _requests(alone)
        own, distinct = _distinct_by_rank(rank, start, stop), _distinct(start, stop)
        if own - distinct >= AGAIN * own and distinct:
            yield Draft(
                kind="re-read",
                file=seen.path(reads[0].file),
                title=f"Each byte is read by {own / distinct:.3g} ranks on average.",
                lost=seen.spent(_rows(alone), 1 - distinct / own),
                evidence=f"The ranks read {format_bytes(own)} of {format_bytes(distinct)} of the file, independently.",
                bars=_bars(("read", own), ("of the file", distinct)),
                remedy="Let one rank read and broadcast (MPI_Bcast), or make the calls collective: then the MPI "
                "library reads each byte once.",
            )


def _read_back(seen: Seen, reads: Sequence[Group], writes: Sequence[Group]) -> Iterator[Draft]:
    """Bytes that the run has written itself."""
    begun, written = _times(seen, reads)[0], _times(seen, writes)[1]
    _, start, stop = _requests(reads)
    _, first, last = _requests(writes)
    # Of several writes to a place the earliest is the last of them in this order.
    order = np.lexsort((-written, first))
    found = np.searchsorted(first[order], start, side="right") - 1
    near = order[np.maximum(found, 0)]
    back = (found >= 0) & (last[near] > start) & (written[near] <= begun)
    total, again = int((stop - start).sum()), int((stop - start)[back].sum())
    if again >= AGAIN * total:
        lost, at = np.zeros(len(seen.by_rank)), 0
        for group in reads:
            part = back[at : at + len(group.length)]
            share = np.bincount(group.call, group.length * part, minlength=len(group.rows))
            whole = np.bincount(group.call, group.length, minlength=len(group.rows))
            lost += seen.spent(group.rows, share / np.maximum(whole, 1))
            at += len(group.length)
        yield Draft(
            kind="write-then-read",
            file=seen.path(reads[0].file),
            title=f"{format_bytes(again)} are read back that the run has written itself.",
            lost=lost,
            evidence=f"They are {format_share(again, total)} of the bytes read of this file, and take "
            f"{format_seconds(float(lost.max()))} of the slowest rank.",
            bars=_bars(("read", total), ("written before", again)),
            remedy="Keep them in memory or send them by messages. If the file is only scratch space, put it on the "
            "nodes' own devices.",
        )


def _unread(seen: Seen, reads: Sequence[Group], writes: Sequence[Group]) -> Iterator[Draft]:
    """Bytes that are written again, or deleted, and not read before."""
    total = sum(group.bytes for group in writes)
    rank, start, stop = _requests(writes)
    begun = _times(seen, writes)[0]
    deleted = float(seen.deletions(writes[0].file).max(initial=-np.inf))
    left = begun >= deleted
    kept = (
        _distinct_by_rank(rank[left], start[left], stop[left])
        if _may_have_holes(writes)
        else _distinct(start[left], stop[left])
    )
    until = max(float(begun.max()), deleted)
    read = sum(int(group.length[seen.start[group.rows][group.call] < until].sum()) for group in reads)
    unread = total - kept - read
    if unread >= AGAIN * total:
        again = _distinct(start, stop) < total
        lost = "overwritten" if np.isinf(deleted) else "overwritten or deleted" if again else "deleted"
        yield Draft(
            kind="never-read",
            file=seen.path(writes[0].file),
            title=f"{format_bytes(total)} are written to {format_bytes(kept)} of the file."
            if kept
            else f"{format_bytes(total)} are written to a file that is deleted.",
            lost=sum((seen.moved(group, unread / total) for group in writes), np.zeros(len(seen.by_rank))),
            evidence=f"{format_bytes(unread)} are {lost} before the run reads them.",
            bars=_bars(("written", total), ("kept", kept)),
            remedy="If these are fill values of HDF5, switch them off: H5Pset_fill_time(H5D_FILL_TIME_NEVER), or "
            "nc_set_fill(NC_NOFILL). If a checkpoint overwrites the last one, write it less often."
            if kept
            else "Do not write what nobody reads: switch this output off, or write it less often.",
            sure="medium",
            why="a program outside the trace may have read them",
        )


def _may_have_holes(groups: Sequence[Group]) -> bool:
    """Whether bytes that several ranks seem to have may be one rank's bytes in the holes of another one's view."""
    return any("holes_unknown" in group.doubts for group in groups)


def _requests(groups: Sequence[Group]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Rank, start and stop of all requests."""
    return (
        np.concatenate([group.rank for group in groups]),
        np.concatenate([group.offset for group in groups]),
        np.concatenate([group.stop for group in groups]),
    )


def _times(seen: Seen, groups: Sequence[Group]) -> tuple[Floats, Floats]:
    """When the calls of all requests began and ended."""
    rows = np.concatenate([group.rows[group.call] for group in groups])
    return seen.start[rows], seen.end[rows]


def _rows(groups: Sequence[Group]) -> Int64Array:
    return np.concatenate([group.rows for group in groups])


def _distinct(start: Int64Array, stop: Int64Array) -> int:
    """How many different bytes these ranges have."""
    order = np.argsort(start, kind="stable")
    return union(start[order], stop[order])


def _distinct_by_rank(rank: Int64Array, start: Int64Array, stop: Int64Array) -> int:
    """The sum of the different bytes of each rank."""
    order = np.lexsort((start, rank))
    parts = np.split(order, np.flatnonzero(np.diff(rank[order])) + 1) if len(order) else []
    return sum(union(start[part], stop[part]) for part in parts)


def _bars(*counts: tuple[str, int]) -> tuple[Bar, ...]:
    return tuple(Bar(label, count, format_bytes(count)) for label, count in counts)
