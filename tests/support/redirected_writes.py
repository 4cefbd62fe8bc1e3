"""A program that writes, natively and to replicas: tests/programs/writes.c."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pdla.replicator.journals import paths_in
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY, Mpi

PIECE, ROWS, START = 96, 60, 480


def columns(**layout: Any) -> Replica:
    """The four columns that the program writes, one after another."""
    column = ROWS * PIECE
    loops = [(ROWS, 4 * PIECE, PIECE), (4, PIECE, column)]
    return Replica(size=4 * column, start=START, length=PIECE, loops=loops, **layout)


@dataclass
class Case:
    """A file that does not exist yet, the replicas for its writes, and the program that writes it, under one MPI."""

    mpi: Mpi
    program: Path
    library: Path
    directory: Path

    @property
    def original(self) -> Path:
        return self.directory / "original"

    @property
    def journals(self) -> list[Path]:
        return paths_in(self.directory / "journals" / "original")

    def prepare(self, *replicas: Replica, reading: Sequence[Replica] = ()) -> None:
        made = [replica.prepare(self.directory / f"replica{i}") for i, replica in enumerate(replicas)]
        files = [(self.original, reading)] if reading else []
        write_map(self.directory / "map", files, targets=[(self.original, made)])

    def prepare_anew(self, replica: Replica) -> None:
        """With another replica."""
        shutil.rmtree(self.directory / "replica0")
        self.prepare(replica)

    def run(
        self, mode: str, *steps: str, ranks: int = 4, watch: Sequence[str | Path] = ()
    ) -> tuple[str, list[dict[str, Any]]]:
        """What the ranks saw, and the parts on writes of their exit reports; ``mode`` "native": without the library."""
        out = Path(tempfile.mkdtemp(dir=self.directory))
        settings = [
            *(f"PDLA_MAP={self.directory / 'map'}", f"PDLA_REPORT={out}"),
            *(f"PDLA_WRITES={mode}", f"LD_PRELOAD={self.library}"),
        ]
        words = [self.program, self.original, out / "rank", *steps]
        self.mpi.run(self.mpi.command(ranks, *watch, "env", *(settings if mode != "native" else []), *words))
        seen = "".join(f"rank {i}\n{(out / f'rank.{i}').read_text()}" for i in range(ranks))
        reports = sorted((json.loads(path.read_text()) for path in out.glob("*/*.json")), key=lambda one: one["rank"])
        return seen, [file for report in reports for file in report["writes"]]

    def compare(
        self,
        *steps: str,
        ranks: int = 4,
        before: bytes | None = None,
        mode: str = "close",
        watch: Sequence[str | Path] = (),
    ) -> list[dict[str, Any]]:
        """Run natively and redirected; the same must be seen, and be in the file."""
        results = []
        for how in ("native", mode):
            self.original.unlink(missing_ok=True)
            if before is not None:
                self.original.write_bytes(before)
            seen, reports = self.run(how, *steps, ranks=ranks, watch=watch)
            results.append((seen, self.original.read_bytes() if self.original.exists() else None))
        assert results[0] == results[1]
        assert self.journals == []
        return reports


def total(reports: list[dict[str, Any]], part: str, key: str = "bytes") -> int:
    return sum(report[part][key] for report in reports)


def make_case(mpi: Mpi, directory: Path, library: Path, programs: Path) -> Case:
    program = programs / f"writes-{mpi.name}"
    if not program.exists():
        mpi.compile(REPOSITORY / "tests/programs/writes.c", program, "-Wall", "-Wextra")
    case = Case(mpi, program, library, directory)
    case.prepare(columns(strips=[1000, 500]))
    return case


def halves() -> list[Replica]:
    """Two columns each, backwards."""
    loops = [(ROWS, 4 * PIECE, -PIECE), (2, PIECE, ROWS * PIECE)]
    half = Replica(size=2 * ROWS * PIECE, length=PIECE, replica_start=(ROWS - 1) * PIECE, loops=loops, strips=[700])
    return [replace(half, start=START + first * PIECE, components=[]) for first in (0, 2)]


FREE = [
    "joining",
    "strided",
    "twice",
    "backwards",
    "pointer",
    "collective",
    "at-all",
    "nonblocking",
    "split",
    "header",
    "external",
]

FREE += ["own-reads", "again", "shared", "ordered", "sync", "size", "grow", "misuse"]
