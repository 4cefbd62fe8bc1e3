"""What is in cache files now, and at what rate it goes home."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdla import config
from pdla.errors import FormatError
from pdla.replicator.cache_sync import newest
from pdla.replicator.journals import Journal, holder, paths_in, read_journal
from pdla.replicator.write_targets import directories_in
from pdla.units import format_bytes

SAMPLE_SECONDS = 0.5
_TRIES = 3


@dataclass(frozen=True)
class CachedFile:
    """An original with bytes in cache files.

    Attributes:
        nodes: where the cache files are.
        files: the number of cache files.
        cached: bytes that processes have written to them; what was written again counts again.
        dirty: bytes of the original that are newer there.
        holder: who brings them home, or has the file open; empty: nobody.
        rate: bytes that came home in a second.
        damaged: a journal cannot be read: there may be more.
    """

    original: Path
    nodes: tuple[str, ...]
    files: int
    cached: int
    dirty: int
    holder: str
    rate: float
    damaged: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "original": str(self.original), "nodes": list(self.nodes)}


def cached_files(map_path: Path | None = None, seconds: float = SAMPLE_SECONDS) -> list[CachedFile]:
    """All originals with bytes in cache files.

    The rate is that of ``seconds``, for which this waits if there are dirty bytes.
    """
    before = {directory: _read(directory) for directory in directories_in(map_path or config.map_path())}
    start = time.monotonic()
    waits = seconds > 0 and any(len(one.waiting) for journals, _ in before.values() for one in _of_caches(journals))
    if waits:
        time.sleep(seconds)
    found = []
    for directory, (journals, damaged) in before.items():
        now = _of_caches(_read(directory)[0]) if waits else _of_caches(journals)
        moved = _moved(_of_caches(journals), now) if waits else 0
        rate = moved / (time.monotonic() - start) if waits else 0.0
        if now:
            found.append(_cached_file(now, holder(directory), rate, damaged))
    return found


def left_in_caches(map_path: Path | None = None) -> list[str]:
    """One sentence for each file whose bytes wait in cache files of ended programs."""
    return [
        f"{format_bytes(one.dirty)} of {one.original} are newer in cache files on {', '.join(one.nodes)} than in the "
        "file (run pdla sync)"
        for one in cached_files(map_path, seconds=0)
        if one.dirty and not one.holder
    ]


def _read(directory: Path) -> tuple[list[Journal], bool]:
    """The journals of a directory, and whether one is damaged. A program may be writing to them, and remove them."""
    journals, damaged = [], False
    for path in paths_in(directory):
        for _ in range(_TRIES):
            try:
                journals.append(read_journal(path))
                break
            except FormatError:
                continue
        else:
            damaged = damaged or path.exists()
    return journals, damaged


def _of_caches(journals: Sequence[Journal]) -> list[Journal]:
    return [journal for journal in journals if journal.cache is not None]


def _moved(before: Sequence[Journal], now: Sequence[Journal]) -> int:
    """The bytes that came home between two looks. A journal that is gone, or is used anew, has no dirty bytes."""
    later = {journal.path: journal for journal in now}
    moved = 0
    for journal in before:
        again = later.get(journal.path)
        whole = again is None or len(again.entries) < len(journal.entries)
        gone = journal.entries[journal.home : None if whole or again is None else again.home]
        moved += int((gone[:, 2] - gone[:, 1]).sum())
    return moved


def _cached_file(journals: Sequence[Journal], who: str, rate: float, damaged: bool) -> CachedFile:
    waiting = np.concatenate([journal.waiting for journal in journals])
    parts = newest(waiting[:, 1], waiting[:, 2])
    return CachedFile(
        original=journals[0].target,
        nodes=tuple(sorted({journal.host for journal in journals})),
        files=len(journals),
        cached=sum(int((journal.entries[:, 2] - journal.entries[:, 1]).sum()) for journal in journals),
        dirty=int((parts[:, 1] - parts[:, 0]).sum()),
        holder=who,
        rate=rate,
        damaged=damaged or any(journal.damaged for journal in journals),
    )
