"""Nodes: namespaces that mount one file system, each with its own device number."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.mpi import unavailable

LAYERS = ("lower", "upper", "work")


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
    said = [job.communicate(timeout=110) for job in jobs]
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
