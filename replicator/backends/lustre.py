"""Lustre: a component is a file whose objects are on the OSTs that a layout names (docs/lustre.md)."""

from __future__ import annotations

import errno
import math
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pdla.errors import ConfigError, PdlaError
from pdla.model import Layout
from pdla.mounts import mount_of
from pdla.replicator.backends import lfs
from pdla.replicator.backends.base import PATIENCE, FoundServer, NewComponent, Server, make_folder, responds
from pdla.replicator.backends.lov import ATTRIBUTE, LONGEST_STRIP, MOST_STRIPES, UNIT, Striping, decode, encode
from pdla.replicator.backends.lov_components import END, Component, components, governing
from pdla.replicator.backends.originals import OriginalStriping, dealt
from pdla.replicator.backends.placed_files import PlacedFiles, where
from pdla.replicator.backends.tools import NoToolError, ask

ALONE = 4 << 20
"""The strip of a file on one OST: clients cut requests at strips, and send at most so much (max_pages_per_rpc)."""


class Device(NamedTuple):
    """A server: an OST by its index, and the OST pool that its files belong to, if any."""

    ost: int
    pool: str


class Lustre(PlacedFiles):
    """The objects of a component's file are on the chosen OSTs.

    A new file gets its striping by the extended attribute ``lustre.lov`` before it is opened, since
    opening makes its objects; the same attribute says afterwards what Lustre made. ``lfs`` says
    which OSTs there are, whether they work, and how much space they have.
    """

    name = "lustre"
    grain = "64K"  # LOV_MIN_STRIPE_SIZE
    system, kind = "Lustre", ""

    def obstacle(self, layout: Layout, size: int) -> str:
        """Refuse servers that are no OSTs, and a directory that is not on Lustre or does not answer."""
        if why := super().obstacle(layout, size):
            return why
        for server in self.servers:
            if device_of(server.name) is None:
                return f"Lustre has no server {server.name!r} (give an OST as OST0003, or with its pool: flash:OST0003)"
        return self.unusable

    @staticmethod
    def elsewhere(directory: Path) -> str:
        """Why a directory is none on Lustre; empty if it is one."""
        try:
            os.getxattr(directory, ATTRIBUTE)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return f"{directory} is not on Lustre but {where(directory)}: mount Lustre"
            if error.errno != errno.ENODATA:  # a directory without a striping of its own
                return f"cannot use {directory}: {error.strerror} (mount or make it)"
        return ""

    def trouble(self, servers: Sequence[Server]) -> str:
        """OSTs that lfs does not list, or reports as failed, closed or inactive; or a mount that does not answer."""
        for directory in {server.directory for server in servers}:
            if not responds(directory):
                return f"{directory} has not answered for {PATIENCE:.0f} s (are the servers of Lustre up?)"
        try:
            found = lfs.ask_osts(self.mount)
        except NoToolError:
            return ""  # without lfs, nobody says more
        except PdlaError as error:
            return str(error)
        idle: set[int] = set()
        with suppress(PdlaError):  # old versions let only root check
            idle = lfs.inactive(ask("lfs", "check", "osts", self.mount))
        for ost in sorted({device.ost for device in self._devices(servers)}):
            if ost not in found:
                return f"OST{ost:04x} of Lustre is not there, or is deactivated (see lfs df -v {self.mount})"
            if why := found[ost].why or ("inactive" if ost in idle else ""):
                return f"OST{ost:04x} of Lustre is unusable: {why}"
        return ""

    @classmethod
    def placement(cls, path: Path) -> str:
        """The strip and the OSTs that Lustre reports."""
        return str(decode(os.getxattr(path, ATTRIBUTE)))

    @classmethod
    def witness(cls, path: Path) -> str:
        """What ``lfs getstripe -y`` says."""
        try:
            return str(lfs.striping(ask("lfs", "getstripe", "-y", path)))
        except NoToolError:
            return ""

    @classmethod
    def original_striping(cls, path: Path) -> OriginalStriping | None:
        """That of the component with the most bytes of the file."""
        try:
            value, size = os.getxattr(path, ATTRIBUTE), path.stat().st_size
        except OSError:
            return None
        return _original(components(value), size)

    @classmethod
    def original_witness(cls, path: Path) -> OriginalStriping | None:
        """By ``lfs getstripe -y``."""
        try:
            printed = ask("lfs", "getstripe", "-y", path)
        except NoToolError:
            return None
        found = lfs.components(printed) if "lcme_id" in printed else (Component(0, END, lfs.striping(printed)),)
        return _original(found, path.stat().st_size)

    @classmethod
    def found_servers(cls, directory: Path) -> list[FoundServer]:
        """The OSTs that ``lfs df -v`` lists, each in the first OST pool that has it."""
        mount = _lustre_at(directory)
        pools = lfs.ask_pools(mount)
        found = []
        for ost, (_, why, nonrotational) in sorted(lfs.ask_osts(mount, "-v").items()):
            group = next((name for name, members in pools.items() if ost in members), "")
            name = f"{group}:OST{ost:04x}" if group else f"OST{ost:04x}"
            found.append(FoundServer(name, "ssd" if nonrotational else "hdd", group, why))
        return found

    def free(self) -> list[int]:
        """What ``lfs df`` reports of each OST; without lfs, an equal share of what the file system has."""
        try:
            found = lfs.ask_osts(self.mount)
        except NoToolError:
            return self.equal_shares()
        return [found[device.ost].free if device.ost in found else 0 for device in self._devices(self.servers)]

    def place(self, file: Path, component: NewComponent) -> int:
        """A descriptor of the new file, whose objects are on the OSTs of the component."""
        os.mknod(file, 0o600 | stat.S_IFREG)
        try:
            return self._place(file, self._striping(component.servers, component.strips))
        except BaseException:
            with suppress(OSError):
                file.unlink()
            raise

    def problem(self, servers: Sequence[Server]) -> str:
        """Also if OSTs are not in the OST pools that their names say."""
        return super().problem(servers) or self._wrong_pool(servers)

    @cached_property
    def _overstripes(self) -> bool:
        """Whether an OST may have several objects of a file (since 2.13): a file is made, and removed."""
        (device, *_) = self._devices(self.servers)
        try:
            probe = make_folder(self.servers[0].directory) / f".overstripes-{uuid4().hex}"
            os.mknod(probe, 0o600 | stat.S_IFREG)
        except OSError:
            return False
        try:
            os.close(self._place(probe, Striping(UNIT, (device.ost, device.ost), device.pool)))
        except PdlaError:
            return False
        finally:
            probe.unlink()
        return True

    def _devices(self, servers: Sequence[Server]) -> list[Device]:
        return [device for device in (device_of(server.name) for server in servers) if device is not None]

    def is_native(self, layout: Layout) -> bool:
        """Whether the OSTs of each group are of one OST pool, and their strips multiples of one that Lustre has."""
        width = len(layout.strips)
        strip = math.gcd(*layout.strips)
        if width == 1 or strip % UNIT or strip > LONGEST_STRIP or sum(layout.strips) // strip > MOST_STRIPES:
            return False
        for group in range(layout.servers // width):
            pools = {device.pool for device in self._devices(self.servers[group * width :][:width])}
            if len(pools) > 1:  # a file belongs to one
                return False
        if self.unusable:
            return False
        return set(layout.strips) <= {strip, 0} or self._overstripes

    def _striping(self, servers: Sequence[Server], strips: Sequence[int]) -> Striping:
        """An OST with a longer strip gets several objects of the same strip."""
        devices = self._devices(servers)
        if len(devices) == 1:
            return Striping(ALONE, (devices[0].ost,), devices[0].pool)
        strip = math.gcd(*strips)
        osts = tuple(device.ost for device, own in zip(devices, strips, strict=True) for _ in range(own // strip))
        return Striping(strip, osts, devices[0].pool)

    def _place(self, file: Path, striping: Striping) -> int:
        """A descriptor of the empty file, which has this striping now."""
        try:
            os.setxattr(file, ATTRIBUTE, encode(striping))
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            why = self.trouble([server for server in self.servers if _ost(server) in striping.osts])
            said = "no space for" if error.errno == errno.ENOSPC else "Lustre refused to place"
            raise PdlaError(f"{said} {file} with {striping}: {why or error.strerror}") from error
        try:
            found = decode(os.getxattr(descriptor, ATTRIBUTE))
            # A file without a pool of its own may get that of its directory.
            if found != striping._replace(pool=striping.pool or found.pool):
                raise PdlaError(f"wanted {striping}; got {found}")
        except (OSError, PdlaError) as error:
            os.close(descriptor)
            raise PdlaError(f"Lustre did not place {file} as asked: {error}") from error
        return descriptor

    def _wrong_pool(self, servers: Sequence[Server]) -> str:
        """Why the OSTs are not in the OST pools that their names say; empty if they are, or lfs is missing."""
        wanted = {device.pool for device in self._devices(servers)} - {""}
        if not wanted:
            return ""
        try:
            pools = lfs.ask_pools(self.mount)
        except NoToolError:
            return ""
        for device in self._devices(servers):
            if device.pool and device.pool not in pools:
                known = ", ".join(sorted(pools)) or "none"
                return f"Lustre has no OST pool {device.pool} (its pools: {known})"
            if device.pool and device.ost not in pools[device.pool]:
                has = ", ".join(f"OST{ost:04x}" for ost in pools[device.pool])
                return f"OST{device.ost:04x} is not in the OST pool {device.pool} (it has: {has})"
        return ""


def _lustre_at(directory: Path) -> Path:
    """The mount point of the Lustre that a directory is on.

    Raises:
        ConfigError: it is on another file system.
    """
    if why := Lustre.elsewhere(directory):
        raise ConfigError(why)
    mount = mount_of(directory)
    return mount.point if mount else Path("/")


def _original(found: Sequence[Component], size: int) -> OriginalStriping:
    """The striping of a file of so many bytes with these components."""
    one = governing(found, size)
    if one.striping is None:
        raise PdlaError(one.why)
    return OriginalStriping(*dealt(one.striping.strip, one.striping.osts), "Lustre", one.range if found[1:] else "")


def device_of(name: str) -> Device | None:
    """The OST and the OST pool that a server's name says; None if it says none."""
    matched = re.fullmatch(r"(?:([A-Za-z0-9_-]{1,15}):)?OST([0-9a-f]{4})", name)
    return Device(int(matched[2], 16), matched[1] or "") if matched else None


def _ost(server: Server) -> int | None:
    device = device_of(server.name)
    return device.ost if device else None
