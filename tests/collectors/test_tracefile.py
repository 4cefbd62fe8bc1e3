"""The trace file returns exactly the trace that was written; any other file is an error of one line."""

from __future__ import annotations

import os
import stat
import subprocess
import zlib
from dataclasses import fields, replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pdla
from pdla.analyzers.analysis import analyze
from pdla.collectors import tracefile
from pdla.collectors.tracefile import Rows, read_trace, stored_trace, write_blocks, write_trace
from pdla.errors import FormatError, PdlaError
from pdla.traces.file_views import View
from pdla.traces.tables import DOUBTS, OPS, RECORD_COLUMNS, files_frame, nanoseconds, records_frame, seconds
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace
from tests.support.mpi import unavailable

STRIDED = View(4096, 8, 80, 16, np.array([1, 2, 24, 0, 8]))


def some_trace() -> Trace:
    trace = make_trace(
        [
            Call(0, "read", 0, 64),
            Call(1, "write", 8, 16, file="/data/b", collective=True, view=1),
            Call(1, "read", 1 << 50, 1),
        ],
        [STRIDED],
    )
    return replace(
        trace,
        command="mpiexec -n 2 ./app 'ä' \udcff",
        mpi="MPICH 5.0",
        dropped=7,
        truncated=(1,),
        unrecorded={"MPI_File_get_size": 2},
        notes=("one", "zwei"),
    )


def assert_same(got: Trace, wanted: Trace) -> None:
    pd.testing.assert_frame_equal(got.records, wanted.records, check_exact=True)
    pd.testing.assert_frame_equal(got.files, wanted.files, check_exact=True)
    pd.testing.assert_frame_equal(got.posix, wanted.posix, check_exact=True)
    for field in fields(Trace):
        if field.name not in ("records", "files", "posix"):
            assert getattr(got, field.name) == getattr(wanted, field.name), field.name


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    assert_same(read_trace(tmp_path / "run.h5"), some_trace())
    assert_same(pdla.load(tmp_path / "run.h5"), some_trace())


def test_a_trace_without_calls_and_files_survives(tmp_path: Path) -> None:
    names = {name: pd.Categorical([], categories=["read"]) for name in ("op", "kind")}
    empty = {name: [] for name in ("rank", "file", "offset", "length", "t_start", "t_end")}
    trace = Trace(records_frame({**empty, **names}), files_frame([]), (View.plain(),))
    write_trace(trace, tmp_path / "run.h5")
    assert_same(read_trace(tmp_path / "run.h5"), trace)


def test_paths_that_are_not_utf8_and_full_width_inodes_survive(tmp_path: Path) -> None:
    trace = replace(
        some_trace(), files=files_frame([{"path": os.fsdecode(b"/d/\xff\xfe"), "inode": 2**64 - 1}, {"path": "/ä"}])
    )
    write_trace(trace, tmp_path / "run.h5")
    assert_same(read_trace(tmp_path / "run.h5"), trace)


@given(st.lists(st.integers(-(2**51), 2**51)))
def test_times_are_kept_to_the_nanosecond(times: list[int]) -> None:
    assert nanoseconds(seconds(times)).tolist() == times


def test_other_tools_find_columns_names_and_units(tmp_path: Path) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        assert (file.attrs["format"], file.attrs["version"], file.attrs["ranks"]) == ("pdla trace", 3, 2)
        records = file["records"]
        assert list(records) == [name for name in RECORD_COLUMNS if name not in DOUBTS]
        assert records["t_start"][()].tolist() == [0, -1_000_000, 0]  # since the end of the previous row
        assert records["t_end"][()].tolist() == [1_000_000, 1_000_000, 1_000_000]
        assert (records["t_end"].attrs["minus"], records["t_start"].attrs["delta"]) == ("t_start", 65536)
        assert records["t_start"].attrs["after"] == "t_end"
        assert records["t_end"].attrs["unit"] == "ns"
        assert [records["op"].attrs["names"][code] for code in records["op"]] == ["read", "write", "read"]
        assert (records["offset"].compression, records["offset"].shuffle) == ("gzip", True)
        assert file["views/words"][()].tolist() == [0, 1, 1, 2, 24, 0, 8]
        assert file["views/first"][()].tolist() == [0, 2, 7]
        assert file["views/displacement"][()].tolist() == [0, 4096]
        assert [path.decode() for path in file["files/path"]] == ["/data/a", "/data/b"]


