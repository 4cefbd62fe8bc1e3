"""Pictures: bandwidths like the papers' figures, and gains beside what the texts say and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ssd_cache_plots
from benchmarks.papers.table import Experiment, Measures, Paper, Point, Row

FIGURES = {
    "pdla": (
        ("ior-processes", "pd", "original"),
        ("ior-sizes", "pd", "original"),
        ("pio-sizes", "pd", "original"),
        ("tile-sizes", "pd", "original"),
        ("ior-mixed", "s-pdla", "h-pdla"),
        ("pio-ssd", "s-pdla", "h-pdla"),
        ("tile-ssd", "s-pdla", "h-pdla"),
    ),
    "s4d-cache": tuple((key, "s4d", "original") for key in ("sizes", "processes", "servers", "hpio", "tiles")),
}
"""The experiments of the figures on docs/papers.md, each with a scheme and what it is compared with."""
COMPARED = {
    "Fig. 6": ("IOR strided, 256 KiB", "PD, x original"),
    "Fig. 7": ("IOR strided", "PD, x original"),
    "Fig. 8": ("PIO-Bench nested", "PD, x original"),
    "Fig. 9": ("MPI-Tile-IO, ", "PD, x original"),
    "Fig. 10": ("IOR strided", "S-PDLA, x H-PDLA"),
    "Fig. 11": ("PIO-Bench nested", "S-PDLA, x H-PDLA"),
    "Fig. 12": ("MPI-Tile-IO, ", "S-PDLA, x H-PDLA"),
}
"""For PDLA's figures: the measured programs (the begin of their names), and the column that has the same comparison."""
COLOURS = {"read": "#2a6f97", "write": "#d1495b"}


@dataclass(frozen=True)
class Panel:
    """How many times as fast ``scheme`` is as ``base``: simulated at each value, and the rows that state it."""

    experiment: Experiment
    scheme: str
    base: str
    values: Sequence[str]
    simulated: Mapping[str, Sequence[float]]
    stated: Mapping[str, Sequence[Row]]


