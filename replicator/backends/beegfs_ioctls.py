"""The ioctls of BeeGFS's client: how a file is striped, and a new file on chosen targets.

Every structure and number is from client_module/include/uapi/beegfs_client.h of BeeGFS 8.3. What
the client and the metadata server make of them: IoctlHelper.c, FhgfsOpsIoctl.c (client_module),
``DirInode::createFileStripePatternUnlocked`` (meta) and ``TargetCapacityPools`` (common).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from pdla.errors import PdlaError

RAID0, BUDDY_MIRROR = 1, 3  # BEEGFS_STRIPEPATTERN_RAID0, BEEGFS_STRIPEPATTERN_BUDDYMIRROR
BUDDY_MIRRORED = 2  # ENTRYINFO_FEATURE_BUDDYMIRRORED
_DT_REG = 8
_ID = 27  # BEEGFS_IOCTL_ENTRYID_MAXLEN and a NUL
_ALIAS = 256  # BEEGFS_IOCTL_NODEALIAS_BUFLEN
_TEST = b"_FhGFS"  # BEEGFS_IOCTL_TEST_STRING, the BEEGFS_IOCTL_TEST_BUFLEN bytes that every client fills


class _StripeInfo(ctypes.Structure):
    """BeegfsIoctl_GetStripeInfo_Arg."""

    _fields_ = (("pattern", ctypes.c_uint), ("chunk", ctypes.c_uint), ("targets", ctypes.c_uint16))


class _StripeTarget(ctypes.Structure):
    """BeegfsIoctl_GetStripeTargetV2_Arg."""

    _fields_ = (
        ("index", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        *((name, ctypes.c_uint32) for name in ("primary", "secondary", "primary_node", "secondary_node")),
        ("primary_alias", ctypes.c_char * _ALIAS),
        ("secondary_alias", ctypes.c_char * _ALIAS),
    )


class _EntryInfo(ctypes.Structure):
    """BeegfsIoctl_GetEntryInfo_Arg."""

    _fields_ = (
        ("owner", ctypes.c_uint32),
        ("parent", ctypes.c_char * _ID),
        ("entry", ctypes.c_char * _ID),
        ("kind", ctypes.c_int),
        ("features", ctypes.c_int),
    )


class _MakeFile(ctypes.Structure):
    """BeegfsIoctl_MkFileV3_Arg."""

    _fields_ = (
        ("owner", ctypes.c_uint32),
        ("grandparent", ctypes.c_char_p),
        ("grandparent_length", ctypes.c_int),
        ("parent", ctypes.c_char_p),
        ("parent_length", ctypes.c_int),
        ("parent_mirrored", ctypes.c_int),
        ("parent_name", ctypes.c_char_p),
        ("parent_name_length", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("name_length", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("symlink", ctypes.c_char_p),
        ("symlink_length", ctypes.c_int),
        ("mode", ctypes.c_int),
        ("user", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("targets", ctypes.c_int),
        ("preferred", ctypes.POINTER(ctypes.c_uint16)),
        ("preferred_length", ctypes.c_int),
        ("pool", ctypes.c_uint16),
    )


def _number(direction: int, number: int, size: int) -> int:
    """As _IOR (2) and _IOW (1) of asm-generic/ioctl.h; BEEGFS_IOCTYPE_ID is 'f'."""
    return direction << 30 | size << 16 | ord("f") << 8 | number


TEST_IS_BEEGFS = _number(2, 22, len(_TEST))
GET_STRIPEINFO = _number(2, 25, ctypes.sizeof(_StripeInfo))
GET_STRIPETARGET_V2 = _number(2, 26, ctypes.sizeof(_StripeTarget))
CREATE_FILE_V3 = _number(1, 29, ctypes.sizeof(_MakeFile))
GETENTRYINFO = _number(2, 31, ctypes.sizeof(_EntryInfo))


class Striping(NamedTuple):
    """``chunk`` bytes on each of ``targets`` in turn."""

    chunk: int
    targets: tuple[int, ...]

    def __str__(self) -> str:
        """The striping in one line."""
        return f"chunk={self.chunk} targets={','.join(map(str, self.targets))}"


def is_beegfs(descriptor: int) -> bool:
    """Whether a file or directory is on BeeGFS.

    Raises:
        OSError: its file system cannot be asked.
    """
    buffer = bytearray(16)
    try:
        fcntl.ioctl(descriptor, TEST_IS_BEEGFS, buffer)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise
    return buffer.startswith(_TEST)


def striping_of(descriptor: int) -> Striping:
    """How an open file is striped.

    Raises:
        OSError: the storage cannot be asked.
        PdlaError: the file is mirrored.
    """
    info = _StripeInfo()
    fcntl.ioctl(descriptor, GET_STRIPEINFO, info)
    if info.pattern != RAID0:
        raise PdlaError(f"its pattern is {info.pattern}, not RAID0 (1): buddy mirrors have no targets to choose")
    targets = []
    for index in range(info.targets):
        one = _StripeTarget(index=index)
        fcntl.ioctl(descriptor, GET_STRIPETARGET_V2, one)
        targets.append(int(one.target))
    return Striping(int(info.chunk), tuple(targets))


def chunks_of(descriptor: int) -> tuple[int, int]:
    """The bytes of a chunk of an open file, and over how many targets, or pairs of mirrored targets, chunks are dealt.

    Raises:
        OSError: the storage cannot be asked.
        PdlaError: the file has another pattern.
    """
    info = _StripeInfo()
    fcntl.ioctl(descriptor, GET_STRIPEINFO, info)
    if info.pattern not in (RAID0, BUDDY_MIRROR) or not info.chunk or not info.targets:
        raise PdlaError(f"its pattern {info.pattern} is not known, with {info.targets} targets")
    return int(info.chunk), int(info.targets)


def make_file(directory: int, directory_name: str, name: str, targets: Sequence[int], pool: int = 0) -> None:
    """Make an empty file, accessible only to its owner, in an open directory, preferably on these targets.

    The chunk size is the directory's, and so is the largest number of targets. The targets are taken in
    turn from one that the server draws. ``pool``: a storage pool; 0: the directory's.

    Raises:
        OSError: the file cannot be made.
    """
    entry = _EntryInfo()
    fcntl.ioctl(directory, GETENTRYINFO, entry)
    chosen = (ctypes.c_uint16 * (len(targets) + 1))(*targets, 0)
    texts = [text.encode() for text in (directory_name, name)]
    wanted = _MakeFile(
        owner=entry.owner,
        grandparent=entry.parent,
        grandparent_length=len(entry.parent) + 1,
        parent=entry.entry,
        parent_length=len(entry.entry) + 1,
        parent_mirrored=int(bool(entry.features & BUDDY_MIRRORED)),
        parent_name=texts[0],
        parent_name_length=len(texts[0]) + 1,
        name=texts[1],
        name_length=len(texts[1]) + 1,
        kind=_DT_REG,
        mode=stat.S_IFREG | 0o600,
        user=os.geteuid(),
        group=os.getegid(),
        targets=len(targets),
        preferred=ctypes.cast(chosen, ctypes.POINTER(ctypes.c_uint16)),
        preferred_length=ctypes.sizeof(chosen),
        pool=pool,
    )
    fcntl.ioctl(directory, CREATE_FILE_V3, wanted)
