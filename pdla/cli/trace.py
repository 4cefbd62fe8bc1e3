"""pdla trace, pdla pack: run a program with the recorder preloaded, and pack its records into one file."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from pdla.cli.launch import launch, preloaded
from pdla.cli.options import command_argument, json_option, old_bytes_option, say, trace_output
from pdla.cli.progress import progress
from pdla.cli.trace_summary import print_summary
from pdla.config import writes_are_noted
from pdla.errors import PdlaError

if TYPE_CHECKING:
    from pdla.collectors.packing import Packed


def record(
    command: Sequence[str],
    output: Path,
    variables: Mapping[str, str],
    stdout: IO[bytes] | None = None,
    *,
    posix: bool = False,
) -> tuple[Packed | None, int]:
    """Run ``command`` with the recorder and further environment ``variables``; write the trace to ``output``.

    With ``posix`` its POSIX calls are recorded, too.

    Returns:
        What was packed (None if the program failed before it left any record), and the program's
        exit code.
    """
    from pdla.collectors.packing import pack as pack_logs

    folder = output.absolute().parent
    # The logs go next to the output, not to /tmp: ranks may run on other nodes, and all nodes can
    # write the output.
    try:
        logs = Path(tempfile.mkdtemp(prefix=f".{output.name[:50]}.", suffix=".raw", dir=folder))
    except OSError as error:
        raise PdlaError(f"cannot write into {folder}: {error.strerror}") from None
    keep = False
    try:
        variables = {**variables, "PDLA_TRACE": str(logs)}
        code = launch(command, preloaded(variables, posix=posix, coherence=writes_are_noted()), stdout)
        keep = any(path.stat().st_size for path in logs.glob("*/*"))
        if not keep and code:
            return None, code
        if not any(logs.glob("*/*")):
            raise PdlaError(
                f"{command[0]} made no MPI-IO call that could be recorded. Possible reasons: it makes none; its MPI is "
                "linked statically (ldd PROGRAM shows no libmpi); the launcher did not pass LD_PRELOAD and PDLA_TRACE "
                f"on to it; it could not write into {folder}"
            )
        with progress(" records") as advance:
            packed = pack_logs(logs, output, shlex.join(command), os.environ, progress=advance)
        keep = False
    except PdlaError as error:
        if not keep:
            raise
        raise PdlaError(f"{error}; the records are kept, pack them with: pdla pack {shlex.quote(str(logs))}") from None
    finally:
        if not keep:
            shutil.rmtree(logs, ignore_errors=True)
    return packed, code


@click.command(context_settings={"allow_interspersed_args": False})
@trace_output
@click.option("--include", metavar="GLOB", multiple=True, help="Record only files whose path matches (repeatable).")
@click.option("--exclude", metavar="GLOB", multiple=True, help="Do not record files whose path matches (repeatable).")
@click.option("--posix", is_flag=True, help="Also record the POSIX calls on these files.")
@old_bytes_option
@json_option
@command_argument
def trace(
    output: Path,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    posix: bool,
    old_bytes: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Record a run of a program.

    Every MPI-IO call goes into one HDF5 file. The exit code is the program's own. Whatever ends the
    program, the records made until then are packed.
    """
    globs = {"PDLA_TRACE_INCLUDE": "\n".join(include), "PDLA_TRACE_EXCLUDE": "\n".join(exclude)}
    variables = globs | ({"PDLA_OLD_BYTES": "1"} if old_bytes else {})
    packed, code = record(command, output, variables, posix=posix)
    if packed is None:
        say(f"nothing was recorded: {command[0]} ended with exit code {code}")
    else:
        print_summary(packed.about, packed.calls, packed.moved, output, as_json, {"exit_code": code}, err=True)
    raise click.exceptions.Exit(code)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@trace_output
@json_option
def pack(directory: Path, output: Path, as_json: bool) -> None:
    """Make a trace of the logs in DIRECTORY.

    A killed 'pdla trace' leaves logs in a directory .RUN.h5.*.raw next to its output. A program
    that was preloaded by hand leaves them in the directory that PDLA_TRACE names. The directory
    stays.
    """
    from pdla.collectors.packing import pack as pack_logs

    with progress(" records") as advance:
        packed = pack_logs(directory, output, progress=advance)
    print_summary(packed.about, packed.calls, packed.moved, output, as_json, {}, err=False)
