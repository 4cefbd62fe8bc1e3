"""BeeGFS: a component is a file whose chunks are on the storage targets that a layout names (docs/beegfs.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pdla.errors import ConfigError, PdlaError
from pdla.model import Layout
from pdla.mounts import mount_of
from pdla.replicator.backends import beegfs_ctl
from pdla.replicator.backends.base import PATIENCE, FoundServer, NewComponent, Server, make_folder, responds
from pdla.replicator.backends.beegfs_ioctls import Striping, chunks_of, is_beegfs, make_file, striping_of
from pdla.replicator.backends.originals import OriginalStriping
from pdla.replicator.backends.placed_files import PlacedFiles, where
from pdla.replicator.backends.tools import NoToolError, ask

TRIES = 16
"""Files to make for each target of a group until one begins at the right target; all fail once in 9 million groups."""
MOST_TARGETS = 32
"""Of a file that BeeGFS stripes: more would need too many tries."""


class Device(NamedTuple):
    """A server: the number of a storage target, and that of its storage pool; 0: the pool of the directory."""

    target: int
    pool: int


class BeeGFS(PlacedFiles):
    """The chunks of a component's file are on the chosen targets.

    BeeGFS takes the targets of a new file from a list, in turn from one that it draws, with the
    directory's chunk size and at most the directory's number of targets. So a group is one file if
    its strips are chunks, and the file is made again until its first target is the right one.
    """

    name = "beegfs"
    grain = "64K"  # STRIPEPATTERN_MIN_CHUNKSIZE
    system, kind = "BeeGFS", "target "

    def obstacle(self, layout: Layout, size: int) -> str:
        """Refuse servers that are no targets, and a directory that is not on BeeGFS or does not answer."""
        if why := super().obstacle(layout, size):
            return why
        for server in self.servers:
            if _device(server) is None:
                return f"BeeGFS has no server {server.name!r} (give a target as 101, or with its storage pool: 2:101)"
        return self.unusable

    @staticmethod
    def elsewhere(directory: Path) -> str:
        """Why a directory is none on BeeGFS; empty if it is one."""
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                found = is_beegfs(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            return f"cannot use {directory}: {error.strerror} (mount or make it)"
        return "" if found else f"{directory} is not on BeeGFS but {where(directory)}: mount BeeGFS"

    def trouble(self, servers: Sequence[Server]) -> str:
        """Targets that are not listed, not online or not good; or a mount that does not answer."""
        for directory in {server.directory for server in servers}:
            if not responds(directory):
                return f"{directory} has not answered for {PATIENCE:.0f} s (are the servers of BeeGFS up?)"
        try:
            found = beegfs_ctl.ask_targets(self.mount)
        except NoToolError:
            return ""  # without beegfs-ctl, nobody says more
        except PdlaError as error:
            return str(error)
        for target in sorted({device.target for device in self._devices(servers)}):
            if target not in found:
                return f"BeeGFS has no storage target {target} (it has: {_list(sorted(found))})"
            if why := found[target].why:
                return f"target {target} of BeeGFS is unusable: {why}"
        return ""

    @classmethod
    def placement(cls, path: Path) -> str:
        """The chunk size and the targets that BeeGFS reports."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return str(striping_of(descriptor))
        finally:
            os.close(descriptor)

    @classmethod
    def witness(cls, path: Path) -> str:
        """What ``beegfs-ctl --getentryinfo`` says."""
        try:
            return str(beegfs_ctl.striping(ask("beegfs-ctl", "--getentryinfo", path)))
        except NoToolError:
            return ""

    @classmethod
    def original_striping(cls, path: Path) -> OriginalStriping | None:
        """By the ioctl; a pair of mirrored targets is a server."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return OriginalStriping(*chunks_of(descriptor), cls.system) if is_beegfs(descriptor) else None
        except OSError as error:
            raise PdlaError(f"BeeGFS does not answer: {error.strerror}") from error
        finally:
            os.close(descriptor)

    @classmethod
    def original_witness(cls, path: Path) -> OriginalStriping | None:
        """By ``beegfs-ctl --getentryinfo``."""
        try:
            found = beegfs_ctl.striping(ask("beegfs-ctl", "--getentryinfo", path))
        except NoToolError:
            return None
        return OriginalStriping(found.chunk, len(found.targets), cls.system)

    @classmethod
    def found_servers(cls, directory: Path) -> list[FoundServer]:
        """The targets that ``beegfs-ctl --listtargets`` lists. It does not say which are SSDs."""
        if why := cls.elsewhere(directory):
            raise ConfigError(why)
        mount = mount_of(directory)
        found = beegfs_ctl.ask_targets(mount.point if mount else directory)
        return [FoundServer(str(target), "hdd", "", one.why) for target, one in sorted(found.items())]

    def free(self) -> list[int]:
        """What beegfs-ctl reports of each target; without it, an equal share of what the file system has."""
        try:
            found = beegfs_ctl.ask_targets(self.mount)
        except NoToolError:
            return self.equal_shares()
        return [found[device.target].free if device.target in found else 0 for device in self._devices(self.servers)]

    @cached_property
    def _defaults(self) -> Striping:
        """How BeeGFS stripes a new file in the directory: one is made, and removed."""
        try:
            probe = make_folder(self.servers[0].directory) / f".striping-{uuid4().hex}"
            descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return Striping(0, ())
        try:
            return striping_of(descriptor)
        except (OSError, PdlaError):
            return Striping(0, ())
        finally:
            os.close(descriptor)
            probe.unlink()

    def _devices(self, servers: Sequence[Server]) -> list[Device]:
        return [device for device in map(_device, servers) if device is not None]

    def is_native(self, layout: Layout) -> bool:
        """Whether the targets of each group are of one storage pool, and all strips the directory's chunks."""
        width = len(layout.strips)
        if not 1 < width <= MOST_TARGETS or len(set(layout.strips)) > 1 or self.unusable:
            return False
        for group in range(layout.servers // width):
            if len({device.pool for device in self._devices(self.servers[group * width :][:width])}) > 1:
                return False
        return layout.strips[0] == self._defaults.chunk and width <= len(self._defaults.targets)

    def place(self, file: Path, component: NewComponent) -> int:
        """A descriptor of the new file on the targets of the component, beginning with the first."""
        devices = self._devices(component.servers)
        wanted = tuple(device.target for device in devices)
        directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for _ in range(TRIES * len(wanted)):
                make_file(directory, file.parent.name, file.name, wanted, devices[0].pool)
                descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    found = striping_of(descriptor).targets
                    if found == wanted:
                        return descriptor
                except (OSError, PdlaError) as error:
                    os.close(descriptor)
                    file.unlink()
                    raise PdlaError(f"BeeGFS does not say where {file} is: {error}") from error
                os.close(descriptor)
                file.unlink()
                if sorted(found) != sorted(wanted):
                    break
        finally:
            os.close(directory)
        servers = [server for server in self.servers if _device(server) in devices]
        raise PdlaError(
            f"BeeGFS did not place {file} as asked (wanted targets {_list(wanted)}; got {_list(found)}): "
            + (self.trouble(servers) or "is a target full, or in another storage pool (give it as POOL:TARGET)?")
        )


def _list(targets: Sequence[int]) -> str:
    return ", ".join(map(str, targets))


def _device(server: Server) -> Device | None:
    matched = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,5})", server.name)
    return Device(int(matched[2]), int(matched[1] or 0)) if matched else None
