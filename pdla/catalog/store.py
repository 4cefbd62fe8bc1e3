"""The catalog as other packages use it: open it, then use its sections."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from sqlalchemy import Numeric, func, select

from pdla import config
from pdla.catalog.autopilot import Autopilot
from pdla.catalog.critical import CriticalReads
from pdla.catalog.database import BUSY_SECONDS, DAMAGE, Database, Section, connect, count_up
from pdla.catalog.exclusive import ExclusiveLock
from pdla.catalog.leases import Leases
from pdla.catalog.outages import again
from pdla.catalog.records import QUEUE_STATES, STATES, Census
from pdla.catalog.replicas import Originals, Replicas
from pdla.catalog.results import Results, Simulations
from pdla.catalog.runs import Patterns, Queue, Runs
from pdla.catalog.tables import META, QUEUE, REPLICAS
from pdla.errors import CatalogError
from pdla.left_reports import left


def open_catalog(url: str | None = None, giving_up: threading.Event | None = None) -> Catalog:
    """The catalog at an SQLAlchemy URL (default ``config.catalog_url()``), made if there is none.

    If the database is unreachable, this waits for it, until ``giving_up`` is set. Takes in the reports that
    redirected runs left.

    Raises:
        ConfigError: not a URL of a database that can be reached from here.
        FormatError: a catalog of a newer version, or a damaged one.
    """
    url = url or config.catalog_url()
    database = connect(url, giving_up or threading.Event())
    database.prepare()
    catalog = Catalog(database, url)
    catalog.take_in()
    return catalog


class Catalog(Section):
    """All data of a catalog, a section for each kind, on one database."""

    def __init__(self, database: Database, url: str) -> None:
        super().__init__(database)
        self.url = url
        self.database = database
        self.originals, self.replicas = Originals(database), Replicas(database)
        self.leases, self.critical = Leases(database), CriticalReads(database)
        self.results, self.simulations = Results(database), Simulations(database)
        self.runs, self.patterns, self.queue = Runs(database), Patterns(database), Queue(database)
        self.autopilot = Autopilot(database)
        self._lock = ExclusiveLock(database)

    def __str__(self) -> str:
        return str(self.database)

    @property
    @again
    def token(self) -> str:
        """A name for this catalog's directory in every pool, so that two catalogs can share a pool."""
        with self._transaction() as connection:
            return str(connection.scalars(select(META.c.value).where(META.c.key == "token")).one())

    @again
    def next_generation(self, at_least: int) -> int:
        """A number for the next published map, larger than all earlier ones and at least ``at_least``."""
        with self._transaction(alone=True, once=True) as connection:
            return count_up(connection, "generation", at_least)

    @again
    def census(self) -> Census:
        """The number of replicas and patterns in every state."""
        size = func.sum(REPLICAS.c.size, type_=Numeric())  # PostgreSQL's sums of integers are no integers
        of_replicas = select(REPLICAS.c.state, func.count(), size).group_by(REPLICAS.c.state)
        of_queue = select(QUEUE.c.state, func.count()).group_by(QUEUE.c.state)
        with self._transaction() as connection:
            held = {state: (int(count), int(size)) for state, count, size in connection.execute(of_replicas)}
            placed = {state: int(count) for state, count in connection.execute(of_queue)}
        return Census(
            {state: held.get(state, (0, 0)) for state in STATES},
            {place: placed.get(place, 0) for place in QUEUE_STATES},
        )

    def take_in(self) -> None:
        """Record the reports that redirected runs left for this catalog.

        If the catalog fails, they wait: the verb has work of its own to do, and says what failed.
        """
        for one in left(self.url):
            try:
                self.results.add(one, one.run, one.time)
                one.remove()
            except DAMAGE:
                one.set_aside()
            except CatalogError as error:
                if isinstance(error.__cause__, DAMAGE):
                    one.set_aside()

    def close(self) -> None:
        """Close the connections."""
        self.database.close()

    def exclusive(self, wait: float = BUSY_SECONDS) -> AbstractContextManager[None]:
        """Hold the right to register, publish and remove replicas (ExclusiveLock)."""
        return self._lock.hold(wait)
