"""Reads what the recorder wrote (collectors/shim/rawlog.h): two files per process, merged into one trace."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.frames import OPS, categorical, files_frame, operation, records_frame, seconds
from pdla.collectors.views import View, first_offsets
from pdla.errors import FormatError, PdlaError
from pdla.model import Trace
from pdla.units import format_count

HEADER_SIZE = 4096
MAGIC = b"PDLALOG1"
SIDE_MAGIC = b"PDLASID1"
CALLS, FILE, VIEW = 1, 2, 3
COLLECTIVE, MEMORY_STRIDED, MOVED_UNKNOWN, OPAQUE_VIEW, REDIRECTED, PENDING = 1, 16, 32, 64, 128, 256

_LARGEST = 2**62  # of a position or a length, so that their sum fits

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("header_size", "<u4"),
        ("record_size", "<u4"),
        ("rank", "<i4"),
        ("ranks", "<i4"),
        ("pid", "<i4"),
        ("family", "<i4"),
        ("realtime_ns", "<i8"),
        ("monotonic_ns", "<i8"),
        ("dropped", "<u8"),
        ("finalized", "<u8"),
        ("host", "S64"),
        ("mpi", "S128"),
        ("unrecorded", "<u4", 192),
    ]
)
RECORD = np.dtype(
    [
        ("seq", "<u8"),
        ("t_start", "<i8"),
        ("t_end", "<i8"),
        ("position", "<i8"),
        ("length", "<i8"),
        ("moved", "<i8"),
        ("file", "<u4"),
        ("view", "<u4"),
        ("call", "<u2"),
        ("flags", "<u2"),
        ("error", "<i4"),
    ]
)
SIDE_ENTRY = np.dtype([("kind", "<u4"), ("length", "<u4")])
SIDE_FILE = np.dtype(
    [
        ("id", "<u4"),
        ("amode", "<u4"),
        ("comm_size", "<u4"),
        ("comm_rank", "<u4"),
        ("device", "<u8"),
        ("inode", "<u8"),
        ("size", "<i8"),
        ("mtime_ns", "<i8"),
        ("ctime_ns", "<i8"),
    ]
)
SIDE_VIEW = np.dtype(
    [("id", "<u4"), ("etype_size", "<u4"), ("displacement", "<i8"), ("extent", "<i8"), ("size", "<i8")]
)


@dataclass
class _Side:
    """What the records of one process name."""

    calls: list[str] = field(default_factory=list)
    files: dict[int, tuple[str, Mapping[str, int]]] = field(default_factory=dict)
    views: dict[int, View] = field(default_factory=dict)


@dataclass
class _Process:
    """The logs of one process. ``records`` are those whose file, view and call are known."""

    name: str
    header: Mapping[str, Any]
    records: npt.NDArray[Any]
    side: _Side
    unknown: int  # complete records left out
    rank: int = 0  # in the trace, where several programs are numbered on


def read_raw(directory: str | os.PathLike[str], command: str = "") -> Trace:
    """The trace of the program that ran with ``PDLA_TRACE=directory``.

    Times are aligned over hosts by the wall clock read at MPI_Init. Where several MPI programs ran (or the launcher
    started each process as a program of its own), their ranks are numbered on in the order of their start: 0..n-1 are
    those of the first, n.. of the second; ``notes`` says so. A log that was cut short is read up to the cut.

    Raises:
        PdlaError: no log is there.
        FormatError: a file is no log of a version that is known, or holds garbage.
    """
    paths = sorted(Path(directory).glob("*.log"))
    if not paths:
        raise PdlaError(f"there is no log of the recorder in {directory}")
    notes: list[str] = []
    processes = [process for path in paths if (process := _read_process(path, notes)) is not None]
    if not processes:
        raise FormatError(f"none of the {len(paths)} logs in {directory} has a complete header: the run was cut short")
    ranks = _number_ranks(processes, notes)
    processes.sort(key=lambda process: process.rank)

    files, file_ids = _merge_files(processes)
    views: dict[View, int] = {View.plain(): 0}
    kinds: dict[str, int] = {}
    epoch = min(int(process.header["realtime_ns"]) for process in processes)
    tables = [_columns(process, epoch, ids, views, kinds) for process, ids in zip(processes, file_ids, strict=True)]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    names = list(kinds)
    op_of_kind = np.array([OPS.index(operation(name)) for name in names], dtype=np.int8)
    op = op_of_kind[columns["kind"]]
    empty = np.array([view.size == 0 for view in views])
    unplaced = columns.pop("opaque") | (columns["position"] < 0)
    unplaced |= empty[columns["view"]] & (columns["length"] > 0)
    columns["offset"] = first_offsets(tuple(views), columns["view"], np.maximum(columns["position"], 0))
    columns["offset"][unplaced] = -1
    columns["offset"][op == OPS.index("other")] = 0
    if unknown := int(np.count_nonzero((columns["offset"] < 0) & (columns["length"] > 0))):
        notes.append(f"{format_count(unknown)} calls touched bytes that are not known: their offset is -1")
    pending = sum(int(np.count_nonzero(process.records["flags"] & PENDING)) for process in processes)
    if pending:
        notes.append(
            f"{format_count(pending)} nonblocking or split operations were under way when their process ended"
        )
    hosts = {process.header["host"] for process in processes}
    if len(hosts) > 1:
        notes.append(f"times of {len(hosts)} hosts are aligned by their wall clocks")
    unrecorded: Counter[str] = Counter()
    for process in processes:
        counts = process.header["unrecorded"][: len(process.side.calls)]
        unrecorded.update({process.side.calls[call]: int(counts[call]) for call in np.flatnonzero(counts)})
    return Trace(
        records=records_frame({**columns, "op": categorical(op, OPS), "kind": categorical(columns["kind"], names)}),
        files=files,
        views=tuple(views),
        command=command,
        ranks=ranks,
        mpi=" ".join(_text(processes[0].header["mpi"]).split()),
        dropped=sum(int(process.header["dropped"]) for process in processes),
        truncated=tuple(process.rank for process in processes if not process.header["finalized"] or process.unknown),
        unrecorded=dict(sorted(unrecorded.items())),
        notes=tuple(notes),
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _read_process(path: Path, notes: list[str]) -> _Process | None:
    """One process's logs; None where the log ends in its header."""
    size = path.stat().st_size
    start = path.read_bytes()[:HEADER_SIZE] if size < HEADER_SIZE else _head(path)
    if not start.startswith(MAGIC[: len(start)]) and start.strip(b"\0"):
        raise FormatError(f"{path} is not a log of the pdla recorder (it does not begin with {MAGIC.decode()})")
    if size < HEADER_SIZE or not start.strip(b"\0"):
        notes.append(f"{path.name} ends in its header: nothing is known of that process")
        return None
    header = np.frombuffer(start, dtype=HEADER, count=1)[0]
    if (header["header_size"], header["record_size"]) != (HEADER_SIZE, RECORD.itemsize):
        raise FormatError(
            f"{path} has records of {header['record_size']} bytes after {header['header_size']}: this version of pdla "
            f"reads {RECORD.itemsize} after {HEADER_SIZE}"
        )
    if not 0 <= header["rank"] < header["ranks"]:
        raise FormatError(f"{path} is damaged: it says that it is of rank {header['rank']} of {header['ranks']}")

    records = _complete_records(path, (size - HEADER_SIZE) // RECORD.itemsize)
    side = _read_side(path.with_suffix(".side"))
    known = len(records)
    for named, column in ((side.files, "file"), (side.views, "view")):
        # 0 names nothing: no file, or the file's bytes from 0.
        ids = np.array([0, *named], dtype=np.uint32)
        known = min([known, *np.flatnonzero(~np.isin(records[column], ids))[:1]])
    known = int(min([known, *np.flatnonzero(records["call"] >= len(side.calls))[:1]]))
    unknown = len(records) - known
    if unknown:
        notes.append(
            f"{path.name}: the last {format_count(unknown)} records name files, views or calls that "
            f"{path.with_suffix('.side').name} does not hold, and are left out"
        )
    return _Process(path.name, {name: header[name] for name in HEADER.names or ()}, records[:known], side, unknown)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_SIZE)


