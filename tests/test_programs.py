"""Programs in every language and of every shape, recorded: the bytes found in their files are where the trace says."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi import Mpi
from recording import PROGRAMS, Recorder, kinds_of, replay

from pdla.model import Trace

MPICH = Path(sys.executable).parent


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
    """``trace`` is that of a program that does what forms.c does, on the file that it left."""
    for rank in (0, 1):
        rows = trace.records[trace.records["rank"] == rank]
        kinds = list(zip(rows["kind"], rows["position"], strict=True))
        assert kinds[:2] == [("MPI_File_open", 0), ("MPI_File_set_view", 0)]
        assert kinds[2:-1] == expected_positions(suffix)
        assert kinds[-1] == ("MPI_File_close", 0)
        data = rows[rows["op"] != "other"]
        assert set(data["requested"]) == {16}
        # The last call reads half past the end of the file. Through a view with holes MPICH's status does not say so.
        assert list(data["length"]) == [16] * 20 + [16 if trace.mpi.startswith("MPICH") else 8]
        assert set(data["moved_known"]) == {True}
        assert list(data["collective"]) == ([False, True] * 4 + [True, True]) * 2 + [False]
        assert list(data["offset"])[:2] == [16 + 8 * rank, 48 + 8 * rank]
    assert list(trace.files["path"]) == [str(path)]
    assert (trace.ranks, trace.truncated, trace.dropped) == (2, (), 0)
    streams = {2 + k: struct.pack("4i", *(1000 * (k + 1) + i for i in range(4))) for k in range(10)}
    assert replay(trace, path, streams) == path.read_bytes()
    assert path.stat().st_size == 16 + 8 * 2 * (112 // 8)


def test_every_form_of_a_c_program_is_recorded_where_it_happened(any_recorder: Recorder) -> None:
    path = any_recorder.directory / "data"
    check_forms(any_recorder.trace(2, any_recorder.compile("forms"), path), path, "")


def test_large_count_calls_are_recorded_where_they_happened(any_recorder: Recorder) -> None:
    if not any_recorder.mpi.large_counts:
        pytest.skip("Open MPI has no large-count calls")
    path = any_recorder.directory / "data"
    check_forms(any_recorder.trace(2, any_recorder.compile("forms"), path, "large"), path, "_c")


@pytest.mark.skipif(not (MPICH / "mpicc_abi").exists(), reason="this MPI has no MPI-5 ABI compiler")
@pytest.mark.parametrize("suffix", ["", "_c"])
def test_every_form_under_the_mpi_5_abi_is_recorded_where_it_happened(
    library: Path, tmp_path: Path, suffix: str
) -> None:
    abi = Mpi("abi", str(MPICH / "mpicc_abi"), [str(MPICH / "mpiexec")], sys.executable)
    path = tmp_path / "data"
    recorder = Recorder(abi, library, tmp_path)
    words = ["large"] if suffix else []
    check_forms(recorder.trace(2, recorder.compile("forms"), path, *words), path, suffix)


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
        assert np.all(rows["t_start"].to_numpy()[1:] >= rows["t_end"].to_numpy()[:-1])
        # Where there are other ranks, they move a shared pointer, too.
        assert list(data["offset"]) == ([0, 16, 32, 0, 16, 32, 48, 64] if ranks == 1 else [-1] * 8)
    if ranks == 1:
        streams = {call: struct.pack("4i", *(k * 10**i for i in range(4))) for call, k in WRITTEN.items()}
        assert replay(trace, path, streams) == path.read_bytes()
    else:
        assert trace.notes == ("16 calls touched bytes that are not known: their offset is -1",)


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_other_calls_are_recorded(any_recorder: Recorder, ranks: int) -> None:
    check_others(any_recorder, ranks, any_recorder.compile("others"))


def test_all_other_calls_with_large_counts_are_recorded(any_recorder: Recorder) -> None:
    if not any_recorder.mpi.large_counts:
        pytest.skip("Open MPI has no large-count calls")
    check_others(any_recorder, 1, any_recorder.compile("others", "-DTWINS"), suffix="_c")


@FORTRAN
def test_all_other_calls_of_a_fortran_program_are_recorded(debian_recorder: Recorder, binding: str) -> None:
    check_others(debian_recorder, 1, fortran(debian_recorder, binding), "others")
