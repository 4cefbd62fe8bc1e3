"""Kill gc, publications, upgrades of catalogs and daemons at random moments: no wrong byte is served, no file is left.

python -m tests.searches.killing_maintenance [MOMENTS] [SEED]
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pdla.catalog import Occurrence, Run, open_catalog
from pdla.catalog.tables import SCHEMA_VERSION
from pdla.replicator import daemon
from pdla.replicator.mapfile import publish, read_map
from pdla.replicator.queued_plans import enqueue
from pdla.replicator.throttling import Gate
from pdla.replicator.verify import gc
from tests.searches.killing_builds import Place as Built
from tests.support.compilers import REPOSITORY

VERSION_1 = (REPOSITORY / "tests/catalog_v1.sql").read_text()


class Place(Built):
    """One original, and work on its replicas in processes that are killed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.old = directory / "old.db"
        with closing(open_catalog()) as catalog:
            run = Run("app", 4, "trace", "/t.h5", "csv", None, "", (), {}, (str(self.original),), 1, 1)
            catalog.runs.record(run, [Occurrence(self.signature, {})])

    # The state before, the work, and what must hold wherever the work was interrupted.

    def before_gc(self) -> None:
        self.before_publish()
        with closing(open_catalog()) as catalog:
            catalog.replicas.mark(catalog.replicas.find("valid")[0].id, "stale", "because")

    def gc(self) -> None:
        with closing(open_catalog()) as catalog:
            gc(catalog)

    def after_gc(self) -> None:
        assert self.served() in ([], [1])  # until a new map is published, the old one's files are complete
        self.gc()
        assert (self.served(), self.files()) == ([], set())

    def before_publish(self) -> None:
        self.replicate(1)

    def publish(self) -> None:
        with closing(open_catalog()) as catalog:
            publish(catalog)

    def after_publish(self) -> None:
        assert self.served() == [1]
        self.check()
        kept = {"replicas.map", read_map(self.home / "replicas.map").state_path.name}
        assert {file.name for file in self.home.glob("replicas.map*")} == kept

    def before_upgrade(self) -> None:
        for file in self.old.parent.glob(f"{self.old.name}*"):
            file.unlink()
        with sqlite3.connect(self.old) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.executescript(VERSION_1)
        database.close()

    def upgrade(self) -> None:
        open_catalog(f"sqlite:///{self.old}").close()

    def after_upgrade(self) -> None:
        with sqlite3.connect(self.old) as database:
            (version,) = database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
            assert version in ("1", str(SCHEMA_VERSION))
        database.close()
        with closing(open_catalog(f"sqlite:///{self.old}")) as catalog:
            assert [(one.id, one.state, len(one.components)) for one in catalog.replicas.find()] == [(1, "valid", 2)]

    def before_daemon(self) -> None:
        with closing(open_catalog()) as catalog:
            enqueue(catalog, self.plan(4))

    def daemon(self) -> None:
        with closing(open_catalog()) as catalog:
            daemon.Daemon(catalog, threading.Event(), Gate(1.0, 1e15)).once()

    def after_daemon(self) -> None:
        """Another daemon completes the work; meanwhile the old replica is served, or the new one."""
        assert self.served() in ([], [1], [4])
        self.daemon()
        with closing(open_catalog()) as catalog:
            assert [one.state for one in catalog.patterns.find()] == ["built"]
            assert catalog.leases.all() == []
        self.check()
        assert self.served() == [4]

    def done(self, work: Callable[[], None], kill_after: float | None = None) -> bool:
        """Do some work in its own process, and kill it if asked to; return whether it ended by itself."""
        child = os.fork()
        if not child:
            work()
            os._exit(0)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def kill_at_random(directory: Path, moments: int, seed: int = 0) -> dict[str, int]:
    """Each kind of work in turn, killed at random moments; return how often each was still going on."""
    place, chance = Place(directory), random.Random(seed)
    daemon.LEAST_SECONDS = 0.0  # it must not be killed while it measures the others' load
    works = {
        "gc": (place.before_gc, place.gc, place.after_gc),
        "publish": (place.before_publish, place.publish, place.after_publish),
        "upgrade": (place.before_upgrade, place.upgrade, place.after_upgrade),
        "daemon": (place.before_daemon, place.daemon, place.after_daemon),
    }
    durations = {}
    for name, (before, work, after) in works.items():
        before()
        began = time.monotonic()
        assert place.done(work)
        durations[name] = time.monotonic() - began
        after()
    killed = dict.fromkeys(works, 0)
    for moment in range(moments):
        name = list(works)[moment % len(works)]
        before, work, after = works[name]
        before()
        killed[name] += not place.done(work, chance.uniform(0, 1.2 * durations[name]))
        after()
    return killed


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]] or [200]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PDLA_HOME"] = f"{folder}/home"
        found = kill_at_random(Path(folder), *arguments)
    counts = ", ".join(f"{name} {count}" for name, count in found.items())
    print(f"{arguments[0]} moments, killed while at work: {counts}; nothing wrong was served, nothing is left")
