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
    """Find the I/O signatures of a trace.

    They go into the catalog, too (see pdla patterns): those that it has not seen before enter the replication queue.
    """
    from pdla.analyzers.analysis import analyze as find_signatures
    from pdla.analyzers.analysis import to_json
    from pdla.analyzers.aspects import describe
    from pdla.analyzers.phases import find_phases
    from pdla.analyzers.posix import made_of
    from pdla.cli.recorded import record
    from pdla.report.text import signature_table

    trace = pdla.load(trace_path)
    analysis = find_signatures(trace)
    phases = find_phases(trace)
    aspects = describe(trace, analysis, phases)
    if as_json:
        answer = to_json(analysis, [one.to_json() for one in aspects], [phase.to_json() for phase in phases.phases])
        print_json({**answer, "posix": [one.to_json() for one in made_of(trace)]})
    else:
        click.echo(signature_table(analysis, aspects, phases.phases))
    record(trace_path, trace, analysis, aspects, phases)
