"""Findings in the sizes and places of requests: small ones, strided ones, and those of several ranks that interleave.

Each file and operation has at most one of these. The first that holds is taken: they have the same
calls, and what mends one mends those behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pdla.findings import commands
from pdla.findings.draft import Draft
from pdla.findings.finding import Bar
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Bools, Floats, Group, Seen, turns, union
from pdla.policies.cached_writes import CriticalWrites
from pdla.units import KiB, MiB, counted, format_bytes, format_count, format_seconds, format_share, ranks_text

SMALL = 64 * KiB
"""Requests below this size are small: the transfer takes less than the start-up on a disk, and less than a round trip
and a lock on most parallel file systems."""

MEDIUM = MiB
"""Requests of several ranks that interleave cost seeks up to this size; larger ones amortize them."""

DENSE = 0.8
"""Requests of all ranks together are nearly contiguous from this share of bytes of their extent on."""

ALTERNATING = 0.5
"""Ranks interleave if so many neighbours in the file, or more, belong to different ranks."""

REGULAR, MOST_STEPS = 0.5, 3
"""Requests are strided if ``MOST_STEPS`` gaps, or fewer, are this share of all."""

FEW = 0.05
"""Small collective calls are metadata among large ones if they move at most this share of the bytes."""

TOGETHER = 0.3
"""Ranks work at the same time if each is busy for this share of the whole, on average."""


def detect(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """One draft at most for each group of calls."""
    for group in seen.groups:
        if group.collective:
            yield from _collective(seen, outlook, group)
            yield from _metadata(seen, group)
            continue
        size = group.mean_length()
        small = size < SMALL
        mixed = _interleaved(seen, group)
        costs = float(seen.moved(group, calls=small).max(initial=0.0))
        requests = small[group.call]
        if mixed and costs >= seen.moved(group).max() / 2:
            yield _independent(seen, outlook, group)
        elif mixed and float(np.median(size)) < MEDIUM:
            yield _seeks(seen, outlook, group)
        elif _strided(group, requests):
            yield _small_strided(seen, outlook, group, small)
        elif requests.any():
            yield _small(seen, outlook, group, small, costs)


def _independent(seen: Seen, outlook: Outlook, group: Group) -> Draft:
    return _by_replica(
        *(seen, outlook, group),
        kind="independent",
        title=f"{_requests(group)} are independent, but those of all ranks together are contiguous.",
        lost=seen.moved(group),
        evidence=f"{format_count(len(group.rows))} independent calls move {format_bytes(group.bytes)}, "
        f"{format_bytes(group.bytes / len(group.length))} a request; neighbours in the file belong to different ranks.",
        remedy=f"Make the {group.op}s collective: MPI_File_{group.op}_all through a view, or H5FD_MPIO_COLLECTIVE in "
        "HDF5. Without a change to the program: a replica.",
    )


def _seeks(seen: Seen, outlook: Outlook, group: Group) -> Draft:
    return _by_replica(
        *(seen, outlook, group),
        kind="interleaved",
        title=f"{_requests(group)} interleave: each rank works in order, but the storage must seek.",
        lost=seen.moved(group),
        evidence=f"{format_share(_alternating(group), 1)} of the neighbours in the file belong to different ranks; the "
        f"median request has {format_bytes(float(np.median(group.length)))}.",
        remedy="Give each rank one contiguous segment of the file, make the calls collective, or use a replica in the "
        "order of access.",
    )


def _small_strided(seen: Seen, outlook: Outlook, group: Group, small: Bools) -> Draft:
    number = int(small[group.call].sum())
    stride = _common_gap(group)
    return _by_replica(
        *(seen, outlook, group),
        kind="small-strided",
        title=f"{_requests(group)} are small and strided.",
        lost=seen.moved(group, calls=small),
        evidence=f"{format_count(number)} requests of {format_bytes(_mean(group, small))} on average, most of them "
        f"{format_bytes(abs(stride))} {'behind' if stride > 0 else 'before'} the end of the same rank's previous one.",
        remedy="Use a replica in the order of access; or change the program to read and write larger pieces, or make "
        "the calls collective.",
    )


def _by_replica(
    seen: Seen, outlook: Outlook, group: Group, *, kind: str, title: str, lost: Floats, evidence: str, remedy: str
) -> Draft:
    """What a replica mends without a change to the program, and collective calls with one."""
    return Draft(
        kind=kind,
        file=seen.path(group.file),
        title=title,
        lost=lost,
        evidence=evidence,
        bars=_sizes(seen, group),
        remedy=remedy,
        command=commands.replicas(seen) if outlook.has_replicas else "",
        predict=outlook.aligned,
    )


def _small(seen: Seen, outlook: Outlook, group: Group, small: Bools, costs: float) -> Draft:
    requests = small[group.call]
    number, moved = int(requests.sum()), int(group.length[requests].sum())
    sequential = _sequential(group)
    few = number < len(requests) / 2
    if few:
        remedy = (
            "If these are metadata of HDF5: H5Pset_coll_metadata_write, H5Pset_all_coll_metadata_ops and a larger "
            "H5Pset_meta_block_size. Otherwise have one rank make them, or collect them."
        )
    elif sequential:
        remedy = "Collect them in a buffer of some MiB, and make one call of it."
    else:
        remedy = "Sort them, or collect them by place; on SSDs random requests cost less (pdla run --policy s4d)."
    return Draft(
        kind="small",
        file=seen.path(group.file),
        title=_small_calls(seen, group, number, "small", costs),
        lost=seen.moved(group, calls=small),
        evidence=f"They have {format_bytes(moved)} in all, {format_share(moved, group.bytes)} of the bytes of the "
        f"{group.op}s, and take {format_share(costs, float(seen.moved(group).max()))} of their time.",
        bars=_sizes(seen, group),
        remedy=remedy,
        command="" if few or sequential else commands.policy(seen, "s4d"),
        predict=lambda: None if few or sequential else outlook.on_ssds(CriticalWrites, group.op),
    )


def _collective(seen: Seen, outlook: Outlook, group: Group) -> Iterator[Draft]:
    """Small or strided pieces in collective calls, if replicas of them are planned."""
    path = seen.path(group.file)
    planned = any(
        one.choice.layout and (one.signature.file, one.signature.op, one.signature.collective) == (path, group.op, True)
        for one in seen.plan.patterns
    )
    pieces = len(group.length) > len(group.rows) or float(np.median(group.length)) < SMALL
    if planned and pieces:
        yield _by_replica(
            *(seen, outlook, group),
            kind="small-strided",
            title=f"{_requests(group)} are pieces that the ranks exchange in collective calls.",
            lost=seen.moved(group),
            evidence=f"{format_count(len(group.rows))} collective calls move {format_count(len(group.length))} pieces "
            f"of {format_bytes(group.bytes / len(group.length))}.",
            remedy="Use a replica in the order of access: then nothing has to be exchanged.",
        )


def _metadata(seen: Seen, group: Group) -> Iterator[Draft]:
    """Small collective calls among large ones: those in which no rank moves much."""
    rows = np.flatnonzero(seen.key == group.key)
    rows = rows[seen.is_data[rows]]  # also calls of ranks that only take part
    length = seen.trace.records["length"].to_numpy(np.int64)[rows]
    turn = turns(seen.rank[rows])
    if turn is None:
        return
    most = np.zeros(int(turn.max()) + 1, np.int64)
    np.maximum.at(most, turn, length)
    small = most[turn] < SMALL
    number, moved, costs = int((length[small] > 0).sum()), int(length[small].sum()), seen.slowest(rows[small])
    if not 0 < moved <= FEW * group.bytes:
        return
    together = "H5Pset_coll_metadata_write" if group.op == "write" else "H5Pset_all_coll_metadata_ops"
    yield Draft(
        kind="small",
        file=seen.path(group.file),
        title=_small_calls(seen, group, number, "small collective", costs),
        lost=seen.spent(rows[small]),
        evidence=f"They have {format_bytes(moved)} in all, {format_share(moved, group.bytes)} of the bytes of the "
        f"collective {group.op}s, and take {format_share(costs, seen.slowest(rows))} of their time.",
        bars=(
            Bar("small calls", costs, format_seconds(costs)),
            Bar("large calls", large := seen.slowest(rows[~small]), format_seconds(large)),
        ),
        remedy="If these are metadata of HDF5, make them few and large: a larger H5Pset_meta_block_size, "
        f"H5Pset_libver_bounds with H5F_LIBVER_LATEST, and all at once ({together}). Otherwise gather them on one "
        "rank, which makes one call.",
    )


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _interleaved(seen: Seen, group: Group) -> bool:
    """Whether the requests of several ranks, made at the same time, alternate in the file and together fill it."""
    ranks = np.unique(group.rank)
    if len(ranks) < 2 or len(group.length) < 2 * len(ranks) or _alternating(group) < ALTERNATING:
        return False
    start, stop = group.offset[group.order], group.stop[group.order]
    covered = union(start, stop)
    if covered < DENSE * (int(stop.max()) - int(start[0])) or covered < DENSE * group.bytes:
        return False
    begin, end, rank = seen.start[group.rows], seen.end[group.rows], seen.rank[group.rows]
    first, last = np.full(int(rank.max()) + 1, np.inf), np.full(int(rank.max()) + 1, -np.inf)
    np.minimum.at(first, rank, begin)
    np.maximum.at(last, rank, end)
    spans = (last - first)[ranks]
    whole = float(end.max() - begin.min())
    return whole == 0 or float(spans.mean()) >= TOGETHER * whole


def _alternating(group: Group) -> float:
    """The share of neighbours in the file that belong to different ranks."""
    ranks = group.rank[group.order]
    return float(np.mean(ranks[1:] != ranks[:-1])) if len(ranks) > 1 else 0.0


def _sequential(group: Group) -> bool:
    return bool(len(group.follows)) and float(np.mean(group.follows == 0)) >= REGULAR


def _strided(group: Group, small: Bools) -> bool:
    """Whether most requests are small and follow each other in a few steps, with gaps."""
    if small.mean() < REGULAR or len(group.follows) < 2 or _sequential(group):
        return False
    _, counts = np.unique(group.follows, return_counts=True)
    return float(np.sort(counts)[-MOST_STEPS:].sum()) >= REGULAR * len(group.follows)


def _common_gap(group: Group) -> int:
    gaps, counts = np.unique(group.follows[group.follows != 0], return_counts=True)
    return int(gaps[counts.argmax()])


def _mean(group: Group, small: Bools) -> float:
    return float(group.length[small[group.call]].mean())


def _requests(group: Group) -> str:
    """The subject of a title.

    >>> nothing = np.zeros(3, np.int64)
    >>> _requests(Group(0, "write", False, nothing, nothing, np.arange(3), nothing, nothing))
    '3 writes by ranks 0-2'
    """
    ranks = np.unique(group.rank).tolist()
    noun = f"{group.op}{'' if len(group.length) == 1 else 's'}"
    who = f"{format_count(len(ranks))} ranks" if len(ranks) > 8 else f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"
    return f"{format_count(len(group.length))} {noun} by {who}"


def _small_calls(seen: Seen, group: Group, number: int, what: str, costs: float) -> str:
    """A title with their number and cost."""
    calls, take = counted(number, f"{what} {group.op}"), "takes" if number == 1 else "take"
    return f"{calls} of {Path(seen.path(group.file)).name} {take} {format_seconds(costs)} of the slowest rank."


def _sizes(seen: Seen, group: Group) -> tuple[Bar, ...]:
    """The seconds that calls of small, medium and large requests take of the slowest rank."""
    size: Floats = group.mean_length()
    classes = (
        (f"below {format_bytes(SMALL)}", size < SMALL),
        (f"up to {format_bytes(MEDIUM)}", (size >= SMALL) & (size < MEDIUM)),
        (f"{format_bytes(MEDIUM)} and more", size >= MEDIUM),
    )
    found = ((name, seen.slowest(group.rows[which])) for name, which in classes)
    return tuple(Bar(name, seconds, format_seconds(seconds)) for name, seconds in found)
