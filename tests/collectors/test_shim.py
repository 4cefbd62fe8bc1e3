"""The preloaded library records what programs do, under every MPI, and changes nothing that they see."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pdla.collectors.packing import pack
from pdla.collectors.rawlog import _entries, read_raw
from pdla.collectors.tracefile import read_trace
from pdla.traces.trace import Trace
from tests.support.fewer_cases import THOROUGH
from tests.support.mpi import REPOSITORY, Mpi
from tests.support.recorded_programs import PROGRAMS, Recorder, kinds_of, replay

INTERPOSE = REPOSITORY / "pdla/interpose"
TYPEMAP_SOURCES = [str(INTERPOSE / name) for name in ("typemap.c", "flatten.c", "running_mpi.c", "whence.c")]


# ---- datatypes ------------------------------------------------------------------------------------------------------


def test_any_datatype_is_flattened_to_the_bytes_that_mpi_packs(every_mpi: Mpi, tmp_path: Path) -> None:
    """Random nests of every constructor; also that the constants are those of the real headers."""
    large = ["-DLARGE_COUNTS"] if every_mpi.large_counts else []
    intel = ["-DINTEL_MPI"] if every_mpi.name.startswith("intelmpi") else []
    flags = ["-std=gnu11", f"-I{INTERPOSE}", *large, *intel, *TYPEMAP_SOURCES]
    program = every_mpi.compile(PROGRAMS / "typemaps.c", tmp_path / "typemaps", *flags, "-ldl")
    nests = 1500 if THOROUGH else 300
    assert int(every_mpi.run([str(program), "1", str(nests)])) > 0.93 * nests


def test_a_view_of_any_constructor_is_recorded_as_the_extents_written(every_recorder: Recorder) -> None:
    if every_recorder.mpi.name == "intelmpi-abi":
        pytest.skip("a view of a subarray ends programs natively in Intel MPI 2021.18 and 2021.19")
    files = every_recorder.directory / "files"
    files.mkdir()
    trace = every_recorder.trace(1, every_recorder.compile("views"), files)
    stream = bytes((5 + i) % 251 + 1 for i in range(400))
    calls = trace.records[trace.records["op"] == "write"].set_index("call")["file"]
    streams = dict.fromkeys(calls.index, stream)
    names = {Path(path).name for path in trace.files["path"]}
    assert len(names) == 15
    for name in names:
        assert replay(trace, files / name, streams) == (files / name).read_bytes(), name


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_traced_and_untraced_programs_write_the_same(recorder: Recorder) -> None:
    program = recorder.compile("forms")
    recorder.run(2, program, "traced")
    recorder.mpi.run(recorder.mpi.command(2, program, "native"), recorder.directory)
    assert (recorder.directory / "traced").read_bytes() == (recorder.directory / "native").read_bytes()


def test_a_deletion_names_the_file_that_it_removed(every_recorder: Recorder) -> None:
    files = every_recorder.directory / "files"
    files.mkdir()
    (files / "old").write_bytes(b"of an earlier run")
    (files / "link").symlink_to(files / "kept")
    trace = every_recorder.trace(2, every_recorder.compile("deletions"), files)
    deletions = trace.records[trace.records["kind"] == "MPI_File_delete"]
    names = {-1: "", **{row.file: Path(row.path).name for row in trace.files.itertuples()}}
    # Nothing was removed at a path where there was no file, nor where a link to one was.
    assert [names[file] for file in deletions["file"]] == ["scratch", "scratch", "old", "", ""]
    assert [bool(error) for error in deletions["error"]] == [False, False, False, True, False]
    assert trace.files.set_index(trace.files["path"].map(lambda path: Path(path).name))["opens"].to_dict() == {
        "scratch": 2,
        "old": 0,
        "kept": 1,
    }
    assert (files / "kept").exists() and not (files / "old").exists()


def test_a_deletion_of_a_file_that_is_not_recorded_is_not_either(recorder: Recorder) -> None:
    files = recorder.directory / "files"
    files.mkdir()
    (files / "old").write_bytes(b"of an earlier run")
    recorder.run(1, recorder.compile("deletions"), files, variables={"PDLA_TRACE_EXCLUDE": "*/scratch"})
    assert {Path(path).name for path in read_raw(recorder.logs).files["path"]} == {"old", "kept"}


def test_a_nonblocking_operation_ends_when_its_request_completes(recorder: Recorder) -> None:
    """By each of the calls that complete requests, with and without a status."""
    records = recorder.trace(1, recorder.compile("requests"), recorder.directory / "data").records
    writes = records[records["op"] == "write"]
    assert list(writes["offset"]) == [100 * k for k in range(39)]
    assert list(writes["requested"]) == list(writes["length"]) == list(range(1, 40))
    assert list(writes["moved_known"]) == [True] * 38 + [False]  # MPI_Request_free has no status
    lasted = (writes["t_end"] - writes["t_start"]).to_numpy()
    assert np.all(lasted >= 0.002)
    assert lasted[0] >= 0.032
    # It ended at MPI_Request_get_status, not at the wait after it, which came 30 ms later.
    assert writes["t_start"].iloc[18] - writes["t_end"].iloc[17] >= 0.030


def test_an_operation_under_way_when_the_program_dies_says_so(recorder: Recorder) -> None:
    with pytest.raises(AssertionError):
        endings(recorder, "pending")
    trace = read_raw(recorder.logs)
    assert kinds(trace) == ["open", "write_at", "iwrite_at"]
    assert list(trace.records["moved_known"]) == [True, True, False]
    assert trace.notes == ("1 nonblocking or split operations were not complete when their process ended",)


# ---- unusual programs -----------------------------------------------------------------------------------------------


def endings(recorder: Recorder, mode: str, preload: str = "") -> Trace:
    recorder.run(1, recorder.compile("endings"), mode, recorder.directory / "data", preload=preload)
    return read_raw(recorder.logs)


def kinds(trace: Trace) -> list[str]:
    return kinds_of(trace.records)


def test_a_killed_program_leaves_a_readable_log(recorder: Recorder) -> None:
    with pytest.raises(AssertionError):
        endings(recorder, "kill")
    trace = read_raw(recorder.logs)
    assert kinds(trace) == ["open", "write_at", "write_at"]
    assert trace.truncated == (0,)


@pytest.mark.parametrize("death", ["kill", "term", "segv", "abort", "exit"])
def test_what_a_program_did_until_it_died_is_packed(recorder: Recorder, death: str) -> None:
    with pytest.raises(AssertionError):
        endings(recorder, f"dies-{death}")
    pack(recorder.logs, recorder.directory / "run.h5")
    trace = read_trace(recorder.directory / "run.h5")
    assert kinds(trace) == ["open"] + ["write_at"] * 20000
    assert (trace.truncated, trace.dropped, set(trace.records["length"][1:])) == ((0,), 0, {1})


def test_a_limit_on_the_size_of_files_ends_the_recording_and_not_the_program(recorder: Recorder) -> None:
    trace = endings(recorder, "limit")
    assert len(trace.records) + trace.dropped == 1 + 1 + 60000 + 1
    assert len(trace.records) > 60000 // 4
    assert trace.dropped > 60000 // 4


def test_a_program_that_takes_the_recorders_descriptors_keeps_its_file_and_loses_no_record(recorder: Recorder) -> None:
    data = recorder.directory / "data"
    assert recorder.run(1, recorder.compile("endings"), "descriptors", data) == "2\n"
    assert (recorder.directory / "data.own").stat().st_size == 0
    trace = read_raw(recorder.logs)
    assert kinds(trace) == ["open", "write_at", "iread_at"] + ["read_at"] * 60000 + ["close", "open", "close"]
    assert (trace.dropped, trace.notes, set(trace.records["moved_known"])) == (0, (), {True})


def test_a_log_is_not_what_a_program_prints_to(recorder: Recorder) -> None:
    program = recorder.compile("endings")
    recorder.run(1, "sh", "-c", f"exec <&- >&- 2>&-; exec {program} short {recorder.directory}/data")
    trace = read_raw(recorder.logs)
    assert kinds(trace) == ["open", "write_at", "read_at", "close"]


@pytest.mark.parametrize(
    ("include", "exclude", "recorded"),
    [
        ("", "", ["a", "b", "c"]),
        ("*/a", "", ["a"]),
        ("*/a\n*/[c-d]", "", ["a", "c"]),
        ("", "*/a\n*/b", ["c"]),
        ("*/[ab]", "*/b", ["a"]),
    ],
)
def test_only_the_files_that_are_wanted_are_recorded(
    recorder: Recorder, include: str, exclude: str, recorded: list[str]
) -> None:
    variables = {"PDLA_TRACE_INCLUDE": include, "PDLA_TRACE_EXCLUDE": exclude}
    recorder.run(1, recorder.compile("files"), *(recorder.directory / name for name in "abc"), variables=variables)
    trace = read_raw(recorder.logs)
    assert [Path(path).name for path in trace.files["path"]] == recorded
    assert kinds(trace) == ["open", "set_view", "write_at", "get_size", "close"] * len(recorded)
    assert trace.unrecorded == {}


def test_the_child_of_a_fork_leaves_the_log_to_its_parent(recorder: Recorder) -> None:
    trace = endings(recorder, "fork")
    assert kinds(trace) == ["open", "write_at", "write_at", "close"]
    assert trace.truncated == ()


def test_calls_of_all_threads_are_recorded(recorder: Recorder) -> None:
    trace = endings(recorder, "threads")
    reads = trace.records[trace.records["op"] == "read"]
    assert reads["offset"].value_counts().to_dict() == {0: 15000, 1: 15000, 2: 15000, 3: 15000}


def test_a_call_by_its_profiling_name_is_recorded(recorder: Recorder) -> None:
    assert kinds(endings(recorder, "pmpi")) == ["open", "write_at", "write_at", "close"]


def test_a_file_closed_while_mpi_finalizes_is_recorded(recorder: Recorder) -> None:
    trace = endings(recorder, "finalize")
    assert kinds(trace) == ["open", "write_at", "close"]
    assert trace.truncated == ()


def test_a_read_past_the_end_is_recorded_with_the_bytes_that_it_got(recorder: Recorder) -> None:
    records = endings(recorder, "short").records
    assert list(records["requested"]) == [0, 1, 100, 0]
    assert list(records["length"]) == [0, 1, 1, 0]


def test_an_open_that_fails_is_recorded_with_its_error(recorder: Recorder) -> None:
    output = recorder.run(1, recorder.compile("endings"), "missing", recorder.directory / "none")
    assert output == "1\n"
    records = read_raw(recorder.logs).records
    assert list(records["kind"]) == ["MPI_File_open"]
    assert list(records["file"]) == [-1]
    assert records["error"].iloc[0] > 0


def test_a_view_set_again_and_again_is_written_once(recorder: Recorder) -> None:
    trace = endings(recorder, "views")
    assert kinds(trace).count("set_view") == 200
    assert len(trace.views) == 3
    (side,) = recorder.logs.glob("*/*.side")
    content = side.read_bytes()
    assert [kind for kind, _ in _entries(content)] == [1, 5, 2, 3, 3]


def test_another_data_representation_is_recorded_with_unknown_extents(recorder: Recorder) -> None:
    trace = endings(recorder, "external32")
    assert kinds(trace) == ["open", "write_at", "set_view", "write_at", "close"]
    assert list(trace.records["offset"]) == [0, 0, 0, -1, 0]


def test_programs_without_mpi_leave_nothing_behind(library: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(library), "PDLA_TRACE": str(tmp_path / "logs")}
    subprocess.run(["ls", "/"], env=environment, check=True, capture_output=True)
    assert not (tmp_path / "logs").exists()


def test_the_library_depends_on_no_mpi(library: Path) -> None:
    lines = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert "mpi" not in lines.replace(str(library), "")


def test_a_full_disk_ends_the_recording_and_not_the_program(recorder: Recorder) -> None:
    recorder.logs.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", recorder.logs]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted only by root")
    try:
        trace = endings(recorder, "threads")
        assert len(trace.records) + trace.dropped == 1 + 1 + 60000 + 1
        assert len(trace.records) > 60000 // 4
        assert trace.dropped > 60000 // 4
        assert trace.truncated == ()
        modes = {path.stat().st_mode & 0o777 for path in recorder.logs.glob("*/*")}
        assert modes == {0o600}
    finally:
        subprocess.run(["umount", recorder.logs], check=True)


def test_times_are_ordered_and_on_the_clock_of_the_header(recorder: Recorder) -> None:
    records = endings(recorder, "pmpi").records
    starts, ends = records["t_start"].to_numpy(), records["t_end"].to_numpy()
    assert np.all(ends > starts)
    assert np.all(starts[1:] >= ends[:-1])
    assert 0 <= starts[0] < 60
