"""The core that decides (pdla/caching) on real bytes, in C, with the sanitizers, and where memory ends."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.compilers import GCC, compiled
from tests.support.fewer_cases import THOROUGH
from tests.support.mpi import REPOSITORY

POLICIES = ["s4d", "ibridge", "liu", "e10", "whims", "parts"]
LIMITS = [1000, 5000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 80_000]


def program_of(name: str, directory: Path, *options: str) -> Path:
    """A program of tests/programs and the core, with the address and undefined behaviour sanitizers."""
    room = REPOSITORY / "pdla/caching"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [REPOSITORY / f"tests/programs/{name}.c", *sorted(room.glob("*.c"))]
    compiled([*GCC, *flags, *options, f"-I{room}", "-o", directory / name, *sources])
    return directory / name


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_of("decisions", tmp_path_factory.mktemp("decisions"))


@pytest.fixture(scope="module")
def many_copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_of("decisions", tmp_path_factory.mktemp("many_copies"), "-DSCALE=20")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_of("trees", tmp_path_factory.mktemp("trees"))


def run(program: Path, *words: object) -> str:
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_reads_get_what_was_written_last_whatever_is_wished(decisions: Path, policy: str, seed: int) -> None:
    found = re.fullmatch(r"(\d+) moves, (\d+) refusals\n", run(decisions, policy, seed, 2000))
    assert found and int(found[1]) > 100


@pytest.mark.parametrize("policy", POLICIES)
def test_reads_get_what_was_written_last_also_with_many_copies(many_copies: Path, policy: str) -> None:
    run(many_copies, policy, 1, 3000 if THOROUGH else 500)


@pytest.mark.parametrize(("policy", "seed"), [("e10", 23), ("e10", 44), ("whims", 22), ("whims", 37)])
def test_a_write_back_does_not_begin_before_its_request_is_served(decisions: Path, policy: str, seed: int) -> None:
    """In these runs its turn comes while the request waits."""
    run(decisions, policy, seed, 2000)


def test_a_write_waits_for_an_older_write_back_of_its_bytes(decisions: Path) -> None:
    """In this run the bytes are written in their copy first, and then elsewhere, while the write-back is under way."""
    run(decisions, "whims", 35, 2000)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_core_without_memory_says_so_and_decides_nothing_more(decisions: Path, policy: str) -> None:
    """Wherever it ends: in the middle of a decision, of a wish, or before the first one."""
    ends = [run(decisions, policy, 7, 2000, limit) for limit in LIMITS]
    assert ends[0] == "no memory\n" and ends.count("no memory\n") >= 2


@pytest.mark.parametrize("kind", ["narrow", "wide"])
@pytest.mark.parametrize("seed", range(2))
def test_a_tree_has_what_was_put_into_it_in_order(trees: Path, seed: int, kind: str) -> None:
    run(trees, seed, kind)


def test_the_lowest_free_addresses_are_taken_first_and_no_address_twice(trees: Path) -> None:
    run(trees, 0, "addresses")


def test_an_item_without_a_number_is_refused_as_memory_that_is_used_up(trees: Path) -> None:
    run(trees, 0, "numbers")
