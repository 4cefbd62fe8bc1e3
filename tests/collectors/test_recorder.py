"""Recorder: real traces of versions 2.3 to 2.5 become traces, and the same ones packed as version 3 packs them."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pdla.collectors.recorder import import_recorder
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError
from pdla.traces.trace import Trace
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi, available_mpis

SAMPLES = REPOSITORY / "tests/samples"
HOLES, PLAIN = SAMPLES / "recorder-2.5", SAMPLES / "recorder-2.4"
OWN = [
    ("write", 0, 1000),
    ("write", 1000, 500),
    ("read", 100, 50),
    ("read", 200, 25),
    ("read", -1, 100),  # after a seek from the end, which no call tells
    ("pwrite", 2000, 30),
    ("writev", -1, 30),
    ("write", -1, 7),
    ("fread", 0, 80),
    ("fwrite", 40, 60),
]
"""The calls of tests/programs/imported.c on a rank's own file, as Recorder sees them: it does not record preadv."""


def rows(records: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(records[["kind", "offset", "length"]].itertuples(index=False, name=None))


def of_file(trace: Trace, ending: str, rank: int) -> pd.DataFrame:
    (file,) = trace.files.loc[trace.files["path"].str.endswith(ending), "file"]
    return trace.records[(trace.records["file"] == file) & (trace.records["rank"] == rank)]


def check_own(trace: Trace) -> None:
    assert (trace.ranks, trace.source) == (2, "recorder")
    for rank in (0, 1):
        assert rows(of_file(trace, f"/shared.{rank}", rank)) == OWN
        assert of_file(trace, f"/shared.{rank}", 1 - rank).empty
    assert (trace.records["t_end"] >= trace.records["t_start"]).all()
    assert trace.records["t_start"].between(0, 60).all()
    assert trace.started > 1.6e9
    assert not trace.records["moved_known"].any()


def check_plain(trace: Trace) -> None:
    """That a trace has the program's calls without a view with holes."""
    check_own(trace)
    for rank in (0, 1):
        shared = of_file(trace, "/shared", rank)
        assert rows(shared) == [
            *(("MPI_File_write_at", (turn * 2 + rank) * 4096, 4096) for turn in range(8)),
            *(("MPI_File_read_at_all", (turn * 2 + rank) * 4096, 4096) for turn in range(4)),
            ("MPI_File_read", 100, 200),
            ("MPI_File_read", 300, 100),
            ("MPI_File_read_all", rank * 64, 256),
            ("MPI_File_iwrite_at", 32768 + rank * 40, 40),
        ]
        assert shared["collective"].tolist() == [False] * 8 + [True] * 4 + [False] * 2 + [True, False]


def check_holes(trace: Trace) -> None:
    check_own(trace)
    for rank in (0, 1):
        shared = rows(of_file(trace, "/shared", rank))
        assert shared[:8] == [("pwrite", (turn * 2 + rank) * 4096, 4096) for turn in range(8)]
        assert shared[8:14] == [
            *(("pread", (turn * 2 + rank) * 4096, 4096) for turn in range(4)),
            *(("pread", 100, 200), ("pread", 300, 100)),
        ]


def test_calls_of_mpi_io_whose_places_are_known() -> None:
    trace = import_recorder(PLAIN)
    check_plain(trace)
    assert trace.notes == (
        "Recorder does not record what calls return: each counts as if it moved all bytes that it asked for",
        "the times of each rank count from its own start",
        "Recorder does not record fprintf: streams that it moves are elsewhere than this trace says",
        "the place of the bytes of 6 calls is not known: their offset is -1",
    )


@pytest.mark.parametrize("sample", ["recorder-2.3", "recorder-2.5"])
def test_a_file_with_a_view_that_is_not_recorded_has_its_posix_calls(sample: str) -> None:
    trace = import_recorder(SAMPLES / sample)
    check_holes(trace)
    assert trace.notes[3] == (
        "1 file with MPI-IO calls whose place or size is not known: these are the POSIX calls that the MPI library made"
    )


@pytest.mark.parametrize("words", [(), ("plain",)])
def test_the_tool_itself(tmp_path: Path, words: tuple[str, ...]) -> None:
    if "PDLA_TEST_RECORDER" not in os.environ:
        pytest.skip("PDLA_TEST_RECORDER names no librecorder.so")
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    program = mpi.compile(REPOSITORY / "tests/programs/imported.c", tmp_path / "imported")
    variables = [f"LD_PRELOAD={os.environ['PDLA_TEST_RECORDER']}", f"RECORDER_TRACES_DIR={tmp_path}"]
    mpi.run(mpi.command(2, "env", *variables, str(program), str(tmp_path / "shared"), *words))
    (trace,) = tmp_path.glob("recorder-*/*")
    (check_plain if words else check_holes)(import_recorder(trace))


def test_an_imported_trace_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_recorder(PLAIN)
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)


