"""pdla run --policy s4d, ibridge or liu: what is done before, beside and after the program."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdla.answers import ensure_answers, unanswered
from pdla.errors import BusyError, PdlaError
from pdla.units import format_bytes, format_seconds, shown

if TYPE_CHECKING:
    from pdla.catalog import Catalog, Replica
    from pdla.file_policies import FilePolicies
    from pdla.model import Cluster
    from pdla.replicator.critical_logs import CriticalLog
    from pdla.replicator.critical_reads import CriticalReport
    from pdla.replicator.exit_reports import RunReport

HEADERS = ("read", "on SSDs", "saved", "written", "home", "fetched", "critical", "file")
"""Of the table: bytes of critical reads, those of them that SSD servers had, what that saved; bytes written to SSD
servers, and brought home; bytes copied to them in and after the run, and all that are critical."""
LOWEST_PRIORITY = 19
LOOK_SECONDS = 1.0
"""Between looks for what processes found, while the program runs."""


class CriticalRun:
    """A run with S4D-Cache, iBridge or LiU.

    Attributes:
        notes: what there is to say besides the table, such as why bytes could not be copied.
        reports: a row for each file, after ``finish``.
    """

    def __init__(self, policies: FilePolicies, cluster: Cluster, reserved: int) -> None:
        self.policies, self.cluster, self.reserved = policies, cluster, reserved
        self.notes: list[str] = []
        self.reports: list[CriticalReport] = []
        self._found: dict[Path, CriticalLog] = {}  # what is recorded
        self._left: dict[Path, CriticalLog] = {}  # what is not yet
        self._before: Collection[int] = ()
        self._replicas: dict[int, Replica] = {}

    def begin(self, logs: Path) -> dict[str, str]:
        """The variables of the run, whose processes leave their logs in this directory.

        If traces tell of critical reads of S4D-Cache, they are copied to the SSD servers first. The program runs
        without a catalog, too.

        Raises:
            PdlaError: the directories of the SSD servers cannot be made, or do not answer.
        """
        from pdla.catalog import open_catalog
        from pdla.policies.online import pool_of
        from pdla.replicator.critical_patterns import seed
        from pdla.replicator.verify import remove_left_runs

        servers = pool_of(self.cluster, "ssd", "pdla run --policy").where
        ensure_answers(servers)
        for where in servers:
            try:
                Path(where).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PdlaError(f"no directory of an SSD server: {error}") from error
        try:
            catalog = open_catalog()
            remove_left_runs(catalog)
            if seed(catalog, self.cluster, lambda path: self.policies.of(path) == "s4d"):
                self._fetch(catalog)
            self._remember(catalog)
        except (PdlaError, OSError) as error:
            self.notes.append(f"what is known to be critical cannot be looked up: {error}")
        self._before = [*self._replicas]
        return {"PDLA_CRITICAL_LOG": str(logs)}

    @contextmanager
    def beside(self, logs: Path) -> Iterator[None]:
        """While the program runs: copy what a process found critical until it closed a file.

        The next open of the file, in this program or in another one, reads it from the SSD servers.
        """
        from pdla.replicator.critical_logs import logs_in

        ended = threading.Event()

        def work() -> None:
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)  # of this thread, and of those that it starts
            while not ended.wait(LOOK_SECONDS):
                # What cannot be done now is done after the program. The other ranks close the file at about the same
                # time: what all of them found is copied at once.
                with suppress(PdlaError, OSError):
                    if logs_in(logs) and not ended.wait(LOOK_SECONDS):
                        self._fetch_found(logs)

        thread = threading.Thread(target=work, name="pdla-critical", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _fetch_found(self, directory: Path) -> None:
        from pdla.catalog import open_catalog
        from pdla.replicator.critical_logs import logs_in
        from pdla.replicator.critical_reads import fetch

        paths = logs_in(directory)
        with closing(open_catalog()) as catalog:
            self._read(paths)
            self._record(catalog)
            for path in paths:
                path.unlink()  # and not before: pdla gc records the logs of a command that was killed
            fetch(catalog, self.cluster, self.reserved)
            self._remember(catalog)

    def ended(self, directory: Path) -> None:
        """Read what the processes left at their end, and remove what nobody uses on the SSD servers."""
        from pdla.policies.online import pool_of
        from pdla.replicator.critical_logs import logs_in
        from pdla.replicator.reservations import remove_unused_nodes

        self._read(logs_in(directory))
        servers = pool_of(self.cluster, "ssd", "pdla run --policy").where
        silent = unanswered(servers)
        remove_unused_nodes(where for where in servers if where not in silent)

    def finish(self, run: RunReport) -> None:
        """Record what the run found critical, and copy to the SSD servers what saves most."""
        from pdla.catalog import open_catalog
        from pdla.replicator.critical_reads import reports

        failed: Mapping[Path, str] = {}
        try:
            catalog = open_catalog()
            self._record(catalog)
            failed = self._fetch(catalog)
            self._remember(catalog)
        except OSError as error:
            self.notes.append(f"nothing more is copied to the SSD servers: {error}")
        self.reports = reports(self._found, self._before, [*self._replicas.values()], run, catalog, failed)

    def _read(self, paths: Sequence[Path]) -> None:
        from pdla.replicator.critical_logs import read_logs

        self._left, problems = read_logs(paths)
        self.notes += [why for why in problems if why not in self.notes]

    def _record(self, catalog: Catalog) -> None:
        from pdla.replicator.critical_logs import joined, record

        record(self._left, catalog, before=self._found)
        for path, log in self._left.items():
            self._found[path] = joined([self._found[path], log]) if path in self._found else log
        self._left = {}

    def _remember(self, catalog: Catalog) -> None:
        """The replicas that the program may read from, as long as they are there."""
        from pdla.replicator.critical_reads import serving

        self._replicas |= {one.id: one for one in serving(catalog).values()}

    def _fetch(self, catalog: Catalog) -> Mapping[Path, str]:
        from pdla.replicator.critical_reads import fetch

        try:
            return fetch(catalog, self.cluster, self.reserved)
        except BusyError as error:
            self.notes.append(f"what is critical is copied to the SSD servers by another process: {error}")
            return {}

    def text(self) -> str:
        """The table of all files; "" if the run had no critical requests."""
        from pdla.report.text import MOST, more, table

        if not self.reports:
            return ""
        most = sorted(self.reports, key=lambda one: -(one.read_bytes + one.written_bytes))
        rows = [_row(one) for one in most[:MOST]]
        lines = [table(HEADERS, rows, "rrrrrrrl")]
        lines += more(len(most), "files")
        lines += [shown(f"{one.path}: nothing was fetched: {one.why}") for one in most[:MOST] if one.why]
        return "\n".join(lines)

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [one.to_json() for one in self.reports]


def _row(one: CriticalReport) -> list[str]:
    saved = format_seconds(one.saved_seconds) if one.saved_seconds else "-"
    before = (one.read_bytes, one.served_bytes)
    after = (one.written_bytes, one.home_bytes, one.fetched_bytes, one.critical_bytes)
    return [*map(format_bytes, before), saved, *map(format_bytes, after), one.path]
