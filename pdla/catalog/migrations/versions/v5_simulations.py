"""Version 5: what was simulated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "simulations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
    )
    op.execute("UPDATE meta SET value = '5' WHERE key = 'schema'")
