"""The components of a Lustre file as ``lustre.lov`` has them: progressive file layouts and mirrors.

Every field and value is from include/uapi/linux/lustre/lustre_user.h of Lustre 2.17: ``struct
lov_comp_md_v1``, ``struct lov_comp_md_entry_v1``, ``enum lov_comp_md_entry_flags`` and ``enum
lov_pattern``. A byte's strip counts from the beginning of the file, not of the component
(``lov_stripe_number`` in lustre/lov/lov_offset.c).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pdla.errors import PdlaError
from pdla.replicator.backends.lov import COMPRESS, OVERSTRIPING, RAID0, V1, V3, Striping, encode_plain, plain

COMPOSITE, FOREIGN, EXTENDED = 0x0BD60BD0, 0x0BD70BD0, 0x0BD80BD0
"""LOV_USER_MAGIC_COMP_V1, _FOREIGN and _SEL (composite, with components that grow)."""
END = (1 << 64) - 1
"""Of the last component (LUSTRE_EOF)."""
UNWRITTEN = "no byte of it was written yet"
INIT, PARITY = 0x10, 0x80
MDT, RELEASED = 0x100, 1 << 31
_HEADER = struct.Struct("<IIIHHHBB4x8x")
"""lcm_magic, lcm_size, lcm_layout_gen, lcm_flags, lcm_entry_count, lcm_mirror_count, lcm_ec_count; padding."""
_ENTRY = struct.Struct("<IIQQIIIQ4x")
"""lcme_id, lcme_flags, lcme_extent (two words), lcme_offset, lcme_size, lcme_layout_gen, lcme_time_and_id; 4 bytes."""
_MIRROR = 16
"""The first bit of the number of the mirror in lcme_id; it has 15."""


class Component(NamedTuple):
    """Bytes [``start``, ``stop``) of a file in one of its mirrors.

    ``striping`` None: they are not in strips on OSTs, and ``why`` says where.
    """

    start: int
    stop: int
    striping: Striping | None
    why: str = ""
    mirror: int = 0

    @property
    def range(self) -> str:
        """Its bytes in words."""
        return f"bytes {self.start} to {'the end' if self.stop == END else self.stop}"


def components(value: bytes) -> tuple[Component, ...]:
    """The components of a file, mirror by mirror in the order of their bytes; one if its layout is not composite.

    Raises:
        PdlaError: the value is damaged.
    """
    try:
        (magic,) = struct.unpack_from("<I", value)
        if magic not in (COMPOSITE, EXTENDED):
            return (Component(0, END, *_part(value, True)),)
        found = list(_entries(value))
    except (struct.error, UnicodeDecodeError) as error:
        raise PdlaError(f"its layout has {len(value)} bytes that cannot be understood") from error
    found.sort(key=lambda one: (one.mirror, one.start, one.stop))
    for before, after in pairwise(found):
        if before.mirror == after.mirror and before.stop > after.start:
            raise PdlaError(f"its layout has two components for byte {after.start}")
    return tuple(found)


def governing(found: Sequence[Component], size: int) -> Component:
    """The component that has the most of the first ``size`` bytes of a file.

    Raises:
        PdlaError: the file has mirrors, any of which may be read.
    """
    if mirrors := len({one.mirror for one in found}) - 1:
        raise PdlaError(f"it has {mirrors + 1} mirrors")
    return max(found, key=lambda one: min(one.stop, max(size, 1)) - min(one.start, max(size, 1)))


def encode_components(parts: Sequence[tuple[int, Striping]]) -> bytes:
    """The value that gives an empty file components with these strips, each up to a byte of the file.

    Only the numbers of OSTs count: Lustre chooses the OSTs when a component is first written to.
    """
    blobs = [encode_plain(striping) for _, striping in parts]
    at, start, entries = _HEADER.size + len(parts) * _ENTRY.size, 0, b""
    for number, ((stop, _), blob) in enumerate(zip(parts, blobs, strict=True), 1):
        entries += _ENTRY.pack(number, 0, start, stop, at, len(blob), 0, 0)
        at, start = at + len(blob), stop
    return _HEADER.pack(COMPOSITE, at, 0, 0, len(parts), 0, 0, 0) + entries + b"".join(blobs)


def _entries(value: bytes) -> list[Component]:
    _, size, _, _, count, *_ = _HEADER.unpack_from(value)
    first = _HEADER.size + count * _ENTRY.size
    if not count or not first < size <= len(value):
        raise PdlaError(f"its layout has {count} components in {len(value)} bytes of {size}")
    found = []
    for number in range(count):
        entry = _ENTRY.unpack_from(value, _HEADER.size + number * _ENTRY.size)
        name, flags, start, stop, offset, length, _, _ = entry
        if start > stop or not first <= offset <= offset + length <= size:
            raise PdlaError(f"its layout has a component that cannot be: bytes {start} to {stop}")
        if not flags & PARITY:  # its bytes are none of the file's
            part = _part(value[offset : offset + length], bool(flags & INIT))
            found.append(Component(start, stop, *part, mirror=name >> _MIRROR & 0x7FFF))
    return found


def _part(value: bytes, instantiated: bool) -> tuple[Striping | None, str]:
    """The striping of a component, or where its bytes are instead."""
    magic, pattern = struct.unpack_from("<II", value)
    if magic == FOREIGN:
        return None, "another system has its bytes, and Lustre its name only"
    if magic not in (V1, V3):
        raise PdlaError(f"its layout is of an unknown kind (lmm_magic {magic:#x})")
    if pattern & RELEASED:
        return None, "its bytes are archived (lfs hsm_restore gets them back)"
    if pattern & MDT:
        return None, "its bytes are on a metadata server"
    if not instantiated:
        return None, UNWRITTEN
    if pattern & ~(OVERSTRIPING | COMPRESS) != RAID0:
        raise PdlaError(f"its layout has an unknown pattern (lmm_pattern {pattern:#x})")
    return plain(value), ""
