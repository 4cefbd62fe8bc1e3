"""CephFS: Ceph stripes the files over the OSDs that a layout names (docs/cephfs.md)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.striping import component_sizes
from pdla.model import Layout
from pdla.replicator.backends.base import (
    Backend,
    NewComponent,
    Server,
    folder_in,
    make_folder,
    make_private,
    responds,
    temporary,
)
from pdla.replicator.backends.originals import OriginalStriping
from pdla.replicator.backends.rados import SEPARATOR, CephMap, ObjectPool, ask, osd_of, read_map
from pdla.units import format_bytes

LAYOUT = "ceph.file.layout"
UNIT = 65536  # stripe units are multiples of it (CEPH_MIN_STRIPE_UNIT)
LARGEST_OBJECT = (1 << 32) - UNIT  # a layout keeps the size of objects in 32 bits
USUAL_OBJECT = 4 << 20  # the size of objects if the OSD does not matter
NAMESPACE = "pdla_{:08x}"
MOST_TRIES = 1 << 20  # namespaces to try for one file, in half a second
BATCH = 1 << 14
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


class Device(NamedTuple):
    """A server: a data pool of the file system, and the OSD in it; None: wherever the pool puts objects."""

    pool: str
    osd: int | None


class Striping(NamedTuple):
    """A file's layout as in Ceph: ``unit`` bytes on each of ``columns`` objects in turn, until these are full."""

    unit: int
    columns: int
    object_size: int
    pool: str

    def objects(self, size: int) -> int:
        """The number of objects of a file with so many bytes; at least one."""
        sets, rest = divmod(size, self.columns * self.object_size)
        return max(sets * self.columns + min(-(-rest // self.unit), self.columns), 1)

    def text(self, namespace: str) -> str:
        """The value of the file's extended attribute."""
        text = f"stripe_unit={self.unit} stripe_count={self.columns} object_size={self.object_size} pool={self.pool}"
        return text + (f" pool_namespace={namespace}" if namespace else "")


class CephFS(Backend):
    """Component n of a replica is ``<where>/pdla-replicas-<uid>/<name>.<n>``, its objects on the chosen OSDs.

    Ceph puts an object where the hash of its name says. The name consists of the file's namespace,
    which is free text, the file's inode and the object's number. So the back end searches for a
    namespace that puts every object on its OSD. The expected number of tries is one over the
    probability of that. If this is too many for a file per group, there is one file per server. In
    a data pool on a single OSD, the first namespace fits any number of objects.
    """

    name = "cephfs"
    names_servers = True
    grain = "64K"  # CEPH_MIN_STRIPE_UNIT
    strip_by_strip = True  # ceph_netfs_clamp_length in fs/ceph/addr.c; ceph-fuse, unless it reads far ahead
    cache_alone = True  # a writer beside others has no CEPH_CAP_FILE_BUFFER: each of its writes waits for the OSDs
    direct = False  # ceph-fuse waits for every 128 KiB of a direct write

    def obstacle(self, layout: Layout, size: int) -> str:
        """Refuse server names without a meaning, and components with more objects than can be placed on one OSD."""
        if why := super().obstacle(layout, size):
            return why
        for server in self.servers:
            if not server.name or (":" in server.name and _device(server).osd is None):
                return f"CephFS has no server {server.name!r} (give a data pool, or POOL:osd.NUMBER)"
        if not self._is_known or self._is_native(layout, size):
            return ""
        for server, length in zip(self.servers, component_sizes(layout, size), strict=False):
            if self._tries([server], (), length) > MOST_TRIES:
                return (
                    f"{format_bytes(length)} in objects of {format_bytes(self._object_size)} cannot all be placed on "
                    f"{server.name}: give it a data pool of its own, or raise osd_max_object_size"
                )
        return ""

    def rule(self, layout: Layout, size: int) -> Layout:
        """A file per group if its strips are equal and its objects can be placed on its OSDs."""
        return layout.by_group if self._is_native(layout, size) else layout

    def prepare(self, servers: Sequence[Server]) -> None:
        """Check that the OSDs are up and in their data pools, and that the directory is on their CephFS."""
        why = self.trouble(servers)
        for server in servers:
            pool, osd = _device(server)
            if not why and osd is not None:
                if pool not in self._map.pools:
                    why = f"Ceph has no pool {pool}"
                elif not self._map.pools[pool].share(osd):
                    there = ", ".join(map(str, self._map.pools[pool].osds()))
                    why = f"nothing of Ceph's pool {pool} is on osd.{osd} (its OSDs: {there})"
        if why:
            raise ConfigError(f"pool {self.pool.name}: {why}")
        for directory in {server.directory for server in servers}:
            self._prepare(directory)

    def trouble(self, servers: Sequence[Server]) -> str:
        """OSDs that the monitors report as down; or a directory in which no file can be made, for want of an MDS."""
        chosen = {osd for server in servers if (osd := _device(server).osd) is not None}
        if chosen:
            try:
                up = {one["osd"] for one in ask("osd dump")["osds"] if one["up"]}
            except PdlaError as error:
                return str(error)
            if down := sorted(chosen - up):
                return f"{', '.join(f'osd.{osd}' for osd in down)} of Ceph is down"
        for directory in {server.directory for server in servers}:
            if not responds(directory):
                return f"{directory} does not answer (is the metadata server of Ceph up?)"
        return ""

    def free(self) -> list[int]:
        """The free bytes of each OSD; those of all if a server names no OSD, or the user may not ask."""
        left: dict[int, int] = {}
        if self._chooses:
            try:
                left = {node["id"]: node["kb_avail"] << 10 for node in ask("osd df")["nodes"]}
            except PdlaError:
                left = {}
        free = []
        for server in self.servers:
            status = os.statvfs(server.directory)
            osd = _device(server).osd
            free.append(left.get(-1 if osd is None else osd, status.f_bavail * status.f_frsize))
        return free

    def path(self, name: str, number: int, server: Server) -> Path:
        """A path in the directory of the pool."""
        return folder_in(server.directory) / f"{name}.{number}"

    def create(self, component: NewComponent) -> int:
        """Ceph cannot reserve space: the check is that there is enough now."""
        file = temporary(component.path)
        descriptor = make_private(file)
        try:
            left = dict(zip(self.servers, self.free(), strict=True))
            if component.size > len(component.servers) * min(left[server] for server in component.servers):
                raise PdlaError(f"no space for {format_bytes(component.size)} in {file.parent}")
            self._place(descriptor, component)
            os.ftruncate(descriptor, component.size)
        except BaseException as error:
            os.close(descriptor)
            file.unlink()
            if isinstance(error, OSError):
                raise PdlaError(f"cannot place {file}: {error.strerror}") from error
            raise
        return descriptor

    @classmethod
    def placement(cls, path: Path) -> str:
        """The file's layout, and the OSDs of its objects if they were chosen."""
        text = os.getxattr(path, LAYOUT).decode()
        fields = dict(field.split("=", 1) for field in text.split())
        if "pool_namespace" not in fields:
            return text
        unit, columns, object_size = (int(fields[key]) for key in ("stripe_unit", "stripe_count", "object_size"))
        striping = Striping(unit, columns, object_size, fields["pool"])
        found = path.stat()
        names = _names(found.st_ino, striping.objects(found.st_size))
        osds = [osd_of(striping.pool, fields["pool_namespace"], name) for name in names]
        if -1 in osds:
            raise PdlaError(f"{path} has objects on OSDs that are down: try again when Ceph is healthy")
        return f"{text} osds={','.join(map(str, osds))}"

    @classmethod
    def original_striping(cls, path: Path) -> OriginalStriping | None:
        """Over its columns; with one, over objects, and the file system does not say on how many OSDs."""
        try:
            text = os.getxattr(path, LAYOUT).decode()
        except OSError:
            return None
        matched = re.match(r"stripe_unit=([1-9]\d*) stripe_count=([1-9]\d*) object_size=([1-9]\d*) ", text)
        if not matched:
            raise PdlaError(f"its layout {text!r} cannot be read")
        unit, columns, object_size = map(int, matched.groups())
        return OriginalStriping(unit, columns, "CephFS") if columns > 1 else OriginalStriping(object_size, 0, "CephFS")

    @cached_property
    def _map(self) -> CephMap:
        return read_map([_device(server).pool for server in self.servers])

    @cached_property
    def _is_known(self) -> bool:
        """Whether the monitors answer. Plans can be made without them, too."""
        if not self._chooses:
            return True
        try:
            return bool(self._map)
        except PdlaError:
            return False

    @cached_property
    def _chooses(self) -> bool:
        """Whether a server names an OSD."""
        return any(_device(server).osd is not None for server in self.servers)

    @property
    def _object_size(self) -> int:
        return min(self._map.object_size, LARGEST_OBJECT) // UNIT * UNIT

    def _prepare(self, directory: Path) -> None:
        try:
            make_folder(directory)
            cluster = os.getxattr(directory, "ceph.cluster_fsid").decode()
        except OSError as error:
            raise ConfigError(
                f"pool {self.pool.name}: cannot use {directory}: {error.strerror} (mount CephFS there)"
            ) from error
        if self._chooses and cluster != self._map.fsid:
            raise ConfigError(
                f"pool {self.pool.name}: {directory} is on the Ceph cluster {cluster}, but the monitors that answered "
                f"belong to {self._map.fsid} (set CEPH_CONF)"
            )

    def _is_native(self, layout: Layout, size: int) -> bool:
        strip, width = layout.strips[0], len(layout.strips)
        if width == 1 or set(layout.strips) != {strip} or strip % UNIT:
            return False
        for group, length in enumerate(component_sizes(layout.by_group, size)):
            servers = self.servers[group * width :][:width]
            devices = [_device(server) for server in servers]
            if len({pool for pool, _ in devices}) > 1 or None in {osd for _, osd in devices}:
                return False
            if strip > self._object_size or self._tries(servers, layout.strips, length) > MOST_TRIES:
                return False
        return True

    def _striping(self, servers: Sequence[Server], strips: Sequence[int]) -> Striping:
        pool, osd = _device(servers[0])
        if osd is None:
            return Striping(USUAL_OBJECT, 1, USUAL_OBJECT, pool)
        if len(servers) == 1:
            return Striping(self._object_size, 1, self._object_size, pool)
        return Striping(strips[0], len(servers), self._object_size // strips[0] * strips[0], pool)

    def _tries(self, servers: Sequence[Server], strips: Sequence[int], size: int) -> float:
        """The expected number of namespaces to try until one puts a component on these servers."""
        if _device(servers[0]).osd is None:
            return 1.0
        striping = self._striping(servers, strips)
        pool, objects = self._map.pools.get(striping.pool), striping.objects(size)
        logarithm = 0.0
        for column, server in enumerate(servers):
            osd = _device(server).osd
            share = pool.share(osd) if pool and osd is not None else 0.0
            if not share:
                return 1.0  # ``prepare`` refuses it, with the reason.
            logarithm -= math.log(share) * len(range(column, objects, len(servers)))
        return math.exp(min(logarithm, 700.0))

    def _place(self, descriptor: int, component: NewComponent) -> None:
        """Give an empty file its layout, and check that Ceph did so."""
        striping = self._striping(component.servers, component.strips)
        osds = [osd for osd in (_device(server).osd for server in component.servers) if osd is not None]
        names = _names(os.fstat(descriptor).st_ino, striping.objects(component.size))
        namespace = _namespace(self._map.pools[striping.pool], names, osds) if osds else ""
        os.setxattr(descriptor, LAYOUT, striping.text(namespace).encode())
        found = os.getxattr(descriptor, LAYOUT).decode()
        if found != striping.text(namespace):
            raise PdlaError(f"Ceph made {component.path} with layout {found}, not {striping.text(namespace)} as asked")
        for number, name in enumerate(names if osds else ()):
            wanted, found_on = osds[number % len(osds)], osd_of(striping.pool, namespace, name)
            if found_on != wanted:
                raise PdlaError(
                    f"Ceph moves its data: object {name} of {component.path} is on osd.{found_on}, not on osd.{wanted}"
                )


def _device(server: Server) -> Device:
    matched = re.fullmatch(r"(.+):osd\.(\d+)", server.name)
    return Device(matched[1], int(matched[2])) if matched else Device(server.name, None)


def _names(inode: int, count: int) -> list[str]:
    """The names of a file's objects."""
    return [f"{inode:x}.{number:08x}" for number in range(count)]


def _namespace(pool: ObjectPool, names: Sequence[str], osds: Sequence[int]) -> str:
    """The first namespace in which every object is on its OSD, ``osds`` in turn.

    Raises:
        PdlaError: there is none among sixteen times the expected number of tries.
    """
    first, batch = 0, 1
    while first < 16 * MOST_TRIES:
        candidates = np.arange(first, first + batch)
        for number, name in enumerate(names):
            candidates = candidates[pool.osds_of(_keys(candidates, name)) == osds[number % len(osds)]]
            if not len(candidates):
                break
        else:
            return NAMESPACE.format(candidates[0])
        first, batch = first + batch, min(16 * batch, BATCH)
    raise PdlaError(f"found no namespace of Ceph's pool {pool.name} that puts {len(names)} objects on {list(osds)}")


def _keys(candidates: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.uint8]:
    """The bytes that Ceph hashes for an object in each of the namespaces."""
    digits = _DIGITS[candidates[:, None] >> np.arange(28, -1, -4) & 15]
    template = NAMESPACE.format(0).encode() + SEPARATOR + name.encode()
    keys = np.tile(np.frombuffer(template, dtype=np.uint8), (len(candidates), 1))
    at = NAMESPACE.index("{")
    keys[:, at : at + digits.shape[1]] = digits
    return keys
