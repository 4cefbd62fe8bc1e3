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
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Double,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
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


def _column(name: str, *about: Any, **options: Any) -> Column[Any]:
    """A column that has a value in every row."""
    return Column(name, *about, nullable=False, **options)


_TIME = DateTime(timezone=True)

TABLES = MetaData()
"""All tables."""

META = Table(
    "meta",
    TABLES,
    Column("key", Word(32), primary_key=True),
    _column("value", Word(64)),
)
"""``schema``: the version. ``token``: this catalog's name in pools. ``generation``: that of the last published map.
``fence``: the token of the last lease."""

ORIGINALS = Table(
    "originals",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("path", ExactPath),
    _column("device", Unsigned64),
    _column("inode", Unsigned64),
    _column("size", Signed64),
    _column("mtime_ns", Signed64),
    _column("ctime_ns", Signed64),
    UniqueConstraint("device", "inode"),
)
"""A replicated file and the state in which its replicas are copies of it."""

REPLICAS = Table(
    "replicas",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("original_id", ForeignKey("originals.id"), index=True),
    _column("signature", JSON),
    _column("access_map", JSON),
    _column("layout", JSON),
    _column("pool", Word),
    _column("size", Signed64),
    _column("state", Word(16)),
    _column("why", Word, default=""),
    _column("created", _TIME),
    _column("purpose", Word(8), default="read"),
    _column("fence", Signed64, default=0),
    _column("runs", Signed32, default=0),
    _column("bytes_read", Signed64, default=0),
    Column("used", _TIME),
    CheckConstraint(f"state IN {STATES}", name="replicas_state"),
    CheckConstraint(f"purpose IN {PURPOSES}", name="replicas_purpose"),
    sqlite_autoincrement=True,
)
"""A replica. Its number is never used again: it names component files."""

COMPONENTS = Table(
    "components",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("replica_id", ForeignKey("replicas.id", ondelete="CASCADE")),
    _column("number", Signed32),
    _column("path", ExactPath),
    _column("size", Signed64),
    _column("inode", Unsigned64, default=0),
    _column("mtime_ns", Signed64, default=0),
    _column("crc32c", Signed64, default=0),
    _column("placement", Printable, default="", server_default=""),
    UniqueConstraint("replica_id", "number"),
)
"""A file of a replica."""

EXTENTS = Table(
    "extents",
    TABLES,
    Column("component_id", ForeignKey("components.id", ondelete="CASCADE"), primary_key=True),
    Column("offset", Signed64, primary_key=True),
    _column("length", Signed64),
    _column("crc32c", Signed64),
)
"""The checksum of a piece of a component."""

RESULTS = Table(
    "results",
    TABLES,
    Column("id", Signed32, primary_key=True),
    Column("run", Word(64), unique=True, index=True),
    _column("time", _TIME),
    _column("report", JSON),
)
"""The merged report of a redirected run."""

SIMULATIONS = Table(
    "simulations",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("time", _TIME),
    _column("answer", JSON),
)
"""An answer of pdla simulate (docs/json.md)."""

CRITICAL = Table(
    "critical",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("path", ExactPath, unique=True),
    _column("reads", JSON),
    _column("seen", _TIME),
    Column("replica_id", Signed32),
)
"""The critical reads of a file (CriticalData, as JSON), and the replica with those that had room."""

APPLICATIONS = Table(
    "applications",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("digest", Word(64), unique=True),
    _column("command", Printable),
    _column("ranks", Signed32),
)
"""A command with a number of ranks. Its files are those of its runs."""

RUNS = Table(
    "runs",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("application_id", ForeignKey("applications.id"), index=True),
    _column("trace", Word(64), unique=True),
    _column("path", Printable),
    _column("source", Word(16)),
    Column("started", _TIME),
    _column("analyzed", _TIME),
    _column("mpi", Word),
    _column("hosts", JSON),
    _column("environment", JSON),
    _column("files", JSON),
    _column("requests", Signed64),
    _column("bytes", Signed64),
)
"""A traced run of an application, in the environment that it had."""

PATTERNS = Table(
    "patterns",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("digest", Word(64), unique=True),
    _column("file", Printable),
    _column("op", Word(8)),
    _column("scope", Word(8)),
    _column("ranks", Signed32),
    _column("requests", Signed64),
    _column("bytes", Signed64),
    _column("signature", JSON),
)
"""An I/O signature, once for all runs that have it."""

OCCURRENCES = Table(
    "occurrences",
    TABLES,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Signed32, primary_key=True),
    _column("pattern_id", ForeignKey("patterns.id"), index=True),
    _column("calls", Signed64),
    _column("t_start", Real),
    _column("t_end", Real),
    _column("aspects", JSON),
)
"""A pattern in a run: its place among the run's patterns, its aspects there, and its phases."""

PHASES = Table(
    "phases",
    TABLES,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Signed32, primary_key=True),
    _column("file", Printable),
    _column("phase", Signed32),
    _column("begins", Word(8)),
    _column("t_start", Real),
    _column("t_end", Real),
    _column("ranks", Signed32),
    _column("calls", Signed64),
    _column("bytes_read", Signed64),
    _column("bytes_written", Signed64),
)
"""A phase of a run's use of a file."""

PLANS = Table(
    "plans",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("created", _TIME),
    _column("document", JSON),
)
"""A plan for the daemon to carry out."""

QUEUE = Table(
    "queue",
    TABLES,
    Column("pattern_id", ForeignKey("patterns.id", ondelete="CASCADE"), primary_key=True),
    _column("state", Word(16), index=True),
    _column("since", _TIME),
    Column("plan_id", ForeignKey("plans.id")),
    _column("why", Printable, default=""),
)
"""The state of a pattern since it was first seen, and its plan."""

LEASES = Table(
    "leases",
    TABLES,
    Column("resource", Word(255), primary_key=True),
    _column("holder", Word),
    _column("token", Signed64),
    _column("expires", Real),
)
"""The right of ``holder`` to work on ``resource``, until the database's clock shows ``expires``."""

AUTOPILOT_APPLICATIONS = Table(
    "autopilot_applications",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("owner", Word(64)),
    _column("key", Word(64)),
    _column("name", Printable),
    UniqueConstraint("owner", "key"),
)
"""A program of a user, whatever its ranks and input files; ``key`` is the digest of ``name``."""

AUTOPILOT_RUNS = Table(
    "autopilot_runs",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("application_id", ForeignKey("autopilot_applications.id"), index=True),
    _column("name", Word(64), unique=True),
    _column("time", _TIME),
    _column("facts", JSON),
)
"""A run that the autopilot learned from (RunFacts, as JSON)."""

AUTOPILOT_DECISIONS = Table(
    "autopilot_decisions",
    TABLES,
    Column("id", Signed32, primary_key=True),
    _column("owner", Word(64)),
    Column("application_id", Signed32),
    _column("name", Word(160), unique=True),
    _column("time", _TIME),
    _column("kind", Word(16)),
    Column("pattern", Word(64), index=True),
    Column("replica_id", Signed32, index=True),
    _column("why", Printable),
    _column("facts", JSON),
    Column("undone", _TIME),
)
"""What the autopilot did, and why; ``name`` is the same if it does it again after a kill."""