def test_only_the_owner_can_read_it_and_no_other_file_stays(tmp_path: Path) -> None:
    (tmp_path / "run.h5").write_text("old")
    write_trace(some_trace(), tmp_path / "run.h5")
    assert stat.S_IMODE((tmp_path / "run.h5").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5"]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "run.h5").write_text("old")
    trace = some_trace()
    with pytest.raises(KeyError):
        write_trace(replace(trace, records=trace.records.drop(columns="error")), tmp_path / "run.h5")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"run.h5": "old"}


def test_a_disk_that_is_full_when_hdf5_closes_the_file_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        unavailable("to mount a small file system takes root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20K", "none", tmp_path], check=True)
    try:
        (tmp_path / "run.h5").write_text("old")
        with pytest.raises(PdlaError, match=r"cannot write .*run\.h5: No space left on device$"):
            write_trace(some_trace(), tmp_path / "run.h5")
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"run.h5": "old"}
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"cannot write .*run\.h5: No such file or directory"):
        write_trace(some_trace(), tmp_path / "missing" / "run.h5")


def test_a_target_that_is_a_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.h5").mkdir()
    with pytest.raises(PdlaError, match=r"cannot write .*run\.h5: Is a directory"):
        write_trace(some_trace(), tmp_path / "run.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5"]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"cannot read .*run\.h5: No such file or directory \(it should be a trace\)"):
        read_trace(tmp_path / "run.h5")


def test_a_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match="is a directory, not a trace"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "an empty file"), (b"rank,file,op\n", "a text file"), (b"\x89HDF", "a file of unknown content")],
)
def test_a_file_that_is_not_hdf5_is_one_line(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "run.h5").write_bytes(content)
    with pytest.raises(FormatError, match=f"is {what}, not a trace: 'pdla trace' makes one"):
        read_trace(tmp_path / "run.h5")


def test_an_hdf5_file_of_another_kind_is_one_line(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file["temperature"] = [1.0]
    with pytest.raises(FormatError, match="is an HDF5 file of another program, not a trace"):
        read_trace(tmp_path / "run.h5")


def test_a_newer_format_version_says_to_update(tmp_path: Path) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        file.attrs["version"] = 4
    with pytest.raises(FormatError, match="has format version 4, but this pdla reads up to 3: update pdla"):
        read_trace(tmp_path / "run.h5")


def test_a_trace_whose_texts_have_no_length_does_not_hang(tmp_path: Path) -> None:
    """HDF5 itself looks for the next text in the same place for ever."""
    write_trace(some_trace(), tmp_path / "run.h5")
    content = bytearray((tmp_path / "run.h5").read_bytes())
    heap = content.index(b"GCOL\x01\0\0\0")
    content[heap + 16 :] = bytes(16) + content[heap + 32 :]
    (tmp_path / "run.h5").write_bytes(bytes(content))
    with pytest.raises(FormatError, match=r"is cut short or damaged: the lengths of its texts are wrong"):
        read_trace(tmp_path / "run.h5")


def test_a_trace_cut_anywhere_is_one_line(tmp_path: Path) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    whole = (tmp_path / "run.h5").read_bytes()
    for size in [*range(8, len(whole), 997), len(whole) - 1]:
        (tmp_path / "cut.h5").write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"the trace .*cut\.h5 is cut short or damaged: ") as caught:
            read_trace(tmp_path / "cut.h5")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("records/offset", None, "offset"),
        ("records/offset", [1], "length"),
        ("records/file", np.array([0, 5, 0]), "a record names a file or a view that does not exist"),
        ("records/view", np.array([0, 2, 0]), "a record names a file or a view that does not exist"),
        ("records/op", np.array([0, 9, 0], dtype=np.int8), "codes"),
        ("views/words", np.array([0, 1, 1, 2, 24, 9, 8]), "kind 9"),
        ("views/extent", np.array([1]), "shorter|argument 4"),
        ("files/path", None, "path"),
        ("files/file", np.array([7], np.int32), "not numbered from 0"),
    ],
)
def test_contents_that_do_not_fit_together_are_one_line(
    tmp_path: Path, name: str, values: np.ndarray | None, message: str
) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        attributes = dict(file[name].attrs)
        del file[name]
        if values is not None:
            file[name] = values
            file[name].attrs.update(attributes)
    with pytest.raises(FormatError, match=rf"the trace .*run\.h5 is cut short or damaged: .*({message})"):
        read_trace(tmp_path / "run.h5")


