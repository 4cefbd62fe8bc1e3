"""Storage that does not answer: no program and no verb of pdla waits for it for long.

The storage is a FUSE file system whose server reads questions and answers none: a process that waits for it in the
kernel cannot be killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from pdla import answers
from pdla.accessmap import AccessMap
from pdla.cli import directory_probe
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.mounts import LOCAL
from pdla.policies.planfile import write_plan
from pdla.replicator.backends import base
from tests.support import cached_writes, critical_requests
from tests.support.clusters import SEEKING_DISKS
from tests.support.command_line import InProcess
from tests.support.compilers import REPOSITORY
from tests.support.handmade_maps import write_map
from tests.support.mpi import Mpi, available_mpis, compile_preloaded
from tests.support.redirected_reads import Case, total
from tests.support.striping_mount import StripingMount, striping_mount

ENDS = 120.0
"""Seconds after which the server goes on: what waits for it then ends, and says what is wrong."""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[StripingMount]:
    (tmp_path / "storage").mkdir()
    with striping_mount("lustre", tmp_path / "storage") as mount:
        yield mount


@contextmanager
def silent(mount: StripingMount) -> Iterator[None]:
    """While its server answers nothing."""
    flag = mount.backing / "silent"
    goes_on = Timer(ENDS, flag.unlink)
    flag.touch()
    goes_on.start()
    try:
        yield
    finally:
        goes_on.cancel()
        flag.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["fuse.x", "lustre", "nfs4", "a-new-one"])
def test_h66_a_program_ends_whose_replicas_are_on_storage_of_any_kind_that_does_not_answer(
    mpich: Case, mounted: StripingMount, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A stand-in for the list of mounts says what kind it is."""
    mpich.original.write_bytes(mpich.content())
    built = mpich.columns(strips=[64, 64]).build(mpich.content(), mounted.mount / "replica")
    write_map(mpich.map, [(mpich.original, [built])])
    monkeypatch.setenv("GONE_LOG", str(mpich.map))
    monkeypatch.setenv("GONE_TYPE", kind)
    case = replace(mpich, library=Path(f"{mpich.library}:{compile_preloaded('gone', mpich.directory)}"))
    native, _ = case.run("independent", redirected=False)
    with silent(mounted):
        seen, reports = case.run("independent", redirected=True)
    assert seen == native
    assert total(reports, "redirected", "calls") == 0


