"""Outages of the database: which errors count as outages, and how long pdla tries again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pdla.errors import CatalogError

log = logging.getLogger("pdla.catalog")

OUTAGE_SECONDS = 30.0
"""Seconds after which an unreachable database is an error; a server restarts within seconds."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
_AWAY = ("08", "57P01", "57P02", "57P03", "53300")
"""SQLSTATE: no connection, shut down, crashed, starting up, too many clients."""
_AGAIN = ("40001", "40P01")
"""SQLSTATE: the server undid the transaction in favour of another one."""
_STARTING = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "not yet accepting")

C = TypeVar("C", bound="Client")
P = ParamSpec("P")
R = TypeVar("R")


class OutageError(CatalogError):
    """The database did not answer, and nothing was changed."""


class Client(Protocol):
    """An object whose methods are tried again."""

    @property
    def patience(self) -> float:
        """How many seconds to wait for the end of an outage."""

    @property
    def giving_up(self) -> threading.Event:
        """An event that is set when nobody waits any more."""


def is_outage(error: SQLAlchemyError) -> bool:
    """Whether the same may succeed in a moment. A refusal by the server, such as of a password, is not an outage."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return bool(state.startswith((*_AWAY, *_AGAIN)))
    said = str(error.orig)
    if type(error.orig).__module__.startswith("sqlite3"):
        return "locked" in said
    # A connection that could not be made has no SQLSTATE: the server's own refusals begin with
    # FATAL.
    return type(error.orig).__name__ == "OperationalError" and (
        "FATAL" not in said or any(words in said for words in _STARTING)
    )


def one_line(error: BaseException) -> str:
    """The first line of an error; PostgreSQL adds details and hints."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).partition("\n")[0].split())


def failed(catalog: object, error: SQLAlchemyError) -> CatalogError:
    """The exception for a failure of the database."""
    kind = OutageError if is_outage(error) else CatalogError
    return kind(f"the catalog {catalog} failed: {one_line(error)}")


def again(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Make a method that raises OutageError try again until the client's patience is over."""

    @wraps(method)
    def tried(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        until, failures = time.monotonic() + self.patience, 0
        while True:
            try:
                return method(self, *args, **kwargs)
            except OutageError as error:
                pause, failures = min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE), failures + 1
                if failures == 2:  # the first failure may be of a connection from before a restart
                    log.warning("%s (trying again for %.0f s)", error, self.patience)
                if time.monotonic() + pause > until or self.giving_up.wait(pause):
                    raise

    return tried
