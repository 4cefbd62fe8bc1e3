"""How many bytes a pool can still take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pdla.model import Pool

if TYPE_CHECKING:
    from pdla.catalog import Replica


def room_in(pool: Pool, replicas: Iterable[Replica]) -> int:
    """The pool's capacity less what ``replicas``, all that there are, take of it; without one, what is free now."""
    if pool.capacity is None:
        return _free_bytes(pool.where)
    return max(pool.capacity - taken_in(pool, replicas), 0)


def taken_in(pool: Pool, replicas: Iterable[Replica]) -> int:
    """Bytes of ``replicas`` in the pool's directories, whichever pool they were made for."""
    return sum(
        component.size
        for replica in replicas
        for component in replica.components
        if any(component.path.is_relative_to(directory) for directory in pool.where)
    )


def by_pool(pool: Pool, sizes: Sequence[int]) -> dict[str, int]:
    """What components of these ``sizes``, one per server of a pool, take of it or of each part of a hybrid.

    >>> disk = Pool("d", "hdd", 2, (), 0.0, 0.0, 0, 1, "directories", ("a", "b"))
    >>> by_pool(disk, [50, 46])
    {'d': 96}
    """
    rest = iter(sizes)
    return {part.name: sum(islice(rest, part.servers)) for part in pool.parts or (pool,)}


def _free_bytes(directories: tuple[str, ...]) -> int:
    """What the file systems of the directories, made or still to be made, have free; a shared one counts once."""
    free: dict[int, int] = {}
    for directory in directories:
        path = Path(directory)
        while not path.exists():
            path = path.parent
        status = os.statvfs(path)
        free[path.stat().st_dev] = status.f_bavail * status.f_frsize
    return sum(free.values())
