"""The lock of a catalog on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import BigInteger, Connection, Engine, Text, cast, func, select
from sqlalchemy.exc import SQLAlchemyError

from pdla.catalog.outages import Client, again, failed
from pdla.catalog.tables import META
from pdla.errors import BusyError

LOCK = 0x70646C61
"""PostgreSQL's advisory lock for what must not run twice at a time; the next number is that of ``ServerLock``."""


class ServerLock:
    """A lock of a connection: it is valid on all nodes, and ends with this process.

    It also ends with the server. ``keep`` takes it again if nobody had it meanwhile, as a counter
    of turns shows.
    """

    def __init__(self, catalog: Client, engine: Engine) -> None:
        self._catalog, self._engine = catalog, engine
        self._connection: Connection | None = None
        self._thread, self._turn = threading.get_ident(), ""
        self.patience, self.giving_up = catalog.patience, catalog.giving_up

    @again
    def try_lock(self) -> bool:
        """Take the lock; return whether nobody else has it."""
        from sqlalchemy.dialects import postgresql

        with self._speaking() as connection:
            if not self._take(connection):
                return False
            turn = cast(META.c.value, BigInteger) + 1
            put = postgresql.insert(META).values(key="turn", value="1")
            put = put.on_conflict_do_update(index_elements=[META.c.key], set_={"value": cast(turn, Text)})
            self._turn = connection.execute(put.returning(META.c.value)).scalar_one()
            return True

    def keep(self) -> None:
        """Check that this thread holds the lock, and has not lost it for good.

        Raises:
            BusyError: the server was unreachable, and another process has held the lock since.
        """
        if not self._turn or self._thread != threading.get_ident():
            return
        lost = self._connection is None
        with self._speaking() as connection:
            taken = self._take(connection) if lost else True
            turn = connection.scalar(select(META.c.value).where(META.c.key == "turn"))
        if not taken or turn != self._turn:
            raise BusyError(
                "the catalog was unreachable, and another pdla command has changed the replicas meanwhile: try again"
            )

    def close(self) -> None:
        """Release the lock."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()

    @staticmethod
    def _take(connection: Connection) -> bool:
        return bool(connection.scalar(select(func.pg_try_advisory_lock(LOCK + 1))))

    @contextmanager
    def _speaking(self) -> Iterator[Connection]:
        """The connection of the lock, which is made anew after a failure."""
        try:
            if self._connection is None:
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            yield self._connection
        except SQLAlchemyError as error:
            lost, self._connection = self._connection, None
            if lost is not None:
                lost.close()
            raise failed(self._catalog, error) from error
