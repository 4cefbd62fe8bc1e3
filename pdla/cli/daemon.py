"""pdla daemon: build queued replicas while the machine is idle."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdla.cli.options import IDLE_IO, IDLE_LOAD, Finite, Output, json_option, print_json, size
from pdla.cli.replicate import built_json, built_line
from pdla.cli.signals import stopping
from pdla.errors import PdlaError
from pdla.units import counted

if TYPE_CHECKING:
    from pdla.replicator.daemon import Done
    from pdla.replicator.verify import Removed

UNIT = Path(__file__).with_name("pdla-daemon.service")


@click.command()
@click.option("--once", is_flag=True, help="Do what waits now, then end: for cron and for batch jobs.")
@click.option("--cluster", metavar="FILE|NAME", help="Also plan for new patterns, on the storage of this cluster.toml.")
@click.option("--max-bandwidth", callback=size, help="Copy at most so many bytes per second.")
@click.option(
    "--idle-load",
    type=Finite(0, 1),
    default=IDLE_LOAD,
    show_default=True,
    help="Work only while other processes use at most this share of the processors.",
)
@click.option(
    "--idle-io",
    callback=size,
    default=IDLE_IO,
    show_default=True,
    help="... and move at most so many bytes per second to and from this machine's disks.",
)
@click.option("--metrics-file", type=Output(), metavar="FILE", help="Write metrics for Prometheus to this .prom file.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve the metrics on this port of 127.0.0.1.")
@click.option("--unit", is_flag=True, help="Print a systemd unit that runs this command line, then end.")
@json_option
def daemon(
    once: bool,
    cluster: str | None,
    max_bandwidth: int | None,
    idle_load: float,
    idle_io: int,
    metrics_file: Path | None,
    metrics_port: int | None,
    unit: bool,
    as_json: bool,
) -> None:
    """Build queued replicas while the machine is idle.

    pdla plan --queue puts plans into the queue. The daemon builds one pattern at a time, at the
    lowest priority. It also learns from the runs of pdla run --learn, and removes replicas whose
    original is gone or changed. It logs one line of
    JSON for each event to standard error. SIGTERM ends it; an incomplete replica is removed.
    """
    if unit:
        words = [word for word in sys.argv[1:] if word != "--unit"]
        command = shlex.join([str(Path(sys.argv[0]).absolute()), *words])
        click.echo(UNIT.read_text().replace("@COMMAND@", command.replace("%", "%%")), nl=False)
        return
    from pdla.autopilot.learner import Learner
    from pdla.autopilot.spool import daemon_learns
    from pdla.catalog import open_catalog
    from pdla.layouts.config import load_cluster
    from pdla.replicator.daemon import Daemon, catalog_at_last
    from pdla.replicator.metrics import Metrics
    from pdla.replicator.throttling import Gate, Limit, give_way

    stop = threading.Event()
    metrics = Metrics(metrics_file, metrics_port)
    storage = load_cluster(cluster) if cluster else None
    give_way()
    with _logging():
        with stopping(stop.set):
            catalog = open_catalog(giving_up=stop) if once else catalog_at_last(stop)
        if catalog is None:
            return
        limit = Limit(max_bandwidth) if max_bandwidth else None
        served = Daemon(catalog, stop, Gate(idle_load, idle_io), limit, metrics, storage, learner=Learner(catalog))
        with daemon_learns(), stopping(served.stop):
            if not once:
                served.run()
                return
            done, removed = served.once()
    _print(done, removed, served.busy, as_json)


@contextmanager
def _logging() -> Iterator[None]:
    """Log to standard error, one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logger = logging.getLogger("pdla")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _JsonLines(logging.Formatter):
    """``time`` (ISO 8601, UTC), ``level``, ``event``, and the fields of the event."""

    _usual = frozenset(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        more = {name: value for name, value in vars(record).items() if name not in self._usual}
        return json.dumps({"time": time, "level": record.levelname.lower(), "event": record.getMessage(), **more})


def _print(done: list[Done], removed: Removed, busy: str, as_json: bool) -> None:
    """Print what ``--once`` did; fail if a build failed."""
    failed = [one for one in done if one.replica is None]
    if as_json:
        print_json(
            {
                "built": [{"pattern": one.pattern, **built_json(one.replica)} for one in done if one.replica],
                "failed": [{"pattern": one.pattern, "original": one.original, "why": one.why} for one in failed],
                "freed": removed.bytes,
                "busy": busy,
            }
        )
    else:
        for one in done:
            if one.replica:
                click.echo(built_line(one.replica))
        if busy:
            click.echo(f"The rest waits: {busy}.")
        elif not done:
            click.echo("No pattern waits to be built.")
    if failed:
        raise PdlaError(f"{counted(len(failed), 'replica')} could not be built: {failed[0].original}: {failed[0].why}")