# ---- version 3 ------------------------------------------------------------------------------------------------------


def packed(content: bytes) -> bytes:
    data = zlib.compress(content)
    return struct.pack("<QQ", len(data), len(content)) + data


def as_version_3(sample: Path, path: Path, *, times_packed: bool = True, patterns: bool = False) -> Path:
    """A trace in the containers of version 3. It is not made by the tool, and shows only that they are unpacked."""
    path.mkdir()
    header = (sample / "recorder.mt").read_bytes()
    ranks, started, resolution, elements, _, merged = struct.unpack_from("<i4xddiii", header)
    start = struct.pack(
        "<i8?4xddi4?", ranks, *[True] * 8, started, resolution, elements, times_packed, merged, False, patterns
    )
    (path / "recorder.mt").write_bytes(start.ljust(1024, b"\0") + header[40:])
    (path / "VERSION").write_text("3.0.0")
    times = [(sample / f"{rank}.ts").read_bytes() for rank in range(ranks)]
    if times_packed:
        times = [packed(part[:80]) + packed(part[80:]) for part in times]
    (path / "recorder.ts").write_bytes(struct.pack(f"<{ranks}Q", *map(len, times)) + b"".join(times))
    if merged:
        (path / "recorder.cst").write_bytes(packed((sample / "0.cst").read_bytes()))
        shutil.copy(sample / "ug.mt", path)
        (path / "ug.cfg").write_bytes(b"".join(packed((sample / f"{n}.cfg").read_bytes()) for n in range(ranks)))
    else:
        for rank in range(ranks):
            for ending in ("cst", "cfg"):
                (path / f"{rank}.{ending}").write_bytes(packed((sample / f"{rank}.{ending}").read_bytes()))
    return path


@pytest.mark.parametrize("times_packed", [True, False])
@pytest.mark.parametrize(("sample", "check"), [(PLAIN, check_plain), (HOLES, check_holes)])
def test_the_containers_of_version_3(
    tmp_path: Path, sample: Path, check: Callable[[Trace], None], times_packed: bool
) -> None:
    check(import_recorder(as_version_3(sample, tmp_path / "trace", times_packed=times_packed)))


def test_offsets_that_stand_for_patterns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match="was recorded with pattern recognition, which pdla cannot read"):
        import_recorder(as_version_3(HOLES, tmp_path / "trace", patterns=True))


# ---- traces of single calls -----------------------------------------------------------------------------------------

FUNCTIONS = [
    "open",
    "close",
    "read",
    "write",
    "lseek",
    "dup",
    "vfprintf",
    "fopen",
    "MPI_File_open",
    "MPI_File_set_view",
]
FUNCTIONS += ["MPI_File_write", "MPI_File_read_shared", "MPI_File_seek", "MPI_File_close", "MPI_Barrier", "H5Dread"]
FUNCTIONS += ["MPI_File_read_at", "fread"]