@pytest.mark.parametrize("policy", ["e10", "s4d"])
def test_h66_a_program_ends_whose_caches_are_on_storage_that_does_not_answer(
    tmp_path: Path, library: Path, mounted: StripingMount, policy: str
) -> None:
    """Nothing is cached; nor does an open wait for ever for what a killed program left there."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    (programs := tmp_path / "programs").mkdir()
    case = cached_writes.make_case(mpi, tmp_path, library, programs)
    variables = case.variables(cached_writes.ON_CLOSE, PDLA_E10_CACHE_PATH=str(mounted.mount / "ssd1"))
    for number in range(2):
        (mounted.mount / f"ssd{number}").mkdir()
    if policy == "s4d":
        servers = ":".join(str(mounted.mount / f"ssd{number}") for number in range(2))
        costs = critical_requests.ALL
        variables |= {"PDLA_POLICY": policy, "PDLA_SSD_COSTS": costs, "PDLA_SSD_PATH": servers}
    case.run(variables, "write:0", "kill", fails=True)
    native = case.original.read_bytes()
    with silent(mounted):
        refused = case.run(variables, "read:0", fails=True)
    assert "the storage of the cache file does not answer" in refused.stderr
    assert "cannot be opened" in refused.stderr and case.original.read_bytes() == native
    assert case.run(variables, "read:0").bytes != native
    native = case.natively("write:0", "read:0")
    with silent(mounted):
        seen = case.run(variables, "write:0", "read:0")
    assert (seen.seen, seen.bytes) == (native.seen, native.bytes)
    assert "the storage of the cache does not answer" in {cache["refused"] for cache in seen.caches}


class Place:
    """A plan with two patterns: of a file on silent storage and, if the ``pool`` is not there, of a local one."""

    def __init__(self, directory: Path, mount: Path, pool: Path) -> None:
        self.pdla, self.pool = InProcess(directory, {}), pool
        self.files = mount / "data", directory / "local"
        pool.mkdir()
        for file in self.files:
            file.write_bytes(bytes(range(256)) * 256)
        signatures = [Signature(str(file), "read", False, 0, 64, (Loop(64, 1024),), (0,), 0) for file in self.files]
        layout = Layout("pool", 1, 1, (4096,), AccessMap.section(signatures[0]))
        free = Cost(0.0, 0.0, 0.0, 0.0)
        candidates = Candidate("original", None, free), Candidate("pool", layout, free)
        where = Pool("pool", "hdd", 1, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", (str(pool),))
        cluster = Cluster((where,), "pool", 1, 65536, 1, 0.0, 0.0, 0.0, "")
        patterns = tuple(PatternPlan(one, candidates, 1, "") for one in signatures)
        write_plan(Plan("none", "", patterns, (), cluster, "optimal", 0.0), directory / "plan.json")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PATIENCE", 1.0)
    monkeypatch.setattr(base, "PATIENCE", 1.0)
    monkeypatch.setattr(directory_probe, "PATIENCE", 1.0)
    monkeypatch.setattr(answers, "_silent", {})


@pytest.mark.usefixtures("impatient")
def test_h66_verbs_say_which_original_does_not_answer_and_go_on(mounted: StripingMount, tmp_path: Path) -> None:
    place = Place(tmp_path, mounted.mount, tmp_path / "pool")
    pdla, away = place.pdla, place.files[0]
    with silent(mounted):
        built = pdla.run("replicate", "plan.json", code=1)
        assert built.stderr == f"pdla: {away}: the storage has not answered for 1 s (try again when it is back)\n"
        assert built.stdout.startswith("replica 1 of local: ")
    answers._silent.clear()
    pdla.run("replicate", "plan.json")
    with silent(mounted):
        shown = " ".join(pdla.run("status").stdout.split())
        assert f"replica 2 is not looked at: {away} has not answered for 1 s" in shown
        verified = pdla.run("verify", code=1).stdout
        assert f"replica 2: {away}: cannot be reached: it has not answered for 1 s\n" in verified
        pdla.run("gc")
    assert [one["state"] for one in pdla.json("status", "--json")["replicas"]] == ["valid", "valid"]


@pytest.mark.usefixtures("impatient")
def test_h66_verbs_say_which_pool_does_not_answer_and_end(mounted: StripingMount, tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path, mounted.mount / "pool")
    pdla = place.pdla
    pdla.run("replicate", "plan.json")
    with silent(mounted):
        shown = " ".join(pdla.run("status").stdout.split())
        assert re.search(rf"replicas 1, 2 are unreachable: {place.pool}/\S+ has not answered for 1 s", shown)
        built = pdla.run("replicate", "plan.json", code=1)
        assert (
            built.stderr
            == 2 * f"pdla: {place.pool}: the storage has not answered for 1 s (try again when it is back)\n"
        )
        removed = pdla.run("rm", "1", code=1)
        assert "cannot be removed: the storage has not answered for 1 s" in removed.stdout
        assert pdla.run("doctor", place.pool, code=1).stderr == (
            f"pdla: {place.pool}: its storage has not answered for 1 s\n"
        )


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["original", "pool"])
def test_h66_a_plan_for_storage_that_does_not_answer_ends_with_one_line(
    mounted: StripingMount, tmp_path: Path, what: str
) -> None:
    pdla, storage = InProcess(tmp_path, {}), mounted.mount / "here"
    storage.mkdir()
    data = (storage if what == "original" else tmp_path) / "data"
    rows = [f"{rank},{data},read,{(4 * row + rank) * 65536},65536,0,1" for row in range(64) for rank in range(4)]
    (tmp_path / "run.csv").write_text("\n".join(["rank,file,op,offset,length,t_start,t_end", *rows]))
    pdla.run("import", "csv", "run.csv", "-o", "run.h5")
    data.write_bytes(bytes(64))
    (tmp_path / "cluster.toml").write_text(SEEKING_DISKS.replace("home/", f"{storage}/"))
    asked = data if what == "original" else storage
    with silent(mounted):
        planned = pdla.run("plan", "run.h5", "--cluster", "cluster.toml", code=1)
    (line,) = planned.stderr.splitlines()
    assert line.startswith(f"pdla: {asked}") and "the storage has not answered for 1 s" in line


def test_python_and_c_know_the_same_local_file_systems() -> None:
    source = (REPOSITORY / "replicator/stub/storage.c").read_text()
    (types,) = re.findall(r"types\[\] = \{(.*?)\}", source, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', types)) == LOCAL
