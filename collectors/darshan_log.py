"""Read a Darshan log with pydarshan, in a process of its own."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import DARSHAN, check
from pdla.traces.tables import OPS

DXT = ("DXT_MPIIO", "DXT_POSIX")
LAYERS = ("MPI-IO", "POSIX", "STDIO")
LEVELS = {"H5F": "HDF5", "H5D": "HDF5", "MPI-IO": "MPI-IO", "POSIX": "POSIX"}
COUNTED = {
    "independent reads": ("INDEP_READS", "NB_READS"),
    "collective reads": ("COLL_READS", "SPLIT_READS"),
    "independent writes": ("INDEP_WRITES", "NB_WRITES"),
    "collective writes": ("COLL_WRITES", "SPLIT_WRITES"),
    "views": ("VIEWS",),
}
"""What is taken from MPI-IO's counters for a trace, and the counters whose sum it is."""
ALL_RANKS = -1
"""The rank of a record that sums up all ranks."""
TIMES = ("_F_READ_TIME", "_F_WRITE_TIME", "_F_META_TIME")


def read_log(log: Path, what: Literal["dxt", "counters"]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts about the run that a Darshan log names, and arrays: of its DXT records, or of its counters.

    The facts are ``modules``, ``ranks``, ``command``, ``seconds`` and those of ``_dxt`` or
    ``_counters``, which make the arrays.

    Raises:
        PdlaError: the log cannot be read, or pydarshan is not installed.
        FormatError: the file is not a Darshan log, or is cut short or damaged.
    """
    check(log, DARSHAN)
    if importlib.util.find_spec("darshan") is None:
        raise PdlaError("reading .darshan logs needs pydarshan: pip install 'pdla[darshan]'")
    # On a damaged log Darshan's C library prints, returns what it has, or aborts the process.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, what, log], capture_output=True, env=environment, check=False
    )
    complaints = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in complaints if line.startswith("Error:")]
    if done.returncode or errors:
        raise FormatError(f"the Darshan log {log} is cut short or damaged: {(errors or complaints or ['it ends'])[-1]}")
    with np.load(io.BytesIO(done.stdout)) as arrays:
        found = {name[1:]: values for name, values in arrays.items()}  # savez has a parameter called file
    return json.loads(str(found.pop("facts"))), found


def _read(what: str, log: str) -> dict[str, Any]:
    """What the child process returns: arrays, and ``facts`` as JSON."""
    import darshan  # type: ignore[import-untyped]

    report = darshan.DarshanReport(log, read_all=False)
    facts, arrays = (_dxt if what == "dxt" else _counters)(report)
    job = report.metadata["job"]
    about = {
        "modules": list(report.modules),
        "ranks": job["nprocs"],
        "command": report.metadata["exe"].strip(),
        "seconds": float(job["run_time"]),
        "levels": _levels(report),
    }
    return {**arrays, "facts": np.array(json.dumps({**about, **facts}))}


def _levels(report: Any) -> dict[str, float]:
    """Seconds in reads, writes and metadata of each level, summed over all ranks; a level with negative times is left
    out, as some versions of Darshan write them."""
    found: dict[str, float] = {}
    for module, level in LEVELS.items():
        if module not in report.modules:
            continue
        report.mod_read_all_records(module, dtype="numpy")
        records = list(report.records[module])
        names = report.counters[module]["fcounters"] if records else []
        times = [place for place, name in enumerate(names) if name.endswith(TIMES)]
        seconds = np.array([record["fcounters"][times] for record in records])
        if seconds.size and (seconds >= 0).all():
            found[level] = found.get(level, 0.0) + float(seconds.sum())
    return found


def _dxt(report: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records of the first DXT module that has some with offsets: a row for each read or write.

    ``counted`` has a row for each record of MPI-IO's counters on the same files: rank (-1: of all), file, and COUNTED.
    """
    facts: dict[str, Any] = {"module": None, "paths": [], "partial": False, "unplaced_mpiio": False}
    numbers: dict[int, int] = {}
    parts: dict[str, list[Any]] = {name: [] for name in ("rank", "file", "op", "offset", "length", "t_start", "t_end")}
    for module in (name for name in DXT if name in report.modules):
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
    arrays = {name: np.concatenate(part) if part else np.empty(0) for name, part in parts.items()}
    return facts, {**arrays, "counted": _counted(report, numbers)}


def _counted(report: Any, numbers: Mapping[int, int]) -> Any:
    rows = []
    if "MPI-IO" in report.modules:
        report.mod_read_all_records("MPI-IO", dtype="numpy")
        for record in report.records["MPI-IO"]:
            if record["id"] in numbers:
                value = dict(zip(report.counters["MPI-IO"]["counters"], record["counters"], strict=True))
                sums = (sum(int(value[f"MPIIO_{name}"]) for name in names) for names in COUNTED.values())
                rows.append([record["rank"], numbers[record["id"]], *sums])
    return np.array(rows, dtype=np.int64).reshape(-1, 2 + len(COUNTED))


def _counters(report: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """For each layer ``<layer>`` (rank and file of a row) and its counters, a row for each record, with their names."""
    numbers: dict[int, int] = {}
    facts: dict[str, Any] = {"partial": [], "names": {}}
    arrays = {}
    for layer in (name for name in LAYERS if name in report.modules):
        report.mod_read_all_records(layer, dtype="numpy")
        records = list(report.records[layer])
        if not records:
            continue
        if report.modules[layer]["partial_flag"]:
            facts["partial"].append(layer)
        arrays[layer] = np.array(
            [[record["rank"], numbers.setdefault(record["id"], len(numbers))] for record in records], dtype=np.int64
        )
        for kind in ("counters", "fcounters"):
            arrays[f"{layer} {kind}"] = np.stack([record[kind] for record in records])
            facts["names"][f"{layer} {kind}"] = report.counters[layer][kind]
    facts["paths"] = [report.name_records[number] for number in numbers]
    return facts, arrays


def _main() -> None:
    # Everything that Python or C code prints goes to stderr, so that stdout holds only the answer.
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        buffer = io.BytesIO()
        np.savez(buffer, **{f"_{name}": values for name, values in _read(*sys.argv[1:]).items()})
        answer.write(buffer.getvalue())


if __name__ == "__main__":
    _main()
