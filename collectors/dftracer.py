"""Import traces of DFTracer: JSON lines, also compressed, with an event for each POSIX and STDIO call."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pdla.collectors.imported_calls import APPEND, UNKNOWN, Calls, OpenFiles
from pdla.collectors.reading import Progress, Reading
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import DFTRACER, check, kind_of
from pdla.traces.tables import MOST_RANKS
from pdla.traces.trace import Trace
from pdla.units import counted

ENDINGS = (".pfw", ".pfw.gz")
_COMPLETE, _AGGREGATED, _METADATA = ("X", 1), ("A", 3), ("M", 4)
_NANOSECONDS = {"NS": 1, "US": 10**3, "MS": 10**6, "SEC": 10**9}
_SEEKS = {"lseek", "lseek64", "fseek", "fseeko", "fseeko64", "ftell", "ftello", "ftello64", "rewind"}
_OPENS = {"open", "open64", "openat", "openat64", "creat", "creat64", "fopen", "fopen64", "__open_2", "__openat_2"}
_AT = {"pread", "pread64", "pwrite", "pwrite64", "preadv", "preadv64", "pwritev", "pwritev64"}
_READS = {"read", "readv", "fread", "fread_unlocked"}
_WRITES = {"write", "writev", "fwrite", "fwrite_unlocked"}
_MOVES = {
    *("fgetc", "fgets", "fputc", "fputs", "getc", "getc_unlocked", "getline", "getdelim", "putc", "ungetc", "fsetpos"),
    *("vfprintf", "fscanf", "vfscanf", "__isoc23_fscanf", "__isoc23_vfscanf", "sendfile", "sendfile64", "splice"),
    *("copy_file_range", "freopen"),
}
_SHARES = {"dup", "dup2", "dup3"}
_ABSENT = -(2**62)


class _Process(NamedTuple):
    host: object
    pid: int


class _Events:
    """The calls of a process that open, close, move or use files."""

    NAMES = ("time", "duration", "name", "file", "descriptor", "ret", "count", "size", "offset", "how")

    def __init__(self) -> None:
        self.columns = {name: array("q") for name in self.NAMES}
        self.ended = False

    def add(self, *values: int) -> None:
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def in_order(self) -> Iterator[dict[str, int]]:
        """The calls by the time of their start."""
        order = np.argsort(np.frombuffer(self.columns["time"], dtype=np.int64), kind="stable")
        for place in order.tolist():
            yield {name: column[place] for name, column in self.columns.items()}


class _Reader:
    """All events of some files, and the names that they refer to."""

    def __init__(self) -> None:
        self.processes: dict[_Process, _Events] = {}
        self.names: list[str] = []
        self.hashes: list[object] = []
        self.ranks: dict[_Process, int] = {}
        self.texts: dict[object, dict[_Process, str]] = {}
        self.unit = 10**3
        self.started: list[int] = []
        self.command: object = None
        self.mpi_io = self.aggregated = self.without_arguments = 0
        self._codes: dict[str, int] = {}
        self._files: dict[object, int] = {}
        self._hosts: dict[int, object] = {}

    def read(self, log: Path, reading: Reading) -> None:
        """Add the events of a file."""
        self._hosts = {}
        for number, line in enumerate(_lines(log, reading), 1):
            text = line.strip().rstrip(b",")
            if text in (b"", b"[", b"]"):
                continue
            try:
                event = json.loads(text)
                self._take(event)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                why = "not JSON" if isinstance(error, ValueError) else "not an event of DFTracer"
                raise FormatError(
                    f"{log}, line {number}: {why}, perhaps cut short: {text[:80].decode('utf-8', 'replace')!r}"
                ) from None

    def _take(self, event: Mapping[str, Any]) -> None:
        args = event.get("args") or {}
        pid, phase = int(event["pid"]), event["ph"]
        if phase in _METADATA and event["name"] == "HH":
            self._hosts[pid] = args["value"]
        process = _Process(args.get("hhash", self._hosts.get(pid)), pid)
        if phase in _METADATA:
            self._metadata(event["name"], args, process)
        elif phase in _AGGREGATED and event["cat"] in ("POSIX", "STDIO"):
            self.aggregated += 1
        elif phase in _COMPLETE and event["cat"] == "dftracer":
            events = self.processes.setdefault(process, _Events())
            if event["name"] == "start":
                self.started.append(int(event["ts"]))
                self.command = args.get("cmd_hash", self.command)
            events.ended |= event["name"] == "end"
        elif phase in _COMPLETE and event["cat"] == "MPIIO":
            self.mpi_io += 1
        elif phase in _COMPLETE and event["cat"] in ("POSIX", "STDIO"):
            self._call(event, args, process)

    def _metadata(self, name: str, args: Mapping[str, Any], process: _Process) -> None:
        if name in ("FH", "SH", "HH"):
            self.texts.setdefault(args["value"], {})[process] = str(args["name"])
        elif name == "PR" and args["name"] == "rank":
            self.ranks[process] = int(args["value"])
        elif name == "CM" and args["name"] == "time_metric":
            self.unit = _NANOSECONDS[args["value"]]

    def _call(self, event: Mapping[str, Any], args: Mapping[str, Any], process: _Process) -> None:
        file = args.get("fhash")
        if file is None:
            self.without_arguments += not args
            return
        name = event["name"]
        how = args.get("flags", args.get("whence", 0))
        if name.startswith("fopen") and "a" in args.get("mode", ""):
            how = APPEND
        self.processes.setdefault(process, _Events()).add(
            int(event["ts"]),
            int(event["dur"]),
            self._code(name),
            self._file(file),
            int(args.get("fd", UNKNOWN)),
            int(args.get("ret", args.get("ret_len", _ABSENT))),
            int(args.get("count", 0)),
            int(args.get("size", 1)),
            int(args.get("offset", UNKNOWN)),
            int(how),
        )

    def _code(self, name: str) -> int:
        if name not in self._codes:
            self._codes[name] = len(self.names)
            self.names.append(name)
        return self._codes[name]

    def _file(self, file: object) -> int:
        if file not in self._files:
            self._files[file] = len(self.hashes)
            self.hashes.append(file)
        return self._files[file]

    def text(self, of: object, process: _Process) -> str | None:
        """What a hash stands for in a process. Short hashes, of old versions, differ between processes."""
        found = self.texts.get(of, {})
        if process in found:
            return found[process]
        distinct = set(found.values())
        return distinct.pop() if len(distinct) == 1 else None


def import_dftracer(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """The POSIX and STDIO calls in a trace of DFTracer: a .pfw or .pfw.gz file, or a directory of them.

    DFTracer does not record where a read or write begins. That follows from the calls before it,
    unless the file is appended to, or is open several times in the process. ``progress`` is told
    how many bytes are read.

    Raises:
        PdlaError: the trace cannot be read, or has no call.
        FormatError: it is cut short or damaged, or is something else.
    """
    source = Path(path)
    reader = _Reader()
    logs = _logs(source)
    for log in logs:
        check(log, DFTRACER)
    reading = Reading(logs, progress)
    for log in logs:
        reader.read(log, reading)
    used = {process: events for process, events in reader.processes.items() if len(events.columns["time"])}
    numbered = _numbered(reader, list(used))
    ranks = numbered or _in_order(reader, list(used))
    calls, unnamed = Calls(), 0
    begin = min(reader.started) * reader.unit if reader.started else None
    for process, events in used.items():
        paths = {file: reader.text(reader.hashes[file], process) for file in {*events.columns["file"]}}
        unnamed += sum(path is None for path in paths.values())
        named = {file: path or f"file {reader.hashes[file]}" for file, path in paths.items()}
        _add(calls, ranks[process], events, reader, named)
    if not len(calls):
        raise PdlaError(f"{source} has no read or write{_why_none(reader)}")
    notes = ["these are POSIX and STDIO calls: those that the MPI library made, not the program's own MPI-IO calls"]
    if not numbered:
        notes.append("DFTracer did not record ranks: processes that used files are numbered by host and process id")
    if {"fread", "fwrite"} & {*reader.names}:
        notes.append("DFTracer does not record fprintf: streams that it moves are elsewhere than this trace says")
    if reader.mpi_io:
        notes.append(f"{counted(reader.mpi_io, 'MPI-IO call')} name no file: they are not in this trace")
    if reader.aggregated:
        notes.append(f"{counted(reader.aggregated, 'event')} stand for several calls: they are not in this trace")
    if unnamed:
        notes.append("this trace does not name all its files: those have the hashes that DFTracer gave them")
    hosts = {reader.text(process.host, process) for process in used}
    return calls.trace(
        ranks=max(ranks.values()) + 1,
        notes=notes,
        source="dftracer",
        command=_command(reader) or f"imported from {source.name}",
        zero=begin,
        started=(begin or 0) / 1e9,
        truncated=tuple(sorted(ranks[process] for process, events in used.items() if not events.ended)),
        hosts=tuple(sorted(host for host in hosts if host)),
    )


def _logs(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    logs = sorted(entry for entry in source.iterdir() if entry.name.endswith(ENDINGS))
    if not logs:
        raise FormatError(f"{source} is {kind_of(source)} without files *.pfw or *.pfw.gz, not {DFTRACER}")
    return logs


def _lines(log: Path, reading: Reading) -> Iterator[bytes]:
    try:
        with log.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with reading.open(log) as stream, gzip.open(stream) if packed else stream as lines:
            yield from lines
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{log} is cut short or damaged: {error}") from None
    except OSError as error:
        raise PdlaError(f"cannot read {log}: {error.strerror}") from None


def _numbered(reader: _Reader, used: list[_Process]) -> dict[_Process, int] | None:
    """The ranks that the trace names, if it names a rank of its own for each process."""
    known = [reader.ranks.get(process, -1) for process in used]
    if len(set(known)) < len(used) or not all(0 <= rank < MOST_RANKS for rank in known):
        return None
    return dict(zip(used, known, strict=True))


def _in_order(reader: _Reader, used: list[_Process]) -> dict[_Process, int]:
    """The processes by the name of their host and their process id."""
    order = sorted(used, key=lambda process: (reader.text(process.host, process) or "", process.pid))
    return {process: rank for rank, process in enumerate(order)}


def _add(calls: Calls, rank: int, events: _Events, reader: _Reader, paths: Mapping[int, str]) -> None:
    """Add the data calls of a process, with their offsets."""
    files = OpenFiles()
    for event in events.in_order():
        name, file, ret = reader.names[event["name"]], event["file"], event["ret"]
        # Versions from 2 on name the file of a call, not its descriptor.
        descriptor = None if event["descriptor"] == UNKNOWN else event["descriptor"]
        if name in _OPENS:
            if ret == _ABSENT or ret >= 0:
                files.open(file, None if ret == _ABSENT else ret, appends=bool(event["how"] & APPEND))
        elif name in ("close", "fclose"):
            files.close(file, descriptor)
        elif name in _SHARES:
            files.share(file, descriptor)
        elif name in _SEEKS:
            files.move(file, descriptor, _target(name, event, files.position(file, descriptor).at))
        elif name in _MOVES:
            files.move(file, descriptor, None)
        elif name in _AT or name in _READS or name in _WRITES:
            length = max(event["count"] if ret == _ABSENT else ret, 0) * event["size"]
            op = "write" if "write" in name else "read"
            at = event["offset"] if name in _AT else files.position(file, descriptor).take(op, length)
            start = event["time"] * reader.unit
            end = start + event["duration"] * reader.unit
            calls.add(rank, name, paths[file], at, length, start, end, moved_known=ret != _ABSENT)


def _target(name: str, event: Mapping[str, int], at: int | None) -> int | None:
    """Where a seek leads from ``at``."""
    ret = event["ret"]
    if name == "rewind":
        return 0
    if name.startswith(("lseek", "ftell")):
        return ret if ret >= 0 else at
    if ret:  # a failed fseek
        return at
    base = {0: 0, 1: at}.get(event["how"])
    return None if base is None else base + event["offset"]


def _command(reader: _Reader) -> str:
    found = {*reader.texts.get(reader.command, {}).values()}
    return found.pop().replace(";", " ") if len(found) == 1 else ""


def _why_none(reader: _Reader) -> str:
    if reader.without_arguments:
        return ": its events have no arguments; set DFTRACER_INC_METADATA=1 and run again"
    if reader.aggregated:
        return ": its events stand for several calls; unset DFTRACER_ENABLE_AGGREGATION and run again"
    return ": DFTRACER_DATA_DIR names the directories whose files DFTracer records"
