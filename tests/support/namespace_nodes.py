"""Nodes: namespaces that mount one file system, each with its own device number."""

from __future__ import annotations

import ctypes
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.mpi import unavailable
from tests.support.waiting import PATIENCE

LAYERS = ("lower", "upper", "work")
CLONE_NEWNS, CLONE_NEWUTS = 0x20000, 0x4000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
ON_NODE = 'hostname "node$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'


@dataclass(frozen=True)
class Node:
    """A node, kept by the process of this number: a hostname, and a mount of ``directory`` at one path on all."""

    process: int
    directory: Path

    def command(self, *words: str | Path) -> list[str]:
        """A command line that runs ``words`` on the node."""
        enter = ["nsenter", "-t", str(self.process), "--mount", "--uts", "env", "-C", str(self.directory)]
        return [*enter, *map(str, words)]

    def start(self, *words: str | Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start ``words`` and return; ``communicate`` ends their input."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*words), env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str | Path) -> str:
        """The output of ``words``."""
        return subprocess.run(self.command(*words), check=True, capture_output=True, text=True).stdout


def at_once(
    nodes: Sequence[Node], *words: str | Path, env: Mapping[str, str]
) -> list[subprocess.CompletedProcess[str]]:
    """Run ``words`` on all nodes at the same time."""
    jobs = [node.start(*words, env=env) for node in nodes]
    said = [job.communicate(timeout=PATIENCE) for job in jobs]
    return [subprocess.CompletedProcess(words, job.returncode, *one) for job, one in zip(jobs, said, strict=True)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two nodes.

    ``tmp_path / "shared"`` has the same files on both, with equal inodes and different devices. Files next to it also
    have equal devices.

    RATIONALE: two overlays of one directory see each other's bytes, sizes and times at once, but
    may not see names that appeared or changed after they had looked for them. So tests make the
    files before the nodes look.
    """
    shared, layers = tmp_path / "shared", [tmp_path / "layers" / layer for layer in LAYERS]
    for one in (shared, *layers):
        one.mkdir(parents=True)
    with ExitStack() as stack:
        yield tuple(stack.enter_context(_node(f"node{number}", shared, layers)) for number in (1, 2))


@contextmanager
def _node(name: str, shared: Path, layers: Sequence[Path]) -> Iterator[Node]:
    options = ",".join(f"{layer}dir={one}" for layer, one in zip(LAYERS, layers, strict=True))
    script = f"hostname {name} && mount -t overlay overlay -o index=off,{options} {shared} && echo $$ && read end"
    try:
        holder = subprocess.Popen(
            ["unshare", "--mount", "--uts", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        unavailable("there is no unshare")
    assert holder.stdout
    if not (process := holder.stdout.readline()):
        unavailable(f"two nodes need root and a kernel with overlays: {holder.communicate()[1].strip()}")
    try:
        yield Node(int(process), shared)
    finally:
        holder.communicate("\n")


def on_nodes(directory: Path, *program: Path, nodes: int = 2) -> Path:
    """A script in ``directory`` that runs ``program``, or its arguments, on a node: the ranks of a job take turns.

    The nodes have a hostname and a boot of their own, and the same files and devices. Their ranks also use TCP.
    """
    script, boots = directory / "on_nodes", [directory / f"boot{number}" for number in range(nodes)]
    for boot in boots:
        if not boot.exists():
            boot.write_text(f"{uuid4()}\n")
    words = " ".join(map(str, program))
    script.write_text(
        '#!/bin/sh\n[ -z "$UCX_TLS" ] || export UCX_TLS="$UCX_TLS,tcp"\n'
        f"node=$((${{PMI_RANK:-${{OMPI_COMM_WORLD_RANK:-0}}}} % {nodes}))\n"
        f"exec unshare --mount --uts sh -c '{ON_NODE}' $node {directory}/boot$node {words} \"$@\"\n"
    )
    script.chmod(0o755)
    obstacle = _obstacle()
    if obstacle:
        unavailable(obstacle)
    return script


def become_node(directory: Path, number: int) -> None:
    """Make this process, which has one thread, a process of that node of ``on_nodes(directory)``."""
    libc, boot = ctypes.CDLL(None), bytes(directory / f"boot{number}")
    done = (
        libc.unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0
        and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and libc.mount(boot, b"/proc/sys/kernel/random/boot_id", None, MS_BIND, None) == 0
    )
    assert done, "a process cannot be on a node of its own"
    socket.sethostname(f"node{number}")


@cache
def _obstacle() -> str:
    """Why nobody can be on a node; "" if it is possible."""
    try:
        done = subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no unshare"
    return f"nodes need root: {done.stderr.strip()}" if done.returncode else ""
