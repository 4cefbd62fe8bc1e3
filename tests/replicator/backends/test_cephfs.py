"""CephFS on a private cluster: the conformance suite, and every byte on the chosen OSDs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdla.errors import ConfigError
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.policies.planfile import write_plan
from pdla.replicator.backends import base
from pdla.replicator.backends.base import NewComponent, commit, temporary
from pdla.replicator.backends.cephfs import CephFS
from pdla.replicator.backends.conformance import KIB64, SIZE, BackendTests
from pdla.replicator.backends.originals import OriginalStriping
from pdla.units import MiB
from tests.support import documentation_pages as pages
from tests.support.cached_writes import IMMEDIATE, make_case
from tests.support.command_line import InProcess, Pdla
from tests.support.critical_requests import ALL, left_on_servers
from tests.support.critical_requests import costs as costs_of_s4d
from tests.support.documentation_pages import BIN, followed
from tests.support.example_programs import Job
from tests.support.fragment_requests import COUNT, PIECE, RANKS, costs
from tests.support.mpi import Mpi, available_mpis
from tests.support.waiting import PATIENCE
from tools.loopback_ceph import ANSWER, Ceph

pytestmark = pytest.mark.timeout(4 * ANSWER)  # everything is waited for, for as long as a busy machine takes

HDD = tuple(f"hdd:osd.{number}" for number in range(4))


def pool(directory: Path, *names: str, name: str = "disks") -> Pool:
    directory.mkdir(parents=True, exist_ok=True)
    return Pool(
        name, "hdd", len(names), ((0, 0.0),), 1e-8, 1e-8, 1 << 40, KIB64, "cephfs", (str(directory),), names=names
    )


@pytest.fixture
def folder(ceph: Ceph, tmp_path: Path) -> Path:
    """A directory of the file system for one test."""
    return ceph.mount / tmp_path.name


def where(ceph: Ceph, file: Path, pool: str = "hdd") -> dict[int, int]:
    """The OSD of each of a file's objects, by the object's number, from Ceph's own tools."""
    found = ceph.objects(pool)
    prefix = f"{file.stat().st_ino:x}."
    return {int(name.removeprefix(prefix), 16): osd for (_, name), osd in found.items() if name.startswith(prefix)}


class TestCephFS(BackendTests):
    @pytest.fixture
    def backend(self, ceph: Ceph, folder: Path) -> CephFS:
        self.ceph = ceph
        return CephFS(pool(folder, *HDD))

    def stored(self, backend: CephFS, component: NewComponent) -> list[bytes]:
        prefix = f"{component.path.stat().st_ino:x}."
        found = {
            int(name.removeprefix(prefix), 16): (osd, self.ceph.object("hdd", namespace, name))
            for (namespace, name), osd in self.ceph.objects("hdd").items()
            if name.startswith(prefix)
        }
        servers = [int(server.name[-1]) for server in component.servers]
        assert {number: servers[number] for number in found} == {number: osd for number, (osd, _) in found.items()}
        return [found.get(number, (0, b""))[1] for number in range(len(servers))]


# Originals on two slow servers; replicas on four OSDs with disks and on one with an SSD.
STORAGE = """
[home]
pool = "hdd"
servers = 2
strip = "64K"
[clients]
processes_per_node = 4
connect_seconds = 1e-5
network_seconds_per_byte = 1e-9
[pools.hdd]
kind = "hdd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-8
write_seconds_per_byte = 1e-8
grain = "64K"
backend = "cephfs"
where = ["{folder}/hdd"]
servers = ["hdd:osd.0", "hdd:osd.1", "hdd:osd.2", "hdd:osd.3"]
[pools.ssd]
kind = "ssd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-8
write_seconds_per_byte = 1e-8
grain = "64K"
backend = "cephfs"
where = ["{folder}/ssd"]
servers = ["ssd:osd.4"]
"""


