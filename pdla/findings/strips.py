"""Findings in how requests lie on the strips of the storage: misaligned ones, and fragments.

Both need to know the strips: nothing is said of nominal storage.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pdla.findings import commands
from pdla.findings.draft import Draft
from pdla.findings.finding import Bar
from pdla.findings.outlook import Outlook, as_it_is, with_strips
from pdla.findings.seen import Bools, Floats, Group, Seen
from pdla.layouts.devices import seconds_per_byte, startup
from pdla.model import Int64Array, Op
from pdla.policies.cached_writes import Fragments
from pdla.units import KiB, MiB, format_bytes, format_share

FRAGMENT = 20 * KiB
"""A part of a request below this size is a fragment if the rest is larger (iBridge 3.2: the threshold of its tests)."""

MANY = 0.3
"""From this share of the requests on they are reported."""

MOST_STRIP = 16 * MiB


def detect(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """One draft at most for each file and operation, of requests that are at least half a strip."""
    cluster = seen.cluster
    if seen.is_nominal or cluster.home_servers < 2:
        return
    for group in seen.groups:
        large = group.length >= cluster.home_strip // 2
        if group.collective or large.mean() < MANY:
            continue
        head = -group.offset % cluster.home_strip
        tail = group.stop % cluster.home_strip
        several = large & (head < group.length)  # the request lies on more than one strip
        rest = np.where(head > 0, head, group.length)
        smallest = np.minimum(np.where(head > 0, head, rest), np.where(tail > 0, tail, rest))
        fragments = several & (smallest < FRAGMENT) & (group.length > 2 * smallest)
        share = np.where(fragments, _part_of(seen, group, smallest), 0.0)
        needed = -(-group.length // cluster.home_strip)
        touched = (group.stop - 1) // cluster.home_strip - group.offset // cluster.home_strip + 1
        more = large & (touched > needed)
        # Fragments that are gone if requests are aligned are not reported apart.
        if more.mean() >= MANY:
            yield _misaligned(seen, outlook, group, more, 1 - needed / touched)
        elif fragments.mean() >= MANY:
            yield _fragments(seen, outlook, group, fragments, share)


def _misaligned(seen: Seen, outlook: Outlook, group: Group, more: Bools, excess: Floats) -> Draft:
    strip = seen.cluster.home_strip
    size = int(np.median(group.length))
    better = 1 << (size - 1).bit_length()
    enacted = better if size == better and strip < better <= MOST_STRIP else 0
    return Draft(
        kind="misaligned",
        file=seen.path(group.file),
        title=f"{format_share(int(more.sum()), len(more))} of the {group.op}s lie on one strip more than they need.",
        lost=seen.moved(group, _of_calls(group, np.where(more, excess, 0.0))),
        evidence=f"The strips have {format_bytes(strip)}, the median request {format_bytes(size)}: each of these "
        "requests needs one more server, and one more lock.",
        bars=_share_bars(more, "crossing", "aligned"),
        remedy="Begin requests at multiples of the strip: pad them (H5Pset_alignment), or choose strips that fit "
        "(lfs setstripe -S, the hint striping_unit).",
        command=commands.hints(seen, striping_unit=enacted) if enacted else "",
        predict=lambda: outlook.changed(as_it_is, with_strips(enacted)) if enacted else None,
        sure="medium",
        why="the time is the share of servers that aligned requests would not need",
    )


def _part_of(seen: Seen, group: Group, fragment: Int64Array) -> Floats:
    """The share of its devices' time that a request's fragment takes; each part has a start-up of its own."""
    home = seen.cluster.pool(seen.cluster.home_pool)
    begin, byte = startup(home, np.inf, _op(group)), seconds_per_byte(home, _op(group))
    own, rest = (begin + size * byte for size in (fragment, group.length - fragment))
    taken: Floats = own / np.maximum(own + rest, 1e-12)
    return taken


def _op(group: Group) -> Op:
    return "write" if group.op == "write" else "read"


def _fragments(seen: Seen, outlook: Outlook, group: Group, fragments: Bools, share: Floats) -> Draft:
    return Draft(
        kind="fragments",
        file=seen.path(group.file),
        title=f"{format_share(int(fragments.sum()), len(fragments))} of the {group.op}s leave a fragment on one more "
        "server.",
        lost=seen.moved(group, _of_calls(group, share)),
        evidence=f"Parts of less than {format_bytes(FRAGMENT)} lie on another strip of "
        f"{format_bytes(seen.cluster.home_strip)} than the rest; the request waits for the slower server.",
        bars=_share_bars(fragments, "with a fragment", "without"),
        remedy="Align the requests with the strips, or serve the fragments from SSDs (iBridge).",
        command=commands.policy(seen, "ibridge"),
        predict=lambda: outlook.on_ssds(Fragments, group.op),
        sure="medium",
        why="a fragment's share of the time is that which its device takes, as cluster.toml describes it",
    )


def _of_calls(group: Group, share: Floats) -> Floats:
    """The mean of the shares of each call's requests, weighted by their bytes."""
    weights = np.bincount(group.call, group.length, minlength=len(group.rows))
    return np.bincount(group.call, group.length * share, minlength=len(group.rows)) / np.maximum(weights, 1)


def _share_bars(which: Bools, with_it: str, without: str) -> tuple[Bar, ...]:
    counts = int(which.sum()), int((~which).sum())
    return tuple(
        Bar(label, count, format_share(count, len(which)))
        for label, count in zip((with_it, without), counts, strict=True)
    )
