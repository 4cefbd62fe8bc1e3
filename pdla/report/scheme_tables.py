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

    from pdla.simulator.run import Result
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
    """Bars of the seconds in I/O, the fastest scheme on top.

    Bars of schemes that take many times as long as the program as it is run off the scale: others
    can be compared.
    """
    from matplotlib.figure import Figure

    from pdla.report.style import CLIPPED, FAINT, INK, OP_COLOURS, WIDTH, one_axes

    ordered = sorted(contest.results, key=lambda one: one.seconds)
    seconds = [one.seconds for one in ordered]
    usual = contest.none.seconds if contest.none else sorted(seconds)[len(seconds) // 2]
    shown = min(CLIPPED * usual, max(seconds)) or 1e-9
    figure = Figure((WIDTH, 0.7 + 0.3 * len(ordered)), layout="constrained")
    axes = one_axes(figure)
    colours = [FAINT if one.scheme == "none" else OP_COLOURS["read"] for one in ordered]
    bars = axes.barh([one.scheme for one in ordered], [min(one, shown) for one in seconds], height=0.62, color=colours)
    axes.bar_label(bars, [_label(contest, one, shown) for one in ordered], padding=5, fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * shown)
    axes.set_xlabel("seconds in I/O, simulated", color=INK, fontsize=9)
    axes.grid(axis="y", visible=False)
    return figure


def _label(contest: Contest, one: Result, shown: float) -> str:
    """The seconds of a scheme, and how many times as fast it is as the program as it is."""
    speedup = contest.speedup(one)
    parts = [
        format_seconds(one.seconds),
        "off the scale" if one.seconds > shown * (1 + 1e-9) else "",
        "" if speedup is None or one.scheme == "none" else f"{speedup:.2f}x",
    ]
    return ", ".join(filter(None, parts))


def sweep_picture(swept: Sequence[tuple[str, Sequence[Point]]]) -> Figure:
    """A panel for each sweep: the seconds in I/O of every scheme over the values, on a logarithmic scale."""
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
        seconds = [one.seconds if one else float("nan") for one in found]
        style = "-" if number < len(PALETTE) else "--"
        axes.plot(values, seconds, style, marker="o", color=PALETTE[number % len(PALETTE)], label=name)
    axes.set(xlabel=key, ylabel="seconds in I/O", yscale="log")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format that the file's name gives.

    Raises:
        PdlaError: the file cannot be written.
    """
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower())
