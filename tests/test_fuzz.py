"""The parsers of maps and journals under libFuzzer, and the verbs on whatever else they read, damaged.

python tests/test_fuzz.py map|journal SECONDS [OPTION ...], or NAME SECONDS [SEED] with a name of fuzz/verbs.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from corpus import write_corpora
from mpi import REPOSITORY, Mpi, available_mpis, unavailable
from test_sync import favourable
from verbs import TARGETS, fuzz_verbs

from pdla.cli.launch import library

STUB = REPOSITORY / "replicator/stub"
SOURCES = {"map": ("mapfile", "locate", "crc32c"), "journal": ("leftover", "intent", "journal", "locks", "crc32c")}


def build(name: str, program: Path) -> Path:
    """Compile a harness with the address and undefined behaviour sanitizers; returns its path."""
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    flags += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    includes = [f"-I{STUB}", f"-I{REPOSITORY / 'collectors/shim'}"]
    sources = [REPOSITORY / f"tests/fuzz/{name}.c", *(STUB / f"{source}.c" for source in SOURCES[name])]
    subprocess.run(["clang", *flags, *includes, "-o", program, *sources, "-lpthread"], check=True)
    return program


def fuzz(name: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a harness from the corpus in ``directory``; what it finds is left there, too."""
    program = build(name, directory / f"fuzz-{name}")
    command = [program, "-max_len=5000", f"-artifact_prefix={directory}/{name}-", *options, directory / name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("clang") is None:
        unavailable("libFuzzer needs clang, which is not installed")
    directory = tmp_path_factory.mktemp("fuzz")
    write_corpora(directory)
    return directory


@pytest.mark.parametrize(("name", "runs", "reached"), [("map", 2000, 150), ("journal", 700, 60)])
def test_no_input_leads_a_parser_astray(corpora: Path, name: str, runs: int, reached: int) -> None:
    """``reached``: edges of the control flow, most of which lie behind the checksums."""
    done = fuzz(name, corpora, "-seed=1", f"-runs={runs}")
    assert done.returncode == 0, done.stderr
    (last,) = [line for line in done.stderr.splitlines() if "DONE" in line]
    assert int(last.split("cov: ")[1].split()[0]) > reached


def make_place(directory: Path) -> tuple[Path, Path]:
    """A traced, planned and replicated program whose writes wait under a lease, and a copy of all that."""
    place, (mpi,) = directory / "place", available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    (place / "pools").mkdir(parents=True)
    cluster = favourable(place / "pools")
    writer = mpi.compile(REPOSITORY / "tests/programs/writes.c", directory / "writes")
    job = mpi.command(1, writer, place / "data", place / "out", "open", "strided", "close")
    pdla = [str(Path(sys.executable).with_name("pdla"))]
    environment = {"PDLA_HOME": str(place / "home")}
    logs = {"LD_PRELOAD": str(library()), "PDLA_TRACE": str(place / "logs")}
    (place / "logs").mkdir()
    mpi.run(mpi.command(1, "env", *(f"{name}={value}" for name, value in logs.items()), *job[len(mpi.command(1)) :]))
    for words in (
        ["pack", "logs", "-o", "run.h5"],
        ["plan", "run.h5", "--writes", "lease", "--cluster", str(cluster), "-o", "plan.json"],
        ["replicate", "plan.json"],
        ["run", "--writes", "lease", "--", *job],
    ):
        mpi.run([*pdla, *words], place, environment)
    shutil.copytree(place, directory / "kept")
    return directory / "kept", place


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_place(tmp_path_factory.mktemp("verbs"))


@pytest.mark.timeout(400)  # a busy machine is slow
@pytest.mark.parametrize("name", TARGETS)
def test_verbs_say_what_is_wrong_with_damaged_files(places: tuple[Path, Path], name: str) -> None:
    fuzzer = fuzz_verbs(name, *places, 1, cases=2)
    assert fuzzer.faults == []
    assert sum(fuzzer.answers.values()) == 2 * len(TARGETS[name].commands)


def main(name: str, seconds: str, *options: str) -> int:
    if name in TARGETS:
        with tempfile.TemporaryDirectory() as scratch:
            found = fuzz_verbs(name, *make_place(Path(scratch)), *map(int, options or ["0"]), seconds=float(seconds))
        return min(len(found.faults), 1)
    directory = Path(f"fuzz-{name}")
    write_corpora(directory)
    done = fuzz(name, directory, f"-max_total_time={seconds}", *options)
    print(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
