"""Options and arguments that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables.")
trace_argument = click.argument("trace_path", metavar="RUN.h5", type=click.Path(path_type=Path))
cluster_option = click.option(
    "--cluster", metavar="FILE|NAME", help="cluster.toml, or an example's name; by default a nominal one."
)
command_argument = click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)


def print_json(value: Mapping[str, Any]) -> None:
    """One line of JSON: what ``--json`` promises, also as the last line below a program's own output."""
    click.echo(json.dumps(value, separators=(",", ":")))
