"""Kill a build at random moments, and check that the replica from before or after it is complete and right.

python -m tests.searches.killing_builds [MOMENTS] [SEED]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pdla.accessmap import AccessMap
from pdla.catalog import open_catalog
from pdla.layouts.striping import locate
from pdla.model import Candidate, Cluster, Cost, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.replicator.builder import replicate
from pdla.replicator.mapfile import read_map
from pdla.replicator.verify import gc, verify

SERVERS = 4
PIECE, RANKS, COUNT = 4096, 4, 1024


class Place:
    """An original in ``directory``, and plans that give it a replica over all servers or in columns."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.original = directory / "data"
        self.original.write_bytes(np.random.default_rng(1).bytes(PIECE * RANKS * COUNT))
        content = np.fromfile(self.original, dtype=np.uint8)
        self.wanted = content.reshape(COUNT, RANKS, PIECE).transpose(1, 0, 2).tobytes()
        loops = (Loop(PIECE, RANKS), Loop(PIECE * RANKS, COUNT))
        self.signature = Signature(str(self.original), "read", True, 0, PIECE, loops, tuple(range(RANKS)), 1)
        where = tuple(str(self.home / f"pools/{number}") for number in range(SERVERS))
        self.pool = Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, 1 << 40, 4096, "directories", where)

    def plan(self, groups: int) -> Plan:
        nothing = Cost(0.0, 0.0, 0.0, 0.0)
        section = AccessMap.section(self.signature)
        layout = Layout("disks", SERVERS, groups, (65536,) * (SERVERS // groups), section)
        pattern = PatternPlan(self.signature, (Candidate("disks", layout, nothing),), 0, "")
        cluster = Cluster((self.pool,), "disks", SERVERS, 65536, 4, 0.0, 0.0, 0.0, "test")
        return Plan("pdla-h", "app", (pattern,), (), cluster)

    def files(self) -> set[Path]:
        """All files in the pool."""
        return {file for where in self.pool.where for file in Path(where).rglob("*") if file.is_file()}

    def replicate(self, groups: int) -> None:
        catalog = open_catalog()
        replicate(self.plan(groups), catalog)
        catalog.close()

    def killed(self, groups: int, after: float) -> bool:
        """Replicate in a process of its own and kill it; return whether it was still working."""
        child = os.fork()
        if not child:
            self.replicate(groups)
            os._exit(0)
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0

    def served(self) -> list[int]:
        """The groups of the replicas in the present map; all their bytes must be right."""
        found = []
        for replica in read_map(self.home / "replicas.map").replicas:
            files = [component.path.read_bytes() for component in replica.components]
            pieces = locate(replica.rule, 0, len(self.wanted))
            assert b"".join(files[p.component][p.offset :][: p.length] for p in pieces) == self.wanted
            found.append(replica.rule.groups)
        return found

    def check(self) -> None:
        """After gc there is one replica, the old or the new one, and no other file."""
        catalog = open_catalog()
        gc(catalog)
        assert verify(catalog, deep=True) == []
        (replica,) = catalog.replicas.find()
        catalog.close()
        assert replica.state == "valid"
        assert self.files() == {component.path for component in replica.components}
        assert self.served() == [replica.layout.groups]
        assert [file.name for file in self.home.glob("*.tmp")] == []


def kill_at_random(directory: Path, moments: int, seed: int = 0) -> None:
    """Kill so many builds, each of another layout, at random moments of their work."""
    place, chance = Place(directory), random.Random(seed)
    place.replicate(1)
    began = time.monotonic()
    place.replicate(SERVERS)
    duration = time.monotonic() - began
    killed = 0
    while killed < moments:
        (groups,) = place.served()
        killed += place.killed(1 if groups == SERVERS else SERVERS, chance.uniform(0, duration))
        place.check()
    place.replicate(2)
    place.check()
    assert place.served() == [2]


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]] or [200]
    with tempfile.TemporaryDirectory() as name:
        os.environ["PDLA_HOME"] = f"{name}/home"
        kill_at_random(Path(name), *arguments)
    print(f"killed at {arguments[0]} moments: nothing wrong, nothing left")
