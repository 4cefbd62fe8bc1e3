"""What killed programs left in cache files, made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdla.catalog import Catalog
from pdla.replicator.sync import WriteBackResult, write_back
from tests.support.handmade_journals import CacheJournal

SIZE = 100_000


@dataclass
class Place:
    """A file, and journals of bytes of it in cache files."""

    directory: Path
    catalog: Catalog
    journals: list[CacheJournal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device.mkdir()
        self.original.write_bytes(bytes(SIZE))

    @property
    def original(self) -> Path:
        return self.directory / "data"

    @property
    def device(self) -> Path:
        return self.directory / "ssd"

    @property
    def noted(self) -> Path:
        return self.directory / "home" / "journals" / "cache-0123456789abcdef"

    def process(self, **more: Any) -> CacheJournal:
        """One more process with the file open."""
        number = len(self.journals)
        cache = self.device / f"pdla-{number}.cache"
        self.journals.append(CacheJournal(self.noted, self.original, cache, number=number, **more))
        return self.journals[-1]

    def write(self, journal: CacheJournal, start: int, data: bytes, stamp: int) -> None:
        """The process writes to its cache."""
        place = journal.cache.stat().st_size if journal.cache.exists() else 0
        with journal.cache.open("ab") as file:
            file.write(data)
        journal.entries.append((place, start, len(data), stamp))

    def leave(self) -> None:
        """All processes are killed."""
        for journal in self.journals:
            journal.write()

    def sync(self, **more: Any) -> WriteBackResult:
        (row,) = write_back(self.catalog, **more)
        return row

    def is_clean(self) -> bool:
        """Whether nothing of pdla's is left."""
        return not list(self.device.iterdir()) and not self.noted.exists()
