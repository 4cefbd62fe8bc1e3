"""How much of the files of another tool has been read, for progress bars."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Progress = Callable[[str, int, int], None]
"""Called with the name of the work, the amount done, and the total amount."""

BUFFER = 1 << 17
"""Bytes that are read at a time, after which the progress is told."""


class Reading:
    """Opens files so that ``progress`` is called with the bytes of all of them that have been read."""

    def __init__(self, files: Iterable[Path], progress: Progress | None) -> None:
        self._progress, self._done = progress, 0
        self._total = sum(file.stat().st_size for file in files)

    def open(self, file: Path) -> BinaryIO:
        """The file's bytes.

        Raises:
            OSError: the file cannot be read.
        """
        return io.BufferedReader(_Told(file, self._tell), BUFFER)

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress and self._total:
            self._progress("reading", self._done, self._total)


class _Told(io.FileIO):
    def __init__(self, file: Path, tell: Callable[[int], None]) -> None:
        super().__init__(file)
        self._tell = tell

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = super().readinto(buffer)
        self._tell(count)
        return count
