"""Bars like those of the papers' figures: bandwidth over the sweep, a colour for each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.papers.table import Experiment, Measures, Point


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


def in_range(sums: Mapping[str, tuple[int, int]], path: Path) -> None:
    """An SVG of how many numbers of each paper are in range: a bar for each paper."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(sums)[::-1]
    within = [sums[name][0] for name in names]
    judged = [sums[name][1] for name in names]
    # Without a date and random names: the same numbers give the same file.
    with pyplot.rc_context({"svg.hashsalt": "pdla", "svg.fonttype": "none"}):
        figure, panel = pyplot.subplots(figsize=(7, 2.2))
        panel.barh(names, within, color="#2a6f97", label="in range")
        panel.barh(names, [of - one for of, one in zip(judged, within, strict=True)], left=within, color="#c9d6df",
                   label="not in range")  # fmt: skip
        panel.set(xlabel="numbers that the paper states")
        panel.legend(fontsize=8, frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
