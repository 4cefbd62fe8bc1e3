"""Journals that tests change by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import numpy as np

from pdla.replicator.journals import ENTRY, HEADER, HEADER_SIZE


class Image:
    """A journal that is changed by hand, with the right checksums."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes = path, bytearray(path.read_bytes())
        self.header = np.frombuffer(self.bytes, dtype=HEADER, count=1)[0]
        self.entries = np.frombuffer(self.bytes, dtype=ENTRY, offset=HEADER_SIZE)

    def seal_entry(self, number: int) -> None:
        entry = self.entries[number]
        length = int(entry["seal"]) & 0xFFFFFFFF
        packed = struct.pack("<QqQ", int(entry["replica"]), int(entry["start"]), length)
        entry["seal"] = google_crc32c.value(packed) << 32 | length

    def write(self) -> None:
        at, stop = (HEADER.fields[name][1] for name in ("rank", "count"))  # type: ignore[index]
        seed = google_crc32c.value(bytes(self.bytes[at:stop]))
        self.header["checksum"] = seed
        for name in ("count", "synced"):
            number, place = int(self.header[name]) & 0xFFFFFFFF, HEADER.fields[name][1]  # type: ignore[index]
            self.header[name] = number | google_crc32c.extend(seed, struct.pack("<QQ", number, place)) << 32
        for state in self.header["states"]:
            state["checksum"] = google_crc32c.extend(seed, state.tobytes()[:-4])
        self.path.write_bytes(self.bytes)
