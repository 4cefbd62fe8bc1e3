"""CSV and Parquet: seven columns become a trace; a wrong line, column or row is named."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pdla.collectors.csv_parquet import import_csv, import_parquet
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError
from tests.support.mpi import unavailable

HEADER = "rank,file,op,offset,length,t_start,t_end\n"


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "accesses.csv"
    path.write_bytes(text.encode("latin-1"))
    return path


def test_lines_become_records_in_the_order_of_rank_and_time(tmp_path: Path) -> None:
    lines = (
        "1,/data/a,read,4096,512,0.5,0.75",
        '0,"/data/b, old",WRITE,0,8,0.25,0.5',
        "",
        "0,/data/a,read,0,512,0.125,0.2",
    )
    trace = import_csv(csv(tmp_path, HEADER + "\n".join(lines)))
    columns = ["rank", "call", "file", "op", "offset", "length", "t_start", "t_end"]
    assert list(trace.records[columns].itertuples(index=False, name=None)) == [
        (0, 0, 0, "read", 0, 512, 0.125, 0.2),
        (0, 1, 1, "write", 0, 8, 0.25, 0.5),
        (1, 0, 0, "read", 4096, 512, 0.5, 0.75),
    ]
    assert trace.files[["file", "path", "ranks"]].to_numpy().tolist() == [[0, "/data/a", 2], [1, "/data/b, old", 1]]
    assert (trace.ranks, trace.source, trace.command) == (2, "csv", "imported from accesses.csv")
    assert trace.notes == ("the file does not say which calls were collective",)
    assert trace.accesses()["offset"].tolist() == [0, 0, 4096]


def test_an_imported_trace_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_csv(csv(tmp_path, HEADER + "0,/a,read,0,8,0.1234567891,0.3\n"))
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)
    assert trace.records["t_start"].tolist() == [0.123456789]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is an empty file, not a CSV file of accesses"),
        ("rank,op\n0,read\n", "line 1: the header must be rank,file,op,offset,length,t_start,t_end .got rank,op."),
        (HEADER, "has a header but no access"),
        (HEADER + "0,/a,read,0,8,0,1\n0,/a,read,0,8\n", "line 3: a line must have 7 fields .got 5."),
        (HEADER + "-1,/a,read,0,8,0,1\n", "line 2: rank must be a whole number, not negative .got '-1'."),
        (HEADER + "0,/a,read,0.5,8,0,1\n", "line 2: offset must be a whole number, not negative .got '0.5'."),
        (HEADER + "0,/a,read,0,eight,0,1\n", "line 2: length must be a whole number, not negative .got 'eight'."),
        (HEADER + "0,/a,copy,0,8,0,1\n", "line 2: op must be read or write .got 'copy'."),
        (HEADER + "0,,read,0,8,0,1\n", "line 2: the file has no name"),
        (HEADER + "0,/a,read,0,8,soon,1\n", "line 2: t_start must be a number of seconds .got 'soon'."),
        (HEADER + "0,/a,read,0,8,0,nan\n", "line 2: t_end must be a number of seconds .got 'nan'."),
        (HEADER + "0,/a,read,0,8,2,1\n", "line 2: t_end must not be before t_start .got 2.0 to 1.0."),
        (HEADER + f"0,/a,read,{2**63},8,0,1\n", f"line 2: too large: rank 0, offset {2**63}, length 8"),
        (HEADER + f"{2**31},/a,read,0,8,0,1\n", f"line 2: too large: rank {2**31}, offset 0, length 8"),
        (HEADER[:-1] + ",collective\n0,/a,read,0,8,0,1,yes\n", "line 2: collective must be true or false .got 'yes'."),
        (HEADER[:-1] + ",note\n0,/a,read,0,8,0,1\n", "line 2: a line must have 8 fields .got 7."),
        (HEADER + '0,"/a,read,0,8,0,1\n', "is not CSV in UTF-8: unexpected end of data"),
        (HEADER + "0,/\xe4,read,0,8,0,1\n", "is not CSV in UTF-8: .*utf-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=rf"accesses\.csv,? {message}"):
        import_csv(csv(tmp_path, text))


def test_a_column_may_say_which_calls_were_collective_and_others_are_ignored(tmp_path: Path) -> None:
    lines = (
        "rank,t_end,op,file,collective,offset,length,t_start,note",
        "1,2,read,/a,True,8,4,1,x",
        "0,2,read,/a,false,0,4,1,",
    )
    trace = import_csv(csv(tmp_path, "\n".join(lines)))
    columns = ["rank", "offset", "t_start", "t_end", "collective"]
    assert trace.records[columns].to_numpy().tolist() == [[0, 0, 1, 2, False], [1, 8, 1, 2, True]]
    assert trace.notes == ()


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    """Write a Parquet file of two accesses; given columns replace the usual ones."""
    if importlib.util.find_spec("pyarrow") is None:
        unavailable("pyarrow is not installed")

    def write(**columns: Any) -> Path:
        table: dict[str, Any] = {
            "t_end": [0.75, 0.2],
            "rank": np.array([1, 0], np.int32),
            "file": pd.Categorical(["/data/a", "/data/b, old"]),
            "op": ["read", "WRITE"],
            "offset": np.array([4096, 0], np.uint64),
            "length": [512, 8],
            "t_start": [0.5, 0.125],
            "thread": [0, 0],
        }
        path = tmp_path / "accesses.parquet"
        table = {name: values for name, values in {**table, **columns}.items() if values is not None}
        pd.DataFrame(table).to_parquet(path)
        return path

    return write


def test_the_columns_of_a_parquet_file_become_records(parquet: Callable[..., Path]) -> None:
    trace = import_parquet(parquet())
    columns = ["rank", "call", "file", "op", "offset", "length", "t_start", "t_end"]
    assert list(trace.records[columns].itertuples(index=False, name=None)) == [
        (0, 0, 1, "write", 0, 8, 0.125, 0.2),
        (1, 0, 0, "read", 4096, 512, 0.5, 0.75),
    ]
    assert trace.files[["path", "ranks"]].to_numpy().tolist() == [["/data/a", 1], ["/data/b, old", 1]]
    assert (trace.ranks, trace.source, trace.command) == (2, "parquet", "imported from accesses.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rank": None}, " has no column rank: it needs rank,file,op,offset,length,t_start,t_end .got t_end,file,op"),
        ({"rank": ["0", "1"]}, ": the column rank must be int64 .got (large_)?string."),
        ({"offset": [0.5, 1.0]}, ": the column offset must be int64 .got double."),
        ({"offset": np.array([2**63, 0], np.uint64)}, ": the column offset is not all int64: "),
        ({"offset": [2**63 - 8, 0]}, ", row 1: too large an offset .got"),
        ({"length": [1, -1]}, ", row 2: length must not be negative .got"),
        ({"rank": [0, 2**24]}, ", row 2: rank must be from 0 to 16777215 .got"),
        ({"op": ["read", "copy"]}, ", row 2: op must be read or write .got 'copy'."),
        ({"file": ["", "/a"]}, ", row 1: the file has no name"),
        ({"t_start": [np.inf, 0.0]}, ", row 1: t_start must be a number of seconds"),
        ({"t_end": [0.75, 0.1]}, ", row 2: t_end must not be before t_start"),
        ({"collective": ["yes", "no"]}, ": the column collective must be bool .got (large_)?string."),
        ({"file": [None, "/a"]}, ", row 1: file is missing"),
    ],
)
def test_a_wrong_column_or_row_is_named(parquet: Callable[..., Path], columns: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=rf"accesses\.parquet{message}"):
        import_parquet(parquet(**columns))


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path, parquet: Callable[..., Path]) -> None:
    path = parquet()
    for content in (b"", b"rank,file\n", path.read_bytes()[:-10], path.read_bytes()[:100] + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(
            FormatError, match=r"accesses\.parquet is (not Parquet, or damaged|an empty file|a text file)"
        ):
            import_parquet(path)
    with pytest.raises(PdlaError, match=r"cannot read .*none\.parquet: No such file or directory"):
        import_parquet(tmp_path / "none.parquet")


def test_ranks_without_an_access_are_noted(tmp_path: Path) -> None:
    trace = import_csv(csv(tmp_path, HEADER + "0,/a,read,0,8,0,1\n5,/a,read,8,8,0,1\n"))
    assert (trace.ranks, trace.notes[1:]) == (6, ("4 ranks of 6 made no call",))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"cannot read .*none\.csv: No such file or directory"):
        import_csv(tmp_path / "none.csv")
