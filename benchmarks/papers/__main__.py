"""The papers' numbers against simulated ones: the table of docs/papers.md, and plots like the papers' figures.

    python -m benchmarks.papers [PAPER ...]

simulates the runs that the rows of benchmarks/papers/*.toml are about on the papers' testbeds (layouts/clusters), as
many at once as there are cores, and rewrites the marked part of docs/papers.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.papers.closed import FORMULAS
from benchmarks.papers.table import PAPERS, Measures, Paper, judge, line, load, needed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
BEGIN, END = "<!-- begin: make papers -->", "<!-- end: make papers -->"
HEADINGS = "| figure | what | stated | simulated | in range | if not, why |\n|---|---|---|---|---|---|"


def tables(papers: list[Paper], measures: Measures) -> str:
    """The Markdown of all papers' rows, each with a sum."""
    parts = []
    for paper in papers:
        lines, within, judged = [], 0, 0
        for row in paper.rows:
            if not all(point in measures for point in needed(row)):
                continue
            verdict = judge(row, measures, FORMULAS)
            lines.append(line(row, verdict))
            judged += verdict.within is not None
            within += bool(verdict.within)
        parts.append(f"### {paper.name}: {within} of {judged} in range\n\n" + "\n".join([HEADINGS, *lines]))
    return "\n\n".join(parts)


def write(text: str) -> None:
    """Put ``text`` between the marks of the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Simulate what is asked for, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", choices=[*PAPERS, []], help="which ones to simulate; default: all")
    options = parser.parse_args(arguments)
    papers = [load(name) for name in options.papers or PAPERS]
    write(tables(papers, {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
