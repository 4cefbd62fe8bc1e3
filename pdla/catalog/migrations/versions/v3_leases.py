"""Version 3: leases, plans in the queue, what replicas are for and how they were used, and paths of any bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

STATES = "state IN ('planned', 'building', 'valid', 'dirty', 'stale', 'retired')"
PURPOSES = "purpose IN ('read', 'write')"


def upgrade() -> None:
    """Make the new tables and columns, and fill them from what is there."""
    op.create_table(
        "leases",
        sa.Column("resource", sa.String(255), primary_key=True),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
    )
    # Written out, for Alembic would add the reference apart, which SQLite cannot.
    op.execute("ALTER TABLE queue ADD COLUMN plan_id INTEGER REFERENCES plans (id)")
    op.add_column("queue", sa.Column("why", sa.Text, nullable=False, server_default=""))
    _extend_replicas()
    _count_uses()
    for table in ("originals", "components"):
        if op.get_bind().dialect.name == "postgresql":
            op.alter_column(table, "path", type_=sa.Text)
        op.execute(f"UPDATE {table} SET path = REPLACE(path, '\\', '\\x5c')")
    op.execute("INSERT INTO meta VALUES ('fence', '0')")
    op.execute("UPDATE meta SET value = '3' WHERE key = 'schema'")


def _extend_replicas() -> None:
    """New columns and constraints; SQLite has to make the table anew, and must not forget which numbers were used."""
    bind = op.get_bind()
    sqlite = bind.dialect.name == "sqlite"
    if sqlite:
        last = bind.scalar(sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'replicas'")) or 0
    else:
        op.drop_constraint("replicas_state_check", "replicas")
    checks = (sa.CheckConstraint(STATES, name="replicas_state"), sa.CheckConstraint(PURPOSES, name="replicas_purpose"))
    with op.batch_alter_table(
        "replicas",
        recreate="always" if sqlite else "never",
        table_args=checks,
        table_kwargs={"sqlite_autoincrement": True},
    ) as batch:
        batch.add_column(sa.Column("purpose", sa.String(8), nullable=False, server_default="read"))
        batch.add_column(sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"))
        batch.add_column(sa.Column("runs", sa.Integer, nullable=False, server_default="0"))
        batch.add_column(sa.Column("bytes_read", sa.BigInteger, nullable=False, server_default="0"))
        batch.add_column(sa.Column("used", sa.DateTime(timezone=True)))
        if not sqlite:
            batch.create_check_constraint("replicas_state", STATES)
            batch.create_check_constraint("replicas_purpose", PURPOSES)
    if sqlite:
        op.execute("DELETE FROM sqlite_sequence WHERE name = 'replicas'")
        op.execute(f"INSERT INTO sqlite_sequence VALUES ('replicas', {last})")


def _count_uses() -> None:
    """How often runs used each replica, by the reports that are kept."""
    bind = op.get_bind()
    results = sa.table("results", sa.column("id"), sa.column("time", sa.DateTime), sa.column("report", sa.JSON))
    replicas = sa.table("replicas", *map(sa.column, ("id", "runs", "bytes_read")), sa.column("used", sa.DateTime))
    for _, time, report in bind.execute(sa.select(results).order_by(results.c.id)):
        for replica, size in _used(report):
            more = {"runs": replicas.c.runs + 1, "bytes_read": replicas.c.bytes_read + size, "used": time}
            bind.execute(sa.update(replicas).where(replicas.c.id == replica).values(more))


def _used(report: Any) -> Iterator[tuple[int, int]]:
    for file in report.get("files", ()):
        for replica in file["replicas"]:
            if replica["bytes"]:
                yield replica["id"], replica["bytes"]
