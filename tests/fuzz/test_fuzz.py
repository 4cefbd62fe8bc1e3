"""The parsers of maps, journals and logs under libFuzzer, and the verbs with damaged input of every other kind.

python -m tests.fuzz.test_fuzz map|journal|log SECONDS [OPTION ...], or NAME SECONDS [SEED] with a name of fuzz/verbs.py
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pdla.accessmap import AccessMap
from pdla.catalog import open_catalog
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator import builder
from pdla.replicator.mapfile import publish
from tests.fuzz.corpus import write_corpora
from tests.fuzz.verbs import TARGETS, Program, Setting, fuzz_verbs
from tests.support.clusters import favourable
from tests.support.compilers import compiled
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_coherence_library, build_library, unavailable

STUB = REPOSITORY / "replicator/stub"
DECODER = REPOSITORY / "collectors/decoder"
SOURCES = {
    "map": [STUB / f"{name}.c" for name in ("mapfile", "locate", "crc32c")],
    "journal": [
        STUB / f"{name}.c"
        for name in (
            "stale_journals",
            "older_journals",
            "file_identity",
            "intent",
            "journal",
            "locks",
            "node_directory",
            "own_files",
            "reservations",
            "crc32c",
        )
    ],
    "log": [DECODER / "decode.c"],
}
INCLUDES = [STUB, REPOSITORY / "pdla/interpose", REPOSITORY / "collectors/shim", DECODER]


def build(name: str, program: Path) -> Path:
    """Compile a harness with the address and undefined behaviour sanitizers; return its path."""
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    flags += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    includes = [f"-I{include}" for include in INCLUDES]
    sources = [REPOSITORY / f"tests/fuzz/{name}.c", *SOURCES[name]]
    compiled(["clang", *flags, *includes, "-o", program, *sources, "-lpthread"])
    return program


def fuzz(name: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a harness from the corpus in ``directory``; what it finds is left there, too."""
    program = build(name, directory / f"fuzz-{name}")
    # The memory that libFuzzer measures includes that of the process which started it, at its highest.
    memory = ["-rss_limit_mb=0", "-malloc_limit_mb=2048"]
    command = [program, "-max_len=5000", *memory, f"-artifact_prefix={directory}/{name}-", *options, directory / name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("clang") is None:
        unavailable("libFuzzer needs clang, which is not installed")
    directory = tmp_path_factory.mktemp("fuzz")
    write_corpora(directory)
    return directory


@pytest.mark.parametrize(("name", "runs", "reached"), [("map", 2000, 150), ("journal", 700, 60), ("log", 20000, 60)])
def test_no_input_leads_a_parser_astray(corpora: Path, name: str, runs: int, reached: int) -> None:
    """``reached``: edges of the control flow, most of which lie behind the checksums."""
    done = fuzz(name, corpora, "-seed=1", f"-runs={runs}")
    assert done.returncode == 0, done.stderr
    (last,) = [line for line in done.stderr.splitlines() if "DONE" in line]
    assert int(last.split("cov: ")[1].split()[0]) > reached


def make_setting(directory: Path, library: Path | None = None) -> Setting:
    """A traced, planned and replicated program whose writes wait under a lease, a file that has a replica for reading,
    and a copy of all that."""
    place, (mpi,) = directory / "place", available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    (place / "pools").mkdir(parents=True)
    (place / "logs").mkdir()
    cluster = favourable(place / "pools")
    writer = mpi.compile(REPOSITORY / "tests/programs/writes.c", directory / "writes")
    compiled = library or build_library(directory / "libpdla.so")
    libraries = compiled, build_coherence_library(directory / "libpdla-coherence.so")

    def job(file: Path, *words: str) -> list[str]:
        return ["env", *words, str(writer), str(file), str(directory / "said"), "open", "strided"]

    pdla = [str(Path(sys.executable).with_name("pdla"))]
    environment = {"PDLA_HOME": str(place / "home")}
    tracing = job(place / "data", f"LD_PRELOAD={libraries[0]}", f"PDLA_TRACE={place / 'logs'}")
    mpi.run(mpi.command(1, *tracing, "close"))
    mpi.run(mpi.command(1, *job(directory / "newest"), "backwards", "close"))
    for words in (
        ["pack", "logs", "-o", "run.h5"],
        ["plan", "run.h5", "--writes", "lease", "--cluster", str(cluster), "-o", "plan.json"],
        ["replicate", "plan.json"],
    ):
        mpi.run([*pdla, *words], place, environment)
    make_input(place)
    leased = mpi.command(1, *job(place / "data"), "backwards", "close")
    mpi.run([*pdla, "run", "--writes", "lease", "--", *leased], place, environment)
    shutil.copytree(place, directory / "kept")
    shutil.copytree(place / "pools", directory / "links/pools", copy_function=os.link)
    program = mpi.compile(REPOSITORY / "tests/programs/leased.c", directory / "leased")
    newest = (directory / "newest").read_bytes()
    return Setting(directory / "kept", place, directory / "links", newest, Program(mpi, program, libraries))


def make_input(place: Path) -> None:
    """A file with a replica of every third piece, on the pools' disks."""
    file = place / "input"
    file.write_bytes(random.Random(1).randbytes(6200))
    signature = Signature(str(file), "read", False, 200, 96, (Loop(288, 20),), (0,), 0)
    where = tuple(str(place / "pools" / name) for name in ("fast0", "fast1"))
    pool = Pool("disks", "hdd", 2, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", where)
    catalog = open_catalog(f"sqlite:///{place}/home/catalog.db")
    builder.build(signature, Layout("disks", 2, 1, (512, 512), AccessMap.section(signature)), pool, catalog)
    publish(catalog, place / "home/replicas.map")
    catalog.close()


@pytest.fixture(scope="module")
def setting(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return make_setting(tmp_path_factory.mktemp("verbs"), library)


@pytest.mark.timeout(400)  # a busy machine is slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.thorough(3)
def test_damaged_files_are_reported_and_mislead_nobody(setting: Setting, name: str) -> None:
    fuzzer = fuzz_verbs(name, setting, 1, cases=2)
    assert fuzzer.faults == []
    assert sum(fuzzer.answers.values()) >= 2 * len(TARGETS[name].commands)


def main(name: str, seconds: str, *options: str) -> int:
    if name in TARGETS:
        with tempfile.TemporaryDirectory() as scratch:
            found = fuzz_verbs(name, make_setting(Path(scratch)), *map(int, options or ["0"]), seconds=float(seconds))
        return min(len(found.faults), 1)
    directory = Path(f"fuzz-{name}")
    write_corpora(directory)
    done = fuzz(name, directory, f"-max_total_time={seconds}", *options)
    print(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
