"""The redirection stub: look-up, striping and map checks against brute force, then MPI programs native and redirected."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from stubmaps import Replica, write_map

ROOT = Path(__file__).parents[1]
STUB = ROOT / "replicator" / "stub"


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/programs/stub_unit.c with the address and undefined behaviour sanitizers."""
    program = tmp_path_factory.mktemp("unit") / "stub_unit"
    sources = [
        ROOT / "tests/programs/stub_unit.c",
        *(STUB / f"{name}.c" for name in ("mapfile", "crc32c", "locate", "state")),
    ]
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, "-o", program, *sources, "-lpthread"], check=True)
    return program


def run_unit(unit: Path, *words: str | Path, lines: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [str(unit), *map(str, words)]
    return subprocess.run(command, input=lines, env=environment, capture_output=True, text=True, check=False)


def ask(unit: Path, command: str, map_file: Path, questions: list[str]) -> list[str]:
    answer = run_unit(unit, command, map_file, lines="\n".join(questions))
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def random_nest(choose: random.Random) -> Replica:
    """Loops whose strides leave random holes, in any order and direction in the replica."""
    length = choose.randint(1, 5)
    span, loops = length, []
    for _ in range(choose.randint(0, 4)):
        count = choose.randint(1, 4)
        stride = span + choose.choice([0, 0, 1, 7])
        loops.append((count, stride))
        span += (count - 1) * stride
    loops.reverse()
    order = list(range(len(loops)))
    choose.shuffle(order)
    dense, replica_start = length, 0
    replica_strides = [0] * len(loops)
    for k in order:
        sign = choose.choice([1, -1])
        replica_strides[k] = sign * dense
        replica_start += dense * (loops[k][0] - 1) if sign < 0 else 0
        dense *= loops[k][0]
    return Replica(
        size=dense,
        start=choose.randint(0, 9),
        length=length,
        replica_start=replica_start,
        loops=[(count, stride, replica_strides[k]) for k, (count, stride) in enumerate(loops)],
    )


def random_extents(choose: random.Random) -> Replica:
    lengths = [choose.randint(1, 6) for _ in range(choose.randint(1, 20))]
    order = list(range(len(lengths)))
    choose.shuffle(order)
    replica_starts, at = {}, 0
    for i in order:
        replica_starts[i] = at
        at += lengths[i]
    extents, position = [], 0
    for i, length in enumerate(lengths):
        position += choose.choice([0, 0, 1, 5])
        extents.append((position, length, replica_starts[i]))
        position += length
    return Replica(size=at, extents=extents)


def random_striping(choose: random.Random, replica: Replica) -> Replica:
    replica.groups = choose.randint(1, 3)
    strips = [choose.randint(0, 4) for _ in range(choose.randint(1, 3))]
    replica.strips = strips if sum(strips) else [1]
    replica.section = choose.choice([1, 3, 8, 10, 1 << 40])
    return replica


def random_map(directory: Path, seed: int, replicas: int = 40) -> tuple[Path, list[Replica]]:
    choose = random.Random(seed)
    made = [random_striping(choose, choose.choice([random_nest, random_extents])(choose)) for _ in range(replicas)]
    original = directory / "original"
    original.write_bytes(bytes(20000))
    for i, replica in enumerate(made):
        replica.components = [directory / f"{i}-{j}" for j in range(replica.servers)]
        for component in replica.components:
            component.touch()
    write_map(directory / "map", [(original, made)])
    return directory / "map", made


def expected_piece(replica: Replica, start: int, stop: int) -> str:
    for offset, length, replica_offset in sorted(replica.pieces()):
        low, high = max(offset, start), min(offset + length, stop)
        if low < high:
            return f"{low} {high - low} {replica_offset + low - offset}"
    return "-"


@pytest.mark.parametrize("seed", range(3))
def test_locate_finds_the_next_piece_as_an_exhaustive_search_does(unit: Path, tmp_path: Path, seed: int) -> None:
    map_file, replicas = random_map(tmp_path, seed)
    choose = random.Random(seed)
    questions, answers = [], []
    for number, replica in enumerate(replicas):
        end = max(offset + length for offset, length, _ in replica.pieces())
        for start in range(0, end + 3, 1 + end // 60):
            stop = start + choose.choice([1, 2, 10, 1000])
            questions.append(f"{number} {start} {stop}")
            answers.append(expected_piece(replica, start, stop))
    assert ask(unit, "locate", map_file, questions) == answers


def test_strips_follow_the_rule_of_the_map_file(unit: Path, tmp_path: Path) -> None:
    map_file, replicas = random_map(tmp_path, 7)
    questions = [f"{n} {x}" for n, replica in enumerate(replicas) for x in range(replica.size)]
    answers = iter(ask(unit, "strip", map_file, questions))
    for replica in replicas:
        for x in range(replica.size):
            component, offset, length = map(int, next(answers).split())
            assert [replica.place(x + i) for i in range(length)] == [(component, offset + i) for i in range(length)]
            assert x + length <= replica.size


def test_a_strip_of_1dv_is_a_whole_section(unit: Path, tmp_path: Path) -> None:
    replica = Replica(size=40, start=0, length=40, groups=2, strips=[10], section=10)
    replica.build(bytes(40), tmp_path / "replica")
    (tmp_path / "original").write_bytes(bytes(40))
    write_map(tmp_path / "map", [(tmp_path / "original", [replica])])
    assert ask(unit, "strip", tmp_path / "map", ["0 0", "0 13", "0 20"]) == ["0 0 10", "1 3 7", "0 10 10"]


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_map_is_refused_or_harmless(unit: Path, tmp_path: Path, seed: int) -> None:
    map_file, _ = random_map(tmp_path, seed, replicas=4)
    done = run_unit(unit, "fuzz", map_file, str(seed + 1), "4000")
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 3900


def test_concurrent_writers_beside_a_replica_leave_it_valid(unit: Path, tmp_path: Path) -> None:
    """Each writer publishes the identity that it leaves; none of them takes another's write for a foreign change."""
    original = tmp_path / "original"
    original.write_bytes(bytes(100))
    replica = Replica(size=50, start=50, length=50).build(bytes(100), tmp_path / "replica")
    write_map(tmp_path / "map", [(original, [replica])])
    done = run_unit(unit, "writers", tmp_path / "map", original, "4")
    assert (done.returncode, done.stdout) == (0, "fresh writers=0 epoch=1200 stale=0\n"), done.stderr
