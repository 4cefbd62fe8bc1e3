"""What launchers say of the program that they start, by variables and by their processes."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.compilers import GCC, compiled
from tests.support.documentation_pages import DOCS
from tests.support.mpi import REPOSITORY, Mpi

PMI = {"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9"}
INTEL = {**PMI, "I_MPI_HYDRA_UUID": "c62b0000-5901", "HYDRA_BSTRAP_PGID": "0"}
SLURM = {"SLURM_JOB_ID": "70", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}
BATCH = {"SLURM_JOB_ID": "70", "SLURM_PROCID": "0"}
FLUX = {"FLUX_JOB_ID": "f2Tq/X1", "FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"}
PMIX = {"PMIX_NAMESPACE": "prterun-n1-812@1", "PMIX_RANK": "3"}


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program, room = tmp_path_factory.mktemp("launch") / "launch_unit", REPOSITORY / "pdla/interpose"
    sources = [REPOSITORY / "tests/programs/launch_unit.c", room / "launch.c"]
    compiled([*GCC, "-std=gnu11", "-Wall", "-Wextra", f"-I{room}", "-o", program, *sources])
    return program


def said(variables: Mapping[str, str], *words: str | Path) -> str:
    """What the program finds with these variables and no others."""
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (INTEL, "c62b0000-5901-0 1 4"),
        (PMIX, "prterun-n1-812@1 3 0"),
        ({**SLURM, **PMIX}, "prterun-n1-812@1 3 0"),
        (FLUX, "f2Tq_X1 1 4"),
        ({**FLUX, **PMI}, "f2Tq_X1 1 4"),
        ({**SLURM, "PALS_APID": "70.2", "PALS_RANKID": "1"}, "70.2 1 0"),
        ({"ALPS_APP_ID": "4711", "ALPS_APP_PE": "2"}, "4711 2 0"),
        ({**SLURM, **PMI, "PMI_JOBID": "70.2"}, "70.2 1 4"),
        (SLURM, "70-2 1 4"),
        ({}, "unknown"),
        (PMI, "unknown"),
        (BATCH, "unknown"),
        ({**BATCH, **PMI}, "unknown"),
        ({**SLURM, **PMI, "SLURM_PROCID": "0"}, "unknown"),
        ({**SLURM, **PMI, "SLURM_STEP_NUM_TASKS": "2"}, "unknown"),
        ({"PMIX_NAMESPACE": "a", "PMIX_RANK": "-1"}, "unknown"),
        ({"PMIX_NAMESPACE": "a" * 300, "PMIX_RANK": "1"}, "unknown"),
        ({"FLUX_JOB_ID": "", "FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"}, "unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60],
)
def test_each_launcher_names_the_program_and_the_rank(unit: Path, variables: dict[str, str], found: str) -> None:
    """Variables that disagree with PMI's are those of a launcher that started this one, as in a batch job."""
    assert said(variables, unit) == found


def below(proxy: str, *words: str | Path) -> list[str]:
    """The command as started by a process of this command line."""
    script = f"{shlex.join(map(str, words))}; exit $?"
    return ["bash", "-c", f"exec -a /opt/bin/hydra_pmi_proxy sh -c {shlex.quote(script)} sh {proxy}"]


def test_hydra_names_the_program_in_the_command_line_of_its_proxy(unit: Path) -> None:
    """Whatever the variables of a launcher around it say."""
    proxy = "--control-port n1:35031 --rmk slurm --pgid 2"
    assert said({**PMI, **SLURM}, *below(proxy, unit)) == "n1:35031-2 1 4"
    assert said({**PMI, **SLURM}, *below("--usize -1", unit)) == "unknown"  # though they agree with PMI's
    assert said({**INTEL, **SLURM}, *below("--usize -1", unit)) == "c62b0000-5901-0 1 4"


def test_a_container_that_hides_hydra_is_seen(unit: Path, alone: list[str]) -> None:
    """Nor are other processes taken for Hydra's that have its numbers outside."""
    assert said(PMI, *below("--control-port n1:35031 --pgid 2", *alone, unit)) == "hidden"
    assert said({**PMI, **FLUX}, *alone, unit) == "f2Tq_X1 1 4"
    assert said(INTEL, *alone, unit) == "c62b0000-5901-0 1 4"
    assert said({}, *alone, unit) == "unknown"


def test_two_launches_have_two_names_and_their_ranks_one(any_mpi: Mpi, unit: Path) -> None:
    names = []
    # RATIONALE: Hydra may get SIGPIPE from programs that end before it has connected all of them.
    words = ["sh", "-c", f"{unit}; sleep 0.2"]
    for _ in range(2):
        rows = [line.rsplit(" ", 2) for line in any_mpi.run(any_mpi.command(2, *words)).splitlines()]
        assert sorted(row[1] for row in rows) == ["0", "1"] and {row[2] for row in rows} <= {"0", "2"}
        (name,) = {row[0] for row in rows}
        names.append(name)
    assert names[0] != names[1]


def test_the_page_lists_the_variables_of_each_launcher() -> None:
    code = (REPOSITORY / "pdla/interpose/launch.c").read_text()
    rows = code.partition("launchers[] = {")[2].partition("};")[0]
    names = {word.split('"')[1] for word in rows.split(",") if '"' in word}
    listed = (DOCS / "howto/launchers.md").read_text()
    for name in names:
        if not name.endswith(("RANK", "SIZE", "RANKID", "PE", "PROCID", "TASKS")):
            assert f"`{name}`" in listed
