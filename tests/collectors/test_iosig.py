"""Text traces of IOSIG, first and last version, become traces; a line of neither is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdla.analyzers.analysis import analyze
from pdla.collectors.iosig import import_iosig
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError

FIRST = """
Proc ID  MPI_Rank   File #     File Pos \t # of Bytes \t Time(s)     I/O Op
=====================================================================================\x20
10653      0      0             0             0         0.038132  MPI_OPEN
10653      0      0             0             0         0.043720  MPI_SEEK
10653      0      0             0       1048576         0.043729  MPI_READ
10653      0      0    1073741824       1048576         0.093116  MPI_READ
10653      0      0             0             0        23.978320  MPI_CLOSE

End of trace\x20
"""

LAST = """# OPER  FH  POS  SIZE  START  END  PATH
#--------------------------------------
MPI_OPEN          9      0      0    0.000100    0.002000 /scratch/my file
MPI_WRITEATALL    9   4096    512    0.003000    0.004000 -
MPI_IREADAT       9      0     64    0.005000    0.006000 -
MPI_CLOSE         0      0      0    0.007000    0.008000 -
MPI_OPEN          9      0      0    0.009000    0.010000 /scratch/other
MPI_READSH        9     64     64    0.011000    0.012000 -
#---------- END OF TRACE --------------
"""


def log(tmp_path: Path, text: str, name: str = "trace_10653.out") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_first_format(tmp_path: Path) -> None:
    trace = import_iosig(log(tmp_path, FIRST))
    columns = ["rank", "call", "file", "kind", "op", "offset", "length", "t_start", "t_end"]
    assert list(trace.records[columns].itertuples(index=False, name=None)) == [
        (0, 0, 0, "MPI_File_open", "other", 0, 0, 0.038132, 0.038132),
        (0, 1, 0, "MPI_File_seek", "other", 0, 0, 0.04372, 0.04372),
        (0, 2, 0, "MPI_File_read", "read", 0, 1048576, 0.043729, 0.043729),
        (0, 3, 0, "MPI_File_read", "read", 1073741824, 1048576, 0.093116, 0.093116),
        (0, 4, 0, "MPI_File_close", "other", 0, 0, 23.97832, 23.97832),
    ]
    assert trace.files["path"].tolist() == ["file 0"]
    assert trace.notes == (
        "IOSIG does not record file views: each call counts as one extent from its first byte on",
        "IOSIG records what a call asked for, not what it moved",
        "this version of IOSIG did not record when calls ended",
        "this trace does not name all its files: those have the numbers that IOSIG gave them",
    )


def test_the_first_format_with_the_times_at_which_calls_ended(tmp_path: Path) -> None:
    line = "10653      3      7          4096           512         0.500000         MPI_WRITEAT        0.750000\n"
    trace = import_iosig(log(tmp_path, line))
    assert trace.records[["rank", "t_start", "t_end"]].to_numpy().tolist() == [[3, 0.5, 0.75]]
    assert "this version of IOSIG did not record when calls ended" not in trace.notes


def test_the_last_format_names_files_and_collective_calls(tmp_path: Path) -> None:
    trace = import_iosig(log(tmp_path, LAST, "mpiio_trace_rank-3.out"))
    columns = ["rank", "file", "kind", "collective", "offset", "length", "t_start", "t_end"]
    assert list(trace.records[columns][trace.records["op"] != "other"].itertuples(index=False, name=None)) == [
        (3, 0, "MPI_File_write_at_all", True, 4096, 512, 0.003, 0.004),
        (3, 0, "MPI_File_iread_at", False, 0, 64, 0.005, 0.006),
        (3, 1, "MPI_File_read_shared", False, 64, 64, 0.011, 0.012),
    ]
    assert trace.files["path"].tolist() == ["/scratch/my file", "/scratch/other"]
    assert (trace.ranks, trace.source, len(trace.notes)) == (4, "iosig", 3)
    assert trace.notes[2] == "3 ranks of 4 made no call"


@pytest.mark.parametrize("numbers", ["0 5 9223372036854775807 8 1.0", "16777216 5 0 8 1.0", "0 5 0 8 1000000000000.0"])
def test_a_number_that_is_too_large_is_refused_with_its_line(tmp_path: Path, numbers: str) -> None:
    with pytest.raises(FormatError, match="line 2: a number is too large: '1 "):
        import_iosig(log(tmp_path, f"1 0 5 0 8 1.0 MPI_READ\n1 {numbers} MPI_READ\n"))


def test_what_is_odd_is_noted(tmp_path: Path) -> None:
    times = (5.0, 6.0, 1.0, 2.0)
    lines = [f"1 1 5 {at} 8 {time} MPI_READ\n" for at, time in zip((-7, 0, 8, 16), times, strict=True)]
    trace = import_iosig(log(tmp_path, "".join(lines)))
    assert trace.notes[3:6] == (
        "the place of the bytes of 1 call is not known: their offset is -1",
        "a clock was set back 1 time: calls start before the previous one",
        "1 rank of 2 made no call",
    )
    assert trace.records["offset"].tolist() == [-1, 0, 8, 16]
    assert trace.accesses()["offset"].tolist() == [0, 8, 16]


def test_a_directory_is_all_ranks(tmp_path: Path) -> None:
    for rank in range(4):
        reads = "".join(
            f"MPI_READAT 5 {rank * 64 + i * 256} 64 {i}.000000 {i}.500000 {'/data/a' if i == 0 else '-'}\n"
            for i in range(10)
        )
        log(tmp_path, reads, f"mpiio_trace_rank-{rank}.out")
    log(tmp_path, "something else\n", "posix_trace_rank-0.out")
    trace = import_iosig(tmp_path)
    assert [str(s) for s in analyze(trace).signatures] == ["{READ, 0, 2, ([256, 64, 10], [64, 64, 4]r), 1}"]
    assert trace.files[["path", "ranks"]].to_numpy().tolist() == [["/data/a", 4]]


def test_an_imported_trace_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_iosig(log(tmp_path, LAST))
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is an empty file, not an IOSIG trace"),
        (FIRST + "10653 0 0 zero 1 0.5 MPI_READ\n", "line 11: not an IOSIG record: '10653 0 0 zero 1 0.5 MPI_READ'"),
        ("rank,file,op\n", "line 1: not an IOSIG record: 'rank,file,op'"),
    ],
)
def test_what_is_no_trace_of_iosig_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        import_iosig(log(tmp_path, text))


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"cannot read .*none\.out: No such file"):
        import_iosig(tmp_path / "none.out")
    with pytest.raises(FormatError, match=r"neither mpiio_trace_rank-\*\.out nor trace_\*\.out"):
        import_iosig(tmp_path)
