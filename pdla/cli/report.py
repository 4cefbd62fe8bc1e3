"""pdla report: pictures and numbers in one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path

import click

import pdla
from pdla.cli.options import json_option, print_json, trace_argument


@click.command()
@trace_argument
@click.option(
    "-o", "output", type=click.Path(path_type=Path), default="report.html", show_default=True, help="File to write."
)
@json_option
def report(trace_path: Path, output: Path, as_json: bool) -> None:
    """Draw a trace in one HTML file.

    Who accessed which bytes when, request sizes, signatures.
    """
    from pdla.report.html import Run, write_report

    write_report(output, [Run.of(pdla.load(trace_path))])
    if as_json:
        print_json({"report": str(output)})
    else:
        click.echo(f"pdla: wrote {output}")
