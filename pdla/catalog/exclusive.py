"""The lock of a catalog: one process at a time registers, publishes and removes replicas."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdla import config
from pdla.catalog.database import BUSY_SECONDS, Database
from pdla.catalog.serverlock import ServerLock
from pdla.errors import BusyError

_AGAIN_SECONDS = 0.05


class ExclusiveLock:
    """A lock file next to an SQLite database; on PostgreSQL a lock of the server."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = 0

    @contextmanager
    def hold(self, wait: float = BUSY_SECONDS) -> Iterator[None]:
        """Hold the right to register, publish and remove replicas, for a moment; nests within a process.

        Raises:
            BusyError: another process has held it for ``wait`` seconds.
        """
        if self._held:
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
            return
        with self._lock() as (name, try_lock):
            until = time.monotonic() + wait
            while not try_lock():
                if time.monotonic() >= until:
                    raise BusyError(
                        f"another pdla command is changing the replicas (it holds the lock {name}): try again later"
                    )
                time.sleep(_AGAIN_SECONDS)
            self._held = 1
            try:
                yield
            finally:
                self._held = 0

    @contextmanager
    def _lock(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        """The lock's name, and a function that tries to take it; the lock is then held until the end of the block."""
        if self._database.is_server:
            lock = ServerLock(self._database, self._database.engine)
            try:
                self._database.lock = lock
                yield str(self._database), lock.try_lock
            finally:
                self._database.lock = None
                lock.close()
            return
        path = Path((self._database.url.database or str(config.home() / "catalog")) + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

        def try_flock() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        try:
            yield str(path), try_flock
        finally:
            os.close(descriptor)
