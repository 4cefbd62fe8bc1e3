"""Read the recorder's logs (collectors/shim/rawlog.h), two files per process, and merge them into one trace."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.collectors.clocks import align
from pdla.collectors.rawposix import Operations, PosixCalls
from pdla.collectors.shared_pointer_order import Log, is_ordered, place
from pdla.collectors.windows import PAIR, RECORD, Windows, convert, scale, unsteady
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import LOGS, check, other_format
from pdla.model import Int64Array
from pdla.processes import process_table
from pdla.traces.file_views import View, first_offsets
from pdla.traces.tables import OPS, RECORD_COLUMNS, categorical, files_frame, operation, records_frame, seconds
from pdla.traces.trace import Trace
from pdla.units import counted, format_count

HEADER_SIZE = 4096
MAGIC = b"PDLALOG3"
MAGIC_2 = b"PDLALOG2"
"""Of version 0.2.0: records as those of POSIX calls, times in nanoseconds."""
SIDE_MAGIC = b"PDLASID1"
POSIX_MAGIC = b"PDLAPSX2"
POSIX_MAGIC_1 = b"PDLAPSX1"
"""Of version 0.2.0: times in nanoseconds."""
CALLS, FILE, VIEW, POSIX_CALLS, PROGRAM = 1, 2, 3, 4, 5
COLLECTIVE, NONBLOCKING, MEMORY_STRIDED, MOVED_UNKNOWN, OPAQUE_VIEW, REDIRECTED, PENDING = 1, 2, 16, 32, 64, 128, 256

SILENT_SECONDS = 86400.0
BEGIN_SECONDS = 60.0
"""So long may pass from the first to the last rank's MPI_Init."""
_BLOCK = 1 << 16  # records read at a time
_LARGEST = 2**62  # for a position or a length, so that their sum fits
_STEADY = 1e-3  # of the rate of a clock

CLOCK = np.dtype([("id", "<u8"), ("parent", "<u8"), ("offset_ns", "<i8"), ("error_ns", "<i8")])
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
        ("clock", CLOCK),
        ("window_records", "<u4"),
        ("unrecorded", "<u4", 192),
        ("loaded", PAIR),
        ("ended", PAIR),
        ("committed", "<u8"),
        ("exited", "<u4"),
        ("boot", "S40"),
        ("pid_namespace", "<u8"),
    ],
    align=True,
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


@dataclass(frozen=True)
class Started:
    """How rank 0 of a program was started: executable, working directory, words of the command line."""

    executable: str
    directory: str
    words: tuple[str, ...]


class _Among:
    """Which values are among some numbers. As numpy.isin(), but these are prepared once, and mostly small."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = np.array(sorted(numbers), dtype=np.uint32)
        self._largest = int(self._numbers[-1]) if numbers else 0
        self._table = np.zeros(self._largest + 2 if self._largest < _BLOCK else 0, dtype=bool)
        if len(self._table):
            self._table[self._numbers] = True

    def __call__(self, values: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        if not len(self._table):
            return np.isin(values, self._numbers)
        return np.asarray(self._table[np.minimum(values, self._largest + 1)])


@dataclass
class _Side:
    """What the records of one process refer to."""

    calls: list[str] = field(default_factory=list)
    files: dict[int, tuple[str, Mapping[str, int]]] = field(default_factory=dict)
    views: dict[int, View] = field(default_factory=dict)
    posix_calls: list[str] = field(default_factory=list)
    program: Started | None = None

    @cached_property
    def _accesses(self) -> npt.NDArray[np.bool_]:
        return np.array([operation(name) != "other" for name in self.calls], dtype=bool)

    @cached_property
    def _is_empty(self) -> _Among:
        return _Among([number for number, view in self.views.items() if view.size == 0])

    def unplaced(self, records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these records moved bytes whose place is not known."""
        unknown = ((records["flags"] & OPAQUE_VIEW) != 0) | (records["position"] < 0)
        unknown |= self._is_empty(records["view"])
        return np.asarray(unknown & (records["moved"] > 0) & self._accesses[records["call"]], dtype=bool)


