"""Parts of a trace: the calls on some files, by some ranks, in some time, as a trace of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pdla.analyzers.analysis import analyze
from pdla.analyzers.posix_requests import OUTSIDE, made_of
from pdla.collectors import workloads
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import PdlaError
from pdla.traces.tables import OPS, POSIX_COLUMNS, categorical
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace

PLACE = ["rank", "file", "op", "offset", "length", "t_start", "t_end"]


def two_files() -> Trace:
    """Two ranks read a file and write another one in turns, eight calls each, call n from n to n + 1 ms."""
    files = {"read": "/in/matrix.dat", "write": "/out/result.dat"}
    calls = [
        Call(rank, op, (8 * n + rank) * 4096, 4096, files[op])
        for rank in range(2)
        for n, op in enumerate(("read", "write") * 4)
    ]
    return make_trace(calls)


def with_posix(trace: Trace) -> Trace:
    """For each MPI call a POSIX call of its own length, and one by each rank at 2.5 ms that no MPI call made."""
    kinds = categorical(np.where(trace.records["op"] == "read", 0, 1), ("pread", "pwrite"))
    made = trace.records.assign(kind=kinds)[list(POSIX_COLUMNS)]
    alone = made[made["call"] == 2].assign(call=-1, t_start=2.5e-3, t_end=2.6e-3)
    posix = pd.concat([made, alone]).sort_values(["rank", "t_start"], kind="stable", ignore_index=True)
    return replace(trace, posix=posix.astype({"op": pd.CategoricalDtype(list(OPS))}))


@pytest.mark.parametrize("name", ["/out/result.dat", "result.dat", "*.dat", "/out/*", "*res?lt*"])
def test_a_file_is_a_path_or_a_name_or_a_glob(name: str) -> None:
    part = two_files().only(file=name)
    written = part.records["op"] == "write"
    assert written.sum() == 8
    assert written.all() == (name != "*.dat")
    assert part.path(1) == "/out/result.dat"


def test_the_calls_of_each_rank_are_numbered_from_0_again() -> None:
    part = two_files().only(file="result.dat", ranks=[1], time=(2e-3, 7e-3))
    assert part.records[["rank", "call"]].to_numpy().tolist() == [[1, 0], [1, 1]]
    assert part.records["t_start"].tolist() == [3e-3, 5e-3]
    assert part.ranks == 2


def test_parts_of_adjoining_times_have_each_call_once() -> None:
    trace = two_files()
    parts = [trace.only(time=time) for time in ((None, 3e-3), (3e-3, 3e-3), (3e-3, 5.5e-3), (5.5e-3, None))]
    assert [len(part.records) for part in parts] == [6, 0, 6, 4]
    together = pd.concat([part.accesses()[PLACE] for part in parts]).sort_values(PLACE, ignore_index=True)
    whole = trace.accesses()[PLACE].sort_values(PLACE, ignore_index=True)
    pd.testing.assert_frame_equal(together, whole, check_categorical=False)


def test_views_stay_those_of_their_calls() -> None:
    trace = workloads.mpi_tile_io(2, 2, 16, 16, 32)
    part = trace.only(ranks=[3])
    whole = trace.accesses()
    assert len(part.accesses()) == 16
    expected = whole.loc[whole["rank"] == 3, PLACE].reset_index(drop=True)
    pd.testing.assert_frame_equal(part.accesses()[PLACE], expected, check_categorical=False)
    (signature,) = analyze(part).signatures
    assert signature.ranks == (3,)


def test_posix_calls_stay_with_the_mpi_call_that_made_them() -> None:
    trace = with_posix(two_files())
    part = trace.only(file="matrix.dat", time=(2e-3, 5e-3))
    assert part.posix[["rank", "call"]].to_numpy().tolist() == [[0, 0], [0, -1], [0, 1], [1, 0], [1, -1], [1, 1]]
    assert {(row.kind, row.calls, row.requests) for row in made_of(part)} == {
        ("MPI_File_read_at", 4, 4),
        (OUTSIDE, 0, 2),
    }
    # Those that no MPI call made stay only if they fulfil the conditions themselves.
    assert (trace.only(time=(2e-3, 2.5e-3)).posix["call"] == -1).sum() == 0
    assert (trace.only(ranks=[0]).posix["rank"] == 0).all()
    assert set(trace.only(file="result.dat").posix["call"]) == {0, 1, 2, 3}


def test_a_part_says_so_and_can_be_written(tmp_path: Path) -> None:
    trace = replace(with_posix(two_files()), truncated=(0, 1), seconds=9.0)
    part = trace.only(file="*.dat", ranks=range(1), time=(1e-3, 4e-3))
    assert part.notes == ("this is a part of the run: files *.dat, 1 of 2 ranks, from 1 ms on, before 4 ms",)
    assert part.truncated == (0,)
    assert (part.seconds, trace.only(ranks=[1]).seconds) == (0.0, 9.0)  # how long the part took is not known
    write_trace(part, tmp_path / "part.h5")
    again = read_trace(tmp_path / "part.h5")
    pd.testing.assert_frame_equal(again.records, part.records)
    pd.testing.assert_frame_equal(again.posix, part.posix)
    pd.testing.assert_frame_equal(again.files, trace.files)


def test_what_matches_nothing_is_an_error_that_says_what_there_is() -> None:
    trace = two_files()
    with pytest.raises(PdlaError, match=r"no file of the trace matches 'x\.nc'; it has /in/matrix\.dat, /out/result"):
        trace.only(file="x.nc")
    with pytest.raises(PdlaError, match="the trace has 2 ranks, from 0 on; there is no rank 2"):
        trace.only(ranks=[1, 2, 3])
