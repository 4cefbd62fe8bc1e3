"""Import the DXT records of a Darshan log (extended tracing of every read and write) as a trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.darshan_log import ALL_RANKS, COUNTED, read_log
from pdla.errors import PdlaError
from pdla.model import Int64Array
from pdla.traces.file_views import View
from pdla.traces.tables import OPS, categorical, files_frame, nanoseconds, records_frame, seconds
from pdla.traces.trace import Trace
from pdla.units import format_count

_POSIX = "these are the POSIX calls that the MPI library made, not the program's own MPI-IO calls"


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
    of_mpi = module == "DXT_MPIIO"
    columns |= _proven(_counted(extracted["counted"], columns["file"], columns["rank"]), columns["op"], of_mpi)
    op = columns.pop("op")
    opened_by = np.unique(np.stack([columns["file"], columns["rank"]]), axis=1)[0]
    ranks_of = np.bincount(opened_by, minlength=len(facts["paths"])).tolist()
    notes = [*_doubts(columns)] if of_mpi else [_POSIX]
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


def _counted(counted: Int64Array, file: Int64Array, rank: Int64Array) -> dict[str, Int64Array]:
    """What the counters say of the calls on each call's file, by its rank or by all; -1: there are no counters.

    ``counted`` is an array of darshan_log.
    """
    known = {(of_file, of_rank): row for row, (of_rank, of_file) in enumerate(counted[:, :2].tolist())}
    pairs, place = np.unique(np.stack([file, rank]), axis=1, return_inverse=True)
    rows = [known.get((of, by), known.get((of, ALL_RANKS), -1)) for of, by in pairs.T.tolist()]
    values = np.vstack([counted[:, 2:], np.full(len(COUNTED), -1)])[np.array(rows, dtype=np.int64)[place.ravel()]]
    return dict(zip(COUNTED, values.T, strict=True))


def _proven(counted: Mapping[str, Int64Array], op: Int64Array, of_mpi: bool) -> dict[str, npt.NDArray[np.bool_]]:
    """Which calls are collective, may be, and may have holes, where the calls of a rank on a file were all of one kind.

    The POSIX calls of collective calls are neither: an aggregator makes them for all ranks.
    """
    independent, collective = (
        np.where(op == OPS.index("read"), counted[f"{kind} reads"], counted[f"{kind} writes"])
        for kind in ("independent", "collective")
    )
    if not of_mpi:
        return {"collective_unknown": collective > 0}
    return {
        "collective": (collective > 0) & (independent == 0),
        "collective_unknown": (collective != 0) & (independent != 0) | (collective == 0) & (independent == 0),
        "holes_unknown": counted["views"] != 0,
    }


def _doubts(columns: Mapping[str, npt.NDArray[Any]]) -> Iterator[str]:
    """Notes on what is not known of how many MPI-IO calls."""
    if holes := int(np.count_nonzero(columns["holes_unknown"])):
        yield (
            f"Darshan does not record file views, but they were set on the files of {format_count(holes)} calls: each "
            "counts as one extent from its first byte on"
        )
    if unknown := int(np.count_nonzero(columns["collective_unknown"])):
        yield f"Darshan's counters do not say which of {format_count(unknown)} calls were collective"
