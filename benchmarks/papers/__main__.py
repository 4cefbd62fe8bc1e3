"""The papers' numbers against simulated ones: the tables of docs/papers*.md, and plots like the papers' figures.

    python -m benchmarks.papers [--larger] [PAPER ...]

simulates the runs that the rows of benchmarks/papers/*.toml are about on the papers' testbeds (layouts/clusters), as
many at once as there are cores, and once more for each other value of what the texts do not state; plots them into
build/papers; and rewrites the marked parts of docs/papers.md, which has the sums, and of docs/papers-appendix.md, or
prints the tables of the papers that are named.
``--larger`` prints the rows for which smaller parameters are taken than the texts state, with larger ones, too.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from benchmarks.papers.closed import FORMULAS
from benchmarks.papers.plots import in_range, plot
from benchmarks.papers.simulate import run
from benchmarks.papers.table import (
    PAPERS,
    Experiment,
    Measures,
    Paper,
    Point,
    if_otherwise,
    judge,
    legend,
    line,
    load,
    needed,
    stated,
)

ROOT = Path(__file__).resolve().parents[2]
PLOTS = ROOT / "build" / "papers"
PAGE, APPENDIX = ROOT / "docs" / "papers.md", ROOT / "docs" / "papers-appendix.md"
PICTURE = ROOT / "docs" / "_static" / "papers-in-range.svg"
BEGIN, END = "<!-- begin: make papers -->", "<!-- end: make papers -->"
HEADINGS = "| figure | what | stated | simulated | in range | other values | why not |\n|---|---|---|---|---|---|---|"
LARGER = "| paper | what | stated | simulated | larger |\n|---|---|---|---|---|"


def simulate(papers: Sequence[Paper], others: bool = True) -> tuple[Measures, float]:
    """The measures of all points that rows are about, and the processor seconds that they took; with ``others``, also
    where what is not stated is otherwise."""
    experiments = {one.name: one for paper in papers for one in paper.experiments.values()}
    rows = [row for paper in papers for row in paper.rows]
    todo = list(
        dict.fromkeys(
            point
            for row in rows
            for other in (None, *(row.experiment.others if row.experiment and others else ()))
            for point in needed(row, other)
        )
    )
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        tasks = [pool.submit(_timed, point, experiments[point.experiment]) for point in todo]
        found = [task.result() for task in tqdm(tasks, "runs", disable=not sys.stderr.isatty())]
    return {point: one for point, (one, _) in zip(todo, found, strict=True)}, sum(seconds for _, seconds in found)


def _timed(point: Point, experiment: Experiment) -> tuple[dict[str, float], float]:
    begin = time.process_time()
    return run(point, experiment), time.process_time() - begin


def tables(papers: list[Paper], measures: Measures) -> str:
    """The Markdown of all papers' rows, each with a sum."""
    parts = []
    for paper in papers:
        lines, within, judged = [], 0, 0
        for row in paper.rows:
            verdict = judge(row, measures, FORMULAS)
            lines.append(line(row, verdict, if_otherwise(row, measures, paper.unstated)))
            judged += verdict.within is not None and not row.parameter
            within += bool(verdict.within) and not row.parameter
        head = [f"### {paper.name}: {within} of {judged} in range", *legend(paper)]
        parts.append("\n\n".join([*head, "\n".join([HEADINGS, *lines])]))
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


def sums(text: str) -> dict[str, tuple[int, int]]:
    """How many numbers of each paper are in range, of how many, as the headings of ``tables`` say."""
    found = re.findall(r"^### (.+): (\d+) of (\d+) in range$", text, re.MULTILINE)
    return {name: (int(within), int(judged)) for name, within, judged in found}


def summary(found: dict[str, tuple[int, int]]) -> str:
    """The Markdown of these."""
    lines = [
        f"| {name} | {judged} | {within} | {100 * within / judged:.0f} % |" for name, (within, judged) in found.items()
    ]
    return "\n".join(["| paper | numbers | in range | share |\n|---|---|---|---|", *lines])


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
    papers = [load(name) for name in names]
    if arguments.larger:
        text, seconds = larger_table(papers, names)
        print(text)
        print(f"{seconds:.0f} processor seconds", file=sys.stderr)
        return 0
    measures, seconds = simulate(papers)
    for experiment in (one for paper in papers for one in paper.experiments.values()):
        plot(experiment, measures, PLOTS)
    text = tables(papers, measures)
    if names == list(PAPERS):
        write(APPENDIX, text)
        write(PAGE, summary(sums(text)))
        in_range(sums(text), PICTURE)
    else:
        print(text)
    print(f"{len(measures)} runs took {seconds:.0f} processor seconds; plots are in {PLOTS}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
