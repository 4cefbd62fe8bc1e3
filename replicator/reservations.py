"""Cache files in the directory of an SSD server: docs/formats.md, "Cache files", as replicator/stub/reservations.c."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pdla.own_files import is_node, open_directory

SUM = "reserved"
"""The link that says what a node has reserved."""
UNUSED_SECONDS = 86_400
TRIES, PAUSE = 100, 0.001
"""How often, and after how many seconds, to ask again for the lock of a node's directory."""


def remove_cache(cache: Path) -> None:
    """Remove a cache file that may be gone and, on an SSD server, its node's sum."""
    if not is_node(cache.parent):
        cache.unlink(missing_ok=True)
        return
    try:
        node = open_directory(cache.parent)
    except (FileNotFoundError, PermissionError):
        return
    with _alone(node):
        # RATIONALE: the sum goes first, so that a kill leaves files that are counted.
        for name in (SUM, cache.name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=node)


def remove_unused_nodes(servers: Iterable[str]) -> None:
    """Remove the directories of this user's nodes on SSD servers that are empty, and have been for a day.

    A node that makes its directory anew may wait for seconds (replicator/stub/reservations.h).
    """
    for server in servers:
        for node in Path(server).glob(f"pdla-*-{os.geteuid()}.node"):
            with suppress(OSError):  # it is gone or not this user's, or a killed program has a cache file there
                os.close(open_directory(node))
                if node.stat().st_mtime < time.time() - UNUSED_SECONDS:
                    node.rmdir()


@contextmanager
def _alone(descriptor: int) -> Iterator[None]:
    """While no process of this node replaces the sum, or waits for longer than one takes; there may be no locks.

    ``descriptor`` is that of the node's directory, and closed at the end.
    """
    try:
        for _ in range(TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(PAUSE)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)
