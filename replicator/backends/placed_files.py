"""Files that are made on named servers of one mounted file system: what Lustre and BeeGFS have in common."""

from __future__ import annotations

import errno
import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from pdla.errors import PdlaError
from pdla.layouts.striping import component_sizes
from pdla.model import Layout
from pdla.mounts import mount_of
from pdla.replicator.backends.base import (
    PATIENCE,
    Backend,
    NewComponent,
    Server,
    folder_in,
    make_folder,
    preparing,
    reserve_space,
    responds,
    temporary,
)
from pdla.units import format_bytes


class PlacedFiles(Backend):
    """Component n of a replica is ``<where>/pdla-replicas-<uid>/<name>.<n>``, made on the servers that are asked for.

    system: what the file system is called. kind: what is said before a server's name.
    """

    names_servers = True
    grain = "64K"
    system: str
    kind: str

    @staticmethod
    @abstractmethod
    def elsewhere(directory: Path) -> str:
        """Why a directory is none of this file system; empty if it is one."""

    @abstractmethod
    def is_native(self, layout: Layout) -> bool:
        """Whether the file system can stripe over the servers of a group as the layout wants."""

    @abstractmethod
    def place(self, file: Path, component: NewComponent) -> int:
        """A descriptor of the new, empty file, which is where the component is to be; if that fails, there is no file.

        Raises:
            OSError: no file can be made.
            PdlaError: it is not placed as asked.
        """

    def rule(self, layout: Layout, size: int) -> Layout:
        """A file per group if the file system can stripe over its servers as the layout wants; else one per server."""
        return layout.by_group if self.is_native(layout) else layout

    def problem(self, servers: Sequence[Server]) -> str:
        """Why the servers cannot be used now; empty if they can."""
        return self.unusable or self.trouble(servers)

    def prepare(self, servers: Sequence[Server]) -> None:
        """Check that the directory is on this file system, which answers, and that it has these servers."""
        with preparing(self.pool):
            if why := self.problem(servers):
                raise PdlaError(why)
            for directory in {server.directory for server in servers}:
                make_folder(directory)

    def path(self, name: str, number: int, server: Server) -> Path:
        """A path in the directory of the pool."""
        return folder_in(server.directory) / f"{name}.{number}"

    def create(self, component: NewComponent) -> int:
        """Make the file on its servers, and reserve its space if this version of the file system can."""
        file = temporary(component.path)
        self._check_space(component)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = self.place(file, component)
        except OSError as error:
            raise PdlaError(f"cannot make {file}: {error.strerror}") from error
        try:
            reserve_space(descriptor, component.size)
        except BaseException as error:
            os.close(descriptor)
            with suppress(OSError):
                file.unlink()
            if isinstance(error, OSError):
                said = "no space for" if error.errno == errno.ENOSPC else "cannot reserve"
                raise PdlaError(f"{said} {format_bytes(component.size)} in {file.parent}: {error.strerror}") from error
            raise
        return descriptor

    def equal_shares(self) -> list[int]:
        """What the file system has left, shared by all servers: where no tool says what each has."""
        status = os.statvfs(self.servers[0].directory)
        return [status.f_bavail * status.f_frsize // len(self.servers)] * len(self.servers)

    @cached_property
    def mount(self) -> Path:
        """The mount point of the pool's directories."""
        mount = mount_of(self.servers[0].directory)
        return mount.point if mount else Path("/")

    @cached_property
    def unusable(self) -> str:
        """Why the directories of the pool cannot be used; empty if they can."""
        for directory in dict.fromkeys(server.directory for server in self.servers):
            if not responds(directory):
                return f"{directory} has not answered for {PATIENCE:.0f} s"
            mount = mount_of(directory)
            if mount is None or mount.point != self.mount:
                return f"pools on different mounts of {self.system} cannot be striped together"
            if why := self.elsewhere(directory):
                return why
        return ""

    def _check_space(self, component: NewComponent) -> None:
        width = len(component.servers)
        strips = component.strips if width > 1 else (1,)
        needed = component_sizes(Layout("", width, 1, strips, max(component.size, 1)), component.size)
        free = dict(zip(self.servers, self.free(), strict=True))
        for server, size in zip(component.servers, needed, strict=True):
            if size > free[server]:
                raise PdlaError(
                    f"no space for {format_bytes(size)} on {self.kind}{server.name} of {self.system} at {self.mount}: "
                    f"it has {format_bytes(free[server])}"
                )


def where(directory: Path) -> str:
    """Where a directory is, in a few words: for those who expected it elsewhere."""
    mount = mount_of(directory)
    return f"in {mount.kind} at {mount.point}" if mount else "elsewhere"
