"""A program of which some ranks run without pdla's library: those that have it find out, and step aside."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.columns import SIDE, Columns
from tests.support.command_line import Pdla
from tests.support.mpi import Mpi, available_mpis, compile_preloaded, debian_mpis

RANKS = 4


def partly(mpi: Mpi, columns: Columns, without: set[int], *variables: str) -> list[str]:
    """The program with one command for each rank, as `mpiexec -n 1 A : -n 1 B`; some `without` the library, the others
    with `variables`."""
    command = list(mpi.command(1))
    words = [str(columns.program), str(columns.data), str(columns.result), str(SIDE)]
    launcher, options = command[: len(mpi.mpiexec)], command[len(mpi.mpiexec) :]
    chosen = [["-u", "LD_PRELOAD"] if rank in without else variables for rank in range(RANKS)]
    parts = [[*options, "env", *changes, *words] for changes in chosen]
    return [*launcher, *(word for rank, part in enumerate(parts) for word in ([":"] if rank else []) + part)]


@pytest.fixture(params=[*available_mpis(), *debian_mpis()], scope="module")
def replicated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Mpi, Columns, str]:
    """A program with replicas for what it reads and writes, and what it prints."""
    mpi: Mpi = request.param
    columns = Columns(mpi, tmp_path_factory.mktemp(mpi.name))
    output, _ = columns.native(mpi, RANKS)
    columns.replicate(mpi, RANKS)
    return mpi, columns, output


@pytest.mark.parametrize("without", [{1}, {0}, {0, 2, 3}, {3}], ids=str)
@pytest.mark.thorough(3)
def test_h56_ranks_without_the_library_are_found_and_nothing_is_redirected(
    replicated: tuple[Mpi, Columns, str], without: set[int]
) -> None:
    """Also where the first rank is missing, and where ranks cannot reach each other by those that are there."""
    mpi, columns, native = replicated
    pdla = Pdla(columns.directory, mpi.env)
    done = pdla.run("run", "--writes", "close", "--", *partly(mpi, columns, without))
    assert done.stdout.startswith(native)
    assert f"rank {min(without)} of {RANKS} runs without pdla" in done.stderr
    assert "nothing was redirected" in done.stderr


def test_all_ranks_of_each_program_of_a_script_are_found(replicated: tuple[Mpi, Columns, str]) -> None:
    """Programs one after the other and at the same time, of as many ranks or others, all redirected."""
    mpi, columns, native = replicated
    pdla = Pdla(columns.directory, mpi.env)
    step = " ".join(map(str, partly(mpi, columns, set()))).replace(str(columns.result), "$1")
    script = columns.directory / "job.sh"
    script.write_text(f"step() {{ {step} > $1.out; }}\nstep first\nstep second & step third\nwait\n")
    report = pdla.json("run", "--json", "--", "sh", "-e", str(script))
    for name in ("first", "second", "third"):
        assert (columns.directory / f"{name}.out").read_text() == native
    assert report["map"] == {"ok": 3 * RANKS}
    assert report["replica_bytes"] == 3 * 2 * SIDE * SIDE


@pytest.mark.parametrize("replicated", [available_mpis()[0], debian_mpis()[0]], indirect=True)
def test_ranks_that_wait_long_for_others_say_so_if_nobody_could_ask(
    replicated: tuple[Mpi, Columns, str], tmp_path: Path
) -> None:
    """Preloaded by hand, pdla has no directory of a run in which to ask. The clock of the ranks is a fast one.

    Open MPI does not wait: it ends such a program with an error of its own.
    """
    mpi, columns, _ = replicated
    pdla = Pdla(columns.directory, mpi.env)
    preloaded = f"{pdla.run('preload').stdout.strip()}:{compile_preloaded('fast_clock', tmp_path)}"
    variables = (f"LD_PRELOAD={preloaded}", f"PDLA_MAP={pdla.home / 'replicas.map'}")
    process = subprocess.Popen(
        partly(mpi, columns, {0}, *variables), env=pdla.environment, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr
        said = next(line for line in process.stderr if "has waited" in line)
        process.terminate()
    assert re.match(rf"pdla: rank [12] has waited for 60 s for the other ranks that open {columns.data}; ", said)


@pytest.mark.parametrize("replicated", available_mpis(), indirect=True)
def test_h57_a_rank_whose_container_hides_the_launcher_keeps_all_from_redirection(
    replicated: tuple[Mpi, Columns, str],
    alone: list[str],
) -> None:
    """The last rank is in a PID namespace of its own, from which Hydra's proxy cannot be seen.

    The UCX of Debian's MPICH 4 cannot start there.
    """
    mpi, columns, native = replicated
    pdla = Pdla(columns.directory, {**mpi.env, "MPIR_CVAR_CH4_CMA_ENABLE": "0"})
    words = partly(mpi, columns, set())
    last = len(words) - words[::-1].index("env")
    done = pdla.run("run", "--writes", "close", "--", *words[: last - 1], *alone, *words[last - 1 :])
    assert done.stdout.startswith(native)
    if mpi.is_openmpi:
        assert "nothing was redirected" not in done.stderr
    else:
        assert f"rank {RANKS - 1} of {RANKS} runs without pdla" in done.stderr
        assert "nothing was redirected" in done.stderr
