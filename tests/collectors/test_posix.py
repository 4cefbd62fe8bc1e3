"""The POSIX calls in and outside of MPI calls: the requests of the MPI library, and the program's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pdla import load
from pdla.analyzers.posix_requests import made_of
from pdla.collectors.packing import pack
from pdla.collectors.rawlog import read_raw
from pdla.traces.tables import POSIX_COLUMNS
from pdla.traces.trace import Trace
from tests.support.command_line import Pdla
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi, build_posix_library
from tests.support.recorded_programs import Recorder


@pytest.fixture(scope="session")
def posix_library(library: Path) -> Path:
    return build_posix_library(library.with_name("libpdla-posix.so"))


def trace_both(recorder: Recorder, library: Path, ranks: int, *words: str, include: str = "") -> tuple[Trace, str]:
    """The records of a program in the recorder's directory, and its output."""
    program, mode = words
    command = (recorder.compile(program), mode, str(recorder.directory / "data"))
    preload = f"{recorder.library}:{library}"
    printed = recorder.run(ranks, *command, preload=preload, variables={"PDLA_TRACE_INCLUDE": include})
    return read_raw(recorder.logs), printed


def within(trace: Trace) -> list[str]:
    """The MPI call in which each POSIX call was made, "-" for none."""
    kinds = trace.records.set_index(["rank", "call"])["kind"].astype(str)
    calls = zip(trace.posix["rank"], trace.posix["call"], strict=True)
    return [kinds[place].removeprefix("MPI_File_") if place[1] >= 0 else "-" for place in calls]


def data_calls(trace: Trace) -> list[tuple[Any, ...]]:
    """(rank, MPI call, POSIX call, offset, length) of reads and writes."""
    table = trace.posix.assign(within=within(trace))
    columns = ["rank", "within", "kind", "offset", "length"]
    return list(table.loc[table["op"] != "other", columns].itertuples(index=False, name=None))


