"""Version 2: applications, their traced runs, the patterns in them, and the replication queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "applications",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("ranks", sa.Integer, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("application_id", sa.Integer, sa.ForeignKey("applications.id"), nullable=False, index=True),
        sa.Column("trace", sa.String(64), nullable=False, unique=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True)),
        sa.Column("analyzed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mpi", sa.String, nullable=False),
        sa.Column("hosts", sa.JSON, nullable=False),
        sa.Column("environment", sa.JSON, nullable=False),
        sa.Column("files", sa.JSON, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "patterns",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("op", sa.String(8), nullable=False),
        sa.Column("scope", sa.String(8), nullable=False),
        sa.Column("ranks", sa.Integer, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("signature", sa.JSON, nullable=False),
    )
    op.create_table(
        "occurrences",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("pattern_id", sa.Integer, sa.ForeignKey("patterns.id"), nullable=False, index=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("t_start", sa.Float, nullable=False),
        sa.Column("t_end", sa.Float, nullable=False),
        sa.Column("aspects", sa.JSON, nullable=False),
    )
    op.create_table(
        "phases",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("phase", sa.Integer, nullable=False),
        sa.Column("begins", sa.String(8), nullable=False),
        sa.Column("t_start", sa.Float, nullable=False),
        sa.Column("t_end", sa.Float, nullable=False),
        sa.Column("ranks", sa.Integer, nullable=False),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("bytes_read", sa.BigInteger, nullable=False),
        sa.Column("bytes_written", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "queue",
        sa.Column("pattern_id", sa.Integer, sa.ForeignKey("patterns.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
    )
    op.execute("UPDATE meta SET value = '2' WHERE key = 'schema'")
