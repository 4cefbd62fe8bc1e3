"""Options and arguments that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pdla.units import parse_bytes

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables.")
trace_argument = click.argument("trace_path", metavar="RUN.h5", type=click.Path(path_type=Path))
cluster_option = click.option(
    "--cluster", metavar="FILE|NAME", help="cluster.toml, or an example's name; by default a nominal one."
)
command_argument = click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)


def size(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Callback of an option that is a number of bytes, with a unit if wanted."""
    try:
        found = None if text is None else parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if found == 0:
        raise click.BadParameter("must be more than 0")
    return found


def print_json(value: Mapping[str, Any]) -> None:
    """One line of JSON: what ``--json`` promises, also as the last line below a program's own output."""
    click.echo(json.dumps(value, separators=(",", ":")))
