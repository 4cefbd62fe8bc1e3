"""The embedded default: a pool is a list of directories, one per server, and the stub stripes over them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pdla import config
from pdla.errors import ConfigError, PdlaError
from pdla.replicator.backends.base import Backend, NewComponent, Server, make_private, temporary
from pdla.units import format_bytes

FOLDER = "pdla-replicas"


class Directories(Backend):
    """Component n of a replica is ``<directory of server n>/pdla-replicas/<name>.<n>``; directories have mode 0700."""

    name = "directories"

    def prepare(self, servers: Sequence[Server]) -> None:
        """Each directory is there and writable (those in pdla's own home are made)."""
        for directory, _ in servers:
            try:
                # RATIONALE: elsewhere a missing directory may be a disk that is not mounted: another would fill up.
                if config.home() in directory.parents:
                    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                (directory / FOLDER).mkdir(exist_ok=True, mode=0o700)
            except OSError as error:
                raise ConfigError(
                    f"pool {self.pool.name}: cannot use {directory}: {error.strerror} (mount or make it; pdla makes "
                    "only directories in its own home)"
                ) from error

    def free(self) -> list[int]:
        """What the file system of every directory has for this user."""
        found = [os.statvfs(server.directory) for server in self.servers]
        return [statistics.f_bavail * statistics.f_frsize for statistics in found]

    def path(self, name: str, number: int, server: Server) -> Path:
        """In the server's directory."""
        return server.directory / FOLDER / f"{name}.{number}"

    def create(self, component: NewComponent) -> int:
        """Space is reserved with posix_fallocate."""
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
