"""The whole loop with replicas on Lustre and BeeGFS, as file systems of our own that answer as these do.

Every byte is compared with what the directories behind the file systems hold.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from pdla.catalog import open_catalog
from pdla.errors import PdlaError
from pdla.policies.planfile import read_plan
from pdla.replicator.backends import backend_class
from pdla.replicator.backends.lov import ATTRIBUTE, Striping
from pdla.replicator.backends.lov_components import END, encode_components
from pdla.replicator.builder import replicate
from tests.support.command_line import Pdla
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi, available_mpis
from tests.support.striping_mount import StripingMount, striping_mount

TARGETS = [4, 1, 5, 2]
SERVERS = {
    "lustre": [f"OST{target:04x}" for target in TARGETS],
    "beegfs": [str(target + 1) for target in TARGETS],  # BeeGFS counts from 1
}
SIDE = 384

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
backend = "{backend}"
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


def cluster(kind: str, where: Path) -> str:
    return CLUSTER.format(backend=kind, where=where, names=json.dumps(SERVERS[kind]))


@pytest.fixture(scope="module", params=available_mpis()[:1])
def mpich(request: pytest.FixtureRequest) -> Mpi:
    assert isinstance(request.param, Mpi)
    return request.param


@pytest.fixture(scope="module", params=SERVERS)
def mounted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


class Loop:
    """The slabs of examples/slabs.py, traced, and a plan for a pool of four of the targets."""

    def __init__(self, mpi: Mpi, mounted: StripingMount, folder: Path) -> None:
        self.mounted, self.where = mounted, mounted.mount / "loop"
        self.where.mkdir()
        self.pdla = Pdla(folder, mpi.env)
        self.data = mounted.mount / "data"
        self.data.write_bytes(np.random.default_rng(3).bytes(4 * 4 * SIDE * SIDE))
        slabs = REPOSITORY / "examples/slabs.py"
        self.command = mpi.command(4, mpi.python, slabs, self.data, "4", str(SIDE), str(SIDE))
        (folder / "cluster.toml").write_text(cluster(mounted.kind, self.where))
        self.pdla.run("trace", "-o", "run.h5", "--", *self.command)
        self.planned = self.pdla.run("plan", "run.h5", "--cluster", "cluster.toml", "-o", "plan.json").stdout
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


@pytest.fixture(scope="module")
def loop(mpich: Mpi, mounted: StripingMount, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    return Loop(mpich, mounted, tmp_path_factory.mktemp("loop"))


@pytest.fixture
def states(mounted: StripingMount) -> Iterator[StripingMount]:
    yield mounted
    for target in TARGETS:
        mounted.set_state(target, "")


def test_the_plan_takes_the_original_as_its_file_system_stripes_it(loop: Loop) -> None:
    said = {
        "lustre": f"strips of 1 MiB on 1 server, as Lustre says of {loop.data} ([home]: 64 KiB on 4).",
        "beegfs": f"strips of 64 KiB on 4 servers, as BeeGFS says of {loop.data}.",
    }
    assert f"Originals: {said[loop.mounted.kind]}" in " ".join(loop.planned.split())
    home = json.loads((loop.pdla.directory / "plan.json").read_text())["cluster"]
    assert (home["home_servers"], home["home_strip"]) == {"lustre": (1, 1 << 20), "beegfs": (4, 1 << 16)}[
        loop.mounted.kind
    ]


def test_a_progressive_original_is_traced_planned_and_served(mpich: Mpi, loop: Loop, tmp_path: Path) -> None:
    """Its first MiB is on one OST, the rest in strips on three."""
    if loop.mounted.kind != "lustre":
        pytest.skip("BeeGFS has no such files")
    pdla, data = Pdla(tmp_path, mpich.env), loop.mounted.mount / "progressive"
    os.mknod(data, 0o600 | stat.S_IFREG)
    parts = [(1 << 20, Striping(1 << 20, (0,))), (END, Striping(1 << 16, (0, 0, 0)))]
    os.setxattr(data, ATTRIBUTE, encode_components(parts))
    data.write_bytes(loop.data.read_bytes())
    command = [str(data) if word == str(loop.data) else word for word in map(str, loop.command)]
    where = loop.mounted.mount / "served"
    where.mkdir()
    text = cluster("lustre", where).replace('servers = 4\nstrip = "64K"\n', "", 1)
    (tmp_path / "cluster.toml").write_text(text)
    pdla.run("trace", "-o", "run.h5", "--", *command)
    planned = pdla.run("plan", "run.h5", "--cluster", "cluster.toml", "-o", "plan.json").stdout
    said = f"Originals: strips of 64 KiB on 3 servers, as Lustre says of bytes 1048576 to the end of {data}."
    assert said in " ".join(planned.split())
    pdla.run("replicate", "plan.json")
    *_, report = pdla.run("run", "--json", "--", *command).stdout.splitlines(keepends=True)
    assert json.loads(report)["replica_bytes"] == 4 * 4 * SIDE * SIDE


@pytest.mark.parametrize(("layout", "groups"), [("1-DH", [4]), ("2-D", [2, 2]), ("1-DV", [1, 1, 1, 1])])
def test_a_program_receives_the_same_bytes_from_every_layout(loop: Loop, layout: str, groups: list[int]) -> None:
    loop.clear()
    loop.choose(layout)
    loop.pdla.run("replicate", "plan.json")
    files = loop.files()
    objects = [loop.mounted.objects(file) for file in files]
    # BeeGFS stripes only by its directory's chunks; other strips are files of one target each.
    widths = [len(own) for own in objects]
    assert widths == groups or (loop.mounted.kind == "beegfs" and widths == [1] * 4)
    assert [target for target, _ in chain(*objects)] == TARGETS
    assert [sum(len(data) for _, data in own) for own in objects] == [file.stat().st_size for file in files]
    assert all(backend_class(loop.mounted.kind).placement(file) for file in files)
    assert loop.pdla.json("verify", "--json")["findings"] == []
    assert loop.redirected() == (loop.native, 4 * 4 * SIDE * SIDE)


def test_a_byte_that_a_target_has_wrong_is_found(loop: Loop) -> None:
    loop.clear()
    loop.choose("2-D")
    loop.pdla.run("replicate", "plan.json")
    file = loop.files()[1]
    target, data = loop.mounted.objects(file)[0]
    inode = (loop.mounted.backing / "names" / file.relative_to(loop.mounted.mount)).stat().st_ino
    with (loop.mounted.backing / f"target{target}/{inode}.0").open("r+b") as stored:
        stored.write(bytes([data[0] ^ 1]))
    (finding,) = loop.pdla.json("verify", "--json", code=1)["findings"]
    assert finding["path"] == str(file)
    assert finding["problem"].startswith("has wrong bytes between 0 and")


def test_a_file_that_was_moved_to_other_targets_is_found(loop: Loop) -> None:
    """As by ``lfs migrate`` or ``beegfs-ctl --migrate``."""
    loop.clear()
    loop.choose("1-DV")
    loop.pdla.run("replicate", "plan.json")
    file = loop.files()[1]
    loop.mounted.migrate(file, 0, 3)
    assert [target for target, _ in loop.mounted.objects(file)] == [3]
    (finding,) = loop.pdla.json("verify", "--json", code=1)["findings"]
    assert finding["path"] == str(file)
    assert "was built" in finding["problem"]


def test_a_target_that_goes_during_a_build_fails_it_in_one_line_and_gc_leaves_nothing(
    loop: Loop, states: StripingMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.clear()
    loop.choose("1-DH")
    monkeypatch.setenv("PDLA_HOME", str(loop.pdla.home))

    def progress(what: str, done: int, total: int) -> None:
        states.set_state(TARGETS[2], "inactive")

    with pytest.raises(PdlaError) as failed:
        replicate(read_plan(loop.pdla.directory / "plan.json"), open_catalog(), progress=progress)
    assert "\n" not in str(failed.value)
    states.set_state(TARGETS[2], "")
    loop.pdla.run("gc")
    assert loop.files() == []
    assert states.inodes_of_objects() <= {file.stat().st_ino for file in states.mount.rglob("*")}


def test_a_target_without_space_fails_a_build_before_anything_is_made(loop: Loop, states: StripingMount) -> None:
    loop.clear()
    states.set_state(TARGETS[2], "full")
    (line,) = loop.pdla.run("replicate", "plan.json", code=1).stderr.splitlines()
    assert SERVERS[states.kind][2] in line
    assert loop.files() == []


def test_redirected_writes_come_back_from_it(mounted: StripingMount, tmp_path: Path, mpich: Mpi) -> None:
    where = mounted.mount / "writes"
    where.mkdir()
    pdla, data = Pdla(tmp_path, mpich.env), mounted.mount / "written"
    writer = mpich.compile(REPOSITORY / "tests/programs/writes.c", tmp_path / "writer")
    job = mpich.command(1, writer, data, tmp_path / "out", "open", "strided", "close")
    # The program's few bytes are worth a replica only where originals are slow to seek in.
    text = cluster(mounted.kind, where) + 'grain = "1K"\n' + SLOW
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
