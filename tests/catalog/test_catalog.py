"""The catalog keeps what it is given, refuses what it cannot read, and lets one process at a time change replicas."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, event, text

from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, Checksum, Component, Occurrence, Replica, Run, open_catalog
from pdla.catalog.leases import has_ended, this_process
from pdla.catalog.migrate import upgrade
from pdla.catalog.records import signature_to_json
from pdla.catalog.tables import TABLES
from pdla.critical_data import CriticalData
from pdla.errors import BusyError, CatalogError, ConfigError, FormatError, PdlaError
from pdla.model import Identity
from tests.support.catalog_entries import IDENTITY, LAYOUT, MAP, PATTERN, Plain
from tests.support.compilers import REPOSITORY
from tests.support.postgresql_server import new_database


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Catalog]:
    catalog = open_catalog(f"sqlite:///{tmp_path}/home/catalog.db")
    yield catalog
    catalog.close()


@pytest.fixture
def postgresql(postgresql_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog in its own database."""
    monkeypatch.setenv("PDLA_HOME", str(tmp_path))
    catalog = open_catalog(new_database(postgresql_server))
    yield catalog
    catalog.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    """Each database in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Catalog)
    return found


def add(catalog: Catalog, identity: Identity = IDENTITY, access_map: AccessMap = MAP) -> Replica:
    catalog.originals.set(Path("/data"), identity)
    replica = catalog.replicas.begin(identity, PATTERN, access_map, LAYOUT)
    planned = [Component(Path(f"/pool/{replica.id}.{n}"), 100) for n in range(2)]
    catalog.replicas.set_components(replica.id, planned)
    return catalog.replicas.get(replica.id)


def test_a_replica_is_building_then_valid_with_everything_it_was_given(catalog: Catalog):
    replica = add(catalog)
    assert (replica.id, replica.state, replica.why, replica.size) == (1, "building", "", 1024)
    built = [Component(c.path, 100, 2**63 + n, 99, 0xFFFFFFFF) for n, c in enumerate(replica.components)]
    checksums = [[Checksum(0, 64, 1), Checksum(64, 36, 0xFFFFFFFF)], []]
    catalog.replicas.finish(1, built, checksums)
    got = catalog.replicas.get(1)
    assert (got.state, got.components, got.access_map, got.layout) == ("valid", tuple(built), MAP, LAYOUT)
    assert (got.signature, got.original.path, got.original.identity) == (PATTERN, Path("/data"), IDENTITY)
    assert catalog.replicas.checksums(1) == checksums
    assert got.created.utcoffset().total_seconds() == 0


@pytest.mark.parametrize("read", ["mapped", "find"])
def test_a_replica_that_another_process_finishes_meanwhile_is_seen_with_its_files_or_not_at_all(
    postgresql: Catalog, read: str
) -> None:
    """Its row and those of its files are read one after the other."""
    replica = add(postgresql)
    other = open_catalog(postgresql.url)
    seen = 0

    def between(connection: object, cursor: object, statement: str, *_: object) -> None:
        nonlocal seen
        seen += statement.startswith("SELECT") and "replicas" in statement
        if seen == 2 and not other.replicas.copies():
            other.replicas.finish(replica.id, replica.components, [[], []])

    event.listen(postgresql.replicas._database.engine, "before_cursor_execute", between)
    found = postgresql.replicas.mapped() if read == "mapped" else postgresql.replicas.find("valid")
    assert all(len(one.components) == 2 for one in found)
    assert other.replicas.copies()
    other.close()


def test_an_extent_table_is_kept(catalog: Catalog):
    irregular = AccessMap(extents=np.array([[0, 3, 0], [3, 1, 6], [4, 3, 3], [7, 1, 7]]))
    add(catalog, access_map=irregular)
    assert catalog.replicas.get(1).access_map == irregular


@pytest.mark.parametrize("name", [b"m\xe4rz", b"back\\slash", b"\\xe4", b"\\x5c", "m\u00e4rz".encode(), b"\xff\\x"])
def test_paths_of_any_bytes_come_back(catalog: Catalog, name: bytes):
    path = Path(os.fsdecode(b"/data/" + name))
    catalog.originals.set(path, IDENTITY)
    replica = catalog.replicas.begin(IDENTITY, replace(PATTERN, file=str(path)), MAP, LAYOUT)
    catalog.replicas.set_components(replica.id, [Component(path.with_suffix(".0"), 100)])
    assert catalog.replicas.directories() == ["/data/"]
    got = catalog.replicas.get(replica.id)
    assert (got.original.path, got.signature.file, got.components[0].path) == (path, str(path), path.with_suffix(".0"))


def test_a_replica_is_planned_until_its_files_are_on_record(catalog: Catalog):
    catalog.originals.set(Path("/data"), IDENTITY)
    lease = catalog.leases.acquire("original")
    replica = catalog.replicas.begin(IDENTITY, PATTERN, MAP, LAYOUT, purpose="write", lease=lease)
    assert (replica.state, replica.purpose, replica.fence) == ("planned", "write", lease.token)
    catalog.replicas.set_components(replica.id, [Component(Path("/pool/1.0"), 100)])
    assert catalog.replicas.get(replica.id).state == "building"


def test_uses_of_replicas_are_counted_a_run_at_a_time(catalog: Catalog):
    add(catalog)
    add(catalog)
    used = {"id": 1, "bytes": 100, "state": "valid"}
    files = [{"replicas": [used, {**used, "id": 2, "bytes": 0}]}, {"replicas": [used]}]
    for report in ({"files": files}, {"files": []}):
        catalog.results.add(Plain(report))
    first, second = catalog.replicas.listing()
    assert (first.runs, first.bytes_read, first.used) == (1, 200, catalog.results.all()[0].time)
    assert (second.runs, second.bytes_read, second.used) == (0, 0, None)
    assert [result.report for result in catalog.results.all(last=1)] == [{"files": []}]


def test_h36_a_lease_is_held_by_one_process_at_a_time(catalog: Catalog):
    code = (
        f"import os, sys, time\nfrom pdla.catalog import open_catalog\n"
        f"lease = open_catalog({str(catalog)!r}).leases.acquire('this')\nprint(lease.token, flush=True)\n"
        "if sys.argv[1] == 'die': os.kill(os.getpid(), 9)\ntime.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code, "live"], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        holder = rf"{re.escape(socket.gethostname())}:{other.pid}:\d+@\S+"
        with pytest.raises(BusyError, match=f"^{holder} works on this: wait"):
            catalog.leases.acquire("this")
        assert catalog.leases.acquire("that").token == 2
        other.kill()
    assert catalog.leases.all()[1].seconds == 0
    assert catalog.leases.acquire("this").token == 3
    subprocess.run([sys.executable, "-c", code, "die"], check=False)
    assert [(lease.resource, lease.token) for lease in catalog.leases.all()] == [("that", 2), ("this", 3)]


def test_h36_a_lease_that_is_up_is_anyone_s_and_its_old_holder_is_fenced_off(catalog: Catalog):
    catalog.originals.set(Path("/data"), IDENTITY)
    old = catalog.leases.acquire("this", seconds=0)
    late = catalog.replicas.begin(IDENTITY, PATTERN, MAP, LAYOUT, lease=old)
    new = catalog.leases.acquire("this")
    assert new.token == old.token + 1
    for use in (lambda: catalog.leases.check(old), lambda: catalog.replicas.finish(late.id, [], [], old)):
        with pytest.raises(PdlaError, match=r"^another process has taken over the work on this: this process keeps"):
            use()
    assert catalog.replicas.get(late.id).state == "planned"
    assert not catalog.leases.renew(old)
    catalog.leases.release(old)
    assert catalog.leases.renew(new)
    catalog.leases.check(new)


def test_h36_nothing_is_known_of_a_holder_on_another_host_or_in_another_container():
    host, process, start = this_process().split(":")
    table = start.partition("@")[2]
    assert has_ended(f"{host}:{process}:1@{table}")
    assert not has_ended(f"elsewhere:{process}:1@{table}")
    assert not has_ended(f"{host}:{process}:1@{table}0")
    assert not has_ended(f"{host}:{process}:1")  # of version 0.2.0


def test_h44_a_lease_ends_by_the_clock_of_the_database(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    lease = catalog.leases.acquire("this")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 < catalog.leases.all()[0].seconds <= 60
    catalog.leases.release(lease)
    assert catalog.leases.all() == []
    assert catalog.leases.acquire("this").token == lease.token + 1


def test_a_lease_in_use_is_renewed(catalog: Catalog):
    with catalog.leases.hold("this", seconds=0.4) as lease:
        first = expiry(catalog)
        while expiry(catalog) == first:
            time.sleep(0.02)
        catalog.leases.check(lease)
    assert catalog.leases.all() == []


def expiry(catalog: Catalog) -> float:
    with create_engine(catalog.database.url).connect() as connection:
        return float(connection.execute(text("SELECT expires FROM leases")).scalar_one())


def test_a_plan_waits_in_the_queue_for_as_long_as_a_pattern_waits_for_it(catalog: Catalog):
    other = replace(PATTERN, start=0)
    run = Run("./app", 2, "t", "/t.h5", "csv", None, "", (), {}, ("/data",), 32, 2048)
    catalog.runs.record(run, [Occurrence(PATTERN, {}), Occurrence(other, {})])
    assert catalog.queue.add_plan({"a": 1}, [PATTERN, replace(PATTERN, length=8)]) == 1
    assert catalog.queue.add_plan({"b": 1}, [PATTERN, other]) == 2
    (first, second) = catalog.patterns.find(state="planned")
    assert (first.signature.start, first.plan, second.plan, catalog.queue.plan(2)) == (5, 2, 2, {"b": 1})
    with pytest.raises(PdlaError, match="there is no plan 1 in the queue"):
        catalog.queue.plan(1)
    catalog.queue.set_state([PATTERN], "failed", "no space")
    assert [(one.state, one.why, one.plan) for one in catalog.patterns.find()] == [
        ("failed", "no space", None),
        ("planned", "", 2),
    ]


def test_replicas_are_found_by_state(catalog: Catalog):
    for _ in range(3):
        add(catalog)
    catalog.replicas.mark(2, "stale", "because")
    assert [replica.id for replica in catalog.replicas.find()] == [1, 2, 3]
    assert [(replica.id, replica.why) for replica in catalog.replicas.find("stale", "retired")] == [(2, "because")]


def test_an_unknown_state_is_refused(catalog: Catalog):
    add(catalog)
    with pytest.raises(PdlaError, match=r"the catalog .* failed: .*[Cc][Hh][Ee][Cc][Kk] constraint"):
        catalog.replicas.mark(1, "lost", "")


def test_the_census_has_the_bytes_of_each_state(catalog: Catalog):
    assert catalog.census().replicas["building"] == (0, 0)
    sizes = [add(catalog).size for _ in range(2)]
    assert catalog.census().replicas["building"] == (2, sum(sizes))


def test_numbers_of_replicas_are_never_used_again(catalog: Catalog):
    add(catalog)
    catalog.replicas.forget(1)
    assert add(catalog).id == 2


def test_an_original_goes_with_its_last_replica(catalog: Catalog):
    add(catalog)
    add(catalog)
    catalog.replicas.forget(1)
    assert len(catalog.originals.all()) == 1
    catalog.replicas.forget(2)
    assert (catalog.originals.all(), catalog.replicas.find()) == ([], [])


def test_setting_an_original_again_changes_what_its_replicas_are_copies_of(catalog: Catalog):
    add(catalog)
    later = Identity(IDENTITY.device, IDENTITY.inode, 5000, 7, 8)
    catalog.originals.set(Path("/renamed"), later)
    assert catalog.replicas.get(1).original == catalog.originals.all()[0]
    assert (catalog.replicas.get(1).original.path, catalog.replicas.get(1).original.identity) == (
        Path("/renamed"),
        later,
    )


def test_an_original_is_known_by_its_path_where_mounts_have_changed_their_device_numbers(catalog: Catalog):
    one, other = Identity(1, 7, 100, 2, 3), Identity(2, 7, 100, 4, 5)
    catalog.originals.set(Path("/a/file"), one)
    catalog.originals.set(Path("/b/file"), other)
    catalog.originals.set(Path("/a/file"), replace(one, device=2))
    assert [(row.path, row.identity) for row in catalog.originals.all()] == [
        (Path("/a/file"), replace(one, device=2)),
        (Path("/b/file"), replace(other, device=1)),
    ]
    catalog.originals.set(Path("/a/file"), replace(one, device=3))
    assert [row.identity.device for row in catalog.originals.all()] == [3, 1]


def test_an_unknown_replica_is_refused(catalog: Catalog):
    with pytest.raises(PdlaError, match="there is no replica 9"):
        catalog.replicas.get(9)


def test_generations_only_grow(catalog: Catalog):
    assert [catalog.next_generation(at_least) for at_least in (0, 1, 10, 5)] == [1, 2, 10, 11]


def test_two_catalogs_have_different_tokens_that_last(tmp_path: Path, catalog: Catalog):
    again, other = open_catalog(str(catalog)), open_catalog(f"sqlite:///{tmp_path}/other.db")
    assert catalog.token == again.token != other.token
    again.close()
    other.close()


def test_the_catalog_is_private(tmp_path: Path, sqlite: Catalog):
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "home").iterdir()} == {0o600}


def test_a_process_that_opens_a_catalog_twice_keeps_its_locks(tmp_path: Path, sqlite: Catalog):
    """Otherwise the next process that closes the catalog removes the write-ahead log that this one uses."""
    sqlite.next_generation(1)
    again = open_catalog(str(sqlite))
    other = f"from pdla.catalog import open_catalog; print(open_catalog({str(sqlite)!r}).next_generation(1))"
    assert subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True).stdout == "2\n"
    assert (tmp_path / "home" / "catalog.db-wal").exists()
    assert (sqlite.next_generation(1), again.next_generation(1)) == (3, 4)
    again.close()


def test_the_default_catalog_is_in_pdla_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "elsewhere"))
    open_catalog().close()
    assert (tmp_path / "elsewhere" / "catalog.db").exists()


def test_the_critical_reads_of_a_file_grow_with_each_run(catalog: Catalog):
    name, starts = Path(os.fsdecode(b"/m\xe4rz")), np.array([0, 100])
    data = CriticalData(starts, starts + 10, np.array([0.5, 0.25]))
    catalog.critical.add(name, data)
    catalog.critical.add(Path("/other"), data)
    catalog.critical.set_replica(name, 7)
    catalog.critical.add(name, CriticalData(np.array([100]), np.array([105]), np.array([1.0])))
    found = {file.path: file for file in catalog.critical.all()}
    assert (found[name].replica, found[Path("/other")].replica) == (7, None)
    table = found[name].data
    assert (table.starts.tolist(), table.stops.tolist()) == ([0, 100, 105], [10, 105, 110])
    assert table.saved.tolist() == [0.25, 1.125, 0.125]
    assert found[Path("/other")].data.saved.tolist() == [0.5, 0.25]


def test_h35_a_catalog_of_a_newer_version_is_refused(tmp_path: Path, sqlite: Catalog):
    with sqlite3.connect(tmp_path / "home" / "catalog.db") as database:
        database.execute("UPDATE meta SET value = '9' WHERE key = 'schema'")
    with pytest.raises(FormatError, match=r"has version 9, but this pdla reads up to 8$"):
        open_catalog(str(sqlite))


def test_another_program_s_database_is_refused(tmp_path: Path):
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE films (title)")
    with pytest.raises(FormatError, match="is a database, but not a pdla catalog"):
        open_catalog(f"sqlite:///{tmp_path}/other.db")


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_catalog_gives_one_line(tmp_path: Path, content: bytes):
    path = tmp_path / "bad.db"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        open_catalog(f"sqlite:///{path}")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["x", b"\xff", 0.5])
@pytest.mark.parametrize(
    "column", ["extents.length", "extents.crc32c", "replicas.runs", "replicas.size", "originals.inode"]
)
def test_a_number_that_is_none_gives_one_line(tmp_path: Path, column: str, value: object):
    path = tmp_path / "catalog.db"
    catalog = open_catalog(f"sqlite:///{path}")
    replica = add(catalog)
    catalog.replicas.finish(replica.id, replica.components, [[Checksum(0, 100, 1)]] * 2)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE {} SET {} = ?".format(*column.split(".")), (value,))
    with pytest.raises(CatalogError, match="damaged") as caught:
        catalog.replicas.get(replica.id)
        catalog.replicas.checksums(replica.id)
        catalog.replicas.listing()
    assert "\n" not in str(caught.value)
    catalog.close()


@pytest.mark.parametrize("url", ["no url", "nosuchdb:///x", "sqlite:////proc/nothing/catalog.db"])
def test_a_url_that_cannot_be_used_gives_one_line(url: str):
    with pytest.raises(ConfigError, match=r"cannot (use|make) the catalog") as caught:
        open_catalog(url)
    assert "\n" not in str(caught.value)


def test_only_one_process_at_a_time_changes_replicas(catalog: Catalog):
    code = (
        f"from pdla.catalog import open_catalog\nwith open_catalog({str(catalog)!r}).exclusive(wait=0.1): print('mine')"
    )
    command = [sys.executable, "-c", code]
    with catalog.exclusive(), catalog.exclusive():
        other = subprocess.run(command, capture_output=True, text=True)
    assert "BusyError: another pdla command is changing the replicas" in other.stderr
    assert subprocess.run(command, capture_output=True, text=True).stdout == "mine\n"


def test_nobody_writes_between_the_reads_and_the_writes_of_a_transaction(catalog: Catalog):
    """Otherwise SQLite would refuse its writes."""
    other = open_catalog(str(catalog))
    writer = threading.Thread(target=other.next_generation, args=[0])
    with catalog.database.transaction(alone=True) as connection:
        number = connection.scalar(text("SELECT value FROM meta WHERE key = 'generation'"))
        writer.start()
        writer.join(0.5)
        connection.execute(
            text("UPDATE meta SET value = :next WHERE key = 'generation'"), {"next": str(int(number) + 1)}
        )
    writer.join()
    other.close()
    assert catalog.next_generation(0) == 3


def test_concurrent_writers_wait_for_one_another(catalog: Catalog):
    url = str(catalog)

    def work() -> None:
        mine = open_catalog(url)
        for _ in range(20):
            mine.next_generation(0)
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalog.next_generation(0) == 81


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A catalog as the version before the first migration made it, with a replica and the report of a run."""
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript((REPOSITORY / "tests" / "catalog_v1.sql").read_text())
    database.close()
    return path


