"""Building with several processes, of sparse and of protected originals, and through whatever goes wrong."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdla.accessmap import AccessMap
from pdla.catalog import Replica, open_catalog
from pdla.errors import PdlaError
from pdla.layouts.striping import locate
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.policies.planfile import read_plan, write_plan
from pdla.replicator import bucket_transpose as buckets_module
from pdla.replicator import components as components_module
from pdla.replicator import transpose
from pdla.replicator.backends.base import folder_in
from pdla.replicator.bucket_transpose import buckets_of
from pdla.replicator.builder import replicate
from pdla.replicator.component_access import follow_owner
from pdla.replicator.copying import Progress
from pdla.replicator.verify import gc, verify
from tests.searches.killing_builds import kill_at_random
from tests.support.command_line import PDLA
from tests.support.mpi import Mpi, available_mpis, launching_pdla, unavailable
from tests.support.small_file_systems import mounted
from tests.support.waiting import PATIENCE

SERVERS = 4


def pool_in(home: Path) -> Pool:
    where = tuple(str(home / "pools" / f"{number}") for number in range(SERVERS))
    return Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, 1 << 40, 4096, "directories", where)


def strided(original: Path, length: int, ranks: int, count: int, start: int = 0) -> Signature:
    loops = (Loop(length, ranks), Loop(length * ranks, count))
    return Signature(str(original), "read", True, start, length, loops, tuple(range(ranks)), 1)


def plan_of(home: Path, *patterns: Signature) -> Path:
    """A plan for replicas of these patterns in strips of 64 KiB on all servers."""
    nothing = Cost(0.0, 0.0, 0.0, 0.0)
    home.mkdir(exist_ok=True)
    plans = []
    for signature in patterns:
        layout = Layout("disks", SERVERS, 1, (65536,) * SERVERS, AccessMap.section(signature))
        plans.append(PatternPlan(signature, (Candidate("disks", layout, nothing),), 0, ""))
    cluster = Cluster((pool_in(home),), "disks", SERVERS, 65536, 4, 0.0, 0.0, 0.0, "test")
    write_plan(Plan("pdla-h", "app", tuple(plans), (), cluster), home / "plan.json")
    return home / "plan.json"


@pytest.fixture(params=available_mpis(), ids=lambda mpi: mpi.name)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return launching_pdla(request.param)


def replicated(plan: Path, mpi: Mpi | None = None, processes: int = 1) -> subprocess.CompletedProcess[str]:
    words = [PDLA, "replicate", str(plan), "--json"]
    environment = {**os.environ, "PDLA_HOME": str(plan.parent), **(mpi.env if mpi else {})}
    command = mpi.command(processes, *words) if mpi else words
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("pdla: ")]


def components(home: Path) -> list[bytes]:
    files = (file for file in (home / "pools").rglob("*") if file.is_file())
    return [file.read_bytes() for file in sorted(files, key=lambda file: file.name)]


def test_any_number_of_processes_builds_the_same_files(mpi: Mpi, tmp_path: Path, monkeypatch: Any) -> None:
    """Pieces of 5000 bytes after a header of 100: no window, extent or block ends where a process's part does."""
    original = tmp_path / "data"
    original.write_bytes(np.random.default_rng(1).bytes(40_000_100))
    regular = strided(original, 5000, 4, 2000, start=100)
    irregular = Signature(str(original), "read", True, 0, 96, (Loop(64, 4), Loop(1024, 3000)), (0, 1, 2, 3), 1)
    built = []
    for processes in (1, 4) if mpi.name == "mpich" else (1, 3):
        plan = plan_of(tmp_path / str(processes), regular, irregular)
        monkeypatch.setenv("PDLA_HOME", str(plan.parent))
        catalog = open_catalog()
        if processes == 1:
            replicate(read_plan(plan), catalog)
        else:
            done = replicated(plan, mpi, processes)
            assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
        assert verify(catalog, deep=True) == []
        built.append((components(plan.parent), catalog.replicas.checksums(1), catalog.replicas.checksums(2)))
        catalog.close()
    assert all(one == built[0] for one in built)


