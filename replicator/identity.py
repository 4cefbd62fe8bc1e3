"""The identity of a file and of its state, by which a changed original or component is recognized."""

from __future__ import annotations

import os
import stat
import time
from contextlib import AbstractContextManager
from pathlib import Path

from pdla.catalog import Catalog, Lease
from pdla.errors import BusyError, PdlaError, UnfitError
from pdla.model import Identity
from pdla.mounts import mount_of
from pdla.replicator.backends.pvfs2 import stamps_writes

ORIGINAL = "original "
"""The prefix of the name of a lease of an original; the inode follows."""

# Kernels stamp files with a coarse clock: a write in the same tick as the previous one does not
# change mtime and ctime. The longest tick of Linux is 10 ms.
TICK_SECONDS = 0.05
COARSE_SECONDS = 2.0  # where file systems store whole seconds: FAT stores even ones
# A server stamps by its own clock, which may be ahead of ours or behind it by so much.
SKEW_SECONDS = 600.0
# Where each client stamps what it writes, the clocks of two of them may differ by so much.
APART_SECONDS = 2.0
# By whose clock a file system of such a type stamps, in the kernel's words: by that of this kernel, or of one server.
# RATIONALE: it is the type that tells. btrfs has no device with a major number, and Lustre has one.
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "f2fs", "zfs", "bcachefs", "jfs", "vfat", "exfat")
OF_A_SERVER = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs")
MOST_LOOKS = 5


def identity_of(path: Path | str | int) -> Identity:
    """The identity of a file (a path or a descriptor).

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)  # noqa: PTH116 (a path of pathlib takes twice as long)
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def stable_identity(descriptor: int, path: Path) -> Identity:
    """The identity of an open regular file that any later change will alter.

    Raises:
        UnfitError: not a regular file.
        BusyError: it is changed again and again.
        PdlaError: changes of the file leave no trace, or its device fails.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UnfitError(f"{path} is not a regular file: only regular files have replicas")
    if not stamps_writes(path):
        raise PdlaError(
            f"{path} is on pvfs2fuse, which does not change the mtime of a written file: a stale replica could not be "
            "recognized (mount OrangeFS with its kernel client)"
        )
    # RATIONALE: a store to mapped memory is stamped when it is the first one since the page was written out.
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        raise PdlaError(f"cannot make sure that {path} is as it seems: {error.strerror}") from error
    found, mount = identity_of(descriptor), mount_of(path)
    for _ in range(MOST_LOOKS):
        before, (wait, old) = found, _patience(found, mount.kind if mount else "")
        if min(abs(time.time() - stamp / 1e9) for stamp in (found.mtime_ns, found.ctime_ns)) > old:
            return found
        time.sleep(wait)
        if (found := identity_of(descriptor)) == before:
            return found
    raise BusyError(f"{path} is changed again and again: run pdla replicate again when nobody writes to it")


def _patience(found: Identity, kind: str) -> tuple[float, float]:
    """After how many seconds without a change any later one has another time.

    And how old the last change must be, by our clock, so that nobody needs to wait.
    """
    # Programs can set the mtime only.
    tick = COARSE_SECONDS if found.ctime_ns % 10**9 == 0 else TICK_SECONDS
    if kind in LOCAL:
        return tick, tick
    return (tick if kind in OF_A_SERVER else tick + APART_SECONDS), tick + SKEW_SECONDS


def leased(catalog: Catalog, descriptor: int, path: Path) -> AbstractContextManager[Lease]:
    """The right to copy an original and to write to it, under any of its paths and on any node.

    Raises:
        BusyError: another process has the lease.
    """
    # RATIONALE: the number of a device differs from node to node. Files with one inode number on
    # two file systems wait for each other.
    return catalog.leases.hold(f"{ORIGINAL}{os.fstat(descriptor).st_ino}", name=str(path))


def is_same(one: Identity, other: Identity) -> bool:
    """Whether the files found at one path at two times, or on two nodes, are one unchanged file.

    File systems without a block device have another device number on every node and after every
    mount.
    """
    return _without_device(one) == _without_device(other)


def _without_device(identity: Identity) -> tuple[int, int, int, int]:
    return identity.inode, identity.size, identity.mtime_ns, identity.ctime_ns


def is_at(path: Path | str, identity: Identity) -> bool:
    """Whether the file at ``path``, where it was found, is still this one and unchanged."""
    try:
        return is_same(identity_of(path), identity)
    except OSError:
        return False
