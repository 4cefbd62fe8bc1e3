"""Cache files in the directory of an SSD server: docs/formats.md, "Cache files", as replicator/stub/reservations.c."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUM = "reserved"
"""The link that says what a node has reserved."""
TRIES, PAUSE = 100, 0.001
"""How often, and after how many seconds, to ask again for the lock of a node's directory."""


def remove_cache(cache: Path) -> None:
    """Remove a cache file that may be gone and, on an SSD server, its node's sum and the directory if it is empty."""
    node = cache.parent
    if not (node.name.startswith("pdla-") and node.suffix == ".node"):
        cache.unlink(missing_ok=True)
        return
    with _alone(node), suppress(FileNotFoundError):
        # RATIONALE: the sum goes first, so that a kill leaves files that are counted.
        (node / SUM).unlink(missing_ok=True)
        cache.unlink(missing_ok=True)
        with suppress(OSError):  # other processes of the node have cache files there
            node.rmdir()


def remove_empty_nodes(servers: Iterable[str]) -> None:
    """Remove the directories of this user's nodes that have no file on the SSD servers."""
    for server in servers:
        for node in Path(server).glob(f"pdla-*-{os.geteuid()}.node"):
            with suppress(OSError):  # a program has a cache file there, or a killed one had
                node.rmdir()


@contextmanager
def _alone(node: Path) -> Iterator[None]:
    """While no process of this node replaces the sum, or waits for longer than one takes; there may be no locks."""
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield
        return
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
