"""The database of a catalog: its connections, and transactions that survive an outage."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SQLAlchemyError

from pdla.catalog.migrate import upgrade
from pdla.catalog.outages import OUTAGE_SECONDS, again, failed, is_outage, one_line
from pdla.catalog.serverlock import LOCK, ServerLock
from pdla.catalog.tables import META, SCHEMA_VERSION, TABLES, Now
from pdla.errors import CatalogError, ConfigError, FormatError, PdlaError

BUSY_SECONDS = 20
CONNECT_SECONDS = 4
MARK = "commit "
"""Prefix of the key of a row that shows that a commit was done."""
MARK_SECONDS = 3600.0
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors from rows that hold other values than pdla writes, and from values that no row can hold."""
_ENFORCED = "pdla_foreign_keys"
OLDER_VERSIONS = tuple(map(str, range(1, SCHEMA_VERSION)))


def connect(text: str, giving_up: threading.Event) -> Database:
    """The database at an SQLAlchemy URL; a file is made if there is none.

    Raises:
        ConfigError: not a URL of a database that can be reached from here.
    """
    try:
        parsed = make_url(text)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            _make_private(Path(parsed.database))
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        limit = parsed.get_backend_name() == "postgresql" and "connect_timeout" not in parsed.query
        engine = create_engine(parsed, connect_args={"connect_timeout": CONNECT_SECONDS} if limit else {})
    except ModuleNotFoundError as error:
        raise ConfigError(f"the catalog {text} needs {error.name}: pip install 'pdla[postgresql]'") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(f"cannot use the catalog {text}: {one_line(error)} (write sqlite:////path)") from error
    except OSError as error:
        raise ConfigError(f"cannot make the catalog {text}: {error}") from error
    if parsed.get_backend_name() == "sqlite":
        _set_up_sqlite(engine)
    return Database(engine, parsed, giving_up)