FAILING = """
import resource, sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
sys.argv = ["pdla", "replicate", sys.argv[1]]
import pdla.cli
pdla.cli.main()
"""


def test_what_fails_at_one_process_ends_all_with_one_line(mpi: Mpi, tmp_path: Path, monkeypatch: Any) -> None:
    original = tmp_path / "data"
    original.write_bytes(bytes(48 << 20))
    plan = plan_of(tmp_path / "home", strided(original, 4096, 4, 3072))
    monkeypatch.setenv("PDLA_HOME", str(plan.parent))
    command = mpi.command(3, sys.executable, "-c", FAILING, plan)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **mpi.env})
    assert done.returncode != 0
    (line,) = said(done)
    assert re.fullmatch(r"pdla: cannot write .*/1\.\d: File too large: nothing was replicated", line)
    assert "Traceback" not in done.stderr
    assert_nothing_is_left(plan.parent)


def test_a_plan_that_cannot_be_read_ends_all_processes(mpi: Mpi, tmp_path: Path) -> None:
    done = replicated(tmp_path / "plan.json", mpi, 2)
    assert done.returncode != 0
    assert said(done) == [f"pdla: cannot read {tmp_path}/plan.json: No such file or directory (it should be a plan)"]


def assert_nothing_is_left(home: Path) -> None:
    assert [file for file in (home / "pools").rglob("*") if file.is_file()] == []
    catalog = open_catalog()
    assert catalog.replicas.find() == []
    catalog.close()


def test_h32_killed_at_random_moments_there_is_the_old_replica_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    kill_at_random(tmp_path, moments=8)


@dataclass
class Site:
    """A PDLA_HOME with a plan for an original of ``size`` random bytes, in pieces of 64 KiB by four ranks."""

    home: Path
    original: Path

    def replicate(self, progress: Progress | None = None) -> Replica:
        """The replica of the original, built in this process."""
        pieces = self.original.stat().st_size >> 18
        plan = read_plan(plan_of(self.home, strided(self.original, 65536, 4, pieces)))
        catalog = open_catalog()
        try:
            (built,) = replicate(plan, catalog, progress=progress)
            assert verify(catalog, deep=True) == []
            return catalog.replicas.get(built.id)
        finally:
            catalog.close()

    def refused(self, because: str, progress: Progress | None = None) -> None:
        """Nothing is built, for a reason of one line, and nothing is left."""
        with pytest.raises(PdlaError, match=because) as refusal:
            self.replicate(progress)
        assert "\n" not in str(refusal.value)
        assert_nothing_is_left(self.home)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    original = tmp_path / "data"
    original.write_bytes(np.random.default_rng(1).bytes(8 << 20))
    return Site(tmp_path / "home", original)


def allocated(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_blocks * 512 for path in paths)


def test_h42_holes_of_the_original_are_holes_of_the_replica(site: Site) -> None:
    """4 MiB of data, a hole of 40 MiB, 4 MiB of data."""
    with site.original.open("r+b") as file:
        file.truncate(4 << 20)
        file.seek(44 << 20)
        file.write(np.random.default_rng(2).bytes(4 << 20))
    assert allocated([site.original]) == pytest.approx(8 << 20, abs=1 << 16)
    paths = [component.path for component in site.replicate().components]
    assert sum(path.stat().st_size for path in paths) == 48 << 20
    assert allocated(paths) == pytest.approx(8 << 20, abs=1 << 18)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 4), st.sampled_from([1, 9000, 1 << 20]))
