"""Leases: who works on what, told apart by numbers that only grow, and timed by the database's clock."""

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

LEASE_SECONDS = 60.0
"""How long a process may be silent before another one takes its work over."""


@cache
def this_process() -> str:
    """This process as a holder: host, number and start, so that a later process of the same number is another."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start(os.getpid())}"


os.register_at_fork(after_in_child=this_process.cache_clear)


def has_ended(holder: str) -> bool:
    """Whether a holder is known to have ended; of one on another host nothing is known."""
    host, process, start = holder.rsplit(":", 2)
    return host == socket.gethostname() and _start(int(process)) != start


def _start(process: int) -> str:
    """When a process began, in clock ticks since the machine did; empty: there is none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


class Leases(Section):
    """Who works on what: one process at a time on each resource."""

    @again
    def acquire(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Lease:
        """A lease of a resource, which ends after so many seconds unless it is renewed. Users call it ``name``.

        Raises:
            BusyError: another process has it.
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
        """Whether it is still this one's; it then ends so many seconds from now."""
        with self._session() as session:
            held = session.scalars(_row_of(lease).with_for_update()).one_or_none()
            if held is not None:
                held.expires = Now() + seconds
            return held is not None

    @again
    def release(self, lease: Lease) -> None:
        """Give it back; nothing happens where another process has taken it."""
        with self._session() as session:
            _release(session, lease)

    @again
    def check(self, lease: Lease) -> None:
        """Nothing, if the lease is still this one's.

        Raises:
            BusyError: another process has taken it.
        """
        with self._session() as session:
            check(session, lease)

    @again
    def all(self) -> list[Lease]:
        """All of them, by resource; of those that are up, ``seconds`` is not above 0."""
        with self._session() as session:
            return _all(session)

    @again
    def end_expired(self) -> None:
        """Forget those that are up: whoever held one can do nothing with it any more."""
        with self._session(alone=True) as session:
            for lease in _all(session):
                if lease.seconds <= 0:
                    _release(session, lease)

    @contextmanager
    def hold(self, resource: str, seconds: float = LEASE_SECONDS, name: str = "") -> Iterator[Lease]:
        """A lease that is renewed while it is in use, however long that takes, as long as this process runs.

        Raises:
            BusyError: another process has it.
        """
        lease = self.acquire(resource, seconds, name)
        try:
            with _Keeper(lambda: self.renew(lease, seconds), seconds):
                yield lease
        finally:
            with suppress(PdlaError):  # where the catalog is gone it ends by itself
                self.release(lease)


def check(session: Session, lease: Lease) -> None:
    """Nothing, if nobody has taken the lease over; nobody can until this transaction ends.

    Raises:
        BusyError: somebody has.
    """
    if session.scalars(_row_of(lease).with_for_update()).one_or_none() is None:
        raise BusyError(f"another process has taken over the work on {lease.name}: nothing of this one's is kept")


def _release(session: Session, lease: Lease) -> None:
    """Give it back, if it is still this one's."""
    session.execute(delete(LeaseRow).where(LeaseRow.resource == lease.resource, LeaseRow.token == lease.token))


def _all(session: Session) -> list[Lease]:
    """All of them, by resource, those that are up too."""
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
    """Renews a lease from a thread of its own for as long as it is in use."""

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
                continue  # the database may come back before the lease is up; what it guards checks it anyway
