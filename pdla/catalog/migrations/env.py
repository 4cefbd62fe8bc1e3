"""What Alembic runs: the migrations on the connection, and in the transaction, that `upgrade` has open."""

from __future__ import annotations

from alembic import context

# RATIONALE: SQLite can undo DDL, but Alembic does not expect that. In one transaction a catalog has
# either the old or the new version, whenever a process is killed.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