def made(path: Path, *calls: str, rules: bytes | None = None) -> Path:
    """A trace of version 2.5 of one rank with these calls: "FUNCTION ARGUMENT ARGUMENT ..."."""
    path.mkdir(exist_ok=True)
    (path / "VERSION").write_text("2.5.0")
    start = struct.pack("<i4xddiii4x", 1, 1.7e9, 1e-7, 100, 0, 0)
    (path / "recorder.mt").write_bytes(start + "\n".join([*FUNCTIONS, ""]).encode())
    signatures = struct.pack("<i", len(calls))
    for number, call in enumerate(calls):
        function, *words = call.split()
        text = "".join(f"{word} " for word in words).encode()
        key = struct.pack("<qBBBi", 0, FUNCTIONS.index(function), 0, len(words), len(text)) + text
        signatures += struct.pack("<iiii", number, 0, len(key), 1) + key
    (path / "0.cst").write_bytes(signatures)
    body = np.array([(number, 1) for number in range(len(calls))], dtype="<i4").tobytes()
    (path / "0.cfg").write_bytes(rules or struct.pack("<iii", 1, -1, len(calls)) + body)
    (path / "0.ts").write_bytes(np.array([(10, 15)] * len(calls), dtype="<u4").tobytes())
    return path


def imported(path: Path, *calls: str) -> list[tuple[Any, ...]]:
    return rows(import_recorder(made(path / "trace", *calls)).records)


def test_what_moves_a_position_unseen(tmp_path: Path) -> None:
    read, opened = "read /a %p 10", "open /a 2"
    assert imported(tmp_path, opened, read, read, "lseek /a 5 1", read) == [
        ("read", 0, 10),
        ("read", 10, 10),
        ("read", 25, 10),
    ]
    assert imported(tmp_path, opened, "open /a 2", read, "close /a", "lseek /a 7 0", read)[1] == ("read", 7, 10)
    assert imported(tmp_path, opened, "dup 5", read, "lseek /a 7 0", read) == [("read", -1, 10)] * 2
    assert imported(tmp_path, "open /a 1025", "write /a %p 10", "write /a %p 10") == [("write", -1, 10)] * 2
    assert imported(tmp_path, "fopen /a r", "vfprintf /a", "fread %p 1 4 /a") == [("fread", -1, 4)]
    assert imported(tmp_path, "fopen /a a", "fread %p 1 4 /a") == [("fread", 0, 4)]


def test_views_of_named_datatypes_count_in_their_elements(tmp_path: Path) -> None:
    opened = "MPI_File_open MPI_COMM_WORLD /a 2 %p 0-0"
    view = "MPI_File_set_view 0-0 1000 MPI_DOUBLE MPI_DOUBLE %p %p"
    write = "MPI_File_write 0-0 %p 5 MPI_DOUBLE [0_0]"
    at = "MPI_File_read_at 0-0 10 %p 2 MPI_DOUBLE [0_0]"
    seek = "MPI_File_seek 0-0 4 MPI_SEEK_CUR"
    assert imported(tmp_path, opened, view, write, write, at, seek, write) == [
        ("MPI_File_write", 1000, 40),
        ("MPI_File_write", 1040, 40),
        ("MPI_File_read_at", 1080, 16),
        ("MPI_File_write", 1112, 40),
    ]


@pytest.mark.parametrize(
    "call",
    [
        "MPI_File_write 0-0 %p 5 MPI_TYPE_UNKNOWN [0_0]",
        "MPI_File_read_shared 0-0 %p 5 MPI_BYTE [0_0]",
    ],
)
def test_one_call_without_a_place_gives_a_file_its_posix_calls(tmp_path: Path, call: str) -> None:
    opened, other = "MPI_File_open MPI_COMM_WORLD /a 2 %p 0-0", "MPI_File_read_at 0-0 10 %p 2 MPI_BYTE [0_0]"
    below = ["open /a 2", "read /a %p 30", "H5Dread 1 2", "MPI_Barrier MPI_COMM_WORLD"]
    assert imported(tmp_path, opened, other, call, *below) == [("read", 0, 30)]


def test_calls_without_a_place_stay_if_there_are_no_posix_calls(tmp_path: Path) -> None:
    opened, at = "MPI_File_open MPI_COMM_WORLD /a 2 %p 0-0", "MPI_File_read_at 0-0 10 %p 2 MPI_BYTE [0_0]"
    shared = "MPI_File_read_shared 0-0 %p 5 MPI_TYPE_UNKNOWN [0_0]"
    assert imported(tmp_path, opened, at, shared) == [("MPI_File_read_at", 10, 2), ("MPI_File_read_shared", -1, 0)]


