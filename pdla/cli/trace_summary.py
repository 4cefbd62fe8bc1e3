"""The summary that the verbs print about a trace that they made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdla.cli.options import print_json, say
from pdla.units import counted, format_bytes

if TYPE_CHECKING:
    from pdla.traces.trace import Trace


def print_summary(
    trace: Trace, calls: int, moved: int, output: Path, as_json: bool, more: Mapping[str, Any], *, err: bool
) -> None:
    """Print a summary of the trace in ``output``: JSON with the keys of ``more``, or lines.

    ``err``: print the lines on standard error, because standard output is the program's.
    """
    if as_json:
        print_json(
            {
                "trace": str(output),
                **more,
                "ranks": trace.ranks,
                "calls": calls,
                "bytes": moved,
                "files": len(trace.files),
                "dropped": trace.dropped,
                "truncated_ranks": list(trace.truncated),
                "unrecorded": dict(trace.unrecorded),
                "notes": list(trace.notes),
            }
        )
        return
    lines = [
        f"{output}: {counted(trace.ranks, 'rank')}, {counted(calls, 'call')}, {format_bytes(moved)} moved "
        f"in {counted(len(trace.files), 'file')}"
    ]
    if trace.dropped:
        lines.append(f"{counted(trace.dropped, 'record')} lost: no disk space, or no memory")
    if trace.truncated:
        lines.append(
            f"{counted(len(trace.truncated), 'rank')} ended before MPI_Finalize; the records until then are kept"
        )
    lines += [f"note: {note}" for note in trace.notes]
    for line in lines:
        say(line, err=err)
