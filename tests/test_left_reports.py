"""pdla run needs no catalog: it leaves a report, which the next verb takes in, once, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pdla.catalog import Catalog, open_catalog
from pdla.extras import EXTRAS
from pdla.left_reports import place
from tests.conftest import REPOSITORY, Pdla

PLANNING = [*(name for names in EXTRAS.values() for name in names), "numpy"]

WITHOUT = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # import raises ImportError
from pdla.cli import main
main()
"""

KILLED = """
import os, signal, sys
last, begins, pattern = int(sys.argv.pop(1)), False, sys.argv.pop(1)
from glob import glob
STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect", "os.scandir", "os.listdir")
inside = False
def step(event, arguments):
    global last, begins, inside
    if inside or event not in STEPS:
        return
    inside = True
    begins = begins or bool(glob(pattern))
    last -= begins
    if last == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    inside = False
sys.addaudithook(step)
from pdla.cli import main
main()
"""
"""Kills the verb at one of its steps, counted from the first one at which a file with this pattern is there."""

REPORT = {
    "version": 1,
    "rank": 0,
    "ranks": 1,
    "host": "n1",
    "pid": 1,
    "map": "ok",
    "generation": 1,
    "seconds": 0.5,
    "files": [
        {
            "path": "/data",
            "redirected": {"calls": 1, "bytes": 4096},
            "replica": {"requests": 1, "contiguous": 1, "bytes": 4096},
            "original": {"requests": 0, "contiguous": 0, "bytes": 0},
            "passed": [],
            "compared": {"calls": 0, "bytes": 0},
            "replicas": [{"id": 1, "bytes": 4096, "state": "valid"}],
        }
    ],
    "writes": [],
}
"""The exit report of a process."""


@pytest.fixture
def program(pdla: Pdla) -> list[str]:
    """A program whose process leaves an exit report, as the library writes it."""
    (pdla.directory / "report.json").write_text(json.dumps(REPORT))
    return ["sh", "-c", 'cp report.json "$PDLA_REPORT/.n1.part" && mv "$PDLA_REPORT/.n1.part" "$PDLA_REPORT/n1.json"']


def results(pdla: Pdla) -> list[dict[str, object]]:
    with closing(catalog_of(pdla)) as catalog:
        return [dict(result.report) for result in catalog.results.all()]


def catalog_of(pdla: Pdla) -> Catalog:
    return open_catalog(f"sqlite:///{pdla.home / 'catalog.db'}")


