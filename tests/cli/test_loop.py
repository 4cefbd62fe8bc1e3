"""All steps on the example programs: a redirected program receives the same bytes as before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import PDLA, Launching
from tests.support.example_programs import EXAMPLES, Job
from tests.support.mpi import Mpi, available_mpis, unavailable

MPICH, OPENMPI = available_mpis()

# Each rank reads its slabs as examples/slabs.py does, rank 0 writes a block, each rank reads again and says both sums.
REWRITE = """
import sys
import numpy as np
from mpi4py import MPI

path, nz, ny, nx, offset = sys.argv[1], *map(int, sys.argv[2:])
world = MPI.COMM_WORLD
part = nx // world.size
view = MPI.FLOAT.Create_subarray([nz, ny, nx], [nz, ny, part], [0, 0, world.rank * part]).Commit()
slabs = np.empty((nz, ny, part), dtype=np.uint32)
file = MPI.File.Open(world, path, MPI.MODE_RDWR)
sums = []
for turn in range(2):
    file.Set_view(0, MPI.FLOAT, view)
    file.Read(slabs)
    sums.append(int(slabs.sum(dtype=np.uint64)))
    file.Set_view(0)
    if turn == 0 and world.rank == 0:
        file.Write_at(offset, np.full(4096, 7, dtype=np.uint8))
    file.Sync()
    world.Barrier()
    file.Sync()
file.Close()
for line in world.gather((world.rank, *sums)) or ():
    print(*line)
"""


LEASED = """
import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_WRONLY)
for turn in range(int(sys.argv[3])):
    for row in range(64):
        file.Write_at((row * world.size + world.rank) << 17, bytes([row]) * (1 << 17))
time.sleep(float(sys.argv[2]))
open(sys.argv[1] + ".computed", "w").close()
world.Barrier()
file.Close()
"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((*one.values, name), marks=one.marks, id=f"{one.id}-{name}")
        for one, name in ((MPICH, "tiles"), (OPENMPI, "slabs"))
    ],
)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A replicated program, each under another MPI. The tests that share it leave it as it was."""
    mpi, name = request.param
    job = Job(name, mpi, tmp_path_factory.mktemp(name))
    job.replicate()
    return job


def test_every_byte_is_the_same_and_comes_from_replicas(job: Job) -> None:
    native = job.native(4)
    result = job.result.read_bytes() if job.result.exists() else b""
    output, report = job.redirected(4)
    assert output == native
    assert (job.result.read_bytes() if job.result.exists() else b"") == result
    received = sum(int(line.split()[4]) for line in native.splitlines())
    assert report["replica_bytes"] == received
    assert {replica["state"] for replica in job.pdla.json("status", "--json")["replicas"]} == {"valid"}


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
def test_a_triangle_is_two_growing_signatures_and_is_read_from_their_replicas(mpi: Mpi, tmp_path: Path) -> None:
    job = Job("triangle", mpi, tmp_path)
    job.replicate()
    assert [s["notation"] for s in job.pdla.json("analyze", "run.h5", "--json")["signatures"]] == [
        "{READ, 0, 2, ([12288, 4+16, 192], [3072, 4+4, 4]r), 1}",
        "{READ, 0, 3, ([128, 64, 1+1], [98304, 64, 24], [3072, 64, 4]r), 1}",
    ]
    output, report = job.redirected(4)
    assert output == job.native(4)
    assert report["replica_bytes"] == 4 * 768 * 769 // 2 + 4 * 300 * 64  # the triangle, and 300 pieces for each rank
    assert job.redirected(3)[0] == job.native(3)


@pytest.mark.parametrize("ranks", [2, 6])
def test_replicas_of_four_ranks_serve_other_numbers_of_ranks(job: Job, ranks: int) -> None:
    """Except if MPI reads whole slabs, collectively, of which the replica has each rank's part in many pieces."""
    output, report = job.redirected(ranks)
    assert output == job.native(ranks)
    assert (report["replica_bytes"] > 0) == ((job.name, ranks) != ("slabs", 6))


def test_a_redirected_run_can_be_traced(job: Job) -> None:
    job.pdla.run("trace", "-o", "again.h5", "--", PDLA, "run", "--", *job.command(4))
    first = job.pdla.json("analyze", "run.h5", "--json")
    again = job.pdla.json("analyze", "again.h5", "--json")
    assert [s["notation"] for s in again["signatures"]] == [s["notation"] for s in first["signatures"]]


