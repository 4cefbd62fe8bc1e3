"""Journals that tests make and change by hand."""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import numpy as np

from pdla.processes import this_boot
from pdla.replicator.file_identity import identify, put_identity
from pdla.replicator.journals import ENTRY, HEADER, HEADER_SIZE, MAGIC


class Image:
    """A journal that is changed by hand, with the right checksums."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes = path, bytearray(path.read_bytes())
        self.header = np.frombuffer(self.bytes, dtype=HEADER, count=1)[0]
        self.entries = np.frombuffer(self.bytes, dtype=ENTRY, offset=HEADER_SIZE)

    def seal_entry(self, number: int) -> None:
        entry = self.entries[number]
        length = int(entry["seal"]) & 0xFFFFFFFF
        packed = struct.pack("<QqQQ", *(int(entry[name]) for name in ("place", "start", "stamp")), length)
        entry["seal"] = google_crc32c.value(packed) << 32 | length

    def write(self) -> None:
        at, stop = (HEADER.fields[name][1] for name in ("rank", "count"))  # type: ignore[index]
        seed = google_crc32c.value(bytes(self.bytes[at:stop]))
        self.header["checksum"] = seed
        for name in ("count", "synced", "home"):
            number, place = int(self.header[name]) & 0xFFFFFFFF, HEADER.fields[name][1]  # type: ignore[index]
            self.header[name] = number | google_crc32c.extend(seed, struct.pack("<QQ", number, place)) << 32
        for state in self.header["states"]:
            state["checksum"] = google_crc32c.extend(seed, state.tobytes()[:-4])
        self.path.write_bytes(self.bytes)


@dataclass
class CacheJournal:
    """A journal of a cache file, as a process of this node leaves it. Entries: (place, start, length, stamp)."""

    directory: Path
    target: Path
    cache: Path
    entries: list[tuple[int, int, int, int]] = field(default_factory=list)
    synced: int = 0
    home: int = 0
    host: str = field(default_factory=socket.gethostname)
    boot: str = field(default_factory=this_boot)
    number: int = 0

    @property
    def path(self) -> Path:
        return self.directory / f"{self.host}-812-{self.number}.journal"

    def write(self) -> None:
        """Make the journal, with the state that the target has now."""
        found = self.target.stat()
        header = np.zeros(1, dtype=HEADER)
        rows = np.zeros(len(self.entries), dtype=ENTRY)
        for name, value in (("boot", self.boot), ("host", self.host), ("target", self.target), ("cache", self.cache)):
            header[name] = os.fsencode(str(value))
        header["magic"], header["pid"] = MAGIC, 812
        put_identity(header[0]["original"], identify(self.target))
        header["count"], header["synced"], header["home"] = len(rows), self.synced, self.home
        for state in header[0]["states"]:
            state["size"], state["mtime_ns"] = found.st_size, found.st_mtime_ns
            state["ctime_ns"], state["stamp_ns"] = found.st_ctime_ns, time.time_ns()
            state["attributes"] = found.st_mode, found.st_uid, found.st_gid, found.st_nlink
        for row, (place, start, length, stamp) in zip(rows, self.entries, strict=True):
            row["place"], row["start"], row["stamp"], row["seal"] = place, start, stamp, length
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(header.tobytes().ljust(HEADER_SIZE, b"\0") + rows.tobytes())
        image = Image(self.path)
        for number in range(len(rows)):
            image.seal_entry(number)
        image.write()