def _complete_records(path: Path, count: int) -> npt.NDArray[Any]:
    """The records up to the first that is not complete."""
    if count == 0:
        return np.empty(0, dtype=RECORD)
    records: npt.NDArray[Any] = np.memmap(path, dtype=RECORD, mode="r", offset=HEADER_SIZE, shape=(count,))
    seq = records["seq"]
    missing = np.flatnonzero(seq == 0)
    if len(missing):
        records, seq = records[: missing[0]], seq[: missing[0]]
    impossible = (records["t_end"] < records["t_start"]) | (records["moved"] < 0) | (records["moved"] > _LARGEST)
    if np.any(seq[1:] <= seq[:-1]) or np.any(impossible | (records["position"] > _LARGEST)):
        raise FormatError(f"{path} is damaged: its records are not in order, or say what cannot be")
    return records


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, content) of the complete entries of a .side file."""
    place = len(SIDE_MAGIC)
    while place + SIDE_ENTRY.itemsize <= len(data):
        kind, length = np.frombuffer(data, SIDE_ENTRY, 1, place)[0].tolist()
        place += SIDE_ENTRY.itemsize
        if place + length > len(data):
            return
        yield kind, data[place : place + length]
        place += length + -length % 8


def _read_side(path: Path) -> _Side:
    """What the complete entries of a .side file say; nothing where the file is missing: the process was cut short."""
    side = _Side()
    data = path.read_bytes() if path.exists() else b""
    if not data.startswith(SIDE_MAGIC[: len(data)]):
        raise FormatError(f"{path} is not a file of the pdla recorder (it does not begin with {SIDE_MAGIC.decode()})")
    for kind, content in _entries(data):
        try:
            _add_entry(side, kind, content)
        except FormatError as error:
            raise FormatError(f"{path} is damaged: {error}") from None
    return side


def _add_entry(side: _Side, kind: int, content: bytes) -> None:
    if kind == CALLS:
        side.calls = [_text(name) for name in content.rstrip(b"\0").split(b"\0")]
    elif kind == FILE and len(content) > SIDE_FILE.itemsize:
        entry = np.frombuffer(content, SIDE_FILE, 1)[0]
        values = {name: int(entry[name]) for name in SIDE_FILE.names or ()}
        if not values["comm_rank"] < values["comm_size"] < 2**31:
            raise FormatError(f"a file was opened by rank {values['comm_rank']} of {values['comm_size']}")
        side.files[values["id"]] = os.fsdecode(content[SIDE_FILE.itemsize :]), values
    elif kind == VIEW and len(content) > SIDE_VIEW.itemsize and len(content) % 8 == 0:
        number, etype_size, displacement, extent, size = np.frombuffer(content, SIDE_VIEW, 1)[0].tolist()
        words = np.frombuffer(content, "<i8", offset=SIDE_VIEW.itemsize)
        side.views[number] = View(displacement, etype_size, extent, size, words)
    else:
        raise FormatError(f"it has an entry of kind {kind} with {len(content)} bytes")


def _number_ranks(processes: Sequence[_Process], notes: list[str]) -> int:
    """Sets the rank of every process in the trace; returns the number of ranks of all programs together."""
    programs: dict[tuple[int, int], list[_Process]] = {}
    launches: Counter[tuple[int, int]] = Counter()
    # The k-th process of a rank, in programs of one size, belongs to the k-th such program.
    for process in sorted(processes, key=lambda process: int(process.header["realtime_ns"])):
        rank, size = int(process.header["rank"]), int(process.header["ranks"])
        programs.setdefault((size, launches[rank, size]), []).append(process)
        launches[rank, size] += 1
    first = 0
    for (size, _), members in programs.items():
        for process in members:
            process.rank = first + int(process.header["rank"])
        if absent := size - len(members):
            there = {process.rank for process in members}
            some = islice((rank for rank in range(first, first + size) if rank not in there), 8)
            named = ", ".join(map(str, some)) + (", ..." if absent > 8 else "")
            notes.append(f"{absent} of {size} ranks left no log: {named}")
        first += size
    if len(programs) > 1:
        sizes = ", ".join(str(size) for size, _ in programs)
        notes.append(f"{len(programs)} programs ran, of {sizes} ranks: numbered on in the order of their start")
    return first


def _merge_files(processes: Sequence[_Process]) -> tuple[Any, list[dict[int, int]]]:
    """The files of all processes, one row per path, and for each process its ids -> rows.

    The identity is that of the latest state seen at an open. An open by a communicator counts once.
    """
    rows: dict[str, dict[str, Any]] = {}
    numbers: dict[str, int] = {}
    ids: list[dict[int, int]] = []
    for process in processes:
        ids.append({0: -1})
        for number, (path, entry) in process.side.files.items():
            row = rows.setdefault(path, {"path": path, "ctime_ns": -1, "ranks": 0, "opens": 0})
            if entry["ctime_ns"] > row["ctime_ns"]:
                row.update({name: entry[name] for name in ("device", "inode", "size", "mtime_ns", "ctime_ns")})
            row["ranks"] = max(row["ranks"], entry["comm_size"])
            row["opens"] += entry["comm_rank"] == 0
            ids[-1][number] = numbers.setdefault(path, len(numbers))
    return files_frame([{**row, "opens": max(row["opens"], 1)} for row in rows.values()]), ids


def _lookup(mapping: Mapping[int, int], ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """``mapping[id]`` for every id."""
    keys = np.array(sorted(mapping), dtype=np.uint32)
    values = np.array([mapping[int(key)] for key in keys], dtype=np.int32)
    return values[np.searchsorted(keys, ids)]


def _columns(
    process: _Process, epoch: int, files: Mapping[int, int], views: dict[View, int], kinds: dict[str, int]
) -> dict[str, npt.NDArray[Any]]:
    """The columns of one process's records; ``views`` and ``kinds`` grow by what is new."""
    records, side = process.records, process.side
    view_ids = {0: 0, **{number: views.setdefault(view, len(views)) for number, view in side.views.items()}}
    kind_ids = np.array([kinds.setdefault(name, len(kinds)) for name in side.calls], dtype=np.int16)
    call, flags = records["call"], records["flags"]
    shift = int(process.header["realtime_ns"]) - epoch - int(process.header["monotonic_ns"])
    return {
        "rank": np.full(len(records), process.rank, dtype=np.int32),
        "call": np.arange(len(records), dtype=np.int64),
        "kind": kind_ids[call] if len(kind_ids) else np.empty(0, dtype=np.int16),
        "file": _lookup(files, records["file"]),
        "collective": (flags & COLLECTIVE) != 0,
        "length": np.array(records["moved"]),
        "t_start": seconds(records["t_start"] + shift),
        "t_end": seconds(records["t_end"] + shift),
        "view": _lookup(view_ids, records["view"]),
        "position": np.array(records["position"]),
        "opaque": (flags & OPAQUE_VIEW) != 0,
        "requested": np.array(records["length"]),
        "moved_known": (flags & MOVED_UNKNOWN) == 0,
        "memory_strided": (flags & MEMORY_STRIDED) != 0,
        "redirected": (flags & REDIRECTED) != 0,
        "error": np.array(records["error"]),
    }