def has_all_of_version_1(catalog: Catalog) -> bool:
    (replica,) = catalog.replicas.find()
    return (
        (replica.state, replica.signature, replica.access_map, replica.layout) == ("valid", PATTERN, MAP, LAYOUT)
        and replica.original.identity == IDENTITY
        and [component.inode for component in replica.components] == [2**63, 2**63 + 1]
        and catalog.replicas.checksums(1) == [[Checksum(0, 512, 1)], [Checksum(0, 512, 2)]]
        and [result.report for result in catalog.results.all()] == [{"command": "./app", "ranks": 4}]
        and catalog.token == "2c074a15"
    )


def test_an_older_catalog_is_updated_with_all_its_data(version_1: Path):
    for _ in range(2):
        catalog = open_catalog(f"sqlite:///{version_1}")
        assert has_all_of_version_1(catalog)
        assert catalog.patterns.find() == []
        catalog.close()
    with sqlite3.connect(version_1) as database:
        assert database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall() == [("8",)]
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("8",)]


def test_an_upgrade_keeps_uses_odd_paths_and_the_numbers_that_were_given(version_1: Path):
    used = [{"id": 1, "bytes": 5, "state": "valid"}, {"id": 7, "bytes": 9, "state": "valid"}]
    report = {"files": [{"replicas": used}, {"replicas": [{"id": 1, "bytes": 0, "state": "changed"}]}]}
    with sqlite3.connect(version_1) as database:
        database.execute(r"UPDATE originals SET path = '/a\b\xe4'")
        database.execute("UPDATE sqlite_sequence SET seq = 9")
        for _ in range(2):
            database.execute("INSERT INTO results VALUES (NULL, '2026-01-02 03:04:05', ?)", [json.dumps(report)])
    database.close()
    catalog = open_catalog(f"sqlite:///{version_1}")
    assert catalog.replicas.get(1).original.path == Path(r"/a\b\xe4")
    (listed,) = catalog.replicas.listing()
    assert (listed.runs, listed.bytes_read, listed.used) == (2, 10, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert add(catalog).id == 10
    assert catalog.leases.acquire("x").token == 1
    catalog.close()


def test_a_postgresql_catalog_of_version_2_is_updated(postgresql: Catalog):
    with create_engine(postgresql.database.url).begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
        upgrade(connection, None, "2")
        connection.execute(text("INSERT INTO meta VALUES ('schema', '2'), ('token', 'abc'), ('generation', '7')"))
        connection.execute(text(r"INSERT INTO originals VALUES (1, '/a\b', 1, 2, 3, 4, 5)"))
        connection.execute(
            text(
                "INSERT INTO replicas VALUES (1, 1, CAST(:pattern AS json), CAST(:map AS json), CAST(:layout AS json), "
                "'disk', 1024, 'valid', '', now())"
            ),
            {
                "pattern": json.dumps(signature_to_json(PATTERN)),
                "map": json.dumps(MAP.to_json()),
                "layout": json.dumps(asdict(LAYOUT)),
            },
        )
    catalog = open_catalog(str(postgresql))
    assert (catalog.replicas.get(1).original.path, catalog.replicas.get(1).state) == (Path(r"/a\b"), "valid")
    assert (catalog.replicas.get(1).purpose, catalog.replicas.get(1).fence, catalog.replicas.listing()[0].runs) == (
        "read",
        0,
        0,
    )
    catalog.replicas.mark(1, "dirty", "written")
    assert catalog.replicas.find("dirty") == [catalog.replicas.get(1)]
    with create_engine(postgresql.database.url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), TABLES) == []
    catalog.close()


