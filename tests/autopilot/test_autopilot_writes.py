"""pdla run --learn --writes: with the user's consent, writes of the next runs go to replicas, too."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pdla.autopilot import spool
from pdla.autopilot.judging import Judge
from pdla.autopilot.names import this_user
from pdla.catalog import RunFacts, open_catalog
from tests.support.learning_runs import Runs
from tests.support.mpi import available_mpis
from tests.support.strided_writer import PIECE, PIECES, RANKS, STRIDED, expected

SIZE = RANKS * PIECES * PIECE

# Each of twice as many ranks writes the half of a piece of each row, all of them in one collective call.
HALVES = """
import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
view = MPI.BYTE.Create_vector(32, 2048, 16384).Commit()
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_RDWR)
file.Set_view(2048 * world.rank, MPI.BYTE, view)
file.Write_all(bytes([world.rank]) * 65536)
file.Close()
"""


class Writing(Runs):
    """The program that writes, in a directory with a cluster.toml in its PDLA_HOME."""

    def __init__(self, directory: Path) -> None:
        super().__init__(available_mpis()[0].values[0], directory)
        self.program = directory / "strided.py"
        self.program.write_text(STRIDED)
        self.out = directory / "out.dat"

    def words(self, seed: int, code: int = 0, early: int = 0) -> tuple[str, ...]:
        return self.mpi.python, str(self.program), str(self.out), str(seed), str(code), str(early)

    def write(self, seed: int, writes: str | None, code: int = 0, early: int = 0) -> str:
        asked = ("--writes", writes) if writes else ()
        said: str = self.learn("--wait", *asked, words=self.words(seed, code, early), code=code).stderr
        return said

    def replicas(self) -> list[dict[str, Any]]:
        found = self.pdla.json("status", "--json")["replicas"]
        assert isinstance(found, list)
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


@pytest.mark.parametrize("writes", ["lease", "close"])
def test_the_third_run_writes_to_replicas_and_its_bytes_are_home_when_learning_is_done(
    runs: Writing, writes: str
) -> None:
    """A program without pdla finds them."""
    runs.write(1, writes)
    assert runs.kinds() == ["learned", "planned", "built"]
    assert [(one["purpose"], one["state"]) for one in runs.replicas()] == [("write", "valid")]
    for seed in (2, 3):
        said = runs.write(seed, writes)
        assert "128 writes redirected" in said
        assert ("512 KiB wait in replicas" in said) == (writes == "lease")
        assert runs.out.read_bytes() == expected(seed)
    runs.pdla.run("sync")
    assert runs.out.read_bytes() == expected(3)
    first, _, third = runs.history()
    assert (first["redirected"], third["redirected"]) == (0, SIZE)
    assert (first["hit_ratio"], third["hit_ratio"], third["predicted"] > 0) == (0.0, 1.0, True)
    # Redirection moves time from the writes into the close.
    assert (third["before"], third["seconds"]) == (first["io"], third["io"])
    assert third["replicas"] == {"1": SIZE}


@pytest.mark.parametrize("words", [("undo", "3"), ("forget", "1")])
def test_what_waits_in_a_replica_comes_home_before_the_replica_is_removed(
    runs: Writing, words: tuple[str, str]
) -> None:
    runs.write(1, "lease")
    command = [*runs.mpi.mpiexec, "-n", str(RANKS), *runs.words(2)]
    assert "512 KiB wait in replicas" in runs.pdla.run("run", "--writes", "lease", "--", *command).stderr
    assert runs.out.read_bytes() == expected(1)
    runs.pdla.run(*words)
    assert runs.out.read_bytes() == expected(2)
    assert runs.replicas() == []


def test_a_replica_for_writes_that_does_not_pay_is_retired(runs: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not built again for the same kind of writes; for the other kind it may be."""
    runs.write(1, "close")
    monkeypatch.setenv("PDLA_HOME", str(runs.pdla.home))
    slow = RunFacts(RANKS, SIZE, 0, 0, seconds=10.0, before=1.0, run=1, replicas={"1": SIZE}, redirected=SIZE)
    runs.retires_after(slow, slow)
    assert runs.replicas() == []
    runs.write(2, "close")
    assert runs.kinds()[-1] == "learned"
    runs.write(3, "lease")
    assert runs.kinds()[-1] == "built"


