"""pdla analyze: the I/O signatures of a trace."""

from __future__ import annotations

from pathlib import Path

import click

import pdla
from pdla.cli.options import json_option, print_json, trace_argument


@click.command()
@trace_argument
@json_option
def analyze(trace_path: Path, as_json: bool) -> None:
    """Find the I/O signatures of a trace."""
    from pdla.analyzers.analysis import analyze as find_signatures
    from pdla.analyzers.analysis import to_json
    from pdla.analyzers.aspects import describe
    from pdla.report.text import signature_table

    trace = pdla.load(trace_path)
    analysis = find_signatures(trace)
    aspects = describe(trace, analysis)
    if as_json:
        print_json(to_json(analysis, [one.to_json() for one in aspects]))
    else:
        click.echo(signature_table(analysis, aspects))