def plot(experiment: Experiment, measures: Measures, directory: Path) -> Path | None:
    """A PNG of what was simulated of one experiment, a panel for each operation; None if nothing was."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    ops = [op for op in experiment.ops if any(point in measures for point in experiment.points() if point.op == op)]
    if not ops:
        return None
    figure, panels = pyplot.subplots(1, len(ops), figsize=(5 * len(ops), 3.2), squeeze=False)
    width = 0.8 / len(experiment.schemes)
    for panel, op in zip(panels[0], ops, strict=True):
        simulated = {point.value for point in measures if point.op == op and point.experiment == experiment.name}
        values = [str(value) for value in experiment.values if str(value) in simulated]
        places = range(len(values))
        for number, scheme in enumerate(experiment.schemes):
            points = [Point(experiment.name, value, op, scheme) for value in values]
            heights = [measures[point]["bandwidth"] if point in measures else 0.0 for point in points]
            panel.bar([place + number * width - 0.4 + width / 2 for place in places], heights, width, label=scheme)
        panel.set_xticks(list(places), values)
        panel.tick_params(axis="x", labelsize=7 if len(values) > 8 else 9)
        panel.set(xlabel=experiment.sweep, ylabel="MB/s", title=f"{experiment.figure}: {op}")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), loc="upper center", ncols=len(experiment.schemes), fontsize=8
    )
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{experiment.name.replace('/', '-')}.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def gains(name: str, paper: Paper, measures: Measures) -> list[Panel]:
    """What the figures of a paper have that ``FIGURES`` names."""
    panels = []
    for key, scheme, base in FIGURES[name]:
        experiment = paper.experiments[key]
        values = [str(value) for value in experiment.values]
        simulated = {
            op: [_times(measures, Point(experiment.name, value, op, scheme), base) for value in values]
            for op in experiment.ops
        }
        stated = {
            op: [row for row in paper.rows if _states(row, experiment, op, scheme, base)] for op in experiment.ops
        }
        panels.append(Panel(experiment, scheme, base, values, simulated, stated))
    return panels


def of_figures(name: str, paper: Paper) -> list[Point]:
    """The runs that they need."""
    return [
        Point(experiment.name, str(value), op, one)
        for key, scheme, base in FIGURES.get(name, ())
        for experiment in [paper.experiments[key]]
        for value in experiment.values
        for op in experiment.ops
        for one in (scheme, base)
    ]


def _times(measures: Measures, point: Point, base: str) -> float:
    return measures[point]["bandwidth"] / measures[point._replace(scheme=base)]["bandwidth"]


def _states(row: Row, experiment: Experiment, op: str, scheme: str, base: str) -> bool:
    same = (row.experiment, row.op, row.scheme, row.base) == (experiment, op, scheme, base)
    return same and row.kind == "quantitative" and row.measure == "bandwidth"


def draw(panels: Sequence[Panel], measured: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """An SVG of panels. ``measured`` has for a figure and an operation what ``make bench`` measured."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    columns = 3
    lines = -(-len(panels) // columns)
    # Without a date and random names: the same numbers give the same file.
    with pyplot.rc_context({"svg.hashsalt": "pdla", "svg.fonttype": "none", "font.size": 8}):
        figure, places = pyplot.subplots(lines, columns, figsize=(8, 2.2 * lines), layout="constrained")
        for place in places.flat[len(panels) :]:
            place.axis("off")
        for place, panel in zip(places.flat, panels, strict=False):
            _draw_panel(place, panel, measured.get(panel.experiment.figure, {}))
        shown = [dict(zip(*place.get_legend_handles_labels()[::-1], strict=True)) for place in places.flat]
        handles = {label: handle for of_panel in shown for label, handle in of_panel.items()}
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def _draw_panel(place: Any, panel: Panel, measured: Mapping[str, Sequence[float]]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    values = panel.values
    for op, colour in COLOURS.items():
        if op not in panel.simulated:
            continue
        place.plot(range(len(values)), panel.simulated[op], "o-", color=colour, markersize=4, linewidth=1,
                   label=f"{op}s, simulated")  # fmt: skip
        for row in panel.stated[op]:
            ends = [1 + number / 100 for number in (row.stated if isinstance(row.stated, list) else [row.stated])]
            if row.compare == "range":
                place.axhspan(*ends, color=colour, alpha=0.2, linewidth=0, label=f"{op}s, the text: a range")
            elif row.compare == "each":
                place.plot([values.index(value) for value in row.only], ends, "x", color=colour, markersize=7,
                           label=f"{op}s, the text: a value")  # fmt: skip
            else:
                place.axhline(ends[0], color=colour, linestyle="--", linewidth=1, label=f"{op}s, the text: at most")
        found = measured.get(op, ())
        place.plot([len(values)] * len(found), found, "D", color=colour, markersize=4, fillstyle="none",
                   label=f"{op}s, measured by make bench")  # fmt: skip
    place.axhline(1.0, color="black", linewidth=0.6)
    place.set_yscale("log")
    place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    place.yaxis.set_major_formatter("{x:g}")
    place.yaxis.set_minor_locator(NullLocator())
    place.set_xticks(range(len(values) + bool(measured)), [*values, *["bench"] * bool(measured)])
    base = "the original" if panel.base == "original" else panel.base.upper()
    place.set_title(f"{panel.experiment.figure}: {panel.scheme.upper()}, x {base}", fontsize=8)
    place.set_xlabel(panel.experiment.sweep)
    place.spines[["top", "right"]].set_visible(False)


def measured(page: str) -> dict[str, dict[str, dict[str, list[float]]]]:
    """What ``make bench`` measured on disks of the same benchmarks, by paper, figure and operation: times the base.

    ``page`` is docs/benchmarks-appendix.md.
    """
    found: dict[str, dict[str, dict[str, list[float]]]] = {"pdla": {}, "s4d-cache": {}}
    for heads, cells in _rows(page):
        case = cells[0].removeprefix("disks: ")
        if case == cells[0]:
            continue
        for figure, (program, column) in COMPARED.items():
            if column in heads and case.startswith(program):
                value = float(cells[heads.index(column)].split(" ")[0])
                found["pdla"].setdefault(figure, {}).setdefault(case.rpartition(" ")[2], []).append(value)
        for figure in ssd_cache_plots.FIGURES:
            for op, column in (("read", "second run, x original"), ("write", "x original")):
                if heads[0] == f"{op}s" and column in heads and case in figure.cases.values():
                    value = float(cells[heads.index(column)])
                    found["s4d-cache"].setdefault(figure.name, {}).setdefault(op, []).append(value)
    return found


def _rows(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """The rows of a page's tables, each with the heads of its table."""
    heads: list[str] = []
    for line in page.splitlines():
        cells = line.strip("| ").split(" | ")
        if line.startswith("|---"):
            continue
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        else:
            yield heads, cells
