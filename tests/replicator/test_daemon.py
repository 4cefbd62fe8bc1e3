"""The daemon builds queued plans once, and gives way to others; whatever ends it does no harm."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from pdla.catalog import Catalog, open_catalog
from pdla.errors import CatalogError, PdlaError, UnfitError
from pdla.layouts.config import load_cluster
from pdla.layouts.striping import locate
from pdla.replicator import copying
from pdla.replicator import daemon as daemon_module
from pdla.replicator.builder import replicate
from pdla.replicator.daemon import Daemon, StoppedError
from pdla.replicator.mapfile import read_map
from pdla.replicator.metrics import Metrics
from pdla.replicator.throttling import Activity, Gate, Limit
from pdla.replicator.verify import Removed, gc
from pdla.units import MiB
from tests.searches.killing_builds import Place as Built
from tests.searches.killing_maintenance import kill_at_random
from tests.support.command_line import PDLA, InProcess
from tests.support.postgresql_server import PostgreSQLServer
from tests.support.ready_pdla import REAL
from tests.support.waiting import PATIENCE, wait_until

ANYTIME = ("--idle-load", "1", "--idle-io", "1T")

WITH_LEASES_OF = """
import functools, sys
from pdla.catalog.leases import Leases
from pdla.cli import main
from pdla.replicator import throttling
throttling.give_way = lambda: None
Leases.hold = functools.partialmethod(Leases.hold, seconds=float(sys.argv.pop(1)))
main()
"""


class Place(InProcess):
    """A PDLA_HOME whose queue has a plan for the rows of some files."""

    catalog: Catalog

    def fill(self, *sizes: int) -> None:
        """Files of random bytes, read by four ranks in turn, 4 KiB each."""
        lines = ["rank,file,op,offset,length,t_start,t_end"]
        for number, size in enumerate(sizes):
            (self.directory / f"{number}.dat").write_bytes(np.random.default_rng(number).bytes(size))
            lines += [
                f"{rank},{self.directory}/{number}.dat,read,{rank * 4096 + row * 16384},4096,{row},{row}.5"
                for rank in range(4)
                for row in range(size // 16384)
            ]
        (self.directory / "a.csv").write_text("\n".join(lines) + "\n")
        self.run("import", "csv", "a.csv", "-o", "a.h5")
        self.run("analyze", "a.h5")

    def daemon(self, **options: object) -> Daemon:
        return Daemon(self.catalog, threading.Event(), Gate(1.0, 1e15), **options)  # type: ignore[arg-type]

    def start(self, *words: str, lease: float = 60) -> subprocess.Popen[str]:
        """A separate daemon process."""
        command = [sys.executable, "-c", WITH_LEASES_OF, str(lease), "daemon", *ANYTIME, *words]
        return subprocess.Popen(
            command, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def stopped(self, daemon: subprocess.Popen[str]) -> bool:
        """Stop it, unless it is changing the catalog, which SQLite lets one process do at a time."""
        daemon.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
        with closing(sqlite3.connect(self.home / "catalog.db", timeout=0.5)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
                return True
            except sqlite3.OperationalError:
                daemon.send_signal(signal.SIGCONT)
                return False

    def queue(self) -> list[tuple[str, str]]:
        return [(one.state, one.why) for one in self.catalog.patterns.find()]

    def files(self) -> list[str]:
        """The files in the pools."""
        return sorted(file.name for file in (self.home / "pools").rglob("*") if file.is_file())

    def is_sound(self) -> bool:
        """Every published replica has the original's bytes; nothing else is there, and gc finds nothing."""
        valid = self.catalog.replicas.find("valid")
        for replica in valid:
            held = [component.path.read_bytes() for component in replica.components]
            pieces = locate(replica.rule, 0, replica.size)
            data = b"".join(held[at.component][at.offset : at.offset + at.length] for at in pieces)
            original = np.frombuffer(replica.original.path.read_bytes(), np.uint8)
            if data != original.reshape(-1, 4, 4096).transpose(1, 0, 2).tobytes():
                return False
        before = self.files()
        return (
            sorted(one.id for one in read_map(self.home / "replicas.map").replicas) == [one.id for one in valid]
            and self.catalog.replicas.find() == valid
            and gc(self.catalog) == Removed(0, ())
            and before == self.files() == sorted(one.path.name for replica in valid for one in replica.components)
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path, {})
    monkeypatch.setenv("PDLA_HOME", str(place.home))
    place.catalog = open_catalog()
    yield place
    place.catalog.close()


