"""pdla import: take a trace that another tool recorded."""

from __future__ import annotations

from pathlib import Path

import click

from pdla.cli.options import json_option, print_json
from pdla.units import format_bytes, format_count


@click.command(name="import")
@click.argument("source", type=click.Choice(["darshan", "csv"]))
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "-o", "output", type=click.Path(path_type=Path), default="run.h5", show_default=True, help="Trace to write."
)
@json_option
def import_(source: str, log: Path, output: Path, as_json: bool) -> None:
    """Take a trace that another tool recorded.

    LOG is a Darshan log with DXT records, or a CSV of accesses.

    The columns of the CSV are rank,file,op,offset,length,t_start,t_end.
    """
    from pdla.collectors.columns import import_csv
    from pdla.collectors.darshan import import_darshan
    from pdla.collectors.tracefile import write_trace

    trace = import_darshan(log) if source == "darshan" else import_csv(log)
    write_trace(trace, output)
    moved = int(trace.records["length"].sum())
    if as_json:
        print_json(
            {
                "trace": str(output),
                "ranks": trace.ranks,
                "calls": len(trace.records),
                "bytes": moved,
                "files": len(trace.files),
                "notes": list(trace.notes),
            }
        )
        return
    click.echo(
        f"pdla: {output}: {trace.ranks} ranks, {format_count(len(trace.records))} calls, "
        f"{format_bytes(moved)} moved in {len(trace.files)} files"
    )
    for note in trace.notes:
        click.echo(f"pdla: note: {note}")
