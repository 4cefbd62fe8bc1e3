"""pdla run --policy s4d: what comes before and after the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdla.errors import BusyError, PdlaError
from pdla.units import format_bytes, format_seconds, shown

if TYPE_CHECKING:
    from pdla.catalog import Catalog, Replica
    from pdla.model import Cluster
    from pdla.replicator.critical_logs import CriticalLog
    from pdla.replicator.critical_reads import CriticalReport
    from pdla.replicator.exit_reports import RunReport

HEADERS = ("read", "on SSDs", "saved", "written", "home", "fetched", "critical", "file")
"""Of the table: bytes of critical reads, those of them that SSD servers had, what that saved; bytes written to SSD
servers, and brought home; bytes copied to them after the run, and all that are critical."""


class CriticalRun:
    """A run with S4D-Cache.

    Attributes:
        notes: what there is to say besides the table, such as why bytes could not be copied.
        reports: a row for each file, after ``finish``.
    """

    def __init__(self, cluster: Cluster, reserved: int) -> None:
        self.cluster, self.reserved = cluster, reserved
        self.notes: list[str] = []
        self.reports: list[CriticalReport] = []
        self._logs: Mapping[Path, Sequence[CriticalLog]] = {}
        self._served: Mapping[Path, Replica] = {}

    def begin(self, logs: Path) -> dict[str, str]:
        """The variables of the run, whose processes leave their logs in this directory.

        If traces tell of critical reads, they are copied to the SSD servers first.

        Raises:
            PdlaError: the directories of the SSD servers cannot be made.
        """
        from pdla.catalog import open_catalog
        from pdla.policies.online import pool_of
        from pdla.replicator.critical_patterns import seed
        from pdla.replicator.critical_reads import serving

        for where in pool_of(self.cluster, "ssd", "s4d").where:
            try:
                Path(where).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PdlaError(f"no directory of an SSD server: {error}") from error
        catalog = open_catalog()
        if seed(catalog, self.cluster):
            self._fetch(catalog)
        self._served = serving(catalog)
        return {"PDLA_S4D_LOG": str(logs)}

    def ended(self, logs: Path) -> None:
        """Read what the processes left."""
        from pdla.replicator.critical_logs import read_logs

        self._logs, problems = read_logs(logs)
        self.notes += problems

    def finish(self, catalog: Catalog, run: RunReport) -> None:
        """Record what the run found critical, and copy to the SSD servers what saves most."""
        from pdla.replicator.critical_logs import record
        from pdla.replicator.critical_reads import reports

        record(self._logs, catalog)
        failed = self._fetch(catalog)
        self.reports = reports(self._logs, self._served, run, catalog, failed)

    def _fetch(self, catalog: Catalog) -> Mapping[Path, str]:
        from pdla.replicator.critical_reads import fetch

        try:
            return fetch(catalog, self.cluster, self.reserved)
        except BusyError as error:
            self.notes.append(f"nothing was copied to the SSD servers: {error}")
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
