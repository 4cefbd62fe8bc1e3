"""Archives of the real writer of OTF2, with the events that Score-P writes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.mpi import unavailable

if importlib.util.find_spec("otf2") is None:
    unavailable("otf2 is not installed")
import otf2
from otf2.enums import (
    IoAccessMode,
    IoCreationFlag,
    IoHandleFlag,
    IoOperationFlag,
    IoOperationMode,
    IoParadigmClass,
    IoParadigmFlag,
    IoSeekOption,
    IoStatusFlag,
    LocationType,
    Type,
)


class Process:
    """A rank's events, 10 ns apart."""

    def __init__(self, archive: Any, name: str, node: Any) -> None:
        self._archive, self._of = archive, archive.definitions
        self._group = self._of.location_group(name, system_tree_parent=node)
        self._writer = archive.event_writer_from_location(
            self._of.location("Master thread", type=LocationType.CPU_THREAD, group=self._group)
        )
        self._node = node
        self.time, self._handles = 1000, 0

    def at(self) -> int:
        self.time += 10
        return self.time

    def enter(self, region: str) -> None:
        self._writer.enter(self.at(), self._of.region(region))

    def leave(self, region: str) -> None:
        self._writer.leave(self.at(), self._of.region(region))

    def handle(self, layer: str, path: str, flags: Any = IoHandleFlag.NONE) -> Any:
        parallel = IoParadigmClass.SERIAL if layer in ("POSIX", "ISOC") else IoParadigmClass.PARALLEL
        system = IoParadigmFlag.OS if layer == "POSIX" else IoParadigmFlag.NONE
        paradigm = self._of.io_paradigm(
            layer, layer, io_paradigm_class=parallel, io_paradigm_flags=system, properties={}
        )
        file = self._of.io_regular_file(path, scope=self._node)
        self._handles += 1  # equal definitions would be one
        name = f"handle {self._handles}"
        return self._of.io_handle(name, file=file, io_paradigm=paradigm, io_handle_flags=flags)

    def open(self, layer: str, path: str, status: Any = IoStatusFlag.NONE) -> Any:
        handle = self.handle(layer, path)
        self._writer.io_create_handle(self.at(), handle, IoAccessMode.READ_WRITE, IoCreationFlag.NONE, status)
        return handle

    def close(self, handle: Any) -> None:
        self._writer.io_destroy_handle(self.at(), handle)

    def copy(self, handle: Any, new: Any) -> None:
        self._writer.io_duplicate_handle(self.at(), handle, new, IoStatusFlag.NONE)

    def seek(self, handle: Any, to: int) -> None:
        self._writer.io_seek(self.at(), handle, 0, IoSeekOption.FROM_START, to)

    def begin(
        self,
        handle: Any,
        size: int,
        mode: Any,
        *,
        offset: int | None = None,
        number: int = 0,
        flag: Any = IoOperationFlag.NONE,
    ) -> None:
        attributes = None
        if offset is not None:
            text = "Absolute read/write offset within a file."
            attributes = {self._of.attribute(name="Offset", description=text, type=Type.UINT64): offset}
        self._writer.io_operation_begin(self.at(), handle, mode, flag, size, number, attributes=attributes)

    def complete(self, handle: Any, moved: int, number: int = 0) -> None:
        self._writer.io_operation_complete(self.at(), handle, moved, number)

    def cancel(self, handle: Any, number: int) -> None:
        self._writer.io_operation_cancelled(self.at(), handle, number)

    def call(self, region: str, handle: Any, size: int, moved: int | None = None, **more: Any) -> None:
        """A blocking read or write in its region."""
        self.enter(region)
        self.begin(handle, size, IoOperationMode.WRITE if "write" in region else IoOperationMode.READ, **more)
        self.complete(handle, size if moved is None else moved)
        self.leave(region)


def written(path: Path, *programs: Callable[[Process], None], names: str = "MPI Rank {}") -> Path:
    """An archive of a process for each of ``programs``."""
    with otf2.writer.open(str(path), timer_resolution=10**9) as archive:
        node = archive.definitions.system_tree_node("node", class_name="machine")
        for rank, program in enumerate(programs):
            program(Process(archive, names.format(rank), node))
    return path / "traces.otf2"


def mpi_io(process: Process, rank: int) -> None:
    """What an MPI-IO program does, and below it the POSIX calls of the MPI library."""
    above, below = process.open("MPI-IO", "/data"), process.open("POSIX", "/data")
    for turn in range(4):
        offset = (turn * 2 + rank) * 4096
        process.enter("MPI_File_write_at_all")
        process.begin(above, 4096, IoOperationMode.WRITE, offset=offset, number=turn, flag=IoOperationFlag.COLLECTIVE)
        process.call("pwrite", below, 4096, offset=offset)
        process.complete(above, 4096, turn)
        process.leave("MPI_File_write_at_all")
    process.seek(above, 100)
    process.call("MPI_File_read", above, 50)
    process.call("MPI_File_read", above, 25, 20)
    process.close(below)
    process.close(above)


RANKS = [lambda process: mpi_io(process, 0), lambda process: mpi_io(process, 1)]
