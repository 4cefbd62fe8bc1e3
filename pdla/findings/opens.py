"""Findings in how files are opened and when they are written: storms of opens, and writes that could be hidden."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pdla.analyzers.phases import write_phases
from pdla.findings import commands
from pdla.findings.draft import Draft
from pdla.findings.finding import Bar
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Seen
from pdla.units import MiB, counted, format_bytes, format_count, format_seconds

MANY_OPENS = 4
"""Opens of a rank from which on they are a storm, if they take a visible part of the time."""

LONG_ENOUGH = 0.5
"""A computation can hide writes that take twice its time at most; less is what programs do between any two calls."""

LEAST_HIDDEN = MiB
"""Fewer bytes are not worth a cache."""


def detect(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """Both are of the whole run."""
    yield from _storm(seen)
    yield from _hideable(seen, outlook)


def _storm(seen: Seen) -> Iterator[Draft]:
    opened, closed = (seen.made_by(f"MPI_File_{what}") for what in ("open", "close"))
    opens = np.bincount(seen.rank[opened], minlength=1)
    if opens.max(initial=0) < MANY_OPENS:
        return
    rows = np.flatnonzero(opened | closed)
    files = np.unique(seen.file[opened])
    needed = 1 / opens.max()  # one of them is needed
    seconds = seen.slowest(rows)
    yield Draft(
        kind="open-storm",
        file=seen.path(int(files[0])) if len(files) == 1 else "",
        title=f"A rank opens {format_count(len(files))} files {format_count(int(opens.max()))} times.",
        lost=seen.spent(rows, 1 - needed),
        evidence=f"{format_count(int(opens.sum()))} opens and their closes take {format_seconds(seconds)} of the "
        "slowest rank.",
        bars=(
            Bar("open and close", seconds, format_seconds(seconds)),
            Bar("other calls", seen.seconds - seconds, format_seconds(seen.seconds - seconds)),
        ),
        remedy="Open each file once and keep it open; put the steps into one file; open it with a communicator of the "
        "ranks that use it.",
    )


def _hideable(seen: Seen, outlook: Outlook) -> Iterator[Draft]:
    """Writes after which the program computes for some time."""
    hidden = moved = 0.0
    phases = 0
    collective = False
    begins = np.sort(seen.start[seen.is_data])
    for found in write_phases(seen.trace).values():
        for phase in found:
            if phase.bytes < LEAST_HIDDEN:
                continue
            rows = seen.between(phase.t_start, phase.t_end)
            inside = rows[seen.is_data[rows] & (seen.end[rows] <= phase.t_end)]
            busy = seen.slowest(inside)
            later = np.searchsorted(begins, phase.t_end, side="left")
            until = float(begins[later]) if later < len(begins) else seen.trace.seconds or phase.t_end
            others = seen.between(phase.t_end, until)
            # What files take to be closed and opened is no pause.
            gap = until - phase.t_end - seen.slowest(others[~seen.is_data[others]])
            if gap >= LONG_ENOUGH * busy:
                hidden += min(busy, gap)
                moved += phase.bytes
                phases += 1
                collective |= bool((seen.key[inside] % 2).any())
    if not phases:
        return
    yield Draft(
        kind="hideable",
        file="",
        title=f"The program computes after {counted(phases, 'write')} of {format_bytes(moved / phases)} on average, "
        "which could go on meanwhile.",
        lost=np.full(len(seen.by_rank), hidden),
        evidence=f"{format_seconds(hidden)} of the writes could be hidden behind the computation that follows them.",
        bars=(
            Bar("can be hidden", hidden, format_seconds(hidden)),
            Bar("other I/O", seen.seconds - hidden, format_seconds(seen.seconds - hidden)),
        ),
        remedy="Cache the writes on the nodes' own devices, which bring them home meanwhile (E10)."
        if collective
        else "Use nonblocking writes (MPI_File_iwrite), or collective ones that are cached on the nodes' devices.",
        command=commands.policy(seen, "e10") if collective else "",
        predict=lambda: outlook.e10() if collective else None,
    )
