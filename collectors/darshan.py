"""Import the DXT records of a Darshan log (extended tracing of every read and write) as a trace."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pdla.collectors.darshan_log import read_log
from pdla.errors import PdlaError
from pdla.traces.file_views import View
from pdla.traces.tables import OPS, categorical, files_frame, nanoseconds, records_frame, seconds
from pdla.traces.trace import Trace
from pdla.units import format_count

_NOTES = {
    "DXT_MPIIO": (
        "Darshan does not record file views: each call counts as one extent from its first byte on",
        "Darshan does not record which calls were collective",
    ),
    "DXT_POSIX": ("these are the POSIX calls that the MPI library made, not the program's own MPI-IO calls",),
}


def import_darshan(path: str | os.PathLike[str]) -> Trace:
    """The reads and writes in a Darshan log: those of MPI-IO (DXT_MPIIO) if they have offsets, otherwise DXT_POSIX.

    Raises:
        PdlaError: the log cannot be read, has no DXT records, or pydarshan is not installed.
        FormatError: the file is not a Darshan log, or is cut short or damaged.
    """
    log = Path(path)
    facts, extracted = read_log(log, "dxt")
    module = facts["module"]
    if module is None:
        raise PdlaError(
            f"{log} has no DXT records, only counters (modules: {', '.join(facts['modules'])}): "
            f"'pdla analyze {log}' prints them; for a trace set DXT_ENABLE_IO_TRACE=1 (or, from Darshan 3.4 on, "
            "DARSHAN_MOD_ENABLE=DXT_POSIX,DXT_MPIIO) and run again"
        )
    order = np.lexsort((extracted["op"], extracted["t_start"], extracted["rank"]))
    columns = {name: extracted[name][order] for name in ("rank", "file", "op", "offset", "length", "t_start", "t_end")}
    for name in ("t_start", "t_end"):
        columns[name] = seconds(nanoseconds(columns[name]))
    op = columns.pop("op")
    opened_by = np.unique(np.stack([columns["file"], columns["rank"]]), axis=1)[0]
    ranks_of = np.bincount(opened_by, minlength=len(facts["paths"])).tolist()
    notes = list(_NOTES[module])
    if facts["unplaced_mpiio"]:
        notes.append("its DXT_MPIIO records have no offsets (Darshan before 3.2, or Open MPI), so they were not used")
    if unplaced := int(np.count_nonzero(columns["offset"] < 0)):
        notes.append(f"the place of the bytes of {format_count(unplaced)} calls is not known: their offset is -1")
    if facts["partial"]:
        notes.append("Darshan ran out of memory for its records: some calls of the program are missing")
    return Trace(
        records=records_frame(
            {**columns, "op": categorical(op, OPS), "kind": categorical(op, [f"{module} {name}" for name in OPS[:2]])}
        ),
        files=files_frame([{"path": p, "ranks": n} for p, n in zip(facts["paths"], ranks_of, strict=True)]),
        views=(View.plain(),),
        command=facts["command"],
        ranks=facts["ranks"],
        source="darshan",
        seconds=facts["seconds"],
        levels=facts["levels"],
        notes=tuple(notes),
    )
