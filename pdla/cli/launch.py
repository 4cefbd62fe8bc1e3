"""Start the user's programs with pdla's libraries preloaded."""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pdla.config import home_path
from pdla.errors import PdlaError

OPENMPI_LIST = "OMPI_MCA_mca_base_env_list"
"""Has the names of the variables that mpirun passes on, in Open MPI 4 and 5: as options -x."""


def library() -> Path | None:
    """The path of the preload library, or None if pdla was installed without a C compiler."""
    path = Path(str(importlib.resources.files("pdla") / "libpdla.so"))
    return path if path.is_file() else None


def preloaded(variables: Mapping[str, str], *, posix: bool = False, coherence: bool = False) -> dict[str, str]:
    """The present environment with ``variables``, PDLA_HOME as an absolute path, and pdla's library in LD_PRELOAD.

    The library is there once; other libraries stay.

    ``posix`` also preloads the library that records POSIX calls. ``coherence`` also preloads the
    library that does the write-back of redirected writes before POSIX calls look at the file.

    Raises:
        ConfigError: nothing names an absolute path for PDLA_HOME.
        PdlaError: there is no library.
    """
    path = library()
    if path is None:
        raise PdlaError("libpdla.so is missing: pdla was installed without a C compiler; install gcc, then pdla again")
    more = [name for name, wanted in (("libpdla-posix.so", posix), ("libpdla-coherence.so", coherence)) if wanted]
    ours = [str(path), *(str(path.with_name(name)) for name in more)]
    others = [name for name in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if name not in ours]
    return {**os.environ, "PDLA_HOME": str(home_path()), **variables, "LD_PRELOAD": ":".join([*ours, *others])}


def for_other_nodes(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What lets Open MPI's mpirun pass pdla's variables on to other nodes, as Hydra, srun and aprun do unasked.

    RATIONALE: with pdla in the ranks of one node only, redirected ranks wait for the others for ever. Open MPI 4 ends a
    job that has both this list and an option -x; whoever uses -x has to name pdla's variables, too.
    """
    launched = {Path(word).name.removesuffix(".openmpi") for word in command} & {"mpirun", "mpiexec", "orterun"}
    if not launched or "-x" in command or OPENMPI_LIST in environment:
        return {}
    names = [name for name in environment if name == "LD_PRELOAD" or name.startswith("PDLA_")]
    # mpirun looks a name up, but drops a value with "=". A catalog may have a password, and no rank needs it.
    items = [
        f"{name}={environment[name]}" if "=" in environment[name] else name for name in names if name != "PDLA_CATALOG"
    ]
    return {} if any(";" in item for item in items) else {OPENMPI_LIST: ";".join(items)}


def launch(command: Sequence[str], environment: Mapping[str, str], stdout: IO[bytes] | None = None) -> int:
    """Run a program to its end, forward SIGTERM and SIGHUP to it, and return its exit code (128 + n for signal n).

    Raises:
        PdlaError: the program cannot be started.
    """
    environment = {**environment, **for_other_nodes(command, environment)}
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def hand_on(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT:
            # A terminal sends Ctrl-C to the program, too. pdla only waits for the program and keeps
            # what was recorded.
            process.send_signal(number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, hand_on)
        process = subprocess.Popen(command, env=environment, stdout=stdout)
        for sent in early:
            process.send_signal(sent)
        code = process.wait()
    except FileNotFoundError:
        raise PdlaError(f"cannot run {command[0]}: no such program") from None
    except OSError as error:
        raise PdlaError(f"cannot run {command[0]}: {error.strerror}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (None: it was stopped when its time was up) and what it printed."""

    code: int | None
    stdout: str
    stderr: str


def run_bounded(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Ended:
    """Run a program for at most ``seconds``, then end it and all processes that it started."""
    # Output goes to files: a process that is left over would keep a pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        try:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            return Ended(126, "", error.strerror or "")
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            _end_group(process)
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read(), err.read())


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Launchers end their ranks at SIGTERM. Processes that do not end are killed."""
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Mpi:
    """An MPI installation: its launcher, its compiler (if any), and its name and version."""

    mpiexec: Path
    mpicc: Path | None
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the launcher needs to start more ranks than there are cores, also as root."""
        if not self.version.startswith("Open MPI"):
            return {}
        return {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }


def find_mpis() -> list[Mpi]:
    """The MPI installations in this Python's own bin directory and on PATH, in this order."""
    folders = [str(Path(sys.executable).parent), *os.environ.get("PATH", "").split(os.pathsep)]
    found: dict[Path, Mpi] = {}
    for folder in folders:
        for suffix in ("", ".mpich", ".openmpi"):
            mpiexec = shutil.which(f"mpiexec{suffix}", path=folder)
            if mpiexec is None or Path(mpiexec).resolve() in found:
                continue
            mpicc = shutil.which(f"mpicc{suffix}", path=folder)
            found[Path(mpiexec).resolve()] = Mpi(Path(mpiexec), Path(mpicc) if mpicc else None, _version(mpiexec))
    return list(found.values())


def _version(mpiexec: str) -> str:
    lines = run_bounded([mpiexec, "--version"], os.environ, 5).stdout.splitlines()
    for line in map(str.strip, lines):
        if line.startswith("Version:"):
            return f"MPICH {line.split()[-1]}"
        if "(Open MPI)" in line or "(OpenRTE)" in line:
            return f"Open MPI {line.split()[-1]}"
    return next(filter(None, map(str.strip, lines)), "unknown")
