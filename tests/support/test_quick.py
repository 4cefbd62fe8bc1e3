"""make test leaves out what repeats or takes long; nothing else is left out by it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.compilers import REPOSITORY


def collected(quick: str) -> list[str]:
    modules = ["tests/analyzers/test_phases.py", "tests/support/test_quick.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", *modules]
    variables = {**os.environ, "PDLA_TEST_QUICK": quick}
    done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_quick_run_takes_the_first_cases_of_thorough_tests_and_all_others() -> None:
    everything, some = collected("0"), collected("1")
    loop = "test_a_loop_without_pauses_is_one_phase_on_a_loaded_machine"
    left = [one for one in everything if one not in some]
    assert left and all(loop in one for one in left)
    assert [one for one in some if loop in one] == [one for one in everything if loop in one][:3]
