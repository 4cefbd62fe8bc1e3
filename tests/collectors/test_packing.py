"""Logs become one trace file block by block, the same as at once; the logs of a killed `pdla trace` are kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pdla.collectors import rawlog, tracefile
from pdla.collectors.packing import pack
from pdla.collectors.rawlog import RECORD, read_raw
from pdla.collectors.tracefile import read_trace
from pdla.errors import PdlaError
from tests.support.command_line import PDLA, Pdla
from tests.support.handmade_logs import BOOT, NOON, READ_AT, file_entry, pack_header, side, view_entry, write_process
from tests.support.mpi import REPOSITORY, Mpi, available_mpis
from tests.support.waiting import wait_until


def write_many(directory: Path, ranks: int, count: int, random: bool = False) -> None:
    """Logs of ``count`` reads of 4 KiB a rank through a strided view, or at random offsets; times with noise."""
    directory.mkdir(exist_ok=True)
    for rank in range(ranks):
        noise = np.random.default_rng(rank)
        records = np.zeros(count, dtype=RECORD)
        records["seq"] = np.arange(1, count + 1)
        duration, pause = (noise.lognormal(mean, 0.15, count) for mean in (6.5, 4.5))
        records["t_start"] = BOOT + np.cumsum(duration + pause) - duration
        records["t_end"] = records["t_start"] + duration.astype(np.int64)
        records["position"] = noise.integers(0, 1 << 28, count) * 8 if random else np.arange(count) * 4096
        records["length"] = records["moved"] = 4096
        records["file"], records["view"], records["call"] = 1, 0 if random else 1, READ_AT
        named = (
            file_entry(1, b"/a", ranks=ranks, rank=rank),
            view_entry(1, rank * 4096, ranks * 4096, [0, 4096], 4096),
        )
        write_process(directory, f"n-{rank}", pack_header(rank, ranks) + records.tobytes(), side(*named))


def test_a_damaged_text_is_kept_up_to_its_nul(tmp_path: Path) -> None:
    write_many(tmp_path / "logs", 1, 3)
    log, names = tmp_path / "logs" / "n-0.log", tmp_path / "logs" / "n-0.side"
    named = (file_entry(1, b"/scratch/a\0b", ranks=1, rank=0), view_entry(1, 0, 4096, [0, 4096], 4096))
    names.write_bytes(side(*named))
    data = bytearray(log.read_bytes())
    for field in ("host", "mpi"):
        place = rawlog.HEADER.fields[field][1]
        data[place : place + 4] = b"x\0yz"
    log.write_bytes(bytes(data))
    pack(tmp_path / "logs", tmp_path / "run.h5")
    trace = read_trace(tmp_path / "run.h5")
    assert (list(trace.files["path"]), trace.hosts, trace.mpi, len(trace.records)) == (["/scratch/a"], ("x",), "x", 3)


def test_packing_in_blocks_gives_the_same_as_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(tmp_path / "logs", 3, 700)
    wanted = read_raw(tmp_path / "logs", "app")
    monkeypatch.setattr(rawlog, "_BLOCK", 64)
    monkeypatch.setattr(tracefile, "_CHUNK", 150)
    packed = pack(tmp_path / "logs", tmp_path / "run.h5", "app")
    assert (packed.calls, packed.moved, packed.about.ranks) == (2100, 2100 * 4096, 3)
    got = read_trace(tmp_path / "run.h5")
    pd.testing.assert_frame_equal(got.records, wanted.records, check_exact=True)
    pd.testing.assert_frame_equal(got.files, wanted.files, check_exact=True)
    assert (got.views, got.command, got.notes) == (wanted.views, "app", ())
    assert got.records["offset"].tolist()[700:702] == [4096, 4096 + 3 * 4096]


def test_a_trace_says_when_and_where_its_run_was(tmp_path: Path) -> None:
    write_many(tmp_path / "logs", 2, 3)
    variables = {"ROMIO_HINTS": "/home/me/hints", "OMP_NUM_THREADS": "4", "SLURM_JWT": "secret", "HOME": "/home/me"}
    pack(tmp_path / "logs", tmp_path / "run.h5", "app", variables)
    got = read_trace(tmp_path / "run.h5")
    assert (got.started, got.hosts) == (NOON / 1e9, ("node1",))
    assert got.environment == {"OMP_NUM_THREADS": "4", "ROMIO_HINTS": "/home/me/hints"}


@pytest.mark.parametrize(("random", "most"), [(False, 2.3), (True, 6.8)])
def test_an_operation_takes_few_bytes(tmp_path: Path, random: bool, most: int) -> None:
    write_many(tmp_path / "logs", 1, 200_000, random)
    pack(tmp_path / "logs", tmp_path / "run.h5")
    assert (tmp_path / "run.h5").stat().st_size / 200_000 <= most


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """1 M records are 64 MB of logs and 90 MB of columns; packing holds some chunks of them."""
    write_many(tmp_path / "logs", 1, 1_000_000)
    program = (
        "import resource, sys; from pdla.collectors.packing import pack; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; pack(*sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    words = [sys.executable, "-c", program, tmp_path / "logs", tmp_path / "run.h5"]
    grown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert int(grown) * 1024 < 90 << 20


def test_what_a_killed_pdla_trace_leaves_can_be_packed(pdla: Pdla, mpi: Mpi, tmp_path: Path) -> None:
    program = mpi.compile(REPOSITORY / "tests/programs/endings.c", tmp_path / "endings", "-lpthread")
    words = [PDLA, "trace", "-o", "run.h5", "--", *mpi.command(1, program, "sleep", tmp_path / "data")]
    environment = {**pdla.environment, **mpi.env}
    tracer = subprocess.Popen(words, cwd=tmp_path, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (tmp_path / "data").exists() and (tmp_path / "data").stat().st_size == 2)
    finally:
        os.killpg(tracer.pid, signal.SIGKILL)
        tracer.wait()
    (logs,) = tmp_path.glob(".run.h5.*.raw")
    answer = pdla.json("pack", logs, "-o", "run.h5", "--json")
    assert (answer["calls"], answer["bytes"], answer["truncated_ranks"]) == (3, 2, [0])
    trace = read_trace(tmp_path / "run.h5")
    assert trace.records["kind"].tolist() == ["MPI_File_open", "MPI_File_write_at", "MPI_File_write_at"]
    assert logs.exists()


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_records_lost_for_want_of_space_are_reported_at_the_end_and_in_the_report(
    pdla: Pdla, mpi: Mpi, tmp_path: Path
) -> None:
    program = mpi.compile(REPOSITORY / "tests/programs/endings.c", tmp_path / "endings", "-lpthread")
    pdla.environment.update(mpi.env)
    done = pdla.run("trace", "--", *mpi.command(1, program, "limit", tmp_path / "data"))
    lost = re.search(r"pdla: ([\d,]+) records lost: no disk space, or no memory\n", done.stderr)
    assert lost
    pdla.run("report", "run.h5")
    assert f"{lost[1]} records were dropped while the program ran: numbers are too low." in (
        tmp_path / "report.html"
    ).read_text(encoding="utf-8")


def test_a_directory_without_logs_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match="there is no log of the recorder in"):
        pack(tmp_path, tmp_path / "run.h5")
    assert list(tmp_path.iterdir()) == []


def test_globs_reach_the_recorder(pdla: Pdla, mpi: Mpi, tmp_path: Path) -> None:
    program = mpi.compile(REPOSITORY / "tests/programs/files.c", tmp_path / "files")
    pdla.environment.update(mpi.env)
    command = mpi.command(1, program, *(tmp_path / name for name in "abc"))
    answer = pdla.json("trace", "--include", "*/[ab]", "--exclude", "*/b", "--json", "--", *command)
    assert (answer["files"], answer["calls"], answer["bytes"]) == (1, 5, 1)
