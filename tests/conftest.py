"""Fixtures of all tests: the command line with its own PDLA_HOME, every MPI that is installed, private servers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.browser import browser
from tests.support.ceph_cluster import ceph
from tests.support.command_line import Launching
from tests.support.counted_disk import disk
from tests.support.fewer_cases import THOROUGH, left_out
from tests.support.mpi import (
    Mpi,
    available_mpis,
    compile_library,
    debian_mpis,
    link_library,
    other_mpis,
    remove_segments,
    unavailable,
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

# Fixtures.
__all__ = ["browser", "ceph", "disk", "nodes", "orangefs_servers", "own_postgresql", "postgresql_server", "slurm"]

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a quick run leaves out, and put the slowest modules first."""
    if not THOROUGH:
        left = left_out(items, 1 if os.environ.get("PDLA_REQUIRE_ALL") else 0)
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


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


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """Words before a command that make it process 2 of a PID namespace, whose process 1 waits for it."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh"]
    try:
        done = subprocess.run([*words, "sh", "-c", "echo $$"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        unavailable("there is no unshare")
    if done.stdout != "2\n":
        unavailable(f"there are no PID namespaces: {done.stderr.strip()}")
    return words


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
