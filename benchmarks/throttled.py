"""Slow storage with known limits: file systems on loop devices that the kernel throttles.

This needs root and the blkio controller of cgroup v1. The rules are in the root group, so they hold
for O_DIRECT, buffered reads and writeback alike.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.loop_devices import attached, file_system, loop_obstacle

BLKIO = Path("/sys/fs/cgroup/blkio")


class Limits(NamedTuple):
    """The limits of a disk, for reads and for writes each."""

    requests_per_second: int
    bytes_per_second: int


HDD = Limits(120, 50_000_000)
SSD = Limits(2000, 150_000_000)
NONE = Limits(0, 0)


def obstacle() -> str:
    """Why there can be no throttled disks here; "" if there can."""
    if why := loop_obstacle():
        return why
    if not (BLKIO / "blkio.throttle.read_iops_device").exists():
        return f"throttled disks need the blkio controller of cgroup v1 at {BLKIO}"
    return ""


@contextmanager
def loop_device(directory: Path, name: str, size: int) -> Iterator[Path]:
    """A device on an image of ``size`` bytes in ``directory``, without limits yet; removed after the block."""
    if why := obstacle():
        sys.exit(why)
    image = directory / f"{name}.img"
    try:
        with image.open("wb") as file:
            file.truncate(size)
        with attached(image) as loop:
            try:
                yield loop
            finally:
                limit(loop, NONE)
    finally:
        image.unlink(missing_ok=True)


@contextmanager
def throttled_disk(directory: Path, name: str, size: int, limits: Limits, options: str = "noatime") -> Iterator[Path]:
    """The mount point of a file system on an image of ``size`` bytes in ``directory``; removed after the block."""
    with loop_device(directory, name, size) as loop, file_system(loop, directory / name, (), options) as mount:
        limit(loop, limits)
        yield mount


def limit(disk: Path, limits: Limits) -> None:
    """Set the rules of a disk, given as a device or as a mount point."""
    number = _number(disk)
    for op in ("read", "write"):
        for unit, most in zip(("iops", "bps"), limits, strict=True):
            (BLKIO / f"blkio.throttle.{op}_{unit}_device").write_text(f"{number} {most}")


def served(disk: Path) -> int:
    """Requests that a disk, given as a device or as a mount point, has completed, as the kernel counts them.

    blkio.throttle.io_serviced instead counts merged requests, such as written pages, one by one.
    """
    fields = Path(f"/sys/dev/block/{_number(disk)}/stat").read_text().split()  # Documentation/block/stat.rst
    return int(fields[0]) + int(fields[4])


def _number(disk: Path) -> str:
    found = disk.stat()
    device = found.st_rdev if disk.is_block_device() else found.st_dev
    return f"{os.major(device)}:{os.minor(device)}"
