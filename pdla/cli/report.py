"""pdla report: pictures and numbers in one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pdla
from pdla.cli.options import Output, cluster_option, json_option, print_json, read_cluster, say, trace_argument
from pdla.cli.progress import analyzed, progress

if TYPE_CHECKING:
    from pdla.traces.trace import Trace


@click.command()
@trace_argument
@click.option(
    "--compare", "other", metavar="RUN2.h5", type=click.Path(path_type=Path), help="Another run to compare with."
)
@cluster_option
@click.option(
    "-o", "output", type=Output(), default="report.html", show_default=True, metavar="FILE", help="File to write."
)
@json_option
def report(trace_path: Path, other: Path | None, cluster: str | None, output: Path, as_json: bool) -> None:
    """Make an HTML report of a trace.

    The report begins with what costs most, why, and what to do about it. It then shows who accessed
    which bytes when, the signatures, what the planner compared, and the comparison with another
    run.
    """
    from pdla.report.comparison import Contrast
    from pdla.report.head import headlines
    from pdla.report.html import Run, write_report

    storage = read_cluster(cluster, trace_path, *([other] if other else []))
    trace = pdla.load(trace_path)
    after = pdla.load(other) if other else None
    analysis = analyzed(trace)
    contrast = Contrast(trace, after) if after else None
    with progress(" parts") as advance:
        plan = pdla.plan(trace, storage, hypothetical=True, analysis=analysis, progress=advance)
        run = Run(
            trace, analysis, plan, after, comparison=contrast, simulated=_simulated(trace), trace_file=str(trace_path)
        )
        write_report(output, [run], advance)
    if as_json:
        print_json({"report": str(output), "findings": [one.to_json() for one in run.findings]})
        return
    say(f"wrote {output}", err=False)
    for line in headlines(run.seen, run.findings):
        say(line, err=False)


def _simulated(trace: Trace) -> Mapping[str, Any] | None:
    """The latest simulation of this program with the same number of ranks."""
    from pdla.catalog import open_catalog

    answers = (one.answer for one in reversed(open_catalog().simulations.all()))
    own = (trace.command, trace.ranks)
    return next((one for one in answers if "schemes" in one and (one["command"], one["ranks"]) == own), None)
