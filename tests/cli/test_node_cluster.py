"""The whole loop on clusters of nodes that share one file system and one PostgreSQL, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdla import load
from tests.searches.killing_nodes import MODES as KILLED_MODES
from tests.searches.killing_nodes import STAGES, Killing
from tests.support.command_line import AWAKE, PDLA
from tests.support.loop_on_nodes import MODES, WRITES, WRITES_ONLY, Loop
from tests.support.mpi import Mpi, available_mpis, compile_preloaded
from tests.support.node_cluster import node_cluster
from tests.support.postgresql_server import new_database

THOROUGH = "PDLA_TEST_ROUNDS" in os.environ
"""As `make nodes` has it."""


@pytest.fixture
def loop(request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: str) -> Iterator[Loop]:
    nodes, per_node = request.param
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    with node_cluster(tmp_path, nodes) as cluster:
        yield Loop(cluster, mpi, new_database(postgresql_server), per_node)


def clusters(*shapes: tuple[int, int]) -> pytest.MarkDecorator:
    """Loops on so many nodes, with so many ranks on each."""
    return pytest.mark.parametrize("loop", shapes, ids=[f"{nodes}x{each}" for nodes, each in shapes], indirect=True)


@clusters((2, 2))
def test_nodes_share_files_and_a_network_and_nothing_else(loop: Loop) -> None:
    one, other = loop.cluster.nodes
    identities = [node.run("stat", "-c", "%d %i", loop.cluster.shared / "data").split() for node in (one, other)]
    assert identities[0][0] != identities[1][0]
    assert identities[0][1] == identities[1][1]
    for place in (Path("/dev/shm"), loop.cluster.ssd):
        one.run("touch", place / "mine")
        assert (one.run("ls", place), other.run("ls", place)) == ("mine\n", "")
    boots = [node.run("cat", "/proc/sys/kernel/random/boot_id") for node in (one, other)]
    assert boots[0] != boots[1]
    received = Path("/sys/class/net/eth0/statistics/rx_bytes")
    before = int(other.run("cat", received))
    loop.run(*loop.writer())
    assert int(other.run("cat", received)) - before > loop.size / 4  # ranks of both nodes exchange what they write


@clusters((2, 2), (4, 1), (8, 1)) if THOROUGH else clusters((2, 2))
@pytest.mark.thorough
def test_every_step_and_every_mode_gives_the_bytes_of_a_native_run(loop: Loop) -> None:
    loop.run(*loop.reader())
    read = loop.seen()
    loop.run(*loop.writer())
    written, wanted = loop.seen(), loop.result
    assert loop.build("reads", *loop.reader()) > 0
    assert loop.build("writes", *loop.writer(*WRITES_ONLY)) > 0
    assert loop.pdla("run", "--json", "--", *loop.reader())["replica_bytes"] == loop.size - 5
    assert loop.seen() == read
    for mode in MODES:
        loop.clear()
        steps = WRITES_ONLY if mode == "lease" else WRITES
        report = loop.pdla("run", *loop.options(mode), "--json", "--", *loop.writer(*steps))
        if mode == "lease":
            assert report["writes"][0]["left_bytes"] == loop.size - 5
            loop.pdla("sync", "--json", node=1)
        else:
            assert loop.seen() == written, mode
        assert loop.result == wanted, mode
        loop.run(PDLA, "run", *loop.options(mode), "--", *loop.reader())
        assert loop.seen() == read, mode


SMALL_DEMO = """
import importlib, sys
demo = importlib.import_module("pdla.cli.demo")
demo.SIDE, demo.SLABS = 512, (4, 256, 256)
demo.demo(["--directory", sys.argv[1], "--json"])
"""


@clusters((2, 2))
@pytest.mark.thorough
def test_the_demo_runs_on_two_nodes(loop: Loop) -> None:
    """Its mpiexec is told by variables to use both."""
    hosts = loop.directory / "machines"
    hosts.write_text("".join(f"{name}:{loop.per_node}\n" for name in loop.cluster.names))
    loop.environment |= {
        "HYDRA_HOST_FILE": str(hosts),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(loop.directory / "enter"),
    }
    said = loop.answer(loop.start(sys.executable, "-c", SMALL_DEMO, loop.directory / "demo"))
    assert said["identical"] is True
    # Tiles and columns, and slabs if the trace's times say that so few are worth a replica.
    assert said["bytes_from_replicas"] in (2 << 20, 3 << 20)
    for name in ("tiles", "slabs"):
        assert set(load(loop.directory / f"demo/{name}.h5").hosts) == set(loop.cluster.names)


@clusters((2, 1))
@pytest.mark.thorough
def test_a_daemon_on_each_node_builds_a_queued_replica_once(loop: Loop) -> None:
    assert loop.build("reads", *loop.reader(), build=False) == 0
    jobs = [
        loop.start(*AWAKE, "daemon", "--once", "--json", "--idle-load", "1", "--idle-io", "1T", node=node)
        for node in range(len(loop.cluster.nodes))
    ]
    built = [one["original"] for job in jobs for one in loop.answer(job)["built"] if not one["kept"]]
    assert built and len(built) == len(loop.pdla("status", "--json")["replicas"])
    assert loop.pdla("run", "--json", "--", *loop.reader())["replica_bytes"] == loop.size - 5


@clusters((2, 1))
def test_h54_what_a_rank_writes_beside_a_cache_needs_no_lock_of_other_nodes(loop: Loop, tmp_path: Path) -> None:
    """Data sieving would: it writes again what it has read between the pieces of a rank.

    File systems such as Lustre with localflock have no such locks, and neither have overlays. Without pdla no rank
    sieves in a collective call.
    """
    (calls := tmp_path / "calls").mkdir()
    loop.environment |= {
        "LD_PRELOAD": str(compile_preloaded("counted_calls", tmp_path)),
        "COUNTED": str(calls),
        "COUNTED_BELOW": str(loop.cluster.shared),
    }
    words = (*loop.options("e10 exchanged"), "--hint", "e10_cache_flush_flag=flush_onclose")
    report = loop.pdla("run", *words, "--json", "--", *loop.writer("write:0", "split:1", "iwrite:2"))
    assert {one["why"] for one in report["cache"]["refused"]} == {
        "nonblocking or split collective after exchanged pieces"
    }
    lines = [line for file in calls.iterdir() for line in file.read_text().splitlines()]
    assert f"open {loop.cluster.shared}/result" in lines
    assert [line for line in lines if line.startswith("lock")] == []


@pytest.fixture(scope="module")
def killing(tmp_path_factory: pytest.TempPathFactory, postgresql_server: str) -> Iterator[Killing]:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    with node_cluster(tmp_path_factory.mktemp("killed"), 2) as cluster:
        yield Killing(Loop(cluster, mpi, new_database(postgresql_server), 1))


@pytest.mark.parametrize("stage", STAGES if THOROUGH else ["trace", "replicate", "daemon", "lease"])
@pytest.mark.thorough(1)
def test_a_node_that_is_killed_loses_nothing_and_the_next_command_goes_on(killing: Killing, stage: str) -> None:
    killing.round(stage, 0.05)


@pytest.mark.parametrize("mode", KILLED_MODES if THOROUGH else ["e10"])
def test_h33_a_node_that_crashed_loses_at_most_what_was_not_synced(killing: Killing, mode: str) -> None:
    killing.round(mode, 0.1, crashed=True)
