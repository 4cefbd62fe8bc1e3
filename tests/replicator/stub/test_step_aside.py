"""Redirection steps aside where the original is in memory and quicker than its replicas, or in the better order."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.compilers import GCC, REPOSITORY, compiled
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import Mpi, available_mpis

ASIDE = "the original is in memory and quicker"
DETOURS = "in another order in the replica"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

Phase = tuple[int, int, int, bool]
"""Calls, ns of each by the replica and by the original, and whether the original is in memory."""


Simulate = Callable[..., list[tuple[int, int]]]


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """For each phase: the calls by the original, and the ns of all."""
    program = tmp_path_factory.mktemp("quicker") / "quicker_way"
    compiled([*GCC, *FLAGS, "-o", program, REPOSITORY / "tests/programs/quicker_way.c"])

    def run(*phases: Phase, wait: int = 4) -> list[tuple[int, int]]:
        lines = "".join(f"{calls} {replica} {original} {memory:d}\n" for calls, replica, original, memory in phases)
        said = subprocess.run([program, str(wait)], input=lines, capture_output=True, text=True, check=True).stdout
        return [(int(original), int(took)) for original, took in (line.split() for line in said.splitlines())]

    return run


@pytest.mark.parametrize("calls", [2_000, 100_000, 3_000_000])
def test_the_quicker_original_is_read_and_trials_cost_less_than_a_hundredth(calls: int, simulate: Simulate) -> None:
    ((original, took),) = simulate((calls, 2000, 1200, True))
    assert original > 0.98 * calls
    assert took <= 1.01 * 1200 * calls


@pytest.mark.parametrize("slower", [2, 100, 100_000])
def test_a_replica_that_is_quicker_is_read_and_trials_cost_less_than_a_hundredth(
    slower: int, simulate: Simulate
) -> None:
    ((original, took),) = simulate((1_000_000, 2000, 2000 * slower, True), wait=512)
    assert original <= 44
    assert took <= max(1.01 * 2000 * 1_000_000, 2000 * 1_000_000 + 22 * 2000 * slower)


def test_an_original_that_is_not_in_memory_is_never_tried(simulate: Simulate) -> None:
    assert simulate((1_000_000, 2000, 1200, False)) == [(0, 2000 * 1_000_000)]


def test_an_original_that_becomes_slow_is_left_after_some_ticks_of_the_clock(simulate: Simulate) -> None:
    _, (original, took) = simulate((100_000, 2000, 1200, True), (100_000, 2000, 10_000_000, False))
    assert original <= 3
    assert took <= 2000 * 100_000 + 3 * 10_000_000


def test_an_original_that_is_in_memory_again_is_read_again(simulate: Simulate) -> None:
    phases = (10_000, 2000, 1200, True), (10_000, 2000, 10_000_000, False), (200_000, 2000, 1200, True)
    assert simulate(*phases)[2][0] > 100_000


def test_times_that_are_nearly_equal_leave_the_call_to_mpi(simulate: Simulate) -> None:
    ((original, _),) = simulate((100_000, 2000, 2100, True))
    assert original > 0.98 * 100_000


def read_in_order(mpi: Mpi, directory: Path, library: Path, aside: str, each: int) -> tuple[bytes, dict[str, int]]:
    """What a program read in calls of ``each`` bytes, and its calls."""
    program = [directory / "in_order", directory / "original", 1 << 24, each]
    return read(mpi, directory, library, aside, program)


def read(
    mpi: Mpi, directory: Path, library: Path, aside: str, program: Sequence[object]
) -> tuple[bytes, dict[str, int]]:
    """What a program printed, and its calls: redirected ones, and others by reason."""
    (directory / "reports").mkdir()
    variables = {"PDLA_MAP": directory / "map", "PDLA_REPORT": directory / "reports", "LD_PRELOAD": library}
    settings = [f"{name}={value}" for name, value in {**variables, "PDLA_STEP_ASIDE": aside}.items()]
    words = [*map(str, mpi.command(1, "env", *settings, *program))]
    said = subprocess.run(words, env={**os.environ, **mpi.env}, stdout=subprocess.PIPE, check=True).stdout
    (path,) = (directory / "reports").glob("*/*.json")
    (file,) = json.loads(path.read_text())["files"]
    return said, {"redirected": file["redirected"]["calls"], **{one["why"]: one["calls"] for one in file["passed"]}}


@pytest.mark.parametrize("aside", ["0", "1"])
@pytest.mark.thorough(1)
def test_a_program_reads_the_same_bytes_where_redirection_steps_aside(
    mpi: Mpi, tmp_path: Path, library: Path, aside: str
) -> None:
    mpi.compile(REPOSITORY / "tests/programs/in_order.c", tmp_path / "in_order")
    content = os.urandom(1 << 24)
    (tmp_path / "original").write_bytes(content)
    # Each call takes eight reads of the replica, and one of the original.
    replica = Replica(len(content), 0, len(content), strips=[512] * 8).build(content, tmp_path / "replica")
    write_map(tmp_path / "map", [(tmp_path / "original", [replica])])
    said, calls = read_in_order(mpi, tmp_path, library, aside, 4096)
    assert said == content
    assert sum(calls.values()) == 4096
    if aside == "0":
        assert calls == {"redirected": 4096}
    else:
        assert calls["redirected"] >= 4
        assert calls[ASIDE] >= 100


@pytest.mark.parametrize(("each", "served"), [(64, False), (48, True), (32, True)])
def test_a_large_call_that_the_replica_has_in_many_small_pieces_is_left(
    mpi: Mpi, tmp_path: Path, library: Path, each: int, served: bool
) -> None:
    """As after a change of the program's pattern: a call of 64 KiB has four pieces, one of 48 KiB three."""
    mpi.compile(REPOSITORY / "tests/programs/in_order.c", tmp_path / "in_order")
    content, piece = os.urandom(1 << 24), (each << 10) // (3 if each == 48 else 4)
    (tmp_path / "original").write_bytes(content)
    count = len(content) // piece
    # The pieces that a call reads are far apart in the replica.
    extents = [(n * piece, piece, (n * 1021 % count) * piece) for n in range(count)]
    replica = Replica(count * piece, extents=extents).build(content, tmp_path / "replica")
    write_map(tmp_path / "map", [(tmp_path / "original", [replica])])
    said, calls = read_in_order(mpi, tmp_path, library, "0", each << 10)
    assert said == content
    assert max(calls, key=lambda one: calls[one]) == (DETOURS if served else "in too many pieces in the replica")
    assert calls["redirected"] == (8 if served else 0)