@pytest.mark.parametrize(("name", "value"), [("truncated", "x"), ("ranks", "x"), ("hosts", 7), ("notes", "x")])
def test_an_attribute_of_another_type_is_one_line(tmp_path: Path, name: str, value: object) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        file.attrs[name] = value
    with pytest.raises(FormatError, match=r"the trace .*run\.h5 is cut short or damaged: .") as caught:
        read_trace(tmp_path / "run.h5")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [64, 6400])
def test_a_view_that_reaches_further_than_a_file_can_is_one_line(length: int) -> None:
    view = View(0, 8, 1 << 62, 16, np.array([1, 2, 24, 0, 8]))
    with pytest.raises(FormatError, match="further than a file can"):
        analyze(make_trace([Call(0, "read", 0, length, view=1)], [view]))


def test_some_rows_are_those_of_the_whole_wherever_they_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that overlap, as of threads, in chunks of 7 rows."""
    monkeypatch.setattr(tracefile, "_CHUNK", 7)
    choose = np.random.default_rng(1)
    starts = np.sort(choose.integers(0, 1 << 40, 40))
    columns = {name: np.zeros(40, dtype="int64") for name in RECORD_COLUMNS}
    columns |= {"call": np.arange(40), "t_start": starts, "t_end": starts + choose.integers(0, 1 << 38, 40)}
    columns["position"] = choose.integers(0, 1 << 50, 40)
    columns["offset"] = columns["position"] + choose.integers(0, 1 << 20, 40)
    rows = Rows([columns], 40, {"op": OPS, "kind": ["MPI_File_read"]})
    write_blocks(replace(some_trace(), posix=pd.DataFrame()), rows, None, tmp_path / "run.h5")
    with stored_trace(tmp_path / "run.h5") as trace:
        for names in (("t_start",), ("t_end",), ("offset", "t_end", "t_start")):
            for start, stop in ((0, 40), (0, 7), (3, 5), (6, 8), (7, 14), (13, 39)):
                got = trace.records.rows_of(start, stop, names)
                for name in names:
                    wanted = columns[name][start:stop]
                    np.testing.assert_array_equal(got[name], wanted / 1e9 if name.startswith("t_") else wanted)


def test_who_changes_a_column_of_a_loaded_trace_changes_no_other_one(tmp_path: Path) -> None:
    """Most columns are stored as no difference from another one."""
    write_trace(make_trace([Call(0, "read", 0, 10), Call(0, "read", 20, 10)]), tmp_path / "run.h5")
    records = pdla.load(tmp_path / "run.h5").records
    for name in ("offset", "position", "length", "requested"):
        others = records.drop(columns=name).copy()
        records.loc[0, name] += 1
        pd.testing.assert_frame_equal(records.drop(columns=name), others)


@pytest.mark.parametrize("settings", [{}, {"chunks": (2,)}, {"chunks": (2,), "compression": "lzf"}, {"dtype": ">i8"}])
def test_columns_that_another_tool_stored_in_its_way_are_read(tmp_path: Path, settings: dict[str, object]) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        for name in ("offset", "position", "requested"):
            values, attributes = file["records"][name][()], dict(file["records"][name].attrs)
            del file["records"][name]
            file["records"].create_dataset(name, data=values, **settings).attrs.update(attributes)
    assert_same(read_trace(tmp_path / "run.h5"), some_trace())


def test_a_chunk_that_is_stored_as_it_is_is_read(tmp_path: Path) -> None:
    """HDF5 may leave out the filters for a single chunk."""
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        dataset = file["records"]["requested"]
        dataset.id.write_direct_chunk((0,), dataset[()].tobytes(), filter_mask=0b11)
    assert_same(read_trace(tmp_path / "run.h5"), some_trace())


@pytest.mark.parametrize("data", [b"no stream", zlib.compress(bytes(8)), zlib.compress(bytes(999))])
def test_a_chunk_that_does_not_inflate_to_its_rows_is_one_line(tmp_path: Path, data: bytes) -> None:
    write_trace(some_trace(), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        file["records"]["requested"].id.write_direct_chunk((0,), data)
    with pytest.raises(FormatError, match=r"the trace .*run\.h5 is cut short or damaged: .") as caught:
        read_trace(tmp_path / "run.h5")
    assert "\n" not in str(caught.value)
