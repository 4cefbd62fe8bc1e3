"""CephFS on throttled disks: a cluster on this machine, an OSD per disk, and a separate mount per client node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from benchmarks.storage import DISKS, KINDS, STRIP, Counted, Node, limited, read_stream, write_stream
from benchmarks.throttled import NONE, Limits, limit, loop_device, obstacle, served
from pdla.layouts.config import load_cluster
from pdla.replicator.backends.base import NewComponent, Server, temporary
from pdla.replicator.backends.cephfs import CephFS
from pdla.units import MiB
from tools.loopback_ceph import PROGRAMS, Ceph, Osd

NODES = 8
SETTINGS = """
bluestore default buffered read = false
bluestore max blob size = 1048576
[client]
client cache size = 0
client oc size = 67108864
client readahead min = 4194304
client readahead max bytes = 4194304
"""
"""A client's read-ahead goes beyond the end of a rank's section if another rank's follows on the same server."""
OSD_BYTES = 512 * MiB
"""Bytes that an OSD needs for itself."""
DATABASE_BYTES = 512 * MiB
"""Bytes for an OSD's metadata, on a device without limits, as Ceph's manual advises for disks."""
CLIENTS = """\
[clients]
processes_per_node = 1
connect_seconds = 1e-4
network_seconds_per_byte = 1e-9
client_cache = true
client_read_ahead = "8M"
sieve_read = 0
sieve_write = 0
"""
CLUSTERS = count()
"""Numbers of this process's clusters: a connection is kept for the path of its cluster's configuration."""
# The command that starts a rank: the path of the file system is the same on every node, but leads
# to the node's mount.
ON_NODE = 'mount --bind "$0" "$1" && shift && exec "$@"'


def ceph_obstacle() -> str:
    """Why there can be no CephFS on throttled disks here; "" if there can."""
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"Ceph is not installed: there is no {missing[0]}"
    if not os.access("/dev/fuse", os.W_OK):
        return "a Ceph cluster needs /dev/fuse"
    return obstacle()


class ThrottledCephFS:
    """A directory for originals on the OSDs of either kind; see Storage."""

    name = "cephfs"
    lacks = "servers and clients share this machine's processors, and its memory is their network"

    def __init__(self, ceph: Ceph, disks: Mapping[str, Sequence[Path]], mounts: Sequence[Path]) -> None:
        self.ceph, self.disks, self.mounts = ceph, disks, mounts
        directories = {kind: ceph.mount / f"pool-{kind}" for kind in disks}
        originals = {kind: ceph.mount / f"original-{kind}" for kind in disks}
        for directory in (*directories.values(), *originals.values()):
            directory.mkdir()
        self.cluster = _cluster(ceph.osds, directories)
        described = ceph.folder / "cluster.toml"
        described.write_text(self.cluster)
        self.backends = {pool.name: CephFS(pool) for pool in load_cluster(described).pools}
        launch = ("unshare", "--mount", "sh", "-c", ON_NODE)
        others = [Node((*launch, str(mount), str(ceph.mount)), originals) for mount in mounts[1:]]
        self.nodes: Sequence[Node] = (Node((), originals), *others)
        self._limit(KINDS)

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """See Storage."""
        self._limit(dict.fromkeys(KINDS, NONE))
        try:
            yield
        finally:
            self._limit(KINDS)

    def drop_caches(self) -> None:
        """Drop the clients' caches; servers cache only metadata."""
        for mount in self.mounts:
            # The kernel forgets every file that is not open; within a second the client notices
            # that, too.
            subprocess.run(["mount", "-i", "-o", "remount", mount], check=True)
        self.ceph.until(lambda: all(self.ceph.held(mount) == 1 for mount in self.mounts))  # the root

    def counted(self) -> Mapping[str, Counted]:
        """As the kernel counts."""
        return {
            f"{kind}{number}": Counted(served(one))
            for kind, found in self.disks.items()
            for number, one in enumerate(found)
        }

    def pool(self, name: str, kind: str) -> str:
        """A pool of a cluster.toml: all OSDs of a kind."""
        return _pool(name, kind, self.ceph.osds, self.ceph.mount / f"pool-{kind}")

    def place(self, kind: str, file: Path, size: int) -> None:
        """Stripe the file over all OSDs of a kind."""
        self._place(kind, file, size, self.backends[kind].servers)

    def sequential(self, pool: str, size: int, op: str) -> float:
        """A file on every OSD, each through another node's mount; the files are made and kept."""
        servers = self.backends[pool].servers
        share = size // len(servers)
        streams = [mount / f"sequential-{pool}{number}" for number, mount in enumerate(self.mounts[: len(servers)])]
        with ThreadPoolExecutor(len(streams)) as threads:

            def each(stream: Callable[[Path, int], None]) -> float:
                begin = time.perf_counter()
                list(threads.map(lambda file: stream(file, share), streams))
                return share * len(streams) / (time.perf_counter() - begin)

            missing = [number for number, file in enumerate(streams) if not _has(file, share)]
            for number in missing:
                self._place(pool, streams[number], share, (servers[number],))
            if missing:
                each(write_stream)
            if op == "write":
                return each(write_stream)
            self.drop_caches()
            return each(read_stream)

    def _limit(self, limits: Mapping[str, Limits]) -> None:
        for kind, devices in self.disks.items():
            for device in devices:
                limit(device, limits[kind])

    def _place(self, kind: str, file: Path, size: int, servers: tuple[Server, ...]) -> None:
        component = NewComponent(file, size, servers, (STRIP,) * len(servers))
        os.close(self.backends[kind].create(component))
        temporary(file).replace(file)


