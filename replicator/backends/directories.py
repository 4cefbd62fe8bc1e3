"""The default back end: a pool is a list of directories, one per server, and the library stripes over them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from pdla import config
from pdla.errors import ConfigError, PdlaError
from pdla.model import Layout
from pdla.replicator.backends.base import Backend, NewComponent, Server, folder_in, make_folder, make_private, temporary
from pdla.units import format_bytes


class Directories(Backend):
    """Component n of a replica is ``<where>/pdla-replicas-<uid>/<name>.<n>``, in the directory of server n."""

    name = "directories"

    def obstacle(self, layout: Layout, size: int) -> str:
        """Check that the directories exist, or can be made."""
        return super().obstacle(layout, size) or next(filter(None, self._obstacles[: layout.servers]), "")

    def prepare(self, servers: Sequence[Server]) -> None:
        """Check that each directory exists and is writable; make those in pdla's own home."""
        for directory, _ in servers:
            try:
                if config.home() in directory.parents:
                    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                make_folder(directory)
            except OSError as error:
                raise ConfigError(f"pool {self.pool.name}: {_unusable(error)}") from error

    def free(self) -> list[int]:
        """The free bytes of each directory's file system for this user."""
        found = [os.statvfs(server.directory) for server in self.servers]
        return [statistics.f_bavail * statistics.f_frsize for statistics in found]

    def path(self, name: str, number: int, server: Server) -> Path:
        """A path in the server's directory."""
        return folder_in(server.directory) / f"{name}.{number}"

    def create(self, component: NewComponent) -> int:
        """Reserve the space with posix_fallocate."""
        file, size = temporary(component.path), component.size
        descriptor = make_private(file)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            os.close(descriptor)
            file.unlink()
            raise PdlaError(f"no space for {format_bytes(size)} in {file.parent}: {error.strerror}") from error
        return descriptor

    @cached_property
    def _obstacles(self) -> list[str]:
        """Why each server's directory cannot be used; empty if it can be used or made."""
        return [_obstacle(server.directory) for server in self.servers]


def _obstacle(directory: Path) -> str:
    # RATIONALE: elsewhere a missing directory may be a disk that is not mounted; another disk would
    # fill up.
    if config.home() in directory.parents:
        return ""
    try:
        os.scandir(directory).close()
        if not folder_in(directory).is_dir() and not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
    except OSError as error:
        return _unusable(error)
    return ""


def _unusable(error: OSError) -> str:
    return (
        f"cannot use {error.filename}: {error.strerror} (mount or make it; pdla makes only directories below PDLA_HOME)"
    )
