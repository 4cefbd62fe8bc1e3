"""Nodes with a device each for caches, and storage that all of them see: what benchmarks/caches.py measures on.

A node is a set of namespaces: it has a hostname and a boot of its own, and its own device under a path that is the same
on all nodes. All mounts are synchronous: a write has reached its device when it returns. So no page cache takes what
the devices could not, neither the nodes' nor that of the storage's servers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cephfs import ThrottledCephFS, throttled_cephfs
from benchmarks.storage import DISKS, STRIP, forget, rate_of_streams, rates
from benchmarks.throttled import NONE, Limits, limit, throttled_disk
from pdla.units import MiB

SYNCHRONOUS = "noatime,sync,nobarrier"
DEVICE = Limits(2000, 50_000_000)
STORAGE = Limits(240, 33_000_000)
"""Of two disks together. Bytes are slow, so that few processors are enough for all ranks and what emulates devices."""
LEAST = 64 * MiB
"""Bytes of a stream: the kernel lets the first ones through at once."""
OVERHEAD = LEAST + 128 * MiB
"""Bytes of a file system's own."""
ON_NODE = (
    'hostname "$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && mount --bind "$2" "$3" '
    '&& shift 3 && exec "$@"'
)
"""Starts a process on a node. Without a boot of their own, all processes that see the same journals are of one node."""


@dataclass(frozen=True)
class Nodes:
    """The nodes and their storage.

    Attributes:
        launch: of each node, what starts a program there.
        originals: the directory of the files, the same on all nodes.
        cache: the directory of a node's device, the same on all nodes.
        devices: the same directories, seen from outside.
        limits: of the disks that are the nodes' own, or hold the originals without CephFS.
        ceph: the storage, if it is CephFS.
    """

    launch: Sequence[Sequence[str]]
    originals: Path
    cache: Path
    devices: Sequence[Path]
    limits: Sequence[tuple[Path, Limits]]
    ceph: ThrottledCephFS | None = None

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Within the block, disks have no limits, to prepare and check what is measured."""
        for disk, _ in self.limits:
            limit(disk, NONE)
        try:
            with self.ceph.unlimited() if self.ceph else nullcontext():
                yield
        finally:
            for disk, limits in self.limits:
                limit(disk, limits)

    def place(self, file: Path, size: int) -> None:
        """Make an empty file for so many bytes, on all servers of the storage."""
        if self.ceph:
            self.ceph.place("hdd", file, size)
        else:
            file.touch()

    def drop_caches(self) -> None:
        """Drop the files from memory."""
        for directory in self.devices if self.ceph else (self.originals, *self.devices):
            for file in directory.rglob("*"):
                if file.is_file():
                    forget(file)
        if self.ceph:
            self.ceph.drop_caches()

    def sequential(self, size: int) -> tuple[float, float]:
        """Bytes/s of sequential writes of ``size`` bytes or more: to all nodes' devices at once; to the storage."""
        size = max(size, LEAST)
        devices = rate_of_streams(self.devices, size, "write")
        if self.ceph:
            return devices, self.ceph.sequential("hdd", size, "write")
        return devices, rate_of_streams([self.originals], size, "write")

    def cluster(self, processes: int, kind: str) -> str:
        """The text of a cluster.toml, for so many processes a node; ``kind``: of the pool of the nodes' devices."""
        devices = json.dumps([str(one) for one in self.devices])
        disk = f'[pools.home]\nkind = "hdd"\n{_described(STORAGE)}where = {json.dumps([str(self.originals)])}\n'
        servers, home = (DISKS["hdd"], self.ceph.pool("home", "hdd")) if self.ceph else (1, disk)
        return (
            f'[home]\npool = "home"\nservers = {servers}\nstrip = {STRIP}\n\n'
            f"[clients]\nnodes = {len(self.devices)}\nprocesses_per_node = {processes}\nconnect_seconds = 2e-5\n"
            f"network_seconds_per_byte = 1e-10\nsieve_read = 0\nsieve_write = 0\n\n"
            f'{home}\n[pools.{kind}]\nkind = "{kind}"\n{_described(DEVICE)}where = {devices}\n'
        )


def _described(limits: Limits) -> str:
    startup = f"startup = [[0, 0.0], [1, {1 / limits.requests_per_second}]]\noverlap = true\n"
    return startup + "duplex = true\n" + rates(1 / limits.bytes_per_second)


@contextmanager
def nodes_on_disks(scratch: Path, count: int, size: int) -> Iterator[Nodes]:
    """So many nodes, whose storage is one disk as fast as two; there is room for files of ``size`` bytes, twice."""
    with ExitStack() as stack:
        options = (2 * size + OVERHEAD, STORAGE, SYNCHRONOUS)
        originals = stack.enter_context(throttled_disk(scratch, "originals", *options))
        devices = _devices(stack, scratch, count, size)
        launch = _launch(scratch, devices, [""] * count)
        limits = [(originals, STORAGE), *((device, DEVICE) for device in devices)]
        yield Nodes(launch, originals, scratch / "cache", devices, limits)


@contextmanager
def nodes_on_cephfs(scratch: Path, count: int, size: int) -> Iterator[Nodes]:
    """Likewise on CephFS with four disks, of which each node has a mount of its own."""
    with ExitStack() as stack:
        ceph = stack.enter_context(throttled_cephfs(scratch, 2 * size + OVERHEAD))
        devices = _devices(stack, scratch, count, size)
        mounts = [f'mount --bind "{mount}" "{ceph.ceph.mount}" && ' for mount in ceph.mounts[:count]]
        launch = _launch(scratch, devices, ["", *mounts[1:]])
        limits = [(device, DEVICE) for device in devices]
        yield Nodes(launch, ceph.nodes[0].originals["hdd"], scratch / "cache", devices, limits, ceph)


def _devices(stack: ExitStack, scratch: Path, count: int, size: int) -> list[Path]:
    """A device for each node, mounted."""
    options = (2 * size + OVERHEAD, DEVICE, SYNCHRONOUS)
    return [stack.enter_context(throttled_disk(scratch, f"device{number}", *options)) for number in range(count)]


def _launch(scratch: Path, devices: Sequence[Path], first: Sequence[str]) -> list[tuple[str, ...]]:
    """Of each node, what starts a program there after the commands of ``first``."""
    cache = scratch / "cache"
    cache.mkdir()
    launch = []
    for number, device in enumerate(devices):
        boot = scratch / f"boot{number}"
        boot.write_text(f"{uuid.uuid4()}\n")
        node = (f"node{number}", str(boot), str(device), str(cache))
        launch.append(("unshare", "--mount", "--uts", "sh", "-c", first[number] + ON_NODE, *node))
    return launch
