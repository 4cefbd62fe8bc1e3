"""Loop devices, and file systems on them; root only. Whatever ends a block, its devices and mounts are removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READ_AHEAD = 1280  # KiB
BUSY_SECONDS = 10.0
"""How long a file system may stay in use by processes that are being ended."""


def loop_obstacle() -> str:
    """Why there can be no loop devices here; "" if there can."""
    if os.geteuid() != 0:
        return "disks on loop devices need root"
    if not Path("/dev/loop-control").exists():
        return "disks need loop devices (there is no /dev/loop-control)"
    if missing := [tool for tool in ("losetup", "mkfs.ext4") if shutil.which(tool) is None]:
        return f"disks on loop devices need {' and '.join(missing)}, which the PATH does not have"
    return ""


@contextmanager
def attached(image: Path) -> Iterator[Path]:
    """A device on a file.

    A signal at any moment leaves nothing: the block looks for what it must remove instead of
    remembering it.
    """
    try:
        loop = Path(said("losetup", "--find", "--show", "--direct-io=on", image))
        queue = Path("/sys/block") / loop.name / "queue"
        (queue / "read_ahead_kb").write_text(str(READ_AHEAD))
        (queue / "scheduler").write_text("none")
        yield loop
    finally:
        for loop, file in attachments():
            if file == image:
                said("losetup", "--detach", loop)


@contextmanager
def file_system(device: Path, mount: Path, made_with: Sequence[str] = (), options: str = "noatime") -> Iterator[Path]:
    """A new file system on a device, mounted in a new directory; ``made_with`` are further arguments of mkfs.ext4."""
    try:
        extended = ("-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
        said("mkfs.ext4", "-q", "-F", "-b", "4096", *extended, *made_with, device)
        mount.mkdir()
        said("mount", "-o", options, device, mount)
        yield mount
    finally:
        if mount.is_mount():
            unmount(mount)
        if mount.exists():
            mount.rmdir()


def attachments() -> list[tuple[Path, Path]]:
    """All loop devices, each with its file, which may be deleted."""
    found = Path("/sys/block").glob("loop*/loop/backing_file")
    return [(Path("/dev") / one.parents[1].name, Path(one.read_text().removesuffix("\n"))) for one in found]


def unmount(mount: Path) -> None:
    """Unmount as soon as nobody uses the file system any more."""
    deadline = time.monotonic() + BUSY_SECONDS
    while subprocess.run(["umount", mount], stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > deadline:
            said("umount", "--lazy", mount)
            return
        time.sleep(0.1)


def said(*command: str | Path) -> str:
    """The output of a command that must succeed.

    Raises:
        RuntimeError: the command failed; it has printed the reason.
    """
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}")
    return done.stdout.strip()
