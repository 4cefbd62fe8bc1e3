"""The mounts that this process sees, from /proc/self/mountinfo (proc(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# fmt: off
LOCAL = frozenset([
    "ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs", "jfs", "nilfs2", "reiserfs", "tmpfs",
    "ramfs", "rootfs", "overlay", "erofs", "squashfs", "vfat", "exfat", "ntfs3", "iso9660", "udf", "proc", "sysfs",
    "cgroup", "cgroup2", "cpuset", "devtmpfs", "devpts", "mqueue", "debugfs", "tracefs", "configfs", "fusectl",
    "nsfs", "autofs", "hugetlbfs", "securityfs", "selinuxfs", "binfmt_misc", "efivarfs", "pstore", "bpf",
    "rpc_pipefs",
])
# fmt: on
"""The types of file systems that wait for no server, as in replicator/stub/storage.c. All others may."""


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    point: its mount point.
    kind: its type in the kernel's words, such as ``ext4``, ``nfs4`` or ``fuse.sshfs``.
    source: its device or server, in the words of the file system.
    options: the options of the mount and of the file system, such as ``rw`` or ``acregmax=60``.
    """

    point: Path
    kind: str
    source: str
    options: tuple[str, ...] = ()

    def option(self, name: str) -> str | None:
        """The value of an option, "" if it has none; None if it is not set."""
        found = [option.partition("=")[2] for option in self.options if option.partition("=")[0] == name]
        return found[-1] if found else None


def mount_of(path: Path) -> Mount | None:
    """The mount that a path is in; the path need not exist yet."""
    path, best = path.resolve(), None
    for _, mount in _mounts():
        # a later mount hides an earlier one
        if path.is_relative_to(mount.point) and (best is None or len(mount.point.parts) >= len(best.point.parts)):
            best = mount
    return best


def waits_for_no_server() -> bool:
    """Whether all mounted file systems are local."""
    return all(mount.kind in LOCAL for _, mount in _mounts())


def kind_of(device: int) -> str:
    """The type of the mounted file system with this st_dev; "the file system" if none has it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return next((mount.kind for found, mount in _mounts() if found == number), "the file system")


def _mounts() -> Iterator[tuple[str, Mount]]:
    """The device numbers and mounts, in the order in which they were mounted."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, after = line.split(" - ", 1)
        (_, _, device, _, point, options, *_), (kind, source, own) = before.split(" "), after.split(" ")
        both = dict.fromkeys((*_plain(options).split(","), *_plain(own).split(",")))
        yield device, Mount(Path(_plain(point)), kind, _plain(source), tuple(both))


def _plain(field: str) -> str:
    """A field without octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
