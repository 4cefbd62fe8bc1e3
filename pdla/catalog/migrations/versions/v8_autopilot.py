"""Version 8: what the autopilot learned of applications, and what it did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "autopilot_applications",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.UniqueConstraint("owner", "key"),
    )
    op.create_table(
        "autopilot_runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("application_id", sa.Integer, sa.ForeignKey("autopilot_applications.id"), nullable=False),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("facts", sa.JSON, nullable=False),
    )
    op.create_index("ix_autopilot_runs_application_id", "autopilot_runs", ["application_id"])
    op.create_table(
        "autopilot_decisions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("application_id", sa.Integer, nullable=True),
        sa.Column("name", sa.String(160), nullable=False, unique=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("pattern", sa.String(64), nullable=True),
        sa.Column("replica_id", sa.Integer, nullable=True),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.Column("undone", sa.DateTime(timezone=True), nullable=True),
    )
    op.create_index("ix_autopilot_decisions_pattern", "autopilot_decisions", ["pattern"])
    op.create_index("ix_autopilot_decisions_replica_id", "autopilot_decisions", ["replica_id"])
    op.execute("UPDATE meta SET value = '8' WHERE key = 'schema'")
