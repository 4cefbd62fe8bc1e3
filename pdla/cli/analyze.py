"""pdla analyze: the I/O signatures of a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

import pdla
from pdla.cli.options import json_option, print_json
from pdla.cli.processes import mpi_processes
from pdla.cli.progress import taken
from pdla.errors import PdlaError

if TYPE_CHECKING:
    from pdla.analyzers.local_patterns import LocalPatterns
    from pdla.collectors.tracefile import StoredTrace
    from pdla.traces.trace import Trace

WHOLE = 1 << 22
"""A trace of more calls is read in parts; then some aspects are not found."""


@click.command()
@click.argument("trace_path", metavar="RUN.h5|LOG.darshan", type=click.Path(path_type=Path))
@json_option
def analyze(trace_path: Path, as_json: bool) -> None:
    """Find the I/O signatures of a trace, or print what a Darshan log counts.

    The signatures also go into the catalog (see pdla patterns). New patterns enter the replication
    queue. With mpiexec -n N pdla analyze, N processes share the work.
    """
    from pdla.analyzers.local_patterns import find_local
    from pdla.analyzers.parallel import find_together
    from pdla.file_kinds import DARSHAN, mistaken

    processes = mpi_processes()
    if not mistaken(trace_path, DARSHAN):
        if processes is None or processes.rank == 0:
            _print_counters(trace_path, as_json)
        return

    def find(part: int, parts: int) -> LocalPatterns:
        with _opened(trace_path) as source:
            return find_local(source.blocks(part, parts))

    if processes is None:
        with _opened(trace_path) as source:
            _print(trace_path, source, find_local(taken(source)), as_json)
        return
    try:
        local = find_together(find, processes)
    except PdlaError:
        if processes.rank:
            sys.exit(1)  # process 0 prints the reason
        raise
    if local is not None:
        with _opened(trace_path) as source:
            _print(trace_path, source, local, as_json)


def _print_counters(log: Path, as_json: bool) -> None:
    from pdla.collectors.darshan_counters import darshan_counters
    from pdla.report.counters import counters_text

    counters = darshan_counters(log)
    if as_json:
        print_json(asdict(counters))
    else:
        click.echo(counters_text(counters, str(log)))


@contextmanager
def _opened(path: Path) -> Iterator[Trace | StoredTrace]:
    """The trace, in memory if it is small enough."""
    from pdla.collectors.tracefile import stored_trace

    with stored_trace(path) as stored:
        yield pdla.load(path) if stored.rows <= WHOLE else stored


def _print(path: Path, source: Trace | StoredTrace, local: LocalPatterns, as_json: bool) -> None:
    """Print the signatures that the local patterns make up, and record them in the catalog."""
    from pdla.analyzers.analysis import combine, to_json
    from pdla.analyzers.aspects import describe, outline
    from pdla.analyzers.phases import NO_PHASES, find_phases
    from pdla.analyzers.posix_requests import made_of
    from pdla.cli.catalog_run import record
    from pdla.report.text import signature_table
    from pdla.traces.trace import Trace

    analysis = combine(local, source)
    if isinstance(source, Trace):
        trace, phases = source, find_phases(source)
        aspects = describe(source, analysis, phases)
    else:
        trace, phases = source.about, NO_PHASES
        aspects = outline(analysis)
    if as_json:
        answer = to_json(analysis, [one.to_json() for one in aspects], [phase.to_json() for phase in phases.phases])
        print_json({**answer, "posix": [one.to_json() for one in made_of(trace)]})
    else:
        click.echo(signature_table(analysis, aspects, phases.phases))
    record(path, trace, analysis, aspects, phases)
