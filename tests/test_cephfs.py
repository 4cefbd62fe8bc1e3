"""CephFS on a cluster of its own: the conformance suite, and every byte on the OSDs that were chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ceph import Ceph
from mpi import Mpi, available_mpis
from test_loop import Job

from pdla.model import Pool
from pdla.replicator.backends.base import NewComponent
from pdla.replicator.backends.cephfs import CephFS
from pdla.replicator.backends.suite import KIB64, BackendTests

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
    """The OSD of each of a file's objects, by the object's number; as Ceph's own tools tell it."""
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
    """A program whose replicas are to be on CephFS."""
    for name in ("hdd", "ssd"):
        (folder / name).mkdir(parents=True)
    job = Job("slabs", mpi, tmp_path)
    (tmp_path / "cluster.toml").write_text(STORAGE.format(folder=folder))
    (tmp_path / "fine.toml").write_text(STORAGE.format(folder=folder).replace('"64K"\nbackend', '"4K"\nbackend'))
    job.pdla.run("trace", "-o", "run.h5", "--", *job.command(4))
    return job


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_a_program_is_served_from_the_osds_of_the_plan(ceph: Ceph, job: Job, folder: Path):
    served = {}
    for cluster, policy, space, layout in (
        ("cluster.toml", "pdla-h", "hdd", "2-D"),
        ("fine.toml", "pdla-s", "hdd+ssd", "1-DH"),
    ):
        job.pdla.run("plan", "run.h5", "--cluster", cluster, "--policy", policy, "-o", "plan.json")
        plan = json.loads((tmp := job.pdla.directory / "plan.json").read_text())
        (pattern,) = plan["patterns"]
        (pattern["chosen"],) = (
            number
            for number, candidate in enumerate(pattern["candidates"])
            if (candidate["space"], candidate["layout"]) == (space, layout)
        )
        tmp.write_text(json.dumps(plan))
        job.pdla.run("replicate", "plan.json")
        (replica,) = job.pdla.json("status", "--json")["replicas"]
        output, report = job.redirected(4)
        assert output == job.native(4)
        assert report["replica_bytes"] == 4 * 384 * 384 * 4
        components = [Path(component["path"]) for component in replica["components"]]
        pools = ["hdd"] * 4 + ["ssd"]
        served[space] = [where(ceph, file, pool) for file, pool in zip(components, pools, strict=False)]
    assert served == {
        "hdd": [{0: 0, 1: 1}, {0: 2, 1: 3}],
        "hdd+ssd": [{0: 0}, {0: 1}, {0: 2}, {0: 3}, {0: 4}],
    }
    assert job.pdla.json("verify", "--json")["findings"] == []
    job.pdla.run("rm", str(replica["id"]))
    assert [file for file in folder.rglob("*") if file.is_file()] == []
