"""The whole loop on a cluster of nodes: what tests/cli/test_node_cluster.py and tests/searches/killing_nodes.py run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.command_line import PDLA
from tests.support.mpi import REPOSITORY, Mpi
from tests.support.node_cluster import NETWORK, Cluster
from tests.support.waiting import PATIENCE

PIECE, COUNT, PLACES, START = 96, 200, 4, 5
"""Of tests/programs/cached.c."""
READS = ("all:0", "read:1", "other:2", "each:3")
WRITES = ("write:0", "split:1", "iwrite:2", "apart:3", "sync", "barrier", "sync", "other:0", "each:3")
WRITES_ONLY = ("write:0", "split:1", "iwrite:2", "apart:3")
"""The same writes, which stay in replicas until somebody asks for them."""
E10 = ("--policy", "e10", "--hint", "e10_cache_path=SSD")
MODES = {
    "close": ("--writes", "close"),
    "lease": ("--writes", "lease"),
    "e10": E10,
    "e10 at the close": (*E10, "--hint", "e10_cache_flush_flag=flush_onclose"),
    "e10 exchanged": (*E10, "--hint", "romio_cb_write=enable"),
    "e10 deferred": (*E10, "--hint", "deferred_close=*"),
    "s4d": ("--policy", "s4d", "--cluster", "TOML"),
    "ibridge": ("--policy", "ibridge", "--cluster", "TOML"),
    "liu": ("--policy", "liu", "--cluster", "TOML"),
}
"""Options of ``pdla run``; SSD and TOML are the device of a node and the cluster.toml."""
"""Seconds for a command; what takes longer hangs."""
CLUSTER = """
[home]
pool = "hdd"
servers = 2
strip = "4K"
[clients]
processes_per_node = {ranks}
connect_seconds = 1e-4
network_seconds_per_byte = 8e-9
[pools.hdd]
kind = "hdd"
startup = [[0, 0.0], ["1M", 0.0052], ["100G", 0.0090]]
read_seconds_per_byte = 5.6e-9
write_seconds_per_byte = 5.6e-9
where = ["hdd0", "hdd1"]
[pools.ssd]
kind = "ssd"
startup = [[0, 0.0], [4096, 8e-5]]
read_seconds_per_byte = 1.85e-9
write_seconds_per_byte = 2e-9
where = ["ssd0", "ssd1"]
"""


@dataclass
class Loop:
    """A program that reads ``data`` and one that writes ``result``, on all nodes, and pdla on each of them."""

    cluster: Cluster
    mpi: Mpi
    catalog: str
    """The URL of the PostgreSQL database that all nodes use."""
    per_node: int = 1
    program: Path = field(init=False)
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        home = self.directory / "home"
        home.mkdir()
        self.program = self.mpi.compile(REPOSITORY / "tests/programs/cached.c", self.directory / "program")
        self.environment = {
            **os.environ, **self.mpi.env, **NETWORK, "PDLA_HOME": str(home), "PDLA_CATALOG": self.catalog
        }  # fmt: skip
        (self.cluster.upper / "data").write_bytes(np.random.default_rng(1).bytes(self.size))
        (self.cluster.upper / "result").write_bytes(bytes(self.size))
        for name in ("hdd0", "hdd1", "ssd0", "ssd1"):
            (self.directory / name).mkdir()
        (self.directory / "cluster.toml").write_text(CLUSTER.format(ranks=self.per_node))

    @property
    def directory(self) -> Path:
        return self.cluster.directory

    @property
    def ranks(self) -> int:
        return self.per_node * len(self.cluster.nodes)

    @property
    def size(self) -> int:
        """Bytes of a file, whose first START ones no program accesses."""
        return START + self.ranks * PIECE * COUNT * PLACES

    @property
    def result(self) -> bytes:
        """What is in the file system."""
        return (self.cluster.upper / "result").read_bytes()

    def clear(self) -> None:
        """Zeros for the result, which a node writes natively."""
        self.cluster.nodes[0].run(
            *("dd", "if=/dev/zero", f"of={self.cluster.shared}/result", f"bs={self.size}", "count=1", "conv=notrunc")
        )

    def parallel(self, *words: str | Path) -> list[str]:
        """The command of a process of ``words`` for each rank, on all nodes."""
        return self.cluster.command(self.mpi.mpiexec, self.per_node, *words)

    def reader(self, *steps: str) -> list[str]:
        """The command that reads ``data``."""
        return self.parallel("env", "READ_ONLY=1", *self._job("data", steps or READS))

    def writer(self, *steps: str) -> list[str]:
        """The command that writes ``result``."""
        return self.parallel(*self._job("result", steps or WRITES))

    def _job(self, name: str, steps: Sequence[str]) -> list[str]:
        return [str(self.program), str(self.cluster.shared / name), str(self.directory / "out"), *steps]

    def seen(self) -> list[str]:
        """What the ranks of the last program saw."""
        return [(self.directory / f"out.{rank}").read_text() for rank in range(self.ranks)]

    def start(self, *words: str | Path, node: int = 0) -> subprocess.Popen[str]:
        """Start a command on a node."""
        return self.cluster.nodes[node].start(*words, env=self.environment)

    def finish(self, job: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[str, str]:
        """The output of a command, which must end."""
        try:
            return job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            running = [
                f"{name}: {Path(f'/proc/{process}/cmdline').read_text()[-200:]!r}"
                for number, name in enumerate(self.cluster.names)
                for process in self.cluster.members(number)
            ]
            print(*running, sep="\n")
            self.kill_all()
            raise AssertionError(f"hangs: {job.args!r}\n{job.communicate()}") from None

    def run(self, *words: str | Path, node: int = 0, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command on a node and expect its exit ``code``."""
        job = self.start(*words, node=node)
        out, err = self.finish(job)
        assert job.returncode == code, f"{words}: exit {job.returncode}\n{out}\n{err}"
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(words, job.returncode, out, err)

    def kill_all(self) -> None:
        """End what runs on the nodes."""
        for number in range(len(self.cluster.nodes)):
            self.cluster.kill(number)
            self.cluster.restart(number)

    def answer(self, job: subprocess.Popen[str]) -> dict[str, Any]:
        """What a command with ``--json`` answers; it must succeed."""
        out, err = self.finish(job)
        assert job.returncode == 0, f"{out}\n{err}"
        return json_of(out)

    def pdla(self, *words: str | Path, node: int = 0, code: int = 0) -> dict[str, Any]:
        """The answer of ``pdla WORDS``, which have ``--json``."""
        return json_of(self.run(PDLA, *words, node=node, code=code).stdout)

    def options(self, mode: str) -> list[str]:
        """Those of a mode for ``pdla run``."""
        places = {"SSD": str(self.cluster.ssd), "TOML": str(self.directory / "cluster.toml")}
        return [word.replace("SSD", places["SSD"]).replace("TOML", places["TOML"]) for word in MODES[mode]]

    def build(self, name: str, *command: str, build: bool = True) -> int:
        """Trace ``command``, analyze, plan, and replicate on all nodes, or only queue that; how many were built."""
        trace, plan = self.directory / f"{name}.h5", self.directory / f"{name}.json"
        self.pdla("trace", "-o", trace, "--", *command)
        self.run(*self.parallel(PDLA, "analyze", trace, "--json"))
        policy = ("--writes", "close", "--policy", "ns-pdla", "--simulate", "0")
        if not build:
            self.pdla("plan", trace, *policy, "--queue")
            return 0
        self.pdla("plan", trace, *policy, "-o", plan)
        return len(json_of(self.run(*self.parallel(PDLA, "replicate", plan, "--json")).stdout)["replicas"])


def json_of(text: str) -> dict[str, Any]:
    """The last JSON in an output; {} if there is none."""
    answer = next((json.loads(line) for line in reversed(text.splitlines()) if line.startswith("{")), {})
    assert isinstance(answer, dict)
    return answer
