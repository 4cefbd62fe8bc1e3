"""Version 4: where the storage put each component."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Nothing is known of the components that there are."""
    op.add_column("components", sa.Column("placement", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE meta SET value = '4' WHERE key = 'schema'")
