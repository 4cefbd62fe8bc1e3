"""The command line as tests run it: with its own PDLA_HOME, in a process of its own or in this one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from pdla.cli import main
from pdla.cli.signals import STOPPING
from pdla.replicator import throttling
from tests.support.compilers import COVERAGE
from tests.support.ready_pdla import REAL, ready
from tests.support.waiting import PATIENCE

PDLA = str(REAL) if COVERAGE else ready().command
AWAKE = (sys.executable, str(Path(__file__).with_name("awake_pdla.py")))
"""The command of a daemon of the tests."""
PRINT = ("sh", "-c", "env | grep ^PDLA_ | sort")
"""A program that prints its variables of pdla."""


class Pdla:
    """The command line with its own PDLA_HOME and working directory."""

    timeout: float = PATIENCE
    command: Sequence[str] = (PDLA,)

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.environment = {**os.environ, **variables, "PDLA_HOME": str(self.home)}
        for name in ("LD_PRELOAD", "PDLA_TRACE", "PDLA_MAP", "PDLA_REPORT", "PDLA_CATALOG"):
            self.environment.pop(name, None)

    def run(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``pdla WORDS`` and expect an exit ``code``."""
        command = [*self.command, *map(str, words)]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        assert done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *words: str | Path, code: int = 0) -> dict[str, Any]:
        """Run ``pdla WORDS``, which name ``--json`` themselves, and parse the last line."""
        answer = json.loads(self.run(*words, code=code).stdout.splitlines()[-1])
        assert isinstance(answer, dict)
        return answer


class InProcess(Pdla):
    """The command line, with all verbs in this process."""

    def run(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        handlers = {number: signal.getsignal(number) for number in STOPPING}
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.directory)
            patch.setattr(sys, "argv", ["pdla", *map(str, words)])
            patch.setenv("PDLA_HOME", str(self.home))
            patch.delenv("PDLA_CATALOG", raising=False)
            # The lowest priority would be that of all later tests in this process: on a busy machine they time out.
            patch.setattr(throttling, "give_way", lambda: None)
            with pytest.raises(SystemExit) as stopped:
                main()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        assert (stopped.value.code or 0) == code, out.getvalue() + err.getvalue()
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


class Launching(InProcess):
    """Likewise, except the verbs that run programs: Python cannot catch their output."""

    def run(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        return Pdla.run(self, *words, code=code) if words[0] in ("run", "trace") else super().run(*words, code=code)


def fails_with_one_line(pdla: Pdla, *words: str | Path, says: str, code: int = 1) -> None:
    done = pdla.run(*words, code=code)
    if code == 1:
        assert done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr
