"""The papers' numbers against simulated ones: the table of docs/papers.md, and plots like the papers' figures.

    python -m benchmarks.papers [PAPER ...]

simulates the runs that the rows of benchmarks/papers/*.toml are about on the papers' testbeds (layouts/clusters), as
many at once as there are cores; plots them into build/papers; and rewrites the marked part of docs/papers.md, or
prints the tables of the papers that are named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tqdm import tqdm

from benchmarks.papers.closed import FORMULAS
from benchmarks.papers.plots import plot
from benchmarks.papers.simulate import run
from benchmarks.papers.table import PAPERS, Experiment, Measures, Paper, Point, judge, line, load, needed

ROOT = Path(__file__).resolve().parents[2]
PLOTS = ROOT / "build" / "papers"
PAGE = ROOT / "docs" / "papers.md"
BEGIN, END = "<!-- begin: make papers -->", "<!-- end: make papers -->"
HEADINGS = "| figure | what | stated | simulated | in range | if not, why |\n|---|---|---|---|---|---|"


def simulate(papers: Sequence[Paper]) -> tuple[Measures, float]:
    """The measures of all points that rows are about, and the processor seconds that they took."""
    experiments = {one.name: one for paper in papers for one in paper.experiments.values()}
    todo = list(dict.fromkeys(point for paper in papers for row in paper.rows for point in needed(row)))
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
            lines.append(line(row, verdict))
            judged += verdict.within is not None and not row.parameter
            within += bool(verdict.within) and not row.parameter
        parts.append(f"### {paper.name}: {within} of {judged} in range\n\n" + "\n".join([HEADINGS, *lines]))
    return "\n\n".join(parts)


def write(text: str) -> None:
    """Put ``text`` between the marks of the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> int:
    """Simulate what is asked for; write the table if that is everything, else print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(PAPERS)}; default: all")
    names = parser.parse_args().papers or list(PAPERS)
    papers = [load(name) for name in names]
    measures, seconds = simulate(papers)
    for experiment in (one for paper in papers for one in paper.experiments.values()):
        plot(experiment, measures, PLOTS)
    text = tables(papers, measures)
    if names == list(PAPERS):
        write(text)
    else:
        print(text)
    print(f"{len(measures)} runs took {seconds:.0f} processor seconds; plots are in {PLOTS}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
