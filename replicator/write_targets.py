"""Write replicas and their targets: the files that are written, each known by its name in its directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pdla.config import INODES, JOURNALS
from pdla.errors import PdlaError
from pdla.model import Identity

if TYPE_CHECKING:
    from pdla.accessmap import AccessMap
    from pdla.catalog import Replica

CACHE = "cache-"
"""Begins the names of directories that are made for the journals of caches. The others belong to write replicas."""
MOST_PIECES = 10_000_000
_WINDOW_PIECES = 1_000_000


def target_of(replica: Replica) -> Path:
    """The file whose writes go to a write replica."""
    return Path(replica.signature.file).absolute()


def is_of(replica: Replica, path: Path) -> bool:
    """Whether it is a replica for writes to the file at ``path``."""
    return replica.purpose == "write" and target_of(replica) == path


def directory_identity(path: Path) -> Identity:
    """The identity of a target's directory. The directory changes all the time; only its number counts.

    Raises:
        PdlaError: there is no such directory.
    """
    try:
        found = path.parent.stat()
    except OSError as error:
        raise PdlaError(f"cannot use {path.parent}, where {path.name} is to be written: {error.strerror}") from error
    return Identity(found.st_dev, found.st_ino, 0, 0, 0)


def journals_of(map_path: Path, path: Path) -> Path:
    """The directory of the journals of writes to the file at ``path``: next to the map, the same for every map."""
    return map_path.parent.absolute() / JOURNALS / _name_of(path)


def cache_journals_of(map_path: Path, path: Path) -> Path:
    """The same where the writes go to cache files: the name is that of replicator/stub/recovery.c, by FNV-1a."""
    digest = 0x6C62272E07BB014262B821756295C58D
    for byte in os.fsencode(path):
        digest = (digest ^ byte) * (1 << 88 | 0x13B) % (1 << 128)
    return map_path.parent.absolute() / JOURNALS / f"{CACHE}{digest:032x}"


def _name_of(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def replicas_of(directory: Path, replicas: Iterable[Replica]) -> dict[int, Replica]:
    """The replicas, by number, that the journals in ``directory`` may name: those for writes to the same file."""
    return {r.id: r for r in replicas if r.purpose == "write" and _name_of(target_of(r)) == directory.name}


def directories_in(map_path: Path) -> list[Path]:
    """All directories of journals next to the map."""
    return sorted(one for one in (map_path.parent / JOURNALS).glob("*") if one.is_dir() and one.name != INODES)


def are_disjoint(one: AccessMap, other: AccessMap) -> bool:
    """Whether two maps have no byte in common; False also if it takes too long to find out."""
    import numpy as np

    low = max(one.extent[0], other.extent[0])
    high = min(one.extent[1], other.extent[1])
    if low >= high:
        return True
    if one.pieces + other.pieces > MOST_PIECES:
        return False
    span = max(one.extent[1] - one.extent[0], other.extent[1] - other.extent[0])
    step = span * _WINDOW_PIECES // (one.pieces + other.pieces) + 1
    for start in range(low, high, step):
        parts = [access_map.tiles(start, min(start + step, high))[:2] for access_map in (one, other)]
        starts, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(starts, kind="stable")
        if (starts[order][1:] < (starts + lengths)[order][:-1]).any():
            return False
    return True
