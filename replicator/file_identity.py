"""Which file it is, by all that is known of it, as replicator/stub/file_identity.c notes and compares it.

A file system gives the number of a removed file to a new one, and a clone, a snapshot or another file system has files
of equal numbers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import google_crc32c
import numpy as np

RECORD = np.dtype(
    [
        ("device", "<u8"),
        ("inode", "<u8"),
        ("birth_ns", "<i8"),
        ("system", "<u4"),
        ("reach", "<u4"),
        ("handle_type", "<i4"),
        ("handle_bytes", "<u4"),
        ("handle", "u1", (128,)),
    ]
)
UNKNOWN, LOCAL, NETWORK, FUSE = range(4)
"""What the numbers of a file system mean elsewhere. Another device number, seen on the node in the same boot at the
same time, is another file system if that is local; of one on a network, each mount may have its own."""

_LOCAL_TYPES = frozenset(b"ext2 ext3 ext4 xfs btrfs tmpfs ramfs overlay zfs f2fs bcachefs jfs vfat exfat".split())
_NUMBERED_ANEW = frozenset(google_crc32c.value(kind) for kind in (b"ext2", b"ext3", b"ext4", b"xfs"))
"""File systems on which a number has one file at a time, and each of its files another generation."""
_NUMBERS = ("device", "inode", "birth_ns", "system", "reach", "handle_type")
_AT_FDCWD, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = -100, 0x400, 0x1000
_STATX_WANTED, _STATX_BIRTH, _STATX_MOUNT = 0x7FF | 0x800 | 0x1000, 0x800, 0x1000
_STATX_BYTES, _HANDLE_BYTES = 256, 128
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class FileIdentity:
    """What tells a file from all others; 0 or empty where the file system does not say it.

    ``system`` is a checksum of the type of the file system and, of one on a network, of its source.
    """

    device: int
    inode: int
    birth_ns: int = 0
    system: int = 0
    reach: int = UNKNOWN
    handle_type: int = 0
    handle: bytes = b""

    def agrees(self, other: FileIdentity) -> bool:
        """Whether both can be identities of one file, noted on any nodes."""
        if self.inode != other.inode or not _equal_if_known(self.birth_ns, other.birth_ns):
            return False
        if self.handle and other.handle and self._whole_handle != other._whole_handle:
            return False
        if not _equal_if_known(self.reach, other.reach):
            return False
        return not self._both(other, LOCAL) or self.system == other.system

    def was_replaced_by(self, other: FileIdentity) -> bool:
        """Whether the other file, found in the same boot, has the number of this one, which therefore is gone."""
        return (
            (self.device, self.inode, self.system) == (other.device, other.inode, other.system)
            and self.system in _NUMBERED_ANEW
            and b"" not in (self.handle, other.handle)
            and (self.handle_type, len(self.handle)) == (other.handle_type, len(other.handle))
            and self.handle != other.handle
        )

    @property
    def _whole_handle(self) -> tuple[int, bytes]:
        return self.handle_type, self.handle

    def _both(self, other: FileIdentity, reach: int) -> bool:
        return self.reach == other.reach == reach

    def _of_one_network(self, other: FileIdentity) -> bool:
        """Whether mounts of one file system may have both."""
        told = bool(self.handle and other.handle) or bool(self.birth_ns and other.birth_ns)
        return told and self.system == other.system and (self._both(other, NETWORK) or self._both(other, FUSE))


class Which(Enum):
    """Whether a file that was found is the noted one; "may be": all that is known is equal, and does not suffice."""

    THIS = "this"
    OTHER = "other"
    MAY_BE = "may be"


def compare(noted: FileIdentity, noted_path: Path, found: FileIdentity, path: Path, *, this_boot: bool) -> Which:
    """Whether the file found at ``path`` is the noted one, which was at ``noted_path``.

    ``this_boot``: it was noted on this node since it was started, so its device number can be compared.
    """
    if not noted.agrees(found):
        return Which.OTHER
    # RATIONALE: after a restart of the node, or on another one, a device number says nothing by itself.
    if noted.device == found.device and (this_boot or (noted.handle and found.handle)):
        return Which.THIS
    # A clone or a snapshot, mounted beside the file system.
    if this_boot and noted.reach == found.reach == LOCAL and _is_mounted(noted.device):
        return Which.OTHER
    return Which.THIS if noted_path == path or noted._of_one_network(found) else Which.MAY_BE


def identify(file: Path | int) -> FileIdentity:
    """The identity of a file, given by its path or an open descriptor.

    Raises:
        OSError: there is no such file.
    """
    at, name, flags = (file, b"", _AT_EMPTY_PATH) if isinstance(file, int) else (_AT_FDCWD, os.fsencode(file), 0)
    found = (ctypes.c_uint8 * _STATX_BYTES)()
    if _libc.statx(at, name, flags, _STATX_WANTED, found) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(file))
    field = _fields(bytes(found))
    mask, birth = field(0, 4), field(0x50, 8) * 10**9 + field(0x58, 4)
    system, reach = _system(field(0x90, 8)) if mask & _STATX_MOUNT else (0, UNKNOWN)
    kind, handle = (0, b"") if reach == FUSE else _handle(at, name, flags or _AT_SYMLINK_FOLLOW)
    device = os.makedev(field(0x88, 4), field(0x8C, 4))
    return FileIdentity(device, field(0x20, 8), birth if mask & _STATX_BIRTH else 0, system, reach, kind, handle)


def read_identity(row: np.void) -> FileIdentity:
    """The identity in a record of a journal."""
    numbers = {name: int(row[name]) for name in _NUMBERS}
    return FileIdentity(**numbers, handle=row["handle"].tobytes()[: int(row["handle_bytes"])])


def put_identity(row: np.void, identity: FileIdentity) -> None:
    """Write an identity into a record of a journal, as the library does."""
    for name in _NUMBERS:
        row[name] = getattr(identity, name)
    row["handle_bytes"] = len(identity.handle)
    row["handle"] = np.frombuffer(identity.handle.ljust(_HANDLE_BYTES, b"\0"), dtype=np.uint8)


def _equal_if_known(one: int, other: int) -> bool:
    return 0 in (one, other) or one == other


def _fields(image: bytes) -> Callable[[int, int], int]:
    """Reads (place, size); the seconds of a birth may be negative."""
    return lambda at, size: int.from_bytes(image[at : at + size], "little", signed=at == 0x50)


def _handle(at: int, name: bytes, flags: int) -> tuple[int, bytes]:
    """The type and the bytes of the file handle; the bytes are empty if the file system has none."""
    handle = (ctypes.c_uint8 * (8 + _HANDLE_BYTES))()
    size, kind = (ctypes.c_int32.from_buffer(handle, place) for place in (0, 4))
    size.value = _HANDLE_BYTES
    mount = ctypes.c_int()
    if _libc.name_to_handle_at(at, name, handle, ctypes.byref(mount), flags) != 0:
        return 0, b""
    return kind.value, bytes(handle)[8 : 8 + size.value]


def _system(mount: int) -> tuple[int, int]:
    """The checksum and the reach of the file system of a mount, by its number."""
    for number, _, kind, source in _mounts():
        if number == mount:
            reach = LOCAL if kind in _LOCAL_TYPES else FUSE if kind.startswith((b"fuse", b"virtiofs")) else NETWORK
            # RATIONALE: a local file system may be mounted from another device the next time.
            return google_crc32c.value(kind if reach == LOCAL else kind + source), reach
    return 0, UNKNOWN


def _is_mounted(device: int) -> bool:
    return any(found == device for _, found, *_ in _mounts())


def _mounts() -> Iterator[tuple[int, int, bytes, bytes]]:
    """(number, device, type, source) of each mount, the texts as the kernel escapes them."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, after = line.split(b" - ", 1)
        number, _, device, *_ = before.split(b" ")
        kind, source, *_ = after.split(b" ")
        yield int(number), os.makedev(*map(int, device.split(b":"))), kind, source
