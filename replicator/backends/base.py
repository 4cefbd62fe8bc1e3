"""What a storage back end does: make the component files of a replica where its layout says."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pdla.model import Layout, Pool


class Backend(ABC):
    """A pool's storage. A back end passes ``tests/backend_suite.py`` and is named in ``backends.BACKENDS``.

    Components are files that every client sees under one path: finishing and removing them is the same everywhere.
    """

    name: ClassVar[str]

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @abstractmethod
    def check(self, layout: Layout) -> None:
        """Required. Nothing, if this storage is there and can hold a replica in this layout.

        Raises:
            ConfigError: it cannot; the message says what is missing.
        """

    @abstractmethod
    def free(self) -> list[int]:
        """Required. Bytes that can still be written, per server."""

    @abstractmethod
    def paths(self, name: str, layout: Layout) -> list[Path]:
        """Required. The absolute paths of the components of the replica ``name``, in the order of the striping rule.

        They are the same whenever it is asked, and no other name has one of them.
        """

    @abstractmethod
    def create(self, path: Path, size: int) -> int:
        """Required. Make the file ``temporary(path)``, only for its owner, with its space reserved.

        Returns:
            A descriptor for reading and writing.

        Raises:
            PdlaError: there is no space or no right to it; no file is left.
        """


def temporary(path: Path) -> Path:
    """The name of a component while it is being written."""
    return path.with_name(path.name + ".tmp")


def commit(paths: Sequence[Path]) -> None:
    """Give complete and durable components their final names, durably.

    Raises:
        OSError: the file system refuses.
    """
    for path in paths:
        temporary(path).rename(path)
    for directory in {path.parent for path in paths}:
        sync_directory(directory)


def delete(path: Path) -> int:
    """Remove a component, finished or temporary, and say how many bytes it had; nothing happens where there is none."""
    removed = 0
    for file in (temporary(path), path):
        try:
            removed += file.stat().st_size
            file.unlink()
        except FileNotFoundError:
            continue
    return removed


def sync_directory(path: Path) -> None:
    """Make what happened to the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
