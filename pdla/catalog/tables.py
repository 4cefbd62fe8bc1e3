"""The tables of the catalog, as the last migration leaves them, for any database that SQLAlchemy supports."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ColumnElement,
    DateTime,
    Dialect,
    Double,
    Float,
    ForeignKey,
    Integer,
    String,
    Text,
    UniqueConstraint,
    func,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from pdla.catalog.records import PURPOSES, STATES

SCHEMA_VERSION = 8
"""The number of the last migration."""


class Now(FunctionElement[float]):
    """Seconds since 1970 by the database's clock: nodes that share a catalog need not agree on the time."""

    type = Float()
    inherit_cache = True


@compiles(Now)
def _now(element: Now, compiler: Any, **_: Any) -> str:
    return "EXTRACT(EPOCH FROM clock_timestamp())"


@compiles(Now, "sqlite")
def _now_sqlite(element: Now, compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


def utc(time: datetime) -> datetime:
    """The time with time zone UTC: SQLite stores no time zone."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


T = TypeVar("T")


class _Typed(TypeDecorator[T]):
    """RATIONALE: a column of SQLite holds values of any type. A value of another type than ``kind`` is damage."""

    kind: type[T]

    def process_result_value(self, value: T | None, dialect: Dialect) -> T | None:
        """``value``, checked.

        Raises:
            TypeError: it is of another type.
        """
        if value is not None and type(value) is not self.kind:
            raise TypeError(f"{value!r} is not of the type {self.kind.__name__}")
        return value


class Signed64(_Typed[int]):
    """A number of bytes, of requests or of nanoseconds."""

    impl, cache_ok, kind = BigInteger, True, int


class Signed32(_Typed[int]):
    """A number of rows, of ranks or of runs."""

    impl, cache_ok, kind = Integer, True, int


class Real(_Typed[float]):
    """Seconds."""

    impl, cache_ok, kind = Double, True, float


class Word(_Typed[str]):
    """A text that has only characters."""

    impl, cache_ok, kind = String, True, str


class Unsigned64(Signed64):
    """Device and inode numbers use all 64 bits; databases have signed integers only."""

    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        """Two's complement."""
        return value - (1 << 64) if value is not None and value >= 1 << 63 else value

    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:
        """Two's complement, back."""
        value = super().process_result_value(value, dialect)
        return value + (1 << 64) if value is not None and value < 0 else value


def printable(text: str) -> str:
    """``text`` as databases can hold it: NUL, and bytes of a path that are not characters, become escapes.

    >>> printable("/data/m\\udce4rz")
    '/data/m\\\\xe4rz'
    """
    return text.replace("\0", r"\x00").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Printable(_Typed[str]):
    """Paths and commands, to find and to show; exact values are in JSON."""

    impl, cache_ok, kind = Text, True, str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """As ``printable``."""
        return None if value is None else printable(value)


class ExactPath(_Typed[str]):
    """A path that is read exactly as it was written: backslashes, and bytes that are not characters, become escapes."""

    impl, cache_ok, kind = Text, True, str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The path with escapes."""
        return None if value is None else printable(value.replace("\\", r"\x5c"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """The path without escapes."""
        value = super().process_result_value(value, dialect)
        if value is None or "\\" not in value:
            return value
        return os.fsdecode(_ESCAPE.sub(_unescape, value.encode()))


def is_inside(path: Any, directory: str) -> ColumnElement[bool]:
    """Whether a path of a column of the type ``ExactPath`` is inside of a directory.

    RATIONALE: LIKE of SQLite takes small letters for capitals.
    """
    prefix = str(Path(directory)).rstrip("/") + "/"
    stored = printable(prefix.replace("\\", r"\x5c"))
    return type_coerce(func.substr(path, 1, len(stored)), Text) == stored


_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def _unescape(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[1].decode())


class Base(DeclarativeBase):
    """The metadata of all tables."""

    type_annotation_map = {  # noqa: RUF012
        dict[str, Any]: JSON,
        list[str]: JSON,
        datetime: DateTime(timezone=True),
        int: Signed32,
        float: Real,
        str: Word,
    }


class MetaRow(Base):
    """``schema``: the version. ``token``: this catalog's name in pools. ``generation``: that of the last published map.
    ``fence``: the token of the last lease."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(Word(32), primary_key=True)
    value: Mapped[str] = mapped_column(Word(64))


class OriginalRow(Base):
    """A replicated file and the state in which its replicas are copies of it."""

    __tablename__ = "originals"
    __table_args__ = (UniqueConstraint("device", "inode"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(ExactPath)
    device: Mapped[int] = mapped_column(Unsigned64)
    inode: Mapped[int] = mapped_column(Unsigned64)
    size: Mapped[int] = mapped_column(Signed64)
    mtime_ns: Mapped[int] = mapped_column(Signed64)
    ctime_ns: Mapped[int] = mapped_column(Signed64)
    replicas: Mapped[list[ReplicaRow]] = relationship(back_populates="original")


class ReplicaRow(Base):
    """A replica. Its number is never used again: it names component files."""

    __tablename__ = "replicas"
    __table_args__ = (
        CheckConstraint(f"state IN {STATES}", name="replicas_state"),
        CheckConstraint(f"purpose IN {PURPOSES}", name="replicas_purpose"),
        {"sqlite_autoincrement": True},
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    original_id: Mapped[int] = mapped_column(ForeignKey("originals.id"), index=True)
    signature: Mapped[dict[str, Any]]
    access_map: Mapped[dict[str, Any]]
    layout: Mapped[dict[str, Any]]
    pool: Mapped[str]
    size: Mapped[int] = mapped_column(Signed64)
    state: Mapped[str] = mapped_column(Word(16))
    why: Mapped[str] = mapped_column(default="")
    created: Mapped[datetime]
    purpose: Mapped[str] = mapped_column(Word(8), default="read")
    fence: Mapped[int] = mapped_column(Signed64, default=0)
    runs: Mapped[int] = mapped_column(default=0)
    bytes_read: Mapped[int] = mapped_column(Signed64, default=0)
    used: Mapped[datetime | None]
    original: Mapped[OriginalRow] = relationship(back_populates="replicas", lazy="joined")
    components: Mapped[list[ComponentRow]] = relationship(
        order_by="ComponentRow.number", cascade="all, delete-orphan", lazy="selectin"
    )


class ComponentRow(Base):
    """A file of a replica."""

    __tablename__ = "components"
    __table_args__ = (UniqueConstraint("replica_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    replica_id: Mapped[int] = mapped_column(ForeignKey("replicas.id", ondelete="CASCADE"))
    number: Mapped[int]
    path: Mapped[str] = mapped_column(ExactPath)
    size: Mapped[int] = mapped_column(Signed64)
    inode: Mapped[int] = mapped_column(Unsigned64, default=0)
    mtime_ns: Mapped[int] = mapped_column(Signed64, default=0)
    crc32c: Mapped[int] = mapped_column(Signed64, default=0)
    placement: Mapped[str] = mapped_column(Printable, default="", server_default="")
    extents: Mapped[list[ExtentRow]] = relationship(
        order_by="ExtentRow.offset", cascade="all, delete-orphan", passive_deletes=True
    )


class ExtentRow(Base):
    """The checksum of a piece of a component."""

    __tablename__ = "extents"
    component_id: Mapped[int] = mapped_column(ForeignKey("components.id", ondelete="CASCADE"), primary_key=True)
    offset: Mapped[int] = mapped_column(Signed64, primary_key=True)
    length: Mapped[int] = mapped_column(Signed64)
    crc32c: Mapped[int] = mapped_column(Signed64)


class ResultRow(Base):
    """The merged report of a redirected run."""

    __tablename__ = "results"
    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str | None] = mapped_column(Word(64), unique=True, index=True)
    time: Mapped[datetime]
    report: Mapped[dict[str, Any]]


class SimulationRow(Base):
    """An answer of pdla simulate (docs/json.md)."""

    __tablename__ = "simulations"
    id: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[datetime]
    answer: Mapped[dict[str, Any]]


class CriticalRow(Base):
    """The critical reads of a file (CriticalData, as JSON), and the replica with those that had room."""

    __tablename__ = "critical"
    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(ExactPath, unique=True)
    reads: Mapped[dict[str, Any]]
    seen: Mapped[datetime]
    replica_id: Mapped[int | None]


class ApplicationRow(Base):
    """A command with a number of ranks. Its files are those of its runs."""

    __tablename__ = "applications"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Word(64), unique=True)
    command: Mapped[str] = mapped_column(Printable)
    ranks: Mapped[int]
    runs: Mapped[list[RunRow]] = relationship(back_populates="application", order_by="RunRow.id")


class RunRow(Base):
    """A traced run of an application, in the environment that it had."""

    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    application_id: Mapped[int] = mapped_column(ForeignKey("applications.id"), index=True)
    trace: Mapped[str] = mapped_column(Word(64), unique=True)
    path: Mapped[str] = mapped_column(Printable)
    source: Mapped[str] = mapped_column(Word(16))
    started: Mapped[datetime | None]
    analyzed: Mapped[datetime]
    mpi: Mapped[str]
    hosts: Mapped[list[str]]
    environment: Mapped[dict[str, Any]]
    files: Mapped[list[str]]
    requests: Mapped[int] = mapped_column(Signed64)
    bytes: Mapped[int] = mapped_column(Signed64)
    application: Mapped[ApplicationRow] = relationship(back_populates="runs", lazy="joined")


class PatternRow(Base):
    """An I/O signature, once for all runs that have it."""

    __tablename__ = "patterns"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Word(64), unique=True)
    file: Mapped[str] = mapped_column(Printable)
    op: Mapped[str] = mapped_column(Word(8))
    scope: Mapped[str] = mapped_column(Word(8))
    ranks: Mapped[int]
    requests: Mapped[int] = mapped_column(Signed64)
    bytes: Mapped[int] = mapped_column(Signed64)
    signature: Mapped[dict[str, Any]]
    queue: Mapped[QueueRow] = relationship(lazy="joined", innerjoin=True)


class OccurrenceRow(Base):
    """A pattern in a run: its place among the run's patterns, its aspects there, and its phases."""

    __tablename__ = "occurrences"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    pattern_id: Mapped[int] = mapped_column(ForeignKey("patterns.id"), index=True)
    calls: Mapped[int] = mapped_column(Signed64)
    t_start: Mapped[float]
    t_end: Mapped[float]
    aspects: Mapped[dict[str, Any]]


class PhaseRow(Base):
    """A phase of a run's use of a file."""

    __tablename__ = "phases"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    file: Mapped[str] = mapped_column(Printable)
    phase: Mapped[int]
    begins: Mapped[str] = mapped_column(Word(8))
    t_start: Mapped[float]
    t_end: Mapped[float]
    ranks: Mapped[int]
    calls: Mapped[int] = mapped_column(Signed64)
    bytes_read: Mapped[int] = mapped_column(Signed64)
    bytes_written: Mapped[int] = mapped_column(Signed64)


class PlanRow(Base):
    """A plan for the daemon to carry out."""

    __tablename__ = "plans"
    id: Mapped[int] = mapped_column(primary_key=True)
    created: Mapped[datetime]
    document: Mapped[dict[str, Any]]


class QueueRow(Base):
    """The state of a pattern since it was first seen, and its plan."""

    __tablename__ = "queue"
    pattern_id: Mapped[int] = mapped_column(ForeignKey("patterns.id", ondelete="CASCADE"), primary_key=True)
    state: Mapped[str] = mapped_column(Word(16), index=True)
    since: Mapped[datetime]
    plan_id: Mapped[int | None] = mapped_column(ForeignKey("plans.id"))
    why: Mapped[str] = mapped_column(Printable, default="")


class LeaseRow(Base):
    """The right of ``holder`` to work on ``resource``, until the database's clock shows ``expires``."""

    __tablename__ = "leases"
    resource: Mapped[str] = mapped_column(Word(255), primary_key=True)
    holder: Mapped[str]
    token: Mapped[int] = mapped_column(Signed64)
    expires: Mapped[float]


class AutopilotApplicationRow(Base):
    """A program of a user, whatever its ranks and input files; ``key`` is the digest of ``name``."""

    __tablename__ = "autopilot_applications"
    __table_args__ = (UniqueConstraint("owner", "key"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(Word(64))
    key: Mapped[str] = mapped_column(Word(64))
    name: Mapped[str] = mapped_column(Printable)


class AutopilotRunRow(Base):
    """A run that the autopilot learned from (RunFacts, as JSON)."""

    __tablename__ = "autopilot_runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    application_id: Mapped[int] = mapped_column(ForeignKey("autopilot_applications.id"), index=True)
    name: Mapped[str] = mapped_column(Word(64), unique=True)
    time: Mapped[datetime]
    facts: Mapped[dict[str, Any]]


class AutopilotDecisionRow(Base):
    """What the autopilot did, and why; ``name`` is the same if it does it again after a kill."""

    __tablename__ = "autopilot_decisions"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(Word(64))
    application_id: Mapped[int | None]
    name: Mapped[str] = mapped_column(Word(160), unique=True)
    time: Mapped[datetime]
    kind: Mapped[str] = mapped_column(Word(16))
    pattern: Mapped[str | None] = mapped_column(Word(64), index=True)
    replica_id: Mapped[int | None] = mapped_column(index=True)
    why: Mapped[str] = mapped_column(Printable)
    facts: Mapped[dict[str, Any]]
    undone: Mapped[datetime | None]
