"""OrangeFS, on real servers: the public suite with the bytes that each server holds, and the whole loop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain, groupby, zip_longest
from pathlib import Path

import numpy as np
import pytest

from benchmarks import orangefs_clients
from pdla.catalog import open_catalog
from pdla.errors import ConfigError, PdlaError
from pdla.model import Cluster, Identity, Layout, Pool
from pdla.policies.planfile import read_plan
from pdla.replicator import identity
from pdla.replicator.backends.base import Backend, NewComponent, folder_in, temporary
from pdla.replicator.backends.conformance import SIZE, BackendTests
from pdla.replicator.backends.orangefs import OrangeFS
from pdla.replicator.builder import replicate
from pdla.replicator.identity import stable_identity
from tests.support.command_line import Pdla
from tests.support.compilers import REPOSITORY
from tests.support.handmade_maps import read_places
from tests.support.mpi import Mpi, available_mpis
from tests.support.orangefs_servers import IO_SERVERS
from tools.loopback_orangefs import HINTED, OrangeFSServers

KIB64 = 65536


def pool(where: Path, names: list[str]) -> Pool:
    rates = {"read_seconds_per_byte": 1e-8, "write_seconds_per_byte": 1e-8, "capacity": 1 << 40, "grain": 4096}
    return Pool(
        "pfs", "hdd", len(names), ((0, 0.0),), **rates, backend="orangefs", where=(str(where),), names=tuple(names)
    )


class OnOrangeFS(BackendTests):
    """On four of the servers, not in the order of OrangeFS's configuration, and not beginning with its first."""

    def on(self, mount: Path, servers: OrangeFSServers, request: pytest.FixtureRequest) -> OrangeFS:
        self.servers, names = servers, servers.names
        where = mount / re.sub(r"\W", "_", request.node.nodeid)
        where.mkdir()
        return OrangeFS(pool(where, [names[4], names[1], names[5], names[2]]))

    def stored(self, backend: Backend, component: NewComponent) -> list[bytes]:
        """The datafiles of one server have its strips in turn."""
        (strip, *_) = *map(int, re.findall(r"strip_size:(\d+)", self.servers.view(component.path))), SIZE
        held = {server.name: b"" for server in component.servers}
        for server, datafiles in groupby(self.servers.datafiles(component.path), key=lambda one: one[0]):
            cut = [[data[at : at + strip] for at in range(0, len(data), strip)] for _, data in datafiles]
            held[server] = b"".join(b"".join(row) for row in zip_longest(*cut, fillvalue=b""))
        return [*held.values()]

    def test_files_that_are_made_at_the_same_time_are_all_where_they_should_be(self, backend: OrangeFS) -> None:
        """Each builder changes the directory's hints for new files."""
        layouts = [Layout("pfs", width, 1, (4096 * width,) * width, KIB64) for width in (1, 2, 3, 4)]
        backend.check(layouts[-1], SIZE)

        def make(number: int) -> list[str]:
            (component,) = backend.components(f"t/{number}", layouts[number % 4], SIZE)
            os.close(backend.create(component))
            return [server for server, _ in self.servers.datafiles(temporary(component.path))]

        with ThreadPoolExecutor(4) as builders:
            found = list(builders.map(make, range(8)))
        names = [server.name for server in backend.servers]
        assert found == [names[: number % 4 + 1] for number in range(8)]


class TestByTools(OnOrangeFS):
    """The mount of stock pvfs2fuse."""

    @pytest.fixture
    def backend(self, orangefs_servers: OrangeFSServers, request: pytest.FixtureRequest) -> OrangeFS:
        return self.on(orangefs_servers.mount, orangefs_servers, request)

    def test_strips_that_want_more_datafiles_than_there_are_servers_are_refused(self, backend: OrangeFS) -> None:
        layout = Layout("pfs", 3, 1, (KIB64, 3 * KIB64, 3 * KIB64), 8 * KIB64)
        assert backend.obstacle(layout, SIZE) == (
            "strips of 64 KiB, 192 KiB, 192 KiB need 7 datafiles of equal strips, more than the 6 I/O servers; unequal "
            "strips need a mount with extended attributes"
        )

    def test_a_hybrid_of_two_pools_is_one_file_on_the_servers_of_both(self, backend: OrangeFS) -> None:
        (where,), names = backend.pool.where, backend.pool.names
        parts = [
            replace(pool(Path(where) / name, own), name=name)
            for name, own in zip("ab", (names[:2], names[2:3]), strict=True)
        ]
        for part in parts:
            Path(part.where[0]).mkdir()
        cluster = Cluster(tuple(parts), "a", 1, KIB64, 1, 0.0, 0.0, 0.0, "test")
        hybrid = OrangeFS(cluster.pool("a+b"))
        layout = Layout("a+b", 3, 1, (KIB64, KIB64, 2 * KIB64), 8 * KIB64)
        hybrid.check(layout, SIZE)
        (component,) = hybrid.components("t/1", layout, SIZE)
        os.close(hybrid.create(component))
        assert component.path == folder_in(Path(where) / "a") / "t/1.0"
        datafiles = self.servers.datafiles(temporary(component.path))
        assert [server for server, _ in datafiles] == [*names[:3], names[2]]


