"""Several users, hosts and applications share a machine, a catalog or replicas with the autopilot."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pdla.autopilot import spool
from pdla.autopilot.names import this_user
from pdla.catalog import Decision, RunFacts, open_catalog
from pdla.errors import PdlaError
from tests.support.clusters import SEEKING_DISKS
from tests.support.command_line import Pdla
from tests.support.compilers import REPOSITORY
from tests.support.learning_runs import FILE_BYTES, SHAPE, Runs, locked_by_a_daemon
from tests.support.mpi import available_mpis, unavailable
from tests.support.postgresql_server import new_database

SLABS = str(REPOSITORY / "examples" / "slabs.py")

HALVES = """
import sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_RDONLY)
slabs, rows, columns = map(int, sys.argv[2:])
ranks, rank = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
half = 2 * columns // ranks
for row in range(slabs * rows):
    for start in (2 * half * rank, 2 * half * rank + half):
        file.Read_at(4 * row * columns + start, bytearray(half))
file.Close()
"""

HALF_AFTER_HALF = """
import sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_RDONLY)
slabs, rows, columns = map(int, sys.argv[2:])
ranks, rank = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
half = 2 * columns // ranks
for start in (2 * half * rank, 2 * half * rank + half):
    for row in range(slabs * rows):
        file.Read_at(4 * row * columns + start, bytearray(half))
file.Close()
"""


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(available_mpis()[0].values[0], tmp_path)


# ---- users ----------------------------------------------------------------------------------------------------------


def test_users_do_not_see_the_applications_of_others(tmp_path: Path) -> None:
    with closing(open_catalog(f"sqlite:///{tmp_path}/c.db")) as catalog:
        mine, theirs = (catalog.autopilot.application(owner, "app N") for owner in ("me", "you"))
        assert mine != theirs
        assert [one.id for one in catalog.autopilot.applications("me")] == [mine]
        catalog.autopilot.decide("you", [Decision("ignored:x", "ignored", "why")])
        assert catalog.autopilot.decisions("me") == []
        with pytest.raises(PdlaError, match="there is no decision 1"):
            catalog.autopilot.decision("me", 1)


class User(Pdla):
    """A user of this machine with this uid, whose home is ``directory``. RATIONALE: may read where root has Python."""

    def __init__(self, directory: Path, uid: int) -> None:
        super().__init__(directory, {"HOME": str(directory)})
        for name in ("PDLA_HOME", "XDG_DATA_HOME"):
            self.environment.pop(name, None)
        self.home = directory / ".local" / "share" / "pdla"
        reads = [f"--{kind}-caps=-all,+dac_read_search" for kind in ("inh", "ambient")]
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *reads]
        may = os.geteuid() == 0 and shutil.which("setpriv")
        if not may or subprocess.run([*become, "true"], capture_output=True, check=False).returncode != 0:
            unavailable("becoming another user needs root and setpriv")
        self.command = [*become, *super().command]
        directory.mkdir()
        os.chown(directory, uid, uid)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that all users may read."""
    with tempfile.TemporaryDirectory(prefix="pdla-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.thorough
@pytest.mark.parametrize("catalog", ["own", "shared"])
def test_two_users_of_a_machine_have_own_applications_and_replicas(
    public: Path, catalog: str, request: pytest.FixtureRequest
) -> None:
    """Their catalogs are the default ones, in their homes, or one on PostgreSQL. They read the same file, and share the
    pools."""
    pools, data, cluster = public / "pools", public / "array.dat", public / "cluster.toml"
    for name in ("hdd0", "ssd0", "ssd1"):
        (pools / name).mkdir(parents=True)
        (pools / name).chmod(0o1777)
    data.write_bytes(bytes(FILE_BYTES))
    cluster.write_text(SEEKING_DISKS.replace("home/pools", str(pools)))
    mpi = available_mpis()[0].values[0]
    one, other = users = [User(public / name, uid) for name, uid in (("one", 1234), ("other", 1235))]
    if catalog == "shared":
        url = new_database(request.getfixturevalue("postgresql_server"))
        for user in users:
            user.environment["PDLA_CATALOG"] = url

    def learn(user: User) -> str:
        program = [mpi.python, SLABS, str(data), *map(str, SHAPE)]
        words = ("run", "--learn", "--wait", "--cluster", str(cluster), "--", *mpi.mpiexec, "-n", "4", *program)
        return user.run(*words).stderr

    def applications(user: User) -> list[str]:
        return [str(each["id"]) for each in user.json("applications", "--json")["applications"]]

    def replicas(user: User) -> int:
        return len(user.json("status", "--json")["replicas"])

    assert "nothing was redirected" in learn(one)
    (first,) = applications(one)
    assert (replicas(one), applications(other)) == (1, [])
    assert f"there is no application '{first}'" in other.run("history", first, code=1).stderr
    assert f"there is no application '{first}'" in other.run("forget", first, code=1).stderr
    assert "nothing was redirected" in learn(other)
    (second,) = applications(other)
    assert "16 MiB from replicas" in learn(one)
    one.run("forget", first)
    assert (applications(one), applications(other)) == ([], [second])
    assert len(other.json("history", second, "--json")["runs"]) == 1
    assert learn(other)
    private = [*(user.home for user in users), *pools.glob("*/pdla-replicas-*")]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o700}


