"""Import the DXT records of a Darshan log (extended tracing of every read and write) as a trace."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import DARSHAN, check
from pdla.traces.file_views import View
from pdla.traces.tables import OPS, categorical, files_frame, nanoseconds, records_frame, seconds
from pdla.traces.trace import Trace
from pdla.units import format_count

_MODULES = ("DXT_MPIIO", "DXT_POSIX")
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
    check(log, DARSHAN)
    if importlib.util.find_spec("darshan") is None:
        raise PdlaError("reading .darshan logs needs pydarshan: pip install 'pdla[darshan]'")
    extracted = _extract(log)
    facts = json.loads(str(extracted["facts"]))
    module = facts["module"]
    if module is None:
        raise PdlaError(
            f"{log} has no DXT records, only counters (modules: {', '.join(facts['modules'])}): "
            "set DXT_ENABLE_IO_TRACE=1 (or, from Darshan 3.4 on, DARSHAN_MOD_ENABLE=DXT_POSIX,DXT_MPIIO) and run again"
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
        notes=tuple(notes),
    )


def _extract(log: Path) -> dict[str, Any]:
    # In a process of its own: on a damaged log Darshan's C library prints, returns what it has, or
    # aborts the process.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, log], capture_output=True, env=environment, check=False
    )
    complaints = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in complaints if line.startswith("Error:")]
    if done.returncode or errors:
        raise FormatError(f"the Darshan log {log} is cut short or damaged: {(errors or complaints or ['it ends'])[-1]}")
    with np.load(io.BytesIO(done.stdout)) as arrays:
        return {name[1:]: values for name, values in arrays.items()}  # savez has a parameter called file


def _read(log: str) -> dict[str, Any]:
    """What the child process returns: columns, and ``facts`` as JSON."""
    import darshan  # type: ignore[import-untyped]

    report = darshan.DarshanReport(log, read_all=False)
    facts: dict[str, Any] = {
        "modules": list(report.modules),
        "module": None,
        "ranks": report.metadata["job"]["nprocs"],
        "command": report.metadata["exe"].strip(),
        "paths": [],
        "partial": False,
        "unplaced_mpiio": False,
    }
    parts: dict[str, list[Any]] = {name: [] for name in ("rank", "file", "op", "offset", "length", "t_start", "t_end")}
    for module in (name for name in _MODULES if name in report.modules):
        report.mod_read_all_dxt_records(module, dtype="pandas")
        records = report.records[module].to_df()
        segments = [
            (record, op, record[f"{name}_segments"])
            for record in records
            for op, name in enumerate(OPS[:2])
            if len(record[f"{name}_segments"])
        ]
        if not segments:
            continue
        if module == "DXT_MPIIO" and all((table["offset"] < 0).all() for _, _, table in segments):
            facts["unplaced_mpiio"] = True
            continue
        numbers: dict[int, int] = {}
        for record, op, table in segments:
            number = numbers.setdefault(record["id"], len(numbers))
            for name, value in (("rank", record["rank"]), ("file", number), ("op", op)):
                parts[name].append(np.full(len(table), value, dtype=np.int64))
            for name, column in (
                ("offset", "offset"),
                ("length", "length"),
                ("t_start", "start_time"),
                ("t_end", "end_time"),
            ):
                parts[name].append(table[column].to_numpy())
        facts["module"] = module
        facts["partial"] = bool(report.modules[module]["partial_flag"])
        facts["paths"] = [report.name_records[number] for number in numbers]
        break
    columns = {name: np.concatenate(part) if part else np.empty(0) for name, part in parts.items()}
    return {**columns, "facts": np.array(json.dumps(facts))}


def _main() -> None:
    # Everything that Python or C code prints goes to stderr, so that stdout holds only the answer.
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        buffer = io.BytesIO()
        np.savez(buffer, **{f"_{name}": values for name, values in _read(sys.argv[1]).items()})
        answer.write(buffer.getvalue())


if __name__ == "__main__":
    _main()
