"""Version 1: replicas of files, and what redirected runs reported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "meta",
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("value", sa.String(64), nullable=False),
    )
    op.create_table(
        "originals",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("device", sa.BigInteger, nullable=False),
        sa.Column("inode", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
        sa.Column("ctime_ns", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("device", "inode"),
    )
    op.create_table(
        "replicas",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("original_id", sa.Integer, sa.ForeignKey("originals.id"), nullable=False, index=True),
        sa.Column("signature", sa.JSON, nullable=False),
        sa.Column("access_map", sa.JSON, nullable=False),
        sa.Column("layout", sa.JSON, nullable=False),
        sa.Column("pool", sa.String, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('building', 'valid', 'stale', 'retired')"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "components",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("replica_id", sa.Integer, sa.ForeignKey("replicas.id", ondelete="CASCADE"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("inode", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
        sa.Column("crc32c", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("replica_id", "number"),
    )
    op.create_table(
        "extents",
        sa.Column("component_id", sa.Integer, sa.ForeignKey("components.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True),
        sa.Column("length", sa.BigInteger, nullable=False),
        sa.Column("crc32c", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "results",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
    )