def test_h23_an_upgrade_that_is_killed_at_any_statement_leaves_the_one_version_or_the_other(
    version_1: Path, tmp_path: Path
):
    versions = []
    for moment in range(0, 600, 5):
        path = tmp_path / f"{moment}.db"
        shutil.copy(version_1, path)
        child = os.fork()
        if child == 0:
            killed_at(moment)
            open_catalog(f"sqlite:///{path}")
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        with sqlite3.connect(path) as database:
            versions += database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        database.close()
        assert ("patterns" in tables) == ("alembic_version" in tables) == ("leases" in tables) == (versions[-1] == "8")
        catalog = open_catalog(f"sqlite:///{path}")
        assert has_all_of_version_1(catalog)
        catalog.close()
        if status == 0:
            break
    assert set(versions) == {"1", "8"}
    assert len(versions) > 12


def killed_at(moment: int) -> None:
    """End this process, as kill -9 does, at its ``moment``-th statement or commit."""
    left = iter(range(moment, -1, -1))

    def count(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)


def test_the_migrations_make_the_tables_that_the_catalog_uses(catalog: Catalog):
    with create_engine(catalog.database.url).begin() as connection:
        TABLES.drop_all(connection)
        upgrade(connection, None)
        # SQLite gives no types back, only what was written.
        exact = connection.dialect.name == "postgresql"
        context = MigrationContext.configure(connection, opts={"compare_type": exact})
        assert compare_metadata(context, TABLES) == []


