"""Reads past the end of a file: the replica holds the bytes that the file has, and the program sees what it sees
natively."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.clusters import SEEKING_DISKS
from tests.support.command_line import Launching
from tests.support.mpi import Mpi, available_mpis

RANKS, PIECE, RECORD, RECORDS = 4, 1000, 100_000, 11
WHOLE = RANKS * RECORD * RECORDS
HELD = RECORD // 2
"""Bytes of the last record of a rank that the file has; what is behind them in the memory is not defined."""

# Each rank reads records through a view with holes. It says what it got of each: the status, and a checksum.
PROGRAM = f"""
import sys, zlib
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
view = MPI.BYTE.Create_contiguous({PIECE}).Create_resized(0, {PIECE} * world.size).Commit()
record = np.empty({RECORD}, dtype=np.uint8)
status, said = MPI.Status(), []
for path in sys.argv[1:]:
    file = MPI.File.Open(world, path, MPI.MODE_RDONLY)
    file.Set_view({PIECE} * world.rank, MPI.BYTE, view)
    for number in range({RECORDS}):
        file.Read(record, status)
        said.append((status.Get_elements(MPI.BYTE), file.Get_position(), zlib.crc32(record[:{HELD}])))
    file.Close()
for line in world.gather(said) or ():
    print(*line)
"""


class Records:
    """The program and its files, which end within the last record of each rank."""

    def __init__(self, mpi: Mpi, directory: Path, size: int, files: int = 1) -> None:
        self.pdla = Launching(directory, mpi.env)
        self.files, program = [directory / f"records{number}" for number in range(files)], directory / "program.py"
        for file in self.files:
            file.write_bytes(np.random.default_rng(4).bytes(size))
        program.write_text(PROGRAM)
        self.words = mpi.command(RANKS, mpi.python, program, *self.files)
        self.pdla.home.mkdir()
        self.cluster = self.pdla.home / "cluster.toml"
        self.cluster.write_text(SEEKING_DISKS.replace("home/", f"{self.pdla.home}/"))
        self.native = mpi.run(self.words, directory)

    def plan(self) -> None:
        self.pdla.run("trace", "-o", "run.h5", "--", *self.words)
        self.pdla.run("plan", "run.h5", "--simulate", "0", "-o", "plan.json")

    def is_as_natively(self, replica_bytes: int) -> bool:
        *said, report = self.pdla.run("run", "--json", "--", *self.words).stdout.splitlines(keepends=True)
        return ("".join(said), json.loads(report)["replica_bytes"]) == (self.native, replica_bytes)


@pytest.mark.parametrize("mpi", available_mpis(), indirect=True)
@pytest.mark.parametrize("cut", [RANKS * HELD, RANKS * HELD - 300], ids=["between", "within"])
def test_h11_a_replica_holds_what_the_file_has_of_a_pattern_that_goes_on(mpi: Mpi, tmp_path: Path, cut: int) -> None:
    """The file ends between two pieces, or within one."""
    records = Records(mpi, tmp_path, WHOLE - cut)
    records.plan()
    (built,) = records.pdla.json("replicate", "plan.json", "--json")["replicas"]
    assert built["bytes"] <= WHOLE - cut
    assert records.is_as_natively(RANKS * RECORD * (RECORDS - 1))
    assert records.pdla.json("verify", "--json")["findings"] == []
    (kept,) = records.pdla.json("replicate", "plan.json", "--json")["replicas"]
    assert kept == built | {"kept": True, "seconds": kept["seconds"]}


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_h20_a_file_that_has_grown_since_is_read_itself(mpi: Mpi, tmp_path: Path) -> None:
    records = Records(mpi, tmp_path, WHOLE - RANKS * HELD)
    records.plan()
    records.pdla.run("replicate", "plan.json")
    with records.files[0].open("ab") as file:
        file.write(bytes([1]) * RANKS * HELD)
    records.native = mpi.run(records.words, tmp_path)
    assert records.is_as_natively(0)


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_the_verb_builds_the_rest_of_a_plan_and_says_what_it_could_not_build(mpi: Mpi, tmp_path: Path) -> None:
    records = Records(mpi, tmp_path, WHOLE - RANKS * HELD, files=2)
    records.plan()
    records.files[0].unlink()
    failed = records.pdla.run("replicate", "plan.json", code=1)
    assert failed.stderr == f"pdla: cannot read the original {records.files[0]}: No such file or directory\n"
    (line,) = failed.stdout.splitlines()
    assert line.startswith("replica 1 of records1: ")


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_learning_builds_a_replica_of_what_the_file_has(mpi: Mpi, tmp_path: Path) -> None:
    records = Records(mpi, tmp_path, WHOLE - RANKS * HELD)
    records.pdla.run("run", "--learn", "--", *records.words)
    records.pdla.run("learn")
    assert [one["kind"] for one in records.pdla.json("log", "--json")["decisions"]] == ["learned", "planned", "built"]
    assert records.is_as_natively(RANKS * RECORD * (RECORDS - 1))
