"""pdla run --learn: the next runs of a program are served from replicas, with nothing else typed."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from pdla.autopilot import spool
from pdla.autopilot.chains import chains
from pdla.autopilot.drifts import drifts, expected
from pdla.autopilot.learner import Learner
from pdla.autopilot.names import application_name
from pdla.catalog import LearnedRun, RunFacts, open_catalog
from pdla.errors import ConfigError
from pdla.layouts.budget import Budget
from pdla.layouts.config import DEFAULT_FILE, load_budget
from pdla.model import Loop, Signature
from pdla.replicator.throttling import Gate
from tests.support.command_line import Pdla
from tests.support.compilers import REPOSITORY
from tests.support.fewer_cases import THOROUGH
from tests.support.learning_runs import FILE_BYTES, SHAPE, Runs, locked_by_a_daemon
from tests.support.mpi import Mpi, available_mpis
from tests.support.waiting import PATIENCE


@pytest.fixture
def runs(mpi: Mpi, tmp_path: Path) -> Runs:
    return Runs(mpi, tmp_path)


def learned(number: int, application: int, hour: int, **calls: Mapping[str, float]) -> LearnedRun:
    """A run with these calls by the name of the file."""
    facts = RunFacts(4, 100, 50, 0, calls={f"/data/run7/{name}": spent for name, spent in calls.items()})
    return LearnedRun(number, application, f"run.{number}", datetime(2026, 1, 1, hour, tzinfo=UTC), facts)


def test_a_file_goes_from_its_writer_to_another_application_each_time_it_is_written() -> None:
    runs = {
        1: [learned(1, 1, 1, out01={"write": 1.0}), learned(3, 1, 3, out02={"write": 3.0}, own={"write": 1.0})],
        2: [
            learned(2, 2, 2, out01={"read": 5.0}),
            learned(4, 2, 4, out02={"read": 7.0}),
            learned(5, 2, 5, out02={"read": 9.0}, only={"read": 1.0}),  # the same bytes again
        ],
        3: [learned(6, 3, 0, out01={"read": 1.0}), learned(7, 3, 6, out02={"read": 1.0, "write": 1.0})],
        4: [learned(8, 1, 7, own={"read": 1.0})],  # its writer's
    }
    first, second = chains(runs)
    assert (first.file, first.writer, first.reader) == ("/data/run7/outN", 1, 2)
    assert (first.times, first.writing, first.reading) == (2, [1.0, 3.0], [5.0, 7.0])
    assert (second.writer, second.reader, second.times, second.waits) == (1, 3, 1, 4.0)


def test_the_chain_of_two_programs_is_shown(mpich_runs: Runs) -> None:
    mpi, pdla = mpich_runs.mpi, mpich_runs.pdla
    program = mpi.compile(REPOSITORY / "tests/programs/cached.c", pdla.directory / "program")
    again = shutil.copy(program, pdla.directory / "reader")
    data, out = pdla.directory / "field.0001", pdla.directory / "out"
    data.write_bytes(bytes(1 << 20))
    for _ in range(2):
        mpich_runs.learn("--wait", words=(str(program), str(data), str(out), "write:0", "sync"))
        mpich_runs.learn("--wait", words=("env", "READ_ONLY=1", str(again), str(data), str(out), "all:0"))
    (chain,) = pdla.json("history", "--files", "--json")["files"]
    assert chain["file"] == str(pdla.directory / "field.N")
    assert (chain["writer"], chain["reader"], chain["times"]) == (1, 2, 2)
    assert all(seconds > 0 for seconds in chain["writing"] + chain["reading"])
    assert pdla.json("history", "1", "--files", "--json")["files"] == [chain]
    said = pdla.run("history", "--files").stdout
    assert "1: program" in said and "2: reader" in said
    assert "pdla applications lists them" in pdla.run("history", code=2).stderr


@pytest.mark.thorough(1)
def test_the_third_run_is_served_from_replicas_with_nothing_else_typed(runs: Runs) -> None:
    """And another number of ranks is served at its first run; every decision is in the log, and can be undone."""
    native = runs.learn("--wait").stdout
    assert runs.kinds() == ["learned", "planned", "built"]
    runs.was_slow()
    second = runs.learn("--wait")
    third = runs.learn("--wait")
    assert [native] * 2 == [second.stdout, third.stdout]
    assert "16 MiB from replicas" in third.stderr
    other = runs.learn("--wait", ranks=2)
    assert "16 MiB from replicas" in other.stderr
    facts = runs.history()
    assert [(one["ranks"], one["bytes"], one["hit_ratio"]) for one in facts] == [
        (4, FILE_BYTES, 0.0),
        (4, FILE_BYTES, 1.0),
        (4, FILE_BYTES, 1.0),
        (2, FILE_BYTES, 1.0),
    ]
    assert facts[0]["before"] is None and facts[2]["before"] == facts[0]["seconds"]
    assert facts[2]["measured"] == pytest.approx(facts[0]["seconds"] - facts[2]["seconds"])
    assert facts[2]["predicted"] > 0 and facts[2]["drift"] == []
    assert runs.kinds() == ["learned", "planned", "built", "learned", "learned", "learned"]
    (application,) = runs.pdla.json("applications", "--json")["applications"]
    assert (application["runs"], application["ranks"], application["replica_bytes"]) == (4, [2, 4], FILE_BYTES)
    runs.pdla.run("undo", "3")
    assert runs.pdla.json("status", "--json")["replicas"] == []
    runs.learn("--wait")
    assert runs.kinds()[-2:] == ["learned", "learned"], "what the user undid is not built again"
    assert "undone already" in runs.pdla.run("undo", "2", code=1).stderr
    runs.pdla.run("forget", "1")
    assert runs.kinds() == ["forgot"]
    left = [path.name for path in (runs.pdla.home / "learning").rglob("*") if path.is_file()]
    assert left == ["user"], "the mark of one who waits, which nobody holds"


def spool_of(pdla: Pdla) -> list[Path]:
    return list((pdla.home / "learning").glob("run.*"))


# ---- which runs teach ----------------------------------------------------------------------------------------------


@pytest.fixture
def mpich_runs(tmp_path: Path) -> Runs:
    return Runs(available_mpis()[0].values[0], tmp_path)


FAILING = """
import sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_RDONLY)
file.Read_at_all(4096 * MPI.COMM_WORLD.rank, bytearray(4096))
file.Close()
if MPI.COMM_WORLD.rank == 1:
    MPI.Finalize()
    sys.exit(3)
