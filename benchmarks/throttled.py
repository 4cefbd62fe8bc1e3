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
def throttled_disk(directory: Path, name: str, size: int, limits: Limits) -> Iterator[Path]:
    """Where a file system is mounted on an image of ``size`` bytes in ``directory``; all is gone after the block.

    A signal at any moment leaves nothing: what is to be removed is looked for, not remembered.
    """
    if why := obstacle():
        sys.exit(why)
    image, mount = directory / f"{name}.img", directory / name
    try:
        with image.open("wb") as file:
            file.truncate(size)
        loop = _said("losetup", "--find", "--show", "--direct-io=on", image)
        _said("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", loop)
        mount.mkdir()
        _said("mount", "-o", "noatime", loop, mount)
        block = Path("/sys/block") / Path(loop).name
        (block / "queue/read_ahead_kb").write_text(str(READ_AHEAD))
        (block / "queue/scheduler").write_text("none")
        _limit((block / "dev").read_text().strip(), limits)
        yield mount
    finally:
        _remove(image, mount)


def served(mount: Path) -> int:
    """Requests that have reached the disk mounted at ``mount``, as the kernel counts them."""
    device = mount.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = (line.split() for line in (BLKIO / "blkio.throttle.io_serviced").read_text().splitlines())
    return sum(int(line[2]) for line in lines if line[0] == number and line[1] in ("Read", "Write"))


def _remove(image: Path, mount: Path) -> None:
    """What there is of a disk."""
    if mount.is_mount():
        _unmount(mount)
    for loop in _said("losetup", "--noheadings", "--output", "NAME", "--associated", image).split():
        _limit((Path("/sys/block") / Path(loop).name / "dev").read_text().strip(), Limits(0, 0))
        _said("losetup", "--detach", loop)
    if mount.exists():
        mount.rmdir()
    image.unlink(missing_ok=True)


def _unmount(mount: Path) -> None:
    """As soon as nobody uses it any more."""
    deadline = time.monotonic() + BUSY_SECONDS
    while subprocess.run(["umount", mount], stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > deadline:
            _said("umount", "--lazy", mount)
            return
        time.sleep(0.1)


def _limit(number: str, limits: Limits) -> None:
    """Set a device's rules; 0 removes them."""
    for op in ("read", "write"):
        for unit, limit in zip(("iops", "bps"), limits, strict=True):
            (BLKIO / f"blkio.throttle.{op}_{unit}_device").write_text(f"{number} {limit}")


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
