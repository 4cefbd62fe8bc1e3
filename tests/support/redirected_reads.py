"""A program that reads, natively and from replicas: tests/programs/reads.c."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.compilers import REPOSITORY
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import Mpi, unavailable

PIECE, ROWS, START = 96, 60, 480
STEPS = ["independent", "ends", "views", "collective", "memory", "nonblocking", "others"]


@dataclass
class Case:
    """An original of four interleaved columns with its replicas, and the program that reads it, under one MPI."""

    mpi: Mpi
    program: Path
    library: Path
    directory: Path
    tail: int = 333

    @property
    def original(self) -> Path:
        return self.directory / "original"

    @property
    def map(self) -> Path:
        return self.directory / "map"

    def content(self) -> bytes:
        return random.Random(1).randbytes(START + 4 * ROWS * PIECE + self.tail)

    def columns(self, **layout: Any) -> Replica:
        """The columns one after another."""
        column = ROWS * PIECE
        loops = [(ROWS, 4 * PIECE, PIECE), (4, PIECE, column)]
        return Replica(size=4 * column, start=START, length=PIECE, loops=loops, **layout)

    def publish(self, *replicas: Replica) -> Path:
        self.original.write_bytes(self.content())
        built = [replica.build(self.content(), self.directory / f"replica{i}") for i, replica in enumerate(replicas)]
        return write_map(self.map, [(self.original, built)])

    def run(self, *steps: str, ranks: int = 4, redirected: bool) -> tuple[str, list[dict[str, Any]]]:
        """What the ranks saw, and the exit reports in the order of the ranks."""
        out = Path(tempfile.mkdtemp(dir=self.directory))
        settings = [f"PDLA_MAP={self.map}", f"PDLA_REPORT={out}", f"LD_PRELOAD={self.library}"] if redirected else []
        program = [self.program, self.original, out / "rank", *steps]
        self.mpi.run(self.mpi.command(ranks, "env", *settings, *program))
        seen = "".join(f"rank {i}\n{(out / f'rank.{i}').read_text()}" for i in range(ranks))
        reports = [json.loads(path.read_text()) for path in out.glob("*/*.json")]
        return seen, sorted(reports, key=lambda report: report["rank"])

    def said(self, **variables: str | Path) -> list[str]:
        """The library's standard error while two ranks open the file twice."""
        settings = [f"{name}={value}" for name, value in variables.items()]
        words = ["env", f"LD_PRELOAD={self.library}", *settings, self.program, self.original, self.directory / "rank"]
        command = self.mpi.command(2, *words, "independent", "writable", "independent")
        done = subprocess.run(
            command, env={**os.environ, **self.mpi.env}, capture_output=True, check=True, errors="surrogateescape"
        )
        return done.stderr.splitlines()

    def compare(self, *steps: str, ranks: int = 4) -> list[dict[str, Any]]:
        """Run natively and redirected, on the same bytes; the same must be seen. Returns the reports."""
        before = self.original.read_bytes()
        redirected, reports = self.run(*steps, ranks=ranks, redirected=True)
        after = self.original.read_bytes()
        if after != before:
            self.original.write_bytes(before)
        native, none = self.run(*steps, ranks=ranks, redirected=False)
        assert redirected == native
        assert self.original.read_bytes() == after
        assert len(reports) == ranks and none == []
        return reports

    def traced(self, replica: Replica, size: int, request: int, cached: bool = True) -> list[str]:
        """The calls on components of one rank that reads all of a file, of which there is a replica."""
        if not shutil.which("strace"):
            unavailable("strace is not installed")
        content = random.Random(2).randbytes(size)
        self.original.write_bytes(content)
        replica.build(content, self.directory / "striped")
        for component in replica.components:
            with component.open("rb") as file:
                os.fsync(file)
                if not cached:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        write_map(self.map, [(self.original, [replica])])
        program = self.mpi.compile(REPOSITORY / "tests/programs/in_order.c", self.directory / "in_order")
        log = self.directory / "calls"
        watch = ["strace", "-y", "-s0", "-o", log, "-e", "trace=pread64,preadv,preadv2,fadvise64"]
        settings = ["-E", f"PDLA_MAP={self.map}", "-E", f"LD_PRELOAD={self.library}"]
        words = [*watch, *settings, program, self.original, str(size), str(request)]
        assert subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout == content
        return [line for line in log.read_text().splitlines() if "/striped/" in line]

    def reads_of_components(self, strip: int, request: int) -> dict[int, int]:
        """How many reads each component serves."""
        calls = self.traced(over_four(strip, request), request, request)
        served = [component_of(call) for call in calls if re.search(r"pread.* = [1-9]", call)]
        return dict(sorted(Counter(served).items()))


def over_four(strip: int, size: int) -> Replica:
    """A replica of all of a file."""
    return Replica(size, 0, size, strips=[strip] * 4)


def component_of(call: str) -> int:
    """The number of the component in a line of strace."""
    return int(call.partition("/striped/")[2].partition(">")[0])


def total(reports: list[dict[str, Any]], part: str, key: str) -> int:
    return sum(file[part][key] for report in reports for file in report["files"])


def make_case(mpi: Mpi, directory: Path, library: Path, programs: Path) -> Case:
    program = programs / f"reads-{mpi.name}"
    if not program.exists():
        mpi.compile(REPOSITORY / "tests/programs/reads.c", program, "-Wall", "-Wextra", "-pthread")
    return Case(mpi, program, library, directory)
