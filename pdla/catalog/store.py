"""The catalog as the other stages use it: open it, ask for replicas, move them from state to state."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

from sqlalchemy import Engine, create_engine, event, func, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from pdla import config
from pdla.accessmap import AccessMap
from pdla.catalog import runs
from pdla.catalog.migrate import upgrade
from pdla.catalog.records import (
    Checksum,
    Component,
    Occurrence,
    Original,
    Pattern,
    QueueState,
    Recorded,
    Replica,
    Result,
    Run,
    State,
    layout_from_json,
    signature_from_json,
    signature_to_json,
)
from pdla.catalog.tables import (
    SCHEMA_VERSION,
    ComponentRow,
    ExtentRow,
    MetaRow,
    OriginalRow,
    ReplicaRow,
    ResultRow,
)
from pdla.errors import ConfigError, FormatError, PdlaError
from pdla.model import Identity, Layout, Phase, Signature

BUSY_MILLISECONDS = 20_000
LOCK = 0x70646C61
"""PostgreSQL's advisory lock of what must not run twice at a time; the next one is that of ``exclusive``."""
OLDER_VERSIONS = tuple(map(str, range(1, SCHEMA_VERSION)))


def open_catalog(url: str | None = None) -> Catalog:
    """The catalog at an SQLAlchemy URL (default ``config.catalog_url()``), made if there is none.

    Raises:
        ConfigError: not a URL of a database that can be reached from here.
        FormatError: a catalog of a newer version, or a damaged one.
    """
    text = url or config.catalog_url()
    try:
        parsed = make_url(text)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            _make_private(Path(parsed.database))
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed)
    except ModuleNotFoundError as error:
        raise ConfigError(f"the catalog {text} needs {error.name}: pip install 'pdla[postgresql]'") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(f"cannot use the catalog {text}: {_one_line(error)} (write sqlite:////path)") from error
    except OSError as error:
        raise ConfigError(f"cannot make the catalog {text}: {error}") from error
    if parsed.get_backend_name() == "sqlite":
        _set_up_sqlite(engine)
    catalog = Catalog(engine, parsed)
    catalog.prepare()
    return catalog


def _make_private(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _set_up_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={BUSY_MILLISECONDS}",
            "journal_mode=WAL",
            # A replica's row must never be lost while its files are kept: gc finds files through rows.
            "synchronous=FULL",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    # RATIONALE: a transaction that begins reading and then writes fails at once, whatever the timeout, when another
    # one wrote in between. All of ours are short, so each takes the write lock from its beginning.
    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _one_line(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).partition("\n")[0].split())  # PostgreSQL goes on with details and hints


