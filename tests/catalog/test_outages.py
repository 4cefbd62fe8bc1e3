"""A database that is unreachable for a moment makes its clients wait: nothing is lost or done twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, create_engine, event, text

from pdla.catalog import Catalog, Checksum, Component, Occurrence, Run, open_catalog
from pdla.catalog.tables import TABLES
from pdla.critical_data import CriticalData
from pdla.errors import BusyError, CatalogError
from tests.support.catalog_entries import IDENTITY, LAYOUT, MAP, PATTERN, Plain
from tests.support.postgresql_server import PostgreSQLServer

CRITICAL = CriticalData(np.array([0]), np.array([10]), np.array([0.5]))
RUN = Run("./app", 2, "t", "/t.h5", "csv", None, "", (), {}, ("/data",), 32, 2048)

CLIENT = """
import sys
from contextlib import closing
from types import SimpleNamespace
from pdla.catalog import open_catalog
from pdla.errors import BusyError

def work(catalog, generation):
    with catalog.leases.hold(f"of {client}") as lease, catalog.exclusive(wait=1000):
        catalog.leases.check(lease)
        used = {"id": 1, "bytes": 1}
        report = {"generation": generation, "files": [{"replicas": [used]}]}
        catalog.results.add(SimpleNamespace(to_json=lambda: report))

url, client = sys.argv[1:]
for turns in iter(sys.stdin.readline, ""):
    with closing(open_catalog(url)) as catalog:
        for _ in range(int(turns)):
            generation = catalog.next_generation(0)
            while True:
                try:
                    work(catalog, generation)
                    break
                except BusyError:
                    pass
            print(generation, flush=True)
