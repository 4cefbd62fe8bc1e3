"""A private PostgreSQL server: in its own directory, reached by a socket there, removed after the tests."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.support.mpi import unavailable

USER = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root


def _binaries() -> Path | None:
    """The server's programs; Debian keeps them out of PATH, by version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class PostgreSQLServer:
    """A server in a directory of its own."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder = binaries, folder
        self.url = f"postgresql://{USER or getpass.getuser()}@/{{database}}?host={folder}"
        """Without a database's name."""

    def make(self) -> None:
        """Make its files."""
        if USER:
            shutil.chown(self._folder, USER)
        self._run("initdb", "--auth=trust", "--no-sync", "--encoding=UTF8")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c fsync=off"
        self._run("pg_ctl", "--wait", "--log", self._folder / "log", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as if it had crashed."""
        self._run("pg_ctl", "--wait", "--mode=immediate", "stop")

    def new_database(self) -> str:
        """The URL of an empty database."""
        return new_database(self.url)

    def administer(self, *statements: str) -> None:
        """Let it carry out statements, each in a transaction of its own."""
        _administer(self.url, *statements)

    def _run(self, program: str, *words: str | Path) -> None:
        # The server outlives its starter and would keep a pipe open: output goes into a file.
        with (self._folder / "output").open("a") as output:
            command = [self._binaries / program, "-D", self._folder / "data", *words]
            subprocess.run(command, check=True, user=USER, cwd=self._folder, stdout=output, stderr=subprocess.STDOUT)


def new_database(server: str) -> str:
    """The URL of an empty database of a server."""
    name = f"pdla_{secrets.token_hex(4)}"
    _administer(server, f"CREATE DATABASE {name}")
    return server.format(database=name)


def _administer(server: str, *statements: str) -> None:
    url = server.replace("postgresql:", "postgresql+psycopg:").format(database="postgres")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


@contextmanager
def _running() -> Iterator[PostgreSQLServer]:
    binaries = _binaries()
    if binaries is None:
        unavailable("PostgreSQL is not installed: there is no initdb")
    assert binaries is not None
    # Not in pytest's directory, which root's server user may not enter; and a socket's path must be
    # short.
    folder = Path(tempfile.mkdtemp(prefix="pdla-postgresql-"))
    server = PostgreSQLServer(binaries, folder)
    try:
        server.make()
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a running server, without a database's name."""
    with _running() as server:
        yield server.url


@pytest.fixture(scope="module")
def own_postgresql() -> Iterator[PostgreSQLServer]:
    """A running server that a module may stop and must start again."""
    with _running() as server:
        yield server
