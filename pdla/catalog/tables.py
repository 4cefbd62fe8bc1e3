"""The tables of the catalog, schema version 1. They hold for any database that SQLAlchemy speaks to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    Integer,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from pdla.catalog.records import STATES

SCHEMA_VERSION = 1


class Unsigned64(TypeDecorator[int]):
    """Device and inode numbers use all 64 bits; databases have signed integers only."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        """Two's complement."""
        return value - (1 << 64) if value is not None and value >= 1 << 63 else value

    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:
        """Two's complement, back."""
        return value + (1 << 64) if value is not None and value < 0 else value


class Base(DeclarativeBase):
    """The metadata of schema version 1."""

    type_annotation_map = {dict[str, Any]: JSON, datetime: DateTime(timezone=True)}  # noqa: RUF012


class MetaRow(Base):
    """``schema``: the version; ``token``: this catalog's name in pools; ``generation``: of the last published map."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[str] = mapped_column(String(64))


class OriginalRow(Base):
    """A replicated file and the state in which its replicas are copies of it."""

    __tablename__ = "originals"
    __table_args__ = (UniqueConstraint("device", "inode"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    device: Mapped[int] = mapped_column(Unsigned64)
    inode: Mapped[int] = mapped_column(Unsigned64)
    size: Mapped[int] = mapped_column(BigInteger)
    mtime_ns: Mapped[int] = mapped_column(BigInteger)
    ctime_ns: Mapped[int] = mapped_column(BigInteger)
    replicas: Mapped[list[ReplicaRow]] = relationship(back_populates="original")


class ReplicaRow(Base):
    """A replica. Its number is never used again: it names component files."""

    __tablename__ = "replicas"
    __table_args__ = (
        CheckConstraint("state IN ({})".format(", ".join(f"'{state}'" for state in STATES))),
        {"sqlite_autoincrement": True},
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    original_id: Mapped[int] = mapped_column(ForeignKey("originals.id"), index=True)
    signature: Mapped[dict[str, Any]]
    access_map: Mapped[dict[str, Any]]
    layout: Mapped[dict[str, Any]]
    pool: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    why: Mapped[str] = mapped_column(default="")
    created: Mapped[datetime]
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
    number: Mapped[int] = mapped_column(Integer)
    path: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    inode: Mapped[int] = mapped_column(Unsigned64, default=0)
    mtime_ns: Mapped[int] = mapped_column(BigInteger, default=0)
    crc32c: Mapped[int] = mapped_column(BigInteger, default=0)
    extents: Mapped[list[ExtentRow]] = relationship(
        order_by="ExtentRow.offset", cascade="all, delete-orphan", passive_deletes=True
    )


class ExtentRow(Base):
    """The checksum of a piece of a component."""

    __tablename__ = "extents"
    component_id: Mapped[int] = mapped_column(ForeignKey("components.id", ondelete="CASCADE"), primary_key=True)
    offset: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    length: Mapped[int] = mapped_column(BigInteger)
    crc32c: Mapped[int] = mapped_column(BigInteger)


class ResultRow(Base):
    """The merged report of a redirected run."""

    __tablename__ = "results"
    id: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[datetime]
    report: Mapped[dict[str, Any]]