"""


@pytest.fixture
def catalog(own_postgresql: PostgreSQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path))
    with closing(open_catalog(own_postgresql.new_database())) as catalog:
        yield catalog


def lost_on_its_way(connection: Connection) -> None:
    """The server never hears of the commit."""
    connection.connection.dbapi_connection.close()  # type: ignore[union-attr]


def answer_lost(connection: Connection) -> None:
    """The server commits, and nobody hears of it."""
    connection.connection.dbapi_connection.commit()  # type: ignore[union-attr]
    lost_on_its_way(connection)


@contextmanager
def failing_once(catalog: Catalog, how: Callable[[Connection], None]) -> Iterator[None]:
    """The next commit fails in some way."""
    event.listen(catalog.database.engine, "commit", how, once=True)
    yield


def contents(catalog: Catalog) -> dict[str, list[Any]]:
    """All rows, without times and the marks of commits."""
    with create_engine(catalog.database.url).connect() as connection:
        found = {name: connection.execute(table.select()).mappings().all() for name, table in TABLES.tables.items()}
    times = ("created", "since", "time", "used", "analyzed", "seen", "expires", "holder")
    rows = {name: [{k: v for k, v in row.items() if k not in times} for row in rows] for name, rows in found.items()}
    rows["meta"] = [row for row in rows["meta"] if not row["key"].startswith(("commit ", "token"))]
    return {name: sorted(map(repr, some)) for name, some in rows.items()}


def everything(catalog: Catalog, how: Callable[[Connection], None] | None) -> list[Any]:
    """Make every possible change, each of them failing once, and return the results."""
    number = 0

    def do(method: str, *values: Any, **named: Any) -> Any:
        with failing_once(catalog, how or (lambda _: None)):
            returned.append(attrgetter(method)(catalog)(*values, **named))
        return returned[-1]

    returned: list[Any] = []
    lease = do("leases.acquire", "this")
    do("leases.renew", lease)
    do("next_generation", 5)
    do("originals.set", Path("/data"), IDENTITY)
    number = do("replicas.begin", IDENTITY, PATTERN, MAP, LAYOUT, lease=lease).id
    files = [Component(Path(f"/pool/{part}"), 100) for part in range(2)]
    do("replicas.set_components", number, files)
    do("replicas.finish", number, files, [[Checksum(0, 100, 1)]] * 2, lease)
    do("replicas.mark", number, "dirty", "because")
    do("replicas.mark_stale", {number: "because"})
    do("results.add", Plain({"files": [{"replicas": [{"id": number, "bytes": 7}]}]}))
    do("simulations.add", {"a": 1})
    do("critical.add", Path("/data"), CRITICAL)
    do("critical.add", Path("/data"), CRITICAL)
    do("critical.set_replica", Path("/data"), number)
    do("runs.record", RUN, [Occurrence(PATTERN, {})])
    do("queue.add_plan", {"a": 1}, [PATTERN])
    do("queue.set_state", [PATTERN], "failed", "no space")
    do("originals.set", Path("/other"), IDENTITY.__class__(1, 2, 3, 4, 5))
    other = do("replicas.begin", IDENTITY.__class__(1, 2, 3, 4, 5), PATTERN, MAP, LAYOUT).id
    do("replicas.forget", other)
    do("leases.release", lease)
    do("leases.end_expired")
    do("database.forget_marks")
    return returned


def without_numbers(returned: list[Any]) -> list[str]:
    return [type(one).__name__ for one in returned]


def test_a_change_whose_commit_was_answered_into_the_void_is_made_once(
    catalog: Catalog, own_postgresql: PostgreSQLServer
):
    with closing(open_catalog(own_postgresql.new_database())) as other:
        plain = everything(other, None)
        assert without_numbers(everything(catalog, answer_lost)) == without_numbers(plain)
        assert contents(catalog) == contents(other)


def test_a_change_whose_commit_was_never_heard_of_is_made(catalog: Catalog, own_postgresql: PostgreSQLServer):
    with closing(open_catalog(own_postgresql.new_database())) as other:
        everything(other, None)
        everything(catalog, lost_on_its_way)
        kept, wanted = contents(catalog), contents(other)  # but for numbers, which databases skip
        assert {name: len(rows) for name, rows in kept.items()} == {name: len(rows) for name, rows in wanted.items()}
        assert [(one.state, one.runs, one.bytes_read) for one in catalog.replicas.listing()] == [("stale", 1, 7)]


def test_the_marks_of_commits_are_removed(catalog: Catalog):
    everything(catalog, answer_lost)
    catalog.close()
    with create_engine(catalog.database.url).connect() as connection:
        assert connection.scalars(text("SELECT key FROM meta WHERE key LIKE 'commit%'")).all() == []


def test_marks_of_killed_processes_go_after_an_hour(catalog: Catalog):
    with create_engine(catalog.database.url).begin() as connection:
        now = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())"))
        for key, time in (("commit old", now - 3601), ("commit new", now)):
            connection.execute(text("INSERT INTO meta VALUES (:key, :value)"), {"key": key, "value": str(time)})
    catalog.database.forget_marks()
    with create_engine(catalog.database.url).connect() as connection:
        assert connection.scalars(text("SELECT key FROM meta WHERE key LIKE 'commit%'")).all() == ["commit new"]


def test_a_server_that_is_restarted_under_load_loses_nothing_and_does_nothing_twice(
    catalog: Catalog, own_postgresql: PostgreSQLServer, tmp_path: Path
):
    catalog.originals.set(Path("/data"), IDENTITY)
    catalog.replicas.begin(IDENTITY, PATTERN, MAP, LAYOUT)
    command = [sys.executable, "-c", CLIENT, str(catalog)]
    errors = (tmp_path / "errors").open("w+")
    clients = [
        subprocess.Popen(
            [*command, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        for number in range(4)
    ]
    counted: Counter[int] = Counter()
    for _ in range(2):
        for client in clients:
            client.stdin.write("6\n")  # type: ignore[union-attr]
            client.stdin.flush()  # type: ignore[union-attr]
        for client in clients:
            counted[int(client.stdout.readline())] += 1  # type: ignore[union-attr]
        own_postgresql.stop()
        own_postgresql.start()
        for client in clients:
            counted.update(int(client.stdout.readline() or 0) for _ in range(5))  # type: ignore[union-attr]
    assert [client.wait() for client in clients if not client.stdin.close()] == [0] * 4  # type: ignore[union-attr]
    assert sorted(counted.elements()) == list(range(1, 49))
    assert sorted(result.report["generation"] for result in catalog.results.all()) == list(range(1, 49))
    (used,) = catalog.replicas.listing()
    assert (used.runs, used.bytes_read, catalog.leases.all()) == (48, 48, [])


def test_who_alone_may_change_replicas_goes_on_after_a_restart_unless_another_one_did_meanwhile(
    catalog: Catalog, own_postgresql: PostgreSQLServer
):
    with closing(open_catalog(str(catalog))) as other:
        with catalog.exclusive():
            own_postgresql.stop()
            own_postgresql.start()
            catalog.originals.set(Path("/data"), IDENTITY)
            with pytest.raises(BusyError, match="holds the lock"), other.exclusive(wait=0):
                pass
        with pytest.raises(BusyError, match="has changed the replicas meanwhile"), catalog.exclusive():
            own_postgresql.stop()
            own_postgresql.start()
            with other.exclusive():
                other.originals.set(Path("/other"), IDENTITY)
            catalog.originals.set(Path("/data"), IDENTITY)
        (original,) = catalog.originals.all()
        assert original.path == Path("/other")


def test_what_a_server_refuses_is_not_tried_again(own_postgresql: PostgreSQLServer):
    with pytest.raises(CatalogError, match="does not exist") as caught:
        open_catalog(own_postgresql.url.format(database="nowhere"))
    assert type(caught.value) is CatalogError


def test_who_gives_up_does_not_wait(catalog: Catalog, own_postgresql: PostgreSQLServer):
    own_postgresql.stop()
    try:
        catalog.giving_up.set()
        catalog.database.patience = 1e6
        with pytest.raises(CatalogError, match="failed: "):
            catalog.census()
    finally:
        own_postgresql.start()
