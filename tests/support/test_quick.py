"""make test leaves out cases that repeat or take long, and most of those under further MPIs; nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict

from tests.support.compilers import REPOSITORY

LOOP = "test_a_loop_without_pauses_is_one_phase_on_a_loaded_machine"
LONG = "test_an_archive_with_a_file_cut_anywhere_is_refused_in_one_line"
MPIS = ("mpich", "openmpi", "debian-mpich", "debian-openmpi")


def collected(module: str, *, quick: bool = True, required: bool = False) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", f"tests/{module}.py"]
    variables = {**os.environ, "PDLA_TEST_QUICK": str(int(quick)), "PDLA_REQUIRE_ALL": "1" if required else ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_quick_run_takes_the_first_cases_of_thorough_tests_and_all_others() -> None:
    everything, some = collected("analyzers/test_phases", quick=False), collected("analyzers/test_phases")
    left = [one for one in everything if one not in some]
    assert left and all(LOOP in one for one in left)
    assert [one for one in some if LOOP in one] == [one for one in everything if LOOP in one][:3]


def test_where_everything_is_required_each_test_runs() -> None:
    assert [one for one in collected("collectors/test_otf2") if LONG in one] == []
    assert len([one for one in collected("collectors/test_otf2", required=True) if LONG in one]) == 1


def test_each_case_runs_under_the_first_mpi_and_under_one_more_at_most() -> None:
    module = "replicator/caches/test_file_policies"
    everything, some = collected(module, quick=False), collected(module)
    of_tests: dict[str, Counter[str]] = defaultdict(Counter)
    for one in some:
        for mpi in MPIS:
            if f"[{mpi}]" in one or f"[{mpi}-" in one:
                of_tests[one.partition("[")[0].partition("::")[2]][mpi] += 1
    assert of_tests["test_the_library_means_the_same_files"] == dict(zip(MPIS, (4, 2, 1, 1), strict=True))
    assert of_tests["test_each_file_has_its_policy_in_a_run"] == dict.fromkeys(MPIS, 1)
    assert {test for test, _, _ in (one.partition("[") for one in everything)} == {
        test for test, _, _ in (one.partition("[") for one in some)
    }