@pytest.fixture
def job(ceph: Ceph, folder: Path, mpi: Mpi, tmp_path: Path) -> Job:
    """A program with replicas on CephFS."""
    for name in ("hdd", "ssd"):
        (folder / name).mkdir(parents=True)
    job = Job("slabs", mpi, tmp_path)
    job.pdla.timeout = ANSWER
    (tmp_path / "cluster.toml").write_text(STORAGE.format(folder=folder))
    (tmp_path / "fine.toml").write_text(STORAGE.format(folder=folder).replace('"64K"\nbackend', '"4K"\nbackend'))
    job.pdla.run("trace", "-o", "run.h5", "--", *job.command(4))
    return job


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_a_program_is_served_from_the_osds_of_the_plan(ceph: Ceph, job: Job, folder: Path):
    pdla, served = job.pdla, {}
    for cluster, policy, space, layout in (
        ("cluster.toml", "pdla-h", "hdd", "2-D"),
        ("fine.toml", "pdla-s", "hdd+ssd", "1-DH"),
    ):
        pdla.run("plan", "run.h5", "--cluster", cluster, "--policy", policy, "-o", "plan.json")
        plan = json.loads((path := pdla.directory / "plan.json").read_text())
        (pattern,) = plan["patterns"]
        (pattern["chosen"],) = (
            number
            for number, candidate in enumerate(pattern["candidates"])
            if (candidate["space"], candidate["layout"]) == (space, layout)
        )
        path.write_text(json.dumps(plan))
        Pdla.run(pdla, "replicate", "plan.json")  # forks
        (replica,) = pdla.json("status", "--json")["replicas"]
        output, report = job.redirected(4)
        assert output == job.native(4)
        assert report["replica_bytes"] == 4 * 384 * 384 * 4, report
        components = [Path(component["path"]) for component in replica["components"]]
        pools = ["hdd"] * 4 + ["ssd"]
        served[space] = [where(ceph, file, pool) for file, pool in zip(components, pools, strict=False)]
    assert served == {
        "hdd": [{0: 0, 1: 1}, {0: 2, 1: 3}],
        "hdd+ssd": [{0: 0}, {0: 1}, {0: 2}, {0: 3}, {0: 4}],
    }
    assert pdla.json("verify", "--json")["findings"] == []
    pdla.run("rm", str(replica["id"]))
    assert [file for file in folder.rglob("*") if file.is_file()] == []


def test_a_large_file_has_all_of_its_objects_where_they_should_be(ceph: Ceph, folder: Path):
    ceph.ask({"prefix": "config set", "who": "osd", "name": "osd_max_object_size", "value": "1048576"})
    try:
        backend = CephFS(pool(folder, *HDD))
        layout, size = Layout("disks", 2, 1, (KIB64, KIB64), 4 * MiB), 4 * MiB - 5
        backend.check(layout, size)
        (component,) = backend.components("t/1", layout, size)
        file = backend.create(component)
        data = np.random.default_rng(5).bytes(size)
        assert os.pwrite(file, data, 0) == size
        os.close(file)
        commit([component.path])
        assert component.path.read_bytes() == data
        assert where(ceph, component.path) == {0: 0, 1: 1, 2: 0, 3: 1}
        layout = Layout("disks", 4, 4, (KIB64,), 64 * MiB)
        assert backend.obstacle(layout, 256 * MiB) == (
            "64 MiB in objects of 1 MiB cannot all be placed on hdd:osd.0: give it a data pool of its own, or raise "
            "osd_max_object_size"
        )
        assert CephFS(pool(folder, "ssd:osd.4")).obstacle(replace(layout, servers=1, groups=1), 256 * MiB) == ""
    finally:
        ceph.ask({"prefix": "config rm", "who": "osd", "name": "osd_max_object_size"})


def test_groups_too_wide_to_be_found_have_a_file_per_server(ceph: Ceph, folder: Path, monkeypatch: pytest.MonkeyPatch):
    backend = CephFS(pool(folder, *HDD))
    wide = Layout("disks", 4, 1, (KIB64,) * 4, 4 * MiB)
    assert backend.rule(wide, SIZE) == wide.by_group
    monkeypatch.setattr("pdla.replicator.backends.cephfs.MOST_TRIES", 200)  # four of four take 256
    assert backend.rule(wide, SIZE) == wide
    assert backend.obstacle(wide, SIZE) == ""