# ---- nodes ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_nodes_with_one_catalog_on_postgresql_learn_at_the_same_time(runs: Runs, postgresql_server: str) -> None:
    """Each learns from a run of its own file, while the other one does; both files are served from then on."""
    pdla = Pdla(runs.pdla.directory, runs.pdla.environment)
    pdla.environment["PDLA_CATALOG"] = new_database(postgresql_server)
    copy = shutil.copy(runs.data, pdla.directory / "copy.dat")
    programs = [(runs.mpi.python, SLABS, str(path), *map(str, SHAPE)) for path in (runs.data, copy)]

    def learn(program: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return pdla.run("run", "--learn", "--wait", "--", *runs.mpi.mpiexec, "-n", "4", *program)

    def log() -> list[tuple[str, int | None]]:
        return [(one["kind"], one["application"]) for one in pdla.json("log", "--json")["decisions"]]

    with ThreadPoolExecutor() as nodes:
        first, second = (list(nodes.map(learn, programs)) for _ in range(2))
    assert [one.stdout for one in first] == [one.stdout for one in second]
    assert ["16 MiB from replicas" in one.stderr for one in second] == [True, True]
    taught = sorted(one for one in log() if one[0] != "drifted")  # to the file of the other node
    assert taught == [("built", 1)] * 2 + [("learned", 1)] * 4 + [("planned", 1)] * 2
    pdla.run("forget", "1")
    assert (pdla.json("status", "--json")["replicas"], log()) == ([], [("forgot", None)])


def test_a_pause_is_logged_with_where_it_holds(runs: Runs) -> None:
    runs.pdla.run("pause")
    ((kind, why),) = runs.decisions()
    assert (kind, why) == ("paused", f"as the user asked, for {runs.pdla.home}")


# ---- a replica in another program's order ----------------------------------------------------------------------------


def test_a_program_that_reads_the_replica_of_another_one_in_small_pieces_gets_an_own_one(runs: Runs) -> None:
    """Each rank reads the first half of its part of every row, and then the second half. The other program has the
    parts whole."""
    runs.learn("--wait")
    program = runs.pdla.directory / "program.py"
    program.write_text(HALF_AFTER_HALF)
    words = (runs.mpi.python, str(program), str(runs.data), *map(str, runs.shape))
    assert "(in another order in the replica)" in runs.learn("--wait", words=words).stderr
    assert runs.kinds()[3:] == ["learned", "planned", "built"]
    assert "32,768 requests, 99.96 % of them contiguous" in runs.learn("--wait", words=words).stderr
    assert runs.kinds()[6:] == ["learned"]


def test_a_collective_read_that_mpi_makes_in_large_requests_is_not_made_in_small_ones(runs: Runs) -> None:
    """Twice as many ranks read half of each part of a row. Together they read whole rows; in the replica the other half
    is in between. After that run there is a replica for them, too. Half as many ranks are served by the first one."""
    runs.learn("--wait")
    assert "128 calls, 16 MiB (in too many pieces in the replica)" in runs.learn("--wait", ranks=8).stderr
    for ranks in (8, 4, 2):
        assert "16 MiB from replicas" in runs.learn("--wait", ranks=ranks).stderr


# ---- what others use is not forgotten -------------------------------------------------------------------------------


def test_forget_leaves_the_replicas_that_others_use(runs: Runs) -> None:
    """A run that another user's learner, or pdla analyze, put on record; one that the user undid is no other."""
    pdla = runs.pdla
    runs.learn("--wait")
    with closing(open_catalog(f"sqlite:///{pdla.home}/catalog.db")) as catalog:
        run, patterns = catalog.runs.get(1)
        catalog.runs.record(replace(run, trace="another", path="/home/you/run.h5"), patterns)
        assert "0 replicas removed" in pdla.run("forget", "1").stdout
        assert [(len(catalog.replicas.find()), one.runs, one.state) for one in catalog.patterns.find()] == [
            (1, 1, "built")
        ]
    assert runs.learn("--wait").stderr.count("16 MiB from replicas") == 1


def test_forget_leaves_a_replica_that_was_there_before(runs: Runs) -> None:
    """It was built by hand after the run, from a trace that the catalog does not know; it is not the autopilot's."""
    pdla = runs.pdla
    trace, plan = pdla.directory / "hand.h5", pdla.directory / "plan.json"
    program = [runs.mpi.python, str(REPOSITORY / "examples" / "slabs.py"), str(runs.data)]
    command = [*runs.mpi.mpiexec, "-n", "4", *program, *map(str, SHAPE)]
    with locked_by_a_daemon(pdla.home / "learning"):
        runs.learn()
        pdla.run("trace", "-o", str(trace), "--", *command)
        pdla.run("plan", str(trace), "--cluster", str(pdla.home / "cluster.toml"), "-o", str(plan))
        pdla.run("replicate", str(plan))
        pdla.run("learn")
    assert runs.kinds() == ["learned"]
    assert "0 replicas removed" in pdla.run("forget", "1").stdout
    assert len(pdla.json("status", "--json")["replicas"]) == 1


def test_forget_removes_the_replicas_of_a_run_that_was_undone(runs: Runs) -> None:
    runs.learn("--wait")
    runs.pdla.run("undo", "1")
    assert "1 replica removed" in runs.pdla.run("forget", "1").stdout
    assert runs.pdla.json("status", "--json")["replicas"] == []


def test_forget_leaves_a_replica_that_another_application_reads_by_another_pattern(runs: Runs) -> None:
    """The other program reads the same bytes in other pieces; so it has no pattern in common."""
    pdla = runs.pdla
    runs.learn("--wait")
    other = pdla.directory / "other.py"
    other.write_text(HALVES)
    read = runs.learn("--wait", words=(runs.mpi.python, str(other), str(runs.data), *map(str, SHAPE)))
    assert "16 MiB from replicas" in read.stderr
    with closing(open_catalog(f"sqlite:///{pdla.home}/catalog.db")) as catalog:
        (replica,) = catalog.replicas.find()
        assert catalog.autopilot.other_users(1) == {replica.id: 2}
    assert "0 replicas removed" in pdla.run("forget", "1").stdout
    assert runs.kinds() == ["built", "learned", "forgot"]
    assert "1 replica removed" in pdla.run("forget", "2").stdout


def test_a_run_that_was_not_recorded_is_of_the_application_that_its_command_was(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was noted of the command on this host stays if the application is forgotten on another one. Its number may
    then be that of another application."""
    pdla = runs.pdla
    monkeypatch.setenv("PDLA_HOME", str(pdla.home))
    command = [*runs.mpi.mpiexec, "-n", "4", runs.mpi.python, SLABS, str(runs.data), *map(str, SHAPE)]
    runs.learn("--wait")
    ((noted,),) = [[one.name for one in open_catalog().autopilot.applications(this_user())]]
    pdla.run("forget", "1")
    with closing(open_catalog()) as catalog:
        number = catalog.autopilot.application(this_user(), "another")
        facts = RunFacts(4, FILE_BYTES, FILE_BYTES, 0, run=1)
        catalog.autopilot.learn(number, "run.0", datetime.now(UTC), facts, this_user(), [])
        assert number == 1, "numbers are used again"
        spool.note_known(command, noted, spool.STEADY)
        runs.learn("--wait")
        assert len(catalog.autopilot.runs(number)) == 1
    assert runs.decisions()[-1][1].endswith("it was not recorded, and nothing is known of its command")
    runs.learn("--wait")
    assert runs.kinds()[-1] == "built", "the next run is recorded"
