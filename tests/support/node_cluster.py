"""A cluster of nodes in namespaces: each with its own mounts, device numbers, shared memory, boot and network."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.support.mpi import unavailable
from tests.support.namespace_nodes import LAYERS, Node

SPACES = ("mnt", "uts", "ipc", "net")
"""What a node has for itself. Processes have one number on all nodes, so that a node's launcher reaches the others."""
SHAPES = ("netem rate 1gbit delay 50us", "tbf rate 1gbit burst 256kb latency 50ms")
"""Of a node's link, the first one that the kernel has: it can delay packets, or only limit their rate."""
SWITCH = "ip link add switch type bridge && ip link set switch up && ip link set lo up && echo $$ && read end"
LAUNCHER = """#!/bin/sh
# As ssh for Hydra: OPTION... HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
process=$(cat "DIRECTORY/$1.process")
shift
exec nsenter -t "$process" --mount --uts --ipc --net env -C "$PWD" sh -c "$*"
"""
NETWORK = {"UCX_TLS": "self,sysv,tcp", "UCX_NET_DEVICES": "eth0", "UCX_MEM_MMAP_HOOK_MODE": "none"}
"""For MPICH's ranks: those of a node share memory, others use TCP."""


@dataclass(frozen=True)
class Cluster:
    """Nodes that have ``shared`` under one path, with equal inodes and other devices, and ``ssd``, a device each.

    All else of the file system they have together, also ``upper``, where what is in ``shared`` really is.
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    directory: Path
    shape: str
    """Of the network, a text from SHAPES; "": unlimited."""
    switch: int

    @property
    def shared(self) -> Path:
        return self.directory / "shared"

    @property
    def ssd(self) -> Path:
        return self.directory / "ssd"

    @property
    def upper(self) -> Path:
        return self.directory / "layers/upper"

    def command(self, mpiexec: Sequence[str], per_node: int, *words: str | Path) -> list[str]:
        """The command that runs ``words`` on all nodes, given on any of them; ``mpiexec`` is Hydra."""
        launcher = ["-launcher", "ssh", "-launcher-exec", str(self.directory / "enter")]
        ranks = str(per_node * len(self.nodes))
        return [
            *mpiexec,
            *launcher,
            "-hosts",
            ",".join(self.names),
            "-ppn",
            str(per_node),
            "-n",
            ranks,
            *map(str, words),
        ]

    def members(self, number: int) -> list[int]:
        """The processes of a node, but not its keeper."""
        keeper = self.nodes[number].process
        wanted, found = _spaces(keeper), []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(path.name) != keeper and _spaces(int(path.name)) == wanted:
                    found.append(int(path.name))
        return found

    def kill(self, number: int) -> None:
        """End all processes of a node, and its link.

        RATIONALE: the link goes down last. Hydra notices a lost node by the end of its connections only, natively too.
        """
        while members := self.members(number):
            for process in members:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)
        time.sleep(0.1)
        self._link(number, "down")

    def restart(self, number: int, *, crashed: bool = False) -> None:
        """Join the node again; if it ``crashed``, with another boot, empty shared memory and an empty device."""
        if crashed:
            _boot(self.directory, self.names[number]).write_text(f"{uuid4()}\n")
            for directory in (Path("/dev/shm"), self.ssd):
                self.nodes[number].run("find", directory, "-mindepth", "1", "-delete")
        self._link(number, "up")

    def _link(self, number: int, state: str) -> None:
        enter = ["nsenter", "-t", str(self.switch), "--net"]
        subprocess.run([*enter, "ip", "link", "set", self.names[number], state], check=True)


@dataclass(frozen=True)
class ClusterNode(Node):
    """A node of a cluster."""

    def command(self, *words: str | Path) -> list[str]:
        enter = ["nsenter", "-t", str(self.process), "--mount", "--uts", "--ipc", "--net"]
        return [*enter, "env", "-C", str(self.directory), *map(str, words)]

    def start(self, *words: str | Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start ``words``, whose output goes to this process; they have no input."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(*words), env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )


@contextmanager
def node_cluster(directory: Path, count: int) -> Iterator[Cluster]:
    """A cluster of ``count`` nodes, node1 to nodeN, whose files are below ``directory``.

    Skips where namespaces, overlays, bridges or ``ip`` are missing. See the rationale at `nodes`: names in ``shared``
    have to be made (in ``upper``) before a node looks for them.
    """
    for one in ("shared", "ssd", *(f"layers/{layer}" for layer in LAYERS)):
        (directory / one).mkdir(parents=True, exist_ok=True)
    names = tuple(f"node{number}" for number in range(1, count + 1))
    hosts = [f"10.77.0.{number} {name}\n" for number, name in enumerate(names, 1)]
    (directory / "hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts))
    enter = directory / "enter"
    enter.write_text(LAUNCHER.replace("DIRECTORY", str(directory)))
    enter.chmod(0o755)
    with ExitStack() as stack:
        switch = stack.enter_context(_kept(["--net"], SWITCH))
        processes = []
        for name in names:
            _boot(directory, name).write_text(f"{uuid4()}\n")
            processes.append(
                stack.enter_context(_kept(["--mount", "--uts", "--ipc", "--net"], _setup(directory, name)))
            )
            (directory / f"{name}.process").write_text(f"{processes[-1]}\n")
        shape = ""
        for number, (name, process) in enumerate(zip(names, processes, strict=True), 1):
            shape = _connect(switch, name, process, f"10.77.0.{number}/24")
        nodes = tuple(ClusterNode(process, directory) for process in processes)
        yield Cluster(nodes, names, directory, shape, switch)


def _spaces(process: int) -> list[str]:
    return [str(Path(f"/proc/{process}/ns/{one}").readlink()) for one in SPACES]


def _boot(directory: Path, name: str) -> Path:
    return directory / f"{name}.boot"


def _setup(directory: Path, name: str) -> str:
    """The script that makes a node, prints its process and keeps it until it gets a line."""
    options = ",".join(f"{layer}dir={directory}/layers/{layer}" for layer in LAYERS)
    return " && ".join(
        (
            f"hostname {name}",
            "mount -t sysfs sysfs /sys",  # where UCX looks for networks
            "mount -t tmpfs shm /dev/shm",
            f"mount -t tmpfs {name}-ssd {directory}/ssd",
            f"mount --bind {_boot(directory, name)} /proc/sys/kernel/random/boot_id",
            f"mount --bind {directory}/hosts /etc/hosts",
            f"mount -t overlay overlay -o index=off,{options} {directory}/shared",
            "ip link set lo up",
            "echo $$",
            "read end",
        )
    )


@contextmanager
def _kept(spaces: Sequence[str], script: str) -> Iterator[int]:
    """The process that keeps new namespaces until the end, of which ``script`` prints the number."""
    pipe = subprocess.PIPE
    try:
        keeper = subprocess.Popen(
            ["unshare", *spaces, "sh", "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
    except FileNotFoundError:
        unavailable("there is no unshare")
    assert keeper.stdout
    if not (process := keeper.stdout.readline()):
        unavailable(f"a cluster of nodes needs root, overlays and bridges: {keeper.communicate()[1].strip()}")
    try:
        yield int(process)
    finally:
        keeper.communicate("\n")


def _connect(switch: int, name: str, process: int, address: str) -> str:
    """Join a node to the switch; return the shape of its link."""

    def on(where: int, *words: str) -> bool:
        command = ["nsenter", "-t", str(where), "--net", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and words[0] == "ip":
            unavailable(f"a cluster of nodes needs a network: {' '.join(words)}: {done.stderr.strip()}")
        return done.returncode == 0

    on(switch, "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(process))
    on(switch, "ip", "link", "set", name, "master", "switch", "up")
    on(process, "ip", "address", "add", address, "dev", "eth0")
    on(process, "ip", "link", "set", "eth0", "up")
    for shape in SHAPES:
        if on(process, "tc", "qdisc", "add", "dev", "eth0", "root", *shape.split()):
            on(switch, "tc", "qdisc", "add", "dev", name, "root", *shape.split())
            return shape
    return ""
