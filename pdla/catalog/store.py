"""The catalog as the other stages use it: open it, ask for replicas, move them from state to state."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

from sqlalchemy import (
    Connection,
    Engine,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    type_coerce,
    update,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from pdla import config
from pdla.accessmap import AccessMap
from pdla.catalog import leases, runs
from pdla.catalog.leases import LEASE_SECONDS, Now
from pdla.catalog.migrate import upgrade
from pdla.catalog.outages import OUTAGE_SECONDS, again, failed, is_outage, one_line
from pdla.catalog.records import (
    QUEUE_STATES,
    STATES,
    Census,
    Checksum,
    Component,
    Copy,
    Lease,
    Listed,
    Occurrence,
    Original,
    Pattern,
    Purpose,
    QueueState,
    Recorded,
    Replica,
    Result,
    Run,
    Simulation,
    State,
    layout_from_json,
    signature_from_json,
    signature_to_json,
)
from pdla.catalog.serverlock import LOCK, ServerLock
from pdla.catalog.tables import (
    SCHEMA_VERSION,
    ComponentRow,
    ExactPath,
    ExtentRow,
    MetaRow,
    OriginalRow,
    QueueRow,
    ReplicaRow,
    ResultRow,
    SimulationRow,
)
from pdla.errors import BusyError, CatalogError, ConfigError, FormatError, PdlaError
from pdla.model import Identity, Layout, Phase, Signature

BUSY_SECONDS = 20
CONNECT_SECONDS = 4
MARK = "commit "
"""Begins the key of a row by which a commit is known to have been done."""
MARK_SECONDS = 3600.0
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of rows with other values than are written to them, and of values that no row can have."""
_AGAIN_SECONDS = 0.05
_NO_DEVICE = (1 << 64) - 1
_ENFORCED = "pdla_foreign_keys"
OLDER_VERSIONS = tuple(map(str, range(1, SCHEMA_VERSION)))


def open_catalog(url: str | None = None, giving_up: threading.Event | None = None) -> Catalog:
    """The catalog at an SQLAlchemy URL (default ``config.catalog_url()``), made if there is none.

    A database that is away is waited for, until ``giving_up`` is set.

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
    catalog = Catalog(engine, parsed, giving_up or threading.Event())
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
            f"busy_timeout={1000 * BUSY_SECONDS}",
            "journal_mode=WAL",
            # A replica's row must never be lost while its files are kept: gc finds files through rows.
            "synchronous=FULL",
        ):
            connection.execute(f"PRAGMA {pragma}")

    # RATIONALE: a transaction that begins reading and then writes fails at once, whatever the timeout, when another
    # one wrote in between. All of ours are short, so each takes the write lock from its beginning.
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Only outside of a transaction can this be changed. Migrations make a table anew: what refers to it must stay.
        enforced = connection.get_execution_options().get(_ENFORCED, True)
        connection.exec_driver_sql(f"PRAGMA foreign_keys={'ON' if enforced else 'OFF'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Report(Protocol):
    """What a redirected run reports."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""


