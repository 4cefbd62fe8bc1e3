"""Programs that write through a cache of the node, natively and with it: tests/programs/cached.c."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.mpi import REPOSITORY, Mpi, build_coherence_library
from tests.support.namespace_nodes import on_nodes
from tests.support.waiting import PATIENCE

IMMEDIATE, ON_CLOSE = "flush_immediate", "flush_onclose"


@dataclass
class Ran:
    """What a run printed and left: what each rank saw, the file's bytes, and its exit reports on caches."""

    seen: list[str]
    bytes: bytes
    stderr: str
    caches: list[dict[str, Any]]

    def total(self, *names: str) -> int:
        """A figure of all processes."""
        found = 0
        for cache in self.caches:
            value: Any = cache
            for name in names:
                value = value[name]
            found += value
        return found

    @property
    def passed(self) -> set[str]:
        return {passed["why"] for cache in self.caches for passed in cache["passed"]}


@dataclass
class Case:
    """tests/programs/cached.c under one MPI, natively or with a cache."""

    mpi: Mpi
    program: Path
    libraries: str
    directory: Path

    @property
    def original(self) -> Path:
        return self.directory / "data"

    @property
    def cache(self) -> Path:
        return self.directory / "cache"

    @property
    def journals(self) -> list[Path]:
        return sorted((self.directory / "home/journals").glob("cache-*/*.journal/*.journal"))

    def variables(self, flush: str, **hints: str) -> dict[str, str]:
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        self.cache.mkdir(exist_ok=True)
        return {
            "LD_PRELOAD": self.libraries,
            "PDLA_HOME": str(home),
            "PDLA_MAP": str(home / "replicas.map"),
            "PDLA_REPORT": str(self.directory / "reports"),
            "PDLA_POLICY": "e10",
            "PDLA_E10_CACHE": "enable",
            "PDLA_E10_CACHE_PATH": str(self.cache),
            "PDLA_E10_CACHE_FLUSH_FLAG": flush,
            **hints,
        }

    def command(self, variables: Mapping[str, str], *steps: str, ranks: int) -> list[str]:
        """The command of a run; what the last one has said is removed."""
        for path in self.directory.glob("out.*"):
            path.unlink()
        words = ["env", *(f"{name}={value}" for name, value in variables.items())]
        return self.mpi.command(ranks, *words, self.program, self.original, self.directory / "out", *steps)

    def run(self, variables: Mapping[str, str], *steps: str, ranks: int = 3, fails: bool = False) -> Ran:
        """Run the steps on a file that stays from run to run."""
        shutil.rmtree(self.directory / "reports", ignore_errors=True)
        (self.directory / "reports").mkdir()
        command = self.command(variables, *steps, ranks=ranks)
        ran = subprocess.run(
            command, env={**os.environ, **self.mpi.env}, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert fails or ran.returncode == 0, ran.stderr
        reports = [json.loads(path.read_text()) for path in sorted((self.directory / "reports").glob("*/*.json"))]
        return Ran(
            [path.read_text() for path in sorted(self.directory.glob("out.*"))],
            self.original.read_bytes() if self.original.exists() else b"",
            ran.stderr,
            [cache for report in reports for cache in report["caches"]],
        )

    def natively(self, *steps: str, ranks: int = 3, fails: bool = False, **variables: str) -> Ran:
        self.original.unlink(missing_ok=True)
        return self.run(variables, *steps, ranks=ranks, fails=fails)

    def same(self, flush: str, *steps: str, ranks: int = 3, **hints: str) -> Ran:
        """Run the steps natively and with a cache; what differs is an error."""
        native = self.natively(*steps, ranks=ranks, **{name: hints[name] for name in hints if "PDLA" not in name})
        self.original.unlink(missing_ok=True)
        cached = self.run(self.variables(flush, **hints), *steps, ranks=ranks)
        assert cached.seen == native.seen
        assert cached.bytes == native.bytes
        assert cached.total("dirty") == 0 and {cache["error"] for cache in cached.caches} == {""}
        assert list(self.cache.iterdir()) == [] and self.journals == []
        return cached


def make_case(mpi: Mpi, directory: Path, library: Path, programs: Path) -> Case:
    program, beside = programs / f"cached-{mpi.name}", programs / "libpdla-coherence.so"
    if not program.exists():
        mpi.compile(REPOSITORY / "tests/programs/cached.c", program, "-Wall", "-Wextra")
    if not beside.exists():
        build_coherence_library(beside)
    return Case(mpi, program, f"{library}:{beside}", directory)


STEPS = {
    "a checkpoint": ["write:0", "write:1", "write:2"],
    "its own bytes": ["write:0", "read:0", "again:0", "read:0", "write:1", "read:1", "read:0"],
    "others' after a barrier": ["write:0", "barrier", "other:0", "barrier", "again:0", "barrier", "other:0"],
    "others' after a sync": ["write:0", "sync", "barrier", "sync", "other:0", "all:0"],
    "collective reads": ["write:0", "all:0", "again:0", "all:0"],
    "holes": ["holes:0", "holes:1", "other:0"],
    "independent writes between": ["write:0", "one:0", "barrier", "read:0", "write:1", "one:0", "all:1"],
    "nonblocking and split": ["iwrite:0", "read:0", "split:1", "read:1", "iwrite:1", "split:0", "all:0"],
    "memory in parts": ["vector:0", "vector:1", "other:0"],
    "shared file pointers": ["write:0", "ordered", "write:1"],
    "a close between": ["write:0", "reopen", "other:0", "again:0", "reopen", "other:0", "write:3"],
}

SIZES = {
    "sizes": ["write:0", "barrier", "size", "write:2", "barrier", "size", "end", "stat", "write:4", "barrier", "end"],
    "a file that is cut off": ["write:0", "write:1", "cut:30000", "size", "cut:5000", "barrier", "stat", "all:0"],
}

AGAIN = {
    "written again": ["write:0", "again:0", "write:1", "again:1", "again:0", "write:0"],
    "written again after it went home": ["write:0", "nap:150", "again:0", "nap:150", "write:0", "read:0"],
    "overlapping pieces": ["write:0", "overlap:0", "read:0", "overlap:0", "barrier", "other:0"],
}


def make_nodes(mpi: Mpi, directory: Path, library: Path, programs: Path) -> Case:
    case = make_case(mpi, directory, library, programs)
    return Case(mpi, on_nodes(directory, case.program), case.libraries, directory)
