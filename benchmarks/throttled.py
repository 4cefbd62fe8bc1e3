"""Storage that is really slow, and whose limits are known: file systems on loop devices that the kernel throttles.

Needs root and the blkio controller of cgroup v1. The rules are in the root group: so they hold for O_DIRECT, buffered
reads and writeback alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BLKIO = Path("/sys/fs/cgroup/blkio")
READ_AHEAD = 1280  # KiB
BUSY_SECONDS = 10.0
"""How long a file system may stay in use by processes that are being ended."""


class Limits(NamedTuple):
    """What a disk serves at most, reads and writes each."""

    requests_per_second: int
    bytes_per_second: int


HDD = Limits(120, 50_000_000)
SSD = Limits(2000, 150_000_000)
NONE = Limits(0, 0)


def obstacle() -> str:
    """Why there can be no throttled disks here; "" if there can."""
    if os.geteuid() != 0:
        return "throttled disks need root"
    if not (BLKIO / "blkio.throttle.read_iops_device").exists():
        return f"throttled disks need the blkio controller of cgroup v1 at {BLKIO}"
    if not Path("/dev/loop-control").exists():
        return "throttled disks need loop devices (there is no /dev/loop-control)"
    return ""


@contextmanager
def loop_device(directory: Path, name: str, size: int) -> Iterator[Path]:
    """A device on an image of ``size`` bytes in ``directory``, without limits yet; all is gone after the block.

    A signal at any moment leaves nothing: what is to be removed is looked for, not remembered.
    """
    if why := obstacle():
        sys.exit(why)
    image = directory / f"{name}.img"
    try:
        with image.open("wb") as file:
            file.truncate(size)
        loop = Path(_said("losetup", "--find", "--show", "--direct-io=on", image))
        (_block(loop) / "queue/read_ahead_kb").write_text(str(READ_AHEAD))
        (_block(loop) / "queue/scheduler").write_text("none")
        yield loop
    finally:
        for found in _said("losetup", "--noheadings", "--output", "NAME", "--associated", image).split():
            limit(Path(found), NONE)
            _said("losetup", "--detach", found)
        image.unlink(missing_ok=True)


@contextmanager
def throttled_disk(directory: Path, name: str, size: int, limits: Limits) -> Iterator[Path]:
    """Where a file system is mounted on an image of ``size`` bytes in ``directory``; all is gone after the block."""
    mount = directory / name
    with loop_device(directory, name, size) as loop:
        try:
            _said("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", loop)
            mount.mkdir()
            _said("mount", "-o", "noatime", loop, mount)
            limit(loop, limits)
            yield mount
        finally:
            if mount.is_mount():
                _unmount(mount)
            if mount.exists():
                mount.rmdir()


def limit(disk: Path, limits: Limits) -> None:
    """Set the rules of a disk, a device or where one is mounted."""
    number = _number(disk)
    for op in ("read", "write"):
        for unit, most in zip(("iops", "bps"), limits, strict=True):
            (BLKIO / f"blkio.throttle.{op}_{unit}_device").write_text(f"{number} {most}")


def served(disk: Path) -> int:
    """Requests that a disk, a device or where one is mounted, has completed, as the kernel counts them.

    Unlike blkio.throttle.io_serviced, which counts what is merged, such as pages that are written, one by one.
    """
    told = Path(f"/sys/dev/block/{_number(disk)}/stat").read_text().split()  # Documentation/block/stat.rst
    return int(told[0]) + int(told[4])


def _unmount(mount: Path) -> None:
    """As soon as nobody uses it any more."""
    deadline = time.monotonic() + BUSY_SECONDS
    while subprocess.run(["umount", mount], stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > deadline:
            _said("umount", "--lazy", mount)
            return
        time.sleep(0.1)


def _number(disk: Path) -> str:
    found = disk.stat()
    device = found.st_rdev if disk.is_block_device() else found.st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def _block(loop: Path) -> Path:
    return Path("/sys/block") / loop.name


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
