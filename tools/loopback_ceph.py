"""A private Ceph cluster on 127.0.0.1: a monitor, a manager, a metadata server, OSDs, and CephFS mounted.

For tests and benchmarks. It needs root, /dev/fuse and Debian's packages (``PROGRAMS``), and leaves
nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-mds", "ceph-osd", "ceph-fuse", "rados", "monmaptool", "setpriv", "fusermount")
ANSWER = 300  # seconds to wait for anything: the machine may be busy

CONFIGURATION = """
[global]
fsid = {fsid}
mon initial members = a
mon host = [v2:127.0.0.1:{port}]
public addr = 127.0.0.1
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
ms bind ipv6 = false
ms bind msgr1 = false
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
admin socket =
log file = {folder}/$name.log
crash dir = {folder}
pid file =
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 2000
mon data avail warn = 2
mon data avail crit = 1
mon osd min down reporters = 1
# Who is slow is not lost; of a process that is gone the others hear at once.
mon mgr beacon grace = 600
mds beacon grace = 600
osd heartbeat grace = 600
[mon]
mon data = {folder}/mon
auth allow insecure global id reclaim = false
paxos propose interval = 0.05
paxos min wait = 0.01
[mgr]
mgr data = {folder}/mgr
mgr module path = {folder}/no-modules
mgr stats period = 1
[mds]
mds data = {folder}/mds
mds cache memory limit = 134217728
[osd]
osd data = {folder}/osd$id
osd objectstore = bluestore
osd class update on start = false
osd crush update on start = false
bluestore block create = true
bluestore block size = 2147483648
bluestore cache size = 67108864
bluestore cache autotune = false
osd op num shards = 2
osd op num threads per shard = 1
{settings}"""

# The system's Python has librados: commands to the monitors, one a line, over one connection.
COMMANDS = """
import json, rados, sys
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect(timeout=60)
for line in sys.stdin:
    failed, answer, said = cluster.mon_command(line, b"")
    if failed:
        sys.exit(f"{line}: {said}")
    print(answer.decode().replace(chr(10), " "))
