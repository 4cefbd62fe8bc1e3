"""The text that darshan-dxt-parser of Darshan 3.4 prints: a section for each rank and file."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pdla.collectors.tracefile import StoredTable, StoredTrace
from pdla.exports.calls import only, span
from pdla.exports.output import names_of, text_file
from pdla.traces.tables import OPS
from pdla.traces.trace import Trace
from pdla.units import shown

_LOG_VERSION = "3.41"
_COLUMNS = ("error", "file", "op", "offset", "length", "t_start", "t_end")
_HEADER = "# Module    Rank  Wt/Rd  Segment          Offset          Length        Start(s)          End(s)\n"
# RATIONALE: the parser prints four digits after the point, in which short calls last 0 s.
# Readers split lines at spaces or take any number of digits.
_LINE = "%8s%8d%7s%9d%16d%16d%16.9f%16.9f\n"
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_WRITE = OPS.index("write")

Columns = Mapping[str, npt.NDArray[Any]]


def export_dxt_text(trace: StoredTrace, output: Path) -> int:
    """Write the reads and writes of the POSIX calls, then of MPI-IO; returns their number.

    The calls of one rank are in memory at a time. Calls that failed are left out.

    Raises:
        PdlaError: the file cannot be written.
        FormatError: the trace is cut short or damaged.
    """
    about, paths = trace.about, names_of(trace.files)
    host = about.hosts[0] if len(about.hosts) == 1 else "UNKNOWN"
    count = 0
    with text_file(output) as file:
        _write_job(file, about, span(trace)[1])
        for module, table in (("POSIX", trace.posix), (_level(trace), trace.records)):
            if table:
                bar = f"# {'*' * 51}\n"
                file.write(f"\n{bar}# DXT_{module} module data\n{bar}")
                for rank, part in _ranks(table):
                    count += len(part["file"])
                    _write_rank(file, f"X_{module}", rank, part, paths, host)
    return count


def _level(trace: StoredTrace) -> str:
    """Of the records: traces of Darshan logs without MPI-IO have the POSIX calls there."""
    return "POSIX" if any(kind.startswith("DXT_POSIX") for kind in trace.records.kinds) else "MPIIO"


def _write_job(file: TextIO, about: Trace, seconds: float) -> None:
    begin, end = int(about.started), int(about.started + seconds)
    number = next((about.environment[name] for name in _JOBS if name in about.environment), "")
    job = re.match(r"\d+", number)
    for name, value in (
        ("darshan log version", _LOG_VERSION),
        ("compression method", "NONE"),
        ("exe", shown(about.command)),
        ("uid", 0),
        ("jobid", job[0] if job else 0),
        ("start_time", begin),
        ("start_time_asci", time.ctime(begin)),
        ("end_time", end),
        ("end_time_asci", time.ctime(end)),
        ("nprocs", about.ranks),
        ("run time", f"{seconds:.4f}"),
    ):
        file.write(f"# {name}: {value}\n")


def _ranks(table: StoredTable) -> Iterator[tuple[int, Columns]]:
    """The calls of each rank that succeeded: by file, writes before reads, then in the order of the trace."""
    for start, stop in pairwise(table.heads().tolist()):
        blocks = table.in_blocks(*_COLUMNS, start=start, stop=stop)
        parts = [only(block, (block["op"] < 2) & (block["error"] == 0)) for block in blocks]
        rows = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
        order = np.lexsort((rows["op"] != _WRITE, rows["file"]))
        yield int(table.rows_of(start, start + 1, ["rank"])["rank"][0]), {name: rows[name][order] for name in _COLUMNS}


def _write_rank(file: TextIO, module: str, rank: int, rows: Columns, paths: Sequence[str], host: str) -> None:
    heads = np.append(np.flatnonzero(np.diff(rows["file"], prepend=-2)), len(rows["file"])).tolist()
    for start, stop in pairwise(heads):
        path = paths[int(rows["file"][start])]
        written = int(np.count_nonzero(rows["op"][start:stop] == _WRITE))
        read = stop - start - written
        file.write(
            f"\n# DXT, file_id: {_identifier(path)}, file_name: {path}\n"
            f"# DXT, rank: {rank}, hostname: {host}\n"
            f"# DXT, write_count: {written}, read_count: {read}\n"
            f"# DXT, mnt_pt: UNKNOWN, fs_type: UNKNOWN\n{_HEADER}"
        )
        middle = start + written
        for name, low, high in (("write", start, middle), ("read", middle, stop)):
            fields = (rows[column][low:high].tolist() for column in _COLUMNS[3:])
            same = (repeat(word) for word in (module, rank, name))
            file.writelines(map(_LINE.__mod__, zip(*same, range(high - low), *fields, strict=False)))


def _identifier(path: str) -> int:
    """A number for a path. Darshan's own is another, which only Darshan looks up."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little")
