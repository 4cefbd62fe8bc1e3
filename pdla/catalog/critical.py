"""What policies found critical while programs ran, and the replicas with these bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, update

from pdla.catalog.database import Section, put
from pdla.catalog.outages import again
from pdla.catalog.tables import CRITICAL, utc
from pdla.errors import FormatError

if TYPE_CHECKING:
    from pdla.critical_data import CriticalData
    from pdla.model import Int64Array


@dataclass(frozen=True)
class CriticalFile:
    """The critical data table of a file, which may be empty.

    Attributes:
        seen: when a run last read from it with such a policy.
        replica: the number of the replica with the bytes that had room; None: there is none. It may be gone since.
    """

    path: Path
    data: CriticalData
    seen: datetime
    replica: int | None


class CriticalReads(Section):
    """The critical data tables, by file. One that is damaged is empty: it costs time, and no bytes."""

    @again
    def all(self) -> list[CriticalFile]:
        """All files that have a table, by their paths."""
        with self._transaction() as connection:
            rows = connection.execute(select(CRITICAL).order_by(CRITICAL.c.path))
            return [CriticalFile(Path(row.path), _data(row.reads), utc(row.seen), row.replica_id) for row in rows]

    @again
    def seen(self) -> dict[str, datetime]:
        """The files that have a table, which may be empty, and when a run last recorded what it found there."""
        with self._transaction() as connection:
            return {path: utc(seen) for path, seen in connection.execute(select(CRITICAL.c.path, CRITICAL.c.seen))}

    @again
    def add(self, path: Path, newer: CriticalData, same_run: bool = False, instead: Int64Array | None = None) -> None:
        """Record what a run found, or one more part of what the last run finds.

        ``instead``: ranges [start, stop) of which nothing else stays, sorted and disjoint.
        """
        with self._transaction(alone=True, once=True) as connection:
            row = connection.execute(select(CRITICAL).where(CRITICAL.c.path == str(path))).one_or_none()
            if row is not None:
                known = _data(row.reads)
                known = known if instead is None or not len(known.starts) else known.without(instead)
                newer = known.after(newer, same_run)
            values = {"path": str(path), "reads": newer.to_json(), "seen": datetime.now(UTC)}
            put(connection, CRITICAL, row.id if row else None, **values)

    @again
    def set_replica(self, path: Path, replica: int | None) -> None:
        """Record which replica has the bytes of a file."""
        with self._transaction(once=True) as connection:
            connection.execute(update(CRITICAL).where(CRITICAL.c.path == str(path)).values(replica_id=replica))


def _data(reads: Mapping[str, Any]) -> CriticalData:
    from pdla.critical_data import NOTHING, CriticalData

    try:
        return CriticalData.from_json(reads)
    except FormatError:
        return NOTHING
