"""The library and programs with clang's sanitizers: threads that share a handle, and every kind of call."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import redirected_reads, redirected_writes
from tests.support.compilers import compiled
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_library, unavailable

PROGRAMS = REPOSITORY / "tests/programs"
# ThreadSanitizer's own clone() takes a process that shares memory for a copy, and then forbids new threads. glibc's
# has a second name. The library calls it where a FUSE file system is mounted.
DEFINES = {"thread": ["-Dclone=__clone"]}
# Of the MPI libraries, which are not compiled with them, they know too little to find leaks.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "history_size=4"}


class Sanitized:
    """What one sanitizer needs: the library and programs that it is compiled into."""

    def __init__(self, sanitizer: str, directory: Path) -> None:
        if shutil.which("clang") is None:
            unavailable("the sanitizers need clang, which is not installed")
        (mpi,) = available_mpis()[0].values
        assert isinstance(mpi, Mpi)
        self.directory = directory
        self.flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
        self.mpi = replace(mpi, env={**mpi.env, **OPTIONS})
        # The program has what the sanitizer defines.
        flags = ["-O0", "-Wl,-z,undefs", *self.flags, *DEFINES.get(sanitizer, [])]
        self.library = build_library(directory / "libpdla.so", *flags, compiler="clang")

    def compile(self, source: str) -> Path:
        program = self.directory / source.removesuffix(".c")
        command = [self.mpi.mpicc, "-O1", "-g", "-pthread", *self.flags, PROGRAMS / source, "-o", program]
        return compiled(command, {**os.environ, "MPICH_CC": "clang"})


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return Sanitized("address,undefined", tmp_path_factory.mktemp("addresses"))


@pytest.fixture(scope="module")
def races(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return Sanitized("thread", tmp_path_factory.mktemp("races"))


@pytest.mark.thorough
def test_no_read_leaves_its_memory(addresses: Sanitized, tmp_path: Path) -> None:
    case = redirected_reads.Case(addresses.mpi, addresses.compile("reads.c"), addresses.library, tmp_path)
    case.publish(case.columns(strips=[64, 32, 48]), Replica(size=900, extents=[(600, 400, 0), (5000, 500, 400)]))
    seen, reports = case.run(*redirected_reads.STEPS, "writable", "write-by-last", "look", ranks=2, redirected=True)
    assert seen and redirected_reads.total(reports, "replica", "bytes") > 20000


def test_no_write_leaves_its_memory(addresses: Sanitized, tmp_path: Path) -> None:
    case = redirected_writes.Case(addresses.mpi, addresses.compile("writes.c"), addresses.library, tmp_path)
    case.prepare(redirected_writes.columns(strips=[1000, 500]))
    steps = [
        "open-both",
        *redirected_writes.FREE,
        "visible",
        "shrink",
        "visible",
        "strided",
        "close",
        "open-read",
        "close",
    ]
    _, reports = case.run("lease", *steps, ranks=2)
    assert redirected_writes.total(reports, "redirected") > 0


@pytest.mark.thorough
def test_threads_that_read_do_not_race(races: Sanitized, tmp_path: Path) -> None:
    case = redirected_reads.Case(races.mpi, races.compile("reads.c"), races.library, tmp_path)
    case.publish(case.columns(strips=[50, 40]))
    _, reports = case.run("threads", "threads-read-on", ranks=2, redirected=True)
    files = [report["files"][0] for report in reports]
    left = [sum(one["calls"] for one in file["passed"]) for file in files]
    assert [file["redirected"]["calls"] + calls for file, calls in zip(files, left, strict=True)] == [1000, 1000]


@pytest.mark.parametrize("mode", ["original", "lease"])
def test_threads_that_share_a_handle_do_not_race(races: Sanitized, tmp_path: Path, mode: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(i % 251 for i in range(4096)))
    reading = Replica(size=4096, extents=[(0, 1000, 3096), (1000, 3096, 0)]).build(other.read_bytes(), tmp_path / "r")
    writing = Replica(size=1152, length=16, loops=[(12, 96, 16), (6, 16, 192)], strips=[100, 60]).prepare(
        tmp_path / "w"
    )
    write_map(tmp_path / "map", [(other, [reading])], targets=[(tmp_path / "all", [writing])])
    reports = run_crowd(races, tmp_path, mode)
    assert sum(file["redirected"]["calls"] for report in reports for file in report["files"]) == 2 * 3 * 12
    assert sum(file["redirected"]["calls"] > 0 for report in reports for file in report["writes"]) == 2 * (
        mode != "original"
    )


def run_crowd(races: Sanitized, directory: Path, mode: str) -> list[dict[str, Any]]:
    """The exit reports of tests/programs/crowd.c."""
    reports = directory / "reports"
    reports.mkdir()
    settings = [f"PDLA_MAP={directory / 'map'}", f"PDLA_REPORT={reports}", f"PDLA_WRITES={mode}"]
    command = races.mpi.command(2, "env", *settings, f"LD_PRELOAD={races.library}", races.compile("crowd.c"), directory)
    races.mpi.run(command)
    return [json.loads(path.read_text()) for path in reports.glob("*/*.json")]
