"""The guide to programs in containers, followed with bubblewrap and Podman, and the MPI of Debian in the containers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support import documentation_pages as pages
from tests.support.documentation_pages import followed
from tests.support.mpi import Mpi, debian_mpis, unavailable

BIN = Path(sys.executable).parent
PAGE = pages.DOCS / "howto/containers.md"
MPICH = pytest.mark.parametrize("debian_mpi", [debian_mpis()[0]], indirect=True)
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
PODMAN = ["podman", "--runtime", "runc", "run", "--network=host", *LIMITS]
"""Without a network of its own and higher limits, which a test machine may not allow."""


@pytest.fixture(scope="module")
def library() -> Path:
    """The directory of the libraries: all that a container needs of this checkout."""
    done = subprocess.run([BIN / "pdla", "preload"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).parent


@pytest.fixture
def folder() -> Iterator[Path]:
    """With the directories home and work."""
    with tempfile.TemporaryDirectory(prefix="pdla-", dir="/tmp") as made:
        for name in ("home", "work"):
            (Path(made) / name).mkdir()
        yield Path(made)


def starts(words: Sequence[str | Path]) -> None:
    """Skip the test if this command, which makes a container and does nothing in it, does not succeed."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        unavailable(f"{words[0]} is not installed")
    if done.returncode != 0:
        pytest.skip(f"{words[0]} makes no container here: {done.stderr.strip()}")


@MPICH
def test_a_container_of_bubblewrap(debian_mpi: Mpi, folder: Path, library: Path) -> None:
    starts(["bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"])
    programs = {"pdla": BIN / "pdla", "mpiexec": debian_mpi.mpiexec[0], "mpicc": debian_mpi.mpicc}
    here = " ".join(f"--bind {path} {path}" for path in (folder / "home", folder / "bin", library))
    mounts = {"--bind /srv/pdla /srv/pdla": here}
    assert followed(PAGE, folder / "work", programs, debian_mpi.env, mounts) == 14


@MPICH
def test_a_container_of_podman(debian_mpi: Mpi, folder: Path, library: Path) -> None:
    """The command of the page, with a root of this machine's programs instead of an image."""
    root, work = folder / "root", folder / "work"
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    image = ["-v", "/usr:/usr:ro", "-v", "/etc:/etc:ro"]
    starts([*PODMAN, *image, "--rm", "--rootfs", root, "true"])
    (page,) = (block.text for block in pages.blocks(PAGE) if "podman run --rm -e" in block.text)
    _, _, redirected = page.partition("pdla run -- apptainer")[2].partition("\n")
    mounts = " ".join(f"-v {path}:{path}" for path in (folder / "home", library))
    for there, now in {
        "podman run": " ".join([*PODMAN, *image]),
        "-v /srv/pdla:/srv/pdla": mounts,
        "/data:/data": f"{work}:{work}",
        "app mpiexec -n 4 ./app": f"--rootfs {root} {debian_mpi.mpiexec[0]} -n 2 ./tiles",
    }.items():
        assert redirected.count(there) == 1
        redirected = redirected.replace(there, now)
    (source,) = (block.text for block in pages.blocks(PAGE) if block.file == "tiles.c")
    (work / "tiles.c").write_text(source)
    debian_mpi.compile(work / "tiles.c", work / "tiles")
    (work / "data").write_bytes(os.urandom(2 << 20))
    traced = redirected.replace("pdla run --", "pdla trace -o run.h5 --")
    steps = [traced, "pdla analyze run.h5", "pdla plan run.h5 -o plan.json", "pdla replicate plan.json", redirected]
    environment = {**os.environ, "PDLA_HOME": str(folder / "home"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    said = []
    for step in steps:
        done = subprocess.run(
            ["bash", "-c", step], cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done)
    assert said[0].stdout == said[-1].stdout
    assert "2 ranks, 516 calls" in said[0].stderr
    assert "from replicas in" in said[-1].stderr
