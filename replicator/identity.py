"""The identity of a file and of its state, by which a changed original or component is recognized."""

from __future__ import annotations

import os
import stat
import time
from contextlib import AbstractContextManager
from pathlib import Path

from pdla.catalog import Catalog, Lease
from pdla.errors import PdlaError, UnfitError
from pdla.model import Identity
from pdla.replicator.backends.pvfs2 import stamps_writes

ORIGINAL = "original "
"""The prefix of the name of a lease of an original; the inode follows."""

# Kernels stamp files with a coarse clock: a write in the same tick as the previous one does not
# change mtime and ctime.
TICK_SECONDS = 0.05
COARSE_SECONDS = 1.0  # the resolution of file systems that store whole seconds
# A server stamps by its own clock, which may be ahead of ours or behind it by so much.
SKEW_SECONDS = 600.0


def identity_of(path: Path | str | int) -> Identity:
    """The identity of a file (a path or a descriptor).

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)  # noqa: PTH116 (a path of pathlib takes twice as long)
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def stable_identity(descriptor: int, path: Path) -> Identity:
    """The identity of an open regular file that any later change will alter: waits until the last change is a tick old.

    Where a server may have stamped the file, it also waits if only the server's clock says that the change is old.

    Raises:
        UnfitError: not a regular file.
        PdlaError: changes of the file leave no trace.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UnfitError(f"{path} is not a regular file: only regular files have replicas")
    if not stamps_writes(path):
        raise PdlaError(
            f"{path} is on pvfs2fuse, which does not change the mtime of a written file: a stale replica could not be "
            "recognized (mount OrangeFS with its kernel client)"
        )
    identity = identity_of(descriptor)
    coarse = identity.mtime_ns % 10**9 == identity.ctime_ns % 10**9 == 0
    tick = COARSE_SECONDS if coarse else TICK_SECONDS
    # Network file systems have no block device, and neither has the major number of one.
    skew = SKEW_SECONDS if os.major(identity.device) == 0 else 0.0
    if abs(time.time() - max(identity.mtime_ns, identity.ctime_ns) / 1e9) < tick + skew:
        time.sleep(tick)
        identity = identity_of(descriptor)
    return identity


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