"""


def test_nothing_is_learned_from_a_run_that_failed(mpich_runs: Runs) -> None:
    """Its exit code is the program's; also if a script hides the code of a rank."""
    failing = mpich_runs.pdla.directory / "failing.py"
    failing.write_text(FAILING)
    words = (mpich_runs.mpi.python, str(failing), str(mpich_runs.data))
    mpich_runs.learn("--wait", ranks=2, words=words, code=3)
    command = " ".join([*mpich_runs.mpi.mpiexec, "-n", "2", *words])
    mpich_runs.pdla.run("run", "--learn", "--wait", "--", "sh", "-c", f"{command}; true")
    mpich_runs.pdla.run("run", "--learn", "--wait", "--", "true")
    whys = [why for kind, why in mpich_runs.decisions() if kind == "ignored"]
    assert [why.rpartition(": ")[2] for why in whys] == [
        "it ended with exit code 3",
        "rank 1 exited with code 3",
        "it made no MPI-IO call that could be recorded",
    ]
    assert mpich_runs.pdla.json("applications", "--json")["applications"] == []
    assert spool_of(mpich_runs.pdla) == []


def test_without_a_home_a_library_or_a_catalog_the_program_runs_all_the_same(pdla: Pdla) -> None:
    pdla.home.write_text("no directory")
    done = pdla.run("run", "--learn", "--", "sh", "-c", "echo done; exit 7", code=7)
    assert (done.stdout, done.stderr.count("\n")) == ("done\n", 1)
    assert "the program runs without pdla: cannot use" in done.stderr
    pdla.home.unlink()
    pdla.home.mkdir()
    (pdla.home / "catalog.db").write_bytes(b"hello" * 1000)
    done = pdla.run("run", "--learn", "--wait", "--", "sh", "-c", "exit 7", code=7)
    assert "catalog" in done.stderr
    assert len(spool_of(pdla)) == 1, "the run waits for the catalog"


