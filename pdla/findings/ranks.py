"""Findings in how the work and its time are spread over the ranks: imbalance, and stragglers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pdla.findings.draft import Draft
from pdla.findings.finding import Bar
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Floats, Seen, turns
from pdla.model import Int64Array
from pdla.units import counted, format_bytes, format_seconds

UNEVEN = 1.5
"""Work or time is uneven if the rank with the most has so many times the mean."""

OUTLYING = 10
"""A call is an outlier if it takes so many times the median of its group, scaled by its bytes."""

LASTING = 0.5
"""Lateness stays with a rank from this share of the waiting on that is for it, beyond its share by chance."""

MOST_BARS = 32


def detect(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """Imbalance if the work is uneven, otherwise stragglers; and ranks that come late to collective calls."""
    if seen.trace.ranks < 2 or not len(seen.own):
        return
    moved, requests = np.zeros(seen.trace.ranks), np.zeros(seen.trace.ranks)
    for group in seen.groups:
        moved += np.bincount(group.rank, group.length, minlength=len(moved))
        requests += np.bincount(group.rank, minlength=len(moved))
    yield from _late(seen)
    if moved.max() >= UNEVEN * moved.mean() > 0:
        yield from _imbalance(seen, moved, "bytes", format_bytes)
    elif requests.max() >= UNEVEN * requests.mean() > 0:
        yield from _imbalance(seen, requests, "requests", lambda number: counted(round(number), "request"))
    else:
        yield from _slow_rank(seen)
        yield from _outliers(seen)


def _imbalance(seen: Seen, work: Floats, what: str, amount: Callable[[float], str]) -> Iterator[Draft]:
    """Some ranks do much more than others, and take longer in the calls that do it: in others they may only wait."""
    most, seconds = int(work.argmax()), seen.spent(seen.is_data)
    slowest, mean = int(seconds.argmax()), float(seconds.mean())
    idle = int(np.count_nonzero(work == 0))
    if work[slowest] < UNEVEN * work.mean():
        return  # others take the time
    yield Draft(
        kind="imbalance",
        file="",
        title=f"Rank {most} has {work[most] / work.mean():.3g} times as many {what} as the mean rank"
        + (f", and {idle} of {len(work)} ranks have none." if idle else "."),
        lost=(seconds - mean).clip(0),
        evidence=f"It has {amount(work[most])}, the mean rank {amount(work.mean())}; rank {slowest} spends "
        f"{format_seconds(seconds[slowest])} in reads and writes, the mean rank {format_seconds(mean)}.",
        bars=_by_rank(seconds),
        remedy=f"Share the {what} evenly among the ranks; if one rank reads or writes for all, use collective calls.",
    )


def _slow_rank(seen: Seen) -> Iterator[Draft]:
    """A rank that takes longer for the same work, in independent calls."""
    seconds = np.zeros(seen.trace.ranks)
    for group in seen.groups:
        if not group.collective:
            seconds += np.bincount(seen.rank[group.rows], seen.own[group.rows], minlength=len(seconds))
    slowest, mean = int(seconds.argmax()), float(seconds.mean())
    if seconds[slowest] >= UNEVEN * mean > 0:
        yield Draft(
            kind="straggler",
            file="",
            title=f"Rank {slowest} takes {seconds[slowest] / mean:.3g} times as long as the mean rank for its bytes.",
            lost=(seconds - mean).clip(0),
            evidence=f"It spends {format_seconds(seconds[slowest])} in independent calls, the mean rank "
            f"{format_seconds(mean)}.",
            bars=_by_rank(seconds),
            remedy="Look at its node and at the servers that it uses: a slow device, a full one, or one that others "
            "use. If the same rank is slow in each run, move it to another node.",
        )


def _outliers(seen: Seen) -> Iterator[Draft]:
    """Single independent calls that take much longer than others of as many bytes."""
    for group in seen.groups:
        if group.collective or len(group.rows) < 2 * OUTLYING:
            continue
        seconds = seen.own[group.rows]
        size = np.bincount(group.call, group.length, minlength=len(group.rows))
        usual = np.median(seconds) * np.maximum(size / np.median(size), 1)
        far = (seconds > OUTLYING * usual) & (2 * size >= np.median(size))  # small ones are a finding of their own
        share = np.where(far, 1 - usual / np.maximum(seconds, 1e-12), 0.0)
        number = int(far.sum())
        if 0 < number <= len(far) / OUTLYING:
            yield Draft(
                kind="straggler",
                file=seen.path(group.file),
                title=f"{number} of {len(far):,} {group.op}s take up to {seconds.max() / np.median(seconds):,.0f} "
                "times as long as the median one.",
                lost=seen.spent(group.rows, share),
                evidence=f"The longest takes {format_seconds(float(seconds.max()))}, the median "
                f"{format_seconds(float(np.median(seconds)))}.",
                bars=(
                    Bar("median", float(np.median(seconds)), format_seconds(float(np.median(seconds)))),
                    Bar("longest", float(seconds.max()), format_seconds(float(seconds.max()))),
                ),
                remedy="Look at what the servers did at that time: other programs, a full cache that is written out, a "
                "lock. The picture of the file shows when.",
                sure="medium",
                why="calls of this length were measured in a single run, which does not say whether they recur",
            )


def _late(seen: Seen) -> Iterator[Draft]:
    """Ranks that come late to collective calls, in which all others wait for them."""
    waits = np.zeros(len(seen.own))
    last = np.zeros(seen.trace.ranks)
    for group in seen.groups:
        if group.collective and (turn := turns(seen.rank[group.rows])) is not None:
            starts = seen.start[group.rows]
            latest = np.zeros(int(turn.max()) + 1)
            np.maximum.at(latest, turn, starts)
            wait = np.minimum(latest[turn] - starts, seen.own[group.rows])
            # Who left the call before late is not late by itself, nor who made other calls: only what it computed in
            # between counts.
            pause = np.append(starts[0], starts[1:] - seen.end[group.rows][:-1] - _between(seen, group.rows)).clip(0)
            longest = np.zeros(len(latest))
            np.maximum.at(longest, turn, pause)
            wait = np.minimum(wait, (longest[turn] - pause).clip(0)) * (turn > 0)
            waits[group.rows] = wait
            waited = np.bincount(turn, wait, minlength=len(latest))
            np.add.at(last, seen.rank[group.rows][wait == 0], waited[turn][wait == 0])
    lost = np.bincount(seen.rank, waits, minlength=seen.trace.ranks).astype(np.float64)
    costs = float(lost.max(initial=0.0))
    if costs <= 0:
        return
    draft = Draft(
        kind="straggler",
        file="",
        title=f"Ranks wait for others in collective calls, most for rank {int(last.argmax())}.",
        lost=lost,
        evidence=f"A rank waits up to {format_seconds(costs)} in all for the last one to make the same call.",
        bars=_by_rank(lost),
        remedy="The time is not I/O: balance what the ranks compute before the calls, or let them be nonblocking.",
    )
    chance = 1 / np.count_nonzero(np.bincount(seen.rank[seen.is_data]))
    if last.max() / last.sum() < chance + LASTING * (1 - chance):
        draft = replace(
            draft,
            title="Ranks wait for others in collective calls, each time for another one.",
            remedy="The time is not I/O. Give each rank a core of its own (the launcher's option for binding); if they "
            "have one, what they compute varies: let the calls be nonblocking.",
            sure="low",
            why="ranks that share a core, or other work on the nodes, are late in this way, too",
        )
    yield draft


def _between(seen: Seen, rows: Int64Array) -> Floats:
    """The seconds in I/O of the calls between each of these records and the next one of them."""
    until = np.cumsum(seen.own)
    return (until[rows[1:] - 1] - until[rows[:-1]]).astype(np.float64)


def _by_rank(seconds: Floats) -> tuple[Bar, ...]:
    """A bar for each rank, or for each group of neighbouring ranks its slowest one."""
    per_bar = -(-len(seconds) // MOST_BARS)
    firsts = np.arange(0, len(seconds), per_bar)
    slowest = np.maximum.reduceat(seconds, firsts)
    return tuple(
        Bar(
            f"{first}-{min(first + per_bar, len(seconds)) - 1}" if per_bar > 1 else str(first),
            value,
            format_seconds(value),
        )
        for first, value in zip(firsts.tolist(), slowest.tolist(), strict=True)
    )