def extents(rows: pd.DataFrame) -> list[tuple[int, int]]:
    """The bytes of these accesses as ranges, touching ones joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(zip(rows["offset"], rows["offset"] + rows["length"], strict=True)):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((int(start), int(stop)))
    return joined


def test_data_sieving_reads_what_it_does_not_write(any_recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(any_recorder, posix_library, 1, "library_io", "sieved")
    assert trace.records["length"][trace.records["op"] != "other"].tolist() == [4096, 512, 512]
    if "MPICH" in trace.mpi:
        # Of 64 pieces of 8 bytes, 32 apart, everything from the first to the last is read, and written back.
        assert data_calls(trace) == [
            (0, "write_at", "pwrite", 0, 4096),
            (0, "write_at", "pread", 0, 2024),
            (0, "write_at", "pwrite", 0, 2024),
            (0, "read_at", "pread", 0, 2024),
        ]
    else:
        assert data_calls(trace)[:65] == [
            (0, "write_at", "pwrite", 0, 4096),
            *[(0, "write_at", "pwritev", 32 * piece, 8) for piece in range(64)],
        ]


def test_only_aggregators_write_what_a_collective_call_asks_for(any_recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(any_recorder, posix_library, 3, "library_io", "aggregated")
    assert data_calls(trace) == [(0, "write_at_all", "pwrite", 0, 12288)]
    assert extents(trace.accesses()) == [(0, 12288)]
    # The others opened the file, and did no more.
    assert set(trace.posix.loc[trace.posix["rank"] > 0, "kind"]) <= {"open", "close"}


def test_the_bytes_written_are_those_of_the_mpi_calls(any_recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(any_recorder, posix_library, 2, "library_io", "split")
    assert {call[1] for call in data_calls(trace)} == {"write_at_all_begin"}
    assert extents(trace.posix[trace.posix["op"] == "write"]) == [(0, 200)]
    assert extents(trace.accesses()) == [(0, 200)]


def test_asynchronous_calls_belong_to_the_nonblocking_operation_that_began_them(
    any_recorder: Recorder, posix_library: Path
) -> None:
    trace, _ = trace_both(any_recorder, posix_library, 1, "library_io", "nonblocking")
    *first, (rank, within_last, _, offset, length) = data_calls(trace)
    assert sorted(first) == [
        (0, "iread_at", "aio_read", 100, 500),
        (0, "iwrite_at", "aio_write", 0, 1000),
        (0, "iwrite_at", "aio_write", 1000, 3000),
    ]
    assert (rank, within_last, offset, length) == (0, "iwrite_at_all", 5000, 100)


def test_a_nonblocking_collective_done_while_it_is_tested_for_is_its_own(
    recorder: Recorder, posix_library: Path
) -> None:
    trace, _ = trace_both(recorder, posix_library, 2, "library_io", "nonblocking")
    late = [call for call in data_calls(trace) if call[3] + call[4] > 5000]
    assert {call[1] for call in late} == {"iwrite_at_all"}
    assert sum(call[4] for call in late) == 200


def test_every_call_of_the_program_itself_is_recorded_once(recorder: Recorder, posix_library: Path) -> None:
    trace, printed = trace_both(recorder, posix_library, 1, "plain_posix", "every", include="*/data")
    assert printed.split() == ["77", "-1", "1", "1"]
    assert set(trace.posix["call"]) == {-1}
    columns = ["kind", "offset", "length", "error"]
    assert list(trace.posix[columns].itertuples(index=False, name=None)) == [
        ("open", 0, 0, 0),
        ("write", 0, 100, 0),
        ("pwrite", 1000, 200, 0),
        ("writev", 100, 30, 0),
        ("pwritev", 2000, 30, 0),
        ("pwritev", 3000, 30, 0),
        ("lseek", 50, 0, 0),
        ("read", 50, 60, 0),
        ("pread", 1100, 1930, 0),
        ("readv", 110, 30, 0),
        ("preadv", 2000, 30, 0),
        ("preadv", 3000, 30, 0),
        ("ftruncate", 4000, 0, 0),
        ("fallocate", 4000, 96, 0),
        ("fsync", 0, 0, 0),
        ("fdatasync", 0, 0, 0),
        ("pwrite", 1, 1, 0),
        ("close", 0, 0, 0),
        ("close", 0, 0, 0),
        ("open", 0, 0, 0),
        ("pwrite", 7, 0, 9),
        ("close", 0, 0, 0),
    ]
    assert trace.files[["path", "ranks", "opens"]].to_numpy().tolist() == [[str(recorder.directory / "data"), 0, 0]]


def test_asynchronous_calls_end_when_their_result_is_taken(recorder: Recorder, posix_library: Path) -> None:
    trace, printed = trace_both(recorder, posix_library, 1, "plain_posix", "asynchronous", include="*/data")
    assert printed.split() == ["1000", "2000", "500"]
    assert [call[2:] for call in data_calls(trace)] == [
        ("aio_write", 0, 1000),
        ("aio_write", 1000, 2000),
        ("aio_read", 2500, 500),
    ]
    assert (trace.posix["t_end"] >= trace.posix["t_start"]).all()


def test_a_signal_handler_that_writes_waits_for_nothing(recorder: Recorder, posix_library: Path) -> None:
    trace, printed = trace_both(recorder, posix_library, 1, "plain_posix", "signalled", include="*/data")
    writes = trace.posix[trace.posix["op"] == "write"]
    # What the handler did while its thread was recording is counted.
    assert len(writes) + trace.dropped == int(printed)
    # The last one, which the program raised itself, interrupted no recording.
    assert writes[["offset", "length"]].iloc[-1].tolist() == [0, 1]


def test_calls_of_all_threads_are_recorded(recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(recorder, posix_library, 1, "plain_posix", "threads", include="*/data")
    offsets = trace.posix.loc[trace.posix["kind"] == "pwrite", "offset"].to_numpy()
    assert np.bincount(offsets).tolist() == [4] * 5000


def test_children_are_not_the_program(recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(recorder, posix_library, 1, "plain_posix", "children", include="*/data")
    assert [call[3] for call in data_calls(trace)] == [0, 3]
    assert trace.posix["kind"].tolist() == ["open", "pwrite", "pwrite", "close"]


def test_a_file_is_of_interest_once_mpi_opens_it(recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(recorder, posix_library, 1, "plain_posix", "opened")
    assert [call[1:] for call in data_calls(trace)] == [("-", "pwrite", 0, 6)]
    assert list(trace.files["path"]) == [str(recorder.directory / "data")]


def test_a_new_file_is_not_the_deleted_one_whose_number_it_has(recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(recorder, posix_library, 1, "plain_posix", "reused")
    assert [call[1:] for call in data_calls(trace)] == [("-", "pwrite", 0, 2)]
    assert list(trace.files["path"]) == [str(recorder.directory / "data")]


def test_without_includes_the_programs_other_files_are_not_recorded(recorder: Recorder, posix_library: Path) -> None:
    trace, _ = trace_both(recorder, posix_library, 1, "plain_posix", "threads")
    assert trace.posix.empty


def test_the_trace_file_keeps_them_and_has_no_group_without(recorder: Recorder, posix_library: Path) -> None:
    both, _ = trace_both(recorder, posix_library, 2, "library_io", "sieved")
    pack(recorder.logs, recorder.directory / "run.h5")
    pd.testing.assert_frame_equal(load(recorder.directory / "run.h5").posix, both.posix)

    for log in recorder.logs.glob("*/*.posix"):
        log.unlink()
    pack(recorder.logs, recorder.directory / "without.h5")
    without = load(recorder.directory / "without.h5")
    assert without.posix.empty
    assert list(without.posix) == list(POSIX_COLUMNS)
    pd.testing.assert_frame_equal(without.records, both.records)


def test_pdla_trace_leaves_nothing_of_its_own_in_the_trace(mpi: Mpi, pdla: Pdla, tmp_path: Path) -> None:
    program = mpi.compile(REPOSITORY / "tests/programs/library_io.c", tmp_path / "program")
    pdla.environment.update(mpi.env)
    command = mpi.command(3, program, "aggregated", tmp_path / "data")
    pdla.run("trace", "--posix", "--include", "*", "-o", "run.h5", "--", *command)
    trace = load(tmp_path / "run.h5")
    ours = [path for path in trace.files["path"] if ".raw/" in path]
    assert ours == []
    assert trace.posix.loc[trace.posix["op"] == "write"].shape[0] >= 1

    (row,) = [
        row for row in pdla.json("analyze", "run.h5", "--json")["posix"] if row["kind"] == "MPI_File_write_at_all"
    ]
    assert row == {
        "file": str(tmp_path / "data"),
        "kind": "MPI_File_write_at_all",
        "calls": 3,
        "bytes": 12288,
        "requests": 1,
        "read": 0,
        "written": 12288,
        "ranks": [0],
        "median": 12288.0,
        "largest": 12288,
        "ratio": 1.0,
    }
    pdla.run("report", "run.h5")
    assert "What the MPI library made of the calls" in (tmp_path / "report.html").read_text()


def sizes(row: Any) -> Sequence[float]:
    return row.calls, row.bytes, row.requests, row.read, row.written, row.median, row.largest


def test_what_the_library_made_of_it_in_numbers(mpi: Mpi, library: Path, posix_library: Path, tmp_path: Path) -> None:
    trace, _ = trace_both(Recorder(mpi, library, tmp_path), posix_library, 1, "library_io", "sieved")
    read, write = made_of(trace)
    assert (read.kind, write.kind) == ("MPI_File_read_at", "MPI_File_write_at")
    if mpi.name == "mpich":
        assert sizes(read) == (1, 512, 1, 2024, 0, 2024, 2024)
        assert sizes(write) == (2, 4608, 3, 2024, 6120, 2024, 4096)
        assert read.ratio == 2024 / 512
    else:
        assert sizes(write) == (2, 4608, 65, 0, 4608, 8, 4096)
    assert made_of(Trace(trace.records, trace.files, trace.views)) == ()
