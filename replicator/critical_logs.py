"""What processes found critical: they leave logs of it, which are added to the critical data tables.

A table does not know which policy found its bytes critical: S4D-Cache, iBridge, or LiU. With LiU the logs
have all requests, and the heads of segments that were requested for the most part are critical.

Sources: He et al., ICDCS 2014: the critical data table (III-A); Huang et al., "LiU: Hiding Disk Access
Latency for HPC Applications with a New SSD-Enabled Data Layout": locality (II-D).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from pdla.catalog import Catalog
from pdla.critical_data import CriticalData
from pdla.errors import FormatError
from pdla.model import Int64Array
from pdla.policies.liu import LiU

SUFFIX = ".cdt"
MAGIC = b"PDLACDT2"
HEADER = np.dtype(
    [
        ("magic", "S8"), ("checksum", "<u4"), ("rows", "<u4"), ("device", "<u8"), ("inode", "<u8"), ("size", "<i8"),
        ("mtime_ns", "<i8"), ("path_bytes", "<u4"), ("rank", "<i4"), ("requests", "<u8"),
        ("head", "<i8"), ("body", "<i8"),
    ]
)  # fmt: skip
ROW = np.dtype([("start", "<i8"), ("stop", "<i8"), ("benefit", "<f8"), ("reads", "<i8")])
CHECKED_FROM = 16
"""The checksum is of the bytes from here on."""


LOCALITY = LiU().locality


@dataclass(frozen=True)
class Segments:
    """What was read of a file, and how LiU cuts it into segments.

    Attributes:
        head, body: bytes of a segment's head and body.
        size: of the file.
        nodes: by node, shape (n,), dtype ROW: requests, each of one head or of one body; written ones have no reads.
    """

    head: int
    body: int
    size: int
    nodes: Mapping[str, np.ndarray[Any, Any]]

    def lifted(self) -> tuple[CriticalData, Int64Array]:
        """The heads of the segments of which a node requested at least ``LOCALITY``; the numbers of all requested ones.

        A byte of a head saves what such a byte of the reads does, as often as bytes of the segment were requested.
        """
        whole, parts = self.head + self.body, [self._read(rows) for rows in self.nodes.values()]
        numbers, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        read = np.zeros(len(numbers))
        np.maximum.at(read, places, np.concatenate([part[1] for part in parts]))
        saved = np.bincount(places, np.concatenate([part[2] for part in parts]), len(numbers)) / np.maximum(read, 1)
        begins = numbers * whole
        ends = np.minimum(begins + whole, self.size)
        worth = (ends > begins) & (read >= LOCALITY * (ends - begins))
        heads = np.minimum(begins + self.head, self.size)[worth]
        return CriticalData(begins[worth], heads, saved[worth]), numbers

    def _read(self, rows: np.ndarray[Any, Any]) -> tuple[Int64Array, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Of each segment that a node requested: the number, how many bytes, and what the requests would save."""
        rows = rows[np.argsort(rows["start"], kind="stable")]
        starts, stops = rows["start"], rows["stop"]
        numbers, places = np.unique(starts // (self.head + self.body), return_inverse=True)
        furthest = np.maximum.accumulate(np.concatenate([[0], stops]))[:-1]
        read = np.bincount(places, np.maximum(stops - np.maximum(starts, furthest), 0), len(numbers))
        saved = np.bincount(places, rows["benefit"] * np.maximum(rows["reads"], 1), len(numbers))
        return numbers, read.astype(np.float64), saved.astype(np.float64)


@dataclass(frozen=True)
class CriticalLog:
    """What a process found in a file until it closed it, or several processes did.

    Attributes:
        requests: contiguous accesses that were judged, reads and writes.
        rows: shape (n,), dtype ROW: critical reads, each with the seconds that one of them saves, and how many; of
            LiU, those of heads.
        segments: of LiU.
    """

    path: Path
    requests: int
    rows: np.ndarray[Any, Any]
    segments: Segments | None = None


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
    right = (table["start"] >= 0) & (table["stop"] > table["start"]) & (table["reads"] >= (header["head"] == 0))
    if not (right & np.isfinite(table["benefit"]) & (table["benefit"] > 0)).all():
        raise FormatError(f"{path} is damaged: a critical read has no bytes, or saves nothing")
    original = Path(data[whole - length :].decode("utf-8", "surrogateescape"))
    head, body, size = (int(header[name]) for name in ("head", "body", "size"))
    if not (head == body == 0 or (head > 0 and body > 0)):
        raise FormatError(f"{path} is damaged: segments have no head or no body")
    segments = Segments(head, body, size, {_node(path): table}) if head else None
    critical = table[(table["start"] % (head + body) < head) & (table["reads"] > 0)] if head else table
    return CriticalLog(original, int(header["requests"]), critical, segments)


def _node(path: Path) -> str:
    """The name of a log is that of the node, the process and a number."""
    return path.name.rsplit("-", 2)[0]


def logs_in(directory: Path) -> list[Path]:
    """The logs that processes have left in the directory of a run, in those of their nodes."""
    return sorted(directory.rglob(f"*{SUFFIX}"))


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
    """What several logs say about one file. Of LiU: those with the segments of the last one."""
    last = logs[-1].segments
    alike = [log.segments for log in logs if log.segments]
    if last:
        alike = [one for one in alike if (one.head, one.body) == (last.head, last.body)]
        nodes = {node for one in alike for node in one.nodes}
        tables = {node: _joined([one.nodes[node] for one in alike if node in one.nodes]) for node in nodes}
        last = replace(last, nodes=tables, size=max(one.size for one in alike))
    return CriticalLog(logs[0].path, sum(log.requests for log in logs), _joined([log.rows for log in logs]), last)


def _joined(tables: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Reads of the same bytes that save the same become one row."""
    rows = np.concatenate(tables)
    rows = rows[np.lexsort((rows["benefit"], rows["stop"], rows["start"]))]
    kind = rows[["start", "stop", "benefit"]]
    firsts = np.flatnonzero(np.concatenate([[len(rows) > 0], kind[1:] != kind[:-1]]))
    table = rows[firsts]
    table["reads"] = np.add.reduceat(rows["reads"], firsts)
    return table


_NOTHING: Mapping[Path, CriticalLog] = {}


def record(logs: Mapping[Path, CriticalLog], catalog: Catalog, before: Mapping[Path, CriticalLog] = _NOTHING) -> None:
    """Add what a run found to the critical data tables; ``before``: what it has recorded already.

    Of LiU, what the run found of a segment until now takes the place of what is known of it.
    """
    for path, log in logs.items():
        if log.segments:
            whole = joined([before[path], log] if path in before else [log]).segments
            assert whole is not None
            heads, numbers = whole.lifted()
            begins = numbers * (whole.head + whole.body)
            gone = np.stack([begins, begins + whole.head + whole.body], axis=1)
            catalog.critical.add(path, heads, same_run=path in before, instead=gone)
            continue
        rows = log.rows
        found = CriticalData.of_reads(rows["start"], rows["stop"], rows["benefit"] * rows["reads"])
        catalog.critical.add(path, found, same_run=path in before)


def record_left(directory: Path, catalog: Catalog) -> None:
    """Add what the logs in the directory of a killed command say; those that cannot be read are skipped."""
    record(read_logs(logs_in(directory))[0], catalog)