# ---- a replica in the order of another program -----------------------------------------------------------------------

PIECE, ROWS, COLUMNS = 4096, 256, 4

READING = """
import sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_RDONLY)
piece = bytearray(int(sys.argv[2]))
for place in sys.argv[3:]:
    file.Read_at(int(place) * len(piece), piece)
    sys.stdout.buffer.write(piece)
file.Close()
"""


@pytest.mark.parametrize(
    ("places", "left"),
    [
        pytest.param(range(40), 32, id="in order"),
        pytest.param([*range(20), *range(100, 80, -1)], 12, id="in order, then backwards"),
        pytest.param(range(0, 80, 2), 32, id="every second piece"),
        pytest.param(range(0, 120, 3), 0, id="every third piece"),
        pytest.param(range(0, 40 * COLUMNS, COLUMNS), 0, id="in the order of the replica"),
    ],
)
def test_small_reads_in_the_order_of_the_original_only_are_left_to_mpi(
    tmp_path: Path, library: Path, places: Iterable[int], left: int
) -> None:
    """The replica has one column of the file after the other."""
    mpi = available_mpis()[0].values[0]
    (tmp_path / "program.py").write_text(READING)
    content = os.urandom(PIECE * ROWS * COLUMNS)
    (tmp_path / "original").write_bytes(content)
    loops = [(ROWS, COLUMNS * PIECE, PIECE), (COLUMNS, PIECE, ROWS * PIECE)]
    replica = Replica(len(content), 0, PIECE, loops=loops).build(content, tmp_path / "replica")
    write_map(tmp_path / "map", [(tmp_path / "original", [replica])])
    program = [mpi.python, tmp_path / "program.py", tmp_path / "original", PIECE, *places]
    said, calls = read(mpi, tmp_path, library, "0", program)
    assert said == b"".join(content[place * PIECE :][:PIECE] for place in places)
    assert calls.get(DETOURS, 0) == left
    assert calls["redirected"] == 40 - left
