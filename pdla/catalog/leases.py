"""Leases: who works on what, told apart by numbers that only grow, and timed by the database's clock."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Float, delete, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.functions import FunctionElement

from pdla.catalog.records import Lease
from pdla.catalog.tables import LeaseRow, MetaRow
from pdla.errors import BusyError, PdlaError

LEASE_SECONDS = 60.0
"""How long a process may be silent before another one takes its work over."""


class Now(FunctionElement[float]):
    """Seconds since 1970 by the clock of the database: the nodes that share a catalog need not agree on the time."""

    type = Float()
    inherit_cache = True


@compiles(Now)
def _now(element: Now, compiler: Any, **_: Any) -> str:
    return "EXTRACT(EPOCH FROM clock_timestamp())"


@compiles(Now, "sqlite")
def _now_sqlite(element: Now, compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


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


def acquire(session: Session, resource: str, seconds: float, name: str) -> Lease:
    """Take a free lease, or that of a holder whose time is up or who is known to have ended; messages say ``name``.

    Raises:
        BusyError: another one holds it.
    """
    row = session.get(LeaseRow, resource, with_for_update=True)
    if row is not None and _left(session, row) > 0 and not has_ended(row.holder):
        raise BusyError(f"{row.holder} works on {name}: wait for it")
    fence = session.get_one(MetaRow, "fence", with_for_update=True)
    fence.value = str(int(fence.value) + 1)
    row = row or LeaseRow(resource=resource)
    row.holder, row.token, row.expires = this_process(), int(fence.value), Now() + seconds
    session.add(row)
    return Lease(resource, row.holder, row.token, seconds, name)


def renew(session: Session, lease: Lease, seconds: float) -> bool:
    """Whether the lease is still this one's; it then lasts ``seconds`` from now on."""
    held = session.scalars(_row_of(lease).with_for_update()).one_or_none()
    if held is not None:
        held.expires = Now() + seconds
    return held is not None


def check(session: Session, lease: Lease) -> None:
    """Nothing, if nobody has taken the lease over; nobody can until this transaction ends.

    Raises:
        BusyError: somebody has.
    """
    if session.scalars(_row_of(lease).with_for_update()).one_or_none() is None:
        raise BusyError(f"another process has taken over the work on {lease.name}: nothing of this one's is kept")


def release(session: Session, lease: Lease) -> None:
    """Give it back, if it is still this one's."""
    session.execute(delete(LeaseRow).where(LeaseRow.resource == lease.resource, LeaseRow.token == lease.token))


def leases(session: Session) -> list[Lease]:
    """All of them, by resource, those that are up too."""
    rows = session.execute(select(LeaseRow, LeaseRow.expires - Now()).order_by(LeaseRow.resource))
    return [
        Lease(row.resource, row.holder, row.token, 0.0 if has_ended(row.holder) else left, row.resource)
        for row, left in rows
    ]


def end(session: Session) -> None:
    """Delete those that are up."""
    for lease in leases(session):
        if lease.seconds <= 0:
            release(session, lease)


def _left(session: Session, row: LeaseRow) -> float:
    left: ColumnElement[float] = LeaseRow.expires - Now()
    return session.scalars(select(left).where(LeaseRow.resource == row.resource)).one()


def _row_of(lease: Lease) -> Any:
    return select(LeaseRow).where(LeaseRow.resource == lease.resource, LeaseRow.token == lease.token)


class Keeper:
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