class TestByAttributes(OnOrangeFS):
    """A mount with extended attributes, as that of the kernel client."""

    @pytest.fixture
    def backend(self, orangefs_servers: OrangeFSServers, request: pytest.FixtureRequest) -> OrangeFS:
        if not orangefs_servers.hinted.is_mount():
            pytest.skip(f"OrangeFS has no client with extended attributes: there is no {HINTED}")
        return self.on(orangefs_servers.hinted, orangefs_servers, request)

    @pytest.mark.parametrize("strips", [(KIB64, 3 * KIB64, 3 * KIB64), (1000, 777, 0, 1)])
    def test_strips_that_want_more_datafiles_than_there_are_servers_are_unequal(
        self, backend: OrangeFS, strips: tuple[int, ...]
    ) -> None:
        layout = Layout("pfs", len(strips), 1, strips, 5 * KIB64)
        assert backend.obstacle(layout, SIZE) == ""
        self.test_12_every_byte_is_on_the_server_that_the_layout_names(backend, len(strips), 1, strips, 5 * KIB64)
        (component,) = backend.components("t/1", layout, SIZE)
        assert "dist_name = varstrip_dist" in self.servers.view(component.path)


def test_other_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not in a mounted OrangeFS but in \w+ at /"):
        OrangeFS(pool(tmp_path, ["tcp://a:1"])).check(Layout("pfs", 1, 1, (KIB64,), KIB64), SIZE)


def test_a_server_that_is_none_is_refused_with_those_that_there_are(orangefs_servers: OrangeFSServers) -> None:
    backend = OrangeFS(pool(orangefs_servers.mount, ["tcp://a:1"]))
    known = ", ".join(sorted(orangefs_servers.names))
    with pytest.raises(ConfigError, match=f"pool pfs: tcp://a:1 is not an I/O server of .* \\(it has: {known}\\)"):
        backend.check(Layout("pfs", 1, 1, (KIB64,), KIB64), SIZE)


def test_a_mount_that_makes_up_inode_numbers_is_refused(orangefs_servers: OrangeFSServers, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["pvfs2fuse", "-o", f"fs_spec={orangefs_servers.metadata}/orangefs", mount], check=True)
    try:
        with pytest.raises(ConfigError, match="are not permanent: mount OrangeFS with -o use_ino"):
            OrangeFS(pool(mount, orangefs_servers.names)).check(Layout("pfs", 1, 1, (KIB64,), KIB64), SIZE)
    finally:
        subprocess.run(["fusermount", "-u", "-z", mount], check=True)


