"""Options and arguments that several verbs share."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdla.errors import ConfigError, PdlaError
from pdla.units import parse_bytes, shown

if TYPE_CHECKING:
    from pdla.model import Cluster

OWN = "FILE.py:CLASS"
PICTURES = (".png", ".svg", ".pdf")


class Named(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """One of the names that ``names`` lists; ``check`` raises ConfigError for any other value.

    Both are called only when they are needed, so that the command line imports little. With
    ``own``, the help also offers a class in a file of the user's.
    """

    name = "name"

    def __init__(
        self, names: Callable[[], Iterable[str]], check: Callable[[str], object], *, own: bool = False
    ) -> None:
        self._names, self._check, self._own = names, check, own

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The choices, as ``--help`` prints them."""
        return f"[{'|'.join([*self._names(), *([OWN] if self._own else [])])}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The value, if it is one of the choices."""
        try:
            self._check(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """The names that begin with ``incomplete``."""
        return [click.shell_completion.CompletionItem(name) for name in self._names() if name.startswith(incomplete)]


class Finite(click.FloatRange):
    """A finite number in a range; click itself accepts infinity and NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Output(click.Path):
    """A file for a verb to write. A path that cannot be written is refused before the work, not after it."""

    def __init__(self, endings: tuple[str, ...] = ()) -> None:
        super().__init__(path_type=Path)
        self._endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        path = Path(str(super().convert(value, param, ctx)))
        if why := self._obstacle(path):
            self.fail(f"cannot write {path}: {why}", param, ctx)
        return path

    def _obstacle(self, path: Path) -> str:
        if self._endings and path.suffix.lower() not in self._endings:
            return f"the name of a picture must end in {', '.join(self._endings)}"
        if path.is_dir():
            return "it is a directory"
        if path.exists() and not path.is_file():
            return "" if os.access(path, os.W_OK) else "permission denied"
        folder = path.resolve().parent
        if not folder.is_dir():
            return f"there is no directory {folder}"
        try:
            # RATIONALE: permission bits do not show a read-only mount, nor what root may not do.
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            return f"{folder}: {error.strerror}"
        return ""


NUMBER = click.IntRange(1, 2**63 - 1)
"""The id of a row of the catalog."""
IDLE_LOAD, IDLE_IO = 0.5, "64M"
"""Replicas are built in the background only while other processes use at most this share of the processors, and move
at most so many bytes per second to and from this machine's disks."""

old_bytes_option = click.option(
    "--old-bytes",
    is_flag=True,
    help="Open a file as it is if its newest bytes are in replicas and cannot be written back. "
    "Without this option such an open fails.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables.")
trace_argument = click.argument("trace_path", metavar="RUN.h5", type=click.Path(path_type=Path))
trace_output = click.option(
    "-o", "output", type=Output(), default="run.h5", show_default=True, metavar="FILE", help="Trace to write."
)
cluster_option = click.option(
    "--cluster", metavar="FILE|NAME", help="A cluster.toml, or the name of an example; default: a nominal cluster."
)
command_argument = click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)


def size(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Callback of an option that is a number of bytes, with or without a unit."""
    try:
        found = None if text is None else parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if found == 0:
        raise click.BadParameter("must be more than 0")
    return found


def check_traces(traces: Iterable[Path], *others: str) -> None:
    """Refuse paths that are not traces. One error names all of them, and ``others``.

    Raises:
        PdlaError: a path is missing or is not a trace, or ``others`` is not empty.
    """
    from pdla.file_kinds import TRACE, mistaken

    if wrong := [*filter(None, (mistaken(path, TRACE) for path in traces)), *others]:
        raise PdlaError("; ".join(wrong))


def read_cluster(cluster: str | None, *traces: Path) -> Cluster:
    """Read the cluster that ``--cluster`` names. One error names a wrong cluster and all paths that are not traces.

    Raises:
        PdlaError: the cluster or a trace cannot be used.
    """
    from pdla.layouts.config import load_cluster

    try:
        found = load_cluster(cluster, originals=True)
    except ConfigError as error:
        check_traces(traces, str(error))
        raise
    check_traces(traces)
    return found


def say(text: str, *, err: bool = True) -> None:
    """Print a line of pdla's own to standard error: standard output may belong to the program."""
    click.echo(f"pdla: {shown(text)}", err=err)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one line of JSON, as ``--json`` promises: the last line, below the program's own output."""
    click.echo(json.dumps(value, separators=(",", ":")))
