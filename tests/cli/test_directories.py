"""``pdla doctor DIR`` says what a file system can do, and what several nodes see of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.loop_devices import attached, file_system, loop_obstacle
from pdla.cli import cli, directory_probe
from pdla.cli.directory_probe import Fact, probe_directory
from pdla.errors import PdlaError
from pdla.mounts import Mount
from tests.support.mpi import unavailable
from tests.support.namespace_nodes import on_nodes
from tests.support.waiting import PATIENCE

BIN = Path(sys.executable).parent
ONE_NODE = "replicas here serve the ranks of this node only"


def found_in(directory: Path) -> dict[str, Fact]:
    return {fact.name: fact for fact in probe_directory(directory)}


@contextmanager
def bindfs(directory: Path, *options: str) -> Iterator[Path]:
    """A directory through FUSE."""
    if shutil.which("bindfs") is None or os.geteuid() or not Path("/dev/fuse").exists():
        unavailable("no bindfs, or no right to mount with it")
    mount = directory / "mount"
    for one in (directory / "source", mount):
        one.mkdir()
    try:
        subprocess.run(["bindfs", *options, directory / "source", mount], check=True)
        yield mount
    finally:
        if mount.is_mount():
            subprocess.run(["umount", mount], check=True)


def test_a_local_directory_has_all_abilities_and_keeps_no_file(tmp_path: Path) -> None:
    found = found_in(tmp_path)
    assert not [*tmp_path.iterdir()]
    for name, words in {
        "shared mappings": "coherent with reads and writes",
        "locks": "open-file-description locks hold",
        "clock of files": "that of this machine",
    }.items():
        assert found[name] == Fact(name, words)
    assert {fact.trouble for fact in found.values()} <= {"", ONE_NODE, "its files are gone after a restart"}


def test_memory_is_gone_after_a_restart() -> None:
    if not Path("/dev/shm").is_mount():
        pytest.skip("there is no /dev/shm")
    found = found_in(Path("/dev/shm"))
    assert found["mount"].trouble == "its files are gone after a restart"
    assert found["direct I/O"].found == "tmpfs is memory"


def test_a_file_system_with_whole_seconds_and_without_reservations(tmp_path: Path) -> None:
    if why := loop_obstacle():
        unavailable(why)
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    old = ("-O", "^extents,^64bit,^has_journal", "-I", "128")
    with attached(image) as loop, file_system(loop, tmp_path / "disk", old) as mount:
        found = found_in(mount)
    assert found["times of files"] == Fact("times of files", "steps of 1 s, no time of birth")
    assert found["clock of files"].found == "that of this machine"
    assert found["space"].found.endswith("cannot be reserved (Operation not supported)")
    assert found["space"].trouble == "a build reserves space by writing zeros"


def test_a_file_system_without_shared_mappings(tmp_path: Path) -> None:
    with bindfs(tmp_path, "-o", "direct_io") as mount:
        found = found_in(mount)
    assert found["mount"].found == f"fuse of {tmp_path / 'source'} at {mount}"
    assert found["nodes"].found.startswith("may be mounted by several")
    assert found["shared mappings"] == Fact(
        "shared mappings", "refused (No such device)", "$PDLA_HOME and its journals cannot be here"
    )
    assert found["holes"].trouble == "the holes of an original take space in its replica"


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("acregmax=30", [("attribute cache", "3 to 30 s")]),
        ("actimeo=7", [("attribute cache", "7 to 7 s")]),
        ("noac", [("attribute cache", "none")]),
        ("actimeo=0,local_lock=none", [("attribute cache", "none")]),
        ("noac,nolock", [("attribute cache", "none"), ("lock option", "nolock")]),
        ("noac,local_lock=all", [("attribute cache", "none"), ("lock option", "local_lock=all")]),
    ],
)
def test_options_of_nfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: str, facts: list[tuple[str, str]]):
    mount = Mount(tmp_path, "nfs4", "server:/export", ("rw", *options.split(",")))
    monkeypatch.setattr(directory_probe, "mount_of", lambda _: mount)
    found = probe_directory(tmp_path)
    assert [(fact.name, fact.found) for fact in found if fact.name in ("attribute cache", "lock option")] == facts
    troubled = {fact.name for fact in found if fact.trouble}
    assert ("attribute cache" in troubled) == (facts[0][1] != "none")
    assert ("lock option" in troubled) == (len(facts) > 1)


def test_a_write_that_does_not_show_and_a_clock_that_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(directory_probe, "_changes", lambda _: [1])
    assert found_in(tmp_path)["times of files"].trouble == "a stale replica of a file here could not be recognized"
    now = directory_probe.time.time
    monkeypatch.setattr(directory_probe.time, "time", lambda: now() + 5)
    clock = found_in(tmp_path)["clock of files"]
    assert clock.found.endswith("s behind this one's")
    assert clock.trouble == directory_probe.SKEWED


def test_what_is_no_directory_or_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match="missing is not a directory"):
        probe_directory(tmp_path / "missing")
    monkeypatch.setattr(directory_probe, "responds", lambda _: False)
    with pytest.raises(PdlaError, match="its storage has not answered for"):
        probe_directory(tmp_path)


def test_the_verb_prints_facts_and_what_follows(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path), "--json"])
    (answer,) = json.loads(done.stdout)["directories"]
    assert answer["directory"] == str(tmp_path)
    assert {tuple(fact) for fact in answer["facts"]} == {("name", "found", "trouble")}
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path)])
    assert done.stdout.splitlines()[0] == str(tmp_path)
    assert "  locks            open-file-description locks hold" in done.stdout.splitlines()


def compared(
    tmp_path: Path, directory: Path, before: str, *, after: str = "true", patience: int = 65
) -> subprocess.CompletedProcess[str]:
    """What two nodes say of a directory, for which each runs a command before, and one after."""
    program = tmp_path / "program"
    words = f"import sys, pdla.cli.node_comparison as it, pdla.cli; it.PATIENCE = {patience}; pdla.cli.main()"
    program.write_text(
        f'#!/bin/sh\n{before}\n{sys.executable} -c "{words}" doctor {directory} --json\nend=$?\n{after}\nexit $end\n'
    )
    program.chmod(0o755)
    command = [BIN / "mpiexec", "-n", "2", on_nodes(tmp_path, program)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def facts_of(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    assert not done.returncode, done.stderr
    return {fact["name"]: fact for fact in json.loads(done.stdout)["directories"][0]["facts"]}


def test_two_nodes_see_the_same(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    facts = facts_of(compared(tmp_path, tmp_path / "shared", "true"))
    assert facts["compared"]["found"] == "2 processes on node0, node1"
    found = [facts[name]["found"] for name in ("new files", "changes", "locks of all", "mappings of all")]
    assert found == ["seen at once by all"] * 2 + ["hold between all", "coherent"]
    assert facts["clocks of all"]["found"].startswith("within ")
    assert not [*(tmp_path / "shared").iterdir()]


def test_a_node_that_caches_attributes_sees_changes_late(tmp_path: Path) -> None:
    with ExitStack() as stack, bindfs(tmp_path) as mount:  # says whether it can be used at all
        subprocess.run(["umount", mount], check=True)
        stack.callback(lambda: mount.is_mount() and subprocess.run(["umount", mount], check=True))
        mounting = f"bindfs -o attr_timeout=3 {tmp_path / 'source'} {mount} >/dev/null 2>&1"
        facts = facts_of(compared(tmp_path, mount, mounting, after=f"umount {mount}"))
    assert facts["new files"]["found"] == "seen at once by all"
    assert facts["changes"]["found"].startswith("seen by all after ")
    assert facts["changes"]["trouble"].startswith("a change that another node made to an original may be missed")
    assert facts["locks of all"]["found"] == "do not hold between all"  # FUSE keeps them in each node's kernel
    assert facts["locks of all"]["trouble"] == "no --writes on several nodes"
    assert facts["mappings of all"]["found"] == "not coherent: each node sees its own"


def test_directories_of_one_name_that_differ(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    done = compared(tmp_path, tmp_path / "own", f"mount -t tmpfs own {tmp_path / 'own'}", patience=1)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(
        "own is not the same directory for all processes: a file that one made was not seen by all within 1 s"
    )
    assert done.stderr.count("pdla:") == 1


def test_a_directory_that_is_missing_on_one_node(tmp_path: Path) -> None:
    (tmp_path / "shared" / "deep").mkdir(parents=True)
    done = compared(
        tmp_path, tmp_path / "shared" / "deep", f"[ $(hostname) = node0 ] || mount -t tmpfs x {tmp_path / 'shared'}"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith("deep is not a directory")
