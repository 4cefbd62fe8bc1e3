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
    from pdla.report.text import signature_table

    analysis = find_signatures(pdla.load(trace_path))
    if as_json:
        print_json(to_json(analysis))
    else:
        click.echo(signature_table(analysis))
