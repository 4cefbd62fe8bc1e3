"""The tutorial and the how-to guides do what they say: every command is run again, and its output compared."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tests.support import documentation_pages as pages
from tests.support.documentation_pages import BIN, followed
from tests.support.mpi import Mpi, debian_mpis, unavailable
from tests.support.strided_writer import STRIDED, expected
from tests.support.striping_mount import striping_mount

HOWTO = pages.DOCS / "howto"


@pytest.fixture
def directory() -> Iterator[Path]:
    """An empty directory with a short path (TMPDIR may be long), as in the pages: tables wrap in the same places."""
    with tempfile.TemporaryDirectory(prefix="pdla-", dir="/tmp") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        yield work


def test_the_tutorial(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "python")}
    sources = {"~/pdla/": f"{pages.REPOSITORY}/"}
    assert followed(pages.DOCS / "tutorial.md", directory, programs, replaced=sources) == 20


def test_a_cache(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "python")}
    here = {"node1": socket.gethostname()}
    assert followed(pages.DOCS / "caching.md", directory, programs, replaced=here) == 11


def test_a_cache_on_ssd_servers(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "mpicc")}
    assert followed(pages.DOCS / "ssd-cache.md", directory, programs, replaced={"~/pdla": str(pages.REPOSITORY)}) == 8


def test_network_storage(directory: Path) -> None:
    matrix = directory.parent / "matrix.dat"
    np.zeros(16 << 20, dtype=np.uint8).tofile(matrix)
    programs = {name: BIN / name for name in ("pdla", "mpiexec")}
    programs["app"] = f"{BIN / 'python'} {pages.REPOSITORY}/examples/slabs.py {matrix} 16 512 256"
    assert followed(HOWTO / "network-storage.md", directory, programs) == 7


@pytest.mark.thorough
@pytest.mark.parametrize(("page", "targets"), [("lustre.md", [4, 5]), ("beegfs.md", [0, 1, 2, 3])])
def test_replicas_on_a_parallel_file_system(directory: Path, page: str, targets: list[int]) -> None:
    """On the file system of the tests that stripes as this one does; the bytes are on ``targets`` then."""
    kind = page.removesuffix(".md")
    with striping_mount(kind, directory.parent / kind) as mounted:
        matrix = mounted.mount / "me/matrix.dat"
        matrix.parent.mkdir()
        np.random.default_rng(1).integers(256, size=2 << 20, dtype=np.uint8).tofile(matrix)
        programs = {name: BIN / name for name in ("pdla", "mpiexec")}
        programs["app"] = f"{BIN / 'python'} {pages.REPOSITORY}/examples/slabs.py {matrix} 4 512 256"
        here = {f"/mnt/{kind}": str(mounted.mount)}
        assert followed(pages.DOCS / page, directory, programs, replaced=here) == 9
        replica = sorted(mounted.mount.glob("me/*/pdla-replicas-*/*/1.*"))
        stored = [one for component in replica for one in mounted.objects(component)]
        assert [target for target, _ in stored] == targets
        assert Counter(b"".join(data for _, data in stored)) == Counter(matrix.read_bytes())


@pytest.mark.thorough
def test_the_autopilot(directory: Path) -> None:
    np.random.default_rng(1).integers(256, size=16 << 20, dtype=np.uint8).tofile(directory / "matrix.dat")
    shutil.copy(pages.REPOSITORY / "examples/slabs.py", directory)
    (directory / "app.py").write_text(STRIDED)
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "python")}
    programs["app"] = f"{BIN / 'python'} app.py out.dat 1 0 0"
    assert followed(pages.DOCS / "autopilot.md", directory, programs, replaced={"./app": "app"}) == 18
    assert (directory / "out.dat").read_bytes() == expected(seed=1)


def test_the_daemon(directory: Path) -> None:
    matrix = directory / "matrix.dat"
    np.zeros(16 << 20, dtype=np.uint8).tofile(matrix)
    programs = {name: BIN / name for name in ("pdla", "mpiexec")}
    programs["app"] = f"{BIN / 'python'} {pages.REPOSITORY}/examples/slabs.py {matrix} 16 512 512"
    idle = {"--once --metrics": "--once --idle-load 1 --idle-io 1T --metrics"}  # this machine may be busy
    assert followed(pages.DOCS / "daemon.md", directory, programs, replaced={"./app": "app", **idle}) == 11


def test_exports(directory: Path) -> None:
    matrix = directory / "matrix.dat"
    np.zeros(16 << 20, dtype=np.uint8).tofile(matrix)
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "python")}
    programs["app"] = f"{BIN / 'python'} {pages.REPOSITORY}/examples/slabs.py {matrix} 16 512 512"
    assert followed(pages.DOCS / "exports.md", directory, programs, replaced={"./app": "app"}) == 10


def test_imports(directory: Path) -> None:
    """With the samples of the tools, and an archive of OTF2's own writer."""
    from tests.support.otf2_archives import RANKS, written  # where there is an otf2

    written(directory.parent / "scorep", *RANKS)
    here = {"~/pdla/": f"{pages.REPOSITORY}/", "/scratch/me/scorep": str(directory.parent / "scorep")}
    assert followed(pages.DOCS / "imports.md", directory, {"pdla": BIN / "pdla"}, replaced=here) == 6


