"""The list of wrapped calls against the symbols of every installed MPI: a call on a file that is missing fails."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.mpi import Mpi
from tests.support.recorded_programs import PROGRAMS, Recorder

# What touches no file.
NO_IO = {
    f"MPI_File_{name}"
    for handled in ("call_errhandler", "create_errhandler", "get_errhandler", "set_errhandler")
    for name in (handled, "c2f", "f2c", "fromint", "toint")
}
COMPLETING = re.compile(r"MPI_(Wait|Test)(any|all|some)?|MPI_Request_(free|get_status(_any|_all|_some)?)")
FORTRAN = re.compile(r"p?mpir?_(file_\w+?)(_f|_f08|_f08ts)?_*")


def symbols(library: str | Path, which: str = "--defined-only") -> set[str]:
    lines = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in lines.splitlines()}


def mpi_libraries(program: str | Path) -> list[str]:
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[2] for line in lines if "libmpi" in line]


def is_covered(name: str) -> bool:
    return name not in NO_IO and (name.startswith("MPI_File_") or COMPLETING.fullmatch(name) is not None)


def test_h40_no_call_on_a_file_is_left_uncovered(every_mpi: Mpi, library: Path, tmp_path: Path) -> None:
    program = every_mpi.compile(PROGRAMS / "forms.c", tmp_path / "forms")
    calls = {name for path in mpi_libraries(program) for name in symbols(path) if is_covered(name)}
    # Open MPI's Fortran names of the same calls.
    calls = {name for name in calls if not re.search(r"_f(08)?$", name)}
    assert len(calls) > 50
    assert {f"P{name}" for name in calls} <= symbols(library)
    assert calls <= symbols(library)


def test_each_call_has_both_names_and_there_are_no_others(library: Path) -> None:
    ours = symbols(library)
    assert {f"P{name}" for name in ours if name.startswith("MPI_")} == {
        name for name in ours if name.startswith("PMPI_")
    }
    offered = {f"pdla_posix_{name}" for name in ("present", "begin", "end", "drop", "forget", "clock")}
    offered |= {f"pdla_coherence_{name}" for name in ("opening", "examining", "examined", "deleting", "deleted")}
    counting = {name for name in ours if "gcov" in name or name == "mangle_path"}  # in make coverage
    assert {name for name in ours if "MPI_" not in name} - counting == offered


def test_fortran_routines_go_through_the_covered_calls(debian_recorder: Recorder, library: Path) -> None:
    """Of mpif.h, mpi and mpi_f08: each is covered and refers to the C call, none to I/O inside the MPI library."""
    program = debian_recorder.compile("fortran.F90", "-DF08", compiler="mpif90")
    paths = [path for path in mpi_libraries(program) if "fort" in path or "mpifh" in path or "usempif08" in path]
    routines = {
        match[1]
        for path in paths
        for name in symbols(path)
        if (match := FORTRAN.fullmatch(name.lower())) and f"MPI_{match[1].capitalize()}" not in NO_IO
    }
    refers = {name for path in paths for name in symbols(path, "--undefined-only")}
    ours = symbols(library)
    assert len(routines) == 55
    for routine in routines:
        name = f"MPI_{routine.capitalize()}"
        assert name in ours
        assert {name, f"P{name}"} & refers, name
    assert {name for name in refers if re.search(r"adio|mca_|ompio|posix|_io_", name.lower())} == set()
