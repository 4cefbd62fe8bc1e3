"""A PostgreSQL server of the tests' own: in a directory of its own, reached by a socket there, gone after the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mpi import unavailable

USER = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root


def _binaries() -> Path | None:
    """Debian keeps them out of PATH, by version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a running server, without a database's name."""
    binaries = _binaries()
    if binaries is None:
        unavailable("PostgreSQL is not installed: there is no initdb")
    assert binaries is not None
    # Not in pytest's directory, which root's server user may not enter; and a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="pdla-postgresql-"))
    if USER:
        shutil.chown(folder, USER)
    data = folder / "data"

    def run(program: str, *words: str | Path) -> None:
        # The server outlives its starter and would keep a pipe open: what is said goes into a file.
        with (folder / "output").open("a") as output:
            command = [binaries / program, "-D", data, *words]
            subprocess.run(command, check=True, user=USER, cwd=folder, stdout=output, stderr=subprocess.STDOUT)

    try:
        run("initdb", "--auth=trust", "--no-sync", "--encoding=UTF8")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "--wait", "--log", folder / "log", "-o", options, "start")
        yield f"postgresql://{USER or getpass.getuser()}@/{{database}}?host={folder}"
        run("pg_ctl", "--wait", "--mode=immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
