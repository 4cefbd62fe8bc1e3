"""A disk whose requests can be counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.loop_devices import attached, file_system, loop_obstacle
from benchmarks.storage import forget
from tests.support.mpi import unavailable


@dataclass
class Disk:
    """A file system on a device of its own, whose bytes are in the file ``image``."""

    directory: Path
    image: Path

    def drop(self, *files: Path) -> None:
        """Drop these files from memory."""
        for file in files:
            forget(file)

    def reads(self) -> int:
        """Read requests that its device has served in all (Documentation/block/stat.rst)."""
        device = self.directory.stat().st_dev
        return int(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()[0])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """An empty disk."""
    if why := loop_obstacle():
        unavailable(why)
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    with attached(image) as loop, file_system(loop, tmp_path / "disk") as mount:
        yield Disk(mount, image)
