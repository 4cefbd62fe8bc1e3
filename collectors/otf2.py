"""Import OTF2 archives with I/O records, as Score-P writes them.

The events of an I/O operation are a begin, with the bytes asked for and sometimes the offset, and a
completion with the bytes moved. The regions around them name the functions.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pdla.collectors.imported_calls import UNKNOWN, Calls, Position
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import OTF2, check, kind_of
from pdla.traces.tables import operation
from pdla.traces.trace import Trace
from pdla.units import counted

_MPI = "MPI-IO"
_LAYERS = (_MPI, "POSIX", "ISOC")
_RANK = re.compile(r"MPI Rank (\d+)")
_UNDEFINED = 2**64 - 1


def import_otf2(path: str | os.PathLike[str]) -> Trace:
    """The I/O operations of MPI-IO, POSIX and ISO C in an OTF2 archive: its anchor file, or the directory of one.

    Raises:
        PdlaError: the archive cannot be read, has no I/O operation, or the package otf2 is not
            installed.
        FormatError: it is cut short or damaged, or something else.
    """
    anchor = _anchor(Path(path))
    check(anchor, OTF2)
    if importlib.util.find_spec("otf2") is None:
        raise PdlaError("reading OTF2 archives needs the package otf2: pip install 'pdla[otf2]'")
    # In a process of its own: on a damaged archive OTF2's C library prints, and may end the process.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, anchor], capture_output=True, env=environment, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        raise FormatError(f"the OTF2 archive {anchor} is cut short or damaged: {(lines or ['it cannot be read'])[-1]}")
    answer = pickle.loads(done.stdout)
    if isinstance(answer, PdlaError):
        raise answer
    assert isinstance(answer, Trace)
    return answer


def _anchor(source: Path) -> Path:
    if not source.is_dir():
        return source
    anchors = sorted(source.glob("*.otf2"))
    if len(anchors) != 1:
        raise FormatError(f"{source} is {kind_of(source)} with {len(anchors)} files *.otf2, not {OTF2}")
    return anchors[0]


class _Operation(NamedTuple):
    """An operation that has begun."""

    kind: str
    offset: int
    requested: int | None
    start: int
    blocking: bool
    collective: bool


class _Handle:
    """An open file of a process. ``placed``: its file view is the plain file."""

    def __init__(self, layer: str, path: str, *, appends: bool) -> None:
        self.layer, self.path = layer, path
        self.position = Position(0, appends=appends)
        self.placed = True
        self.pending: dict[int, _Operation] = {}


class _Process:
    """A location group: the handles that its threads share, and the regions that each thread is in."""

    def __init__(self) -> None:
        self.handles: dict[object, _Handle] = {}
        self.regions: dict[object, list[str]] = {}


class _Reader:
    """Makes calls of the events of an archive."""

    def __init__(self, otf2: Any, archive: Any) -> None:
        self._events, self._flags = otf2.events, otf2.enums
        self._operations = tuple(
            getattr(otf2.events, name)
            for name in ("IoSeek", "IoOperationBegin", "IoOperationComplete", "IoOperationCancelled")
        )
        self._archive = archive
        clock = archive.definitions.clock_properties
        self._zero, self._resolution = clock.global_offset, clock.timer_resolution
        self.started = 0.0 if clock.realtime_timestamp == _UNDEFINED else clock.realtime_timestamp / 1e9
        groups = sorted({one.group for one in archive.definitions.locations}, key=lambda group: group._ref)
        named = [_RANK.fullmatch(group.name or "") for group in groups]
        self.ranks_named = all(named)
        self._ranks = {
            group: int(found[1]) if found and self.ranks_named else number
            for number, (group, found) in enumerate(zip(groups, named, strict=True))
        }
        self.ranks = max(self._ranks.values(), default=0) + 1
        self.calls = Calls()
        self.other = self.unfinished = 0
        self.viewed = False
        self._processes: dict[object, _Process] = {}

    def read(self) -> None:
        """Take all events."""
        seen = 0
        for location, event in self._archive.events:
            seen += 1
            self._take(self._processes.setdefault(location.group, _Process()), location, event)
        if seen < sum(location.number_of_events for location in self._archive.definitions.locations):
            raise ValueError("events are missing")
        for group, process in self._processes.items():
            for handle in process.handles.values():
                self._abandon(group, handle, None)

    def _take(self, process: _Process, location: Any, event: Any) -> None:
        events = self._events
        regions = process.regions.setdefault(location, [])
        if isinstance(event, events.Enter):
            regions.append(event.region.name or "")
            if event.region.name == "MPI_File_set_view":
                # The event does not say of which file.
                for one in process.handles.values():
                    one.placed &= one.layer != _MPI
                self.viewed = True
        elif isinstance(event, events.Leave):
            if regions:
                regions.pop()
        elif isinstance(event, events.IoCreateHandle):
            self._open(process, event.handle, self._has(event.status_flags, self._flags.IoStatusFlag.APPEND))
        elif isinstance(event, events.IoDuplicateHandle):
            if old := self._handle(process, event.old_handle):
                process.handles[event.new_handle] = old
        elif isinstance(event, events.IoDestroyHandle):
            self._destroy(process, location.group, event)
        elif isinstance(event, self._operations) and (handle := self._handle(process, event.handle)):
            self._operate(handle, regions, location.group, event)

    def _destroy(self, process: _Process, group: object, event: Any) -> None:
        if event.handle in process.handles:
            handle = process.handles.pop(event.handle)
            if handle not in process.handles.values():  # no copy of it
                self._abandon(group, handle, self._time(event))

    def _abandon(self, group: object, handle: _Handle, end: int | None) -> None:
        """Take the operations that never completed."""
        for begun in handle.pending.values():
            self.unfinished += 1
            self._add(group, handle, begun, None, begun.start if end is None else end)

    def _operate(self, handle: _Handle, regions: list[str], group: object, event: Any) -> None:
        events = self._events
        if isinstance(event, events.IoSeek):
            handle.position.at = None if event.offset_result == _UNDEFINED else event.offset_result
        elif isinstance(event, events.IoOperationBegin):
            self._begin(handle, regions, event)
        else:
            begun = handle.pending.pop(event.matching_id, None)
            if begun and isinstance(event, events.IoOperationComplete):
                self._add(group, handle, begun, event.bytes_result, self._time(event))

    def _open(self, process: _Process, handle: Any, appends: bool) -> _Handle:
        layer, path = handle.io_paradigm.identification, handle.file.name or f"file {handle.file._ref}"
        process.handles[handle] = _Handle(layer, path, appends=appends)
        return process.handles[handle]

    def _handle(self, process: _Process, handle: Any) -> _Handle | None:
        """A handle; one that was there before the recording began has an unknown position."""
        if handle not in process.handles:
            if self._has(handle.io_handle_flags, self._flags.IoHandleFlag.PRE_CREATED):
                return None  # standard input and output
            self._open(process, handle, appends=False).position.at = None
        return process.handles[handle]

    def _begin(self, handle: _Handle, regions: list[str], event: Any) -> None:
        modes = self._flags.IoOperationMode
        if event.mode not in (modes.READ, modes.WRITE):
            return
        if handle.layer not in _LAYERS:
            self.other += 1
            return
        op = "read" if event.mode == modes.READ else "write"
        region = regions[-1] if regions else ""
        kind = region if operation(region.lower()) == op else f"{handle.layer} {op}"
        requested = None if event.bytes_request == _UNDEFINED else event.bytes_request
        explicit = next((value for key, value in (event.attributes or {}).items() if key.name == "Offset"), None)
        if "shared" in region or "ordered" in region:
            offset = UNKNOWN
        elif explicit is not None:
            offset = int(getattr(explicit, "value", explicit))
        else:
            offset = handle.position.take(op, requested or 0)
        flags = self._flags.IoOperationFlag
        handle.pending[event.matching_id] = _Operation(
            kind,
            offset if handle.placed else UNKNOWN,
            requested,
            self._time(event),
            explicit is None and not self._has(event.operation_flags, flags.NON_BLOCKING),
            self._has(event.operation_flags, flags.COLLECTIVE),
        )

    def _add(self, group: object, handle: _Handle, begun: _Operation, moved: int | None, end: int) -> None:
        known = moved is not None and moved != _UNDEFINED
        length = moved if known else begun.requested
        if begun.blocking and begun.offset != UNKNOWN and length is not None:
            handle.position.at = begun.offset + length
        self.calls.add(
            *(self._ranks[group], begun.kind, handle.path, begun.offset, length, begun.start, end),
            mpi=handle.layer == _MPI,
            collective=begun.collective,
            moved_known=known,
        )

    def _time(self, event: Any) -> int:
        return int((event.time - self._zero) * 10**9 // self._resolution)

    @staticmethod
    def _has(flags: Any, flag: Any) -> bool:
        return bool(flags.value & flag.value)


def _read(anchor: Path) -> Trace:
    """What the child process returns."""
    import otf2  # type: ignore[import-untyped]

    with otf2.reader.open(str(anchor)) as archive:
        reader = _Reader(otf2, archive)
        reader.read()
    if not len(reader.calls):
        raise PdlaError(f"{anchor} has no I/O operation of {', '.join(_LAYERS)}: was the program built to record I/O?")
    notes = []
    if reader.viewed:
        notes.append(
            "OTF2 does not record file views: the place of MPI-IO calls after a change of the view is not known"
        )
    if not reader.ranks_named:
        notes.append("this archive does not name ranks: its location groups are numbered in their order")
    if reader.other:
        notes.append(f"{counted(reader.other, 'operation')} of HDF5 and other libraries: only those below are here")
    if reader.unfinished:
        notes.append(f"{counted(reader.unfinished, 'operation')} did not end: the bytes moved are not known")
    return reader.calls.trace(
        ranks=reader.ranks,
        notes=notes,
        source="otf2",
        command=f"imported from {anchor.name}",
        zero=0,
        started=reader.started,
    )


def _main() -> None:
    # Everything that Python or C code prints goes to stderr, so that stdout holds only the answer.
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        try:
            content: Trace | PdlaError = _read(Path(sys.argv[1]))
        except PdlaError as error:
            content = error
        answer.write(pickle.dumps(content))


if __name__ == "__main__":
    _main()