def test_pause_and_resume(pdla: Pdla) -> None:
    pdla.run("pause")
    assert "learning is paused" in pdla.run("run", "--learn", "--wait", "--", "true").stderr
    assert "learning is paused" in pdla.run("learn", code=1).stderr
    pdla.run("resume")
    assert pdla.run("run", "--learn", "--wait", "--", "true").stderr.count("paused") == 0
    log = pdla.json("log", "--json")["decisions"]
    assert [(one["kind"], one["undo"]) for one in log] == [
        ("paused", "pdla resume"),
        ("resumed", "pdla pause"),
        ("ignored", None),
    ]
    assert "nothing was learned from that run" in pdla.run("undo", "3", code=1).stderr


def test_bad_input_is_one_line(pdla: Pdla) -> None:
    for words, says in (
        (("history", "nowhere"), "there is no application 'nowhere' (pdla applications lists them)"),
        (("forget", "7"), "there is no application '7'"),
        (("undo", "7"), "there is no decision 7 (pdla log lists them)"),
    ):
        done = pdla.run(*words, code=1)
        assert says in done.stderr and done.stderr.count("\n") == 1
    assert "--wait needs --learn" in pdla.run("run", "--wait", "--", "true", code=2).stderr
    assert "no such program" in pdla.run("run", "--learn", "--", "./nowhere", code=1).stderr


# ---- names, drift, budgets -----------------------------------------------------------------------------------------


def test_the_name_of_an_application_leaves_out_what_differs_from_run_to_run(tmp_path: Path) -> None:
    def name(*words: str, executable: str = "/jobs/1/app", files: tuple[str, ...] = ("/in/a.dat",)) -> str:
        return application_name(executable, words, str(tmp_path), files)

    assert name("./app", "/in/a.dat", "-s", "64", "--out=/x/res7.h5") == "app FILE -s N --out=resN.hN"
    assert name("app", "/in/a.dat", "--dir=/in") == "app FILE --dir=FILE"
    assert name("app", "b.dat", files=(str(tmp_path / "b.dat"),)) == name("app", "/in/a.dat")
    assert name("app", "read") != name("app", "write")
    assert name("python", "/home/me/slabs.py", "1e-3", executable="/usr/bin/python3.11") == "pythonN slabs.py N"


def blocks(ranks: int, size: int, start: int = 0) -> Signature:
    """Each rank reads a block in every row of ``size`` bytes."""
    part = size // ranks
    return Signature(
        "/f", "read", True, start, part, (Loop(part, ranks), Loop(size, 64)), tuple(range(ranks)), rank_loops=1
    )


def test_drift_says_what_changed_and_patterns_follow_the_ranks() -> None:
    before, after = blocks(4, 1 << 20), blocks(4, 1 << 20, start=512)
    assert drifts([before], [before]) == ()
    (changed,) = drifts([before], [after])
    assert (changed.kind, changed.what) == ("changed", "start 0 -> 512")
    assert [one.kind for one in drifts([before], [])] == ["went"]
    assert [one.kind for one in drifts([], [before])] == ["came"]
    known = {4: [blocks(4, 1 << 20)], 8: [blocks(8, 1 << 20)]}
    found = expected(known, 16)
    assert found is not None and drifts(found, [blocks(16, 1 << 20)]) == ()
    assert expected({4: known[4]}, 16) is None


def test_the_budget_of_cluster_toml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    text = DEFAULT_FILE.read_text()
    path.write_text(text + '\n[autopilot]\nspace = "1G"\nfiles = 10\nbandwidth = "100M"\nhours = "22:00-06:00"\n')
    assert load_budget(path) == Budget(1 << 30, 10, 100 << 20, (22 * 60, 6 * 60))
    assert load_budget(None) == Budget()
    path.write_text(text + '\n[autopilot]\nhours = "night"\n')
    with pytest.raises(ConfigError, match='hours must be two times of day like "22:00-06:00"'):
        load_budget(path)
    noon, midnight = datetime(2026, 1, 1, 12), datetime(2026, 1, 1)
    assert [Budget(hours=(0, 60)).is_open(time) for time in (noon, midnight)] == [False, True]


