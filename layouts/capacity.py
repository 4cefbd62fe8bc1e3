"""The bytes that are left for replicas.

A *space* is what fills up: a pool with a capacity, or a file system that holds pools without one.
So pools on one file system share its free bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pdla.model import Pool

if TYPE_CHECKING:
    from pdla.catalog import Replica


def spaces(pool: Pool, sizes: Sequence[int]) -> Mapping[str, int]:
    """The bytes in each space of components of these ``sizes``, one per server of a pool or of the parts of a hybrid.

    >>> disk = Pool("d", "hdd", 2, (), 0.0, 0.0, 1000, 1, "directories", ("a", "b"))
    >>> spaces(disk, [50, 46])
    {'pool d': 96}
    """
    return summed(space_of_each(pool), sizes)


def space_of_each(pool: Pool) -> list[str]:
    """The space of every server of a pool, or of the parts of a hybrid."""
    return [name for part in pool.parts or (pool,) for name in _of_servers(part)]


def summed(servers: Iterable[str], sizes: Iterable[int]) -> Mapping[str, int]:
    """The bytes in each space of components of these ``sizes`` on servers in these spaces."""
    taken: dict[str, int] = {}
    for name, size in zip(servers, sizes, strict=False):
        taken[name] = taken.get(name, 0) + size
    return taken


def room(pools: Iterable[Pool], taken: Callable[[Pool], int], leaving: Sequence[Replica] = ()) -> dict[str, int]:
    """The free bytes of every space of ``pools`` after the replicas in ``leaving`` are removed.

    ``taken`` says how many bytes of replicas are in the directories of a pool that has a capacity.
    """
    left: dict[str, int] = {}
    for pool in pools:
        if pool.capacity is not None:
            left[f"pool {pool.name}"] = max(pool.capacity - taken(pool), 0) + taken_in(pool, leaving)
            continue
        for directory in {Path(directory) for directory in pool.where}:
            name = _file_system(directory)
            if name not in left:
                found = os.statvfs(_existing(directory))
                left[name] = found.f_bavail * found.f_frsize + sum(
                    component.size
                    for replica in leaving
                    for component in replica.components
                    if _file_system(component.path) == name
                )
    return left


def taken_in(pool: Pool, replicas: Iterable[Replica]) -> int:
    """Bytes of ``replicas`` in the pool's directories, whatever pool they were made for."""
    return sum(
        component.size
        for replica in replicas
        for component in replica.components
        if any(component.path.is_relative_to(directory) for directory in pool.where)
    )


def _of_servers(pool: Pool) -> list[str]:
    if pool.capacity is not None:
        return [f"pool {pool.name}"] * pool.servers
    names = [_file_system(Path(directory)) for directory in pool.where]
    return names * pool.servers if len(names) == 1 else names


def _file_system(path: Path) -> str:
    """The mount point of the file system that holds a path, which need not exist yet."""
    path = _existing(path)
    device = path.stat().st_dev
    while path != path.parent and path.parent.stat().st_dev == device:
        path = path.parent
    return f"the file system {path}"


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
