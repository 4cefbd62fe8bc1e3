"""The papers' numbers against simulated ones: the tables of docs/papers*.md, and plots like the papers' figures.

    python -m benchmarks.papers [--larger] [PAPER ...]

simulates the runs that the rows of benchmarks/papers/*.toml are about on the papers' testbeds (layouts/clusters), as
many at once as there are cores, and once more for each other value of what the texts do not state. Runs of rows in
range are repeated with each device parameter 20 % smaller and larger. It draws the figures of docs/papers.md and
rewrites its marked part, which has the sums, and that of docs/papers-appendix.md; or prints the tables of the papers
that are named.
``--larger`` prints the rows for which smaller parameters are taken than the texts state, with larger ones, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm import tqdm

from benchmarks.papers.closed import FORMULAS
from benchmarks.papers.plots import FIGURES, draw, gains, measured, of_figures, plot
from benchmarks.papers.simulate import run
from benchmarks.papers.table import (
    KINDS,
    PAPERS,
    Experiment,
    Measures,
    Paper,
    Point,
    Row,
    Verdict,
    if_otherwise,
    judge,
    legend,
    line,
    load,
    needed,
    sensitive,
    stated,
    variations,
    varied,
)

ROOT = Path(__file__).resolve().parents[2]
PLOTS = ROOT / "build" / "papers"
PAGE, APPENDIX = ROOT / "docs" / "papers.md", ROOT / "docs" / "papers-appendix.md"
PICTURES = ROOT / "docs" / "_static"
BEGIN, END = "<!-- begin: make papers -->", "<!-- end: make papers -->"
COLUMNS = ("figure", "what", "kind", "stated", "simulated", "in range", "other values", "why not")
HEADINGS = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
LARGER = "| paper | what | stated | simulated | larger |\n|---|---|---|---|---|"


def simulate(papers: Sequence[Paper], drawn: Sequence[Point] = (), others: bool = True) -> tuple[Measures, float]:
    """The measures of all points that rows are about or that are ``drawn``, and the processor seconds that they took;
    with ``others``, also where what is not stated is otherwise, and where devices are."""
    rows = [row for paper in papers for row in paper.rows]
    asked = [
        point
        for row in rows
        for other in (None, *(row.experiment.others if row.experiment and others else ()))
        for point in needed(row, other)
    ]
    experiments = {one.name: one for paper in papers for one in paper.experiments.values()}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        measures, seconds = _simulated(pool, [*asked, *drawn], experiments)
        if others:
            judged = [row for row in rows if row.experiment and not row.parameter and judge(row, measures, {}).within]
            asked = [
                point for row in judged for other in variations(row, measures) for point in varied(row, other, measures)
            ]
            more, longer = _simulated(pool, asked, experiments)
            measures, seconds = measures | more, seconds + longer
    return measures, seconds


def _simulated(
    pool: ProcessPoolExecutor, points: Sequence[Point], experiments: Mapping[str, Experiment]
) -> tuple[dict[Point, Mapping[str, float]], float]:
    """Their measures, and the processor seconds. Points of one program are simulated together: it is traced once."""
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in dict.fromkeys(points):
        groups.setdefault((point.experiment, point.value, point.op), []).append(point)
    tasks = [pool.submit(_timed, group, experiments[group[0].experiment]) for group in groups.values()]
    shown = tqdm(as_completed(tasks), "programs", len(tasks), disable=not sys.stderr.isatty())
    found = [task.result() for task in shown]
    return {point: one for ones, _ in found for point, one in ones.items()}, sum(seconds for _, seconds in found)


def _timed(points: Sequence[Point], experiment: Experiment) -> tuple[dict[Point, Mapping[str, float]], float]:
    begin = time.process_time()
    return {point: run(point, experiment) for point in points}, time.process_time() - begin


@dataclass(frozen=True)
class Judged:
    """A row with its verdict; ``fragile`` is what takes it out of range."""

    row: Row
    verdict: Verdict
    fragile: Sequence[str]
    otherwise: str

    @classmethod
    def of(cls, row: Row, measures: Measures, paper: Paper) -> Judged:
        """By what was simulated."""
        verdict = judge(row, measures, FORMULAS)
        tested = verdict.within and row.experiment and not row.parameter
        fragile = sensitive(row, measures) if tested else []
        return cls(row, verdict, fragile, if_otherwise(row, measures, paper.unstated))


def tables(papers: Sequence[Paper], judged: Mapping[str, Sequence[Judged]]) -> str:
    """The Markdown of all papers' rows."""
    parts = []
    for paper in papers:
        lines = [line(one.row, one.verdict, one.fragile, one.otherwise) for one in judged[paper.name]]
        parts.append("\n\n".join([f"### {paper.name}", *legend(paper), "\n".join([HEADINGS, *lines])]))
    return "\n\n".join(parts)


