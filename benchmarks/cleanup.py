"""A bench's directory, and the removal of what killed benches left in theirs: files in memory, mounts, loop devices.

A directory is in use while somebody holds the lock of the file in it. The kernel releases the lock
of a dead process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.loop_devices import attachments, said, unmount
from benchmarks.throttled import NONE, limit, obstacle

PREFIX = "pdla-bench-"
LOCK = "lock"


@contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """A new directory in ``parent`` for the block; first the remains of dead benches anywhere are removed."""
    remove_leftovers(parent)
    # The directory gets the name that others look for only after it is locked.
    unnamed = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    lock = _lock(unnamed, os.O_CREAT)
    directory = unnamed.rename(parent / unnamed.name.removeprefix("."))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
        os.close(lock)


def remove_leftovers(parent: Path) -> None:
    """Remove remains in ``parent``, and those anywhere that still have mounts or loop devices; print their names."""
    in_use = [*(mount for _, mount in _mounts()), *(file for _, file in attachments())]
    elsewhere = [one for path in in_use for one in path.parents if one.name.startswith(PREFIX)]
    for directory in sorted({*parent.glob(f"{PREFIX}*"), *elsewhere}):
        try:
            lock = _lock(directory)
        except OSError:
            continue  # in use, or another user's
        sys.stderr.write(f"removing the remains of a killed bench in {directory}\n")
        _take_down(directory)
        shutil.rmtree(directory)
        os.close(lock)


def _lock(directory: Path, flags: int = 0) -> int:
    """Take a directory's lock, until the descriptor is closed. OSError: there is no lock, or another process has it."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _take_down(directory: Path) -> None:
    """Remove what is mounted or attached in it: file systems on loop devices, the devices, then their files' mounts."""
    own = [(device, mount) for device, mount in reversed(_mounts()) if directory in mount.parents]
    loops = [device for device, file in attachments() if directory in file.parents]
    for device in loops if not obstacle() else ():
        limit(device, NONE)
    for _, mount in (one for one in own if Path(one[0]) in loops):
        unmount(mount)
    for device in loops:
        said("losetup", "--detach", device)
    for _, mount in (one for one in own if Path(one[0]) not in loops):
        unmount(mount)


def _mounts() -> list[tuple[str, Path]]:
    """The mounted file systems and their mount points, in the order of mounting."""
    fields = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [(device, Path(mount.encode().decode("unicode_escape"))) for device, mount, *_ in fields]