class Report(Protocol):
    """What a redirected run reports."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""


class Catalog:
    """Originals, replicas, results, runs and patterns.

    Every method is a transaction, and raises PdlaError when the database fails.
    """

    def __init__(self, engine: Engine, url: URL) -> None:
        self._engine = engine
        self._url = url
        self._held = 0

    def __str__(self) -> str:
        return self._url.render_as_string()

    @contextmanager
    def _session(self, *, alone: bool = False) -> Iterator[Session]:
        """A transaction; ``alone``: no other such one runs at the same time."""
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                if alone and self._engine.dialect.name == "postgresql":
                    session.execute(select(func.pg_advisory_xact_lock(LOCK)))
                yield session
        except SQLAlchemyError as error:
            raise PdlaError(f"the catalog {self} failed: {_one_line(error)}") from error

    def prepare(self) -> None:
        """Make the tables of a new catalog, bring those of an older version up to date; refuse a newer one.

        Raises:
            FormatError: the version is unknown, or this is not a catalog.
        """
        try:
            with self._session(alone=True) as session:
                tables = inspect(session.connection()).get_table_names()
                if not tables:
                    upgrade(session.connection(), None)
                    session.add(MetaRow(key="schema", value=str(SCHEMA_VERSION)))
                    session.add(MetaRow(key="token", value=secrets.token_hex(4)))
                    session.add(MetaRow(key="generation", value="0"))
                    return
                row = session.get(MetaRow, "schema") if "meta" in tables else None
                found = row.value if row else None
                if found in OLDER_VERSIONS:
                    upgrade(session.connection(), found)
                    return
        except PdlaError as error:
            # The operational ones, such as a full disk or a lock, are no fault of the file.
            if isinstance(error.__cause__, DatabaseError) and not isinstance(error.__cause__, OperationalError):
                raise FormatError(f"{error} (move the file away to begin with an empty catalog)") from error
            raise
        if found is None:
            raise FormatError(f"{self} is a database, but not a pdla catalog")
        if found != str(SCHEMA_VERSION):
            raise FormatError(f"the catalog {self} has version {found}; this pdla reads up to {SCHEMA_VERSION}")

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the right to make, publish and remove replicas; nests within a process.

        Raises:
            PdlaError: another process has it.
        """
        if self._held:
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
            return
        with self._locked() as lock:
            if lock is not None:
                raise PdlaError(f"another pdla command is changing the replicas ({lock} is locked): wait for it")
            self._held = 1
            try:
                yield
            finally:
                self._held = 0

    @contextmanager
    def _locked(self) -> Iterator[str | None]:
        """Hold this catalog's lock while in use; yields None, or what it is when another process has it."""
        if self._engine.dialect.name == "postgresql":
            # A lock of the connection: it reaches over nodes, and ends with this process.
            try:
                connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                free = connection.scalar(select(func.pg_try_advisory_lock(LOCK + 1)))
            except SQLAlchemyError as error:
                raise PdlaError(f"the catalog {self} failed: {_one_line(error)}") from error
            try:
                yield None if free else str(self)
            finally:
                connection.invalidate()
                connection.close()
            return
        path = Path((self._url.database or str(config.home() / "catalog")) + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                busy = None
            except BlockingIOError:
                busy = str(path)
            yield busy
        finally:
            os.close(descriptor)

    @property
    def token(self) -> str:
        """Names this catalog's directory in every pool, so that two catalogs can share one."""
        with self._session() as session:
            return session.get_one(MetaRow, "token").value

    def next_generation(self, at_least: int) -> int:
        """A number for the next published map, larger than every one before and not below ``at_least``."""
        with self._session(alone=True) as session:
            row = session.get_one(MetaRow, "generation")
            row.value = str(max(int(row.value) + 1, at_least))
            return int(row.value)

    def originals(self) -> list[Original]:
        """All of them, by number."""
        with self._session() as session:
            return [_original(row) for row in session.scalars(select(OriginalRow).order_by(OriginalRow.id))]

    def replicas(self, *states: State) -> list[Replica]:
        """Those in one of ``states`` (none given: all), by number."""
        query = select(ReplicaRow).order_by(ReplicaRow.id)
        if states:
            query = query.where(ReplicaRow.state.in_(states))
        with self._session() as session:
            return [_replica(row) for row in session.scalars(query)]

    def replica(self, replica_id: int) -> Replica:
        """One of them.

        Raises:
            PdlaError: there is no such replica.
        """
        with self._session() as session:
            return _replica(_existing(session, replica_id))

    def checksums(self, replica_id: int) -> list[list[Checksum]]:
        """The checksums of every component, in the order of components and offsets."""
        with self._session() as session:
            row = _existing(session, replica_id)
            return [[Checksum(e.offset, e.length, e.crc32c) for e in component.extents] for component in row.components]

    def set_original(self, path: Path, identity: Identity) -> None:
        """From now on the replicas of this device and inode are copies of the file in this state, at this path."""
        with self._session() as session:
            query = select(OriginalRow).filter_by(device=identity.device, inode=identity.inode)
            row = session.scalars(query).one_or_none() or OriginalRow(device=identity.device, inode=identity.inode)
            row.path, row.size = str(path), identity.size
            row.mtime_ns, row.ctime_ns = identity.mtime_ns, identity.ctime_ns
            session.add(row)

    def begin_replica(self, identity: Identity, signature: Signature, access_map: AccessMap, layout: Layout) -> Replica:
        """A new replica, ``building``, of an original that ``set_original`` made known."""
        with self._session() as session:
            original = session.scalars(
                select(OriginalRow).filter_by(device=identity.device, inode=identity.inode)
            ).one()
            row = ReplicaRow(
                original=original,
                signature=signature_to_json(signature),
                access_map=access_map.to_json(),
                layout=asdict(layout),
                pool=layout.pool,
                size=access_map.size,
                state="building",
                why="",
                created=datetime.now(UTC),
            )
            session.add(row)
            session.flush()
            return _replica(row)

    def set_components(self, replica_id: int, components: Sequence[Component]) -> Replica:
        """The files that a replica has or is about to have: on record before they are made, so that gc finds them."""
        with self._session() as session:
            row = _existing(session, replica_id)
            row.components = [_component_row(number, component) for number, component in enumerate(components)]
            return _replica(row)

    def finish_replica(
        self, replica_id: int, components: Sequence[Component], checksums: Sequence[Sequence[Checksum]]
    ) -> Replica:
        """The files are complete, verified and durable: the replica is ``valid``."""
        with self._session() as session:
            row = _existing(session, replica_id)
            for old, component, extents in zip(row.components, components, checksums, strict=True):
                old.path, old.size, old.inode = str(component.path), component.size, component.inode
                old.mtime_ns, old.crc32c = component.mtime_ns, component.crc32c
                old.extents = [ExtentRow(offset=e.offset, length=e.length, crc32c=e.crc32c) for e in extents]
            row.state = "valid"
            session.flush()
            return _replica(row)

    def mark(self, replica_id: int, state: State, why: str) -> None:
        """Change the state of a replica, and say why."""
        with self._session() as session:
            row = _existing(session, replica_id)
            row.state, row.why = state, why

    def forget_replica(self, replica_id: int) -> None:
        """Remove the row (after its files), and the original's with its last replica."""
        with self._session() as session:
            row = _existing(session, replica_id)
            original = row.original
            session.delete(row)
            session.flush()
            session.refresh(original)
            if not original.replicas:
                session.delete(original)

    def add_result(self, report: Report) -> None:
        """Keep the merged report of a redirected run."""
        with self._session() as session:
            session.add(ResultRow(time=datetime.now(UTC), report=report.to_json()))

    def results(self) -> list[Result]:
        """The reports of redirected runs, in the order in which they came in."""
        with self._session() as session:
            rows = session.scalars(select(ResultRow).order_by(ResultRow.id))
            return [Result(runs.utc(row.time), row.report) for row in rows]

    def record_run(self, run: Run, found: Sequence[Occurrence], phases: Iterable[Phase] = ()) -> Recorded:
        """Keep a traced run, its patterns and its phases; new patterns enter the replication queue.

        A run that is there already, which the fingerprint of its trace tells, is replaced.
        """
        with self._session(alone=True) as session:
            return runs.record(session, run, found, phases)

    def patterns(
        self, *, file: str = "*", application: str = "*", ranks: int | None = None, state: QueueState | None = None
    ) -> list[Pattern]:
        """The patterns by number: of a file and of an application's command (globs), of runs of so many ranks, in this
        state of the queue."""
        with self._session() as session:
            return runs.patterns(session, file, application, ranks, state)

    def pattern(self, pattern_id: int) -> tuple[Pattern, list[tuple[Run, Occurrence]]]:
        """A pattern, the runs that have it, and how it was in each.

        Raises:
            PdlaError: there is no such pattern.
        """
        with self._session() as session:
            return runs.pattern(session, pattern_id)

    def run(self, run_id: int) -> tuple[Run, list[Occurrence]]:
        """A run, and its patterns as they were in it.

        Raises:
            PdlaError: there is no such run.
        """
        with self._session() as session:
            return runs.run(session, run_id)

    def phases(self, run_id: int) -> list[Phase]:
        """The phases of a run, file by file."""
        with self._session() as session:
            return runs.phases(session, run_id)

    def settle(self, signatures: Iterable[Signature], state: QueueState) -> None:
        """Say what became of those of these patterns that are in the queue."""
        with self._session() as session:
            runs.settle(session, signatures, state)


def _existing(session: Session, replica_id: int) -> ReplicaRow:
    row = session.get(ReplicaRow, replica_id)
    if row is None:
        raise PdlaError(f"there is no replica {replica_id} (pdla status lists them)")
    return row


def _original(row: OriginalRow) -> Original:
    return Original(Path(row.path), Identity(row.device, row.inode, row.size, row.mtime_ns, row.ctime_ns))


def _component_row(number: int, component: Component) -> ComponentRow:
    return ComponentRow(
        number=number,
        path=str(component.path),
        size=component.size,
        inode=component.inode,
        mtime_ns=component.mtime_ns,
        crc32c=component.crc32c,
    )


def _replica(row: ReplicaRow) -> Replica:
    return Replica(
        id=row.id,
        original=_original(row.original),
        signature=signature_from_json(row.signature),
        access_map=AccessMap.from_json(row.access_map),
        layout=layout_from_json(row.layout),
        state=cast(State, row.state),
        why=row.why,
        created=runs.utc(row.created),
        components=tuple(Component(Path(c.path), c.size, c.inode, c.mtime_ns, c.crc32c) for c in row.components),
    )
