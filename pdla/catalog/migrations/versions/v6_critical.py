"""Version 6: what S4D-Cache found critical while programs ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "critical",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("path", sa.Text, nullable=False, unique=True),
        sa.Column("reads", sa.JSON, nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("replica_id", sa.Integer, nullable=True),
    )
    op.execute("UPDATE meta SET value = '6' WHERE key = 'schema'")
