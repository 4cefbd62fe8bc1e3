"""pdla run: run a program redirected to replicas."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from pdla.cli.launch import launch, preloaded
from pdla.cli.options import command_argument, json_option, old_bytes_option, print_json, say
from pdla.config import RUN_PREFIX, home, map_path, writes_are_noted
from pdla.errors import PdlaError
from pdla.units import counted


@contextmanager
def redirection(writes: str = "original") -> Iterator[tuple[dict[str, str], Path]]:
    """The environment variables that redirect a program, and the directory for the exit reports of its ranks.

    The directory is locked while it is in use. pdla gc removes the directories of killed commands.
    """
    home().mkdir(parents=True, exist_ok=True, mode=0o700)
    reports = Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=home()))
    descriptor = os.open(reports, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield {"PDLA_MAP": str(map_path()), "PDLA_REPORT": str(reports), "PDLA_WRITES": writes}, reports
    finally:
        shutil.rmtree(reports, ignore_errors=True)
        os.close(descriptor)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--writes",
    type=click.Choice(["original", "close", "lease"]),
    default="original",
    show_default=True,
    help="close: writes go to replicas; write-back happens before MPI_File_sync or MPI_File_close returns. lease: "
    "write-back happens later, by pdla sync, the daemon, or the next open of the file.",
)
@old_bytes_option
@click.option("--verify", is_flag=True, help="Compare each redirected read with the original.")
@json_option
@command_argument
def run(writes: str, old_bytes: bool, verify: bool, as_json: bool, command: tuple[str, ...]) -> None:
    """Run a program served from replicas.

    Reads come from valid replicas. Bytes that are in doubt come from the original. The exit code is
    the program's own. If
    that is 0, it becomes 1 if the write-back failed or if --verify found a difference. To record a redirected run:
    pdla trace -- pdla run -- COMMAND.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.exit_reports import collect
    from pdla.replicator.mapfile import still_waiting

    with redirection(writes) as (variables, reports):
        variables |= {"PDLA_VERIFY": "1"} if verify else {}
        variables |= {"PDLA_OLD_BYTES": "1"} if old_bytes else {}
        code = launch(command, preloaded(variables, coherence=writes != "original" or writes_are_noted()))
        report = collect(reports, shlex.join(command))
    code = code or int(bool(report.errors or report.difference))
    try:
        catalog = open_catalog()
        catalog.results.add(report)
        waiting = still_waiting(catalog)
    except PdlaError as error:
        # The exit code is the program's; a catalog that fails does not change it.
        say(f"the report of this run was not recorded in the catalog: {error}")
        waiting = []
    if report.difference:
        say(report.difference)
    elif verify:
        say(f"{counted(report.compared_calls, 'read')} compared with the original: no difference")
    for why in waiting:
        say(why)
    if as_json:
        print_json({"exit_code": code, **report.to_json()})
    elif map_path().exists():
        say(report.sentence)
    else:
        say("nothing was redirected: no replica is published yet (pdla replicate publishes them)")
    raise click.exceptions.Exit(code)