def test_servers_that_are_data_pools_need_no_monitors(ceph: Ceph, folder: Path, monkeypatch: pytest.MonkeyPatch):
    layout = Layout("disks", 2, 1, (KIB64, KIB64), SIZE)
    with monkeypatch.context() as alone:
        alone.setenv("CEPH_CONF", "/nowhere")
        backend = CephFS(pool(folder, "hdd", "ssd"))
        backend.check(layout, SIZE)
        made = backend.components("t/1", layout, SIZE)
        for component in made:
            file = backend.create(component)
            assert os.pwrite(file, bytes(component.size), 0) == component.size
            os.close(file)
        assert [CephFS.placement(temporary(component.path)) for component in made] == [
            f"stripe_unit=4194304 stripe_count=1 object_size=4194304 pool={name}" for name in ("hdd", "ssd")
        ]
    assert [len(where(ceph, temporary(one.path), name)) for one, name in zip(made, ("hdd", "ssd"), strict=True)] == [
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("hdd:disk1", r"CephFS has no server 'hdd:disk1' \(give a data pool, or POOL:osd.NUMBER\)"),
        ("tape:osd.1", "Ceph has no pool tape"),
        ("hdd:osd.4", r"nothing of Ceph's pool hdd is on osd.4 \(its OSDs: 0, 1, 2, 3\)"),
        ("hdd:osd.77", "osd.77 of Ceph is down"),
    ],
)
def test_a_server_that_is_not_there_is_refused(ceph: Ceph, folder: Path, server: str, message: str):
    with pytest.raises(ConfigError, match=f"^pool disks: {message}"):
        CephFS(pool(folder, server)).check(Layout("disks", 1, 1, (KIB64,), KIB64), KIB64)