@pytest.fixture
def queued(place: Place) -> Place:
    """A plan for 4 MiB waits in the queue."""
    place.fill(4 * MiB)
    done = place.run("plan", "a.h5", "--policy", "ns-pdla", "--simulate", "0", "--queue")
    assert done.stderr == "pdla: 1 pattern planned and queued for pdla daemon\n"
    assert place.queue() == [("planned", "")]
    return place


def test_it_builds_and_publishes_what_a_plan_put_into_the_queue(queued: Place):
    done, removed = queued.daemon().once()
    assert [(one.pattern, one.why, one.replica and one.replica.bytes) for one in done] == [(1, "", 4 * MiB)]
    assert removed == Removed(0, ())
    assert queued.queue() == [("built", "")]
    assert len(queued.catalog.replicas.find("valid")) == 1
    assert queued.is_sound()
    assert queued.daemon().once() == ([], Removed(0, ()))


def test_a_plan_for_patterns_that_were_not_analyzed_is_refused(place: Place):
    place.fill(MiB)
    (place.home / "catalog.db").unlink()
    done = place.run("plan", "a.h5", "--simulate", "0", "--queue", code=1)
    assert done.stderr == "pdla: the catalog knows 0 of the plan's 1 patterns: run pdla analyze first\n"


def test_with_a_cluster_it_plans_for_itself(place: Place):
    place.fill(MiB, MiB)
    assert place.queue() == [("queued", ""), ("queued", "")]
    done, _ = place.daemon(cluster=load_cluster(None)).once()
    assert sorted(one.pattern for one in done) == [1, 2]
    assert place.queue() == [("built", ""), ("built", "")]
    assert place.is_sound()


def test_a_pattern_that_cannot_be_built_is_left_with_the_reason(place: Place):
    place.fill(MiB, MiB)
    place.run("plan", "a.h5", "--simulate", "0", "--queue")
    gone = place.directory / "0.dat"
    gone.unlink()
    done, _ = place.daemon().once()
    why = f"cannot read the original {gone}: No such file or directory"
    assert [one.why for one in done] == [why, ""]
    assert place.queue() == [("failed", why), ("built", "")]
    assert why in " ".join(place.run("patterns", "show", "1").stdout.split())
    assert place.is_sound()


def test_a_scan_removes_replicas_whose_original_is_gone_or_changed(place: Place):
    place.fill(MiB, MiB, MiB)
    place.daemon(cluster=load_cluster(None)).once()
    (place.directory / "0.dat").unlink()
    (place.directory / "1.dat").write_bytes(b"other")
    _, removed = place.daemon().once()
    assert removed == Removed(2 * MiB, ())
    assert [replica.original.path.name for replica in place.catalog.replicas.find()] == ["2.dat"]
    assert place.is_sound()


@pytest.mark.parametrize("when", ["idle", "busy", "stopped in the middle"])
def test_h62_a_scan_keeps_replicas_that_have_the_bytes_of_a_changed_original(
    place: Place, monkeypatch: pytest.MonkeyPatch, when: str
):
    """It compares them when the machine is idle, and removes none before that."""
    place.fill(MiB)
    place.daemon(cluster=load_cluster(None)).once()
    (place.directory / "0.dat").touch()
    daemon = place.daemon()
    if when == "busy":
        monkeypatch.setattr(daemon, "_is_busy", lambda: True)
    if when == "stopped in the middle":
        monkeypatch.setattr(daemon, "_progress", stops)
    daemon.once()
    assert place.catalog.replicas.get(1).state == ("valid" if when == "idle" else "stale")
    place.daemon().once()
    assert place.catalog.replicas.get(1).state == "valid"
    assert place.is_sound()


def stops(*_: object) -> None:
    raise StoppedError