def _make_private(path: Path) -> None:
    """Make the file of a database, if there is none.

    RATIONALE: SQLite's locks on a file are this process's, and end when the process closes any
    descriptor of it. Then another process takes itself for the last user and removes the
    write-ahead log, with which this process damages the database. So a file that is there is not
    opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _set_up_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={1000 * BUSY_SECONDS}",
            "journal_mode=WAL",
            # A replica's row must never be lost while its files exist: gc finds the files through
            # the rows.
            "synchronous=FULL",
        ):
            connection.execute(f"PRAGMA {pragma}")

    # RATIONALE: a transaction that begins with a read and then writes fails at once, whatever the
    # timeout, if another one wrote in between. All transactions of pdla are short, so each takes
    # the write lock at its beginning.
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # This can be changed only outside a transaction. Migrations recreate tables, and references
        # to them must stay.
        enforced = connection.get_execution_options().get(_ENFORCED, True)
        connection.exec_driver_sql(f"PRAGMA foreign_keys={'ON' if enforced else 'OFF'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Database:
    """An engine and its transactions.

    They raise CatalogError if the database fails. A method that meets an outage is tried again; it
    is never applied twice.
    """

    def __init__(self, engine: Engine, url: URL, giving_up: threading.Event) -> None:
        self.engine, self.url, self.giving_up = engine, url, giving_up
        self.patience = OUTAGE_SECONDS if self.is_server else BUSY_SECONDS
        self.lock: ServerLock | None = None
        self._known: list[str] = []

    def __str__(self) -> str:
        return self.url.render_as_string()

    @property
    def is_server(self) -> bool:
        """Whether it is PostgreSQL, which may be on another node."""
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def transaction(self, *, alone: bool = False, enforced: bool = True, once: bool = False) -> Iterator[Connection]:
        """A transaction.

        ``alone``: no other such transaction runs at the same time. ``enforced``: the references are checked. ``once``:
        the transaction must not be applied twice.
        """
        engine = self.engine.execution_options(**{_ENFORCED: enforced})
        if self.lock is not None:
            self.lock.keep()
        try:
            with engine.connect() as connection:
                if alone and self.is_server:
                    connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
                yield connection
                if once and self.is_server:
                    self._commit_once(connection)
                else:
                    connection.commit()
        except SQLAlchemyError as error:
            raise failed(self, error) from error
        except DAMAGE as error:
            raise CatalogError(f"the catalog {self} is damaged, or cannot hold a value: {error}") from error

    def _commit_once(self, connection: Connection) -> None:
        """Commit with a mark that shows later, if the answer is lost, whether the commit was done.

        The next such commit removes marks that are not needed any more.
        """
        known, self._known, mark = self._known, [], MARK + secrets.token_hex(8)
        try:
            if known:
                connection.execute(delete(META).where(META.c.key.in_(known)))
            connection.execute(insert(META).values(key=mark, value=sql_cast(Now(), Text)))
            connection.commit()
        except SQLAlchemyError as error:
            if not is_outage(error) or not self._was_committed(mark):
                self._known += known
                raise
        self._known.append(mark)

    def _was_committed(self, mark: str) -> bool:
        try:
            return self._is_marked(mark)
        except CatalogError as error:
            raise CatalogError(f"{error}: it is not known whether the last change was made") from error

    @again
    def _is_marked(self, mark: str) -> bool:
        """Whether a commit was done; waits for a server process that is still working on it."""
        from sqlalchemy.dialects import postgresql

        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{OUTAGE_SECONDS:.0f}s'")
                put = postgresql.insert(META).values(key=mark, value="").on_conflict_do_nothing()
                return connection.scalar(put.returning(META.c.key)) is None  # this row is never committed
        except SQLAlchemyError as error:
            raise failed(self, error) from error

    @again
    def prepare(self) -> None:
        """Make the tables of a new catalog, update those of an older version, and refuse a newer one.

        Raises:
            FormatError: the version is unknown, or this is not a catalog.
        """
        try:
            with self.transaction(alone=True, enforced=False) as connection:
                tables = inspect(connection).get_table_names()
                if not tables:
                    TABLES.create_all(connection, checkfirst=False)
                    first = {
                        "schema": str(SCHEMA_VERSION),
                        "token": secrets.token_hex(4),
                        "generation": "0",
                        "fence": "0",
                    }
                    connection.execute(insert(META), [{"key": key, "value": value} for key, value in first.items()])
                    return
                schema = select(META.c.value).where(META.c.key == "schema")
                found = connection.scalar(schema) if "meta" in tables else None
                if found in OLDER_VERSIONS:
                    upgrade(connection, found)
                    return
        except PdlaError as error:
            # Operational errors, such as a full disk or a lock, are not the file's fault.
            if isinstance(error.__cause__, DatabaseError) and not isinstance(error.__cause__, OperationalError):
                raise FormatError(f"{error} (move the file away to begin with an empty catalog)") from error
            raise
        if found is None:
            raise FormatError(f"{self} is a database, but not a pdla catalog")
        if found != str(SCHEMA_VERSION):
            raise FormatError(f"the catalog {self} has version {found}, but this pdla reads up to {SCHEMA_VERSION}")

    def close(self) -> None:
        """Close the connections."""
        if self._known:
            with suppress(SQLAlchemyError), self.engine.begin() as connection:
                connection.execute(delete(META).where(META.c.key.in_(self._known)))
        self.engine.dispose()

    @again
    def forget_marks(self) -> None:
        """Remove the marks of commits that nobody asks about any more: those of killed processes."""
        marks = select(META.c.key, META.c.value).where(META.c.key.startswith(MARK))
        with self.transaction(alone=True) as connection:
            before = connection.scalars(select(Now())).one() - MARK_SECONDS
            old = [key for key, time in connection.execute(marks) if float(time) < before]
            connection.execute(delete(META).where(META.c.key.in_(old)))


class Section:
    """One kind of data in a catalog. Every method is a transaction."""

    def __init__(self, database: Database) -> None:
        self._database, self._transaction = database, database.transaction

    @property
    def patience(self) -> float:
        """How many seconds to wait for the end of an outage."""
        return self._database.patience

    @property
    def giving_up(self) -> threading.Event:
        """An event that is set when nobody waits any more."""
        return self._database.giving_up


def count_up(connection: Connection, key: str, at_least: int = 0) -> int:
    """The next number under a key of the table ``meta``, and at least ``at_least``."""
    last = connection.scalars(select(META.c.value).where(META.c.key == key).with_for_update()).one()
    number = max(int(last) + 1, at_least)
    connection.execute(update(META).where(META.c.key == key).values(value=str(number)))
    return number


def add(connection: Connection, table: Table, **values: Any) -> int:
    """Add a row; return its number."""
    added = connection.execute(insert(table).values(values)).inserted_primary_key
    assert added is not None
    return int(added[0])


def put(connection: Connection, table: Table, number: int | None, **values: Any) -> int:
    """Change the row of this number, or add one if there is none (None); return its number."""
    if number is None:
        return add(connection, table, **values)
    connection.execute(update(table).where(table.c.id == number).values(values))
    return number