def test_a_corrupted_map_is_not_used(job: Job) -> None:
    path = job.pdla.home / "replicas.map"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0x40
    path.write_bytes(damaged)
    output, report = job.redirected(4)
    path.write_bytes(whole)
    assert output == job.native(4)
    assert report["replica_bytes"] == 0


@pytest.mark.parametrize("mpi", [MPICH], indirect=True)
def test_a_changed_original_is_read_itself_and_a_deleted_replica_is_not_missed(mpi: Mpi, tmp_path: Path) -> None:
    job = Job("tiles", mpi, tmp_path)
    job.replicate()
    pools, away = job.pdla.home / "pools", job.pdla.home / "away"
    pools.rename(away)
    output, report = job.redirected(4)
    assert output == job.native(4)
    assert report["replica_bytes"] == 0

    away.rename(pools)
    before = job.data.stat()
    with job.data.open("r+b") as file:
        file.seek(12345)
        file.write(b"changed")
    os.utime(job.data, ns=(before.st_atime_ns, before.st_mtime_ns))
    output, report = job.redirected(4)
    assert output == job.native(4, again=True)
    assert report["replica_bytes"] == 0
    assert "valid" not in {replica["state"] for replica in job.pdla.json("status", "--json")["replicas"]}


@pytest.mark.parametrize("mpi", [OPENMPI], indirect=True)
def test_a_write_makes_the_replica_stale_for_all_ranks_and_later_runs(mpi: Mpi, tmp_path: Path) -> None:
    job = Job("slabs", mpi, tmp_path)
    job.replicate()
    script = tmp_path / "rewrite.py"
    script.write_text(REWRITE)
    before = np.frombuffer(job.data.read_bytes(), dtype=np.uint32).reshape(4, 384, 4, 96)
    job.words = [mpi.python, str(script), str(job.data), "4", "384", "384", "8192"]
    output, report = job.redirected(4)
    after = np.frombuffer(job.data.read_bytes(), dtype=np.uint32).reshape(4, 384, 4, 96)
    assert (before != after).any()
    sums = [[rank, *(int(data[:, :, rank].sum(dtype=np.uint64)) for data in (before, after))] for rank in range(4)]
    assert [list(map(int, line.split())) for line in output.splitlines()] == sums
    assert report["replica_bytes"] == before.nbytes
    assert [used["state"] for file in report["files"] for used in file["replicas"]] == ["written"]

    job.words = [mpi.python, str(EXAMPLES / "slabs.py"), str(job.data), "4", "384", "384"]
    output, report = job.redirected(4)
    assert output == job.native(4)
    assert report["replica_bytes"] == 0


@pytest.mark.parametrize("times", [1, 5])
def test_devices_begin_with_what_goes_to_a_lease_while_the_program_computes(tmp_path: Path, times: int) -> None:
    """The close waits only for what they have not written by then. What is written again does not count."""
    if not shutil.which("strace"):
        unavailable("strace is not installed")
    (mpi,) = MPICH.values
    pdla = Launching(tmp_path, mpi.env)
    (tmp_path / "leased.py").write_text(LEASED)

    def job(times: int, seconds: int, *watch: str) -> list[str]:
        program = (mpi.python, "leased.py", "out.dat", str(seconds), str(times))
        return ["--", *mpi.command(2, *watch, *program)]

    pdla.run("trace", "-o", "first.h5", *job(1, 0))
    pdla.run("plan", "first.h5", "--writes", "lease", "--policy", "ns-pdla", "--simulate", "0", "-o", "plan.json")
    pdla.run("replicate", "plan.json")
    watch = "exec strace -f -e trace=openat,sync_file_range,fdatasync -o calls.$$ $0 $@"
    pdla.run("run", "--writes", "lease", *job(times, 2, "sh", "-c", watch))
    for calls in tmp_path.glob("calls.*"):
        lines = calls.read_text().splitlines()
        computed, durable = (
            next(number for number, line in enumerate(lines) if what in line)
            for what in ("out.dat.computed", "fdatasync(")
        )
        begun = [line.partition("sync_file_range(")[2] for line in lines[:computed] if "sync_file_range(" in line]
        assert 0 < len(begun) <= 2 * len(set(begun)), "once for each 4 MiB, for each file"
        assert computed < durable
