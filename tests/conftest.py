"""What the tests share: the command line in a home of its own, and every MPI that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from mpi import Mpi, available_mpis

# The machine may be busy: a slow example is no failure.
settings.register_profile("pdla", deadline=None)
settings.load_profile("pdla")

REPOSITORY = Path(__file__).parent.parent
PDLA = str(Path(sys.executable).parent / "pdla")


class Pdla:
    """The command line with a home and a working directory of its own."""

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.environment = {**os.environ, **variables, "PDLA_HOME": str(self.home)}
        for name in ("LD_PRELOAD", "PDLA_TRACE", "PDLA_MAP", "PDLA_REPORT", "PDLA_CATALOG"):
            self.environment.pop(name, None)

    def run(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``pdla WORDS`` and expect an exit ``code``."""
        command = [PDLA, *map(str, words)]
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *words: str | Path, code: int = 0) -> dict[str, Any]:
        """Run ``pdla WORDS``, which name ``--json`` themselves, and parse the last line."""
        answer = json.loads(self.run(*words, code=code).stdout.splitlines()[-1])
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def pdla(tmp_path: Path) -> Pdla:
    return Pdla(tmp_path, {})


@pytest.fixture(scope="session", params=available_mpis(), ids=lambda mpi: mpi.name)
def mpi(request: pytest.FixtureRequest) -> Iterator[Mpi]:
    """Each installed MPI in turn."""
    yield request.param
