"""OrangeFS: a component is one file, which OrangeFS stripes over the servers of its group."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.striping import component_sizes
from pdla.model import Layout
from pdla.replicator.backends.base import Backend, NewComponent, Server, folder_in, make_folder, preparing, temporary
from pdla.replicator.backends.originals import OriginalStriping, dealt
from pdla.replicator.backends.pvfs2 import (
    LONGEST_LIST,
    LONGEST_PARAMETERS,
    SIMPLE,
    VARIED,
    Client,
    Placement,
    mount_of,
)
from pdla.units import format_bytes

TRIES, PAUSE = 10, 0.1
"""Seconds to wait for other builders in order to place a file."""
LEAST_FREE = 1 << 20
"""Bytes. A server with less free space may have been full and lost data."""
_ZEROS = bytes(1 << 20)


class OrangeFS(Backend):
    """Component n of a replica is ``<where>/pdla-replicas-<uid>/<name>.<n>``; the directory says where new files go.

    Another builder may change the directory meanwhile, and clients cache it: so the placement of
    each file is read back.
    """

    name = "orangefs"
    names_servers = True
    grain = "64K"  # its usual strip

    def obstacle(self, layout: Layout, size: int) -> str:
        """Refuse unequal strips, unless there are servers to spare or the mount has extended attributes."""
        if why := super().obstacle(layout, size):
            return why
        if len({mount_of(Path(part.where[0])) for part in self.pool.parts}) > 1:
            return "pools on different OrangeFS cannot be striped together"
        strips = tuple(strip for strip in layout.strips if strip)
        placement = self._placement(self.servers[: len(layout.strips)], layout.strips)
        if len(placement.hints["server_list"]) >= LONGEST_LIST:
            return f"the names of {len(placement.servers)} servers need more than the {LONGEST_LIST} bytes of a list"
        if placement.distribution == SIMPLE:
            return ""
        if not self._client.takes_hints:
            return (
                f"strips of {', '.join(map(format_bytes, strips))} need {sum(strips) // math.gcd(*strips)} datafiles "
                f"of equal strips, more than the {len(self._client.servers)} I/O servers; unequal strips need a mount "
                "with extended attributes"
            )
        if len(placement.hints["dist_params"]) >= LONGEST_PARAMETERS:
            return f"the strips of {len(strips)} servers need more than the {LONGEST_PARAMETERS} bytes of a hint"
        return ""

    def rule(self, layout: Layout, size: int) -> Layout:
        """A component per group."""
        return layout.by_group

    def trouble(self, servers: Sequence[Server]) -> str:
        """What pvfs2-statfs reports."""
        try:
            self._client.free()
        except PdlaError as error:
            return str(error)
        return ""

    @classmethod
    def original_striping(cls, path: Path) -> OriginalStriping | None:
        """Over its datafiles, if the distribution is simple_stripe."""
        try:
            mount = mount_of(path)
        except ConfigError:
            return None
        found = Client(mount).placement(path)
        if found.distribution != SIMPLE:
            raise PdlaError(f"its distribution is {found.distribution}, not {SIMPLE}")
        return OriginalStriping(*dealt(int(found.parameters.partition(":")[2]), found.servers), "OrangeFS")

    @classmethod
    def placement(cls, path: Path) -> str:
        """What pvfs2-viewdist reports."""
        return str(Client(mount_of(path)).placement(path))

    def prepare(self, servers: Sequence[Server]) -> None:
        """Check that the servers are I/O servers of a mounted OrangeFS that answers."""
        with preparing(self.pool):
            self._check_names(servers)
            for directory in {server.directory for server in servers}:
                self._check_numbers(make_folder(directory))

    def free(self) -> list[int]:
        """What pvfs2-statfs reports."""
        free = self._client.free()
        return [free[server.name] for server in self.servers]

    def path(self, name: str, number: int, server: Server) -> Path:
        """A path in the directory of the pool."""
        return folder_in(server.directory) / f"{name}.{number}"

    def create(self, component: NewComponent) -> int:
        """Check that there is enough space; OrangeFS cannot reserve it."""
        file = temporary(component.path)
        self._check_space(component)
        if os.path.lexists(file):
            raise PdlaError(f"cannot make {file}: File exists")
        placement = self._placement(component.servers, component.strips)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._place(file, placement)
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if placement.distribution == SIMPLE:
                    os.ftruncate(descriptor, component.size)
                else:
                    # RATIONALE: its datafiles must have no holes, and the file must never be
                    # truncated.
                    _fill(descriptor, component.size)
            except OSError:
                os.close(descriptor)
                raise
        except (OSError, PdlaError) as error:
            with suppress(OSError):
                file.unlink(missing_ok=True)
            if isinstance(error, PdlaError):
                raise
            raise PdlaError(f"cannot make {file}: {error.strerror}") from error
        return descriptor

    def reserve(self, descriptor: int, component: NewComponent) -> None:
        """Reserve the space by writing zeros.

        RATIONALE: a server of OrangeFS 2.10 whose storage is full reports as written what it has
        lost.
        """
        _fill(descriptor, component.size)
        free = self._client.free()
        for server in component.servers:
            if free[server.name] < LEAST_FREE:
                raise PdlaError(f"no space for {format_bytes(component.size)}: {server.name} is full")

    @cached_property
    def _client(self) -> Client:
        return Client(mount_of(self.servers[0].directory))

    def _placement(self, servers: Sequence[Server], strips: Sequence[int]) -> Placement:
        """A server with a longer strip gets several datafiles of the same strip, if there are enough; otherwise one."""
        used = [(server.name, strip) for server, strip in zip(servers, strips, strict=True) if strip]
        strip = math.gcd(*strips)
        # RATIONALE: datafiles of equal strips are right for sparse files, too; those of unequal
        # strips are not.
        if sum(strips) // strip <= len(used) or sum(strips) // strip <= len(self._client.servers):
            datafiles = tuple(name for name, own in used for _ in range(own // strip))
            return Placement(SIMPLE, f"strip_size:{strip}", datafiles)
        parameters = ";".join(f"{number}:{own}" for number, (_, own) in enumerate(used))
        return Placement(VARIED, parameters, tuple(name for name, _ in used))

    def _check_names(self, servers: Sequence[Server]) -> None:
        for server in servers:
            if server.name not in self._client.servers:
                known = ", ".join(self._client.servers)
                raise PdlaError(f"{server.name} is not an I/O server of {self._client.mount.source} (it has: {known})")

    def _check_numbers(self, directory: Path) -> None:
        """A component is identified by its inode number, which must be OrangeFS's own, not one that FUSE makes up."""
        if self._client.mount.fuse and directory.stat().st_ino != self._client.handle(directory):
            raise PdlaError(f"the inode numbers in {directory} are not permanent: mount OrangeFS with -o use_ino")

    def _check_space(self, component: NewComponent) -> None:
        width = len(component.servers)
        strips = component.strips if width > 1 else (1,)
        needed = component_sizes(Layout("", width, 1, strips, max(component.size, 1)), component.size)
        free = self._client.free()
        for server, size in zip(component.servers, needed, strict=True):
            if size + LEAST_FREE > free[server.name]:
                raise PdlaError(
                    f"no space for {format_bytes(size)} on {server.name} of {self._client.mount.source}: it has "
                    f"{format_bytes(free[server.name])}"
                )

    def _place(self, file: Path, placement: Placement) -> None:
        for number in range(TRIES):
            time.sleep(random.uniform(0, number * PAUSE))
            self._client.make(file, placement)
            found = self._client.placement(file)
            if found == placement:
                return
            file.unlink()
        raise PdlaError(f"OrangeFS did not place {file} as asked (wanted {placement}; got {found})")


def _fill(descriptor: int, size: int) -> None:
    at = 0
    while at < size:
        at += os.pwrite(descriptor, _ZEROS[: size - at], at)
