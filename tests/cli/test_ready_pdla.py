"""The pdla of the tests, which does not start anew for each verb, does what the installed one does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import PDLA
from tests.support.compilers import COVERAGE
from tests.support.ready_pdla import REAL
from tests.support.waiting import wait_until

PARENT = ("run", "--", "sh", "-c", "echo $PPID")
"""Prints the process of pdla, from which it starts."""

pytestmark = pytest.mark.skipif(bool(COVERAGE), reason="with coverage each verb is a process from its start")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PDLA_HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(
    "words",
    [["--version"], ["nonsense"], ["status", "--json"], ["plan", "none.h5"], ["run", "--", "sh", "-c", "exit 7"]],
)
def test_a_verb_says_the_same(words: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    ready, real = (
        subprocess.run([pdla, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        for pdla in (PDLA, REAL)
    )
    assert (ready.returncode, ready.stdout, ready.stderr) == (real.returncode, real.stdout, real.stderr)


def test_it_reads_and_writes_where_its_starter_does(environment: dict[str, str], tmp_path: Path) -> None:
    tee = f"{PDLA} run -- tee {tmp_path}/copy 2> /dev/null"
    script = f"umask 027; cd /; echo text | {tee} | tr a-z A-Z; {PDLA} nonsense 2>&1 | wc -l"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "TEXT\n4\n", "")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_it_ends_the_installed_one(
    number: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    codes = []
    for pdla, name in ((PDLA, "ready"), (REAL, "real")):
        words = [pdla, "run", "--", "sh", "-c", f"touch {name}; exec sleep 100"]
        with subprocess.Popen(words, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
            wait_until((tmp_path / name).exists)
            process.send_signal(number)
        codes.append(process.returncode)
    assert codes[0] == codes[1] != 0


def test_its_program_ends_when_it_is_killed(environment: dict[str, str]) -> None:
    words = [PDLA, *PARENT[:-1], "echo $PPID; exec sleep 100"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        served = Path("/proc") / process.stdout.readline().strip()
        assert served.name != str(process.pid)
        process.kill()
        wait_until(lambda: not served.exists())


@pytest.mark.parametrize(
    ("before", "variables", "itself"),
    [
        ("", {}, False),
        ("ulimit -f 10000;", {}, True),
        ("exec 5< /dev/null;", {}, True),
        ("trap '' HUP;", {}, True),
        ("", {"PYTHONHASHSEED": "1"}, True),
        ("", {"LD_PRELOAD": "libc.so.6"}, True),
    ],
    ids=["nothing", "a limit", "a file", "an ignored signal", "a variable of Python", "a variable of the loader"],
)
def test_where_it_inherits_what_the_server_has_not_it_starts_itself(
    before: str, variables: dict[str, str], itself: bool, environment: dict[str, str]
) -> None:
    words = ["bash", "-c", f'{before} exec {PDLA} "$@"', "bash", *PARENT]
    with subprocess.Popen(words, env=environment | variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert (int(process.stdout.read()) == process.pid) is itself
