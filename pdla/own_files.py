"""Directories and files of this user in places that others can write, as in replicator/stub/own_files.h.

What is not this user's is not used: another user may have made it, and may replace what is in it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FOREIGN = "belongs to another user, or others can write to it"
_NODE_PREFIX, _NODE_SUFFIX = "pdla-", ".node"


def others_can_write(found: os.stat_result) -> bool:
    """Whether other users can write to a directory or file, whatever its directory lets them do."""
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def open_directory(path: Path) -> int:
    """A descriptor of a directory of this user.

    Raises:
        OSError: it cannot be opened.
        PermissionError: likewise, or it is not this user's, is a link, or others can write to it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise _foreign(path) from None
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and not others_can_write(found):
        return descriptor
    os.close(descriptor)
    raise _foreign(path)


def is_node(directory: Path) -> bool:
    """Whether a directory has the name of a node's on an SSD server, and so is to be this user's."""
    return directory.name.startswith(_NODE_PREFIX) and directory.suffix == _NODE_SUFFIX


def open_cache(path: Path, inode: int = 0) -> int:
    """A descriptor, for reading, of a cache file that a process of this user made; ``inode`` 0: any of that name.

    Raises:
        OSError: it cannot be opened.
        PermissionError: likewise, or it, or the directory of its node, is not this user's, or it is another file.
    """
    node = open_directory(path.parent) if is_node(path.parent) else None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path if node is None else path.name, flags, dir_fd=node)
    except OSError as error:
        raise (_foreign(path) if error.errno == errno.ELOOP else error) from None
    finally:
        if node is not None:
            os.close(node)
    found = os.fstat(descriptor)
    is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not others_can_write(found)
    if is_own and found.st_nlink == 1 and inode in (0, found.st_ino):
        return descriptor
    os.close(descriptor)
    raise _foreign(path)


def _foreign(path: Path) -> PermissionError:
    return PermissionError(errno.EPERM, f"it {FOREIGN}", str(path))
