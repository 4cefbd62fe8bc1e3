"""OrangeFS, on real servers: the public suite with the bytes that each server holds, and the whole loop."""

from __future__ import annotations

import json
import re
from itertools import chain, groupby, zip_longest
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY, Pdla
from mpi import Mpi, available_mpis
from orangefs import OrangeFSServers

from pdla.catalog import open_catalog
from pdla.errors import PdlaError
from pdla.model import Pool
from pdla.policies.planfile import read_plan
from pdla.replicator.backends.base import NewComponent
from pdla.replicator.backends.orangefs import OrangeFS
from pdla.replicator.backends.suite import BackendTests
from pdla.replicator.builder import replicate

KIB64 = 65536


def pool(where: Path, names: list[str]) -> Pool:
    rates = {"read_seconds_per_byte": 1e-8, "write_seconds_per_byte": 1e-8, "capacity": 1 << 40, "grain": 4096}
    return Pool(
        "pfs", "hdd", len(names), ((0, 0.0),), **rates, backend="orangefs", where=(str(where),), names=tuple(names)
    )


class TestOrangeFS(BackendTests):
    @pytest.fixture
    def backend(self, orangefs_servers: OrangeFSServers, request: pytest.FixtureRequest) -> OrangeFS:
        where = orangefs_servers.mount / re.sub(r"\W", "_", request.node.name)
        where.mkdir()
        # Not in the order of OrangeFS's configuration, and not beginning with its first.
        self.servers, names = orangefs_servers, orangefs_servers.names
        return OrangeFS(pool(where, [names[4], names[1], names[5], names[2]]))

    def stored(self, backend: OrangeFS, component: NewComponent) -> list[bytes]:
        """Of the datafiles of one server after one another every one has a strip in turn."""
        strip = int(re.findall(r"strip_size:(\d+)", self.servers.view(component.path))[0])
        held = []
        for server, datafiles in groupby(self.servers.datafiles(component.path), key=lambda one: one[0]):
            assert server == component.servers[len(held)].name
            cut = [[data[at : at + strip] for at in range(0, len(data), strip)] for _, data in datafiles]
            held.append(b"".join(b"".join(row) for row in zip_longest(*cut, fillvalue=b"")))
        return held


CLUSTER = """
[home]
pool = "pfs"
servers = 4
strip = "64K"

[clients]
processes_per_node = 4
connect_seconds = 1e-4
network_seconds_per_byte = 8e-10

[pools.pfs]
kind = "hdd"
startup = [[0, 0.0], ["1M", 0.005]]
read_seconds_per_byte = 1e-8
write_seconds_per_byte = 1e-8
backend = "orangefs"
where = ["{where}"]
servers = {names}
"""


class Loop:
    """The slabs of examples/slabs.py, traced, and a plan for a pool of four of the servers."""

    def __init__(self, mpi: Mpi, servers: OrangeFSServers, folder: Path) -> None:
        self.servers, self.where = servers, servers.mount / "loop"
        self.where.mkdir()
        self.pdla = Pdla(folder, mpi.env)
        self.data = folder / "data"
        self.data.write_bytes(np.random.default_rng(3).bytes(4 * 4 * 384 * 384))
        self.command = mpi.command(4, mpi.python, REPOSITORY / "examples/slabs.py", self.data, "4", "384", "384")
        (folder / "cluster.toml").write_text(CLUSTER.format(where=self.where, names=json.dumps(servers.names[2:])))
        self.pdla.run("trace", "-o", "run.h5", "--", *self.command)
        self.pdla.run("plan", "run.h5", "--cluster", "cluster.toml", "-o", "plan.json")
        self.native = mpi.run(self.command, cwd=folder)

    def choose(self, layout: str) -> None:
        """Change the plan to the candidate of this layout."""
        path = self.pdla.directory / "plan.json"
        plan = json.loads(path.read_text())
        (pattern,) = plan["patterns"]
        pattern["chosen"] = [candidate["layout"] for candidate in pattern["candidates"]].index(layout)
        path.write_text(json.dumps(plan))

    def redirected(self) -> tuple[str, int]:
        """What the program says, and the bytes that it got from replicas."""
        lines = self.pdla.run("run", "--json", "--", *self.command).stdout.splitlines(keepends=True)
        return "".join(lines[:-1]), json.loads(lines[-1])["replica_bytes"]

    def clear(self) -> None:
        """Remove all replicas."""
        for replica in self.pdla.json("status", "--json")["replicas"]:
            self.pdla.run("rm", str(replica["id"]))

    def files(self) -> list[Path]:
        """All that is there of replicas."""
        return sorted(path for path in self.where.rglob("*") if path.is_file())


@pytest.fixture(scope="module", params=available_mpis()[:1])
def loop(
    request: pytest.FixtureRequest, orangefs_servers: OrangeFSServers, tmp_path_factory: pytest.TempPathFactory
) -> Loop:
    return Loop(request.param, orangefs_servers, tmp_path_factory.mktemp("loop"))


@pytest.mark.parametrize(("layout", "groups"), [("1-DH", [4]), ("2-D", [2, 2]), ("1-DV", [1, 1, 1, 1])])
def test_a_program_receives_the_same_bytes_from_every_layout(loop: Loop, layout: str, groups: list[int]) -> None:
    loop.choose(layout)
    loop.pdla.run("replicate", "plan.json")
    files = loop.files()
    datafiles = [[server for server, _ in loop.servers.datafiles(file)] for file in files]
    assert [len(servers) for servers in datafiles] == groups
    assert [*chain(*datafiles)] == loop.servers.names[2:]
    assert [sum(len(data) for _, data in loop.servers.datafiles(file)) for file in files] == [
        file.stat().st_size for file in files
    ]
    assert loop.pdla.json("verify", "--json")["findings"] == []
    assert loop.redirected() == (loop.native, 4 * 589824)


def test_where_a_server_is_gone_the_program_reads_the_original(loop: Loop) -> None:
    loop.pdla.run("replicate", "plan.json")
    assert loop.redirected() == (loop.native, 4 * 589824)
    loop.servers.kill(loop.servers.names[3])
    try:
        output, replica_bytes = loop.redirected()
    finally:
        loop.servers.start(loop.servers.names[3])
    assert output == loop.native
    assert replica_bytes < 4 * 589824


def test_a_server_that_is_gone_fails_a_build_before_anything_is_made(loop: Loop) -> None:
    loop.clear()
    loop.servers.kill(loop.servers.names[3])
    try:
        failed = loop.pdla.run("replicate", "plan.json", code=1)
    finally:
        loop.servers.start(loop.servers.names[3])
    (line,) = failed.stderr.splitlines()
    assert f"pool pfs: pvfs2-statfs of {loop.servers.metadata}/orangefs: server {loop.servers.names[3]}: " in line
    assert "Connection refused" in line
    assert loop.files() == []


def test_a_server_that_goes_during_a_build_fails_it_in_one_line_and_gc_leaves_nothing(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.clear()
    monkeypatch.setenv("PDLA_HOME", str(loop.pdla.home))
    victim = loop.servers.names[3]

    def progress(what: str, done: int, total: int) -> None:
        if victim in loop.servers.processes:
            loop.servers.kill(victim)

    try:
        with pytest.raises(PdlaError, match=r"cannot build a replica of .*Connection refused"):
            replicate(read_plan(loop.pdla.directory / "plan.json"), open_catalog(), progress=progress)
        assert "Connection refused" in loop.pdla.run("gc", code=1).stderr
    finally:
        loop.servers.start(victim)
    assert loop.files() != []
    loop.pdla.run("gc")
    assert loop.files() == []
