"""pdla import: convert a trace of another tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdla.cli.options import json_option, trace_output
from pdla.cli.progress import Advance, progress
from pdla.cli.trace_summary import print_summary

if TYPE_CHECKING:
    from pdla.traces.trace import Trace

_UNITS = {"parquet": " calls", "recorder": " ranks"}
"""In which the progress of an import is counted, if not in bytes."""


@click.command(name="import")
@click.argument("source", type=click.Choice(["darshan", "dftracer", "recorder", "otf2", "iosig", "csv", "parquet"]))
@click.argument("log", type=click.Path(path_type=Path))
@trace_output
@json_option
def import_(source: str, log: Path, output: Path, as_json: bool) -> None:
    """Convert a trace that another tool recorded.

    LOG is a Darshan log with DXT records, a trace of DFTracer or an IOSIG text trace or a directory
    of them, a trace directory of Recorder, an OTF2 archive, or a CSV or Parquet file of accesses.

    The columns of CSV and Parquet files are rank,file,op,offset,length,t_start,t_end.
    """
    from pdla.collectors.tracefile import write_trace

    trace = _read(source, log)
    write_trace(trace, output)
    moved = int(trace.records.loc[trace.records["op"].isin(["read", "write"]), "length"].sum())
    print_summary(trace, len(trace.records), moved, output, as_json, {}, err=False)


def _read(source: str, log: Path) -> Trace:
    # The libraries that read these two do not say how far they are.
    if source == "darshan":
        from pdla.collectors.darshan import import_darshan

        return import_darshan(log)
    if source == "otf2":
        from pdla.collectors.otf2 import import_otf2

        return import_otf2(log)
    with progress(_UNITS.get(source, "B")) as advance:
        return _importer(source)(log, advance)


def _importer(source: str) -> Callable[[Path, Advance], Trace]:
    if source == "dftracer":
        from pdla.collectors.dftracer import import_dftracer

        return import_dftracer
    if source == "recorder":
        from pdla.collectors.recorder import import_recorder

        return import_recorder
    if source == "iosig":
        from pdla.collectors.iosig import import_iosig

        return import_iosig
    from pdla.collectors.csv_parquet import import_csv, import_parquet

    return import_csv if source == "csv" else import_parquet
