"""Lustre, on a file system of our own that honours ``lustre.lov``: the public suite, and the whole loop."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.catalog import Component
from pdla.errors import ConfigError, PdlaError
from pdla.model import Cluster, Layout, Pool
from pdla.replicator.backends import base, misplaced, placement_of, tools
from pdla.replicator.backends.base import NewComponent, folder_in, temporary
from pdla.replicator.backends.conformance import SIZE, BackendTests
from pdla.replicator.backends.lov import ATTRIBUTE, Striping, decode, encode
from pdla.replicator.backends.lustre import Lustre
from tests.support.striping_mount import StripingMount, striping_mount

KIB64 = 65536
ONE = Layout("pfs", 1, 1, (KIB64,), KIB64)


@pytest.fixture(scope="module")
def like_lustre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount("lustre", tmp_path_factory.mktemp("lustre")) as mounted:
        yield mounted


@pytest.fixture
def where(like_lustre: StripingMount, request: pytest.FixtureRequest) -> Path:
    directory = like_lustre.mount / re.sub(r"\W", "_", request.node.nodeid)
    directory.mkdir()
    return directory


def pool(where: Path, *names: str) -> Pool:
    rates = {"read_seconds_per_byte": 1e-8, "write_seconds_per_byte": 1e-8, "capacity": 1 << 40, "grain": 4096}
    return Pool("pfs", "hdd", len(names), ((0, 0.0),), **rates, backend="lustre", where=(str(where),), names=names)


class TestLustre(BackendTests):
    """On four of six OSTs, in an order of their own."""

    @pytest.fixture
    def backend(self, like_lustre: StripingMount, where: Path) -> Lustre:
        self.mounted = like_lustre
        return Lustre(pool(where, "OST0004", "OST0001", "OST0005", "OST0002"))

    def stored(self, backend: Lustre, component: NewComponent) -> list[bytes]:
        return self.mounted.stored(component)

    def test_a_group_with_unequal_strips_is_one_file_with_several_objects_on_an_ost(self, backend: Lustre) -> None:
        layout = Layout("pfs", 3, 1, (KIB64, 0, 2 * KIB64), 8 * KIB64)
        self.test_12_every_byte_is_on_the_server_that_the_layout_names(backend, 2, 1, (KIB64, 2 * KIB64), 8 * KIB64)
        (component,) = backend.components("t/2", layout, SIZE)
        os.close(backend.create(component))
        assert [target for target, _ in self.mounted.objects(temporary(component.path))] == [4, 5, 5]
        assert decode(os.getxattr(temporary(component.path), ATTRIBUTE)) == Striping(KIB64, (4, 5, 5))

    def test_a_lustre_that_does_not_overstripe_gets_a_file_for_each_ost(
        self, backend: Lustre, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Lustre, "_overstripes", False)
        layout = Layout("pfs", 3, 1, (KIB64, KIB64, 2 * KIB64), 8 * KIB64)
        assert len(backend.components("t/1", layout, SIZE)) == 3
        self.test_12_every_byte_is_on_the_server_that_the_layout_names(backend, 3, 1, layout.strips, 8 * KIB64)

    def test_strips_that_lustre_has_not_are_striped_by_the_library(self, backend: Lustre) -> None:
        layout = Layout("pfs", 4, 2, (1000,) * 2, 3 * KIB64)
        assert backend.obstacle(layout, SIZE) == ""
        assert [len(component.servers) for component in backend.components("t/1", layout, SIZE)] == [1] * 4
        assert len(backend.components("t/1", replace(layout, strips=(KIB64,) * 2), SIZE)) == 2
        wide = replace(layout, servers=2, groups=1, strips=(200 * KIB64, KIB64))
        assert len(backend.components("t/1", wide, SIZE)) == 2  # more objects than any Lustre has

    def test_placement_is_what_lustre_says(self, backend: Lustre) -> None:
        (path,) = self.make(backend, "t/1", SIZE)
        base.commit([path])
        assert Lustre.placement(path) == "strip=65536 osts=0004,0001"
        component = Component(path, SIZE, placement=placement_of(backend, path))
        assert misplaced(component) == ""
        self.mounted.migrate(path, 1, 3)  # as lfs migrate would
        assert misplaced(component) == "strip=65536 osts=0004,0003"


def test_files_of_a_pool_with_an_ost_pool_belong_to_it(like_lustre: StripingMount, where: Path) -> None:
    backend = Lustre(pool(where, "flash:OST0004", "flash:OST0001"))
    layout = Layout("pfs", 2, 1, (KIB64,) * 2, 2 * KIB64)
    backend.check(layout, SIZE)
    (component,) = backend.components("t/1", layout, SIZE)
    os.close(backend.create(component))
    assert decode(os.getxattr(temporary(component.path), ATTRIBUTE)) == Striping(KIB64, (4, 1), "flash")


def test_osts_of_two_ost_pools_are_striped_by_the_library(like_lustre: StripingMount, where: Path) -> None:
    """Disks and SSDs together: a file belongs to one OST pool at most."""
    parts = []
    for name, names in (("disk", ("disk:OST0000", "disk:OST0002")), ("flash", ("flash:OST0004",))):
        (where / name).mkdir()
        parts.append(replace(pool(where / name, *names), name=name))
    hybrid = Lustre(Cluster(tuple(parts), "disk", 1, KIB64, 1, 0.0, 0.0, 0.0, "test").pool("disk+flash"))
    layout = Layout("disk+flash", 3, 1, (KIB64, KIB64, 2 * KIB64), 8 * KIB64)
    hybrid.check(layout, SIZE)
    made = hybrid.components("t/1", layout, SIZE)
    for component in made:
        os.close(hybrid.create(component))
    assert [like_lustre.objects(temporary(component.path))[0][0] for component in made] == [0, 2, 4]
    assert made[2].path == folder_in(where / "flash") / "t/1.2"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("OST0004", "OST0009"), r"OST0009 of Lustre is not there, or is deactivated \(see lfs df -v /"),
        (("OST0004", "fast"), r"Lustre has no server 'fast' \(give an OST as OST0003"),
        (("OST0004", "tape:OST0001"), r"Lustre has no OST pool tape \(its pools: 2, disk, flash\)"),
        (("OST0004", "flash:OST0002"), r"OST0002 is not in the OST pool flash \(it has: OST0004, OST0005, OST0001\)"),
    ],
    ids=["no such OST", "no OST", "no such pool", "another pool"],
)
def test_servers_that_are_none_are_refused(
    like_lustre: StripingMount, where: Path, names: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"pool pfs: {why}"):
        Lustre(pool(where, *names)).check(Layout("pfs", 2, 1, (KIB64,) * 2, KIB64), SIZE)


def test_other_storage_is_refused_and_the_planner_hears_why(tmp_path: Path) -> None:
    backend = Lustre(pool(tmp_path, "OST0000"))
    assert re.fullmatch(rf"{tmp_path} is not on Lustre but in \w+ at /\S*: mount Lustre", backend.obstacle(ONE, SIZE))
    with pytest.raises(ConfigError, match=r"pool pfs: .* is not on Lustre but in"):
        backend.check(ONE, SIZE)


def test_a_missing_directory_is_refused(like_lustre: StripingMount) -> None:
    with pytest.raises(ConfigError, match=r"pool pfs: cannot use .*/nowhere: No such file or directory"):
        Lustre(pool(like_lustre.mount / "nowhere", "OST0000")).check(ONE, SIZE)


@pytest.fixture
def states(like_lustre: StripingMount) -> Iterator[StripingMount]:
    yield like_lustre
    for target in range(6):
        like_lustre.set_state(target, "")


@pytest.mark.parametrize(("state", "why"), [("inactive", "inactive device"), ("full", "out of space")])
def test_an_ost_that_fails_is_trouble_and_no_file_is_left_on_it(
    states: StripingMount, where: Path, state: str, why: str
) -> None:
    backend = Lustre(pool(where, "OST0004", "OST0001"))
    layout = Layout("pfs", 2, 1, (KIB64,) * 2, 2 * KIB64)
    backend.check(layout, SIZE)
    (component,) = backend.components("t/1", layout, 0)
    assert backend.trouble(backend.servers) == ""
    states.set_state(1, state)
    assert backend.trouble(backend.servers) == f"OST0001 of Lustre is unusable: {why}"
    assert backend.trouble(backend.servers[:1]) == ""
    assert backend.free()[1] == 0
    with pytest.raises(PdlaError, match=f"OST0001 of Lustre is unusable: {why}"):
        backend.create(component)
    assert not temporary(component.path).exists()
    with pytest.raises(PdlaError, match=r"no space for 3[0-9]+ KiB on OST0001 of Lustre at /"):
        backend.create(backend.components("t/1", layout, SIZE)[0])
    with pytest.raises(ConfigError, match=f"pool pfs: OST0001 of Lustre is unusable: {why}"):
        backend.check(layout, SIZE)


def test_without_lfs_files_are_placed_all_the_same(
    like_lustre: StripingMount, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    backend = Lustre(pool(where, "flash:OST0004", "OST0001"))
    backend.check(ONE, SIZE)
    (component,) = backend.components("t/1", ONE, SIZE)
    os.close(backend.create(component))
    assert [target for target, _ in like_lustre.objects(temporary(component.path))] == [4]
    assert backend.trouble(backend.servers) == ""
    assert all(backend.free())


def test_a_mount_that_hangs_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, tools):
        monkeypatch.setattr(module, "PATIENCE", 0.5)
    with striping_mount("lustre", tmp_path) as mounted:
        backend, layout = Lustre(pool(mounted.mount, "OST0004", "OST0001")), Layout("pfs", 2, 1, (KIB64,) * 2, KIB64)
        assert backend.trouble(backend.servers) == ""
        mounted.server.send_signal(signal.SIGSTOP)
        try:
            assert " has not answered for" in backend.trouble(backend.servers)
            with pytest.raises(ConfigError, match=r"pool pfs: .*/mount has not answered for"):
                backend.check(layout, SIZE)
        finally:
            mounted.server.send_signal(signal.SIGCONT)


def test_a_file_that_lustre_placed_elsewhere_is_refused_and_removed(
    like_lustre: StripingMount, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre reports no error if a file has a layout already (ll_setstripe_ea): so it is read back."""
    backend = Lustre(pool(where, "OST0004", "OST0001"))
    backend.check(ONE, SIZE)
    (component,) = backend.components("t/1", ONE, SIZE)
    real = os.mknod

    def opened(path: Path, mode: int) -> None:
        real(path, mode)
        Path(path).write_bytes(b"")

    like_lustre.mount.joinpath("turn").write_bytes(b"")  # the default is another OST than the wanted one
    monkeypatch.setattr(os, "mknod", opened)
    with pytest.raises(
        PdlaError, match=r"did not place .* as asked: wanted strip=4194304 osts=0004; got strip=1048576"
    ):
        backend.create(component)
    assert not temporary(component.path).exists()


