"""The storage that programs are measured on: the interface that the bench needs, and two kinds of storage.

``ThrottledDisks`` (root) are disks and SSDs whose limits the kernel enforces, one directory each. ``PlainDirectories``
are directories of one file system, for machines on which nothing else is possible. benchmarks/seeking.py has disks with
heads, benchmarks/cephfs.py a parallel file system on throttled disks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.loop_devices import READ_AHEAD
from benchmarks.throttled import HDD, NONE, SSD, Limits, limit, served, throttled_disk
from pdla.units import KiB, MiB

DISKS = {"hdd": 4, "ssd": 2}
KINDS = {"hdd": HDD, "ssd": SSD}
STRIP = 64 * KiB
TRANSFER = MiB
CLIENT = f'client_cache = true\nclient_read_ahead = "{READ_AHEAD}K"\nsieve_read = 0\nsieve_write = 0\n'
"""A node with a page cache; the programs that are traced have data sieving switched off."""


class Node(NamedTuple):
    """A client node: what starts a program on it, and where programs on it see the originals of each kind of disk."""

    launch: tuple[str, ...]
    originals: Mapping[str, Path]


class Counted(NamedTuple):
    """The work of a device so far."""

    requests: int
    seeks: int = 0
    busy: float = 0.0
    """Seconds; 0 if they are not measured."""

    def since(self, earlier: Counted) -> Counted:
        """The work since ``earlier``."""
        return Counted(self.requests - earlier.requests, self.seeks - earlier.seeks, self.busy - earlier.busy)


class Storage(Protocol):
    """Pools "hdd" and "ssd" for replicas, and a directory for originals on servers of either kind.

    Attributes:
        name: in the names of rows.
        lacks: one sentence: what figures from this storage cannot show; "" if nothing.
        nodes: the client nodes; a program's ranks are shared evenly, neighbours together.
        cluster: the text of the cluster.toml that describes it; its home is the pool "hdd".
    """

    name: str
    lacks: str
    nodes: Sequence[Node]
    cluster: str

    def place(self, kind: str, file: Path, size: int) -> None:
        """Make the empty file of an original of so many bytes, on the servers of a kind."""

    def unlimited(self) -> AbstractContextManager[None]:
        """Within the block, devices have no limits, to prepare what is measured."""

    def drop_caches(self) -> None:
        """Drop the storage's files from memory, at the clients and at the servers."""

    def counted(self) -> Mapping[str, Counted]:
        """The work of each device; empty if it is not counted."""

    def sequential(self, pool: str, size: int, op: str) -> float:
        """Bytes/s at which "read" or "write" of ``size`` bytes goes from all of a pool's servers, one stream each.

        Reads are of bytes that are not in memory; writes count when they are on the devices.
        """


def rate_of_streams(directories: Sequence[Path], size: int, op: str) -> float:
    """Bytes/s of one sequential stream in each directory at once, ``size`` bytes in all; files are made and kept."""
    share = size // len(directories)
    files = [directory / "sequential" for directory in directories]
    with ThreadPoolExecutor(len(files)) as pool:
        if op == "read" and any(not file.exists() or file.stat().st_size < share for file in files):
            list(pool.map(lambda file: write_stream(file, share), files))
        for file in files:
            forget(file)
        begin = time.perf_counter()
        list(pool.map(lambda file: (read_stream if op == "read" else write_stream)(file, share), files))
        return share * len(files) / (time.perf_counter() - begin)


def forget(file: Path) -> None:
    """Drop a file from the page cache."""
    if not file.exists():
        return
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def read_stream(file: Path, size: int) -> None:
    """Read the first bytes of a file, one after the other."""
    buffer = bytearray(TRANSFER)
    with file.open("rb", buffering=0) as opened:
        while opened.tell() < size and opened.readinto(buffer):
            pass