def test_steady_applications_are_recorded_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path))

    def recorded(number: int) -> bool:
        with spool.recording(f"run.{number}", ["app"], None) as recording:
            return recording.recorded

    spool.note_known(["app"], "app", spool.STEADY - 1)
    assert recorded(0)
    spool.note_known(["app"], "app", spool.STEADY)
    assert [recorded(number) for number in range(1, spool.SAMPLE + 1)] == [False] * (spool.SAMPLE - 1) + [True]


def test_a_daemon_learns_and_builds(mpich_runs: Runs) -> None:
    """It takes in a run that waits; outside of the hours of the budget, and in a pause, it builds nothing of it."""
    pdla = mpich_runs.pdla
    priority = os.nice(0)
    daemon = ("daemon", "--once", "--idle-load", "1", "--idle-io", "1T")
    cluster = pdla.home / "cluster.toml"
    text = cluster.read_text()
    closed = datetime.now() + timedelta(hours=12)
    # Otherwise pdla log starts a process that learns in the background. On a busy machine it would build for minutes,
    # and the daemon would leave the replica to it.
    with locked_by_a_daemon(pdla.home / "learning"):
        mpich_runs.learn()
        assert len(spool_of(pdla)) == 1
        cluster.write_text(f'{text}\n[autopilot]\nhours = "{closed:%H:%M}-{closed + timedelta(minutes=1):%H:%M}"\n')
        pdla.run(*daemon)
        assert "building waits for" in pdla.run("learn").stderr
        assert mpich_runs.kinds() == ["learned", "planned"]
        cluster.write_text(text)
        pdla.run(*daemon)
        assert mpich_runs.kinds() == ["learned", "planned", "built"]
    assert spool_of(pdla) == []
    assert os.nice(0) == priority, "this test has that of the daemon"


class NeverIdle(Gate):
    """A machine that others keep busy."""

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)
        self.looks = 0

    def busy(self) -> str:
        self.looks += 1
        return "others"


