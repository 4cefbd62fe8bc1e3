"""The striping of a Lustre file as its extended attribute ``lustre.lov`` has it.

Every field and value is from include/uapi/linux/lustre/lustre_user.h of Lustre 2.17: ``struct
lov_user_md_v1`` and ``_v3``, ``struct lov_user_ost_data_v1``, ``enum lov_pattern`` and the
``LOV_USER_MAGIC`` constants. ``lfs setstripe`` sets the same attribute (``llapi_layout_file_open``
in lustre/utils/liblustreapi_layout.c).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pdla.errors import PdlaError

ATTRIBUTE = "lustre.lov"
UNIT = 1 << 16
"""Strips are multiples of it (LOV_MIN_STRIPE_SIZE)."""
LONGEST_STRIP = (1 << 32) - UNIT
"""``lmm_stripe_size`` has 32 bits."""
MOST_STRIPES = 160
"""Of a file on any Lustre (LOV_MAX_STRIPE_COUNT_OLD); more need the servers' option ``ea_inode``."""
V1, V3, SPECIFIC = 0x0BD10BD0, 0x0BD30BD0, 0x0BD50BD0
RAID0, OVERSTRIPING, COMPRESS = 0x001, 0x200, 0x800
_HEAD = struct.Struct("<IIQQIHH")
"""lmm_magic, lmm_pattern, lmm_oi (two words), lmm_stripe_size, lmm_stripe_count, lmm_stripe_offset."""
_POOL = struct.Struct("16s")
"""lmm_pool_name: LOV_MAXPOOLNAME and a NUL."""
_OBJECT = struct.Struct("<QQII")
"""l_ost_oi (two words), l_ost_gen, l_ost_idx."""


class Striping(NamedTuple):
    """``strip`` bytes on each of ``osts`` in turn; an OST may occur several times. ``pool``: their pool, if any."""

    strip: int
    osts: tuple[int, ...]
    pool: str = ""

    @property
    def overstriped(self) -> bool:
        """Whether an OST has several objects of the file."""
        return len(set(self.osts)) < len(self.osts)

    def __str__(self) -> str:
        """The striping in one line."""
        osts = ",".join(f"{ost:04x}" for ost in self.osts)
        return f"strip={self.strip} osts={osts}" + (f" pool={self.pool}" if self.pool else "")


def encode(striping: Striping) -> bytes:
    """The value that gives an empty file this striping."""
    pattern = RAID0 | (OVERSTRIPING if striping.overstriped else 0)
    # The list counts from the OST that lmm_stripe_offset names (lod_alloc_ost_list, lustre/lod/lod_qos.c).
    head = _HEAD.pack(SPECIFIC, pattern, 0, 0, striping.strip, len(striping.osts), striping.osts[0])
    objects = b"".join(_OBJECT.pack(0, 0, 0, ost) for ost in striping.osts)
    return head + _POOL.pack(striping.pool.encode()) + objects


def encode_default(striping: Striping) -> bytes:
    """The value that makes new files in a directory begin on the first of ``striping.osts`` (``ll_dir_setstripe``)."""
    return encode_plain(striping, striping.osts[0])


def encode_plain(striping: Striping, first: int = 0xFFFF) -> bytes:
    """The value that asks for a striping whose OSTs Lustre chooses, beginning with ``first``; by default any."""
    magic, pool = (V3, _POOL.pack(striping.pool.encode())) if striping.pool else (V1, b"")
    return _HEAD.pack(magic, RAID0, 0, 0, striping.strip, len(striping.osts), first) + pool


def decode(value: bytes) -> Striping:
    """The striping that a file has.

    Raises:
        PdlaError: the value is damaged, or the layout is none of strips only: composite, on the
            MDT, released, or not yet given.
    """
    try:
        magic, pattern = struct.unpack_from("<II", value)
        if magic not in (V1, V3) or pattern not in (RAID0, RAID0 | OVERSTRIPING):
            raise PdlaError(f"it is not plain strips (lmm_magic {magic:#x}, lmm_pattern {pattern:#x})")
        return plain(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise PdlaError(f"its layout has {len(value)} bytes that cannot be understood") from error


def plain(value: bytes) -> Striping:
    """The striping that a ``struct lov_user_md_v1`` or ``_v3`` has.

    Raises:
        PdlaError, struct.error, UnicodeDecodeError: it is damaged.
    """
    magic, _, _, _, strip, count, _ = _HEAD.unpack_from(value)
    at, pool = _HEAD.size, ""
    if magic == V3:
        pool = _POOL.unpack_from(value, at)[0].split(b"\0")[0].decode()
        at += _POOL.size
    osts = tuple(_OBJECT.unpack_from(value, at + number * _OBJECT.size)[3] for number in range(count))
    if not strip or not osts:
        raise PdlaError(f"its layout has strips of {strip} bytes on {count} OSTs")
    return Striping(strip, osts, pool)