@contextmanager
def throttled_cephfs(scratch: Path, size: int) -> Iterator[ThrottledCephFS]:
    """Four disks, two SSDs, and ``NODES`` nodes, for originals of ``size`` bytes; all are removed after the block."""
    folder = scratch / f"ceph{next(CLUSTERS)}"
    with ExitStack() as stack:
        disks = {
            kind: [
                stack.enter_context(loop_device(scratch, f"{kind}{number}", 4 * size // servers + OSD_BYTES))
                for number in range(servers)
            ]
            for kind, servers in DISKS.items()
        }
        osds = [
            Osd(kind, device, stack.enter_context(loop_device(scratch, f"{kind}{number}-database", DATABASE_BYTES)))
            for kind, devices in disks.items()
            for number, device in enumerate(devices)
        ]
        ceph = Ceph(folder, osds, SETTINGS)
        folder.mkdir()
        stack.callback(shutil.rmtree, folder)
        stack.callback(os.environ.pop, "CEPH_CONF")
        os.environ["CEPH_CONF"] = str(ceph.configuration)
        stack.callback(ceph.take_down)
        ceph.bring_up()
        mounts = [ceph.mount, *(ceph.mount.with_name(f"mnt{number}") for number in range(1, NODES))]
        for mount in mounts[1:]:
            ceph.start_mount(mount)
        yield ThrottledCephFS(ceph, disks, mounts)


def _has(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size >= size


def _cluster(osds: Sequence[Osd], directories: Mapping[str, Path]) -> str:
    """A cluster.toml."""
    pools = [_pool(kind, kind, osds, directory) for kind, directory in directories.items()]
    return "\n".join([f'[home]\npool = "hdd"\nservers = {DISKS["hdd"]}\nstrip = {STRIP}\n', CLIENTS, *pools])


def _pool(name: str, kind: str, osds: Sequence[Osd], directory: Path) -> str:
    servers = [f"{kind}:osd.{number}" for number, osd in enumerate(osds) if osd.kind == kind]
    # An OSD writes the bytes, and then a flush: each is a request.
    flushed = f"write_startup = [[0, 0.0], [1, {2 / KINDS[kind].requests_per_second}]]\n"
    return (
        f'[pools.{name}]\nkind = "{kind}"\n{limited(kind)}{flushed}backend = "cephfs"\n'
        f"where = {json.dumps([str(directory)])}\nservers = {json.dumps(servers)}\n"
    )
