"""pdla run: run a program with its reads redirected to the replicas."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from pdla.cli.launch import launch, preloaded
from pdla.cli.options import command_argument, json_option, print_json
from pdla.config import home, map_path


@contextmanager
def redirection() -> Iterator[tuple[dict[str, str], Path]]:
    """The environment variables that redirect a program, and the directory its ranks leave their exit reports in."""
    home().mkdir(parents=True, exist_ok=True, mode=0o700)
    reports = Path(tempfile.mkdtemp(prefix="run.", dir=home()))
    try:
        yield {"PDLA_MAP": str(map_path()), "PDLA_REPORT": str(reports)}, reports
    finally:
        shutil.rmtree(reports, ignore_errors=True)


@click.command(context_settings={"allow_interspersed_args": False})
@json_option
@command_argument
def run(as_json: bool, command: tuple[str, ...]) -> None:
    """Run a program served from replicas.

    Reads come from valid replicas; whatever is in doubt is read from the original. The exit code is the program's own.
    To record a redirected run: pdla trace -- pdla run -- COMMAND.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.reports import collect

    with redirection() as (variables, reports):
        code = launch(command, preloaded(variables))
        report = collect(reports, shlex.join(command))
    open_catalog().add_result(report)
    if as_json:
        print_json({"exit_code": code, **report.to_json()})
    else:
        click.echo(f"pdla: {report.sentence}", err=True)
    raise click.exceptions.Exit(code)
