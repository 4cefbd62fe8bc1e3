"""pdla status, verify, gc, rm: list, check and remove replicas."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING

import click

from pdla.cli.options import NUMBER, Finite, json_option, print_json
from pdla.cli.progress import draws, progress
from pdla.cli.signals import stopping
from pdla.errors import PdlaError
from pdla.units import counted, format_bytes, shown

if TYPE_CHECKING:
    from pdla.replicator.verify import Removed

LATEST_RUNS = 5
LEAST_WATCH = 0.5  # seconds
CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.option("--watch", type=Finite(min=LEAST_WATCH), metavar="SECONDS", help="Show it again every SECONDS.")
@json_option
def status(watch: float | None, as_json: bool) -> None:
    """List the replicas and the latest runs.

    For each replica: its original, layout, size, number of uses and state with the reason; also who
    works on it. With --watch until Ctrl-C, on a terminal.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.status import status as examine
    from pdla.report.replicas import status_text

    if watch and as_json:
        raise click.UsageError("--watch is for people, --json for programs: give one of them")
    if watch and not draws(sys.stdout):
        raise click.UsageError("--watch needs a terminal; a script can call pdla status again itself")
    catalog, ended = open_catalog(), Event()
    with stopping(ended.set) if watch else nullcontext():
        while not ended.is_set():
            found = examine(catalog)
            results = catalog.results.all(last=LATEST_RUNS)
            if as_json:
                runs = [{"time": result.time.isoformat(timespec="seconds"), **result.report} for result in results]
                print_json({**found.to_json(catalog), "runs": runs})
            else:
                text = status_text(found, results)
                click.echo(f"{CLEAR}{time.strftime('%H:%M:%S')}, until Ctrl-C:\n\n{text}" if watch else text)
            if not watch:
                break
            ended.wait(watch)


@click.command()
@json_option
def verify(as_json: bool) -> None:
    """Check every replica, byte for byte.

    The components are compared with their checksums, and the original with the identity that it had
    when it was copied. If the original was changed since, perhaps only elsewhere, its bytes are
    compared: a replica that has them is used again. The check fails if a replica is wrong; that
    replica is not used any more.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import changed_since
    from pdla.replicator.verify import verify as check

    catalog = open_catalog()
    checked = len(catalog.replicas.find("valid")) + len(changed_since(catalog))
    with progress() as advance:
        findings = check(catalog, progress=advance)
    if as_json:
        print_json({"checked": checked, "findings": [asdict(found) | {"path": str(found.path)} for found in findings]})
    else:
        for found in findings:
            click.echo(f"replica {found.replica}: {shown(str(found.path))}: {shown(found.problem)}")
        click.echo(f"{checked - len(findings)} of {checked} replicas passed the check.")
    away = sum(found.away for found in findings)
    parts = [f"{len(findings) - away} of {checked} replicas were wrong and are not used any more"]
    if away:
        parts = [*(parts if len(findings) > away else []), f"{counted(away, 'replica')} could not be reached"]
    if findings:
        raise PdlaError("; ".join(parts))


@click.command()
@json_option
def gc(as_json: bool) -> None:
    """Remove what no run can use any more.

    This removes stale and retired replicas, the remains of killed builds, and old state files.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import gc as collect_garbage

    _print_removed(collect_garbage(open_catalog()), "Freed", as_json)


@click.command()
@click.argument("replica", type=NUMBER)
@json_option
def rm(replica: int, as_json: bool) -> None:
    """Remove a replica.

    REPLICA is its id in pdla status. The original is never touched.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.verify import remove

    _print_removed(remove(open_catalog(), replica), f"Removed replica {replica},", as_json)


def _print_removed(removed: Removed, what: str, as_json: bool) -> None:
    """Print what was removed; for each replica that could not be removed print a line, then fail."""

    if as_json:
        kept = [{"replica": one.replica, "path": str(one.path), "problem": one.problem} for one in removed.kept]
        print_json({"bytes": removed.bytes, "kept": kept})
    else:
        for one in removed.kept:
            click.echo(f"replica {one.replica}: {shown(str(one.path))} {one.problem}")
        click.echo(f"{'Freed' if removed.kept else what} {format_bytes(removed.bytes)}.")
    if removed.kept:
        left = counted(len(removed.kept), "replica")
        raise PdlaError(f"the files of {left} could not be removed: the catalog keeps them for the next pdla gc")
