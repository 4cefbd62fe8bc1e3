"""Mounts are found as the kernel lists them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdla import mounts
from pdla.mounts import Mount, kind_of, mount_of

LISTED = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:40 / /net/a\\040b rw,nosuid - nfs4 server:/a\\040b rw,vers=4.2,acregmin=3,local_lock=none,nolock
31 22 0:41 / /net rw - nfs  rw,actimeo=0
32 31 0:42 / /net/a\\040b rw shared:7 master:8 - fuse.sshfs me@there: rw,user_id=0
33 22 0:43 / /scratch/odd\\134name ro - tmpfs - ro
"""


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listed(type(Path())):  # type: ignore[misc]
        def read_text(self, *_: object, **__: object) -> str:
            return LISTED

    monkeypatch.setattr(mounts, "Path", Listed)


@pytest.mark.usefixtures("listed")
def test_a_path_is_in_the_last_mount_of_the_deepest_point() -> None:
    assert mount_of(Path("/home/me/new")) == Mount(
        Path("/"), "ext4", "/dev/sda1", ("rw", "relatime", "errors=remount-ro")
    )
    found = mount_of(Path("/net/a b/file"))
    assert found == Mount(Path("/net/a b"), "fuse.sshfs", "me@there:", ("rw", "user_id=0"))
    odd = mount_of(Path("/scratch/odd\\name/x"))
    assert odd is not None and odd.point == Path("/scratch/odd\\name")
    above = mount_of(Path("/net/other"))
    assert above is not None and (above.kind, above.source) == ("nfs", "")


@pytest.mark.usefixtures("listed")
def test_an_option_has_a_value_or_is_set_or_is_not() -> None:
    found = mount_of(Path("/net"))
    assert found is not None
    assert (found.option("actimeo"), found.option("rw"), found.option("noac")) == ("0", "", None)


@pytest.mark.usefixtures("listed")
def test_a_device_has_the_kind_of_its_mount() -> None:
    assert kind_of(os.makedev(0, 40)) == "nfs4"
    assert kind_of(os.makedev(99, 1)) == "the file system"


def test_a_directory_of_this_machine_is_in_a_mount(tmp_path: Path) -> None:
    found = mount_of(tmp_path / "missing")
    assert found is not None and tmp_path.is_relative_to(found.point)
