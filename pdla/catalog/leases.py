"""Leases: who works on what. Each has a token that only grows, and ends by the database's clock."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from pdla.catalog.database import Section
from pdla.catalog.outages import again
from pdla.catalog.records import Lease
from pdla.catalog.tables import LeaseRow, MetaRow, Now
from pdla.errors import BusyError, PdlaError
from pdla.processes import process_table

LEASE_SECONDS = 60.0
"""Seconds without a sign of life after which another process takes a process's work over."""


@cache
def this_process() -> str:
    """This process as a holder: host, number, start and table of processes.

    A later process may get the same number; processes of two containers may have the same host and number.
    """
    return f"{socket.gethostname()}:{os.getpid()}:{_start(os.getpid())}{_table()}"


os.register_at_fork(after_in_child=this_process.cache_clear)


def has_ended(holder: str) -> bool:
    """Whether a holder is known to have ended; nothing is known of one on another host or in another container."""
    host, process, started = holder.rsplit(":", 2)
    start, table = started.partition("@")[::2]
    return host == socket.gethostname() and f"@{table}" == _table() and _start(int(process)) != start


def _table() -> str:
    """The end of the name of every holder whose process this process would see; empty if it is not known."""
    table = process_table()
    return "" if table is None else f"@{table.boot[:8]}-{table.namespace}"


def _start(process: int) -> str:
    """When a process began, in clock ticks since the machine started; empty if there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


class Leases(Section):
    """Who works on what: one process at a time on each resource."""

    @again
    def acquire(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Lease:
        """A lease of a resource. It ends after so many seconds unless it is renewed. Users see it as ``name``.

        Raises:
            BusyError: another process holds the lease.
        """
        with self._session(alone=True, once=True) as session:
            row = session.get(LeaseRow, resource, with_for_update=True)
            if row is not None and _left(session, row) > 0 and not has_ended(row.holder):
                raise BusyError(f"{row.holder} works on {name or resource}: wait for it")
            fence = session.get_one(MetaRow, "fence", with_for_update=True)
            fence.value = str(int(fence.value) + 1)
            row = row or LeaseRow(resource=resource)
            row.holder, row.token, row.expires = this_process(), int(fence.value), Now() + seconds
            session.add(row)
            return Lease(resource, row.holder, row.token, seconds, name or resource)

    @again
    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> bool:
        """Let the lease end so many seconds from now; return whether this process still holds it."""
        with self._session() as session:
            held = session.scalars(_row_of(lease).with_for_update()).one_or_none()
            if held is not None:
                held.expires = Now() + seconds
            return held is not None

    @again
    def release(self, lease: Lease) -> None:
        """Release the lease; do nothing if another process has taken it."""
        with self._session() as session:
            _release(session, lease)

    @again
    def check(self, lease: Lease) -> None:
        """Check that this process still holds the lease.

        Raises:
            BusyError: another process has taken it.
        """
        with self._session() as session:
            check(session, lease)

    @again
    def all(self) -> list[Lease]:
        """All leases, by resource; those that have ended have ``seconds`` of at most 0."""
        with self._session() as session:
            return _all(session)

    @again
    def end_expired(self) -> None:
        """Remove the leases that have ended; their holders cannot use them any more."""
        with self._session(alone=True) as session:
            for lease in _all(session):
                if lease.seconds <= 0:
                    _release(session, lease)

    @contextmanager
    def hold(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Iterator[Lease]:
        """A lease that is renewed while it is in use, however long that takes, as long as this process runs.

        Raises:
            BusyError: another process holds the lease.
        """
        lease = self.acquire(resource, seconds, name)
        try:
            with _Keeper(lambda: self.renew(lease, seconds), seconds):
                yield lease
        finally:
            with suppress(PdlaError):  # without the catalog the lease ends by itself
                self.release(lease)


def check(session: Session, lease: Lease) -> None:
    """Check that nobody has taken the lease over; nobody can before this transaction ends.

    Raises:
        BusyError: another process has taken it.
    """
    if session.scalars(_row_of(lease).with_for_update()).one_or_none() is None:
        raise BusyError(
            f"another process has taken over the work on {lease.name}: this process keeps nothing of its own"
        )


def _release(session: Session, lease: Lease) -> None:
    """Release the lease, if this process still holds it."""
    session.execute(delete(LeaseRow).where(LeaseRow.resource == lease.resource, LeaseRow.token == lease.token))


def _all(session: Session) -> list[Lease]:
    """All leases, by resource, including those that have ended."""
    rows = session.execute(select(LeaseRow, LeaseRow.expires - Now()).order_by(LeaseRow.resource))
    return [
        Lease(row.resource, row.holder, row.token, 0.0 if has_ended(row.holder) else left, row.resource)
        for row, left in rows
    ]


def _left(session: Session, row: LeaseRow) -> float:
    left: ColumnElement[float] = LeaseRow.expires - Now()
    return session.scalars(select(left).where(LeaseRow.resource == row.resource)).one()


def _row_of(lease: Lease) -> Any:
    return select(LeaseRow).where(LeaseRow.resource == lease.resource, LeaseRow.token == lease.token)


class _Keeper:
    """Renews a lease from a thread of its own as long as the lease is in use."""

    def __init__(self, renew: Callable[[], bool], seconds: float) -> None:
        self._renew, self._every = renew, seconds / 4
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pdla-lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                if not self._renew():
                    return
            except PdlaError:
                continue  # the database may return before the lease ends; the work checks the lease anyway
