"""A private Slurm: a controller and two nodes on the loopback device, in a directory of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.mpi import unavailable
from tests.support.waiting import PATIENCE

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

CONFIGURATION = """\
ClusterName=pdla
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=pmi2
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
TaskProlog={folder}/task-prolog
Epilog={folder}/epilog
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _until(is_so: Callable[[], bool], what: str, seconds: float = 30) -> None:
    for _ in range(int(seconds / 0.2)):
        if is_so():
            return
        time.sleep(0.2)
    raise TimeoutError(f"not within {seconds} s: {what}")


class SlurmCluster:
    """Jobs on two nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        munge = self.folder / "munge"
        munge.mkdir()
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o600)
        (self.folder / "state").mkdir()
        for name in ("task-prolog", "epilog"):
            self.set_script(name, "#!/bin/sh\n")
        files = {"key": "key-file", "socket": "socket", "pid": "pid-file", "log": "log-file", "seed": "seed-file"}
        options = [f"--{option}={munge / name}" for name, option in files.items()]
        self._start("munged", "--foreground", "--force", *options)
        _until((munge / "socket").exists, "munged has its socket")
        assert any(self._has_controller() for _ in range(5)), "slurmctld ends: see its log"
        for node in ("node1", "node2"):
            self._start("slurmd", "-N", node, "-D", "-c")
        _until(lambda: self._ask("sinfo", "--noheader", "--format=%T %D") == "idle 2", "both nodes are idle")

    def _has_controller(self) -> bool:
        """Start the controller. It ends at once if another process has taken its port since that was chosen."""
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(host=host, folder=self.folder, ports=_free_ports(3))
        (self.folder / "slurm.conf").write_text(text)
        self._start("slurmctld", "-D", "-c")
        time.sleep(1.0)
        if self._processes[-1].poll() is None:
            return True
        self._processes.pop()
        return False

    def set_script(self, name: str, text: str) -> None:
        """Set what runs as ``task-prolog`` before each task, or as ``epilog`` after each job on its nodes."""
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()

    def run(self, script: Path, *options: str, variables: Mapping[str, str], seconds: float = 100) -> str:
        """What a batch script prints on both nodes, which must succeed."""
        output = script.with_suffix(".out")
        size = ["--nodes=2", "--ntasks-per-node=2", f"--output={output}"]
        job = self._ask("sbatch", "--parsable", *size, *options, str(script), variables=variables)
        _until(lambda: self._state(job) in ENDED, f"job {job} of {script.name} has ended", seconds)
        assert self._state(job) == "COMPLETED", output.read_text()
        return output.read_text()

    def _state(self, job: str) -> str:
        shown = dict(part.split("=", 1) for part in self._ask("scontrol", "show", "job", job).split() if "=" in part)
        return shown["JobState"]

    def _start(self, *command: str) -> None:
        log = (self.folder / f"{command[0]}.log").open("ab")
        self._processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def _ask(self, *command: str, variables: Mapping[str, str] | None = None) -> str:
        environment = {**self.environment, **(variables or {})}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.stdout.strip()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster; skipped without Slurm, and without root, as whom slurmd starts jobs."""
    if missing := [name for name in DAEMONS if shutil.which(name) is None]:
        unavailable(f"there is no {missing[0]}: apt-get install slurmctld slurmd slurm-client munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd starts jobs as root only")
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
