"""BeeGFS, on a file system of our own that answers its ioctls: the public suite, and what can go wrong."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.catalog import Component
from pdla.errors import ConfigError, PdlaError
from pdla.model import Layout, Pool
from pdla.replicator.backends import base, beegfs_ctl, beegfs_ioctls, misplaced, placement_of, tools
from pdla.replicator.backends.base import NewComponent, temporary
from pdla.replicator.backends.beegfs import BeeGFS
from pdla.replicator.backends.beegfs_ioctls import Striping
from pdla.replicator.backends.conformance import SIZE, BackendTests
from pdla.replicator.backends.tools import NoToolError
from tests.support.striping_mount import StripingMount, striping_mount

KIB64 = 65536
ONE = Layout("pfs", 1, 1, (KIB64,), KIB64)
TWO = Layout("pfs", 2, 1, (KIB64,) * 2, 2 * KIB64)


@pytest.fixture(scope="module")
def like_beegfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount("beegfs", tmp_path_factory.mktemp("beegfs")) as mounted:
        yield mounted


@pytest.fixture
def where(like_beegfs: StripingMount, request: pytest.FixtureRequest) -> Path:
    directory = like_beegfs.mount / re.sub(r"\W", "_", request.node.nodeid)
    directory.mkdir()
    return directory


@pytest.fixture
def states(like_beegfs: StripingMount) -> Iterator[StripingMount]:
    yield like_beegfs
    for target in range(6):
        like_beegfs.set_state(target, "")


def pool(where: Path, *names: str) -> Pool:
    rates = {"read_seconds_per_byte": 1e-8, "write_seconds_per_byte": 1e-8, "capacity": 1 << 40, "grain": 4096}
    return Pool("pfs", "hdd", len(names), ((0, 0.0),), **rates, backend="beegfs", where=(str(where),), names=names)


class TestBeeGFS(BackendTests):
    """On four of six targets, in an order of their own; the directory has chunks of 64 KiB on four targets."""

    @pytest.fixture
    def backend(self, like_beegfs: StripingMount, where: Path) -> BeeGFS:
        self.mounted = like_beegfs
        return BeeGFS(pool(where, "5", "2", "6", "3"))

    def stored(self, backend: BeeGFS, component: NewComponent) -> list[bytes]:
        return self.mounted.stored(component)

    def test_groups_that_are_chunks_are_one_file_each_and_others_a_file_for_each_target(self, backend: BeeGFS) -> None:
        def widths(layout: Layout) -> list[int]:
            return [len(component.servers) for component in backend.components("t/1", layout, SIZE)]

        assert widths(replace(TWO, servers=4, groups=2)) == [2, 2]
        assert widths(replace(TWO, servers=4, strips=(KIB64,) * 4, section=4 * KIB64)) == [4]
        assert widths(replace(TWO, strips=(2 * KIB64,) * 2, section=4 * KIB64)) == [1, 1]
        assert widths(replace(TWO, strips=(KIB64, 2 * KIB64), section=3 * KIB64)) == [1, 1]

    def test_placement_is_what_beegfs_says(self, backend: BeeGFS) -> None:
        (path,) = self.make(backend, "t/1", SIZE)
        base.commit([path])
        assert BeeGFS.placement(path) == "chunk=65536 targets=5,2"
        component = Component(path, SIZE, placement=placement_of(backend, path))
        assert misplaced(component) == ""
        self.mounted.migrate(path, 1, 3)  # as beegfs-ctl --migrate would
        assert misplaced(component) == "chunk=65536 targets=5,4"


def test_a_target_of_another_storage_pool_is_used_if_the_server_names_it(
    like_beegfs: StripingMount, where: Path
) -> None:
    backend = BeeGFS(pool(where, "2:5", "2:2"))
    backend.check(TWO, SIZE)
    (component,) = backend.components("t/1", TWO, SIZE)
    os.close(backend.create(component))
    assert [target for target, _ in like_beegfs.objects(temporary(component.path))] == [4, 1]
    wrong = BeeGFS(pool(where, "2:1"))
    with pytest.raises(PdlaError, match=r"did not place .* as asked \(wanted targets 1; got [562]\): .*POOL:TARGET"):
        wrong.create(wrong.components("t/2", ONE, SIZE)[0])
    assert not temporary(wrong.components("t/2", ONE, SIZE)[0].path).exists()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("5", "9"), r"BeeGFS has no storage target 9 \(it has: 1, 2, 3, 4, 5, 6\)"),
        (("5", "fast"), r"BeeGFS has no server 'fast' \(give a target as 101"),
    ],
)
def test_servers_that_are_none_are_refused(
    like_beegfs: StripingMount, where: Path, names: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"pool pfs: {why}"):
        BeeGFS(pool(where, *names)).check(TWO, SIZE)


def test_other_storage_is_refused_and_the_planner_hears_why(tmp_path: Path) -> None:
    backend = BeeGFS(pool(tmp_path, "1"))
    assert re.fullmatch(rf"{tmp_path} is not on BeeGFS but in \w+ at /\S*: mount BeeGFS", backend.obstacle(ONE, SIZE))


def test_a_missing_directory_is_refused(like_beegfs: StripingMount) -> None:
    with pytest.raises(ConfigError, match=r"pool pfs: cannot use .*/nowhere: No such file or directory"):
        BeeGFS(pool(like_beegfs.mount / "nowhere", "1")).check(ONE, SIZE)


def test_a_target_that_is_offline_is_trouble_and_no_file_is_left_on_it(states: StripingMount, where: Path) -> None:
    backend = BeeGFS(pool(where, "5", "2"))
    backend.check(TWO, SIZE)
    (component,) = backend.components("t/1", TWO, 0)
    assert backend.trouble(backend.servers) == ""
    states.set_state(1, "inactive")
    assert backend.trouble(backend.servers) == "target 2 of BeeGFS is unusable: Offline"
    with pytest.raises(PdlaError, match="target 2 of BeeGFS is unusable: Offline"):
        backend.create(component)
    assert not temporary(component.path).exists()
    states.set_state(1, "full")
    with pytest.raises(PdlaError, match=r"no space for 3[0-9]+ KiB on target 2 of BeeGFS at /"):
        backend.create(backend.components("t/1", TWO, SIZE)[0])


def test_without_beegfs_ctl_files_are_placed_all_the_same(
    like_beegfs: StripingMount, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    backend = BeeGFS(pool(where, "5", "2"))
    backend.check(ONE, SIZE)
    (component,) = backend.components("t/1", ONE, SIZE)
    os.close(backend.create(component))
    assert [target for target, _ in like_beegfs.objects(temporary(component.path))] == [4]
    assert backend.trouble(backend.servers) == ""


def test_a_mount_that_hangs_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, tools):
        monkeypatch.setattr(module, "PATIENCE", 0.5)
    with striping_mount("beegfs", tmp_path) as mounted:
        backend = BeeGFS(pool(mounted.mount, "5", "2"))
        mounted.server.send_signal(signal.SIGSTOP)
        try:
            assert " has not answered for" in backend.trouble(backend.servers)
            with pytest.raises(ConfigError, match=r"pool pfs: .*/mount has not answered for"):
                backend.check(TWO, SIZE)
        finally:
            mounted.server.send_signal(signal.SIGCONT)


def test_the_structures_have_the_sizes_that_c_gives_them() -> None:
    """The numbers of the ioctls have them: a compiler's, for x86-64, of BeeGFS's header."""
    sizes = (beegfs_ioctls._StripeInfo, beegfs_ioctls._StripeTarget, beegfs_ioctls._EntryInfo, beegfs_ioctls._MakeFile)
    assert [ctypes.sizeof(one) for one in sizes] == [12, 536, 68, 120]
    numbers = [getattr(beegfs_ioctls, name) for name in ("TEST_IS_BEEGFS", "GET_STRIPEINFO", "GET_STRIPETARGET_V2")]
    assert numbers == [0x80066616, 0x800C6619, 0x8218661A]
    assert (beegfs_ioctls.CREATE_FILE_V3, beegfs_ioctls.GETENTRYINFO) == (0x4078661D, 0x8044661F)


ENTRY = """\
Entry type: file
EntryID: 0-5D285750-1
Metadata node: node1.beeg.local [ID: 1]
Stripe pattern details:
+ Type: RAID0
+ Chunksize: 512k
+ Number of storage targets: desired: 2; actual: 2
+ Storage targets:
  + 101 @ node1.beeg.local [ID: 1]
  + 201 @ node2.beeg.local [ID: 2]
