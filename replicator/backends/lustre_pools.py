"""The pools that a mounted Lustre has, each with a directory per OST whose new files are on it, to be measured."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from pdla.errors import ConfigError
from pdla.replicator.backends.base import PATIENCE, FoundServer, responds
from pdla.replicator.backends.lov import ATTRIBUTE, Striping, decode, encode_default
from pdla.replicator.backends.lustre import ALONE, Lustre, device_of


class OstPool(NamedTuple):
    """OSTs of one OST pool, or of one kind: a pool of a cluster.toml.

    where: the directory for replicas; ``scratch``: one for each of ``servers``, on its OST.
    """

    name: str
    kind: Literal["hdd", "ssd"]
    where: Path
    servers: tuple[str, ...]
    scratch: tuple[Path, ...]


@contextmanager
def ost_pools(directory: Path) -> Iterator[list[OstPool]]:
    """The usable OSTs of the Lustre that a directory is on; the scratch directories are removed at the end.

    OSTs in no OST pool make a pool of their kind.

    Raises:
        ConfigError: the directory is not on Lustre, or no OST is usable.
        PdlaError: the OSTs cannot be listed.
        OSError: no directories can be made.
    """
    if not responds(directory):
        raise ConfigError(f"{directory} has not answered for {PATIENCE:.0f} s")
    groups: dict[str, list[FoundServer]] = {}
    for server in Lustre.found_servers(directory):
        if not server.why:
            groups.setdefault(server.group or server.kind, []).append(server)
    if not groups:
        raise ConfigError(f"no OST of the Lustre at {directory} is usable")
    scratch = Path(tempfile.mkdtemp(prefix=".pdla-calibrate-", dir=directory))
    try:
        found = []
        for name, servers in sorted(groups.items()):
            (where := directory / f"pdla-{name}").mkdir(exist_ok=True)
            names = tuple(server.name for server in servers)
            places = tuple(_on(one, scratch) for one in names)
            kind: Literal["hdd", "ssd"] = "ssd" if {server.kind for server in servers} == {"ssd"} else "hdd"
            found.append(OstPool(name, kind, where, names, places))
        yield found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def new_files(directory: Path) -> Striping:
    """How Lustre stripes a new file in a directory: one is made, and removed.

    Raises:
        OSError: no file can be made.
        PdlaError: its layout is not plain strips.
    """
    with tempfile.NamedTemporaryFile(prefix=".pdla-striping-", dir=directory) as file:
        return decode(os.getxattr(file.name, ATTRIBUTE))


def _on(server: str, scratch: Path) -> Path:
    device = device_of(server)
    if device is None:
        raise ConfigError(f"Lustre has no server {server!r}")
    place = scratch / f"OST{device.ost:04x}"
    place.mkdir()
    os.setxattr(place, ATTRIBUTE, encode_default(Striping(ALONE, (device.ost,), device.pool)))
    return place
