"""Plots in the style of the paper's figures: bars of bandwidth, a group for each request size or number of ranks.

A line over each bar is the limit: what sequential streams from the same devices reached in the same rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.cases import CONTESTANTS, LEASES
from benchmarks.table import Found
from pdla.units import format_bytes


def draw(storage: str, found: Sequence[Found], directory: Path) -> list[Path]:
    """A plot for each kind of program, in ``directory``; return the files."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    everybody = (*CONTESTANTS, *LEASES)
    files = []
    by_program = sorted(found, key=lambda one: (one.case.program, one.case.op))
    for (program, op), some in groupby(by_program, key=lambda one: (one.case.program, one.case.op)):
        figures = list(some)
        cases = list(dict.fromkeys(one.case for one in figures))
        contestants = [one for one in everybody if any(figure.contestant == one for figure in figures)]
        figure, axes = pyplot.subplots(figsize=(3.5 + 1.8 * len(cases), 4), layout="constrained")
        width = 0.9 / len(contestants)
        for number, contestant in enumerate(contestants):
            own = [one for one in figures if one.contestant == contestant]
            places = [cases.index(one.case) + (number - len(contestants) / 2 + 0.5) * width for one in own]
            low = [(one.rate - min(run.rate for run in one.runs)) / 1e6 for one in own]
            high = [(max(run.rate for run in one.runs) - one.rate) / 1e6 for one in own]
            rates = [one.rate / 1e6 for one in own]
            style = {"color": f"C{everybody.index(contestant)}", "error_kw": {"linewidth": 0.7}}
            axes.bar(places, rates, width, label=contestant, yerr=[low, high], **style)
            limits = [median(one.limits) / 1e6 for one in own]
            ends = [place - width / 2 for place in places], [place + width / 2 for place in places]
            label = "the limit" if contestant == contestants[-1] else None
            axes.hlines(limits, *ends, colors="black", linewidth=1.2, label=label)
        labels = [f"{case.name}\n{format_bytes(case.request)}, {case.ranks} ranks" for case in cases]
        axes.set_xticks(range(len(cases)), labels, fontsize=8)
        axes.set_ylabel(f"MB/s, median and range of {len(figures[0].runs)} rounds")
        axes.set_title(f"{program} on {storage}, {op}", fontsize=10)
        figure.legend(loc="outside right upper", fontsize=8)
        file = directory / f"bench-{storage}-{program}-{op}.png"
        figure.savefig(file, dpi=120)
        pyplot.close(figure)
        files.append(file)
    return files
