"""pdla run needs no catalog: it leaves a report, which the next verb takes in, once, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path

import pytest

from pdla.catalog import Catalog, open_catalog
from pdla.cli import main
from pdla.extras import EXTRAS
from pdla.left_reports import place
from tests.support.command_line import Pdla
from tests.support.compilers import REPOSITORY
from tests.support.waiting import PATIENCE

PLANNING = [*(name for names in EXTRAS.values() for name in names), "numpy"]

WITHOUT = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # import raises ImportError
from pdla.cli import main
main()
"""

STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect", "os.scandir", "os.listdir")

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


def killed(pdla: Pdla, last: int, pattern: str, *words: str) -> bool:
    """The verb in a child process that is killed at its step ``last``, counted from the first one at which a file of
    PDLA_HOME has this pattern; whether it came so far."""
    child = os.fork()
    if child == 0:
        try:
            left, inside = last, False

            def step(event: str, _: object) -> None:
                nonlocal left, inside
                if inside or event not in STEPS:
                    return
                inside = True
                left -= left < last or any(pdla.home.glob(pattern))
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                inside = False

            os.chdir(pdla.directory)
            sys.argv = ["pdla", *words]
            sys.addaudithook(step)
            main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


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
    step = 1
    while killed(pdla, step, "run.*/n1.json", "run", "--", *program):
        pdla.run("gc")
        assert (len(results(pdla)), left(pdla)) == (step, []), step
        step += 1
    assert (len(results(pdla)), left(pdla)) == (step, [])
    assert step > 5


def test_a_verb_that_is_killed_while_it_takes_reports_in_does_so_once(pdla: Pdla, program: list[str]) -> None:
    """The run, and its use of a replica, counts once."""
    pdla.run("status")  # so that what it imports is no step
    pdla.run("run", "--", *program)
    step = 1
    while killed(pdla, step, "reports/*.json", "status"):
        assert (len(results(pdla)), left(pdla)) == (step, []), step
        pdla.run("run", "--", *program)
        step += 1
    assert (len(results(pdla)), left(pdla)) == (step, [])
    assert step > 5


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
    said = [one.communicate(timeout=PATIENCE)[1] for one in running]
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
