"""Storage that is really slow, and whose limits are known: file systems on loop devices that the kernel throttles.

Needs root and the blkio controller of cgroup v1. The rules are in the root group: so they hold for O_DIRECT, buffered
reads and writeback alike.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

BLKIO = Path("/sys/fs/cgroup/blkio")
READ_AHEAD = 1280  # KiB


class Limits(NamedTuple):
    """What a disk serves at most, reads and writes each."""

    requests_per_second: int
    bytes_per_second: int


HDD = Limits(120, 50_000_000)
SSD = Limits(2000, 150_000_000)


@contextmanager
def throttled_disk(directory: Path, name: str, size: int, limits: Limits) -> Iterator[Path]:
    """Where a file system is mounted on an image of ``size`` bytes in ``directory``; all is gone after the block."""
    if not (BLKIO / "blkio.throttle.read_iops_device").exists():
        sys.exit(f"throttled disks need root and the blkio controller of cgroup v1 at {BLKIO}")
    with ExitStack() as stack:
        image, mount = directory / f"{name}.img", directory / name
        stack.callback(image.unlink, missing_ok=True)
        with image.open("wb") as file:
            file.truncate(size)
        loop = _said("losetup", "--find", "--show", "--direct-io=on", image)
        stack.callback(_said, "losetup", "--detach", loop)
        _said("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", loop)
        mount.mkdir()
        stack.callback(mount.rmdir)
        _said("mount", "-o", "noatime", loop, mount)
        stack.callback(_said, "umount", mount)
        block = Path("/sys/block") / Path(loop).name
        (block / "queue/read_ahead_kb").write_text(str(READ_AHEAD))
        (block / "queue/scheduler").write_text("none")
        number = (block / "dev").read_text().strip()
        stack.callback(_limit, number, Limits(0, 0))
        _limit(number, limits)
        yield mount


def _limit(number: str, limits: Limits) -> None:
    """Set a device's rules; 0 removes them."""
    for op in ("read", "write"):
        for unit, limit in zip(("iops", "bps"), limits, strict=True):
            (BLKIO / f"blkio.throttle.{op}_{unit}_device").write_text(f"{number} {limit}")


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