@dataclass
class _Process:
    """The logs of one process. ``records`` of them refer to a known file, view and call."""

    path: Path
    header: Mapping[str, Any]
    side: _Side
    records: int = 0
    left_out: int = 0  # complete records that refer to something unknown
    pending: int = 0
    unplaced: int = 0  # data accesses whose place is not known
    ordered: set[int] = field(default_factory=set)  # files with ordered calls whose place is not known
    placed: tuple[Int64Array, Int64Array] | None = None  # what place() found: rows and their positions
    windows: Windows | None = None  # None: a log of version 0.2.0
    pairs: npt.NDArray[Any] | None = None  # PAIR: what makes ticks times; None: times are no ticks
    rank: int = 0  # in the trace; ranks of several programs have consecutive numbers

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """The records, a block at a time, with the positions that the logs of all ranks determine together."""
        first = 0
        for records in self.counted():
            if self.placed:
                rows, positions = self.placed
                here = slice(*np.searchsorted(rows, (first, first + len(records))))
                flat = (records["flags"][rows[here] - first] & OPAQUE_VIEW) == 0
                records["position"][rows[here][flat] - first] = positions[here][flat]
            first += len(records)
            yield records

    @property
    def cut(self) -> bool:
        """The log ends before what its header counts."""
        return self.windows is not None and self.windows.cut

    def stored(self) -> Iterator[npt.NDArray[Any]]:
        """All complete records of the log, a block at a time, as they are there."""
        if self.windows:
            return self.windows.records()
        return _records(self.path, int(self.header["window_records"]))

    def counted(self) -> Iterator[npt.NDArray[Any]]:
        """The first ``records`` of the log, a block at a time."""
        left = self.records
        for block in self.stored():
            records = block[:left]
            if self.pairs is not None:
                convert(records, self.pairs)
            left -= len(records)
            yield records
            if not left:
                return


def logs_in(directory: Path) -> list[Path]:
    """The logs in a directory, which has one for each node, by their names."""
    return sorted([*directory.glob("*.log"), *directory.glob("*/*.log")], key=lambda path: (path.name, path))


def is_over(directory: Path) -> bool:
    """Whether the program whose processes record into this directory has ended, as far as that can be known.

    A process has, if it exited after MPI_Finalize, or if it is not there any more. One that this process
    cannot see, on another node or in another PID namespace, is taken for ended if it has recorded
    nothing for ``SILENT_SECONDS``.
    """
    table = process_table()
    paths = logs_in(directory)
    ranks = 0
    for path in paths:
        start = _head(path)
        age = time.time() - path.stat().st_mtime
        if len(start) < HEADER_SIZE or not start.strip(b"\0"):
            if age < BEGIN_SECONDS:
                return False
            continue
        header = np.frombuffer(start, dtype=HEADER, count=1)[0]
        ranks = max(ranks, int(header["ranks"]))
        seen = table == (_text(header["boot"]), int(header["pid_namespace"]))
        gone = not Path(f"/proc/{header['pid']}").exists() if seen else age > SILENT_SECONDS
        if not gone and not (header["finalized"] and header["exited"]):
            return False
    newest = max((path.stat().st_mtime for path in paths), default=0.0)
    return len(paths) >= ranks > 0 or time.time() - newest > BEGIN_SECONDS


