"""Version 7: reports of redirected runs have the name of their run, so that each is recorded once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Add the column. Runs from before have no name."""
    op.add_column("results", sa.Column("run", sa.String(64), nullable=True))
    op.create_index("ix_results_run", "results", ["run"], unique=True)
    op.execute("UPDATE meta SET value = '7' WHERE key = 'schema'")
