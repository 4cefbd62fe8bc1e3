"""Update the tables of a catalog to the version that this pdla works with."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect

_MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, version: str | None, to: str = "head") -> None:
    """Run the migrations that a catalog of this version (None: an empty database) lacks, in the open transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if version is not None and "alembic_version" not in inspect(connection).get_table_names():
        command.stamp(config, version)  # its tables were made without migrations
    command.upgrade(config, to)