@pytest.fixture(autouse=True)
def _home(pdla: Pdla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDLA_HOME", str(pdla.home))
    monkeypatch.delenv("PDLA_CATALOG", raising=False)


def left(pdla: Pdla) -> list[str]:
    """What runs left in PDLA_HOME that is not in the catalog."""
    return sorted(str(path.relative_to(pdla.home)) for name in ("run.*", "reports/*") for path in pdla.home.glob(name))


def unbidden(pdla: Pdla, *words: str) -> subprocess.CompletedProcess[str]:
    """The verb where the libraries of planning cannot be imported."""
    command = [sys.executable, "-c", WITHOUT, ",".join(PLANNING), *words]
    return subprocess.run(
        command, cwd=pdla.directory, env=pdla.environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("options", [[], ["--writes", "lease"], ["--policy", "e10"], ["--verify"]])
def test_a_run_imports_none_of_what_planning_needs(pdla: Pdla, program: list[str], options: list[str]) -> None:
    done = unbidden(pdla, "run", "--json", *options, "--", *program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["redirected_calls"] == 1
    assert len(results(pdla)) == 1


def test_a_run_says_what_waits_for_write_back_without_a_catalog(pdla: Pdla) -> None:
    """Of the journal of a killed program; numpy reads it, and SQLAlchemy is missing."""
    journals = pdla.home / "journals/0123456789abcdef"
    journals.mkdir(parents=True)
    (release,) = (REPOSITORY / "tests/releases/0.2.0").glob("*.journal")
    (journals / "n1-1.journal").write_bytes(release.read_bytes())
    code = WITHOUT.replace('split(",")', 'split(",")[:-1]')
    command = [sys.executable, "-c", code, ",".join(PLANNING), "run", "--", "true"]
    done = subprocess.run(
        command, cwd=pdla.directory, env=pdla.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "are newer in cache files on" in done.stderr


def test_status_after_a_run_shows_it_and_its_time(pdla: Pdla, program: list[str]) -> None:
    pdla.run("run", "--", *program)
    (file,) = left(pdla)
    ended = json.loads((pdla.home / file).read_text())["time"]
    (run,) = pdla.json("status", "--json")["runs"]
    assert (run["command"].split()[0], run["redirected_bytes"], run["time"]) == ("sh", 4096, ended[:19] + "+00:00")
    assert left(pdla) == []
    assert len(pdla.json("status", "--json")["runs"]) == 1


def test_a_run_that_is_killed_after_its_program_is_recorded_once(pdla: Pdla, program: list[str]) -> None:
    """Killed at each step: gc records what the processes left, or the report; nothing stays behind."""
    for step in range(1, 200):
        command = [sys.executable, "-c", KILLED, str(step), f"{pdla.home}/run.*/n1.json", "run", "--", *program]
        code = subprocess.run(command, cwd=pdla.directory, env=pdla.environment, check=False).returncode
        pdla.run("gc")
        assert len(results(pdla)) == step, step
        assert left(pdla) == []
        if code == 0:
            break
    assert code == 0 and step > 5


def test_a_verb_that_is_killed_while_it_takes_reports_in_does_so_once(pdla: Pdla, program: list[str]) -> None:
    """The run, and its use of a replica, counts once."""
    open_catalog(f"sqlite:///{pdla.home / 'catalog.db'}").close()
    for step in range(1, 200):
        pdla.run("run", "--", *program)
        command = [sys.executable, "-c", KILLED, str(step), f"{pdla.home}/reports/*.json", "status"]
        code = subprocess.run(
            command, cwd=pdla.directory, env=pdla.environment, check=False, capture_output=True
        ).returncode
        if code == 0:
            break
    assert step > 5
    assert (len(results(pdla)), left(pdla)) == (step, [])


def test_runs_at_once_are_all_recorded_while_others_take_them_in(pdla: Pdla, program: list[str]) -> None:
    words = [sys.executable, "-c", "from pdla.cli import main; main()"]
    verbs = [["run", "--", *program]] * 8 + [["status"]] * 3
    running = [
        subprocess.Popen(
            [*words, *verb],
            cwd=pdla.directory,
            env=pdla.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for verb in verbs
    ]
    said = [one.communicate(timeout=60)[1] for one in running]
    assert [one.returncode for one in running] == [0] * 11, said
    assert (len(results(pdla)), left(pdla)) == (8, [])


def test_a_report_waits_for_the_catalog_of_its_run(pdla: Pdla, program: list[str]) -> None:
    pdla.run("run", "--", *program)
    with closing(open_catalog(f"sqlite:///{pdla.directory}/other.db")) as other:
        assert other.results.all() == []
    assert len(results(pdla)) == 1


def test_a_damaged_report_is_set_aside_and_one_of_a_newer_version_waits(pdla: Pdla, program: list[str]) -> None:
    reports = pdla.home / "reports"
    for _ in range(4):
        pdla.run("run", "--", *program)
    cut, wrong, newer, _ = (reports / Path(name).name for name in left(pdla))
    document = json.loads(newer.read_text())
    cut.write_bytes(cut.read_bytes()[:50])
    wrong.write_text(json.dumps({**document, "report": {**document["report"], "files": [{}]}}))
    newer.write_text(json.dumps({**document, "version": 2}))
    assert len(pdla.json("status", "--json")["runs"]) == 1
    kept = [f"{cut.name}.damaged", f"{wrong.name}.damaged", newer.name]
    assert left(pdla) == sorted(f"reports/{name}" for name in kept)


def test_a_report_that_cannot_be_kept_does_not_change_the_exit_code(pdla: Pdla) -> None:
    pdla.home.mkdir()
    (pdla.home / "reports").touch()
    done = pdla.run("run", "--", "sh", "-c", "exit 7", code=7)
    assert "the report of this run was not kept" in done.stderr


def test_a_run_needs_no_catalog_that_works(pdla: Pdla) -> None:
    pdla.home.mkdir()
    (pdla.home / "catalog.db").write_bytes(b"hello" * 1000)
    assert "catalog" not in pdla.run("run", "--", "sh", "-c", "exit 7", code=7).stderr


def test_a_place_names_the_database_without_its_secrets() -> None:
    assert place("postgresql://me:secret@db/pdla?password=x") == "postgresql://db/pdla"
    assert place("sqlite:///x/c.db") == f"sqlite:///{Path.cwd()}/x/c.db"
    assert place("sqlite:////x@y/c.db") == "sqlite:////x@y/c.db"
