"""Shared by the tests: the command line with its own PDLA_HOME, and every MPI that is installed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pdla.cli import main
from pdla.cli.signals import STOPPING
from pdla.replicator import throttling
from tests.support.ceph_cluster import ceph
from tests.support.counted_disk import disk
from tests.support.mpi import (
    Mpi,
    available_mpis,
    compile_library,
    debian_mpis,
    link_library,
    other_mpis,
    remove_segments,
)
from tests.support.namespace_nodes import nodes
from tests.support.orangefs_servers import orangefs_servers
from tests.support.postgresql_server import own_postgresql, postgresql_server
from tests.support.recorded_programs import Recorder
from tests.support.slurm_cluster import slurm

# The machine may be busy: a slow example is no failure. More of them: pytest --hypothesis-profile thorough.
settings.register_profile("pdla", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("pdla")

# Tests count what replicas serve. The originals are in memory, and where these are quicker is a matter of chance.
os.environ.setdefault("PDLA_STEP_ASIDE", "0")

__all__ = ["ceph", "disk", "nodes", "orangefs_servers", "own_postgresql", "postgresql_server", "slurm"]  # fixtures

SLOWEST = (
    *("test_failing_calls", "test_critical_reads", "test_autopilot", "test_mpiio", "test_leases", "test_stub"),
    "test_mpiio_files",
    *("test_daemon", "test_cephfs", "test_caches", "test_writes", "test_critical_requests", "test_cache_verbs"),
    "test_loop",
    *(
        "test_tutorial",
        "test_leases_in_place",
        "test_catalog",
        "test_neighbours",
        "test_nodes",
        "test_node_cluster",
        "test_sync",
    ),
    *("test_notebooks", "test_building", "test_posix", "test_streaming", "test_hazards", "test_fuzz"),
    *("test_bindings", "test_bench", "test_programs", "test_report", "test_sanitizers", "test_builder", "test_demo"),
)
"""These modules begin first, the slowest first, so that at the end no process waits for another that has a long one."""

REPOSITORY = Path(__file__).parent.parent
PDLA = str(Path(sys.executable).parent / "pdla")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a quick run leaves out, and put the slowest modules first."""
    if os.environ.get("PDLA_TEST_QUICK") == "1":
        left = _left_out(items)
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def _left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The cases of thorough tests behind those that are kept."""
    seen: dict[str, int] = {}
    left = set()
    for item in items:
        if mark := item.get_closest_marker("thorough"):
            name = item.nodeid.partition("[")[0]
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > (mark.args[0] if mark.args else 0):
                left.add(item)
    return left


class Pdla:
    """The command line with its own PDLA_HOME and working directory."""

    timeout = 110.0  # seconds, of a test's 120
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


@pytest.fixture
def pdla(tmp_path: Path) -> Launching:
    return Launching(tmp_path, {})


@pytest.fixture
def done_to_files(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls from now on that make files durable or name them, in order: (call, name of the file)."""
    done = []

    def record(call: str, name: Callable[..., str]) -> None:
        real = getattr(os, call)

        def recorded(*arguments: Any, **named: Any) -> Any:
            done.append((call, Path(name(*arguments)).name))
            return real(*arguments, **named)

        monkeypatch.setattr(os, call, recorded)

    record("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
    record("rename", lambda old, new: new)
    record("unlink", lambda path: path)
    return done


@pytest.fixture(scope="session", params=available_mpis())
def mpi(request: pytest.FixtureRequest) -> Iterator[Mpi]:
    """MPICH 5 and Open MPI 5 in turn."""
    yield request.param


@pytest.fixture(scope="session", params=debian_mpis())
def debian_mpi(request: pytest.FixtureRequest) -> Iterator[Mpi]:
    """MPICH 4 and Open MPI 4 in turn, as Debian builds them."""
    yield request.param


@pytest.fixture(scope="session", params=[*available_mpis(), *debian_mpis()])
def any_mpi(request: pytest.FixtureRequest) -> Iterator[Mpi]:
    """All four MPIs in turn, for tests that depend on the version."""
    yield request.param


@pytest.fixture(scope="session", params=[*available_mpis(), *debian_mpis(), *other_mpis()])
def every_mpi(request: pytest.FixtureRequest) -> Iterator[Mpi]:
    """Also Intel MPI, and the standard ABI of MPICH and Intel MPI, for what depends on handles and statuses."""
    yield request.param


@pytest.fixture(scope="session", params=other_mpis())
def other_mpi(request: pytest.FixtureRequest) -> Iterator[Mpi]:
    """Those alone."""
    yield request.param


@pytest.fixture(scope="session", autouse=True)
def no_segments_left() -> Iterator[None]:
    """Nothing stays in memory of the ranks that tests kill."""
    began = time.time()
    yield
    remove_segments(began)


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of the preload library of the sources here."""
    return compile_library(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="session")
def library(objects: Sequence[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preload library of the sources here."""
    return link_library(tmp_path_factory.mktemp("library") / "libpdla.so", objects)


@pytest.fixture
def recorder(mpi: Mpi, library: Path, tmp_path: Path) -> Recorder:
    return Recorder(mpi, library, tmp_path)


@pytest.fixture
def debian_recorder(debian_mpi: Mpi, library: Path, tmp_path: Path) -> Recorder:
    return Recorder(debian_mpi, library, tmp_path)


@pytest.fixture
def any_recorder(any_mpi: Mpi, library: Path, tmp_path: Path) -> Recorder:
    return Recorder(any_mpi, library, tmp_path)


@pytest.fixture
def every_recorder(every_mpi: Mpi, library: Path, tmp_path: Path) -> Recorder:
    return Recorder(every_mpi, library, tmp_path)
