"""The embedded default: a pool is a list of directories, one per server, and the stub stripes over them."""

from __future__ import annotations

import os
from pathlib import Path

from pdla import config
from pdla.errors import ConfigError, PdlaError
from pdla.model import Layout
from pdla.replicator.backends.base import Backend, temporary
from pdla.units import format_bytes

FOLDER = "pdla-replicas"


class Directories(Backend):
    """Component n of a replica is ``<where of server n>/pdla-replicas/<name>.<n>``; directories have mode 0700."""

    name = "directories"

    def check(self, layout: Layout) -> None:
        """One directory per server, each there and writable (those in pdla's own home are made)."""
        if layout.servers > len(self.pool.where):
            raise ConfigError(
                f"pool {self.pool.name}: a layout over {layout.servers} servers needs as many directories in `where` "
                f"(got {len(self.pool.where)})"
            )
        for directory in self._servers(layout.servers):
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
        found = [os.statvfs(directory) for directory in self._servers(len(self.pool.where))]
        return [statistics.f_bavail * statistics.f_frsize for statistics in found]

    def paths(self, name: str, layout: Layout) -> list[Path]:
        """``name`` may have folders in it."""
        servers = self._servers(layout.servers)
        return [directory / FOLDER / f"{name}.{number}" for number, directory in enumerate(servers)]

    def create(self, path: Path, size: int) -> int:
        """Space is reserved with posix_fallocate."""
        file = temporary(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PdlaError(f"cannot make {file}: {error.strerror}") from error
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            os.close(descriptor)
            file.unlink()
            raise PdlaError(f"no space for {format_bytes(size)} in {path.parent}: {error.strerror}") from error
        return descriptor

    def _servers(self, count: int) -> list[Path]:
        return [Path(directory).absolute() for directory in self.pool.where[:count]]
