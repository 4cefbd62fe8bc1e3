"""Serve the replication queue: build what plans chose, one pattern at a time, while the machine is idle enough."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pdla import config
from pdla.catalog import Catalog, Pattern, open_catalog
from pdla.catalog.leases import this_process
from pdla.errors import BusyError, CatalogError, PdlaError, UnfitError
from pdla.model import Cluster
from pdla.replicator.builder import BuiltReplica, build
from pdla.replicator.critical_reads import fetch, reserved_for_writes, serving
from pdla.replicator.mapfile import fold, publish
from pdla.replicator.metrics import ApplicationFigures, Metrics
from pdla.replicator.queued_plans import choice, plan_queued
from pdla.replicator.status import DAEMON
from pdla.replicator.sync import write_back
from pdla.replicator.throttling import LEAST_SECONDS, Gate, Limit
from pdla.replicator.verify import Removed, changed_since, compare_changed, discard, gc

log = logging.getLogger("pdla.daemon")

QUEUE_SECONDS = 10.0
"""Seconds between two looks at the queue; while others need the machine, between two looks at their load."""
SCAN_SECONDS = 300.0
"""Seconds between two scans for replicas that nobody can use any more."""
STEP_SECONDS = 2.0
"""Seconds that the present step of a build gets when the daemon must end; the build ends after the step."""
METRICS_SECONDS = 10.0
"""Seconds between two updates of the metrics."""
MOST_SECONDS = 600.0
"""Longest time between two tries of a failed build. The first is ``QUEUE_SECONDS``, each other twice as long."""


class StoppedError(Exception):
    """The daemon must end; the replica that it was building is removed."""


@dataclass(frozen=True)
class Done:
    """The outcome for a planned pattern: a replica, or why there is none."""

    pattern: int
    original: str
    replica: BuiltReplica | None
    why: str = ""


def catalog_at_last(stop: threading.Event) -> Catalog | None:
    """The catalog, as soon as it can be reached; None if ``stop`` is set before.

    Raises:
        PdlaError: waiting cannot help: it is not a catalog, or of another version.
    """
    while not stop.is_set():
        try:
            return open_catalog(giving_up=stop)
        except CatalogError as error:
            log.error("catalog failed", extra={"why": str(error)})
        stop.wait(QUEUE_SECONDS)
    return None


class Learns(Protocol):
    """Learns from the runs that wait (pdla.autopilot.learner.Learner)."""

    def take_in_now(self) -> tuple[str, ...]:
        """Learn from them, which puts plans into the queue; return why something waits."""

    def holds_back(self, pattern: Pattern) -> bool:
        """Whether a pattern must not be built now."""

    def figures(self) -> Iterable[ApplicationFigures]:
        """What the applications are worth."""

    def waiting(self) -> int:
        """The number of runs that wait to be learned from."""


class Daemon:
    """Builds what waits in the queue and removes what is stale, until ``stop`` is set.

    With a ``cluster`` it also plans for patterns that wait for a plan. With a ``learner`` it learns
    from runs. ``busy`` is why it cannot build now.
    """

    def __init__(
        self,
        catalog: Catalog,
        stop: threading.Event,
        gate: Gate,
        limit: Limit | None = None,
        metrics: Metrics | None = None,
        cluster: Cluster | None = None,
        map_path: Path | None = None,
        learner: Learns | None = None,
    ) -> None:
        self._learner = learner
        self._catalog, self._stop, self._gate, self._limit = catalog, stop, gate, limit
        self._cluster = cluster
        self._metrics = metrics or Metrics()
        self._map_path = map_path or config.map_path()
        self._next_scan = 0.0
        self._counted = 0
        self._reported = 0
        self._building = False
        self._tries: dict[tuple[int, int | None], tuple[int, float]] = {}
        self.busy = ""

    def run(self) -> None:
        """Run until stopped. After a failure, such as of the catalog, it tries again."""
        while not self._stop.is_set():
            try:
                with self._presence():
                    self._serve_all()
            except (BusyError, CatalogError) as error:
                self._failed(error)

    def stop(self) -> None:
        """End soon. Called in a signal handler: a step of a build that takes longer is interrupted."""
        self._stop.set()
        if self._building:
            signal.signal(signal.SIGALRM, self._leave)
            signal.setitimer(signal.ITIMER_REAL, STEP_SECONDS)

    def _leave(self, *_: object) -> None:
        if self._building:
            self._building = False
            raise StoppedError

    def _serve_all(self) -> None:
        """Scan and build until stopped."""
        while not self._stop.is_set():
            try:
                if time.monotonic() >= self._next_scan:
                    self._scan()
                    self._fetch_critical()
                self._learn()
                while self._serve_one() is not None:
                    pass
            except CatalogError as error:
                self._failed(error)
                continue
            except (PdlaError, OSError) as error:
                log.error("work failed", extra={"why": str(error)})
            self._stop.wait(QUEUE_SECONDS)

    def _failed(self, error: PdlaError) -> None:
        """Report that the catalog failed, and wait a while."""
        self._metrics.failures.inc()
        log.error("catalog failed", extra={"why": str(error)})
        self._stop.wait(QUEUE_SECONDS)

    def once(self) -> tuple[list[Done], Removed]:
        """Remove what is stale, then build until nothing waits, the machine is ``busy`` or the daemon is stopped.

        Raises:
            PdlaError: the catalog failed.
        """
        with self._presence():
            removed = self._scan()
            self._fetch_critical()
            self._learn()
            done = list(iter(self._serve_one, None))
            self._learn()  # what was built is noted
        return done, removed

    @contextmanager
    def _presence(self) -> Iterator[None]:
        """Be on record as running, as pdla status shows it, and keep the metrics up to date."""
        with self._catalog.leases.hold(DAEMON + this_process()), self._metrics_thread():
            log.info("started", extra={"holder": this_process(), "catalog": str(self._catalog)})
            self._stop.wait(LEAST_SECONDS)  # for a first measurement of the others' load
            yield
        log.info("stopped")

    @contextmanager
    def _metrics_thread(self) -> Iterator[None]:
        """Update the metrics regularly, from a thread, since building a replica takes hours; and at the end."""
        ended = threading.Event()

        def update() -> None:
            while not ended.wait(METRICS_SECONDS):
                self._update_metrics()

        thread = threading.Thread(target=update, name="pdla-metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._update_metrics()

    def _scan(self) -> Removed:
        """Write back, remove replicas of originals that are gone or changed, remove the remains of ended processes."""
        self._next_scan = time.monotonic() + SCAN_SECONDS
        for one in write_back(self._catalog, map_path=self._map_path, who="pdla daemon"):
            about = {"original": str(one.original), "bytes": one.bytes}
            if one.problem:
                log.log(
                    logging.INFO if one.busy else logging.WARNING, "writes wait", extra={**about, "why": one.problem}
                )
            if one.bytes or not one.problem:
                log.info("written back", extra={**about, "lost": len(one.lost), "damaged": one.damaged})
        try:
            self._compare_changed()
            unproved = [replica.id for replica in changed_since(self._catalog)]
            removed = gc(self._catalog, map_path=self._map_path, keep=unproved)
        except BusyError as error:
            log.info("waiting", extra={"why": str(error)})
            return Removed(0, ())
        self._metrics.scanned.set_to_current_time()
        self._metrics.freed_bytes.inc(removed.bytes)
        log.info("scanned", extra={"freed": removed.bytes})
        for kept in removed.kept:
            log.warning("cannot be removed", extra={"replica": kept.replica, "why": f"{kept.path} {kept.problem}"})
        return removed

    def _compare_changed(self) -> None:
        """Find out which replicas still have the bytes of originals that were changed."""
        with self._catalog.exclusive():
            fold(self._catalog, self._map_path)
        if self._stop.is_set() or self._is_busy():
            return
        with suppress(StoppedError), self._interruptible():
            compare_changed(self._catalog, map_path=self._map_path, progress=self._progress)

    def _fetch_critical(self) -> None:
        """Copy to the SSD servers what a policy found critical, if the command that ran the program did not."""
        cluster = self._cluster
        if cluster is None or all(pool.kind != "ssd" for pool in cluster.pools) or self._stop.is_set():
            return
        if not self._catalog.critical.all() or self._is_busy():
            return
        before = {one.id for one in serving(self._catalog).values()}
        try:
            with self._interruptible():
                problems = fetch(self._catalog, cluster, reserved_for_writes(cluster), self._map_path, self._progress)
        except StoppedError:
            log.info("undone", extra={"critical": True})
            return
        except BusyError as error:
            log.info("left for later", extra={"why": str(error)})
            return
        for path, why in problems.items():
            log.error("postponed", extra={"original": str(path), "why": why})
        for path, replica in serving(self._catalog).items():
            if replica.id not in before:
                log.info("fetched", extra={"original": str(path), "replica": replica.id, "bytes": replica.size})

    def _learn(self) -> None:
        """Learn from the runs that wait."""
        for why in self._learner.take_in_now() if self._learner else ():
            log.warning("learning waits", extra={"why": why})

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """While a replica is built: ``stop`` may interrupt a step of it."""
        self._counted = 0
        self._building = True
        try:
            yield
        finally:
            self._building = False
            if self._stop.is_set():  # an alarm would end the process while Python shuts down
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _serve_one(self) -> Done | None:
        """Build the first waiting replica that nobody else builds; None if there is none, or this is not the time."""
        if self._cluster is not None and (planned := plan_queued(self._catalog, self._cluster)):
            log.info("planned", extra={"patterns": planned})
        for pattern in self._catalog.patterns.find(state="planned"):
            if self._stop.is_set() or self._is_busy():
                return None
            if time.monotonic() < self._tries.get((pattern.id, pattern.plan), (0, 0.0))[1]:
                continue
            if self._learner and self._learner.holds_back(pattern):
                continue
            try:
                return self._serve(pattern)
            except StoppedError:
                log.info("undone", extra={"pattern": pattern.id})
                return None
            except BusyError as error:
                log.info("left for later", extra={"pattern": pattern.id, "why": str(error)})
        return None

    def _serve(self, pattern: Pattern) -> Done:
        signature = pattern.signature
        about = {"pattern": pattern.id, "original": signature.file}
        log.info("building", extra=about)
        self._metrics.building.set(1)
        try:
            built = self._build(pattern)
        except (BusyError, CatalogError):
            raise
        except UnfitError as error:
            self._catalog.queue.set_state([signature], "failed", str(error))
            self._metrics.builds.labels("failed").inc()
            log.error("failed", extra={**about, "why": str(error)})
            return Done(pattern.id, signature.file, None, str(error))
        except (PdlaError, OSError) as error:
            self._catalog.queue.postpone(pattern.id, str(error))
            self._metrics.builds.labels("postponed").inc()
            log.error("postponed", extra={**about, "why": str(error), "seconds": self._postpone(pattern)})
            return Done(pattern.id, signature.file, None, str(error))
        finally:
            self._metrics.building.set(0)
        self._catalog.queue.set_state([signature], "built")
        self._metrics.builds.labels("kept" if built.kept else "built").inc()
        self._metrics.built_bytes.inc(0 if built.kept else built.bytes)
        facts = {"replica": built.id, "bytes": built.bytes, "seconds": round(built.seconds, 3), "kept": built.kept}
        log.info("built", extra={**about, **facts})
        return Done(pattern.id, signature.file, built)

    def _postpone(self, pattern: Pattern) -> float:
        """Seconds until the next try."""
        key = pattern.id, pattern.plan
        tries, _ = self._tries.get(key, (0, 0.0))
        pause = min(QUEUE_SECONDS * (1 << min(tries, 10)), MOST_SECONDS)
        self._tries[key] = tries + 1, time.monotonic() + pause
        return pause

    def _build(self, pattern: Pattern) -> BuiltReplica:
        """Build and publish what the pattern's plan chose; if only publishing failed last time, the replica exists."""
        layout, pool = choice(self._catalog, pattern)
        with self._interruptible():
            built = build(
                *(pattern.signature, layout, pool, self._catalog),
                progress=self._progress,
                map_path=self._map_path,
            )
        publish(self._catalog, self._map_path)
        discard(self._catalog, [replica.id for replica in self._catalog.replicas.find("retired")], self._map_path)
        return built

    def _progress(self, what: str, done: int, total: int) -> None:
        """Called by the builder every few MiB: slow down, pause or stop here."""
        moved = done - self._counted if done >= self._counted else done
        self._counted = done
        if self._stop.wait(self._limit.wait(moved) if self._limit else 0):
            raise StoppedError
        while self._is_busy():
            if self._stop.wait(QUEUE_SECONDS):
                raise StoppedError

    def _is_busy(self) -> bool:
        before, self.busy = self.busy, self._gate.busy()
        self._metrics.busy.set(bool(self.busy))
        if bool(self.busy) != bool(before):
            log.info("busy" if self.busy else "idle", extra={"why": self.busy or "others are done"})
        return bool(self.busy)

    def _update_metrics(self) -> None:
        try:
            self._catalog.take_in()
            census = self._catalog.census()
            reports = self._catalog.results.after(self._reported)
            self._metrics.count_caches(report for _, report in reports)
            self._reported = max([self._reported, *(number for number, _ in reports)])
            if self._learner:
                self._metrics.set_applications(self._learner.figures(), self._learner.waiting())
        except CatalogError:
            census = None  # the metrics show that the catalog failed
        try:
            self._metrics.update(census)
        except PdlaError as error:
            log.error("metrics failed", extra={"why": str(error)})