cluster.shutdown()
"""


class Osd(NamedTuple):
    """A disk of the cluster."""

    kind: str  # the device class: hdd or ssd
    device: Path | None = None  # a block device; None: a file in the cluster's folder
    database: Path | None = None  # a block device for BlueStore's metadata; None: on the same device


class Ceph:
    """A running cluster; ``mount`` is the root of its file system.

    Files are in the data pools "hdd" and "ssd", over the OSDs of that kind, or in "data", as "ssd".
    ``settings`` are further lines for the sections of ceph.conf for OSDs and clients.
    """

    def __init__(self, folder: Path, osds: Sequence[Osd], settings: str = "") -> None:
        self.folder = folder
        self.osds = osds
        self.settings = settings
        self.configuration = folder / "ceph.conf"
        self.mount = folder / "mnt"
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str | Path) -> None:
        """Run a daemon in the foreground, in place of one that still runs; it ends with this process in any case."""
        if name in self.daemons:
            self.stop(name, signal.SIGKILL)
        with (self.folder / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command, "-c", self.configuration],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def start_osd(self, number: int) -> None:
        """Run an OSD, perhaps again."""
        self.start(f"osd{number}", "ceph-osd", "-f", "-i", str(number))

    def start_mds(self) -> None:
        """Run the metadata server."""
        self.start("mds", "ceph-mds", "-f", "-i", "a")

    def start_mount(self, mount: Path, *options: str) -> None:
        """Mount the file system once more."""
        mount.mkdir()
        self.start(mount.name, "ceph-fuse", "-f", f"--admin_socket={self._socket(mount)}", *options, mount)
        self.until(mount.is_mount)

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a daemon, by force if it does not end by itself."""
        process = self.daemons.pop(name)
        process.send_signal(number)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(ANSWER)

    @contextmanager
    def halted(self, name: str) -> Iterator[None]:
        """Stop a daemon for the block."""
        process = self.daemons[name]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def unmount(self, mount: Path) -> None:
        """End a mount, even if it is in use."""
        subprocess.run(["fusermount", "-uz", mount], check=False, capture_output=True)
        self.stop(mount.name)

    def held(self, mount: Path) -> int:
        """How many files and directories the client of a mount holds, in memory or because of its caches."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self._socket(mount)))
            client.sendall(b'{"prefix": "status"}\0')
            answer = client.makefile("rb").read()[4:]  # behind its length
        return int(json.loads(answer)["inode_count"])

    def _socket(self, mount: Path) -> Path:
        return self.folder / f"{mount.name}.asok"

    def ask(self, *commands: dict[str, Any]) -> list[str]:
        """The monitors' answers."""
        lines = "".join(json.dumps({"format": "json", **command}) + "\n" for command in commands)
        done = subprocess.run(
            ["/usr/bin/python3", "-c", COMMANDS, self.configuration],
            input=lines, capture_output=True, text=True, timeout=ANSWER, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def until(self, there: Callable[[], bool]) -> None:
        """Wait for something; if it does not happen, print what the daemons printed."""
        end = time.monotonic() + ANSWER
        while not there():
            ended = [name for name, process in self.daemons.items() if process.poll() is not None]
            if ended or time.monotonic() > end:
                said = "".join(file.read_text(errors="replace")[-800:] for file in self.folder.glob("*.out"))
                raise RuntimeError(f"Ceph did not reach the expected state; ended daemons: {ended}\n{said}")
            time.sleep(0.05)

    def is_up(self) -> bool:
        """Whether every OSD and the metadata server are up."""
        osds, mds = map(json.loads, self.ask({"prefix": "osd stat"}, {"prefix": "fs dump"}))
        states = [one["state"] for system in mds["filesystems"] for one in system["mdsmap"]["info"].values()]
        return osds["num_up_osds"] == len(self.osds) and "up:active" in states

    def has_space(self) -> bool:
        """Whether the monitors know the free space of every OSD."""
        (answer,) = self.ask({"prefix": "osd df"})
        return all(node["kb_avail"] > 0 for node in json.loads(answer)["nodes"]) and os.statvfs(self.mount).f_bavail > 0

    def objects(self, pool: str) -> dict[tuple[str, str], int]:
        """The OSD of every object (namespace, name) in a pool, as ``rados`` and the monitors report it."""
        listed = self.rados("-p", pool, "--all", "ls").decode().splitlines()
        found = [(namespace, name) for namespace, _, name in (line.partition("\t") for line in listed)]
        asked = [{"prefix": "osd map", "pool": pool, "object": name, "nspace": space} for space, name in found]
        return {one: json.loads(line)["acting"][0] for one, line in zip(found, self.ask(*asked), strict=True)}

    def object(self, pool: str, namespace: str, name: str) -> bytes:
        """The bytes of an object."""
        return self.rados("-p", pool, "-N", namespace, "get", name, "/dev/stdout")

    def replace(self, pool: str, namespace: str, name: str, data: bytes) -> None:
        """Replace an object's bytes without any client noticing."""
        (source := self.folder / "object").write_bytes(data)
        self.rados("-p", pool, "-N", namespace, "put", name, str(source))

    def rados(self, *words: str) -> bytes:
        """The output of Ceph's tool of this name."""
        command = ["rados", "-c", str(self.configuration), *words]
        return subprocess.run(command, check=True, capture_output=True, timeout=ANSWER).stdout

    def bring_up(self) -> None:
        """From an empty folder to a mounted file system, in some seconds."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        fsid = str(uuid.uuid4())
        for name in ("mon", "mgr", "mds", "no-modules", *(f"osd{number}" for number in range(len(self.osds)))):
            (self.folder / name).mkdir()
        for number, osd in enumerate(self.osds):
            if osd.device:
                (self.folder / f"osd{number}/block").symlink_to(osd.device)
            if osd.database:
                (self.folder / f"osd{number}/block.db").symlink_to(osd.database)
        self.configuration.write_text(
            CONFIGURATION.format(fsid=fsid, port=port, folder=self.folder, settings=self.settings)
        )
        monmap = self.folder / "monmap"
        make = ["monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{port}]", monmap]
        subprocess.run(make, check=True, capture_output=True)
        mkfs = ["ceph-mon", "-c", self.configuration, "--mkfs", "-i", "a", "--monmap", monmap]
        subprocess.run(mkfs, check=True, capture_output=True)
        self.start("mon", "ceph-mon", "-f", "-i", "a")
        self.start("mgr", "ceph-mgr", "-f", "-i", "x")
        names = [str(uuid.uuid4()) for _ in self.osds]
        made = [
            subprocess.Popen(
                ["ceph-osd", "-c", self.configuration, "-i", str(i), "--mkfs", "--osd-uuid", name, "--monmap", monmap],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for i, name in enumerate(names)
        ]  # fmt: skip
        self.ask(*self._commands(names))
        assert all(process.wait(ANSWER) == 0 for process in made)
        for number in range(len(self.osds)):
            self.start_osd(number)
        self.start_mds()
        self.until(self.is_up)
        # A lost OSD is an error after these seconds; Ceph's own default is to wait for ever.
        self.start_mount(self.mount, "--rados_osd_op_timeout=30")
        self.until(self.has_space)

    def _commands(self, names: list[str]) -> Iterator[dict[str, Any]]:
        for number, (name, osd) in enumerate(zip(names, self.osds, strict=True)):
            yield {"prefix": "osd new", "uuid": name}
            yield {"prefix": "osd crush add", "id": number, "weight": 1.0, "args": ["root=default"]}
            yield {"prefix": "osd crush set-device-class", "class": osd.kind, "ids": [str(number)]}
        for kind in ("hdd", "ssd"):
            rule = {"name": kind, "root": "default", "type": "osd", "class": kind}
            yield {"prefix": "osd crush rule create-replicated", **rule}
        for pool, groups, kind in (("metadata", 8, "ssd"), ("data", 8, "ssd"), ("hdd", 32, "hdd"), ("ssd", 8, "ssd")):
            yield {"prefix": "osd pool create", "pool": pool, "pg_num": groups, "pgp_num": groups, "rule": kind}
        yield {"prefix": "fs new", "fs_name": "fs", "metadata": "metadata", "data": "data", "force": True}
        for pool in ("hdd", "ssd"):
            yield {"prefix": "fs add_data_pool", "fs_name": "fs", "pool": pool}

    def take_down(self) -> None:
        """End what was started, in reverse order."""
        for mount in self.folder.glob("mnt*"):
            if mount.name in self.daemons:
                self.unmount(mount)
        for name in reversed(list(self.daemons)):
            self.daemons[name].terminate()
        for name in reversed(list(self.daemons)):
            self.stop(name)