def test_many_processes_may_make_the_catalog_at_once(postgresql_server: str, postgresql: Catalog):
    url = str(postgresql)
    with create_engine(url).begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    with ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(lambda _: open_catalog(url).token, range(4)))
    assert len(set(tokens)) == 1


def test_the_bytes_in_directories_are_those_of_the_components_in_them(catalog: Catalog):
    """Each once, in the very directory: neither in one whose name begins so, nor in one with other letters."""
    directories = (
        "/pool/a",
        "/pool/A",
        "/pool/ab",
        "/pool/a_",
        "/pool/a%",
        "/pool/a/deep",
        "/pool/\\x5c",
        "/pool/m\udce4",
    )
    catalog.originals.set(Path("/data"), IDENTITY)
    replica = catalog.replicas.begin(IDENTITY, PATTERN, MAP, LAYOUT)
    catalog.replicas.set_components(
        replica.id, [Component(Path(f"{one}/file"), 10**number) for number, one in enumerate(directories)]
    )
    found = [catalog.replicas.bytes_in([one]) for one in directories]
    assert found == [100001, 10, 100, 1000, 10000, 100000, 1000000, 10000000]
    assert catalog.replicas.bytes_in(["/pool/a/", "/pool/a/deep", "/elsewhere"]) == 100001
    assert catalog.replicas.bytes_in([]) == 0
    assert catalog.replicas.bytes_in(["/"]) == 11111111