def test_a_replica_for_writes_is_judged_with_the_program_that_reads_the_file(
    runs: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves its writer 1 s in each run. The reader lost more than that after two of them, and nothing before."""
    runs.write(1, "lease")
    monkeypatch.setenv("PDLA_HOME", str(runs.pdla.home))
    path = str(runs.out)
    wrote = RunFacts(RANKS, SIZE, 0, 0, seconds=1.0, before=2.0, run=1, replicas={"1": SIZE}, redirected=SIZE)
    with closing(open_catalog()) as catalog:
        reader = catalog.autopilot.application(this_user(), "reader")

        def learn(name: str, application: int, facts: RunFacts) -> list[str]:
            catalog.autopilot.learn(application, name, datetime.now(UTC), facts, this_user(), [])
            return [one.why for one in Judge(catalog, this_user()).failures()]

        def write_and_read(number: int, seconds: float) -> list[str]:
            facts = replace(wrote, calls={path: {"write": 1.0}})
            assert learn(f"write.{number}", 1, facts if number else replace(facts, redirected=0, replicas={})) == []
            return learn(f"read.{number}", reader, RunFacts(RANKS, SIZE, SIZE, 0, calls={path: {"read": seconds}}))

        assert [write_and_read(number, seconds) for number, seconds in enumerate((3.0, 3.5, 9.0))] == [[], [], []]
        (why,) = write_and_read(3, 8.0)
    assert why.endswith("they took 5 s and 4 s longer than without it")


def test_a_replica_for_writes_that_others_now_read_too_early_is_retired(runs: Writing) -> None:
    runs.write(1, "lease")
    assert "128 writes redirected" in runs.write(2, "lease", early=1)
    (why,) = (why for kind, why in runs.decisions() if kind == "retired")
    assert why.endswith("its bytes are read by other ranks before a sync or close")
    assert runs.replicas() == []
    assert runs.out.read_bytes() == expected(2)
    runs.write(3, "lease")
    assert runs.kinds().count("built") == 1


def test_a_collective_write_that_mpi_makes_in_large_requests_is_not_made_in_small_ones(runs: Writing) -> None:
    """Together the ranks write whole rows. In the replica each half of a piece is apart from the next one."""
    runs.write(1, "lease")
    program = runs.pdla.directory / "halves.py"
    program.write_text(HALVES)
    words = (runs.mpi.python, str(program), str(runs.out))
    said = runs.learn("--wait", "--writes", "lease", ranks=8, words=words).stderr
    assert "writes redirected" not in said
    assert runs.out.read_bytes() == b"".join(bytes([rank]) * 2048 for rank in range(8)) * PIECES
    assert "128 writes redirected" in runs.write(2, "lease")
    assert runs.out.read_bytes() == expected(2)


def test_without_the_option_writes_go_to_the_original(runs: Writing) -> None:
    """Nothing is planned for them; and what another run built for them is not used."""
    for seed in (1, 2):
        assert "redirected" not in runs.write(seed, None).replace("nothing was redirected", "")
    assert runs.kinds() == ["learned", "learned"]
    runs.write(3, "lease")
    assert runs.kinds()[-1] == "built"
    assert "writes redirected" not in runs.write(4, None)
    assert runs.out.read_bytes() == expected(4)


def test_a_run_that_fails_plans_nothing_and_its_bytes_come_home(runs: Writing) -> None:
    runs.write(1, "lease", code=3)
    assert runs.kinds() == ["ignored"]
    assert runs.replicas() == []
    runs.write(2, "lease")
    assert "512 KiB wait in replicas" in runs.write(3, "lease", code=3)
    assert runs.out.read_bytes() == expected(3)
    assert runs.kinds()[-1] == "ignored"


def test_until_it_is_learned_from_a_leased_run_leaves_its_bytes_in_the_replica(
    runs: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.write(1, "lease")
    monkeypatch.setenv("PDLA_HOME", str(runs.pdla.home))
    with spool.daemon_learns():  # no process learns in the background
        runs.learn("--writes", "lease", words=runs.words(2))
    assert runs.out.read_bytes() == expected(1)
    runs.pdla.run("learn")
    assert runs.out.read_bytes() == expected(2)


def test_a_program_that_a_module_preloads_may_write_to_replicas_if_the_module_says_so(runs: Writing) -> None:
    library = runs.pdla.run("preload").stdout.strip()
    variables = {"LD_PRELOAD": library, "PDLA_LEARN": "1", "PDLA_HOME": str(runs.pdla.home), "PDLA_WRITES": "lease"}
    for seed, kinds in ((1, ["learned", "planned", "built"]), (2, ["learned"])):
        script = ["env", *(f"{name}={text}" for name, text in variables.items()), *runs.words(seed)]
        runs.mpi.run([*runs.mpi.mpiexec, "-n", str(RANKS), *script])
        runs.pdla.run("learn")
        assert runs.kinds()[-len(kinds) :] == kinds
        assert runs.out.read_bytes() == expected(seed)
    assert [one["redirected"] for one in runs.history()] == [0, SIZE]


def test_a_policy_may_be_chosen_besides(runs: Writing) -> None:
    for seed in (1, 2):
        options = ("--wait", "--writes", "lease", "--policy", "auto")
        said = runs.learn(*options, words=runs.words(seed)).stderr
        assert runs.out.read_bytes() == expected(seed)
    assert "128 writes redirected" in said
    assert runs.kinds()[:4] == ["learned", "planned", "chose", "built"]
