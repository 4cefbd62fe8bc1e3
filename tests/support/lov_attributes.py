"""The extended attribute lustre.lov, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pdla.replicator.backends.lov import V1, V3

INIT, EXTENSION, PARITY = 0x10, 0x40, 0x80


def blob(strip: int, osts: Sequence[int], pool: str = "", pattern: int = 1, count: int | None = None) -> bytes:
    """struct lov_user_md_v1 or _v3, and the objects."""
    wanted = len(osts) if count is None else count
    head = struct.pack("<IIQQIHH", V3 if pool else V1, pattern, 1, 2, strip, wanted, 0)
    objects = b"".join(struct.pack("<QQII", 7, 8, 0, ost) for ost in osts)
    return head + (pool.encode().ljust(16, b"\0") if pool else b"") + objects


def layout(parts: Sequence[tuple[int, int, int, int, bytes]], magic: int = 0x0BD60BD0) -> bytes:
    """struct lov_comp_md_v1 with components of (id, flags, start, stop, bytes)."""
    at, entries = 32 + 48 * len(parts), b""
    for number, flags, start, stop, value in parts:
        entries += struct.pack("<IIQQIIIQI", number, flags, start, stop, at, len(value), 1, 0, 0)
        at += len(value)
    header = struct.pack("<IIIHHHHIQ", magic, at, 3, 0, len(parts), 0, 0, 0, 0)
    return header + entries + b"".join(value for *_, value in parts)
