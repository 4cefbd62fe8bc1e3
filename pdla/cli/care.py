"""pdla status, verify, gc, rm: the replicas one has."""

from __future__ import annotations

import click

from pdla.cli.options import json_option, print_json
from pdla.config import catalog_url
from pdla.errors import PdlaError
from pdla.units import format_bytes


@click.command()
@json_option
def status(as_json: bool) -> None:
    """List the replicas: of what, where, how big, in which state and why; and the latest redirected runs."""
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import status as examine
    from pdla.report.text import table

    state = examine(open_catalog(catalog_url()))
    if as_json:
        print_json(state)
        return
    rows = [
        [
            str(row["id"]),
            row["state"],
            format_bytes(row["bytes"]),
            f"{row['layout']} {row['pool']}",
            row["original"],
            row["why"],
        ]
        for row in state["replicas"]
    ]
    click.echo(table(["id", "state", "size", "layout", "original", "why"], rows, "rlrlll") if rows else "No replicas.")
    for result in state["runs"]:
        click.echo(f"run {result['time']}: {result['sentence']}")


@click.command()
@json_option
def verify(as_json: bool) -> None:
    """Read every valid replica and compare it with its checksums and its original; fail when one is wrong."""
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import verify as check

    findings = check(open_catalog(catalog_url()))
    if as_json:
        print_json({"replicas": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            click.echo(f"replica {finding.replica}  {'ok' if finding.ok else finding.problem}")
        if not findings:
            click.echo("No replicas.")
    bad = [finding for finding in findings if not finding.ok]
    if bad:
        raise PdlaError(f"{len(bad)} of {len(findings)} replicas cannot be served")


@click.command()
@json_option
def gc(as_json: bool) -> None:
    """Remove what no run can use any more: stale and retired replicas, left-over temporary files, old state files."""
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import gc as collect_garbage

    removed = collect_garbage(open_catalog(catalog_url()))
    if as_json:
        print_json({"removed": [str(path) for path in removed]})
    else:
        click.echo(f"Removed {len(removed)} files.")


@click.command()
@click.argument("replica", type=int)
def rm(replica: int) -> None:
    """Remove a replica by its id (see pdla status). The original is never touched."""
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import remove

    remove(open_catalog(catalog_url()), replica)
    click.echo(f"Removed replica {replica}.")
