"""The results of simulated schemes: as tables, as pictures, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdla.atomic_files import replacing
from pdla.report.text import paragraph, table
from pdla.units import counted, format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pdla.simulator.scheme_comparison import Contest
    from pdla.simulator.sweep import Point

HEADERS = ("scheme", "I/O", "MB/s", "speed-up", "space", "requests", "wait", "refused")
ALIGN = "lrrrlrrr"


def scheme_rows(schemes: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each of these results (docs/json.md), the fastest first, with ``HEADERS``."""
    return [
        [
            one["scheme"],
            format_seconds(one["seconds"]),
            f"{one['bandwidth'] / 1e6:,.1f}",
            "-" if one["speedup"] is None else f"{one['speedup']:.2f}",
            ", ".join(f"{format_bytes(size)} {pool}" for pool, size in one["space"].items() if size) or "-",
            format_count(one["subrequests"]),
            format_seconds(one["wait"]),
            format_count(one["refused"]),
        ]
        for one in sorted(schemes, key=lambda one: float(one["seconds"]))
    ]


def notes(contest: Contest) -> list[str]:
    """Sentences about what the rows do not show."""
    found = [f"{one.scheme} is not simulated: {one.why}." for one in contest.absent]
    for one in contest.results:
        if one.stuck:
            found.append(f"{one.scheme}: not all ranks took part in {counted(one.stuck, 'collective call')}.")
        if one.settled > one.until:
            found.append(f"{one.scheme} works in the background for another {format_seconds(one.settled - one.until)}.")
        most = max(one.reasons.items(), key=lambda pair: pair[1], default=None)
        if most:
            found.append(f"{one.scheme}: {counted(one.refused, 'wish')} refused, mostly {most[0]!r}.")
    return found


def contest_text(contest: Contest, cluster: str) -> str:
    """The table of a comparison, and the notes on it."""
    head = f"Simulated on {cluster}: seconds in which a rank was in an I/O call; space is what copies take."
    parts = [paragraph(head), table(HEADERS, scheme_rows(contest_json(contest)["schemes"]), ALIGN)]
    return "\n\n".join([*parts, *(["\n".join(paragraph(note) for note in found)] if (found := notes(contest)) else [])])


def sweep_text(key: str, points: Sequence[Point]) -> str:
    """Bandwidths in MB/s: a row for each scheme, a column for each value."""
    names = _schemes(points)
    rows = []
    for name in names:
        found = [next((one for one in point.contest.results if one.scheme == name), None) for point in points]
        rows.append([name, *(f"{one.bandwidth / 1e6:,.1f}" if one else "-" for one in found)])
    return f"{key} (MB/s)\n\n" + table(["scheme", *(point.value for point in points)], rows, "l" + "r" * len(points))


def _schemes(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(one.scheme for point in points for one in point.contest.results))


def contest_json(contest: Contest) -> dict[str, Any]:
    """Plain values (docs/json.md)."""
    return {
        "schemes": [{**one.to_json(), "speedup": contest.speedup(one)} for one in contest.results],
        "absent": [{"scheme": one.scheme, "why": one.why} for one in contest.absent],
    }


def sweep_json(key: str, points: Sequence[Point]) -> dict[str, Any]:
    """Plain values."""
    return {"key": key, "points": [{"value": point.value, **contest_json(point.contest)} for point in points]}


def contest_picture(contest: Contest) -> Figure:
    """Bars of the bandwidths, the fastest scheme on top."""
    from matplotlib.figure import Figure

    from pdla.report.style import WIDTH

    ordered = sorted(contest.results, key=lambda one: -one.seconds)
    figure = Figure((WIDTH, 0.6 + 0.32 * len(ordered)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh([one.scheme for one in ordered], [one.bandwidth / 1e6 for one in ordered], color="#3f90da")
    speedups = [contest.speedup(one) for one in ordered]
    axes.bar_label(bars, ["" if speedup is None else f"{speedup:.2f} x" for speedup in speedups], padding=3)
    axes.set_xlabel("MB/s (and speed-up over none)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def sweep_picture(swept: Sequence[tuple[str, Sequence[Point]]]) -> Figure:
    """A panel for each sweep: the bandwidth of every scheme over the values."""
    from matplotlib.figure import Figure

    from pdla.report.style import WIDTH

    figure = Figure((WIDTH, 3.6 * len(swept)), layout="constrained")
    for number, (key, points) in enumerate(swept):
        _panel(figure.add_subplot(len(swept), 1, number + 1), key, points)
    return figure


def _panel(axes: Axes, key: str, points: Sequence[Point]) -> None:
    from pdla.report.style import PALETTE

    values = [point.value for point in points]
    for number, name in enumerate(_schemes(points)):
        found = [next((one for one in point.contest.results if one.scheme == name), None) for point in points]
        bandwidth = [one.bandwidth / 1e6 if one else float("nan") for one in found]
        style = "-" if number < len(PALETTE) else "--"
        axes.plot(values, bandwidth, style, marker="o", color=PALETTE[number % len(PALETTE)], label=name)
    axes.set(xlabel=key, ylabel="MB/s", ylim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format that the file's name gives.

    Raises:
        PdlaError: the file cannot be written.
    """
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower())
