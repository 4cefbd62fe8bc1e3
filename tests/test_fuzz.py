"""The parsers of maps and journals under libFuzzer: python tests/test_fuzz.py map|journal SECONDS [OPTION ...]."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from corpus import write_corpora
from mpi import REPOSITORY, unavailable

STUB = REPOSITORY / "replicator/stub"
SOURCES = {"map": ("mapfile", "locate", "crc32c"), "journal": ("leftover", "journal", "crc32c")}


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


def main(name: str, seconds: str, *options: str) -> int:
    directory = Path(f"fuzz-{name}")
    write_corpora(directory)
    done = fuzz(name, directory, f"-max_total_time={seconds}", *options)
    print(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