def write_stream(file: Path, size: int) -> None:
    """Write them, until they are on the device, which begins at once."""
    block = os.urandom(TRANSFER)
    with file.open("r+b" if file.exists() else "wb", buffering=0) as opened:
        for number in range(-(-size // TRANSFER)):
            opened.write(block)
            # Starts the kernel's writeback, which would otherwise begin when everything is in memory.
            os.posix_fadvise(opened.fileno(), number * TRANSFER, TRANSFER, os.POSIX_FADV_DONTNEED)
        os.fsync(opened.fileno())


class Directories:
    """A directory for every server, and two for originals, on this machine as the only node."""

    def __init__(
        self,
        servers: Mapping[str, Sequence[Path]],
        originals: Mapping[str, Path],
        devices: Callable[[str], str],
        home: str = "",
    ) -> None:
        """``devices`` says how fast those of a kind are, and ``home`` the device of the originals where that is another
        one, as lines of a cluster.toml."""
        self.servers, self.cluster = servers, _cluster(servers, devices, CLIENT)
        if home:
            self.cluster = _with_home(self.cluster, home, originals["hdd"])
        self.nodes: Sequence[Node] = (Node((), originals),)

    def place(self, kind: str, file: Path, size: int) -> None:
        """There is nothing to do."""
        file.touch()

    def drop_caches(self) -> None:
        """Of the files of originals and servers only: other users of the machine keep theirs."""
        for directory in (*self.nodes[0].originals.values(), *(one for pool in self.servers.values() for one in pool)):
            for file in directory.rglob("*"):
                if file.is_file():
                    forget(file)

    def sequential(self, pool: str, size: int, op: str) -> float:
        """See Storage."""
        return rate_of_streams(self.servers[pool], size, op)


class ThrottledDisks(Directories):
    """One directory a disk. An original is on one disk that has the limits of all disks of a kind together.

    That is what no striping over them could surpass: each request is served by as many disks as it takes without being
    counted twice. So what replicas gain here is a lower bound.
    """

    name = "disks"
    lacks = "limits have no latency: a server that serves several processes has no seeks between them"

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """See Storage."""
        mounts = [(one, KINDS[kind]) for kind, found in self.servers.items() for one in found]
        mounts += [(one, _all(kind)) for kind, one in self.nodes[0].originals.items()]
        for mount, _ in mounts:
            limit(mount, NONE)
        try:
            yield
        finally:
            for mount, limits in mounts:
                limit(mount, limits)

    def counted(self) -> Mapping[str, Counted]:
        """The kernel's counters, also for the disks that hold originals."""
        disks = {f"{kind}{i}": one for kind, found in self.servers.items() for i, one in enumerate(found)}
        originals = {f"original {kind}": one for kind, one in self.nodes[0].originals.items()}
        return {name: Counted(served(mount)) for name, mount in {**originals, **disks}.items()}


class PlainDirectories(Directories):
    """Directories of one file system."""

    name = "plain"
    lacks = "all directories are on one device of unknown speed: layouts, SSDs and the limit mean nothing here"

    def unlimited(self) -> AbstractContextManager[None]:
        """They always are."""
        return nullcontext()

    def counted(self) -> Mapping[str, Counted]:
        """Nothing is counted."""
        return {}


@contextmanager
def throttled_disks(scratch: Path, size: int) -> Iterator[ThrottledDisks]:
    """Four disks, two SSDs, and a disk of each kind for originals of ``size`` bytes; all are gone after the block."""
    with ExitStack() as stack:
        servers = {
            kind: [
                stack.enter_context(
                    throttled_disk(scratch, f"{kind}{number}", capacity(4 * size // count), KINDS[kind])
                )
                for number in range(count)
            ]
            for kind, count in DISKS.items()
        }
        originals = {
            kind: stack.enter_context(throttled_disk(scratch, f"original-{kind}", capacity(size), _all(kind)))
            for kind in DISKS
        }
        yield ThrottledDisks(servers, originals, limited, _devices(_all("hdd")))


@contextmanager
def plain_directories(scratch: Path, size: int) -> Iterator[PlainDirectories]:
    """The same directories for any ``size``; their files stay."""
    servers = {kind: [scratch / f"{kind}{number}" for number in range(count)] for kind, count in DISKS.items()}
    originals = {kind: scratch / f"original-{kind}" for kind in DISKS}
    for directory in (*originals.values(), *(one for pool in servers.values() for one in pool)):
        directory.mkdir()
    yield PlainDirectories(servers, originals, _nominal)


def capacity(size: int) -> int:
    """Bytes of a disk that holds files of ``size`` bytes, with the file system's own."""
    return size + size // 8 + 64 * MiB


def _all(kind: str) -> Limits:
    """The limits of all disks of a kind together."""
    return Limits(*(DISKS[kind] * limit for limit in KINDS[kind]))


def limited(kind: str) -> str:
    """A pool's devices by their limits: a request takes the longer of its share of requests/s and of bytes/s."""
    return _devices(KINDS[kind])


def _devices(limits: Limits) -> str:
    startup, rate = 1 / limits.requests_per_second, 1 / limits.bytes_per_second
    return f"startup = [[0, 0.0], [1, {startup}]]\noverlap = true\n" + rates(rate)


def _nominal(kind: str) -> str:
    """Likewise by figures of usual devices (layouts/default_cluster.toml)."""
    startup, rate = {"hdd": ('["1M", 0.0052]', 5.6e-9), "ssd": ("[4096, 8e-5]", 1.85e-9)}[kind]
    return f"startup = [[0, 0.0], {startup}]\n" + rates(rate)


def rates(seconds_per_byte: float) -> str:
    """A pool's devices by their bandwidth."""
    return f"read_seconds_per_byte = {seconds_per_byte}\nwrite_seconds_per_byte = {seconds_per_byte}\n"


def _cluster(servers: Mapping[str, Sequence[Path]], devices: Callable[[str], str], client: str = "") -> str:
    """A cluster.toml: one node, "connections" that are system calls, a "network" that is memory."""
    home = f'pool = "hdd"\nservers = {len(servers["hdd"])}\nstrip = {STRIP}\n'
    clients = f"processes_per_node = 64\nconnect_seconds = 2e-5\nnetwork_seconds_per_byte = 1e-10\n{client}"
    pools = [
        f'[pools.{kind}]\nkind = "{kind}"\n{devices(kind)}where = {json.dumps([str(one) for one in directories])}\n'
        for kind, directories in servers.items()
    ]
    return "\n".join([f"[home]\n{home}", f"[clients]\n{clients}", *pools])


def _with_home(cluster: str, devices: str, where: Path) -> str:
    """A cluster.toml whose originals are on one device of their own, which is for no replicas of disks or SSDs."""
    _, _, rest = cluster.partition("[clients]")
    home = f'[home]\npool = "home"\nservers = 1\nstrip = {STRIP}\n'
    return f'{home}\n[clients]{rest}\n[pools.home]\nkind = "node"\n{devices}where = {json.dumps([str(where)])}\n'
