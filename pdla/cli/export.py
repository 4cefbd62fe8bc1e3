"""pdla export: a trace for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdla.cli.options import Output, json_option, print_json, say, trace_argument
from pdla.units import counted, format_bytes

if TYPE_CHECKING:
    from pdla.exports.csv_parquet import Rows

TABLES = ("csv", "parquet")


@click.command()
@trace_argument
@click.option(
    "--to",
    "form",
    type=click.Choice(["perfetto", "parquet", "csv", "darshan-dxt-text"]),
    required=True,
    help="Format to write.",
)
@click.option(
    "--rows",
    type=click.Choice(["accesses", "calls", "posix"]),
    help="Rows of csv and parquet: contiguous accesses (default), MPI calls, or POSIX calls.",
)
@click.option("-o", "output", type=Output(), required=True, metavar="FILE", help="File to write.")
@json_option
def export(trace_path: Path, form: str, rows: Rows | None, output: Path, as_json: bool) -> None:
    """Write a trace in the format of another tool.

    perfetto is for ui.perfetto.dev, darshan-dxt-text is what darshan-dxt-parser prints. All except
    parquet are compressed with gzip if the name of FILE ends in .gz.
    """
    if rows and form not in TABLES:
        raise click.UsageError(f"--rows is for {' and '.join(TABLES)}, not for {form}")
    if output.exists() and trace_path.exists() and output.samefile(trace_path):
        raise click.UsageError(f"{output} is the trace itself")
    count = _write(trace_path, form, rows or "accesses", output)
    size = output.stat().st_size
    if as_json:
        print_json({"export": str(output), "format": form, "rows": count, "bytes": size})
    else:
        say(f"{output}: {counted(count, 'row' if form in TABLES else 'call')}, {format_bytes(size)}", err=False)


def _write(trace_path: Path, form: str, rows: Rows, output: Path) -> int:
    """Returns the number of rows or calls written."""
    from pdla.collectors.tracefile import stored_trace

    with stored_trace(trace_path) as trace:
        if form == "perfetto":
            from pdla.exports.perfetto import export_perfetto

            return export_perfetto(trace, output)
        if form == "darshan-dxt-text":
            from pdla.exports.dxt_text import export_dxt_text

            return export_dxt_text(trace, output)
        from pdla.exports.csv_parquet import export_csv, export_parquet

        return (export_csv if form == "csv" else export_parquet)(trace, rows, output)
