"""All steps under Intel MPI and under the standard ABI, whose one binary runs with every library that has it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.searches.mpiio import Runner, by_program, make
from tests.support.columns import SIDE, Columns
from tests.support.compilers import compiled
from tests.support.mpi import Mpi, other_mpis
from tests.support.recorded_programs import PROGRAMS


@pytest.mark.parametrize("writes", ["original", "close"])
@pytest.mark.thorough(1)
def test_a_program_reads_and_leaves_the_same_bytes_through_replicas(
    other_mpi: Mpi, writes: str, tmp_path: Path
) -> None:
    columns = Columns(other_mpi, tmp_path)
    columns.replicate(other_mpi, 4)
    for ranks in (4, 2):
        native = columns.native(other_mpi, ranks)
        *redirected, report = columns.redirected(other_mpi, ranks, writes)
        assert tuple(redirected) == native
        assert report["replica_bytes"] > 0


def test_what_one_library_of_the_standard_abi_traced_is_served_in_another(tmp_path: Path) -> None:
    """The same binary, as a site has it that offers several MPIs."""
    mpich, _, intel = (parameter for parameter in other_mpis())
    if mpich.marks or intel.marks:
        pytest.skip("needs MPICH 5 and Intel MPI")
    one, other = mpich.values[0], intel.values[0]
    libraries = {"LD_LIBRARY_PATH": str(Path(other.mpicc).parents[1] / "lib")}
    other = replace(other, env={**other.env, **libraries})
    columns = Columns(one, tmp_path)
    columns.replicate(one, 4)
    native = columns.native(other, 4)
    *redirected, report = columns.redirected(other, 4, "original")
    assert tuple(redirected) == native == columns.native(one, 4)
    assert report["replica_bytes"] == 2 * SIDE * SIDE


@pytest.mark.parametrize("rank", ["", "0", "1"])
@pytest.mark.parametrize("wanted", ["PDLA_TRACE", "PDLA_MAP"])
def test_h55_a_program_of_an_unknown_mpi_runs_without_pdla_and_one_line_says_so(
    wanted: str, rank: str, library: Path, tmp_path: Path
) -> None:
    mpi, program = tmp_path / "libexample.so", tmp_path / "program"
    compiled(["gcc", "-shared", "-fPIC", PROGRAMS / "unknown_mpi.c", "-o", mpi])
    compiled(["gcc", PROGRAMS / "other_mpi.c", mpi, f"-Wl,-rpath,{tmp_path}", "-o", program])
    (tmp_path / "data").write_text("abcdefghijklmnop")
    (tmp_path / "wanted").mkdir()
    variables = {"LD_PRELOAD": str(library), wanted: str(tmp_path / "wanted"), **({"PMI_RANK": rank} if rank else {})}
    done = subprocess.run(
        [program, tmp_path / "data"], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "8 defghijk\n")
    line = "pdla: does not know this MPI (Example MPI 7.1), so the program runs without pdla\n"
    assert done.stderr == ("" if rank == "1" else line)
    assert list((tmp_path / "wanted").iterdir()) == []


@pytest.mark.parametrize("writes", ["original", "close"])
@pytest.mark.parametrize("other_mpi", [other_mpis()[1]], indirect=True)
def test_random_programs_see_the_same_under_intel_mpi(
    other_mpi: Mpi, writes: str, library: Path, tmp_path: Path
) -> None:
    """Without those of which Intel MPI refuses a collective read of nothing to memory with holes, and with one rank:
    several ranks natively wait for each other for ever in one of some tens."""
    runner = Runner.prepare(other_mpi, tmp_path, library)
    programs = [make(number, 1, writes=writes, shared=False) for number in range(10, 40)]
    (native,), (redirected,) = runner.both(programs, tmp_path / "case", writes)
    wanted, got = by_program(native), by_program(redirected)
    refused = {number for number, lines in wanted.items() if any(" class=32 " in line for line in lines)}
    assert len(refused) < 10
    assert [number for number in wanted if got[number] != wanted[number] and number not in refused] == []