def test_other_storage_another_cluster_and_no_cluster_are_refused(
    ceph: Ceph, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    layout = Layout("disks", 1, 1, (KIB64,), KIB64)
    with pytest.raises(ConfigError, match=f"^pool disks: cannot use {tmp_path}: .* \\(mount CephFS there\\)"):
        CephFS(pool(tmp_path, "hdd:osd.0")).check(layout, KIB64)
    backend = CephFS(pool(folder, "hdd:osd.0"))
    backend.__dict__["_map"] = replace(backend._map, fsid="other")
    with pytest.raises(ConfigError, match=r"the monitors that answered belong to other \(set CEPH_CONF\)"):
        backend.check(layout, KIB64)
    monkeypatch.setenv("CEPH_CONF", "/nowhere")
    with pytest.raises(ConfigError, match=r"^pool disks: cannot reach Ceph's monitors: .* \(is /nowhere right, and"):
        CephFS(pool(folder, "hdd:osd.0")).check(layout, KIB64)
    # A plan can be made without it.
    assert CephFS(pool(folder, *HDD)).obstacle(Layout("disks", 4, 1, (KIB64,) * 4, MiB), 1 << 40) == ""


class Place:
    """A PDLA_HOME, and a plan to copy a file of 16 MiB to four OSDs."""

    def __init__(self, folder: Path, tmp_path: Path) -> None:
        self.folder = folder
        self.pdla = InProcess(tmp_path, {})
        self.said = tmp_path / "said"
        self.data = tmp_path / "data"
        self.data.write_bytes(np.random.default_rng(3).bytes(16 * MiB))
        layout = Layout("disks", 4, 2, (KIB64,) * 2, 4 * MiB)
        signature = Signature(
            *(str(self.data), "read", False, 0, KIB64, (Loop(KIB64, 4), Loop(4 * KIB64, 64)), (0, 1, 2, 3), 1),
            calls=256,
        )
        free = Cost(0.0, 0.0, 0.0, 0.0)
        candidates = (Candidate("original", None, free), Candidate("disks", layout, free))
        pattern = PatternPlan(signature, candidates, 1, "")
        cluster = Cluster((pool(folder, *HDD),), "disks", 1, KIB64, 1, 0.0, 0.0, 0.0, "")
        write_plan(Plan("none", "", (pattern,), (), cluster, "optimal", 0.0), tmp_path / "plan.json")

    def replicate(self, grace: float = ANSWER) -> subprocess.Popen[bytes]:
        """Begin to build, as the command does; ``grace`` is how long it bears with storage that does not answer."""
        program = (
            f"from pdla.cli import main, supervised_build as build; build.GRACE, build.PERIOD = {grace}, 0.5; main()"
        )
        # Into a file, for whoever waits for the storage holds the other end of a pipe.
        with self.said.open("w") as said:
            return subprocess.Popen(
                [sys.executable, "-c", program, "replicate", "plan.json"],
                cwd=self.pdla.directory, env=self.pdla.environment, stderr=said,
            )  # fmt: skip

    def is_copying(self) -> bool:
        return any(self.folder.rglob("*.tmp"))

    def is_stale(self) -> bool:
        with suppress(AssertionError):  # it says so by its exit code
            self.pdla.run("verify")
        return [replica["state"] for replica in self.pdla.json("status", "--json")["replicas"]] == ["stale"]

    def is_collected(self) -> bool:
        """Nothing is left after gc; gc does not touch the work of a process that waited for the storage."""
        self.pdla.run("gc")
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        return not files and not self.pdla.json("status", "--json")["replicas"]


@pytest.fixture
def place(ceph: Ceph, folder: Path, tmp_path: Path) -> Place:
    return Place(folder, tmp_path)


@pytest.mark.thorough
def test_an_osd_that_is_killed_ends_a_build_with_one_line(ceph: Ceph, place: Place):
    with ceph.halted("osd2"):  # so that the build is not over before
        build = place.replicate()
        try:
            ceph.until(place.is_copying)
            ceph.stop("osd2", signal.SIGKILL)
            code = build.wait(ANSWER)
        finally:
            ceph.start_osd(2)
    said = place.said.read_text().splitlines()
    assert (code, len(said)) == (1, 1), said
    ceph.until(ceph.is_up)
    ceph.until(place.is_collected)


@pytest.mark.thorough
def test_a_metadata_server_that_is_killed_ends_a_build_with_one_line(ceph: Ceph, place: Place):
    with ceph.halted("osd2"):
        build = place.replicate(grace=2.0)
        ceph.until(place.is_copying)
        ceph.stop("mds", signal.SIGKILL)
    try:
        code = build.wait(ANSWER)
    finally:
        ceph.start_mds()
    assert code == 1
    assert place.said.read_text() == (
        f"pdla: {place.folder} does not answer (is the metadata server of Ceph up?), for 2 s: gave up (when the "
        "storage is back, pdla gc removes what is left)\n"
    )
    ceph.until(ceph.is_up)
    ceph.until(place.is_collected)


def test_what_looks_after_replicas_does_not_wait_for_a_lost_metadata_server(
    ceph: Ceph, place: Place, monkeypatch: pytest.MonkeyPatch
):
    assert place.replicate().wait(ANSWER) == 0
    ceph.stop("mds", signal.SIGKILL)
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(base, "PATIENCE", 1.0)
            lost = "the storage has not answered for 1 s"
            verified = place.pdla.run("verify", code=1)
            assert f"cannot be reached: {lost}\n" in verified.stdout
            assert verified.stderr == "pdla: 1 replica could not be reached\n"
            assert f"cannot be removed: {lost}" in place.pdla.run("rm", "1", code=1).stdout
    finally:
        ceph.start_mds()
    ceph.until(ceph.is_up)
    ceph.until(place.is_collected)


# The last one: Ceph goes on moving data for a while.
def test_a_byte_that_an_osd_has_wrong_is_found_though_the_client_has_the_right_one(ceph: Ceph, place: Place):
    assert place.replicate().wait(PATIENCE) == 0
    (replica,) = place.pdla.json("status", "--json")["replicas"]
    component = Path(replica["components"][0]["path"])
    content = component.read_bytes()
    first = f"{component.stat().st_ino:x}.00000000"
    (namespace,) = {space for space, name in ceph.objects("hdd") if name == first}
    held = ceph.object("hdd", namespace, first)
    ceph.replace("hdd", namespace, first, bytes([held[0] ^ 1]) + held[1:])
    assert component.read_bytes() == content
    (finding,) = place.pdla.json("verify", "--json", code=1)["findings"]
    assert (finding["path"], finding["problem"]) == (str(component), "has wrong bytes between 0 and 4194304")


def test_data_that_ceph_has_moved_are_not_where_they_were_built(ceph: Ceph, place: Place):
    assert place.replicate().wait(ANSWER) == 0
    (first, *_) = [Path(one["path"]) for one in place.pdla.json("status", "--json")["replicas"][0]["components"]]
    built = CephFS.placement(first)
    assert built.endswith("osds=0,1")
    ceph.ask({"prefix": "osd out", "ids": ["1"]})
    try:
        ceph.until(place.is_stale)  # by and by: while it copies them Ceph serves them where they were
        why = place.pdla.json("status", "--json")["replicas"][0]["why"]
        assert re.match(rf"{first}: is now placed as stripe_unit=65536 stripe_count=2 .* osds=0,[023]$", why)
    finally:
        ceph.ask({"prefix": "osd in", "ids": ["1"]})
    ceph.until(place.is_collected)


def test_how_an_original_is_striped_is_in_its_layout(ceph: Ceph, folder: Path):
    folder.mkdir()
    file = folder / "data"
    file.touch()
    assert CephFS.original_striping(file) == OriginalStriping(4 * MiB, 0, "CephFS")
    os.setxattr(file, "ceph.file.layout", b"stripe_unit=65536 stripe_count=2 object_size=4194304")
    assert CephFS.original_striping(file) == OriginalStriping(KIB64, 2, "CephFS")


# ---- fragments -------------------------------------------------------------------------------------------------------


def test_fragments_of_a_file_are_those_of_its_layout(ceph: Ceph, folder: Path, tmp_path: Path, library: Path):
    """By that of [home] some requests would have whole strips."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    case = make_case(mpi, tmp_path, library, tmp_path)
    native = case.natively("apart:1")
    case.original.unlink()
    folder.mkdir()
    (folder / "data").touch()
    os.setxattr(folder / "data", "ceph.file.layout", b"stripe_unit=65536 stripe_count=2 object_size=4194304")
    case.original.symlink_to(folder / "data")
    ran = case.run({**case.variables(IMMEDIATE), **costs(case)}, "apart:1")
    assert ran.total("written", "bytes") == ran.total("home", "bytes") == RANKS * PIECE * COUNT and ran.passed == set()
    assert ran.bytes == native.bytes


# ---- the room of SSD servers -----------------------------------------------------------------------------------------


@pytest.fixture
def mounts(ceph: Ceph) -> Iterator[list[Path]]:
    """Of each rank; the first one is that of the cluster."""
    others = [ceph.mount.with_name(f"mnt{number}") for number in range(1, RANKS)]
    for mount in others:
        ceph.start_mount(mount)
    yield [ceph.mount, *others]
    for mount in others:
        ceph.stop(mount.name)


def test_h58_ranks_with_mounts_of_their_own_lose_no_byte_and_do_not_wait_for_ever(
    ceph: Ceph, folder: Path, mounts: list[Path], tmp_path: Path, library: Path
) -> None:
    """They replace again and again what is reserved, and each writes where others' bytes have been."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    steps = [f"write:{number}" for number in range(40)]
    case = make_case(mpi, tmp_path, library, tmp_path)
    native = case.natively(*steps, ranks=RANKS)
    case.original.unlink()
    launcher = tmp_path / "launcher"
    launcher.write_text(
        f"#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {mounts[0]}$1 {mounts[0]} && shift && exec \"$@\"' sh "
        f'"${{PMI_RANK#0}}" {case.program} "$@"\n'
    )
    launcher.chmod(0o755)
    for name in ("ssd0", "ssd1"):
        (folder / name).mkdir(parents=True)
        (tmp_path / name).symlink_to(folder / name)
    (folder / "data").touch()
    case.original.symlink_to(folder / "data")
    settings = {**case.variables(IMMEDIATE), **costs_of_s4d(case, ALL, PDLA_SSD_BYTES=str(MiB // 2))}
    ran = replace(case, program=launcher).run(settings, *steps, ranks=RANKS)
    assert ran.total("written", "bytes") > MiB // 2
    assert ran.bytes == native.bytes
    assert left_on_servers(case) == [[], []]


def test_the_page(ceph: Ceph) -> None:
    """It is followed on the cluster; the objects of the replica are on the OSDs that the page names then."""
    matrix = ceph.mount / "pdla/matrix.dat"
    matrix.parent.mkdir()
    np.random.default_rng(1).integers(256, size=2 * MiB, dtype=np.uint8).tofile(matrix)
    programs: dict[str, str | Path] = {name: BIN / name for name in ("pdla", "mpiexec")}
    programs["app"] = f"{BIN / 'python'} {pages.REPOSITORY}/examples/slabs.py {matrix} 4 512 256"
    with tempfile.TemporaryDirectory(prefix="pdla-", dir="/tmp") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        here = {"/mnt/cephfs": str(ceph.mount)}
        assert followed(pages.DOCS / "cephfs.md", work, programs, replaced=here) == 8
    files = sorted((ceph.mount / "pdla").glob("*/pdla-replicas-*/*/1.*"))
    assert [set(where(ceph, file).values()) for file in files] == [{0}, {1}, {2}, {3}]
    assert sum(file.stat().st_size for file in files) == 2 * MiB