def test_the_installation_is_checked(directory: Path) -> None:
    matrix = directory / "matrix.dat"
    np.zeros(1 << 20, dtype=np.uint8).tofile(matrix)
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "mpicc")}
    programs["app"] = f"{BIN / 'python'} {pages.REPOSITORY}/examples/slabs.py {matrix} 4 256 256"
    here = {"pdla 0.2.0": f"pdla {version('pdla')}", "./app": "app"}
    assert followed(pages.DOCS / "install.md", directory, programs, replaced=here) == 4


@pytest.mark.thorough
def test_troubleshooting(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "python")}
    assert followed(HOWTO / "troubleshooting.md", directory, programs) == 31


def test_launchers(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "mpiexec", "python")}
    assert followed(HOWTO / "launchers.md", directory, programs) == 6


def test_a_darshan_log(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "python")}
    assert followed(HOWTO / "darshan.md", directory, programs) == 5


def test_a_policy_and_a_device(directory: Path) -> None:
    programs = {name: BIN / name for name in ("pdla", "python")}
    assert followed(HOWTO / "policy.md", directory, programs) == 4


def test_a_policy_for_plans(directory: Path) -> None:
    """In a copy of the package. The page is followed there without the finder of the installed one."""
    shutil.copytree(pages.REPOSITORY / "pdla", directory / "pdla", ignore=shutil.ignore_patterns("__pycache__"))
    variables = {"PYTHONPATH": f"{directory}:{sysconfig.get_path('purelib')}"}
    own = f"{BIN / 'python'} -S -c 'from pdla.cli import main; main()'"
    assert followed(HOWTO / "placement.md", directory, {"pdla": own, "python": BIN / "python"}, variables) == 5


def test_a_catalog_on_postgresql(directory: Path, postgresql_server: str) -> None:
    from sqlalchemy import create_engine, text

    name = f"pdla_{secrets.token_hex(4)}"
    server = postgresql_server.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(server.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    here = {"postgresql://pdla@db.cluster/pdla": f"'{postgresql_server.format(database=name)}'"}
    assert followed(HOWTO / "postgresql.md", directory, {"pdla": BIN / "pdla"}, replaced=here) == 5


@pytest.mark.parametrize("debian_mpi", [debian_mpis()[0]], indirect=True)
def test_a_fortran_program(directory: Path, debian_mpi: Mpi) -> None:
    programs = {"pdla": BIN / "pdla", "mpiexec": debian_mpi.mpiexec[0], "mpif90": debian_mpi.tool("mpif90")}
    assert followed(HOWTO / "fortran.md", directory, programs, debian_mpi.env) == 4


@pytest.mark.parametrize("debian_mpi", [debian_mpis()[1]], indirect=True)
def test_an_h5py_program(directory: Path, debian_mpi: Mpi) -> None:
    """Debian's h5py is built with Open MPI, and uses it only if a launcher or this variable says so."""
    environment = {**debian_mpi.env, "H5PY_ALWAYS_USE_MPI": "1"}
    ask = [debian_mpi.python, "-c", "import h5py, mpi4py; assert h5py.get_config().mpi"]
    if subprocess.run(ask, env={**os.environ, **environment}, capture_output=True, check=False).returncode != 0:
        unavailable(f"{debian_mpi.python} has no h5py with MPI (python3-h5py-mpi)")
    programs = {"pdla": BIN / "pdla", "mpiexec": debian_mpi.mpiexec[0], "python3": debian_mpi.python}
    assert followed(HOWTO / "h5py.md", directory, programs, environment) == 3
