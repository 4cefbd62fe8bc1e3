"""The runs of a catalog, as a picture and as a table of the programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from pdla.report.style import INK, OP_COLOURS, WIDTH, one_axes
from pdla.report.text import shorten
from pdla.units import format_bytes, format_count

if TYPE_CHECKING:
    from datetime import datetime

    from pdla.catalog import Run

MOST_PROGRAMS = 12  # in the picture and in the table: those that move most bytes
HEADERS = ("program", "ranks", "runs", "bytes", "requests", "bytes of a request", "last run")
ALIGN = "wrrrrrr"
_LARGEST = 400.0  # area of the dot of the run that moves most bytes, points


def by_program(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs of each program with a number of ranks, in their order; those that move most bytes in all come first."""
    programs: dict[int, list[Run]] = {}
    for run in runs:
        programs.setdefault(run.application, []).append(run)
    return sorted(programs.values(), key=lambda some: -sum(run.bytes for run in some))


def program_rows(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each program with ``HEADERS``."""
    rows = []
    for some in by_program(runs)[:MOST_PROGRAMS]:
        size, requests = sum(run.bytes for run in some), sum(run.requests for run in some)
        last = max((_local(run.started) for run in some if run.started), default=None)
        rows.append(
            [
                some[0].command,
                format_count(some[0].ranks),
                format_count(len(some)),
                format_bytes(size),
                format_count(requests),
                format_bytes(size / requests) if requests else "-",
                f"{last:%Y-%m-%d %H:%M}" if last else "-",
            ]
        )
    return rows


def runs_picture(runs: Sequence[Run]) -> Figure:
    """When each program ran: a dot for each run whose start is known, its area in proportion to the bytes moved."""
    programs = by_program([run for run in runs if run.started])[:MOST_PROGRAMS]
    figure = Figure(figsize=(WIDTH, 0.7 + 0.4 * max(len(programs), 1)), layout="constrained")
    axes = one_axes(figure)
    most = max((run.bytes for some in programs for run in some), default=1)
    for place, some in enumerate(programs):
        times = np.array([_local(run.started) for run in some if run.started], "datetime64[s]")
        areas = [max(_LARGEST * run.bytes / max(most, 1), 4.0) for run in some]
        axes.scatter(times, [place] * len(some), areas, color=OP_COLOURS["read"], alpha=0.6, linewidths=0)
    axes.set_yticks(
        range(len(programs)), [shorten(f"{some[0].command}, {some[0].ranks} ranks", 48) for some in programs]
    )
    axes.set_ylim(max(len(programs), 1) - 0.5, -0.5)
    axes.xaxis.set_major_locator(locator := AutoDateLocator())  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"start of the run; the largest dot is {format_bytes(most)}", color=INK, fontsize=9)
    axes.grid(axis="y", visible=False)
    return figure


def _local(time: datetime) -> datetime:
    """The local time, without its time zone."""
    return time.astimezone().replace(tzinfo=None)
