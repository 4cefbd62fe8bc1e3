"""pdla sync: write-back of what redirected runs left in write replicas and cache files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from pdla.cli.options import json_option, print_json
from pdla.config import map_path, writes_are_noted
from pdla.errors import PdlaError
from pdla.units import format_bytes, shown

if TYPE_CHECKING:
    from pdla.replicator.sync import Conflict, WriteBackResult

SHOWN = 5


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--changed",
    type=click.Choice(["keep", "overwrite", "discard"]),
    default="keep",
    show_default=True,
    help="If somebody else has changed the original: the bytes wait, replace the change, or are dropped.",
)
@json_option
def sync(file: Path | None, changed: str, as_json: bool) -> None:
    """Write redirected writes back to their originals, or to FILE only.

    These are the bytes that pdla run --writes lease, or a killed run, left in write replicas and
    cache files. The verb prints what it could not save, and fails if bytes still wait or are lost.
    """
    path = None if file is None else file.absolute()
    found = _write_back(path, cast("Conflict", changed)) if _may_wait() else []
    if path is not None and not found and not path.exists():
        raise PdlaError(f"there is no file {path}, and nothing waits for one of this name")
    report(found, as_json, nothing="Nothing to write back.")


def _may_wait() -> bool:
    """Whether there are journals, or notes that lead to some. Without them there is no need for the catalog."""
    from pdla.replicator.write_targets import directories_in

    return writes_are_noted() or bool(directories_in(map_path()))


def _write_back(only: Path | None, conflict: Conflict) -> list[WriteBackResult]:
    from pdla.catalog import open_catalog
    from pdla.replicator.sync import write_back

    return write_back(open_catalog(), only=only, conflict=conflict)


def report(found: list[WriteBackResult], as_json: bool, *, nothing: str) -> None:
    """Print what was written back; fail if bytes still wait or are lost. ``nothing`` says that there were none."""
    if as_json:
        print_json({"originals": [{**asdict(one), **_paths(one)} for one in found]})
    elif found:
        click.echo("\n".join(shown(line) for one in found for line in _lines(one)))
    else:
        click.echo(nothing)
    if bad := [one for one in found if one.problem or one.lost or one.damaged]:
        raise PdlaError(f"{len(bad)} of {len(found)} files could not be written back completely")


def _paths(one: WriteBackResult) -> dict[str, str | None]:
    return {"original": str(one.original), "moved_from": str(one.moved_from) if one.moved_from else None}


def _lines(one: WriteBackResult) -> list[str]:
    lines = []
    if one.moved_from:
        lines.append(f"{one.original}: its name was {one.moved_from} when it was written")
    if one.bytes:
        unsynced = f", {format_bytes(one.unsynced)} of it never synced by the program" if one.unsynced else ""
        lines.append(f"{one.original}: {format_bytes(one.bytes)} written back{unsynced}")
    if one.dropped:
        lines.append(f"{one.original}: {format_bytes(one.dropped)} dropped")
    if one.problem:
        lines.append(f"{one.original}: {one.problem}")
    if one.damaged:
        lines.append(f"{one.original}: {one.damaged} entries of the journals are damaged: the bytes they name are lost")
    lines += [f"{one.original}: lost bytes {start} to {start + length}" for start, length in one.lost[:SHOWN]]
    if len(one.lost) > SHOWN:
        lines.append(f"{one.original}: and {len(one.lost) - SHOWN} more lost extents (--json lists all)")
    return lines or [f"{one.original}: nothing to write back"]
