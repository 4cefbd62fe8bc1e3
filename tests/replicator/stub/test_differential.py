"""Random MPI-IO programs on random replicas: a redirected run sees, and leaves behind, what the native one does."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdla import config
from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, open_catalog
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator.builder import build
from pdla.replicator.mapfile import publish
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi

FILES, PHASES, LAUNCHES = 6, 6, 2
SERVERS, QUIET = 4, 2048


def random_signature(choose: random.Random, file: Path, size: int) -> Signature:
    """Loops that nest or overlap, run backwards or repeat, over the ranks or not, inside [QUIET, size)."""
    length = choose.choice([1, 7, 64, 96, 500])
    loops = []
    span = length
    for _ in range(choose.randint(0, 3)):
        count = choose.randint(1, 8)
        stride = choose.choice([span, span + choose.randint(1, 300), max(1, span // 2), 0])
        if span + stride * (count - 1) < (size - QUIET) // 2:
            loops.append(Loop(choose.choice([1, 1, -1]) * stride, count))
            span += stride * (count - 1)
    choose.shuffle(loops)
    rank_loops = choose.randint(0, min(1, len(loops)))
    low = sum(min(0, loop.stride * (loop.count - 1)) for loop in loops)
    start = choose.randrange(QUIET, size - span + 1) - low
    ranks = tuple(range(loops[0].count)) if rank_loops else (0,)
    return Signature(str(file), "read", True, start, length, tuple(loops), ranks, rank_loops)


def random_layout(choose: random.Random, signature: Signature, pool: Pool) -> Layout:
    groups = choose.choice([1, 2, 4])
    strips = tuple(choose.choice([0, 16, 100, 512]) for _ in range(SERVERS // groups))
    section = choose.choice([AccessMap.section(signature), choose.randint(1, 5000)])
    return Layout(pool.name, SERVERS, groups, strips if sum(strips) else (64,) * len(strips), section)


@dataclass
class Case:
    """The files of one seed, their copies for the native run, and their replicas."""

    directory: Path
    seed: int

    @property
    def map(self) -> Path:
        return self.directory / "map"

    def make(self, catalog: Catalog, pool: Pool) -> None:
        choose = random.Random(self.seed)
        (self.directory / "redirected").mkdir()
        for name in range(FILES):
            file = self.directory / "redirected" / str(name)
            size = choose.randint(5_000, 60_000)
            file.write_bytes(choose.randbytes(size))
            for _ in range(choose.randint(1, 4)):
                signature = random_signature(choose, file, size)
                build(signature, random_layout(choose, signature, pool), pool, catalog, map_path=self.map)
        publish(catalog, self.map)
        shutil.copytree(self.directory / "redirected", self.directory / "native")

    def run(
        self, mpi: Mpi, program: Path, library: Path, how: str, *, ranks: int, phases: tuple[int, int]
    ) -> list[str]:
        """What each rank saw."""
        out = self.directory / f"out-{how}-{phases[0]}"
        out.mkdir()
        settings = []
        if how == "redirected":
            settings = [f"PDLA_MAP={self.map}", f"PDLA_REPORT={out}", f"LD_PRELOAD={library}"]
        words = [self.directory / how, FILES, out / "rank", self.seed, *phases]
        mpi.run(mpi.command(ranks, "env", *settings, program, *map(str, words)))
        return [(out / f"rank.{rank}").read_text() for rank in range(ranks)]

    def replica_bytes(self) -> int:
        reports = [json.loads(path.read_text()) for path in self.directory.glob("out-*/*/*.json")]
        return sum(file["replica"]["bytes"] for report in reports for file in report["files"])


def first_difference(native: list[str], redirected: list[str]) -> str:
    for rank, (expected, seen) in enumerate(zip(native, redirected, strict=True)):
        for a, b in zip(expected.splitlines(), seen.splitlines(), strict=False):
            if a != b:
                return f"rank {rank}\nnative     {a}\nredirected {b}"
    return "" if native == redirected else "one run ended early"


def check(directory: Path, seed: int, mpi: Mpi, program: Path, library: Path, ranks: int) -> int:
    """Run program ``seed`` both ways, in several launches that find what the ones before left; the bytes redirected."""
    where = tuple(str(config.home() / "pools" / str(n)) for n in range(SERVERS))
    pool = Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 16, "directories", where)
    case = Case(directory, seed)
    directory.mkdir()
    with closing(open_catalog()) as catalog:
        case.make(catalog, pool)
    for launch in range(LAUNCHES):
        phases = (PHASES * launch, PHASES * (launch + 1))
        native = case.run(mpi, program, library, "native", ranks=ranks, phases=phases)
        redirected = case.run(mpi, program, library, "redirected", ranks=ranks, phases=phases)
        assert first_difference(native, redirected) == "", f"seed {seed}, {ranks} ranks"
    for name in map(str, range(FILES)):
        assert (directory / "redirected" / name).read_bytes() == (directory / "native" / name).read_bytes()
    return case.replica_bytes()


@pytest.mark.parametrize(("seed", "ranks"), [(1, 2), (2, 3)])
@pytest.mark.thorough(1)
def test_random_programs_see_the_same_redirected(
    mpi: Mpi, seed: int, ranks: int, tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    program = mpi.compile(REPOSITORY / "tests/programs/random_io.c", tmp_path / "random_io", "-Wall", "-Wextra")
    assert check(tmp_path / "case", seed, mpi, program, library, ranks) > 0