def test_h36_two_daemons_build_every_replica_once(place: Place):
    place.fill(*[MiB] * 4)
    place.run("plan", "a.h5", "--simulate", "0", "--queue")
    daemons = [place.start("--once", "--json") for _ in range(2)]
    told = [json.loads(daemon.communicate(timeout=PATIENCE)[0])["built"] for daemon in daemons]
    built = [one["id"] for one in (*told[0], *told[1]) if not one["kept"]]
    place.daemon().once()
    assert sorted(built) == [replica.id for replica in place.catalog.replicas.find("valid")]
    assert {replica.original.path.name for replica in place.catalog.replicas.find()} == {f"{n}.dat" for n in range(4)}
    assert place.is_sound()


def test_the_command_logs_json_lines_writes_metrics_and_reports_what_it_did(queued: Place):
    words = ["daemon", "--once", *ANYTIME, "--json", "--metrics-file", "m.prom"]
    done = subprocess.run([PDLA, *words], cwd=queued.directory, env=queued.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [one["event"] for one in events] == ["started", "scanned", "building", "built", "stopped"]
    assert (events[3]["replica"], events[3]["bytes"], events[3]["level"]) == (1, 4 * MiB, "info")
    (built,) = json.loads(done.stdout)["built"]
    assert (built["pattern"], built["id"], built["kept"]) == (1, 1, False)
    metrics = (queued.directory / "m.prom").read_text().splitlines()
    assert 'pdla_daemon_builds_total{outcome="built"} 1.0' in metrics
    assert 'pdla_replica_bytes{state="valid"} 4.194304e+06' in metrics
    assert 'pdla_queue_patterns{state="planned"} 0.0' in metrics


def test_the_log_names_what_failed(queued: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    daemon = queued.daemon(metrics=Metrics(queued.directory / "none" / "m.prom"))

    def scan() -> None:
        daemon.stop()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(daemon, "_scan", scan)
    daemon.run()
    failures = {record.message for record in caplog.records if record.levelname == "ERROR"}
    assert failures == {"metrics failed", "work failed"}


def test_sigterm_undoes_what_is_not_complete(queued: Place):
    with queued.start("--max-bandwidth", "1M") as daemon:
        wait_until(queued.files)
        daemon.send_signal(signal.SIGTERM)
        _, log = daemon.communicate(timeout=PATIENCE)
    assert daemon.returncode == 0
    assert [json.loads(line)["event"] for line in log.splitlines()][-2:] == ["undone", "stopped"]
    assert (queued.files(), queued.catalog.replicas.find(), queued.catalog.leases.all()) == ([], [], [])
    assert queued.queue() == [("planned", "")]


def test_it_has_the_lowest_priority(place: Place):
    with subprocess.Popen([REAL, "daemon", *ANYTIME], env=place.environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            wait_until(lambda: os.getpriority(os.PRIO_PROCESS, daemon.pid) == 19)
        finally:
            daemon.kill()


def test_h32_after_kill_9_the_next_daemon_builds_it(queued: Place):
    with queued.start("--max-bandwidth", "1M") as daemon:
        wait_until(queued.files)
        daemon.kill()
    assert [replica.state for replica in queued.catalog.replicas.find()] == ["building"]
    queued.daemon().once()
    assert [replica.id for replica in queued.catalog.replicas.find()] == [2]
    assert queued.is_sound()


def test_no_alarm_goes_off_when_what_was_built_has_ended(queued: Place, monkeypatch: pytest.MonkeyPatch):
    daemon = queued.daemon()

    def stopped(*_: object, **__: object):
        daemon.stop()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        raise StoppedError

    monkeypatch.setattr(daemon_module, "build", stopped)
    daemon.once()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_h36_a_daemon_that_was_stopped_past_its_lease_publishes_nothing(queued: Place):
    with queued.start("--once", "--max-bandwidth", "3M", lease=1) as daemon:
        wait_until(queued.files)
        wait_until(lambda: queued.stopped(daemon))
        wait_until(lambda: all(lease.seconds <= 0 for lease in queued.catalog.leases.all()))
        done, _ = queued.daemon().once()
        assert [one.replica and one.replica.id for one in done] == [2]
        daemon.send_signal(signal.SIGCONT)
        _, log = daemon.communicate(timeout=PATIENCE)
    events = {event["event"]: event for event in map(json.loads, log.splitlines())}
    taken_over = (
        f"another process has taken over the work on {queued.directory}/0.dat: this process keeps nothing of its own"
    )
    assert events["left for later"]["why"] == taken_over
    assert [replica.id for replica in queued.catalog.replicas.find()] == [2]
    assert queued.queue() == [("built", "")]
    assert queued.is_sound()


def test_h32_work_that_is_killed_at_random_moments_serves_nothing_wrong_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    assert set(kill_at_random(tmp_path, moments=4)) == {"gc", "publish", "upgrade", "daemon"}


def test_a_database_that_becomes_unreachable_during_a_build_does_no_harm(
    tmp_path: Path, postgresql_server: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    name = f"pdla_{secrets.token_hex(4)}"
    place, url = Built(tmp_path), postgresql_server.format(database=name)

    def administer(*statements: str) -> None:
        server = postgresql_server.replace("postgresql:", "postgresql+psycopg:").format(database="postgres")
        engine = create_engine(server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    def go_away(what: str, done: int, total: int) -> None:
        ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false", ends)

    administer(f"CREATE DATABASE {name}")
    child = os.fork()
    if not child:
        catalog = open_catalog(url)
        try:
            replicate(place.plan(1), catalog, progress=go_away)
        except CatalogError as error:
            (tmp_path / "said").write_text(str(error))
        os._exit(0)
    os.waitpid(child, 0)
    said = (tmp_path / "said").read_text()
    assert re.fullmatch(rf"the catalog postgresql\+psycopg://\S+/{name}\S* failed: .+", said)
    administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    with closing(open_catalog(url)) as catalog:
        assert [replica.state for replica in catalog.replicas.find()] == ["building"]
        assert gc(catalog) == Removed(0, ())
        assert (catalog.replicas.find(), catalog.leases.all(), place.files()) == ([], [], set())
        replicate(place.plan(1), catalog)
        assert place.served() == [1]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_the_systemd_unit_runs_this_command_line(place: Place):
    unit = place.directory / "pdla-daemon.service"
    done = subprocess.run(
        [PDLA, "daemon", "--max-bandwidth", "100M", "--unit"], capture_output=True, text=True, check=True
    )
    assert f"ExecStart={PDLA} daemon --max-bandwidth 100M\n" in done.stdout
    unit.write_text(done.stdout)
    subprocess.run(["systemd-analyze", "verify", "--man=no", unit], check=True)


def test_the_gate_closes_while_others_use_processors_or_disks():
    """On two processors; what this process does itself does not count, nor its writes that reach the disk later."""
    now = [Activity(0, 100, 0, 0, 0)]
    processors = os.cpu_count() or 1
    gate = Gate(0.5, 100.0, lambda: now[0])

    def later(seconds: float, used: float, moved: int, own: float = 0, own_moved: int = 0) -> str:
        last = now[0]
        now[0] = Activity(
            last.time + seconds,
            last.processors + used * processors,
            last.disks + moved,
            last.own_processors + own * processors,
            last.own_disks + own_moved,
        )
        return gate.busy()

    assert later(10, used=4, moved=900) == ""
    assert later(10, used=6, moved=0) == "others keep 60% of the processors busy (limit 50%)"
    assert later(0.5, used=0, moved=0) == "others keep 60% of the processors busy (limit 50%)"  # too soon to tell
    assert later(10, used=9, own=5, moved=0) == ""
    assert later(10, used=0, moved=2048 * 10) == "others move 2 KiB/s from and to disks (limit 100 B/s)"
    assert later(10, used=0, moved=0, own_moved=5000) == ""
    assert later(10, used=0, moved=5000) == ""
    assert later(10, used=0, moved=5000) == "others move 500 B/s from and to disks (limit 100 B/s)"


def test_a_limit_of_all_processors_is_none_also_where_the_counters_are_read_late():
    looks = iter([Activity(0, 0, 0, 0, 0), Activity(1, 1.1 * (os.cpu_count() or 1), 0, 0, 0)])
    assert Gate(1.0, 1e15, lambda: next(looks)).busy() == ""


def test_the_limit_asks_to_wait_for_what_is_over():
    limit = Limit(1000)
    assert limit.wait(500) <= 0.5
    assert 99 < limit.wait(100_000) <= 100.5
    assert 199 < limit.wait(100_000) <= 200.5


WITH_A_COPY_THAT_HANGS = """
import sys, time
from pathlib import Path
from pdla.cli import main
from pdla.replicator import copying, throttling

def hanging(*_, **__):
    Path(marker).touch()
    time.sleep(3600)
    yield

marker = sys.argv.pop(1)
copying.runs = hanging
throttling.give_way = lambda: None
main()
"""


def test_sigterm_ends_a_step_of_copying_that_takes_long(queued: Place):
    marker = queued.directory / "copying"
    words = [sys.executable, "-c", WITH_A_COPY_THAT_HANGS, str(marker), "daemon", *ANYTIME]
    with subprocess.Popen(words, env=queued.environment, stderr=subprocess.PIPE, text=True) as daemon:
        wait_until(marker.exists)
        daemon.send_signal(signal.SIGTERM)
        try:
            _, log = daemon.communicate(timeout=PATIENCE)
        finally:
            daemon.kill()
    assert daemon.returncode == 0
    assert [json.loads(line)["event"] for line in log.splitlines()][-2:] == ["undone", "stopped"]
    assert (queued.files(), queued.catalog.replicas.find(), queued.catalog.leases.all()) == ([], [], [])
    assert queued.queue() == [("planned", "")]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOTCONN, errno.ESTALE, errno.ENOSPC])
@pytest.mark.thorough(1)
def test_what_storage_fails_is_tried_again_less_and_less_often(
    queued: Place, monkeypatch: pytest.MonkeyPatch, code: int
):
    now = [1000.0]
    monkeypatch.setattr(daemon_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(daemon_module, "LEAST_SECONDS", 0)

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    daemon = queued.daemon()
    with monkeypatch.context() as patch:
        patch.setattr(copying, "runs", fail)
        for pause in (10, 20, 40, 80, 160, 320, 600, 600):
            (done,), _ = daemon.once()
            assert os.strerror(code) in done.why
            assert queued.queue() == [("planned", done.why)]
            now[0] += pause - 1
            assert daemon.once()[0] == []
            now[0] += 1
    (done,), _ = daemon.once()
    assert (done.why, queued.queue()) == ("", [("built", "")])
    assert queued.is_sound()


def test_metrics_are_fresh_while_a_replica_is_built(queued: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(daemon_module, "METRICS_SECONDS", 0.01)
    told = queued.directory / "m.prom"
    seen: list[str] = []

    def build(*_: object, **__: object) -> None:
        wait_until(lambda: told.exists() and "pdla_daemon_building 1.0" in told.read_text())
        seen.append(told.read_text())
        raise UnfitError("seen")

    monkeypatch.setattr(daemon_module, "build", build)
    queued.daemon(metrics=Metrics(told)).once()
    assert len(seen) == 1
    assert "pdla_daemon_building 0.0" in told.read_text()


def test_a_daemon_waits_for_an_unreachable_catalog_when_it_starts_and_later(
    place: Place, own_postgresql: PostgreSQLServer
):
    url = own_postgresql.new_database()
    open_catalog(url).close()
    code = "from pdla import catalog\nfrom pdla.catalog import database, outages\nfrom pdla.replicator import daemon\n"
    code += "from pdla.replicator import throttling\nthrottling.give_way = lambda: None\n"
    code += "database.OUTAGE_SECONDS = daemon.QUEUE_SECONDS = 0.1\nfrom pdla.cli import main\nmain()"
    own_postgresql.stop()
    environment = {**place.environment, "PDLA_CATALOG": url}
    words = [sys.executable, "-c", code, "daemon", *ANYTIME]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None

        def wait_for_event(name: str) -> None:
            while json.loads(daemon.stderr.readline())["event"] != name:  # type: ignore[union-attr]
                pass

        try:
            wait_for_event("catalog failed")
            own_postgresql.start()
            for event in ("started", "scanned"):
                wait_for_event(event)
            own_postgresql.stop()
            wait_for_event("catalog failed")
            own_postgresql.start()
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(PATIENCE) == 0
        finally:
            daemon.kill()


def test_an_original_that_is_gone_with_its_directory_may_come_back(tmp_path: Path):
    with pytest.raises(UnfitError, match="No such file"), copying.opened(tmp_path / "gone"):
        pass
    with pytest.raises(PdlaError) as caught, copying.opened(tmp_path / "unmounted" / "gone"):
        pass
    assert type(caught.value) is PdlaError
