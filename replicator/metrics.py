"""The daemon's metrics for Prometheus, in a file for node_exporter's textfile collector, on a local port, or both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server, write_to_textfile

from pdla.catalog import Census
from pdla.errors import PdlaError

MOST, LONGEST = 100, 120
"""Applications with metrics, since each is a series of its own; characters of their names."""
APPLICATIONS = {
    "runs": "Runs of an application that were learned from",
    "saved_seconds": "Seconds of I/O that its recorded runs saved, of the slowest rank",
    "hit_ratio": "Share of the bytes read in its last run that came from replicas",
    "replica_bytes": "Bytes of its replicas",
    "changed_runs": "Its runs whose patterns were others than before",
}
"""The metrics of an application, pdla_application_..., in the order of ApplicationFigures."""


class ApplicationFigures(NamedTuple):
    """What a program that was learned from is worth, for metrics.

    ``saved`` are the seconds of I/O that recorded runs saved, ``hit_ratio`` is that of the last run, ``replica_bytes``
    are there now, and in ``changes`` of the ``runs`` the patterns were others than before.
    """

    name: str
    runs: int
    saved: float
    hit_ratio: float
    replica_bytes: int
    changes: int


class Metrics:
    """The metrics of one daemon.

    Raises:
        PdlaError: ``port`` cannot be opened.
    """

    def __init__(self, file: Path | None = None, port: int | None = None) -> None:
        registry = CollectorRegistry()
        self._registry, self._file = registry, file
        self.replicas = Gauge("pdla_replicas", "Replicas by state", ["state"], registry=registry)
        self.replica_bytes = Gauge("pdla_replica_bytes", "Bytes of replicas by state", ["state"], registry=registry)
        self.queue = Gauge("pdla_queue_patterns", "Patterns by their place in the queue", ["state"], registry=registry)
        self.busy = Gauge("pdla_daemon_busy", "1 while others leave too little of the machine", registry=registry)
        self.building = Gauge("pdla_daemon_building", "1 while a replica is built", registry=registry)
        self.builds = Counter("pdla_daemon_builds", "Builds that ended, by how", ["outcome"], registry=registry)
        self.built_bytes = Counter("pdla_daemon_built_bytes", "Bytes of replicas built", registry=registry)
        self.freed_bytes = Counter("pdla_daemon_freed_bytes", "Bytes of replicas removed", registry=registry)
        self.failures = Counter("pdla_daemon_failures", "Times that the catalog failed", registry=registry)
        self.cache_bytes = Counter(
            "pdla_cache_bytes", "Bytes of runs' caches, by what happened", ["what"], registry=registry
        )
        self.cache_hidden = Counter("pdla_cache_hidden_seconds", "Moves that no program waited for", registry=registry)
        self.cache_refused = Counter("pdla_cache_refused_calls", "Calls not cached, by why", ["why"], registry=registry)
        self.applications = {
            figure: Gauge(f"pdla_application_{figure}", text, ["application"], registry=registry)
            for figure, text in APPLICATIONS.items()
        }
        self.waiting = Gauge("pdla_learning_runs", "Runs that wait to be learned from", registry=registry)
        self.scanned = Gauge("pdla_daemon_scan_timestamp_seconds", "When all originals were checked", registry=registry)
        if port is not None:
            try:
                start_http_server(port, "127.0.0.1", registry)
            except OSError as error:
                raise PdlaError(f"cannot listen on 127.0.0.1:{port} for Prometheus: {error.strerror}") from error

    def count_caches(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Add what the reports of runs, in their JSON form, say of their caches."""
        for cache in (report["cache"] for report in reports if report.get("cache")):
            for what in ("written", "hit", "home"):
                self.cache_bytes.labels(what).inc(cache[f"{what}_bytes"])
            self.cache_hidden.inc(cache["seconds_hidden"])
            for one in cache["refused"]:
                self.cache_refused.labels(one["why"]).inc(one["calls"])

    def set_applications(self, figures: Iterable[ApplicationFigures], waiting: int) -> None:
        """Set what applications are worth, of the ``MOST`` that saved most, and how many runs wait."""
        for gauge in self.applications.values():
            gauge.clear()
        for one in sorted(figures, key=lambda one: -abs(one.saved))[:MOST]:
            values = (one.runs, one.saved, one.hit_ratio, one.replica_bytes, one.changes)
            for gauge, value in zip(self.applications.values(), values, strict=True):
                gauge.labels(one.name[:LONGEST]).set(value)
        self.waiting.set(waiting)

    def update(self, census: Census | None) -> None:
        """Set the metrics to what the catalog holds now, if that is known, and write the file, if there is one.

        Raises:
            PdlaError: the file cannot be written.
        """
        for state, (count, size) in census.replicas.items() if census else ():
            self.replicas.labels(state).set(count)
            self.replica_bytes.labels(state).set(size)
        for place, count in census.queue.items() if census else ():
            self.queue.labels(place).set(count)
        if self._file is not None:
            try:
                write_to_textfile(str(self._file), self._registry)
            except OSError as error:
                raise PdlaError(f"cannot write the metrics to {self._file}: {error.strerror}") from error
