"""Programs in every language and of every shape, recorded: the bytes found in their files are where the trace says."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pdla.collectors.rawlog import read_raw
from pdla.traces.trace import Trace
from tests.support.mpi import REPOSITORY, available_mpis, debian_mpis, unavailable
from tests.support.recorded_programs import PROGRAMS, Recorder, kinds_of, replay, rows_of

INTERPOSE = REPOSITORY / "pdla/interpose"


# ---- every form but those by the shared pointer ---------------------------------------------------------------------

FORMS = [
    ("{}", 0),
    ("{}_all", 16),
    ("{}_at", 32),
    ("{}_at_all", 48),
    ("i{}", 32),
    ("i{}_all", 48),
    ("i{}_at", 64),
    ("i{}_at_all", 80),
    ("{}_all_begin", 64),
    ("{}_at_all_begin", 96),
]


def forms(op: str, suffix: str) -> list[tuple[str, int]]:
    return [(f"MPI_File_{form.format(op)}{suffix}", position) for form, position in FORMS]


def expected_positions(suffix: str) -> list[tuple[str, int]]:
    seeks = [("MPI_File_seek", 0), ("MPI_File_seek", 88)]
    past_the_end = (f"MPI_File_read_at{suffix}", 104)
    return [*forms("write", suffix), seeks[0], *forms("read", suffix), seeks[1], past_the_end]


def check_forms(trace: Trace, path: Path, suffix: str) -> None:
    """``trace`` must be that of a program that does what forms.c does, on the file that it left."""
    for rank in (0, 1):
        rows = trace.records[trace.records["rank"] == rank]
        kinds = list(zip(rows["kind"], rows["position"], strict=True))
        assert kinds[:2] == [("MPI_File_open", 0), ("MPI_File_set_view", 0)]
        assert kinds[2:-1] == expected_positions(suffix)
        assert kinds[-1] == ("MPI_File_close", 0)
        data = rows[rows["op"] != "other"]
        assert set(data["requested"]) == {16}
        # The last call reads half past the end of the file. Through a view with holes MPICH's status does not say so.
        assert list(data["length"]) == [16] * 20 + [8 if trace.mpi.startswith("Open MPI") else 16]
        assert set(data["moved_known"]) == {True}
        assert list(data["collective"]) == ([False, True] * 4 + [True, True]) * 2 + [False]
        assert list(data["offset"])[:2] == [16 + 8 * rank, 48 + 8 * rank]
    assert list(trace.files["path"]) == [str(path)]
    assert (trace.ranks, trace.truncated, trace.dropped) == (2, (), 0)
    streams = {2 + k: struct.pack("4i", *(1000 * (k + 1) + i for i in range(4))) for k in range(10)}
    assert replay(trace, path, streams) == path.read_bytes()
    assert path.stat().st_size == 16 + 8 * 2 * (112 // 8)


def test_every_form_of_a_c_program_is_recorded_where_it_happened(every_recorder: Recorder) -> None:
    path = every_recorder.directory / "data"
    check_forms(every_recorder.trace(2, every_recorder.compile("forms"), path), path, "")


def test_large_count_calls_are_recorded_where_they_happened(every_recorder: Recorder) -> None:
    if not every_recorder.mpi.large_counts:
        pytest.skip("Open MPI has no large-count calls")
    path = every_recorder.directory / "data"
    check_forms(every_recorder.trace(2, every_recorder.compile("forms"), path, "large"), path, "_c")


def test_every_form_of_an_mpi4py_program_is_recorded_where_it_happened(recorder: Recorder) -> None:
    """mpi4py makes large-count calls, also over Open MPI, which has none."""
    path = recorder.directory / "data"
    check_forms(recorder.trace(2, recorder.mpi.python, PROGRAMS / "forms.py", path), path, "_c")


FORTRAN = pytest.mark.parametrize("binding", ["", "-DMODULE", "-DF08"], ids=["mpif.h", "mpi", "mpi_f08"])


def fortran(recorder: Recorder, binding: str) -> str:
    return recorder.compile("fortran.F90", *filter(None, [binding]), compiler="mpif90")


@FORTRAN
def test_every_form_of_a_fortran_program_is_recorded_where_it_happened(debian_recorder: Recorder, binding: str) -> None:
    """With and without statuses; the program itself checks what it reads back."""
    path = debian_recorder.directory / "data"
    check_forms(debian_recorder.trace(2, fortran(debian_recorder, binding), "forms", path), path, "")


def test_every_form_of_a_cxx_program_is_recorded_where_it_happened(any_recorder: Recorder) -> None:
    path = any_recorder.directory / "data"
    program = any_recorder.compile("forms.c", "-xc++", compiler="mpicxx")
    check_forms(any_recorder.trace(2, program, path), path, "")


@pytest.mark.parametrize("program", ["C", "mpi4py"])
@pytest.mark.parametrize("first", ["pdla", "tool"])
def test_another_preloaded_tool_sees_each_call_once(recorder: Recorder, first: str, program: str) -> None:
    """In front of the library and behind it, which records all the same."""
    tool, path = recorder.directory / "tool.so", recorder.directory / "data"
    words = ["gcc", "-fPIC", "-shared", f"-I{INTERPOSE}", PROGRAMS / "tool.c", "-o", tool, "-ldl"]
    subprocess.run(words, check=True)
    libraries = [str(recorder.library), str(tool)]
    preload = ":".join(libraries if first == "pdla" else reversed(libraries))
    command = [recorder.compile("forms")] if program == "C" else [recorder.mpi.python, PROGRAMS / "forms.py"]
    output = recorder.run(2, *command, path, preload=preload)
    assert [line for line in output.splitlines() if "tool" in line] == ["tool 21"] * 2
    check_forms(read_raw(recorder.logs), path, "" if program == "C" else "_c")


# ---- shared pointers, calls without data ----------------------------------------------------------------------------

SHARED = [
    *("open", "preallocate", "set_size", "write_shared", "iwrite_shared", "write_ordered", "seek_shared"),
    *("get_position_shared", "read_shared", "iread_shared", "read_ordered"),
    *("write_ordered_begin", "read_ordered_begin"),
]
OTHERS = [
    *("set_atomicity", "get_atomicity", "get_amode", "get_byte_offset", "get_group", "get_info", "set_info"),
    *("get_position", "get_size", "get_type_extent", "get_view", "sync", "close", "delete"),
]
WRITTEN = {3: 1, 4: 2, 5: 3, 11: 4}  # call -> number of the write
LARGE = re.compile(r"(i?write|i?read)_(shared|ordered)(_begin)?|get_type_extent")


def check_others(recorder: Recorder, ranks: int, *program: str, suffix: str = "") -> None:
    """``program`` does what others.c does."""
    path, other = recorder.directory / "data", recorder.directory / "other"
    other.touch()
    trace = recorder.trace(ranks, *program, path, other)
    assert not other.exists()
    assert trace.unrecorded == {}
    for rank in range(ranks):
        rows = trace.records[trace.records["rank"] == rank]
        names = [*SHARED, *OTHERS]
        assert kinds_of(rows) == [name + suffix if LARGE.fullmatch(name) else name for name in names]
        data = rows[rows["op"] != "other"]
        assert set(data["requested"]) == set(data["length"]) == {16}
        assert set(data["moved_known"]) == {True}
        assert list(rows["position"])[1:3] == [100, 256]
        assert list(rows["position"])[6] == 0
        assert np.all(rows["t_start"].to_numpy()[1:] >= rows["t_end"].to_numpy()[:-1])
        # Where there are other ranks, they move a shared pointer, too.
        assert list(data["offset"]) == ([0, 16, 32, 0, 16, 32, 48, 64] if ranks == 1 else [-1] * 8)
    if ranks == 1:
        streams = {call: struct.pack("4i", *(k * 10**i for i in range(4))) for call, k in WRITTEN.items()}
        assert replay(trace, path, streams) == path.read_bytes()
    else:
        assert trace.notes == ("the place of the bytes of 16 calls is not known: their offset is -1",)


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_other_calls_are_recorded(every_recorder: Recorder, ranks: int) -> None:
    check_others(every_recorder, ranks, every_recorder.compile("others"))


def test_all_other_calls_with_large_counts_are_recorded(every_recorder: Recorder) -> None:
    if not every_recorder.mpi.large_counts:
        pytest.skip("Open MPI has no large-count calls")
    check_others(every_recorder, 1, every_recorder.compile("others", "-DTWINS"), suffix="_c")


@FORTRAN
def test_all_other_calls_of_a_fortran_program_are_recorded(debian_recorder: Recorder, binding: str) -> None:
    check_others(debian_recorder, 1, fortran(debian_recorder, binding), "others")


def test_ordered_calls_of_several_ranks_are_placed_by_what_each_asked_for(every_recorder: Recorder) -> None:
    trace = every_recorder.trace(3, every_recorder.compile("ordered"), every_recorder.directory)
    data = trace.records[trace.records["op"] != "other"]
    positions = {
        name: [rows_of(trace, data[data["rank"] == rank], every_recorder.directory / name) for rank in range(3)]
        for name in ("bytes", "blocks", "alone", "once")
    }
    assert {name: [list(rows["position"]) for rows in ranks] for name, ranks in positions.items()} == {
        # The last read follows a seek from the pointer itself.
        "bytes": [[0, 20, 8, 28, 388, -1], [8, 24, 20, 188, 396, -1], [8, 40, 24, 308, 404, -1]],
        "blocks": [[0, 20, 56, 76, 0], [8, 24, 68, 80, 8], [8, 40, 72, 84, 16]],
        # Rank 1 moves the pointer by itself in between: what came next is not known before the file has another view.
        "alone": [[0, -1, -1, 0], [8, -1, -1, -1, 4], [8, -1, -1, 8]],
        # Rank 1 has nothing to write.
        "once": [[0], [8], [8]],
    }
    assert trace.notes == ("the place of the bytes of 9 calls is not known: their offset is -1",)
    for name, ranks in positions.items():
        path = every_recorder.directory / name
        for rank, rows in enumerate(ranks):
            writes = rows[(rows["op"] == "write") & (rows["offset"] >= 0) & (rows["length"] > 0)]
            steps = {call: 1 + list(rows[rows["op"] == "write"]["call"]).index(call) for call in writes["call"]}
            streams = {
                call: np.full(length // 4, 100 * rank + steps[call], "<i4").tobytes()
                for call, length in zip(writes["call"], writes["length"], strict=True)
            }
            assert replay(replace(trace, records=writes), path, streams) == path.read_bytes(), (name, rank)


# ---- communicators, files and threads -------------------------------------------------------------------------------


def written_by_rank(trace: Trace, path: Path) -> bytes:
    """For each byte of the file the rank, plus 1, that wrote it according to the trace; 0 if none or several did."""
    accesses = rows_of(trace, trace.accesses(), path)
    written = accesses[accesses["op"] == "write"]
    ranks, times = np.zeros((2, path.stat().st_size), dtype=np.uint8)
    for rank, offset, length in zip(written["rank"], written["offset"], written["length"], strict=True):
        ranks[offset : offset + length] = rank + 1
        times[offset : offset + length] += 1
    ranks[times != 1] = 0
    return ranks.tobytes()


def test_files_of_any_communicator_are_recorded_by_their_ranks_in_the_world(every_recorder: Recorder) -> None:
    """Two halves at a time, reversed ranks, three files at once, a file that is open twice, a file for each rank."""
    files = every_recorder.directory / "files"
    files.mkdir()
    trace = every_recorder.trace(4, every_recorder.compile("shapes"), files)
    sizes = {Path(path).name: Path(path).stat().st_size for path in trace.files["path"]}
    shared = {"half0": 128, "half1": 128, "reversed0": 200, "once0": 200, "once1": 220, "once2": 240, "twice0": 800}
    assert sizes == {**shared, **{f"own{rank}": 30 + rank for rank in range(4)}}
    for name in sizes:
        assert written_by_rank(trace, files / name) == (files / name).read_bytes(), name
    assert trace.records.groupby("rank").size().to_dict() == dict.fromkeys(range(4), 4 + 3 + 21 + 13 + 3)


def trace_of_threads(recorder: Recorder) -> tuple[Trace, Path]:
    """A traced run, and the files that it wrote.

    Open MPI's own I/O crashes in one of twenty such runs, also without the library: it is given others.
    """
    for attempt in range(6):
        again = Recorder(recorder.mpi, recorder.library, recorder.directory / str(attempt))
        files = again.directory / "files"
        files.mkdir(parents=True)
        try:
            return again.trace(2, recorder.compile("threads"), files), files
        except AssertionError:
            if not recorder.mpi.is_openmpi:
                raise
    raise AssertionError("no run of six came to its end")


def test_calls_of_threads_are_recorded_where_they_happened(any_recorder: Recorder) -> None:
    trace, files = trace_of_threads(any_recorder)
    assert {path.name: path.stat().st_size for path in files.iterdir() if path.suffix == ""} == {
        "all": 1280,
        **{str(writer): 160 for writer in range(8)},
    }
    for path in files.iterdir():
        ranks = np.frombuffer(path.read_bytes(), dtype=np.uint8) - 1 >> 2
        assert written_by_rank(trace, path) == (ranks + 1).astype(np.uint8).tobytes(), path.name
    assert (len(trace.records), trace.dropped, set(trace.records["moved_known"])) == (2 * (2 + 4 * 42), 0, {True})


@pytest.mark.parametrize("mpi", [available_mpis()[1]], indirect=True)
def test_a_program_of_sessions_is_recorded(recorder: Recorder) -> None:
    """Under Open MPI 5: MPI-IO in a session crashes MPICH 5.0, and the others have no sessions or no I/O in them."""
    path = recorder.directory / "data"
    trace = recorder.trace(2, recorder.compile("sessions"), path)
    assert path.read_bytes() == b"a" * 8 + b"b" * 8
    writes = trace.records[trace.records["op"] == "write"]
    assert sorted(zip(writes["offset"], writes["length"], strict=True)) == [(0, 8), (8, 8)]
    assert kinds_of(trace.records) == ["open", "write_at_all", "close"] * 2
    assert (trace.ranks, trace.truncated, trace.dropped) == (2, (), 0)
    assert trace.notes == ("2 programs ran, with 1, 1 ranks: numbered consecutively in order of their start",)


# ---- nothing, too much, very much -----------------------------------------------------------------------------------


def test_zero_length_calls_and_reads_past_the_end_have_the_bytes_that_moved(every_recorder: Recorder) -> None:
    trace = every_recorder.trace(1, every_recorder.compile("edges"), every_recorder.directory / "data")
    data = trace.records[trace.records["op"] != "other"]
    rows = data[["kind", "position", "requested", "length"]].itertuples(index=False, name=None)
    assert [(kind.removeprefix("MPI_File_"), *numbers) for kind, *numbers in rows] == [
        ("write_at", 0, 100, 100),
        ("write_at", 10, 0, 0),
        ("write_all", 0, 0, 0),
        ("iwrite_at", 5, 0, 0),
        ("read", 0, 0, 0),
        ("read_at", 60, 100, 40),
        ("read_at", 100, 10, 0),
        ("read_at_all", 70, 100, 30),
        ("read_at", 96, 12, 4),
        ("read_shared", 85, 50, 15),
        *([] if every_recorder.mpi.is_openmpi else [("read_all_begin", 80, 50, 20), ("iread_at", 95, 10, 5)]),
    ]
    assert set(data["moved_known"]) == {True}
    accesses = trace.accesses()
    extents = list(accesses[["offset", "length"]].itertuples(index=False, name=None))
    assert extents[:5] == [(0, 100), (60, 40), (70, 30), (96, 4), (85, 15)]


def test_calls_of_three_gibibytes_have_their_length(any_recorder: Recorder) -> None:
    # In memory, where a hole costs nothing to read.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        trace = any_recorder.trace(1, any_recorder.compile("edges"), Path(name) / "data", "huge")
    reads = trace.records[trace.records["op"] == "read"]
    calls = ["read_at", "read_at_c"] if any_recorder.mpi.name == "mpich" else ["read_at"]
    assert kinds_of(reads) == calls
    assert list(reads["requested"]) == list(reads["length"]) == [3 << 30] * len(calls)
    accesses = trace.accesses()[["offset", "length"]].itertuples(index=False, name=None)
    assert list(accesses) == [(5, 3 << 30)] * len(calls)


def test_calls_beyond_what_a_file_can_have_do_not_spoil_the_trace(any_recorder: Recorder) -> None:
    trace = any_recorder.trace(1, any_recorder.compile("edges"), any_recorder.directory / "data", "absurd")
    rows = trace.records[["kind", "position", "length"]].itertuples(index=False, name=None)
    calls = [(kind.removeprefix("MPI_File_"), *numbers) for kind, *numbers in rows]
    assert calls[1:-1] == [("write_at", 0, 10), ("read_at", -1, 0), ("set_size", -1, 0)]


def test_a_view_of_a_million_blocks_is_a_loop(any_recorder: Recorder) -> None:
    path = any_recorder.directory / "data"
    trace = any_recorder.trace(1, any_recorder.compile("edges"), path, "blocks")
    extents = list(trace.accesses()[["offset", "length"]].itertuples(index=False, name=None))
    # Bytes 3,999,990 to 3,999,998 of the view, whose blocks of 4 begin at 100, 108, ..., 8000092.
    assert extents == [(8000078, 2), (8000084, 4), (8000092, 2)]
    content = path.read_bytes()
    assert [content[offset : offset + length] for offset, length in extents] == [b"12", b"3456", b"78"]
    (side,) = any_recorder.logs.glob("*/*.side")
    assert side.stat().st_size < 8192


# ---- parallel HDF5 --------------------------------------------------------------------------------------------------


def check_rows(trace: Trace, path: Path) -> None:
    """The ints of the dataset "rows" are the ranks, plus 1, that wrote them."""
    with h5py.File(path) as file:
        rows = file["rows"]
        expected = np.tile(np.array([1, 2], dtype=np.intc), (8, 6))
        expected[4:6], expected[6:8] = 1, 2
        assert np.array_equal(rows[()], expected)
        start = rows.id.get_offset()
    assert written_by_rank(trace, path)[start : start + 8 * 12 * 4] == np.repeat(expected, 4).astype(np.uint8).tobytes()
    records = trace.records
    data = records[(records["op"] == "write") & (records["length"] == 96) & (records["offset"] >= start)]
    assert sorted(zip(data["rank"], data["kind"], strict=True)) == [
        (rank, f"MPI_File_write_at{form}") for rank in (0, 1) for form in ("", "_all")
    ]


def test_parallel_hdf5_is_recorded_by_the_bytes_of_its_file(debian_recorder: Recorder) -> None:
    """Hyperslabs, collective and independent, contiguous and in chunks."""
    path = debian_recorder.directory / "data.h5"
    trace = debian_recorder.trace(2, debian_recorder.compile("hdf5.c", compiler="h5pcc"), path)
    check_rows(trace, path)
    ranks = written_by_rank(trace, path)
    with h5py.File(path) as file:
        chunks = file["chunks"]
        assert np.array_equal(chunks[()], np.repeat([[1, 2]], 8, axis=0).repeat(4, axis=1))
        for number in range(4):
            chunk = chunks.id.get_chunk_info(number)
            rank = 1 + chunk.chunk_offset[1] // 4
            assert ranks[chunk.byte_offset : chunk.byte_offset + 64] == bytes([rank]) * 64


@pytest.mark.parametrize("debian_mpi", [debian_mpis()[1]], indirect=True)
def test_h5py_over_mpi_is_recorded_by_the_bytes_of_its_file(debian_recorder: Recorder) -> None:
    """Debian's is built with Open MPI, and used only if a launcher or this variable says so."""
    python = debian_recorder.mpi.python
    environment = {**os.environ, **debian_recorder.mpi.env, "H5PY_ALWAYS_USE_MPI": "1"}
    ask = [python, "-c", "import h5py, mpi4py; assert h5py.get_config().mpi"]
    if subprocess.run(ask, env=environment, capture_output=True, check=False).returncode != 0:
        unavailable(f"{python} has no h5py with MPI (python3-h5py-mpi)")
    path = debian_recorder.directory / "data.h5"
    check_rows(debian_recorder.trace(2, python, PROGRAMS / "hdf5.py", path), path)