class Catalog:
    """Originals, replicas, results, runs, patterns, plans and leases.

    Every method is a transaction, and raises CatalogError when the database fails. One that meets an outage is tried
    again, and is never applied twice.
    """

    def __init__(self, engine: Engine, url: URL, giving_up: threading.Event) -> None:
        self._engine = engine
        self._url = url
        self._held = 0
        self._lock_of: ServerLock | None = None
        self._known: list[str] = []
        self.giving_up = giving_up
        self.patience = OUTAGE_SECONDS if self._is_server else BUSY_SECONDS

    def __str__(self) -> str:
        return self._url.render_as_string()

    @property
    def _is_server(self) -> bool:
        return self._engine.dialect.name == "postgresql"

    @contextmanager
    def _session(self, *, alone: bool = False, enforced: bool = True, once: bool = False) -> Iterator[Session]:
        """A transaction; ``alone``: no other such one runs at the same time; ``enforced``: the references are;
        ``once``: it must not be applied twice."""
        engine = self._engine.execution_options(**{_ENFORCED: enforced})
        if self._lock_of is not None:
            self._lock_of.keep()
        try:
            with Session(engine, expire_on_commit=False) as session:
                if alone and self._is_server:
                    session.execute(select(func.pg_advisory_xact_lock(LOCK)))
                yield session
                session.flush()
                if once and self._is_server:
                    self._commit_once(session)
                else:
                    session.commit()
        except SQLAlchemyError as error:
            raise failed(self, error) from error
        except DAMAGE as error:
            raise CatalogError(
                f"the catalog {self} cannot hold, or is damaged where it has, a value: {error}"
            ) from error

    def _commit_once(self, session: Session) -> None:
        """Commit with a mark by which one can tell, where the answer was lost, whether it was done.

        Marks that are not needed any more go with the next such commit.
        """
        known, self._known, mark = self._known, [], MARK + secrets.token_hex(8)
        try:
            if known:
                session.execute(delete(MetaRow).where(MetaRow.key.in_(known)))
            session.execute(insert(MetaRow).values(key=mark, value=sql_cast(Now(), Text)))
            session.commit()
        except SQLAlchemyError as error:
            if not is_outage(error) or not self._was_committed(mark):
                self._known += known
                raise
        self._known.append(mark)

    def _was_committed(self, mark: str) -> bool:
        try:
            return self._is_marked(mark)
        except CatalogError as error:
            raise CatalogError(f"{error}: whether the last change was made is not known") from error

    @again
    def _is_marked(self, mark: str) -> bool:
        """Whether a commit was done; waits for a server process that is still at it."""
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{OUTAGE_SECONDS:.0f}s'")
                put = postgresql_insert(MetaRow).values(key=mark, value="").on_conflict_do_nothing()
                return connection.scalar(put.returning(MetaRow.key)) is None  # it is never committed itself
        except SQLAlchemyError as error:
            raise failed(self, error) from error

    @again
    def prepare(self) -> None:
        """Make the tables of a new catalog, bring those of an older version up to date; refuse a newer one.

        Raises:
            FormatError: the version is unknown, or this is not a catalog.
        """
        try:
            with self._session(alone=True, enforced=False) as session:
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
        if self._known:
            with suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(delete(MetaRow).where(MetaRow.key.in_(self._known)))
        self._engine.dispose()

    @contextmanager
    def exclusive(self, wait: float = BUSY_SECONDS) -> Iterator[None]:
        """Hold the right to register, publish and remove replicas, for a moment; nests within a process.

        Raises:
            BusyError: another process has had it for ``wait`` seconds.
        """
        if self._held:
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
            return
        with self._lock() as (name, try_lock):
            until = time.monotonic() + wait
            while not try_lock():
                if time.monotonic() >= until:
                    raise BusyError(f"another pdla command is changing the replicas ({name} is locked): wait for it")
                time.sleep(_AGAIN_SECONDS)
            self._held = 1
            try:
                yield
            finally:
                self._held = 0

    @contextmanager
    def _lock(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        """This catalog's lock: its name, and what tries to take it, which is then held until the end of the block."""
        if self._is_server:
            lock = ServerLock(self, self._engine)
            try:
                self._lock_of = lock
                yield str(self), lock.try_lock
            finally:
                self._lock_of = None
                lock.close()
            return
        path = Path((self._url.database or str(config.home() / "catalog")) + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

        def try_flock() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        try:
            yield str(path), try_flock
        finally:
            os.close(descriptor)

    @again
    def acquire(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Lease:
        """A lease of a resource, which ends after so many seconds unless it is renewed. Users call it ``name``.

        Raises:
            BusyError: another process has it.
        """
        with self._session(alone=True, once=True) as session:
            return leases.acquire(session, resource, seconds, name or resource)

    @again
    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> bool:
        """Whether it is still this one's; it then ends so many seconds from now."""
        with self._session() as session:
            return leases.renew(session, lease, seconds)

    @again
    def release(self, lease: Lease) -> None:
        """Give it back; nothing happens where another process has taken it."""
        with self._session() as session:
            leases.release(session, lease)

    @again
    def check(self, lease: Lease) -> None:
        """Nothing, if the lease is still this one's.

        Raises:
            BusyError: another process has taken it.
        """
        with self._session() as session:
            leases.check(session, lease)

    @again
    def leases(self) -> list[Lease]:
        """All of them, by resource; of those that are up, ``seconds`` is not above 0."""
        with self._session() as session:
            return leases.leases(session)

    @again
    def end_leases(self) -> None:
        """Forget those that are up: whoever held one can do nothing with it any more."""
        with self._session(alone=True) as session:
            leases.end(session)
            _forget_marks(session)

    @contextmanager
    def leased(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Iterator[Lease]:
        """A lease that is renewed while it is in use, however long that takes, as long as this process runs.

        Raises:
            BusyError: another process has it.
        """
        lease = self.acquire(resource, seconds, name)
        try:
            with leases.Keeper(lambda: self.renew(lease, seconds), seconds):
                yield lease
        finally:
            with suppress(PdlaError):  # where the catalog is gone it ends by itself
                self.release(lease)

    @property
    @again
    def token(self) -> str:
        """Names this catalog's directory in every pool, so that two catalogs can share one."""
        with self._session() as session:
            return session.get_one(MetaRow, "token").value

    @again
    def next_generation(self, at_least: int) -> int:
        """A number for the next published map, larger than every one before and not below ``at_least``."""
        with self._session(alone=True, once=True) as session:
            row = session.get_one(MetaRow, "generation")
            row.value = str(max(int(row.value) + 1, at_least))
            return int(row.value)

    @again
    def census(self) -> Census:
        """How many replicas and patterns there are in every state."""
        of_replicas = select(ReplicaRow.state, func.count(), func.sum(ReplicaRow.size)).group_by(ReplicaRow.state)
        of_queue = select(QueueRow.state, func.count()).group_by(QueueRow.state)
        with self._session() as session:
            held = {state: (int(count), int(size)) for state, count, size in session.execute(of_replicas)}
            placed = {state: int(count) for state, count in session.execute(of_queue)}
        return Census(
            {state: held.get(state, (0, 0)) for state in STATES},
            {place: placed.get(place, 0) for place in QUEUE_STATES},
        )

    @again
    def originals(self) -> list[Original]:
        """All of them, by number."""
        with self._session() as session:
            return [_original(row) for row in session.scalars(select(OriginalRow).order_by(OriginalRow.id))]

    @again
    def copies(self) -> list[Copy]:
        """The valid replicas that reads may be served from, by number; cheap, however many there are."""
        table = OriginalRow
        identity = (table.device, table.inode, table.size, table.mtime_ns, table.ctime_ns)
        query = select(ReplicaRow.id, table.path, *identity).join(table).order_by(ReplicaRow.id)
        query = query.where(ReplicaRow.state == "valid", ReplicaRow.purpose == "read")
        with self._session() as session:
            return [Copy(number, path, Identity(*of)) for number, path, *of in session.execute(query)]

    @again
    def listing(self) -> list[Listed]:
        """All replicas by number, as far as they are worth listing; cheap, however many there are."""
        row = ReplicaRow
        query = select(
            *(row.id, OriginalRow.path, row.state, row.why, row.purpose, sql_cast(row.layout, Text), row.size),
            *(row.created, row.runs, row.bytes_read, row.used),
        )
        with self._session() as session:
            return [
                Listed._make((*values, runs.utc(created), count, size, used and runs.utc(used)))
                for *values, created, count, size, used in session.execute(query.join(OriginalRow).order_by(row.id))
            ]

    @again
    def signatures(self) -> dict[int, Signature]:
        """The signature of every replica, by its number."""
        with self._session() as session:
            found = session.execute(select(ReplicaRow.id, ReplicaRow.signature))
            return {number: signature_from_json(signature) for number, signature in found}

    @again
    def directories(self) -> list[str]:
        """The directories in which there are components, each once."""
        # What is left of a path without the characters, at its end, that are no slashes.
        directory = func.rtrim(ComponentRow.path, func.replace(ComponentRow.path, "/", ""))
        with self._session() as session:
            return list(session.scalars(select(type_coerce(directory, ExactPath)).distinct()))

    @again
    def component_paths(self) -> dict[int, list[tuple[str, int]]]:
        """Path and size of every component, in their order, by the number of their replica."""
        table = ComponentRow
        query = select(table.replica_id, table.path, table.size).order_by(table.replica_id, table.number)
        found: dict[int, list[tuple[str, int]]] = {}
        with self._session() as session:
            for number, path, size in session.execute(query):
                found.setdefault(number, []).append((path, size))
        return found

    @again
    def replicas(self, *states: State, purpose: Purpose | None = None) -> list[Replica]:
        """Those in one of ``states`` (none given: all) and for this purpose (None: any), by number."""
        query = select(ReplicaRow).order_by(ReplicaRow.id)
        if purpose is not None:
            query = query.where(ReplicaRow.purpose == purpose)
        if states:
            query = query.where(ReplicaRow.state.in_(states))
        with self._session() as session:
            return [_replica(row) for row in session.scalars(query)]

    @again
    def replica(self, replica_id: int) -> Replica:
        """One of them.

        Raises:
            PdlaError: there is no such replica.
        """
        with self._session() as session:
            return _replica(_existing(session, replica_id))

    @again
    def checksums(self, replica_id: int) -> list[list[Checksum]]:
        """The checksums of every component, in the order of components and offsets."""
        with self._session() as session:
            row = _existing(session, replica_id)
            return [[Checksum(e.offset, e.length, e.crc32c) for e in component.extents] for component in row.components]

    @again
    def set_original(self, path: Path, identity: Identity) -> None:
        """From now on the replicas of this file are copies of it in this state, at this path.

        It is the one with this inode that had this path, or else this device: a mount may have given that a new number.
        """
        with self._session(once=True) as session:
            same = session.scalars(select(OriginalRow).filter_by(inode=identity.inode)).all()
            here = next((row for row in same if row.path == str(path)), None)
            numbered = next((row for row in same if row.device == identity.device), None)
            row = here or numbered or OriginalRow(inode=identity.inode)
            if numbered is not None and numbered is not row:
                # The number was another mount's, which gets the one that is free now: no two files have the same.
                free, numbered.device = row.device, _NO_DEVICE
                session.flush()
                row.device = identity.device
                session.flush()
                numbered.device = free
            row.path, row.device, row.size = str(path), identity.device, identity.size
            row.mtime_ns, row.ctime_ns = identity.mtime_ns, identity.ctime_ns
            session.add(row)

    @again
    def begin_replica(
        self,
        identity: Identity,
        signature: Signature,
        access_map: AccessMap,
        layout: Layout,
        *,
        purpose: Purpose = "read",
        lease: Lease | None = None,
    ) -> Replica:
        """A new replica, ``planned``, of an original that ``set_original`` made known, to be built under ``lease``."""
        with self._session(once=True) as session:
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
                state="planned",
                why="",
                created=datetime.now(UTC),
                purpose=purpose,
                fence=lease.token if lease else 0,
            )
            session.add(row)
            session.flush()
            return _replica(row)

    @again
    def set_components(self, replica_id: int, components: Sequence[Component]) -> Replica:
        """The files that a replica, ``building`` now, is about to have: on record first, so that gc finds them."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            row.state = "building"
            row.components = [_component_row(number, component) for number, component in enumerate(components)]
            return _replica(row)

    @again
    def finish_replica(
        self,
        replica_id: int,
        components: Sequence[Component],
        checksums: Sequence[Sequence[Checksum]],
        lease: Lease | None = None,
        replaces: Sequence[int] = (),
    ) -> Replica:
        """The files are complete, verified and durable: the replica is ``valid``, if the lease is still this one's.

        At the same moment those that it ``replaces`` are retired: of the same bytes one replica is valid.

        Raises:
            BusyError: another process has taken over.
        """
        with self._session(once=True) as session:
            if lease is not None:
                leases.check(session, lease)
            row = _existing(session, replica_id)
            for old, component, extents in zip(row.components, components, checksums, strict=True):
                old.path, old.size, old.inode = str(component.path), component.size, component.inode
                old.mtime_ns, old.crc32c = component.mtime_ns, component.crc32c
                old.placement = component.placement
                old.extents = [ExtentRow(offset=e.offset, length=e.length, crc32c=e.crc32c) for e in extents]
            row.state = "valid"
            for replaced in replaces:
                other = _existing(session, replaced)
                other.state, other.why = "retired", f"replaced by replica {replica_id}"
            session.flush()
            return _replica(row)

    @again
    def mark(self, replica_id: int, state: State, why: str) -> None:
        """Change the state of a replica, and say why."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            row.state, row.why = state, why

    @again
    def mark_stale(self, whys: Mapping[int, str]) -> None:
        """Replicas by number that are no copies any more, and why; all of them or none."""
        with self._session(once=True) as session:
            for number, why in whys.items():
                session.execute(update(ReplicaRow).where(ReplicaRow.id == number).values(state="stale", why=why))

    @again
    def forget_replica(self, replica_id: int) -> None:
        """Remove the row (after its files), and the original's with its last replica."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            original = row.original
            session.delete(row)
            session.flush()
            session.refresh(original)
            if not original.replicas:
                session.delete(original)

    @again
    def add_result(self, report: Report) -> None:
        """Keep the merged report of a redirected run, and count which replicas it used."""
        document, now = report.to_json(), datetime.now(UTC)
        read = Counter[int]()
        for used in (used for file in document["files"] for used in file["replicas"] if used["bytes"]):
            read[used["id"]] += used["bytes"]
        with self._session(once=True) as session:
            session.add(ResultRow(time=now, report=document))
            for replica_id, size in sorted(read.items()):
                more = {"runs": ReplicaRow.runs + 1, "bytes_read": ReplicaRow.bytes_read + size, "used": now}
                session.execute(update(ReplicaRow).where(ReplicaRow.id == replica_id).values(more))

    @again
    def results(self, last: int | None = None) -> list[Result]:
        """The reports of redirected runs (the ``last`` ones), in the order in which they came in."""
        with self._session() as session:
            rows = session.scalars(select(ResultRow).order_by(ResultRow.id.desc()).limit(last)).all()
            return [Result(runs.utc(row.time), row.report) for row in reversed(rows)]

    @again
    def add_simulation(self, answer: Mapping[str, Any]) -> None:
        """Keep what pdla simulate answered."""
        with self._session(once=True) as session:
            session.add(SimulationRow(time=datetime.now(UTC), answer=dict(answer)))

    @again
    def simulations(self, last: int | None = None) -> list[Simulation]:
        """What was simulated (the ``last`` times), in the order in which it was."""
        with self._session() as session:
            rows = session.scalars(select(SimulationRow).order_by(SimulationRow.id.desc()).limit(last)).all()
            return [Simulation(runs.utc(row.time), row.answer) for row in reversed(rows)]

    @again
    def record_run(self, run: Run, found: Sequence[Occurrence], phases: Sequence[Phase] = ()) -> Recorded:
        """Keep a traced run, its patterns and its phases; new patterns enter the replication queue.

        A run that is there already, which the fingerprint of its trace tells, is replaced.
        """
        with self._session(alone=True, once=True) as session:
            return runs.record(session, run, found, phases)

    @again
    def patterns(
        self, *, file: str = "*", application: str = "*", ranks: int | None = None, state: QueueState | None = None
    ) -> list[Pattern]:
        """The patterns by number: of a file and of an application's command (globs), of runs of so many ranks, in this
        state of the queue."""
        with self._session() as session:
            return runs.patterns(session, file, application, ranks, state)

    @again
    def pattern(self, pattern_id: int) -> tuple[Pattern, list[tuple[Run, Occurrence]]]:
        """A pattern, the runs that have it, and how it was in each.

        Raises:
            PdlaError: there is no such pattern.
        """
        with self._session() as session:
            return runs.pattern(session, pattern_id)

    @again
    def run(self, run_id: int) -> tuple[Run, list[Occurrence]]:
        """A run, and its patterns as they were in it.

        Raises:
            PdlaError: there is no such run.
        """
        with self._session() as session:
            return runs.run(session, run_id)

    @again
    def phases(self, run_id: int) -> list[Phase]:
        """The phases of a run, file by file."""
        with self._session() as session:
            return runs.phases(session, run_id)

    @again
    def settle(self, signatures: Collection[Signature], state: QueueState, why: str = "") -> None:
        """Say what became of those of these patterns that are in the queue, and why."""
        with self._session(once=True) as session:
            runs.settle(session, signatures, state, why)

    @again
    def postpone(self, pattern_id: int, why: str) -> None:
        """Say why a pattern waits still."""
        with self._session(once=True) as session:
            session.execute(update(QueueRow).where(QueueRow.pattern_id == pattern_id).values(why=why))

    @again
    def queue_plan(self, document: Mapping[str, Any], chosen: Sequence[Signature]) -> int:
        """Keep a plan for the daemon to build the replicas of these patterns of it; returns how many are known.

        The catalog knows patterns of analyzed runs. Plans that no pattern waits for any more are forgotten.
        """
        with self._session(alone=True, once=True) as session:
            return runs.queue_plan(session, document, chosen)

    @again
    def plan(self, number: int) -> Mapping[str, Any]:
        """A plan that was queued.

        Raises:
            PdlaError: there is no such plan.
        """
        with self._session() as session:
            return runs.plan(session, number)


def _forget_marks(session: Session) -> None:
    """Of commits that nobody asks about any more: those of processes that were killed."""
    marks = session.execute(select(MetaRow.key, MetaRow.value).where(MetaRow.key.startswith(MARK)))
    before = session.scalars(select(Now())).one() - MARK_SECONDS
    old = [key for key, time in marks if float(time) < before]
    session.execute(delete(MetaRow).where(MetaRow.key.in_(old)))


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
        placement=component.placement,
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
        components=tuple(
            Component(Path(c.path), c.size, c.inode, c.mtime_ns, c.crc32c, c.placement) for c in row.components
        ),
        purpose=cast(Purpose, row.purpose),
        fence=row.fence,
    )
