"""``pdla doctor --backend``: the self-test that shows on a user's own system that files are placed as asked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdla.layouts.config import load_cluster
from pdla.model import Layout
from pdla.replicator.backends import backend_of
from tests.support.command_line import Pdla
from tests.support.striping_mount import StripingMount, striping_mount

TOOLS = {"lustre": "lfs", "beegfs": "beegfs-ctl"}


@pytest.fixture(scope="module", params=TOOLS)
def mounted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


def test_every_layout_is_placed_verified_and_removed(mounted: StripingMount, pdla: Pdla) -> None:
    printed = pdla.run("doctor", "--backend", mounted.kind, mounted.mount).stdout
    lines = [line for line in printed.splitlines() if not line.startswith(" ")]
    assert lines[0].startswith("pdla ")
    assert f"backend {mounted.kind}, Linux" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["ok"] * 7
    assert printed.count("the storage's own tool agrees") == 6
    assert [path for path in mounted.mount.rglob("*") if path.is_file()] == []
    assert mounted.inodes_of_objects() == set()


def test_what_is_wrong_is_said_and_the_exit_code_is_not_0(mounted: StripingMount, pdla: Pdla) -> None:
    mounted.set_state(3, "inactive")
    try:
        answer = pdla.json("doctor", "--backend", mounted.kind, mounted.mount, "--json")
        states = answer["steps"][0]["answers"]
        assert [state.endswith("usable") for state in states] == [True, True, True, False, True, True]
        for target in (0, 1, 2, 4, 5):
            mounted.set_state(target, "full")
        failed = pdla.run("doctor", "--backend", mounted.kind, mounted.mount, code=1)
    finally:
        for target in range(6):
            mounted.set_state(target, "")
    assert "FAILED" in failed.stdout
    assert f"of the self-test of {mounted.kind} failed" in failed.stderr


def test_a_tool_that_says_otherwise_fails_the_test(
    mounted: StripingMount, pdla: Pdla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TOOLS[mounted.kind]
    tool = tmp_path / "bin" / name
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\n"{shutil.which(name)}" "$@" | sed "s/l_ost_idx: 2/l_ost_idx: 0/; s/^  + 3 @/  + 1 @/"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    failed = pdla.run("doctor", "--backend", mounted.kind, mounted.mount, code=1)
    assert "the storage's own tool says" in failed.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--backend", "lustre", "."), "is not on Lustre but in"),
        (("--backend", "beegfs", "."), "is not on BeeGFS but in"),
        (("--backend", "directories", "."), "backend 'directories' cannot list its servers"),
        (("--backend", "tape", "."), "unknown backend 'tape' (known: beegfs, "),
        (("--backend", "lustre", "nowhere"), "nowhere"),
    ],
)
def test_other_storage_is_refused_in_one_line(pdla: Pdla, words: tuple[str, ...], why: str) -> None:
    (line,) = pdla.run("doctor", *words, code=1).stderr.splitlines()
    assert why in line


def test_the_back_end_and_one_directory_are_given_together(pdla: Pdla) -> None:
    assert "give one directory with --backend" in pdla.run("doctor", "--backend", "lustre", code=2).stderr


def test_calibrate_writes_the_pools_of_a_lustre_with_all_their_osts(tmp_path: Path, pdla: Pdla) -> None:
    with striping_mount("lustre", tmp_path / "lustre") as mounted:
        (mounted.backing / "pools/2").unlink()
        mounted.set_state(3, "inactive")
        (mounted.mount / "me").mkdir()
        words = ("--lustre", mounted.mount / "me", "-o", "cluster.toml", "--seconds", "1", "--size", "16M")
        pdla.run("calibrate", *words)
        cluster = load_cluster(pdla.directory / "cluster.toml")
        assert [(pool.name, pool.kind, pool.backend, pool.names, pool.grain) for pool in cluster.pools] == [
            ("disk", "hdd", "lustre", ("disk:OST0000", "disk:OST0002"), 65536),
            ("flash", "ssd", "lustre", ("flash:OST0001", "flash:OST0004", "flash:OST0005"), 65536),
        ]
        assert (cluster.home_pool, cluster.home_servers, cluster.home_strip) == ("disk", 1, 1 << 20)
        assert sorted(path.name for path in (mounted.mount / "me").iterdir()) == ["pdla-disk", "pdla-flash"]
        for pool in cluster.pools:
            layout = Layout(pool.name, 2, 1, (65536, 65536), 131072)
            backend_of(pool).check(layout, 1000)
        assert mounted.targets_of_directories() == {0, 1, 2, 4, 5}  # a scratch file was on each


def test_calibrate_refuses_a_directory_that_is_not_on_lustre(pdla: Pdla) -> None:
    (line,) = pdla.run("calibrate", "--lustre", ".", code=1).stderr.splitlines()
    assert "is not on Lustre but in" in line
    assert "give either --lustre DIR" in pdla.run("calibrate", "--lustre", ".", "elsewhere", code=2).stderr