def test_a_trace_without_calls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match="has no read or write"):
        import_recorder(made(tmp_path / "trace", "open /a 2"))


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("sample", [PLAIN, HOLES], ids=["merged", "separate"])
def test_a_trace_with_a_file_cut_anywhere_is_refused_in_one_line(tmp_path: Path, sample: Path, version: int) -> None:
    source = as_version_3(sample, tmp_path / "whole") if version == 3 else sample
    shutil.copytree(source, tmp_path / "cut")
    for file in source.iterdir():
        whole = file.read_bytes()
        for size in range(0, len(whole), max(1, len(whole) // 40)):
            if file.name == "recorder.mt" and size >= 1000:
                continue  # names of functions that nobody called
            (tmp_path / "cut" / file.name).write_bytes(whole[:size])
            if file.name == "VERSION" and size >= 3:
                continue  # major and minor are there
            with pytest.raises(PdlaError) as caught:
                import_recorder(tmp_path / "cut")
            assert "\n" not in str(caught.value)
        (tmp_path / "cut" / file.name).write_bytes(whole)


def test_a_changed_byte_is_refused_or_read(tmp_path: Path) -> None:
    shutil.copytree(PLAIN, tmp_path / "cut")
    for file in PLAIN.iterdir():
        whole = file.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 60)):
            damaged = bytearray(whole)
            damaged[place] ^= 0x95
            (tmp_path / "cut" / file.name).write_bytes(damaged)
            try:
                import_recorder(tmp_path / "cut")
            except PdlaError as error:
                assert "\n" not in str(error)
        (tmp_path / "cut" / file.name).write_bytes(whole)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (struct.pack("<7i", 1, -1, 2, 0, 1, -1, 1), "a rule contains itself"),
        (struct.pack("<12i", 2, -1, 2, 0, 1, -2, 1, -2, 1, -1, 1, 0), "a rule contains itself"),
        (struct.pack("<5i", 1, -1, 1, 0, 1 << 30), "a grammar has 1073741824 calls, and there are times of 1"),
        (struct.pack("<5i", 1, -1, 1, 0, 0), "an impossible number of repetitions"),
        (struct.pack("<5i", 1, -1, 1, 0, -1), "an impossible number of repetitions"),
        (struct.pack("<3i", 1, -1, -1), "a rule has an impossible length"),
        (struct.pack("<5i", 1, -1, 1, 9, 1), "a call of rank 0 has no signature"),
        (struct.pack("<5i", 1, -1, 1, -7, 1), "-7"),
    ],
)
def test_an_impossible_grammar_is_refused(tmp_path: Path, rules: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        import_recorder(made(tmp_path / "trace", "open /a 2", rules=rules))


@pytest.mark.parametrize("version", ["2.2.1", "4.0.0", "hello", "", "2"])
def test_another_version_is_named(tmp_path: Path, version: str) -> None:
    path = made(tmp_path / "trace", "open /a 2")
    (path / "VERSION").write_text(version)
    with pytest.raises(FormatError, match=f"is of Recorder '{version}'; pdla reads versions 2.3 to 3"):
        import_recorder(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "trace", "read /a %p 10")
    (path / "0.ts").unlink()
    with pytest.raises(PdlaError, match=r"cannot read .*0\.ts: No such file"):
        import_recorder(path)


def test_what_is_no_trace_of_recorder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a directory, not a trace of Recorder: it is a directory with a file"):
        import_recorder(tmp_path)
    with pytest.raises(FormatError, match="No such file"):
        import_recorder(tmp_path / "none")


def test_the_verb_reads_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pdla.cli import cli

    cli.main(["import", "recorder", str(PLAIN), "-o", str(tmp_path / "run.h5")], standalone_mode=False)
    assert "run.h5: 2 ranks, 52 calls, 101 KiB moved in 3 files" in capsys.readouterr().out
