"""The benchmarks' programs access what the originals would, and check each byte; the bench leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from mpi import REPOSITORY, available_mpis, unavailable
from recording import Recorder

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import rows
from contestants import fill
from throttled import obstacle

from pdla.collectors import workloads
from pdla.model import Trace

KIB = 1 << 10
SOURCES = REPOSITORY / "benchmarks/workloads"
BENCH = [sys.executable, str(REPOSITORY / "benchmarks/bench.py")]

mpich_only = pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)


def compiled(recorder: Recorder, name: str) -> Path:
    sources = [str(SOURCES / f"{one}.c") for one in (name, "workload")]
    program = recorder.directory / name
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([recorder.mpi.mpicc, *flags, *sources, "-o", str(program)], check=True)
    return program


def extents(trace: Trace, op: str) -> list[tuple[int, int, int]]:
    accesses = trace.accesses()
    accesses = accesses[accesses["op"] == op]
    return sorted(zip(accesses["rank"], accesses["offset"], accesses["length"], strict=True))


@mpich_only
@pytest.mark.parametrize(
    ("name", "options", "generated"),
    [
        ("ior", "-t 8k -b 16k -s 8 --useFileView --collective", workloads.ior(4, 16 * KIB, 8 * KIB, 8, ["read"])),
        (
            "pio_nested",
            "--request_size 4k --requests 4 --groups 5 --group_stride 128k",
            workloads.pio_nested_strided(4, 4 * KIB, 4, 5, 128 * KIB),
        ),
        (
            "mpi_tile_io",
            "--nr_tiles_x 2 --nr_tiles_y 2 --sz_tile_x 8 --sz_tile_y 10 --sz_element 512 --overlap_x 2 --overlap_y 3"
            " --header_bytes 1k --bufferSize 16k",
            workloads.mpi_tile_io(2, 2, 8, 10, 512, 2, 3, KIB),
        ),
        ("hpio", "-c 20 -s 1k -p 512", workloads.hpio(4, 20, KIB, 512, "read")),
        ("btio", "--problem_size 8 --steps 2", workloads.btio((2, 2, 1), (8, 8, 8), 2, "simple", "read")),
        ("coll_perf", "--asize 32", workloads.coll_perf((2, 2, 1), (32, 32, 32))),
    ],
)
def test_programs_access_what_the_generators_say(recorder: Recorder, name: str, options: str, generated: Trace) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 1 << 20)
    trace = recorder.trace(4, compiled(recorder, name), *options.split(), "--testFile", file)
    assert merged(extents(trace, "read")) == merged(extents(generated, "read"))


def merged(found: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """A call may take several neighbours at once."""
    longest: list[tuple[int, int, int]] = []
    for rank, offset, length in found:
        if longest and longest[-1][0] == rank and longest[-1][1] + longest[-1][2] == offset:
            longest[-1] = (rank, longest[-1][1], longest[-1][2] + length)
        else:
            longest.append((rank, offset, length))
    return longest


@mpich_only
def test_a_wrong_byte_fails_the_run(recorder: Recorder) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 64 * KIB)
    command = recorder.mpi.command(2, compiled(recorder, "ior"), "-t", "8k", "-s", "4", "--testFile", file)
    assert json.loads(recorder.mpi.run(command))["wrong"] == 0
    with file.open("r+b") as opened:
        opened.seek(40_001)
        opened.write(b"?")
    environment = {**os.environ, **recorder.mpi.env}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[0])["wrong"] == 1


@mpich_only
def test_what_is_written_is_read_again(recorder: Recorder) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 64 * KIB)
    options = ["-t", "8k", "-s", "2", "--numTasks", "4", "--setTimeStampSignature", "3", "--testFile", str(file)]
    program = compiled(recorder, "ior")
    recorder.mpi.run(recorder.mpi.command(2, program, *options, "--writeFile"))
    assert json.loads(recorder.mpi.run(recorder.mpi.command(2, program, *options)))["wrong"] == 0


def test_rows_have_all_keys_and_replace_those_of_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BENCH", tmp_path / "bench.json")
    rows.keep([{"name": "a", "value": 1.0, "unit": "s"}, {"name": "b", "value": 2.0, "unit": "s", "goal": 3.0}])
    rows.keep([{"name": "a", "value": 4.0, "unit": "s"}])
    empty = {"baseline": None, "ratio": None, "spread": None}
    assert json.loads((tmp_path / "bench.json").read_text()) == [
        {"name": "b", "value": 2.0, "unit": "s", "goal": 3.0, **empty},
        {"name": "a", "value": 4.0, "unit": "s", "goal": None, **empty},
    ]


@pytest.mark.parametrize(("storage", "number"), [("disks", signal.SIGTERM), ("plain", signal.SIGINT)])
def test_nothing_is_left_after_a_signal(tmp_path: Path, storage: str, number: signal.Signals) -> None:
    if storage == "disks" and obstacle():
        unavailable(obstacle())
    command = [*BENCH, "--smoke", "--storage", storage, "--amount", "1M", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        try:
            while not list(tmp_path.glob("*/*/original-hdd/original")):
                assert bench.poll() is None
                time.sleep(0.05)
            bench.send_signal(number)
            assert bench.wait() == 128 + number
        finally:
            bench.kill()
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not [one for one in Path("/sys/block").glob("loop*/loop/backing_file") if str(tmp_path) in one.read_text()]
