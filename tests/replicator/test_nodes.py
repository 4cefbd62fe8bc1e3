"""Work of two nodes on one file excludes each other, although its device has another number on each node."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, Occurrence, Replica, Run, open_catalog
from pdla.layouts.striping import locate
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.policies.planfile import read_plan, write_plan
from pdla.replicator.queued_plans import enqueue
from tests.support.command_line import AWAKE, PDLA
from tests.support.mpi import REPOSITORY, Mpi, available_mpis
from tests.support.namespace_nodes import Node, at_once
from tests.support.waiting import PATIENCE

ROUNDS = int(os.environ.get("PDLA_TEST_ROUNDS", "2"))
in_rounds = pytest.mark.timeout(90 + 15 * ROUNDS)
RANKS, ROWS, PIECE, HEADER = 3, 200, 512, 512  # as in tests/programs/rounds.c
ANYTIME = ("--idle-load", "1", "--idle-io", "1T")

HOLD = """
import sys
from pathlib import Path
from pdla.catalog import open_catalog
from pdla.replicator.copying import opened
from pdla.replicator.identity import leased

path = Path(sys.argv[1])
with opened(path) as file, leased(open_catalog(), file, path):
    print(path.stat().st_dev, path.stat().st_ino, flush=True)
    sys.stdin.read()
