"""Leases: who works on what. Each has a token that only grows, and ends by the database's clock."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from pdla.catalog.database import Section, count_up
from pdla.catalog.outages import again
from pdla.catalog.records import Lease
from pdla.catalog.tables import LEASES, Now
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


_LEFT = (LEASES.c.expires - Now()).label("left")
"""The seconds until a lease ends."""


class Leases(Section):
    """Who works on what: one process at a time on each resource."""

    @again
    def acquire(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Lease:
        """A lease of a resource. It ends after so many seconds unless it is renewed. Users see it as ``name``.

        Raises:
            BusyError: another process holds the lease.
        """
        of_resource = LEASES.c.resource == resource
        with self._transaction(alone=True, once=True) as connection:
            holder = connection.scalar(select(LEASES.c.holder).where(of_resource).with_for_update())
            # The time is asked for when nobody else can change the row any more.
            left = connection.scalar(select(_LEFT).where(of_resource)) or 0.0
            if holder is not None and left > 0 and not has_ended(holder):
                raise BusyError(f"{holder} works on {name or resource}: wait for it")
            lease = Lease(resource, this_process(), count_up(connection, "fence"), seconds, name or resource)
            values = {"resource": resource, "holder": lease.holder, "token": lease.token}
            connection.execute(delete(LEASES).where(of_resource))
            connection.execute(insert(LEASES).values(**values, expires=Now() + seconds))
            return lease

    @again
    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> bool:
        """Let the lease end so many seconds from now; return whether this process still holds it."""
        with self._transaction() as connection:
            renewed = connection.execute(update(LEASES).where(_is(lease)).values(expires=Now() + seconds))
            return renewed.rowcount > 0

    @again
    def release(self, lease: Lease) -> None:
        """Release the lease; do nothing if another process has taken it."""
        with self._transaction() as connection:
            _release(connection, lease)

    @again
    def check(self, lease: Lease) -> None:
        """Check that this process still holds the lease.

        Raises:
            BusyError: another process has taken it.
        """
        with self._transaction() as connection:
            check(connection, lease)

    @again
    def all(self) -> list[Lease]:
        """All leases, by resource; those that have ended have ``seconds`` of at most 0."""
        with self._transaction() as connection:
            return _all(connection)

    @again
    def end_expired(self) -> None:
        """Remove the leases that have ended; their holders cannot use them any more."""
        with self._transaction(alone=True) as connection:
            for lease in _all(connection):
                if lease.seconds <= 0:
                    _release(connection, lease)

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


def check(connection: Connection, lease: Lease) -> None:
    """Check that nobody has taken the lease over; nobody can before this transaction ends.

    Raises:
        BusyError: another process has taken it.
    """
    if connection.scalar(select(LEASES.c.token).where(_is(lease)).with_for_update()) is None:
        raise BusyError(
            f"another process has taken over the work on {lease.name}: this process keeps nothing of its own"
        )


def _release(connection: Connection, lease: Lease) -> None:
    """Release the lease, if this process still holds it."""
    connection.execute(delete(LEASES).where(_is(lease)))


def _all(connection: Connection) -> list[Lease]:
    """All leases, by resource, including those that have ended."""
    rows = connection.execute(select(LEASES, _LEFT).order_by(LEASES.c.resource))
    return [
        Lease(row.resource, row.holder, row.token, 0.0 if has_ended(row.holder) else row.left, row.resource)
        for row in rows
    ]


def _is(lease: Lease) -> ColumnElement[bool]:
    """Whether a row is of this lease: another process that has taken the resource has a token of its own."""
    return (LEASES.c.resource == lease.resource) & (LEASES.c.token == lease.token)


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