def test_a_user_who_waits_does_not_wait_for_the_machine_to_be_idle(
    mpich_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The background step leaves what it builds to pdla learn."""
    home = mpich_runs.pdla.home
    with locked_by_a_daemon(home / "learning"):
        mpich_runs.learn()
    monkeypatch.setenv("PDLA_HOME", str(home))
    gate = NeverIdle()
    background = threading.Thread(
        target=lambda: Learner(open_catalog(), gate, home / "replicas.map").learn(), daemon=True
    )
    background.start()
    while not gate.looks:
        time.sleep(0.01)
    assert "1 new replica" in mpich_runs.pdla.run("learn").stdout
    background.join(PATIENCE)
    assert not background.is_alive()
    assert mpich_runs.kinds() == ["learned", "planned", "built"]


def test_a_run_whose_end_cannot_be_noted_has_the_exit_code_of_the_program(pdla: Pdla) -> None:
    said = pdla.run("run", "--learn", "--", "sh", "-c", 'rm -rf "$PDLA_HOME/learning"; exit 7', code=7).stderr
    assert "nothing is learned from this run" in said


# ---- kills ---------------------------------------------------------------------------------------------------------

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
EVERY = 4 if THOROUGH else 16


@pytest.mark.thorough
def test_a_learner_that_is_killed_at_any_place_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """The next one takes the run up. It is killed before its changes of names and its commits, before one in
    ``EVERY`` of them, in a process of its own that imports nothing."""
    mpich_runs = Runs(available_mpis()[0].values[0], tmp_path, (8, 64, 256))
    home, kept = mpich_runs.pdla.home, mpich_runs.pdla.directory / "kept"
    with locked_by_a_daemon(home / "learning"):
        mpich_runs.learn()
    home.rename(kept)
    step, ended = 1, False
    while not ended:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(kept, home)
        ended = learn_in_child(home, step) == 0
        assert learn_in_child(home, 0) == 0
        with closing(sqlite3.connect(home / "catalog.db")) as database:
            kinds = [kind for (kind,) in database.execute("SELECT kind FROM autopilot_decisions ORDER BY id")]
            states = [state for (state,) in database.execute("SELECT state FROM replicas")]
            counts = [
                database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("autopilot_runs", "runs")
            ]
        assert (kinds, states, counts) == (["learned", "planned", "built"], ["valid"], [1, 1]), f"killed at step {step}"
        assert spool_of(mpich_runs.pdla) == []
        step += EVERY
    assert step > 30


def learn_in_child(home: Path, last: int) -> int:
    """Learn in a child process, which is killed at its step ``last`` (0: never); how it ended."""
    child = os.fork()
    if child == 0:
        try:
            os.environ["PDLA_HOME"] = str(home)
            os.environ.pop("PDLA_CATALOG", None)
            left = last

            def step(*_: object) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            if last:
                sys.addaudithook(lambda name, _: step() if name in STEPS else None)
                event.listen(Engine, "commit", step)
            Learner(open_catalog()).learn()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_what_did_not_pay_twice_is_retired_and_a_small_budget_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is in the log; after undo it is decided anew; measurements correct the factor of the pool."""
    runs = Runs(available_mpis()[0].values[0], tmp_path, (8, 64, 256))
    cluster = runs.pdla.home / "cluster.toml"
    text = cluster.read_text()
    cluster.write_text(f'{text}\n[autopilot]\nspace = "64K"\n')
    runs.learn("--wait")
    kind, why = runs.decisions()[-1]
    assert (kind, "no room in the budget of 64 KiB for 512 KiB" in why) == ("postponed", True)
    cluster.write_text(text)
    runs.learn("--wait")
    assert runs.kinds()[-1] == "built"
    monkeypatch.setenv("PDLA_HOME", str(runs.pdla.home))
    size = 4 * math.prod(runs.shape)
    slow = RunFacts(4, size, size, size, seconds=10.0, before=1.0, run=1, replicas={"1": size})
    runs.retires_after(slow, slow)
    assert runs.pdla.json("status", "--json")["replicas"] == []
    factor = runs.pdla.json("history", "1", "--json")["factors"]["ssd"]
    assert factor["observations"] == 2 and 1 <= factor["value"] <= 4
    runs.learn("--wait")
    assert runs.kinds()[-1] == "learned", "what was retired is not built again"
    (number,) = (one["id"] for one in runs.pdla.json("log", "--json")["decisions"] if one["kind"] == "retired")
    runs.pdla.run("undo", str(number))
    runs.learn("--wait")
    assert runs.kinds()[-1] == "built"


def test_a_program_that_a_module_preloads_is_learned_from_by_the_next_verb(runs: Runs) -> None:
    """PDLA_LEARN=1 and LD_PRELOAD, and no pdla run: recorded, learned from, and served the next time."""
    library = runs.pdla.run("preload").stdout.strip()
    variables = {"LD_PRELOAD": library, "PDLA_LEARN": "1", "PDLA_HOME": str(runs.pdla.home)}
    program = [runs.mpi.python, str(REPOSITORY / "examples" / "slabs.py"), str(runs.data), *map(str, SHAPE)]
    native = runs.mpi.run([*runs.mpi.mpiexec, "-n", "4", *program])
    for kinds in (["learned", "planned", "built"], ["learned"]):
        script = ["env", *(f"{name}={text}" for name, text in variables.items()), *program]
        assert runs.mpi.run([*runs.mpi.mpiexec, "-n", "4", *script]) == native
        assert len(spool_of(runs.pdla)) == 1
        runs.pdla.run("learn")
        assert runs.kinds()[-len(kinds) :] == kinds
        assert spool_of(runs.pdla) == []
    assert [one["hit_ratio"] for one in runs.history()] == [0.0, 1.0]