def test_a_value_of_the_attribute_is_as_in_lustres_header() -> None:
    """The bytes are written down by hand from struct lov_user_md_v3 and lov_user_ost_data_v1."""
    value = encode(Striping(1 << 20, (3, 0x11), "flash"))
    assert value.hex() == (
        "d00bd50b" "01000000" "0000000000000000" "0000000000000000" "00001000" "0200" "0300"
        "666c617368000000" "0000000000000000"
        "00000000000000000000000000000000" "00000000" "03000000"
        "00000000000000000000000000000000" "00000000" "11000000"
    )  # fmt: skip
    assert encode(Striping(KIB64, (1, 1)))[4:8].hex() == "01020000"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "has 0 bytes that cannot be understood"),
        (encode(Striping(KIB64, (1, 2)))[:40].replace(b"\xd0\x0b\xd5\x0b", b"\xd0\x0b\xd1\x0b"), "has 40 bytes"),
        (b"\xd0\x0b\xd6\x0b" + bytes(200), "not plain strips"),
        (encode(Striping(KIB64, (1, 2))), "not plain strips"),
    ],
    ids=["empty", "cut", "composite", "not yet given"],
)
def test_a_layout_that_is_not_understood_is_refused(value: bytes, why: str) -> None:
    with pytest.raises(PdlaError, match=why):
        decode(value)