def test_without_the_tools_it_says_what_to_do(
    orangefs_servers: OrangeFSServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    backend = OrangeFS(pool(orangefs_servers.mount, orangefs_servers.names))
    with pytest.raises(ConfigError, match=r"pool pfs: there is no pvfs2-statfs: add .* tools to PATH"):
        backend.check(Layout("pfs", 1, 1, (KIB64,), KIB64), SIZE)


@pytest.fixture
def small_server(orangefs_servers: OrangeFSServers, tmp_path: Path) -> Iterator[OrangeFSServers]:
    """Servers of which the first has storage of 24 MiB."""
    if os.geteuid():
        pytest.skip("only root can mount storage of a given size")
    servers = OrangeFSServers(tmp_path, IO_SERVERS)
    storage = servers.storage(servers.names[0])
    storage.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", storage], check=True)
    try:
        servers.up()
        yield servers
    finally:
        servers.down()
        subprocess.run(["umount", storage], check=True)


def test_a_full_server_loses_what_it_is_given_which_is_seen_where_space_is_reserved(
    small_server: OrangeFSServers,
) -> None:
    size = 16 << 20
    (small_server.mount / "pool").mkdir()
    backend = OrangeFS(pool(small_server.mount / "pool", small_server.names[:2]))
    layout = Layout("pfs", 2, 1, (KIB64,) * 2, 2 * KIB64)
    backend.check(layout, size)
    first, second = (backend.components(f"t/{number}", layout, size)[0] for number in range(2))
    file = backend.create(first)
    filler = small_server.storage(small_server.names[0]) / "filler"
    with filler.open("wb", buffering=0) as full, suppress(OSError):
        while True:
            full.write(bytes(1 << 20))

    def written() -> int:
        assert os.pwrite(file, b"x" * size, 0) == size
        return sum(data.count(b"x") for _, data in small_server.datafiles(temporary(first.path)))

    assert written() < size
    with pytest.raises(PdlaError, match=rf"no space for 16 MiB: {small_server.names[0]} is full"):
        backend.reserve(file, first)
    with pytest.raises(PdlaError, match=rf"no space for 8 MiB on {small_server.names[0]}"):
        backend.create(second)
    filler.unlink()
    backend.reserve(file, first)
    assert written() == size
    os.close(file)


def test_an_original_that_changes_without_a_trace_gets_no_replica(orangefs_servers: OrangeFSServers) -> None:
    path = orangefs_servers.mount / "original"
    path.write_bytes(b"before")
    before = path.stat()
    time.sleep(1.1)
    with path.open("r+b") as file:
        file.write(b"after!")
    assert (path.stat().st_mtime_ns, path.stat().st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    with path.open("rb") as file, pytest.raises(PdlaError, match="is on pvfs2fuse, which does not change the mtime"):
        stable_identity(file.fileno(), path)


def test_where_times_are_whole_seconds_as_in_orangefs_a_change_is_seen_after_one(monkeypatch, tmp_path: Path) -> None:
    now, waited = time.time_ns() // 10**9 * 10**9, []
    monkeypatch.setattr(identity, "identity_of", lambda path: Identity(1, 2, 3, now, now))
    monkeypatch.setattr(identity.time, "sleep", waited.append)
    (tmp_path / "original").touch()
    with (tmp_path / "original").open("rb") as file:
        stable_identity(file.fileno(), tmp_path / "original")
    assert waited == [identity.COARSE_SECONDS]


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

SLOW = """
[pools.slow]
kind = "hdd"
startup = [[0, 0.0], [1, 0.1]]
read_seconds_per_byte = 1e-8
write_seconds_per_byte = 1e-8
where = ["slow"]
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
        """The program's output, and the bytes that it got from replicas."""
        lines = self.pdla.run("run", "--json", "--", *self.command).stdout.splitlines(keepends=True)
        return "".join(lines[:-1]), json.loads(lines[-1])["replica_bytes"]

    def clear(self) -> None:
        """Remove all replicas."""
        for replica in self.pdla.json("status", "--json")["replicas"]:
            self.pdla.run("rm", str(replica["id"]))

    def files(self) -> list[Path]:
        """All files of replicas."""
        return sorted(path for path in self.where.rglob("*") if path.is_file())


@pytest.fixture(scope="module", params=available_mpis()[:1])
def mpich(request: pytest.FixtureRequest) -> Mpi:
    assert isinstance(request.param, Mpi)
    return request.param


@pytest.fixture(scope="module")
def loop(mpich: Mpi, orangefs_servers: OrangeFSServers, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    return Loop(mpich, orangefs_servers, tmp_path_factory.mktemp("loop"))


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
    placements = [OrangeFS.placement(file).split() for file in files]
    assert [word for words in placements for word in words[2:]] == loop.servers.names[2:]
    assert loop.pdla.json("verify", "--json")["findings"] == []
    assert loop.redirected() == (loop.native, 4 * 589824)


def test_a_byte_that_a_server_has_wrong_is_found_though_the_client_has_read_the_right_one(loop: Loop) -> None:
    loop.clear()
    loop.choose("1-DH")
    loop.pdla.run("replicate", "plan.json")
    (file,) = loop.files()
    content = file.read_bytes()
    server, data = loop.servers.datafiles(file)[0]
    with loop.servers.stored(server, data).open("r+b") as stored:
        stored.write(bytes([data[0] ^ 1]))
    assert content.startswith(data[:1])
    (finding,) = loop.pdla.json("verify", "--json", code=1)["findings"]
    assert finding["path"] == str(file) and finding["problem"].startswith("has wrong bytes between 0 and")
    loop.clear()


def test_redirected_writes_come_back_from_it(orangefs_servers: OrangeFSServers, tmp_path: Path, mpich: Mpi) -> None:
    where = orangefs_servers.mount / "writes"
    where.mkdir()
    pdla, data = Pdla(tmp_path, mpich.env), tmp_path / "data"
    writer = mpich.compile(REPOSITORY / "tests/programs/writes.c", tmp_path / "writer")
    job = mpich.command(1, writer, data, tmp_path / "out", "open", "strided", "close")
    # The program's few bytes are worth a replica only where originals are slow to seek in.
    text = CLUSTER.format(where=where, names=json.dumps(orangefs_servers.names[2:])) + 'grain = "1K"\n' + SLOW
    for old, new in (('pool = "pfs"', 'pool = "slow"'), ("1e-4", "0.0"), ("8e-10", "0.0"), ("0.005", "0.0")):
        text = text.replace(old, new)
    (tmp_path / "cluster.toml").write_text(text)
    pdla.run("trace", "-o", "run.h5", "--", *job)
    native = data.read_bytes()
    pdla.run("plan", "run.h5", "--writes", "close", "--cluster", "cluster.toml", "-o", "plan.json")
    (built,) = pdla.json("replicate", "plan.json", "--json")["replicas"]
    assert built["pool"] == "pfs"
    data.unlink()
    (file,) = pdla.json("run", "--writes", "close", "--json", "--", *job)["writes"]
    assert data.read_bytes() == native
    assert (file["redirected_calls"], file["back_bytes"], file["left_bytes"]) == (240, 4 * 60 * 96, 0)


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
    assert away(loop)
    assert loop.redirected() == (loop.native, 0)


def test_where_a_server_is_silent_the_program_reads_the_original(loop: Loop) -> None:
    loop.clear()
    loop.pdla.run("replicate", "plan.json")
    server = loop.servers.processes[loop.servers.names[3]]
    server.send_signal(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as programs:
            program = programs.submit(loop.redirected)
            while not (away(loop) or program.done()):
                time.sleep(0.1)
            server.send_signal(signal.SIGCONT)
            output, replica_bytes = program.result()
    finally:
        server.send_signal(signal.SIGCONT)
    assert output == loop.native
    assert replica_bytes < 4 * 589824
    assert away(loop)


def test_a_program_ends_while_a_server_is_silent(loop: Loop) -> None:
    """Its client has lost its caches of the files, and asks the servers."""
    loop.clear()
    loop.pdla.run("replicate", "plan.json")
    assert loop.redirected() == (loop.native, 4 * 589824)
    time.sleep(40)
    server = loop.servers.processes[loop.servers.names[3]]
    server.send_signal(signal.SIGSTOP)
    try:
        assert loop.redirected() == (loop.native, 0)
    finally:
        server.send_signal(signal.SIGCONT)
    loop.clear()


def away(loop: Loop) -> bool:
    """Whether the state file of the published map records storage that did not answer."""
    state = max(loop.pdla.home.glob("*.state"), key=lambda path: path.stat().st_mtime_ns)
    return bool(read_places(state).any())


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
        with pytest.raises(PdlaError, match="Connection refused"):
            replicate(read_plan(loop.pdla.directory / "plan.json"), open_catalog(), progress=progress)
        assert "the catalog keeps them for the next pdla gc" in loop.pdla.run("gc", code=1).stderr
    finally:
        loop.servers.start(victim)
    assert loop.files() != []
    loop.pdla.run("gc")
    assert loop.files() == []


def test_the_bench_of_many_clients_counts_what_its_server_does(
    orangefs_servers: OrangeFSServers, tmp_path: Path
) -> None:
    found = orangefs_clients.measured(orangefs_clients.built(tmp_path), 3, 2, 0.02)
    assert [(case.op, case.size) for case, _ in found] == [
        (op, size) for size in orangefs_clients.SIZES for op in ("write", "read")
    ]
    for _, served in found:
        assert 2 * served.least <= served.requests <= 2 * served.most
        assert 0 < served.cpu <= served.seconds * (os.cpu_count() or 1)
        assert served.connections >= 3