class RawLogs:
    """The trace of the program that ran with ``PDLA_TRACE=directory``. Its records are read when they are asked for.

    Times are aligned over nodes (see align()). If several MPI programs ran (or the launcher started
    each process as a program of its own), their ranks have consecutive numbers in the order of
    their start: 0..n-1 are those of the first program, n.. of the second; ``notes`` says so. A log
    that was cut short is read up to the cut.

    Attributes:
        about: the trace without its records.
        rows: the number of records.
        kinds: the MPI functions that column ``kind`` of blocks() numbers; ``op`` numbers OPS.
        posix_rows, posix_kinds: as rows and kinds, for posix_blocks().
        programs: how each program was started, as far as its rank 0 said it.
        failed: why a program has failed; empty if none has, as far as the logs say.

    Raises:
        PdlaError: there is no log.
        FormatError: a file is not a log of a known version, or holds garbage.
    """

    def __init__(
        self, directory: str | os.PathLike[str], command: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        check(Path(directory), LOGS)
        paths = logs_in(Path(directory))
        if not paths:
            raise PdlaError(f"there is no log of the recorder in {directory}")
        notes: list[str] = []
        processes = [process for path in paths if (process := _read_process(path, notes)) is not None]
        if not processes:
            raise FormatError(
                f"none of the {len(paths)} logs in {directory} has a complete header: "
                "the run was cut short, or the disk was full"
            )
        ranks = _number_ranks(processes, notes)
        self._processes = sorted(processes, key=lambda process: process.rank)
        _place_ordered(self._processes)
        self.programs = [process.side.program for process in self._processes if process.side.program]
        self.failed = _failure(self._processes)
        self._epoch = min(int(process.header["realtime_ns"]) for process in processes)
        files, self._files = _merge_files(self._processes)
        views: dict[View, int] = {View.plain(): 0}
        kinds: dict[str, int] = {}
        self._views = [
            {0: 0, **{number: views.setdefault(view, len(views)) for number, view in process.side.views.items()}}
            for process in self._processes
        ]
        for process in self._processes:
            for name in process.side.calls:
                kinds.setdefault(name, len(kinds))
        self.kinds = list(kinds)
        self.rows = sum(process.records for process in processes)
        self._posix = [_read_posix(process, files) for process, files in zip(self._processes, self._files, strict=True)]
        posix = [log for log in self._posix if log]
        self.posix_rows = sum(log.rows for log in posix)
        self.posix_kinds = list(dict.fromkeys(name for log in posix for name in log.names))
        self._shifts, clocks = align([process.header for process in self._processes])
        _note_what_is_unknown(processes, clocks, notes)
        self.about = Trace(
            records=_no_records(self.kinds),
            files=files,
            views=tuple(views),
            command=command,
            ranks=ranks,
            mpi=" ".join(_text(self._processes[0].header["mpi"]).split()),
            dropped=sum(int(process.header["dropped"]) for process in processes) + sum(log.dropped for log in posix),
            truncated=tuple(p.rank for p in self._processes if not p.header["finalized"] or p.left_out or p.cut),
            unrecorded=_unrecorded(processes),
            notes=tuple(notes),
            started=self._epoch / 1e9,
            seconds=self._seconds(),
            hosts=tuple(sorted({_text(process.header["host"]) for process in processes})),
            environment=environment or {},
        )

    def _seconds(self) -> float:
        """How long the programs ran; 0 if a process did not reach MPI_Finalize."""
        ends = [int(process.header["finalized"]) for process in self._processes]
        return max(end + shift for end, shift in zip(ends, self._shifts, strict=True)) / 1e9 if all(ends) else 0.0

    def blocks(self) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The columns of a block of records at a time, in the order of rank and call.

        They are those of RECORD_COLUMNS, but times are whole nanoseconds, and ``op`` and ``kind``
        are codes.
        """
        kinds = {name: code for code, name in enumerate(self.kinds)}
        ops = np.array([OPS.index(operation(name)) for name in self.kinds], dtype=np.int8)
        empty = np.array([view.size == 0 for view in self.about.views])
        numbers = zip(self._processes, self._files, self._views, self._shifts, strict=True)
        for process, files, views, shift in numbers:
            codes = np.array([kinds[name] for name in process.side.calls], dtype=np.int16)
            first = 0
            for records in process.blocks():
                columns = _columns(records, codes, files, views, shift)
                columns["rank"] = np.full(len(records), process.rank, dtype=np.int32)
                columns["call"] = np.arange(first, first + len(records), dtype=np.int64)
                columns["op"] = ops[columns["kind"]]
                unplaced = columns.pop("opaque") | (columns["position"] < 0)
                unplaced |= empty[columns["view"]] & (columns["length"] > 0)
                offset = first_offsets(self.about.views, columns["view"], np.maximum(columns["position"], 0))
                offset[unplaced] = -1
                offset[columns["op"] == OPS.index("other")] = 0
                columns["offset"] = offset
                first += len(records)
                yield columns

    def posix_blocks(self) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The POSIX calls, likewise, with the columns of POSIX_COLUMNS, in the order of rank and end."""
        kinds = {name: code for code, name in enumerate(self.posix_kinds)}
        ops = np.array([OPS.index(operation(name)) for name in self.posix_kinds], dtype=np.int8)
        numbers = zip(self._processes, self._posix, self._files, self._shifts, strict=True)
        for process, posix, files, shift in numbers:
            if posix is None or not posix.rows:
                continue
            codes = np.array([kinds[name] for name in posix.names], dtype=np.int16)
            for records, file, enclosing in posix.blocks(_operations(process, files)):
                kind = codes[records["call"]]
                yield {
                    "rank": np.full(len(records), process.rank, dtype=np.int32),
                    "call": enclosing - 1,
                    "kind": kind,
                    "file": file,
                    "op": ops[kind],
                    "offset": np.array(records["position"]),
                    "length": np.where(ops[kind] == OPS.index("other"), records["length"], records["moved"]),
                    "t_start": records["t_start"] + shift,
                    "t_end": records["t_end"] + shift,
                    "error": np.array(records["error"]),
                }


def read_raw(directory: str | os.PathLike[str], command: str = "") -> Trace:
    """The whole trace of ``RawLogs``; see there for its content and its errors."""
    logs = RawLogs(directory, command)
    trace = logs.about
    if blocks := list(logs.blocks()):
        trace = replace(trace, records=records_frame(_together(blocks, logs.kinds)))
    if blocks := list(logs.posix_blocks()):
        trace = replace(trace, posix=pd.DataFrame(_together(blocks, logs.posix_kinds)))
    return trace


def _together(blocks: Sequence[Mapping[str, npt.NDArray[Any]]], kinds: Sequence[str]) -> dict[str, Any]:
    columns: dict[str, Any] = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    columns["op"] = categorical(columns["op"], OPS)
    columns["kind"] = categorical(columns["kind"], kinds)
    columns["t_start"], columns["t_end"] = seconds(columns["t_start"]), seconds(columns["t_end"])
    return columns


def _no_records(kinds: Sequence[str]) -> pd.DataFrame:
    none = {name: np.empty(0, dtype=dtype) for name, dtype in RECORD_COLUMNS.items() if dtype != "category"}
    codes = np.empty(0, dtype=np.int8)
    return records_frame({**none, "op": categorical(codes, OPS), "kind": categorical(codes, kinds)})


def _place_ordered(processes: Sequence[_Process]) -> None:
    """Store what place() finds, and count anew what is still not known."""
    if not any(process.ordered for process in processes):
        return
    logs = [
        Log(
            program=process.rank - int(process.header["rank"]),
            calls=process.side.calls,
            files=process.side.files,
            ordered=process.ordered,
            blocks=process.blocks,
        )
        for process in processes
    ]
    for process, placed in zip(processes, place(logs), strict=True):
        if placed:
            process.placed = placed
            process.unplaced = sum(int(np.sum(process.side.unplaced(records))) for records in process.blocks())


def _failure(processes: Sequence[_Process]) -> str:
    """Why a program has failed: a rank left no log, did not finalize MPI, or exited with another code than 0."""
    for process in processes:
        if code := max(int(process.header["exited"]) - 1, 0):
            return f"rank {process.rank} exited with code {code}"
        if not process.header["finalized"]:
            return f"rank {process.rank} ended before MPI_Finalize"
    sizes = Counter(int(process.header["ranks"]) for process in processes)
    absent = next((size - count % size for size, count in sizes.items() if count % size), 0)
    return f"{counted(absent, 'rank')} left no log" if absent else ""


def _note_what_is_unknown(processes: Sequence[_Process], clocks: int, notes: list[str]) -> None:
    if unplaced := sum(process.unplaced for process in processes):
        notes.append(f"the place of the bytes of {format_count(unplaced)} calls is not known: their offset is -1")
    if pending := sum(process.pending for process in processes):
        notes.append(
            f"{format_count(pending)} nonblocking or split operations were not complete when their process ended"
        )
    if clocks > 1:
        notes.append(f"the times of {clocks} hosts are aligned by their wall clocks")
    if changed := sum(process.pairs is not None and unsteady(process.pairs) > _STEADY for process in processes):
        notes.append(
            f"the clock of {format_count(changed)} processes did not keep its rate: times within a tenth of a second "
            "may be wrong"
        )


def _unrecorded(processes: Sequence[_Process]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for process in processes:
        counts = process.header["unrecorded"][: len(process.side.calls)]
        counted.update({process.side.calls[call]: int(counts[call]) for call in np.flatnonzero(counts)})
    return dict(sorted(counted.items()))


def _text(value: bytes) -> str:
    return _to_nul(value).decode("utf-8", "replace")


def _to_nul(value: bytes) -> bytes:
    """A C text, up to its first NUL; only damage can put a NUL inside it."""
    return value.partition(b"\0")[0]


def _read_process(path: Path, notes: list[str]) -> _Process | None:
    """One process's logs; None if the log ends in its header."""
    size = path.stat().st_size
    start = path.read_bytes()[:HEADER_SIZE] if size < HEADER_SIZE else _head(path)
    if start.strip(b"\0") and not any(start.startswith(magic[: len(start)]) for magic in (MAGIC, MAGIC_2)):
        raise FormatError(f"{path} is not a log of the pdla recorder: {other_format(start, MAGIC)}")
    if size < HEADER_SIZE or not start.strip(b"\0"):
        notes.append(f"{path.name} ends in its header: nothing is known of that process")
        return None
    header = np.frombuffer(start, dtype=HEADER, count=1)[0]
    if (header["header_size"], header["record_size"]) != (HEADER_SIZE, RECORD.itemsize):
        raise FormatError(
            f"{path} has a header of {header['header_size']} bytes and records of {header['record_size']}, but this "
            f"version of pdla reads {HEADER_SIZE} and {RECORD.itemsize}"
        )
    if not 0 <= header["rank"] < header["ranks"]:
        raise FormatError(f"{path} is damaged: its header names rank {header['rank']} of {header['ranks']}")

    process = _Process(path, {name: header[name] for name in HEADER.names or ()}, _read_side(path.with_suffix(".side")))
    if header["magic"] == MAGIC:
        process.windows = Windows(path, HEADER_SIZE, int(header["committed"]))
    _scan(process)
    if process.windows:
        first, last = (np.array([header[name]], dtype=PAIR) for name in ("loaded", "ended"))
        process.pairs = scale(np.concatenate([first, process.windows.pairs, last]))
    if process.left_out:
        notes.append(
            f"{path.name}: the last {format_count(process.left_out)} records are left out: they name files, views or "
            f"calls that {path.with_suffix('.side').name} does not have"
        )
    return process


def _read_posix(process: _Process, files: Mapping[int, int]) -> PosixCalls | None:
    """The log of the process's POSIX calls; None if there is none."""
    path = process.path.with_suffix(".posix")
    # As with the other log, nothing is known of a process whose log ends in its header.
    if not path.exists() or path.stat().st_size < HEADER_SIZE or not _head(path).strip(b"\0"):
        return None
    header = np.frombuffer(_head(path), dtype=HEADER, count=1)[0]
    if header["magic"] not in (POSIX_MAGIC, POSIX_MAGIC_1) or header["record_size"] != RECORD.itemsize:
        why = other_format(bytes(header["magic"]), POSIX_MAGIC) or "its records have another size"
        raise FormatError(f"{path} is not a log of POSIX calls of the pdla recorder: {why}")
    known = {number: row for number, row in files.items() if number}
    pairs = process.pairs if header["magic"] == POSIX_MAGIC else None
    read = partial(_posix_records, path, int(header["window_records"]), pairs)
    return PosixCalls(read, process.side.posix_calls, known, int(header["dropped"]))


def _operations(process: _Process, files: Mapping[int, int]) -> Operations:
    split = np.array([name.endswith(("_begin", "_begin_c")) for name in process.side.calls])
    return Operations(
        (records, _lookup(files, records["file"]), split[records["call"]] | ((records["flags"] & NONBLOCKING) != 0))
        for records in process.blocks()
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_SIZE)


def _posix_records(path: Path, window: int, pairs: npt.NDArray[Any] | None) -> Iterator[npt.NDArray[Any]]:
    for records in _records(path, window):
        if pairs is not None:
            convert(records, pairs)
        yield records


def _records(path: Path, window: int) -> Iterator[npt.NDArray[Any]]:
    """The records of a log of one size, a block at a time: those after the window, and then those only in it."""
    window = min(window, (path.stat().st_size - HEADER_SIZE) // RECORD.itemsize)
    appended = 0
    with path.open("rb") as file:
        file.seek(HEADER_SIZE)
        latest = np.fromfile(file, dtype=RECORD, count=window)
        while len(records := np.fromfile(file, dtype=RECORD, count=_BLOCK)):
            appended += len(records)
            yield records
    if window:
        latest = latest[appended % window :]
        newer = _leading(latest["seq"] == np.arange(appended + 1, appended + 1 + len(latest)))
        yield latest[:newer]


def _leading(true: npt.NDArray[np.bool_]) -> int:
    """How many values are true before the first that is not."""
    return len(true) if true.all() else int(np.argmin(true))


def _scan(process: _Process) -> None:
    """Count the records up to the first incomplete one, check them, and note what is not known of them."""
    calls = len(process.side.calls)
    ordered = np.array([is_ordered(name) for name in process.side.calls], dtype=bool)
    # 0 refers to nothing: no file, or the file's bytes from 0.
    is_file, is_view = _Among([0, *process.side.files]), _Among([0, *process.side.views])
    last = 0
    for block in process.stored():
        complete = _leading(block["seq"] != 0)
        records = block[:complete]
        last = _check(process.path, records, last)
        known = (records["call"] < calls) & is_file(records["file"]) & is_view(records["view"])
        if process.left_out or not known.all():
            kept = 0 if process.left_out else _leading(known)
            process.left_out += complete - kept
            records = records[:kept]
        process.records += len(records)
        process.pending += int(np.count_nonzero(records["flags"] & PENDING))
        process.unplaced += int(np.count_nonzero(process.side.unplaced(records)))
        process.ordered.update(
            np.unique(records["file"][ordered[records["call"]] & (records["position"] < 0)]).tolist()
        )
        if complete < len(block):
            return


def _check(path: Path, records: npt.NDArray[Any], last: int) -> int:
    """The number of the last of these complete records; ``last`` is that of the record before them."""
    seq = records["seq"]
    impossible = (records["t_end"] < records["t_start"]) | (records["moved"] < 0) | (records["moved"] > _LARGEST)
    ordered = len(seq) == 0 or (seq[0] > last and not np.any(seq[1:] <= seq[:-1]))
    if not ordered or np.any(impossible | (records["position"] > _LARGEST)):
        raise FormatError(f"{path} is damaged: its records are not in order, or have impossible values")
    return int(seq[-1]) if len(seq) else last


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
    """What the complete entries of a .side file say; nothing if the file is missing: the process was cut short."""
    side = _Side()
    data = path.read_bytes() if path.exists() else b""
    if not data.startswith(SIDE_MAGIC[: len(data)]):
        raise FormatError(f"{path} is not a file of the pdla recorder: {other_format(data, SIDE_MAGIC)}")
    for kind, content in _entries(data):
        try:
            _add_entry(side, kind, content)
        except FormatError as error:
            raise FormatError(f"{path} is damaged: {error}") from None
    return side


def _add_entry(side: _Side, kind: int, content: bytes) -> None:
    if kind == CALLS:
        side.calls = [_text(name) for name in content.rstrip(b"\0").split(b"\0")]
    elif kind == POSIX_CALLS:
        side.posix_calls = [_text(name) for name in content.rstrip(b"\0").split(b"\0")]
    elif kind == FILE and len(content) > SIDE_FILE.itemsize:
        entry = np.frombuffer(content, SIDE_FILE, 1)[0]
        values = {name: int(entry[name]) for name in SIDE_FILE.names or ()}
        if not values["comm_rank"] < max(values["comm_size"], 1) < 2**31:
            raise FormatError(f"an open has rank {values['comm_rank']} of {values['comm_size']}")
        side.files[values["id"]] = os.fsdecode(_to_nul(content[SIDE_FILE.itemsize :])), values
    elif kind == VIEW and len(content) > SIDE_VIEW.itemsize and len(content) % 8 == 0:
        number, etype_size, displacement, extent, size = np.frombuffer(content, SIDE_VIEW, 1)[0].tolist()
        words = np.frombuffer(content, "<i8", offset=SIDE_VIEW.itemsize)
        side.views[number] = View(displacement, etype_size, extent, size, words)
    elif kind == PROGRAM and content.count(b"\0") >= 2:
        executable, directory, *started = map(os.fsdecode, content.removesuffix(b"\0").split(b"\0"))
        side.program = Started(executable, directory, tuple(started))
    else:
        raise FormatError(f"it has an entry of kind {kind} with {len(content)} bytes")


def _number_ranks(processes: Sequence[_Process], notes: list[str]) -> int:
    """Set the rank of every process in the trace; return the number of ranks of all programs together."""
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
        notes.append(
            f"{len(programs)} programs ran, with {sizes} ranks: numbered consecutively in order of their start"
        )
    return first


def _merge_files(processes: Sequence[_Process]) -> tuple[Any, list[dict[int, int]]]:
    """The files of all processes, one row per path, and for each process a map from its ids to rows.

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
            row["opens"] += entry["comm_rank"] == 0 < entry["comm_size"]
            ids[-1][number] = numbers.setdefault(path, len(numbers))
    return files_frame([{**row, "opens": max(row["opens"], row["ranks"] > 0)} for row in rows.values()]), ids


def _lookup(mapping: Mapping[int, int], ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """``mapping[id]`` for every id."""
    keys = np.array(sorted(mapping), dtype=np.uint32)
    values = np.array([mapping[int(key)] for key in keys], dtype=np.int32)
    consecutive = len(keys) == int(keys[-1]) + 1
    return values[ids if consecutive else np.searchsorted(keys, ids)]


def _columns(
    records: npt.NDArray[Any],
    kinds: npt.NDArray[np.int16],
    files: Mapping[int, int],
    views: Mapping[int, int],
    shift: int,
) -> dict[str, npt.NDArray[Any]]:
    """The content of these records, in the trace's numbers of calls (``kinds``), files and views."""
    flags = records["flags"]
    return {
        "kind": kinds[records["call"]],
        "file": _lookup(files, records["file"]),
        "collective": (flags & COLLECTIVE) != 0,
        "length": np.array(records["moved"]),
        "t_start": records["t_start"] + shift,
        "t_end": records["t_end"] + shift,
        "view": _lookup(views, records["view"]),
        "position": np.array(records["position"]),
        "opaque": (flags & OPAQUE_VIEW) != 0,
        "requested": np.array(records["length"]),
        "moved_known": (flags & MOVED_UNKNOWN) == 0,
        "memory_strided": (flags & MEMORY_STRIDED) != 0,
        "redirected": (flags & REDIRECTED) != 0,
        "error": np.array(records["error"]),
    }
