"""What launchers pass on to the ranks of another node, if their ssh brings nothing of the environment along."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pdla.cli.launch import OPENMPI_LIST, for_other_nodes
from tests.support import documentation_pages as pages
from tests.support.columns import SIDE
from tests.support.command_line import PDLA
from tests.support.mpi import Mpi, available_mpis, debian_mpis, other_mpis
from tests.support.node_cluster import NETWORK, Cluster, node_cluster
from tests.support.recorded_programs import PROGRAMS
from tests.support.waiting import PATIENCE

HYDRAS = [available_mpis()[0], debian_mpis()[0], other_mpis()[1]]
OPENMPIS = [available_mpis()[1], debian_mpis()[1]]
SHOW = ["sh", "-c", 'echo "$(hostname): $PROBE"']


class Launched:
    """A cluster of two nodes, whose launches by ``agent`` bring nothing along, as those by ssh."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.agent = cluster.directory / "clean"
        enter = (cluster.directory / "enter").read_text()
        clean = f'env -i -C "$PWD" PATH={os.defpath} HOME={cluster.directory}'
        self.agent.write_text(enter.replace('env -C "$PWD"', clean))
        self.agent.chmod(0o755)

    def command(self, mpi: Mpi, *words: str | Path) -> list[str]:
        """``words``, which may begin with options, on both nodes."""
        agent, rest = str(self.agent), ["-n", "2", *map(str, words)]
        hosts = ",".join(self.cluster.names)
        if not mpi.is_openmpi:
            return [*mpi.mpiexec, "-launcher", "ssh", "-launcher-exec", agent, "-hosts", hosts, "-ppn", "1", *rest]
        option = ["--mca", "plm_rsh_agent"] if "debian" in mpi.name else ["--prtemca", "plm_ssh_agent"]
        return [*mpi.mpiexec, *option, agent, "--host", hosts, "--map-by", "ppr:1:node", *rest]

    def run(self, mpi: Mpi, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **mpi.env, **(NETWORK if mpi.name == "mpich" else {}), **variables}
        (node, _) = self.cluster.nodes
        done = subprocess.run(
            node.command(*command), env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    def seen(self, mpi: Mpi, *options: str, **variables: str) -> list[str]:
        """What each node has of the variable PROBE."""
        return sorted(self.run(mpi, self.command(mpi, *options, *SHOW), **variables).stdout.splitlines())


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with node_cluster(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield Launched(cluster)


@pytest.mark.parametrize("mpi", HYDRAS)
def test_hydra_passes_the_environment_on_unless_it_is_told_not_to(mpi: Mpi, launched: Launched) -> None:
    assert launched.seen(mpi, PROBE="1") == ["node1: 1", "node2: 1"]
    assert launched.seen(mpi, "-genvnone", PROBE="1")[1] == "node2: "
    assert launched.seen(mpi, "-genvnone", "-genv", "PROBE", "2", PROBE="1") == ["node1: 2", "node2: 2"]


@pytest.mark.parametrize("mpi", OPENMPIS)
def test_open_mpi_passes_on_what_it_is_told_to(mpi: Mpi, launched: Launched) -> None:
    assert launched.seen(mpi, PROBE="1") == ["node1: 1", "node2: "]
    assert launched.seen(mpi, "-x", "PROBE", PROBE="1") == ["node1: 1", "node2: 1"]
    assert launched.seen(mpi, "-x", "PROBE=2") == ["node1: 2", "node2: 2"]


@dataclass(frozen=True)
class Prepared:
    """What a program of two nodes needs to run, and what it prints natively."""

    words: list[str | Path]
    home: Path
    native: str


@pytest.fixture
def prepared(mpi: Mpi, launched: Launched, tmp_path: Path) -> Prepared:
    shared, upper = launched.cluster.shared, launched.cluster.upper
    home = launched.cluster.directory / f"{tmp_path.name}={mpi.name}"  # mpirun drops "=" from a list of names
    home.mkdir()
    (upper / "matrix").write_bytes(np.random.default_rng(5).bytes(SIDE * SIDE))
    (upper / "result").write_bytes(bytes(SIDE * SIDE))
    words = [mpi.compile(PROGRAMS / "columns.c", home / "columns"), shared / "matrix", shared / "result", str(SIDE)]
    return Prepared(words, home, launched.run(mpi, launched.command(mpi, *words)).stdout)


def build(mpi: Mpi, launched: Launched, prepared: Prepared) -> None:
    """Replicas of what a trace in the program's directory has."""
    plan = str(prepared.home / "plan.json")
    trace = str(prepared.home / "run.h5")
    for verb in (["plan", trace, "--policy", "ns-pdla", "--simulate", "0", "-o", plan], ["replicate", plan]):
        launched.run(mpi, [PDLA, *verb], PDLA_HOME=str(prepared.home / "home"))


@pytest.mark.parametrize(
    ("mpi", "named"),
    [
        *(pytest.param(*one.values, named, marks=one.marks) for one in OPENMPIS for named in (False, True)),
        *(pytest.param(*one.values, False, marks=one.marks) for one in HYDRAS),
    ],
    ids=lambda value: value.name if isinstance(value, Mpi) else "named" if value else "unasked",
)
@pytest.mark.thorough(2)
def test_h56_ranks_of_every_node_are_recorded_and_redirected(
    mpi: Mpi, named: bool, launched: Launched, prepared: Prepared
) -> None:
    """Whether pdla's variables are ``named`` by options -x or not."""
    words, home, native = prepared.words, prepared.home, prepared.native

    def step(*verb: str, passed: str = "") -> subprocess.CompletedProcess[str]:
        options = [word for name in passed.split() for word in ("-x", name)] if named else []
        command = ["--", *launched.command(mpi, *options, *words)] if passed else []
        return launched.run(mpi, [PDLA, *verb, *command], PDLA_HOME=str(home / "home"))

    traced = step("trace", "-o", str(home / "run.h5"), passed="LD_PRELOAD PDLA_TRACE")
    assert traced.stdout == native
    assert "2 ranks, 1,044 calls, 768 KiB moved in 2 files" in traced.stderr
    build(mpi, launched, prepared)
    redirected = step("run", passed="LD_PRELOAD PDLA_MAP PDLA_REPORT PDLA_WRITES PDLA_STEP_ASIDE")
    assert redirected.stdout == native
    assert "512 KiB from replicas" in redirected.stderr


@pytest.mark.parametrize("mpi", [HYDRAS[0], OPENMPIS[0]])
def test_h56_ranks_of_one_node_find_out_that_those_of_the_other_run_without_pdla(
    mpi: Mpi, launched: Launched, prepared: Prepared
) -> None:
    """A script starts mpirun, which passes the variables on to the ranks of its own node only; Hydra is told so."""
    words = [str(word) for word in launched.command(mpi, *prepared.words)]
    variables = {"PDLA_HOME": str(prepared.home / "home")}
    trace = str(prepared.home / "run.h5")
    launched.run(mpi, [PDLA, "trace", "-o", trace, "--", *words], **variables)
    build(mpi, launched, prepared)
    script = prepared.home / "job.sh"
    passes = [] if mpi.is_openmpi else ["-genvnone"]
    script.write_text(shlex.join([words[0], *passes, *words[1:]]))
    done = launched.run(mpi, [PDLA, "run", "--", "sh", str(script)], **variables)
    assert done.stdout == prepared.native
    assert "rank 1 of 2 runs without pdla" in done.stderr


@pytest.mark.parametrize("mpi", OPENMPIS)
def test_the_line_of_the_page_preloads_in_open_mpis_ranks(mpi: Mpi, tmp_path: Path) -> None:
    (block,) = (one.text for one in pages.blocks(pages.DOCS / "howto/launchers.md") if "aprun" in one.text)
    (line,) = (one for one in block.splitlines() if one.startswith("mpirun "))
    mpi.compile(PROGRAMS / "columns.c", tmp_path / "columns")
    (tmp_path / "matrix").write_bytes(bytes(SIDE * SIDE))
    (tmp_path / "logs").mkdir()
    line = line.replace("mpirun ", f"{mpi.mpiexec[0]} ").replace("pdla ", f"{PDLA} ")
    mpi.run(["sh", "-c", line.replace("./app", f"./columns matrix result {SIDE}")], tmp_path)
    packed = subprocess.run([PDLA, "pack", "logs", "-o", "run.h5"], cwd=tmp_path, capture_output=True, check=True)
    assert b"run.h5: 2 ranks, " in packed.stdout


def names(command: str, environment: Mapping[str, str]) -> str | None:
    return for_other_nodes(command.split(), environment).get(OPENMPI_LIST)


def test_the_list_for_open_mpi_is_made_only_where_it_does_no_harm() -> None:
    environment = {"PATH": "/bin", "LD_PRELOAD": "/libpdla.so", "PDLA_TRACE": "/raw"}
    assert names("mpirun -n 2 app", environment) == "LD_PRELOAD;PDLA_TRACE"
    assert names("nice /opt/mpi/bin/mpiexec.openmpi app", environment) == "LD_PRELOAD;PDLA_TRACE"
    assert names("mpirun -x OMP_NUM_THREADS app", environment) is None
    assert names("./job.sh", environment) is None
    assert names("mpirun app", environment | {"PDLA_CATALOG": "postgresql://me:secret@db/p"}) == "LD_PRELOAD;PDLA_TRACE"
    assert names("mpirun app", environment | {"PDLA_TRACE": "/a=b"}) == "LD_PRELOAD;PDLA_TRACE=/a=b"
    assert names("mpirun app", environment | {"PDLA_TRACE": "/a=b;c"}) is None
    assert names("mpirun app", environment | {OPENMPI_LIST: "MINE"}) is None
