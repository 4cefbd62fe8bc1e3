"""What processes found critical: they leave logs of it, which are added to the critical data tables.

A table does not know which policy found its bytes critical: S4D-Cache, or iBridge.

Source: He et al., ICDCS 2014: the critical data table (III-A).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from pdla.catalog import Catalog
from pdla.critical_data import CriticalData
from pdla.errors import FormatError

SUFFIX = ".cdt"
MAGIC = b"PDLACDT1"
HEADER = np.dtype(
    [
        ("magic", "S8"), ("checksum", "<u4"), ("rows", "<u4"), ("device", "<u8"), ("inode", "<u8"), ("size", "<i8"),
        ("mtime_ns", "<i8"), ("path_bytes", "<u4"), ("rank", "<i4"), ("requests", "<u8"),
    ]
)  # fmt: skip
ROW = np.dtype([("start", "<i8"), ("stop", "<i8"), ("benefit", "<f8"), ("reads", "<i8")])
CHECKED_FROM = 16
"""The checksum is of the bytes from here on."""


@dataclass(frozen=True)
class CriticalLog:
    """What a process found in a file until it closed it, or several processes did.

    Attributes:
        requests: contiguous accesses that were judged, reads and writes.
        rows: shape (n,), dtype ROW: critical reads, each with the seconds that one of them saves, and how many.
    """

    path: Path
    requests: int
    rows: np.ndarray[Any, Any]


def read_log(path: Path) -> CriticalLog:
    """The log of a process.

    Raises:
        FormatError: it is not a log, or is damaged.
    """
    data = path.read_bytes()
    header = np.frombuffer(data[: HEADER.itemsize].ljust(HEADER.itemsize, b"\0"), HEADER)[0]
    rows, length = int(header["rows"]), int(header["path_bytes"])
    whole = HEADER.itemsize + rows * ROW.itemsize + length
    if header["magic"] != MAGIC or len(data) != whole:
        raise FormatError(f"{path} is not a log of critical reads, or it is cut off")
    if google_crc32c.value(data[CHECKED_FROM:]) != header["checksum"]:
        raise FormatError(f"{path} is damaged: its checksum is another one")
    table = np.frombuffer(data, ROW, rows, HEADER.itemsize)
    right = (table["start"] >= 0) & (table["stop"] > table["start"]) & (table["reads"] > 0)
    if not (right & np.isfinite(table["benefit"]) & (table["benefit"] > 0)).all():
        raise FormatError(f"{path} is damaged: a critical read has no bytes, or saves nothing")
    original = Path(data[whole - length :].decode("utf-8", "surrogateescape"))
    return CriticalLog(original, int(header["requests"]), table)


def logs_in(directory: Path) -> list[Path]:
    """The logs that processes have left in the directory of a run."""
    return sorted(directory.glob(f"*{SUFFIX}"))


def read_logs(paths: Iterable[Path]) -> tuple[dict[Path, CriticalLog], list[str]]:
    """What logs of a run say about each file, and why others could not be read."""
    logs: dict[Path, list[CriticalLog]] = {}
    problems = []
    for path in paths:
        try:
            log = read_log(path)
        except (OSError, FormatError) as error:
            problems.append(str(error))
        else:
            logs.setdefault(log.path, []).append(log)
    return {path: joined(of_file) for path, of_file in logs.items()}, problems


def joined(logs: Sequence[CriticalLog]) -> CriticalLog:
    """What several logs say about one file. Reads of the same bytes that save the same become one row."""
    rows = np.concatenate([log.rows for log in logs])
    rows = rows[np.lexsort((rows["benefit"], rows["stop"], rows["start"]))]
    kind = rows[["start", "stop", "benefit"]]
    firsts = np.flatnonzero(np.concatenate([[len(rows) > 0], kind[1:] != kind[:-1]]))
    table = rows[firsts]
    table["reads"] = np.add.reduceat(rows["reads"], firsts)
    return CriticalLog(logs[0].path, sum(log.requests for log in logs), table)


def record(logs: Mapping[Path, CriticalLog], catalog: Catalog, more: Collection[Path] = ()) -> None:
    """Add what a run found to the critical data tables; ``more``: files of which it has recorded a part already."""
    for path, log in logs.items():
        rows = log.rows
        found = CriticalData.of_reads(rows["start"], rows["stop"], rows["benefit"] * rows["reads"])
        catalog.critical.add(path, found, same_run=path in more)


def record_left(directory: Path, catalog: Catalog) -> None:
    """Add what the logs in the directory of a killed command say; those that cannot be read are skipped."""
    record(read_logs(logs_in(directory))[0], catalog)