"""


class Place:
    """A file that two nodes have, a PDLA_HOME that they share, and a plan for the reads and the writes of the file."""

    def __init__(self, directory: Path, nodes: tuple[Node, Node], catalog: Catalog) -> None:
        self.directory, self.nodes, self.catalog = directory, nodes, catalog
        self.original = directory / "shared/data"
        self.content = np.random.default_rng(1).bytes(HEADER + RANKS * ROWS * PIECE)
        pieces = np.frombuffer(self.content, np.uint8)[HEADER:].reshape(ROWS, RANKS, PIECE)
        self.wanted = pieces.transpose(1, 0, 2).tobytes()
        # Where the nodes' mounts have it: this process has none.
        (directory / "layers/upper/data").write_bytes(self.content)
        self.home = directory / "home"
        self.environment = {**os.environ, "PDLA_HOME": str(self.home)}

    def plan(self, op: str) -> Path:
        """A replica for one pattern, which has all but the header."""
        loops = (Loop(PIECE, RANKS), Loop(RANKS * PIECE, ROWS))
        signature = Signature(str(self.original), op, False, HEADER, PIECE, loops, tuple(range(RANKS)), 1)  # type: ignore[arg-type]
        where = tuple(str(self.directory / "pools" / name) for name in "ab")
        for one in where:
            Path(one).mkdir(parents=True, exist_ok=True)
        pool = Pool("disks", "hdd", 2, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", where)
        layout = Layout("disks", 2, 1, (4096, 4096), AccessMap.section(signature))
        pattern = PatternPlan(signature, (Candidate("disks", layout, Cost(0.0, 0.0, 0.0, 0.0)),), 0, "")
        made = Plan("pdla-h", "app", (pattern,), (), Cluster((pool,), "disks", 2, 65536, 4, 0.0, 0.0, 0.0, "test"))
        write_plan(made, path := self.directory / f"{op}.json")
        return path

    def queue(self, plan: Path) -> None:
        """For the daemons."""
        made = read_plan(plan)
        run = Run("app", RANKS, plan.name, "/t.h5", "csv", None, "", (), {}, (str(self.original),), 1, 1)
        self.catalog.runs.record(run, [Occurrence(one.signature, {}) for one in made.patterns])
        enqueue(self.catalog, made)

    def both(self, *words: str | Path) -> list[tuple[int, str]]:
        """Run ``pdla WORDS`` on both nodes at once: exit codes and output."""
        done = at_once(self.nodes, *AWAKE, *words, env=self.environment)
        return [(one.returncode, one.stdout + one.stderr) for one in done]

    def on(self, number: int, *words: str | Path) -> str:
        """What ``pdla WORDS`` prints on a node."""
        return self.nodes[number].run("env", f"PDLA_HOME={self.home}", PDLA, *words)

    def rewrite(self) -> None:
        """Zeros again."""
        self.nodes[0].run(
            "dd", "if=/dev/zero", f"of={self.original}", f"bs={len(self.content)}", "count=1", "conv=notrunc"
        )

    def rounds(self) -> set[int]:
        """The rounds of the words that are in their places."""
        table = np.frombuffer((self.directory / "layers/upper/data").read_bytes(), np.uint64)[HEADER // 8 :]
        table = table.reshape(ROWS, RANKS, PIECE // 8)
        rows, ranks = np.indices((ROWS, RANKS), dtype=np.uint64)
        assert (table & np.uint64(0xFFFFFFFF) == (ranks << np.uint64(16) | rows)[:, :, None]).all()
        return set((table >> np.uint64(32)).ravel().tolist())


@pytest.fixture
def place(tmp_path: Path, nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    catalog = open_catalog()
    yield Place(tmp_path, nodes, catalog)
    catalog.close()


def held(replica: Replica) -> bytes:
    """The bytes of a replica."""
    files = [component.path.read_bytes() for component in replica.components]
    pieces = locate(replica.rule, 0, replica.size)
    return b"".join(files[piece.component][piece.offset :][: piece.length] for piece in pieces)


def said_of(text: str) -> dict[str, Any]:
    """The JSON in the output."""
    return next(json.loads(line) for line in text.splitlines() if line.startswith("{"))


def refusal(path: Path) -> str:
    """The error of the second one."""
    return rf"node\d:\d+:\d+@\S+ works on {re.escape(str(path))}: wait for it"


def test_h48_two_nodes_have_one_lease_of_a_file(place: Place) -> None:
    """While one holds it the other builds no replica; the error names the file."""
    one, other = place.nodes
    holder = one.start(sys.executable, "-c", HOLD, place.original, env=place.environment)
    assert holder.stdout
    device, inode = holder.stdout.readline().split()
    assert other.run("stat", "-c", "%d %i", place.original).split() != [device, inode]
    assert other.run("stat", "-c", "%i", place.original).strip() == inode
    refused = other.start(PDLA, "replicate", place.plan("read"), env=place.environment)
    assert re.search(refusal(place.original), refused.communicate(timeout=PATIENCE)[1])
    assert refused.returncode != 0 and place.catalog.replicas.find() == []
    holder.communicate(timeout=PATIENCE)


@in_rounds
def test_h48_replicas_are_built_on_one_node_at_a_time(place: Place) -> None:
    """By two commands, or by two daemons: one builds, and the other waits or finds the replica."""
    plan = place.plan("read")
    for number in range(ROUNDS):
        if number % 2:
            place.queue(plan)
            done = place.both("daemon", "--once", "--json", *ANYTIME)
            built = [one for code, said in done for one in said_of(said)["built"]]
        else:
            done = place.both("replicate", plan, "--json")
            built = [one for code, said in done if code == 0 for one in said_of(said)["replicas"]]
            assert all(code == 0 or re.search(refusal(place.original), said) for code, said in done)
        (replica,) = place.catalog.replicas.find()
        assert ([one["id"] for one in built if not one["kept"]], replica.state) == ([replica.id], "valid")
        assert all("1 of 1 replicas" in place.on(node, "verify") for node in (0, 1))
        assert held(replica) == place.wanted
        place.on(number % 2, "rm", str(replica.id))


@in_rounds
def test_h48_what_two_nodes_write_is_written_back_once(place: Place, library: Path) -> None:
    """Two jobs under a lease at once, which write the same words, and then two syncs at once."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    program = mpi.compile(REPOSITORY / "tests/programs/rounds.c", place.directory / "once", "-DROUNDS=1")
    place.on(0, "replicate", place.plan("write"))
    for _ in range(ROUNDS):
        place.rewrite()
        command = mpi.command(RANKS, program, place.original, place.directory / "said", "close")
        assert [(code, said) for code, said in place.both("run", "--writes", "lease", "--", *command) if code] == []
        synced = place.both("sync")
        assert all(
            code == 0 or re.search("is writing|works on|is doing the write-back", said) for code, said in synced
        ), synced
        assert place.rounds() == {1}
