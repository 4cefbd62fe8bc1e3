"""pdla trace: run a program with the recorder preloaded, pack what it recorded into one file."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from pdla.cli.launch import launch, preloaded
from pdla.cli.options import command_argument, json_option, print_json
from pdla.errors import PdlaError
from pdla.units import format_bytes, format_count

if TYPE_CHECKING:
    from pdla.model import Trace


def record(
    command: Sequence[str], output: Path, variables: Mapping[str, str], stdout: IO[bytes] | None = None
) -> tuple[Trace | None, int]:
    """Run ``command`` with the recorder and further environment ``variables``; write the trace to ``output``.

    Returns the trace (None when the program failed before it left any record) and the program's exit code.
    """
    from pdla.collectors.rawlog import read_raw
    from pdla.collectors.tracefile import write_trace

    folder = output.absolute().parent
    if not folder.is_dir():
        raise PdlaError(f"cannot write {output}: there is no directory {folder}")
    # Beside the output, not in /tmp: the ranks may run on other nodes, and the output is where all of them can write.
    logs = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".raw", dir=folder))
    try:
        code = launch(command, preloaded({**variables, "PDLA_TRACE": str(logs)}), stdout)
        if code and not any(logs.iterdir()):
            return None, code
        trace = read_raw(logs, shlex.join(command))
    finally:
        if not any(logs.iterdir()):
            logs.rmdir()
    try:
        write_trace(trace, output)
    except OSError as error:
        raise PdlaError(f"cannot write {output}: {error.strerror}; the raw records are kept in {logs}") from None
    shutil.rmtree(logs)
    return trace, code


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o", "output", type=click.Path(path_type=Path), default="run.h5", show_default=True, help="Trace to write."
)
@json_option
@command_argument
def trace(output: Path, as_json: bool, command: tuple[str, ...]) -> None:
    """Record a run of a program.

    Every MPI-IO call goes into one HDF5 file. The exit code is the program's own. Whatever ends the program, what it
    had recorded until then is packed.
    """
    recorded, code = record(command, output, {})
    if recorded is None:
        raise click.exceptions.Exit(code)
    data = recorded.records[recorded.records["op"].isin(["read", "write"])]
    moved = int(data["length"].sum())
    if as_json:
        print_json(
            {
                "trace": str(output),
                "exit_code": code,
                "ranks": recorded.ranks,
                "calls": len(recorded.records),
                "bytes": moved,
                "files": len(recorded.files),
                "dropped": recorded.dropped,
                "truncated_ranks": list(recorded.truncated),
                "unrecorded": dict(recorded.unrecorded),
            }
        )
    else:
        click.echo(
            f"pdla: {output}: {recorded.ranks} ranks, {format_count(len(recorded.records))} calls, "
            f"{format_bytes(moved)} moved in {len(recorded.files)} files",
            err=True,
        )
        if recorded.dropped:
            click.echo(f"pdla: {format_count(recorded.dropped)} records were dropped (disk full?)", err=True)
        if recorded.truncated:
            click.echo(
                f"pdla: {len(recorded.truncated)} ranks ended before MPI_Finalize; their records are kept", err=True
            )
    raise click.exceptions.Exit(code)
