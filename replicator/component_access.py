"""Give a component the access rights of its original."""

from __future__ import annotations

import errno
import os
import stat

_ACL = "system.posix_acl_access"
_WITHOUT_ACL = (errno.ENODATA, errno.ENOTSUP)


def follow_owner(source: int, file: int) -> None:
    """Give ``file`` the owner, mode and POSIX access control list of ``source``.

    If the owner cannot be changed, or the file system has no such lists, only the file's owner gets
    access.
    """
    original, component = os.fstat(source), os.fstat(file)
    mode = stat.S_IMODE(original.st_mode) & 0o666
    entries = _entries(source)
    if (original.st_uid, original.st_gid) != (component.st_uid, component.st_gid):
        try:
            os.fchown(file, original.st_uid, original.st_gid)
        except PermissionError:
            mode, entries = mode & 0o600, None
    # An inherited list is removed first. With a list of the file's own, the mode's middle bits no
    # longer mean the group: nobody else has access until everything is set.
    os.fchmod(file, mode & 0o600)
    try:
        if entries is not None:
            os.setxattr(file, _ACL, entries)
            return
        if _entries(file) is not None:
            os.removexattr(file, _ACL)
    except OSError:
        return
    os.fchmod(file, mode)


def _entries(file: int) -> bytes | None:
    try:
        return os.getxattr(file, _ACL)
    except OSError as error:
        if error.errno in _WITHOUT_ACL:
            return None
        raise