def test_sparse_files_are_read_as_they_are(blocks: list[bool], piece: int, hole: int) -> None:
    content = np.repeat(np.random.default_rng(3).integers(1, 255, len(blocks)) * np.array(blocks), 4096)
    file = os.memfd_create("sparse")
    try:
        os.truncate(file, len(content))
        for number in np.flatnonzero(blocks):
            os.pwrite(file, content[number * 4096 :][:4096].astype(np.uint8).tobytes(), int(number) * 4096)
        access_map = AccessMap.from_signature(Signature("f", "read", False, 0, len(content), (), (0,)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transpose, "HOLE", hole)
            got = list(transpose.runs(file, Path("f"), access_map, window=piece * 5000))
    finally:
        os.close(file)
    assert sum(len(run.data) for run in got) == len(content)
    if len(got) == 1:
        assert (got[0].data == content).all()
        assert not (got[0].sparse and all(blocks))
        assert got[0].sparse or all(blocks) or hole > 4096


@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=4).filter(any),
    st.integers(1, 3),
    st.integers(1, 900),
    st.integers(0, 1000),
    st.integers(1, 1000),
)
def test_parts_of_components_are_the_pieces_of_the_striping_rule(
    strips: list[int], groups: int, section: int, start: int, length: int
) -> None:
    layout = Layout("disks", len(strips) * groups, groups, tuple(strips), section)
    data = np.random.default_rng(4).integers(0, 255, length, dtype=np.uint8)
    wanted, got = ({component: {} for component in range(layout.servers)} for _ in range(2))
    for component, offset, size, logical in locate(layout, start, start + length):
        wanted[component].update(zip(range(offset, offset + size), data[logical - start :][:size], strict=True))
    for component, offset, pieces in components_module._parts(layout, start, data):
        content = np.concatenate([piece.ravel() for piece in pieces])
        assert not got[component].keys() & range(offset, offset + len(content))
        got[component].update(zip(range(offset, offset + len(content)), content, strict=True))
    assert got == wanted


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.randoms(use_true_random=False), st.booleans())
def test_buckets_give_every_byte_once_in_order(lengths: list[int], chance: random.Random, same: bool) -> None:
    if same:
        lengths = [lengths[0]] * len(lengths)
    order = list(range(len(lengths)))
    chance.shuffle(order)
    starts = np.cumsum(lengths) - lengths
    content = np.random.default_rng(5).integers(0, 255, sum(lengths), dtype=np.uint8)
    wanted = np.concatenate([content[starts[number] :][: lengths[number]] for number in order])
    replica = np.zeros(len(lengths), dtype=np.int64)
    replica[order] = np.cumsum(np.array(lengths)[order]) - np.array(lengths)[order]
    access_map = AccessMap(extents=np.stack([starts, lengths, replica], axis=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets_module, "BUCKET", 256)
        buckets = buckets_of(access_map)
    assert buckets is not None
    assert np.diff(buckets.bounds).max() <= 256
    collected = np.zeros_like(content)
    for start, length, place in buckets.collected.extents:
        collected[place : place + length] = content[start : start + length]
    got = []
    for number, (low, high) in enumerate(itertools.pairwise(buckets.bounds)):
        for start, data in buckets.ordered(number, collected[low:high], np.zeros(256, dtype=np.uint8)):
            assert start == sum(map(len, got))
            got.append(data.copy())
    assert (np.concatenate(got) == wanted).all()


@pytest.mark.parametrize("how", ["no direct I/O", "direct I/O that fails"])
def test_without_direct_io_the_page_cache_is_used(site: Site, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "no direct I/O":
        monkeypatch.setattr(components_module, "reopened_direct", lambda file, access: None)
    else:
        monkeypatch.setattr(components_module, "BLOCK", 1)  # which is too small for any file system
        site.original.write_bytes(site.original.read_bytes()[: (7 << 20) + (1 << 18)])
    site.replicate()


def entries(*rows: tuple[int, int, int]) -> bytes:
    """A POSIX access control list as the kernel has it: tag, permissions, id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


NOBODY = 0xFFFFFFFF
SHARED = entries((1, 6, NOBODY), (2, 4, 1234), (4, 0, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY))
"""The owner reads and writes, user 1234 reads, no group and nobody else has access."""


def test_h29_the_replica_has_the_access_control_list_of_the_original(site: Site) -> None:
    try:
        os.setxattr(site.original, "system.posix_acl_access", SHARED)
    except OSError:
        unavailable("a file system with access control lists")
    for component in site.replicate().components:
        assert os.getxattr(component.path, "system.posix_acl_access") == SHARED
        assert component.path.stat().st_mode & 0o777 == 0o640


def test_h29_where_the_list_cannot_be_followed_only_the_owner_has_access(site: Site) -> None:
    try:
        os.setxattr(site.original, "system.posix_acl_access", SHARED)
    except OSError:
        unavailable("a file system with access control lists")
    file = os.memfd_create("component", os.MFD_HUGETLB)  # of a file system without such lists
    with site.original.open("rb") as source:
        follow_owner(source.fileno(), file)
    assert os.fstat(file).st_mode & 0o777 == 0o600
    os.close(file)


def test_h29_a_user_who_cannot_change_owners_keeps_a_replica_private(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    if os.geteuid() != 0:
        unavailable("only root gives files away")
    os.chown(site.original, 1234, 1234)
    site.original.chmod(0o664)
    monkeypatch.setattr(os, "fchown", refuse)
    component = tmp_path / "component"
    with site.original.open("rb") as source, component.open("wb") as file:
        follow_owner(source.fileno(), file.fileno())
    assert component.stat().st_mode & 0o777 == 0o600


def test_h29_a_list_that_the_original_has_not_is_not_inherited(site: Site) -> None:
    component = site.original.with_name("component")
    component.touch()
    try:
        os.setxattr(component, "system.posix_acl_access", SHARED)
    except OSError:
        unavailable("a file system with access control lists")
    site.original.chmod(0o604)
    with site.original.open("rb") as source, component.open("rb") as file:
        follow_owner(source.fileno(), file.fileno())
    assert component.stat().st_mode & 0o777 == 0o604
    assert "system.posix_acl_access" not in os.listxattr(component)


@pytest.mark.parametrize("moment", ["copying", "verifying"])
def test_a_back_end_that_becomes_unreachable_is_reported(site: Site, moment: str) -> None:
    def lose(what: str, done: int, total: int) -> None:
        if what.startswith(moment):
            shutil.rmtree(site.home / "pools/2", ignore_errors=True)

    with pytest.raises(PdlaError, match=r"cannot build a replica of .*/data: .*No such file or directory"):
        site.replicate(lose)
    catalog = open_catalog()
    gc(catalog)
    assert [replica.state for replica in catalog.replicas.find()] == ["retired"]  # for its files may come back
    (folder_in(site.home / "pools/2") / catalog.token).mkdir(parents=True)
    gc(catalog)
    catalog.close()
    assert_nothing_is_left(site.home)


def test_h22_what_does_not_come_back_from_storage_is_not_served(site: Site) -> None:
    def damage(what: str, done: int, total: int) -> None:
        if what == "verifying":
            return
        for file in (site.home / "pools").rglob("*.tmp"):
            with file.open("r+b") as component:
                component.seek(100_000)
                component.write(b"other")

    site.original.write_bytes(site.original.read_bytes()[: 4 << 20])
    site.refused(r"storage did not return .*1\.\d as it was written: nothing was replicated", damage)


def test_h30_a_full_disk_is_reported_before_anything_is_copied(site: Site) -> None:
    def copied(what: str, done: int, total: int) -> None:
        raise AssertionError

    pool = site.home / "pools/3"
    pool.mkdir(parents=True)
    with mounted(["-t", "tmpfs", "-o", "size=1m", "tmpfs"], pool):
        site.refused(r"no space for 2 MiB in .*/pools/3/.*: No space left on device", copied)


def test_an_original_that_cannot_be_read_in_the_middle_is_reported(site: Site, tmp_path: Path) -> None:
    """The second half of its disk is gone."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(24 << 20)
    if subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], capture_output=True, check=False).returncode:
        unavailable("mkfs.ext4")
    with mounted(["-o", "loop", str(image)], disk):
        content = site.original.read_bytes()
        site.original = disk / "data"
        site.original.write_bytes(content)
        with site.original.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.truncate(image, 12 << 20)
        site.refused(r"cannot read the original .*/disk/data at byte \d+: Input/output error: nothing was replicated")
