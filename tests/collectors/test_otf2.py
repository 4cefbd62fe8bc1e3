"""OTF2: archives of the real writer, with the events that Score-P writes, become traces; damaged ones are refused.

What Score-P writes is taken from the documentation of OTF2 (event orders, paradigms) and from Score-P's sources (the
attribute "Offset", a begin and a completion for each element of a vector, seeks of MPI-IO).
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pdla.collectors.otf2 import import_otf2
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError
from pdla.traces.trace import Trace
from tests.support.fewer_cases import THOROUGH
from tests.support.otf2_archives import (
    RANKS,
    IoHandleFlag,
    IoOperationFlag,
    IoOperationMode,
    IoStatusFlag,
    Process,
    written,
)

UNDEFINED = 2**64 - 1


def rows(trace: Trace | pd.DataFrame) -> list[tuple[Any, ...]]:
    records = trace.records if isinstance(trace, Trace) else trace
    return list(records[["kind", "offset", "length"]].itertuples(index=False, name=None))


def of(tmp_path: Path, program: Callable[[Process], None]) -> list[tuple[Any, ...]]:
    return rows(import_otf2(written(tmp_path / "archive", program)))


def test_calls_of_mpi_io_with_their_places_and_times(tmp_path: Path) -> None:
    trace = import_otf2(written(tmp_path / "archive", *RANKS))
    assert (trace.ranks, trace.source, trace.notes) == (2, "otf2", ())
    assert trace.started > 1.6e9
    assert trace.files[["path", "ranks"]].to_numpy().tolist() == [["/data", 2]]
    for rank in (0, 1):
        assert rows(trace.records[trace.records["rank"] == rank]) == [
            *(("MPI_File_write_at_all", (turn * 2 + rank) * 4096, 4096) for turn in range(4)),
            *(("MPI_File_read", 100, 50), ("MPI_File_read", 150, 20)),
        ]
    assert trace.records["collective"].tolist() == [True, True, True, True, False, False] * 2
    assert trace.records["moved_known"].all()
    # 10 ns apart: two opens, the first event being time 0, then the region, then the begin.
    assert trace.records[["t_start", "t_end"]].iloc[0].tolist() == [3e-8, 8e-8]


def test_after_a_change_of_the_view_a_file_has_its_posix_calls(tmp_path: Path) -> None:
    def program(process: Process) -> None:
        above = process.open("MPI-IO", "/data")
        process.enter("MPI_File_set_view")
        process.leave("MPI_File_set_view")
        below = process.open("POSIX", "/data")
        process.enter("MPI_File_read_at")
        process.begin(above, 64, IoOperationMode.READ, offset=2)
        process.call("pread", below, 128, offset=1000)
        process.complete(above, 64)
        process.leave("MPI_File_read_at")

    trace = import_otf2(written(tmp_path / "archive", program))
    assert rows(trace) == [("pread", 1000, 128)]
    assert trace.notes == (
        "OTF2 does not record file views: the place of MPI-IO calls after a change of the view is not known",
        "1 file with MPI-IO calls whose place or size is not known: "
        "these are the POSIX calls that the MPI library made",
    )


def test_a_position_follows_from_the_calls_before(tmp_path: Path) -> None:
    def program(process: Process) -> None:
        file = process.open("POSIX", "/data")
        process.call("read", file, 100)
        process.call("read", file, 100, 30)
        process.call("pread", file, 10, offset=7)
        process.call("read", file, 10)
        process.seek(file, 500)
        process.call("write", file, 10)
        other = process.handle("POSIX", "/data")
        process.copy(file, other)
        process.call("write", other, 10)
        process.close(file)
        process.call("write", other, 10)

    assert of(tmp_path, program) == [
        *(("read", 0, 100), ("read", 100, 30), ("pread", 7, 10), ("read", 130, 10)),
        *(("write", 500, 10), ("write", 510, 10), ("write", 520, 10)),
    ]


def test_the_elements_of_a_vector(tmp_path: Path) -> None:
    def program(process: Process) -> None:
        file = process.open("POSIX", "/data")
        process.enter("readv")
        for number, size in enumerate((10, 20)):
            process.begin(file, size, IoOperationMode.READ, number=number + 1)
        for number, moved in enumerate((10, 5)):
            process.complete(file, moved, number + 1)
        process.leave("readv")
        process.call("read", file, 8)

    assert of(tmp_path, program) == [("readv", 0, 10), ("readv", 10, 5), ("read", 15, 8)]


def test_nonblocking_operations_end_when_they_complete(tmp_path: Path) -> None:
    def program(process: Process) -> None:
        file = process.open("MPI-IO", "/data")
        for number in (1, 2, 3):
            process.enter("MPI_File_iread")
            process.begin(file, 100, IoOperationMode.READ, number=number, flag=IoOperationFlag.NON_BLOCKING)
            process.leave("MPI_File_iread")
        process.cancel(file, 2)
        process.complete(file, 60, 1)
        process.call("MPI_File_read_shared", file, 4)
        process.close(file)

    trace = import_otf2(written(tmp_path / "archive", program))
    assert rows(trace) == [("MPI_File_iread", 0, 60), ("MPI_File_iread", 200, 100), ("MPI_File_read_shared", -1, 4)]
    assert trace.records["moved_known"].tolist() == [True, False, True]
    assert (trace.records["t_end"] - trace.records["t_start"]).round(9).tolist() == [9e-8, 8e-8, 1e-8]
    assert trace.notes[0] == "1 operation did not end: the bytes moved are not known"


def test_what_has_no_place_and_what_is_no_file(tmp_path: Path) -> None:
    def program(process: Process) -> None:
        process.call("write", process.handle("POSIX", "<STDOUT>", IoHandleFlag.PRE_CREATED), 10)
        process.call("write", process.handle("POSIX", "/before"), 10)  # open before the recording began
        process.call("write", process.open("POSIX", "/log", IoStatusFlag.APPEND), 10)
        process.call("H5Dwrite", process.open("HDF5", "/data.h5"), 10)
        stream = process.open("ISOC", "/text")
        process.begin(stream, UNDEFINED, IoOperationMode.FLUSH)
        process.complete(stream, UNDEFINED)
        process.call("unknown", stream, 5, UNDEFINED)
        process.begin(stream, 6, IoOperationMode.READ)

    trace = import_otf2(written(tmp_path / "archive", program, names="process {}"))
    assert rows(trace) == [("write", -1, 10), ("write", -1, 10), ("ISOC read", 0, 5), ("ISOC read", 5, 6)]
    assert trace.notes == (
        "this archive does not name ranks: its location groups are numbered in their order",
        "1 operation of HDF5 and other libraries: only those below are here",
        "1 operation did not end: the bytes moved are not known",
        "the place of the bytes of 2 calls is not known: their offset is -1",
    )


def test_an_imported_archive_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_otf2(written(tmp_path / "archive", *RANKS))
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)


def test_the_verb_reads_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pdla.cli import cli

    written(tmp_path / "archive", *RANKS)
    cli.main(["import", "otf2", str(tmp_path / "archive"), "-o", str(tmp_path / "run.h5")], standalone_mode=False)
    assert "run.h5: 2 ranks, 12 calls, 32.1 KiB moved in 1 file" in capsys.readouterr().out


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_archive_with_a_file_cut_anywhere_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "whole", *RANKS)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for file in (path for path in (tmp_path / "whole").rglob("*") if path.suffix in (".otf2", ".evt", ".def")):
        whole, place = file.read_bytes(), tmp_path / "cut" / file.relative_to(tmp_path / "whole")
        if file.parent != tmp_path / "whole" and file.suffix == ".def":
            continue  # mappings, of which these archives have none
        used = len(whole.rstrip(b"\0"))
        for size in range(0, used - 1, max(1, used // (5 if THOROUGH else 2))):
            place.write_bytes(whole[:size])
            with pytest.raises(PdlaError) as caught:
                import_otf2(tmp_path / "cut" / "traces.otf2")
            assert "\n" not in str(caught.value)
        place.write_bytes(whole)
    assert capfd.readouterr() == ("", "")


def test_an_archive_without_operations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"has no I/O operation of MPI-IO, POSIX, ISOC: was the program built"):
        import_otf2(written(tmp_path / "archive", lambda process: process.close(process.open("POSIX", "/data"))))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x03BOTF", bytes(100)])
def test_another_file_is_named_as_what_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "traces.otf2").write_bytes(content)
    with pytest.raises(FormatError, match=r"is a.* file.*, not an OTF2 archive: "):
        import_otf2(tmp_path / "traces.otf2")


def test_a_directory_needs_one_anchor(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is a directory with 0 files \*\.otf2, not an OTF2 archive"):
        import_otf2(tmp_path)
    with pytest.raises(FormatError, match="No such file"):
        import_otf2(tmp_path / "none.otf2")


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor = written(tmp_path / "archive", *RANKS)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PdlaError, match=r"reading OTF2 archives needs the package otf2: pip install 'pdla\[otf2\]'"):
        import_otf2(anchor)