def larger_table(papers: list[Paper], names: list[str]) -> tuple[str, float]:
    """The rows of which ``papers`` have smaller parameters than the texts, simulated with both."""
    whole = [load(name, larger=True) for name in names]
    of_whole, seconds = simulate(whole, others=False)
    kept = {one.name for paper in whole for one in paper.experiments.values()}
    small = [
        replace(paper, rows=tuple(row for row in paper.rows if row.experiment and row.experiment.name in kept))
        for paper in papers
    ]
    of_small, more = simulate(small, others=False)
    lines = []
    for paper, big in zip(small, whole, strict=True):
        for row, twin in zip(paper.rows, big.rows, strict=True):
            found = [judge(row, of_small, FORMULAS).found, judge(twin, of_whole, FORMULAS).found]
            lines.append(f"| {paper.name}, {row.figure} | {row.what} | {stated(row)} | {found[0]} | {found[1]} |")
    return "\n".join([LARGER, *lines]), seconds + more


@dataclass(frozen=True)
class Count:
    """How many numbers of one kind a paper states, how many are in range, and how many of these are sensitive."""

    numbers: int = 0
    within: int = 0
    sensitive: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.numbers + other.numbers, self.within + other.within, self.sensitive + other.sensitive)


def counts(table: str) -> dict[str, dict[str, Count]]:
    """For each paper and kind, as ``tables`` say; a *parameter* is not counted."""
    found: dict[str, dict[str, Count]] = {}
    for text in table.splitlines():
        if text.startswith("### "):
            of_paper = found.setdefault(text[4:], {kind: Count() for kind in KINDS})
        cells = text.split(" | ")
        if len(cells) == len(COLUMNS) and cells[2] in KINDS and cells[5] != "parameter":
            of_paper[cells[2]] += Count(1, cells[5].startswith("yes"), "sensitive" in cells[5])
    return found


def summary(found: Mapping[str, Mapping[str, Count]]) -> str:
    """The Markdown of these, with a sum."""
    whole = {kind: sum((of_paper[kind] for of_paper in found.values()), Count()) for kind in KINDS}
    lines = []
    for name, of_paper in (*found.items(), ("all", whole)):
        every = sum(of_paper.values(), Count())
        parts = " | ".join(f"{of_paper[kind].within} of {of_paper[kind].numbers}" for kind in KINDS)
        lines.append(f"| {name} | {every.numbers} | {every.within} | {parts} | {every.sensitive} |")
    heads = f"| paper | numbers | in range | {' | '.join(KINDS)} | sensitive |"
    return "\n".join([heads, "|---" * (len(KINDS) + 4) + "|", *lines])


def write(page: Path, text: str) -> None:
    """Put ``text`` between the marks of the page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> int:
    """Simulate what is asked for; write the table if that is everything, else print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(PAPERS)}; default: all")
    parser.add_argument("--larger", action="store_true", help="only what is scaled down, and less so")
    arguments = parser.parse_args()
    names = arguments.papers or list(PAPERS)
    everything = names == list(PAPERS)
    papers = [load(name) for name in names]
    if arguments.larger:
        text, seconds = larger_table(papers, names)
        print(text)
        print(f"{seconds:.0f} processor seconds", file=sys.stderr)
        return 0
    drawn = [point for name, paper in zip(names, papers, strict=True) for point in of_figures(name, paper)]
    measures, seconds = simulate(papers, drawn)
    for experiment in (one for paper in papers for one in paper.experiments.values()):
        plot(experiment, measures, PLOTS)
    on_bench = measured((ROOT / "docs" / "benchmarks-appendix.md").read_text(encoding="utf-8"))
    for name, paper in zip(names, papers, strict=True):
        if name in FIGURES:
            draw(
                gains(name, paper, measures), on_bench[name], (PICTURES if everything else PLOTS) / f"papers-{name}.svg"
            )
    judged = {paper.name: [Judged.of(row, measures, paper) for row in paper.rows] for paper in papers}
    text = tables(papers, judged)
    if everything:
        write(APPENDIX, text)
        write(PAGE, summary(counts(text)))
    else:
        print(text)
        print(summary(counts(text)))
    print(f"{len(measures)} runs took {seconds:.0f} processor seconds; plots are in {PLOTS}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
