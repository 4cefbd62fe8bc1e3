"""Raw logs made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CALLS = ("MPI_File_open", "MPI_File_read_at", "MPI_File_write_all", "MPI_File_seek", "MPI_File_iread_at_all_c")
OPEN, READ_AT, WRITE_ALL, SEEK, IREAD_AT_ALL_C = range(5)
SECOND = 10**9
NOON = 1_700_000_000 * SECOND
BOOT = 5 * SECOND


@dataclass(frozen=True)
class Record:
    call: int
    position: int = 0
    length: int = 0
    moved: int = -1  # as asked for
    file: int = 1
    view: int = 0
    flags: int = 0
    error: int = 0
    start: int = 0  # ns after MPI_Init


def pack_records(records: Sequence[Record]) -> bytes:
    return b"".join(
        struct.pack(
            "<QqqqqqIIHHi",
            number,
            BOOT + r.start,
            BOOT + r.start + 500,
            r.position,
            r.length,
            r.length if r.moved < 0 else r.moved,
            r.file,
            r.view,
            r.call,
            r.flags,
            r.error,
        )
        for number, r in enumerate(records, start=1)
    )


def pack_header(
    rank: int,
    ranks: int,
    *,
    started: int = NOON,
    finalized: int = 1,
    dropped: int = 0,
    host: bytes = b"node1",
    window: int = 0,
) -> bytes:
    unrecorded = [0] * 192
    unrecorded[SEEK] = 3
    return struct.pack(
        "<8sIIiiiiqqQQ64s128s32x193I",
        *(b"PDLALOG2", 4096, 64, rank, ranks, 1000 + rank, 1, started, BOOT, dropped, finalized, host, b"MPICH  5.0"),
        *(window, *unrecorded),
    ).ljust(4096, b"\0")


def entry(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def file_entry(number: int, path: bytes, *, ranks: int, rank: int, size: int = 1 << 20, changed: int = 7) -> bytes:
    return entry(2, struct.pack("<IIIIQQqqq", number, 8, ranks, rank, 2049, 2**63 + 5, size, changed, changed) + path)


def view_entry(number: int, displacement: int, extent: int, words: Sequence[int], size: int) -> bytes:
    return entry(3, struct.pack(f"<IIqqq{len(words)}q", number, 8, displacement, extent, size, *words))


def side(*entries: bytes) -> bytes:
    names = b"".join(name.encode() + b"\0" for name in CALLS)
    return b"PDLASID1" + entry(1, names) + b"".join(entries)


def write_process(directory: Path, name: str, log: bytes, side_bytes: bytes) -> None:
    (directory / f"{name}.log").write_bytes(log)
    (directory / f"{name}.side").write_bytes(side_bytes)
