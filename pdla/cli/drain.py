"""pdla drain: wait until all bytes are home."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdla.cli.options import json_option, say
from pdla.cli.progress import Advance, progress
from pdla.cli.sync import report
from pdla.errors import PdlaError
from pdla.units import format_bytes

if TYPE_CHECKING:
    from pdla.replicator.sync import WriteBackResult

LOOK_SECONDS = 0.5
SAY_SECONDS = 10.0
"""Seconds between two lines of progress, where there is no terminal."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Wait for all files.")
@json_option
def drain(file: Path | None, everything: bool, as_json: bool) -> None:
    """Wait until all bytes of FILE are home.

    What ended programs left in cache files and write replicas is written back, as pdla sync does. For running
    programs the verb waits until their bytes are home. You may stop it at any moment.
    """
    if (file is not None) == everything:
        raise click.UsageError("give FILE or --all")
    path = None if file is None else file.absolute()
    with progress() as advance:
        found = _drained(path, advance)
    if path is not None and not found and not path.exists():
        raise PdlaError(f"there is no file {path}, and nothing waits for one of this name")
    report(found, as_json, nothing="All bytes are home.")


def _drained(path: Path | None, advance: Advance) -> list[WriteBackResult]:
    """What was written back, as soon as no running program has bytes of the files that are not home."""
    from pdla.catalog import open_catalog
    from pdla.replicator.sync import write_back

    catalog = open_catalog()
    found: list[WriteBackResult] = []
    said, most = -SAY_SECONDS, 0
    while True:
        rows = write_back(catalog, only=path, progress=advance, who="pdla drain")
        stuck = {row.original for row in found if row.problem}
        found += [row for row in rows if not row.busy and (not row.problem or row.original not in stuck)]
        busy = [row for row in rows if row.busy]
        if not busy:
            return found
        dirty = _dirty({row.original for row in busy})
        most = max(most, dirty)
        advance("bringing home", most - dirty, most)
        if not sys.stderr.isatty() and time.monotonic() - said >= SAY_SECONDS:
            said = time.monotonic()
            more = f" and {len(busy) - 1} more files" if len(busy) > 1 else ""
            say(f"{format_bytes(dirty)} of {busy[0].original}{more} are not home yet: {busy[0].problem}")
        time.sleep(LOOK_SECONDS)


def _dirty(originals: set[Path]) -> int:
    """The dirty bytes of these files."""
    from pdla.replicator.cache_status import cached_files

    return sum(one.dirty for one in cached_files(seconds=0) if one.original in originals)
