"""A Ceph cluster of the tests' own: four OSDs of "hdd" and one of "ssd", all files on the same disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.mpi import unavailable
from tools.loopback_ceph import PROGRAMS, Ceph, Osd


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    """A cluster, which every process that the tests start finds by CEPH_CONF."""
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        unavailable(f"Ceph is not installed: there is no {missing[0]}")
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("a Ceph cluster needs root and /dev/fuse")
    cluster = Ceph(tmp_path_factory.mktemp("ceph"), [*[Osd("hdd")] * 4, Osd("ssd")])
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("CEPH_CONF", str(cluster.configuration))
        stack.callback(shutil.rmtree, cluster.folder, ignore_errors=True)
        stack.callback(cluster.take_down)
        cluster.bring_up()
        yield cluster
