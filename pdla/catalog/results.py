"""The reports of redirected runs, and the results of simulations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import insert, select, update

from pdla.catalog.database import Section
from pdla.catalog.outages import again
from pdla.catalog.records import Result, Simulation
from pdla.catalog.tables import REPLICAS, RESULTS, SIMULATIONS, utc


class Report(Protocol):
    """The report of a redirected run."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""


class Results(Section):
    """The merged reports of redirected runs."""

    @again
    def add(self, report: Report, run: str = "", time: datetime | None = None) -> None:
        """Record the merged report of a redirected run that ended at ``time`` (default: now), and its use of replicas.

        A run with a name is recorded once: what is already there stays.
        """
        document, time = report.to_json(), time or datetime.now(UTC)
        read = Counter[int]()
        for used in (used for file in document["files"] for used in file["replicas"] if used["bytes"]):
            read[used["id"]] += used["bytes"]
        with self._transaction(alone=True, once=True) as connection:
            if run and connection.scalar(select(RESULTS.c.id).where(RESULTS.c.run == run)) is not None:
                return
            connection.execute(insert(RESULTS).values(run=run or None, time=time, report=document))
            for replica_id, size in sorted(read.items()):
                more = {"runs": REPLICAS.c.runs + 1, "bytes_read": REPLICAS.c.bytes_read + size, "used": time}
                connection.execute(update(REPLICAS).where(REPLICAS.c.id == replica_id).values(more))

    @again
    def all(self, last: int | None = None) -> list[Result]:
        """The reports of redirected runs (the ``last`` ones), oldest first."""
        with self._transaction() as connection:
            rows = connection.execute(select(RESULTS).order_by(RESULTS.c.id.desc()).limit(last)).all()
            return [Result(utc(row.time), row.report) for row in reversed(rows)]

    @again
    def after(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """The reports that were recorded after report ``number``, with their numbers."""
        query = select(RESULTS.c.id, RESULTS.c.report).where(RESULTS.c.id > number).order_by(RESULTS.c.id)
        with self._transaction() as connection:
            return [(row.id, row.report) for row in connection.execute(query)]


class Simulations(Section):
    """The answers of pdla simulate."""

    @again
    def add(self, answer: Mapping[str, Any]) -> None:
        """Record an answer of pdla simulate."""
        with self._transaction(once=True) as connection:
            connection.execute(insert(SIMULATIONS).values(time=datetime.now(UTC), answer=dict(answer)))

    @again
    def all(self, last: int | None = None) -> list[Simulation]:
        """The simulations (the ``last`` ones), oldest first."""
        with self._transaction() as connection:
            rows = connection.execute(select(SIMULATIONS).order_by(SIMULATIONS.c.id.desc()).limit(last)).all()
            return [Simulation(utc(row.time), row.answer) for row in reversed(rows)]
