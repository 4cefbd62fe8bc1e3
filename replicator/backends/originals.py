"""How originals are striped: what their file system says, or ``[home]`` of a cluster.toml (ADR 54)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.plugins import backend_class, backend_names
from pdla.model import Cluster
from pdla.units import counted, format_bytes


class OriginalStriping(NamedTuple):
    """``strip`` bytes of a file on each of ``servers`` in turn.

    ``servers`` is 0 if the storage does not say how many there are. ``system`` is what the storage
    is called, and ``part`` the bytes of the file that it says this of; "": all.
    """

    strip: int
    servers: int
    system: str
    part: str = ""

    def __str__(self) -> str:
        """The striping in one line."""
        servers = counted(self.servers, "server") if self.servers else "an unknown number of servers"
        return f"strips of {format_bytes(self.strip)} on {servers}" + (f" ({self.part})" if self.part else "")


class _Telling(Protocol):
    @classmethod
    def original_striping(cls, path: Path) -> OriginalStriping | None: ...


def dealt(strip: int, places: Sequence[Hashable]) -> tuple[int, int]:
    """The strip and the number of servers if strips are dealt to these servers in turn; a server may occur again.

    >>> dealt(64, "abc"), dealt(64, "abab"), dealt(64, "aabb")
    ((64, 3), (64, 2), (128, 2))

    Raises:
        PdlaError: servers get different shares.
    """
    runs = [(server, len(list(same))) for server, same in groupby(places)]
    servers = list(dict.fromkeys(places))
    turns = [server for server, _ in runs]
    if len({length for _, length in runs}) > 1 or turns != servers * (len(turns) // len(servers)):
        raise PdlaError(f"its {len(places)} strips are dealt unevenly to {counted(len(servers), 'server')}")
    return strip * runs[0][1], len(servers)


def home_of(cluster: Cluster, files: Iterable[str]) -> Cluster:
    """The cluster with originals striped as the file system says of the first of ``files`` of which one says it.

    If none does, ``[home]`` holds. It always holds in the examples: they describe testbeds
    elsewhere.

    Raises:
        ConfigError: ``[home]`` lacks what no file system says.
    """
    found, of, why = None, "", ""
    for file in () if cluster.source.startswith("example ") else files:
        try:
            found, of = striping_of(Path(file)), file
        except PdlaError as error:
            why = why or f"{file}: {error}"
        if found:
            break
    servers = found.servers if found and found.servers else cluster.home_servers
    strip = found.strip if found else cluster.home_strip
    if not servers or not strip:
        missing = " and ".join(name for name, value in (("servers", servers), ("strip", strip)) if not value)
        silent = f"{found.system} does not say it of {of}" if found else "no file system says it of the originals"
        raise ConfigError(f"{cluster.source}: [home] needs {missing}: {why or silent}")
    if found:
        source = f"as {found.system} says of {found.part + ' of ' if found.part else ''}{of}"
        own = cluster.home_strip, cluster.home_servers
        if all(own) and own != (strip, servers):
            source += f" ([home]: {format_bytes(own[0])} on {own[1]})"
    else:
        source = f"by [home], because it is not known of {why}" if why else ""
    return replace(cluster, home_servers=servers, home_strip=strip, home_source=source)


def striping_of(path: Path) -> OriginalStriping | None:
    """What the storage of a file says; None: it is on no storage that says it.

    Raises:
        PdlaError: its storage cannot say it; the message says why.
    """
    for name in backend_names():
        try:
            kind = cast(type[_Telling], backend_class(name))
        except ConfigError:
            continue  # a pool that needs this back end says so
        if found := kind.original_striping(path):
            return found
    return None
