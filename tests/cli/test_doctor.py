"""``pdla doctor`` records a program under each MPI, and says what is wrong with a broken one."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import pdla.cli.mpi_probe
from pdla.cli import cli
from pdla.cli.launch import Mpi, find_mpis
from pdla.cli.mpi_probe import Probe, probe
from pdla.errors import PdlaError
from tests.support import mpi as installed

BIN = Path(sys.executable).parent
MPICH = BIN / "mpiexec"


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def found(probed: Probe) -> tuple[str | None, int, int, bool]:
    return probed.program, probed.calls_seen, probed.bytes_seen, probed.extents_right


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MPICH 5.0.2", "HYDRA build details:\n    Version:                                 5.0.2"),
        ("Open MPI 5.0.8", "mpirun (Open MPI) 5.0.8\n\nReport bugs to https://www.open-mpi.org/community/help/"),
        ("Open MPI 4.1.4", "mpiexec (OpenRTE) 4.1.4"),
        ("Intel(R) MPI Library", "\nIntel(R) MPI Library"),
        ("unknown", ""),
    ],
)
def test_an_mpi_is_called_what_its_launcher_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    mpiexec = script(tmp_path / "mpiexec", f"cat <<END\n{text}\nEND")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert Mpi(mpiexec, None, name) in find_mpis()


def test_all_calls_bytes_and_extents_are_captured_under_each_mpi(any_mpi: installed.Mpi) -> None:
    version = "Open MPI" if "openmpi" in any_mpi.name else "MPICH"
    probed = probe(Mpi(Path(any_mpi.mpiexec[0]), Path(any_mpi.mpicc), version))
    assert found(probed) == ("C", 28, 352, True), probed
    assert (probed.calls_made, probed.bytes_made, probed.captured) == (28, 352, True)
    assert probed.large_counts == any_mpi.large_counts
    assert probed.library.startswith({"MPICH": "MPICH Version: ", "Open MPI": "Open MPI v"}[version])
    missing = "this MPI has no calls with large counts, so there are none to capture"
    assert (missing in probed.why) == (not any_mpi.large_counts)


def test_what_is_set_outside_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDLA_TRACE_EXCLUDE", "*")
    assert probe(Mpi(MPICH, BIN / "mpicc", "MPICH")).captured


def test_without_a_compiler_mpi4py_is_tried(tmp_path: Path) -> None:
    mpiexec = script(tmp_path / "mpiexec", f'exec {MPICH} "$@"')
    probed = probe(Mpi(mpiexec, None, "MPICH"))
    assert found(probed) == ("mpi4py", 28, 352, True), probed
    assert probed.why == ("no C program could be tried: there is no mpicc next to mpiexec",)
    mpicc = script(tmp_path / "mpicc", "echo no such compiler: gcc >&2; exit 127")
    probed = probe(Mpi(mpiexec, mpicc, "MPICH"))
    assert found(probed) == ("mpi4py", 28, 352, True), probed
    assert probed.why == (f"no C program could be tried: {mpicc} ended with exit code 127 (no such compiler: gcc)",)


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (
            "echo Open MPI v5.0.8, package: Open MPI",
            "the mpi4py of {} is of another MPI (Open MPI) than {} (MPICH 4.0.2)",
        ),
        (
            "echo cannot load MPI library >&2; exit 1",
            "the mpi4py of {} ended with exit code 1 (cannot load MPI library)",
        ),
    ],
)
def test_an_mpi4py_of_another_mpi_is_reported_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, why: str
) -> None:
    mpiexec = script(tmp_path / "mpiexec", "echo abort >&2; exit 134")
    python = script(tmp_path / "python", f'case "$2" in *library*) {library};; esac')
    monkeypatch.setattr(sys, "executable", str(python))
    probed = probe(Mpi(mpiexec, None, "MPICH 4.0.2"))
    assert found(probed) == (None, 0, 0, False)
    assert probed.why == (
        "no C program could be tried: there is no mpicc next to mpiexec",
        why.format(python, mpiexec),
        "there is no mpi4py of this MPI (pip install mpi4py)",
    )


def test_with_neither_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    probed = probe(Mpi(tmp_path / "mpiexec.x", None, "unknown"))
    assert found(probed) == (None, 0, 0, False)
    assert probed.why == (
        "no C program could be tried: there is no mpicc next to mpiexec.x",
        "there is no mpi4py either (pip install mpi4py)",
    )


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("echo; echo ----; echo there is no scheduler here >&2; exit 3", "exit code 3 (there is no scheduler here)"),
        ("echo probe 0 2 1 1 4probe 1 2 1 1 4 MPICH 5; exit 3", "exit code 3"),
        ("echo Traceback:; echo ImportError: no libmpi; exit 1", "exit code 1 (ImportError: no libmpi)"),
        ("exit 1", "exit code 1"),
    ],
)
def test_a_launcher_that_fails_is_quoted(tmp_path: Path, does: str, why: str) -> None:
    mpiexec = script(tmp_path / "mpiexec", does)
    probed = probe(Mpi(mpiexec, BIN / "mpicc", "MPICH"))
    assert found(probed) == ("C", 0, 0, False)
    assert probed.why == (f"{mpiexec} ended with {why}",)


def test_a_launcher_that_runs_nothing_is_found_out(tmp_path: Path) -> None:
    mpiexec = script(tmp_path / "mpiexec", "exit 0")
    probed = probe(Mpi(mpiexec, BIN / "mpicc", "MPICH"))
    assert found(probed) == ("C", 0, 0, False)
    assert probed.why == (f"{mpiexec} did not run the program",)


def test_a_launcher_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpiexec = script(tmp_path / "mpiexec", f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/pid; wait; wait")
    mpicc = script(tmp_path / "mpicc", "exit 0")
    monkeypatch.setattr(pdla.cli.mpi_probe, "SECONDS", 0.5)
    probed = probe(Mpi(mpiexec, mpicc, "unknown"))
    assert found(probed) == ("C", 0, 0, False)
    assert probed.why == (f"{mpiexec} did not end within 0.5 s",)
    child = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    while child.exists() and "zombie" not in child.read_text():
        time.sleep(0.01)


def test_a_launcher_that_drops_the_preload_is_found_out(tmp_path: Path) -> None:
    mpiexec = script(tmp_path / "mpiexec", f'exec env -u LD_PRELOAD {MPICH} "$@"')
    probed = probe(Mpi(mpiexec, BIN / "mpicc", "MPICH"))
    assert found(probed) == ("C", 0, 0, False)
    assert probed.why == ("the launcher did not pass LD_PRELOAD on: set it by hand, see pdla preload --help",)


def test_a_launcher_of_another_mpi_is_found_out(debian_mpi: installed.Mpi) -> None:
    ours, others, name = {
        "debian-mpich": ("MPICH", "Open MPI", "mpiexec.openmpi"),
        "debian-openmpi": ("Open MPI", "MPICH", "mpiexec.mpich"),
    }[debian_mpi.name]
    mpiexec = Path(debian_mpi.mpicc).with_name(name)
    probed = probe(Mpi(mpiexec, Path(debian_mpi.mpicc), others))
    assert not probed.captured
    assert ours in probed.library
    assert probed.why[0] == (
        f"each process ran as a program of its own: {mpiexec} ({others}) is not the launcher of the MPI that the "
        f"program uses ({probed.library})"
    )


def test_a_statically_linked_mpi_is_found_out(tmp_path: Path) -> None:
    archive = next(Path("/usr/lib").glob("*/libmpich.a"), None)
    mpiexec = shutil.which("mpiexec.mpich")
    if archive is None or mpiexec is None:
        installed.unavailable("Debian's libmpich.a is not installed")
        return
    include = Path("/usr/include") / archive.parent.name / "mpich"
    mpicc = script(tmp_path / "mpicc", f'exec gcc -I{include} "$@" {archive} -lhwloc -lucp -lucs -lm -lpthread')
    probed = probe(Mpi(Path(mpiexec), mpicc, "MPICH"))
    assert found(probed) == ("C", 0, 0, False)
    assert probed.why == ("MPI is linked statically: pdla cannot trace or redirect such programs",)


def test_it_fails_when_nothing_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    done = CliRunner().invoke(cli, ["doctor"])
    assert isinstance(done.exception, PdlaError)
    assert "found no MPI to trace programs with" in str(done.exception)
    script(tmp_path / "mpiexec", "exit 1")
    done = CliRunner().invoke(cli, ["doctor"])
    assert isinstance(done.exception, PdlaError)
    assert (
        str(done.exception)
        == "no MPI-IO call was captured under any of the 1 MPIs found (the lines above give the reasons)"
    )
    assert "nothing captured" in done.stdout