Chunk path: u0/0/r/root/0-5EC39809-1
Dentry path: 38/51/root/
"""
"""doc.beegfs.io 7.4.5 and 8.2, "Deep Inspection", with the targets of the latter."""


def test_getentryinfo_has_the_striping() -> None:
    assert beegfs_ctl.striping(ENTRY) == Striping(512 << 10, (101, 201))
    assert beegfs_ctl.striping(ENTRY.replace("512k", "1M").replace("  +", "+")) == Striping(1 << 20, (101, 201))
    with pytest.raises(PdlaError, match="cannot understand the output of beegfs-ctl --getentryinfo"):
        beegfs_ctl.striping(ENTRY[:200])


def test_listtargets_has_states_and_free_space() -> None:
    printed = """\
TargetID     Reachability  Consistency        Total         Free    %      ITotal       IFree    %   NodeID
========     ============  ===========        =====         ====    =      ======       =====    =   ======
       1           Online         Good     239.2GiB      53.6GiB  22%       15.2M       12.9M  85%        1
       2 Probably-offline         Good     239.2GiB       0.0GiB   0%       15.2M       12.9M  85%        1
     301           Online Needs-resync       1.5TiB       1.0TiB  66%       15.2M       12.9M  85%        3
"""
    assert beegfs_ctl.targets(printed) == {
        1: beegfs_ctl.Target(int(53.6 * 2**30)),
        2: beegfs_ctl.Target(0, "Probably-offline"),
        301: beegfs_ctl.Target(1 << 40, "Needs-resync"),
    }
    with pytest.raises(NoToolError, match="cannot understand the output of beegfs-ctl --listtargets"):
        beegfs_ctl.targets("usage: ...")
