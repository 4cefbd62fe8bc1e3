"""The redirector: its parts against brute force, then MPI programs, native and redirected."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from pdla.replicator.mapfile import FILE, REPLICA, STATE_FILE, STATE_HEADER
from tests.support.compilers import GCC, REPOSITORY, compiled
from tests.support.handmade_maps import PLACES, Replica, read_places, renew, write_map, write_places
from tests.support.mpi import Mpi, compile_preloaded, unavailable
from tests.support.redirected_reads import PIECE, ROWS, START, STEPS, Case, component_of, make_case, over_four, total
from tests.support.waiting import PATIENCE

STUB = REPOSITORY / "replicator" / "stub"
NO_MAP = "pdla: nothing is redirected, because the map"


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/programs/stub_unit.c with the address and undefined behaviour sanitizers."""
    program = tmp_path_factory.mktemp("unit") / "stub_unit"
    sources = [
        REPOSITORY / "tests/programs/stub_unit.c",
        *(STUB / f"{name}.c" for name in ("mapfile", "crc32c", "locate", "freshness", "originals")),
    ]
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    compiled([*GCC, *flags, "-o", program, *sources, "-lpthread"])
    return program


def test_checksums_are_those_of_crc32c_with_the_instruction_of_the_processor_and_without(tmp_path: Path) -> None:
    program = tmp_path / "checksums"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    compiled([*GCC, *flags, "-o", program, REPOSITORY / "tests/programs/checksums.c", "-lpthread"])
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout == "e3069283 e3069283\n"


def run_unit(unit: Path, *words: str | Path, lines: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [str(unit), *map(str, words)]
    return subprocess.run(command, input=lines, env=environment, capture_output=True, text=True, check=False)


def ask(unit: Path, command: str, map_file: Path, questions: list[str]) -> list[str]:
    answer = run_unit(unit, command, map_file, lines="\n".join(questions))
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def random_nest(choose: random.Random, fewest: int = 0) -> Replica:
    """Loops whose strides leave random holes, in any order and direction in the replica."""
    length = choose.randint(1, 5)
    span, loops = length, []
    for _ in range(choose.randint(fewest, 4)):
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


def scaled(replica: Replica, factor: int) -> Replica:
    """The same shape with every byte ``factor`` bytes long."""
    return Replica(
        size=replica.size * factor,
        start=replica.start * factor,
        length=replica.length * factor,
        replica_start=replica.replica_start * factor,
        loops=[(count, stride * factor, inner * factor) for count, stride, inner in replica.loops],
        extents=[(start * factor, length * factor, inner * factor) for start, length, inner in replica.extents],
    )


def random_striping(choose: random.Random, replica: Replica) -> Replica:
    replica.groups = choose.randint(1, 3)
    strips = [choose.randint(0, 4) for _ in range(choose.randint(1, 3))]
    replica.strips = strips if sum(strips) else [1]
    replica.section = choose.choice([1, 3, 8, 10, 1 << 40])
    return replica


def random_map(directory: Path, seed: int, replicas: int = 40, targets: int = 0) -> tuple[Path, list[Replica]]:
    """The map of one original, and of targets with a replica each."""
    choose = random.Random(seed)
    made = [random_striping(choose, choose.choice([random_nest, random_extents])(choose)) for _ in range(replicas)]
    written = [random_striping(choose, random_nest(choose)) for _ in range(targets)]
    original = directory / "original"
    original.write_bytes(bytes(20000))
    for i, replica in enumerate([*made, *written]):
        replica.components = [directory / f"{i}-{j}" for j in range(replica.servers)]
        for component in replica.components:
            component.touch()
    named = [(directory / f"target{i}", [replica]) for i, replica in enumerate(written)]
    write_map(directory / "map", [(original, made)], targets=named)
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


@pytest.mark.parametrize("widest_gap", [1, 1000, 10**9])
def test_a_large_table_of_extents_is_searched_right_in_any_order(unit: Path, tmp_path: Path, widest_gap: int) -> None:
    choose = np.random.default_rng(widest_gap)
    many = 6_000
    seldom = choose.integers(0, 50, many) == 0
    gaps = np.where(seldom, choose.integers(0, widest_gap, many), choose.integers(0, 2, many))
    lengths = choose.integers(1, 9, many)
    ends = np.cumsum(gaps + lengths)
    starts = ends - lengths
    original = tmp_path / "original"
    with original.open("wb") as file:
        file.truncate(int(ends[-1]) + 10)
    (tmp_path / "component").touch()
    replica = Replica(8 * many, extents=np.stack([starts, lengths, starts % many], axis=1))
    replica.components = [tmp_path / "component"]
    write_map(tmp_path / "map", [(original, [replica])])
    edges = np.concatenate([starts, starts - 1, ends, choose.integers(0, ends[-1] + 10, many)]).clip(0)
    asked = np.concatenate([choose.permutation(edges), np.sort(edges)])
    found = np.searchsorted(ends, asked, "right")
    expected = [
        f"{max(starts[k], at)} {ends[k] - max(starts[k], at)} {starts[k] % many + max(starts[k], at) - starts[k]}"
        if k < many
        else "-"
        for at, k in zip(asked.tolist(), found.tolist(), strict=True)
    ]
    assert ask(unit, "locate", tmp_path / "map", [f"0 {at} {1 << 62}" for at in asked.tolist()]) == expected


def test_strips_follow_the_rule_of_the_map_file(unit: Path, tmp_path: Path) -> None:
    map_file, replicas = random_map(tmp_path, 7)
    questions = [f"{n} {x}" for n, replica in enumerate(replicas) for x in range(replica.size)]
    answers = iter(ask(unit, "strip", map_file, questions))
    for replica in replicas:
        for x in range(replica.size):
            component, offset, length = map(int, next(answers).split())
            assert length >= 1
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
    map_file, _ = random_map(tmp_path, seed, replicas=4, targets=3)
    done = run_unit(unit, "fuzz", map_file, str(seed + 1), "4000")
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 3900


def test_a_map_with_a_flipped_bit_is_refused(unit: Path, tmp_path: Path) -> None:
    map_file, _ = random_map(tmp_path, 3, replicas=4, targets=3)
    assert run_unit(unit, "flips", map_file).stdout == "0\n"


ASTRAY = {
    "a loop of no turns": Replica(20, length=10, loops=[(0, 10, 10)]),
    "turns that overlap": Replica(20, length=10, loops=[(2, 9, 10)]),
    "before the replica's first byte": Replica(20, length=10, loops=[(2, 10, -10)]),
    "past the replica's last byte": Replica(19, length=10, loops=[(2, 10, 10)]),
    "past the end of the original": Replica(20, start=81, length=10, loops=[(2, 10, 10)]),
    "further than 64 bits": Replica(20, length=10, loops=[(1 << 62, 1 << 62, 0)]),
    "a piece of nothing": Replica(20, length=0),
    "extents that overlap": Replica(20, extents=[(0, 10, 0), (9, 10, 10)]),
    "an extent past the end of the original": Replica(20, extents=[(90, 11, 0)]),
    "an extent before the replica's first byte": Replica(20, extents=[(0, 10, -1)]),
    "an extent past the replica's last byte": Replica(20, extents=[(0, 10, 11)]),
    "a section of nothing": Replica(20, length=20, section=0),
    "strips of nothing": Replica(20, length=20, strips=[0, 0]),
    "strips of less than nothing": Replica(20, length=20, strips=[-1, 30]),
    "no servers": Replica(20, length=20, strips=[]),
}


@pytest.mark.parametrize("how", ASTRAY)
def test_a_map_that_leads_astray_is_refused(unit: Path, tmp_path: Path, how: str) -> None:
    """Its checksum is right."""
    original = tmp_path / "original"
    original.write_bytes(bytes(100))
    write_map(tmp_path / "map", [(original, [replace(ASTRAY[how], components=[original] * ASTRAY[how].servers)])])
    done = run_unit(unit, "locate", tmp_path / "map")
    assert (done.returncode, done.stderr) == (1, "a replica's entry is wrong\n")


def test_a_damaged_entry_ends_the_use_of_the_map(unit: Path, tmp_path: Path) -> None:
    """From the open on that has found it, as if all of the map were damaged."""
    files = []
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(bytes(100))
        files.append((tmp_path / name, [Replica(100, length=100).build(bytes(100), tmp_path / f"replica-{name}")]))
    write_map(tmp_path / "map", files)
    flip(tmp_path / "map", -1)
    assert run_unit(unit, "use", tmp_path / "map", "0").stdout == "ok\nok\n"
    assert run_unit(unit, "use", tmp_path / "map", "1").stdout == "ok\nits checksum does not match\n"


@pytest.mark.parametrize("field", ["loops", "strips", "components"])
def test_a_map_that_leads_out_of_its_entry_is_refused(unit: Path, tmp_path: Path, field: str) -> None:
    """To the same part of another entry, whose bytes have a checksum of their own."""
    files = []
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(bytes(100))
        replica = Replica(20, length=10, loops=[(2, 50, 10)])
        files.append((tmp_path / name, [replica.build(bytes(100), tmp_path / f"replica-{name}")]))
    write_map(tmp_path / "map", files)
    image = bytearray((tmp_path / "map").read_bytes())
    at = REPLICA.fields[field][1]
    first, second = (int.from_bytes(image[40:44], "little") + number * REPLICA.itemsize + at for number in range(2))
    image[second : second + 4] = image[first : first + 4]
    renew(image)
    (tmp_path / "map").write_bytes(image)
    done = run_unit(unit, "locate", tmp_path / "map")
    assert (done.returncode, done.stderr) == (1, "a replica's entry is wrong\n")


def test_h28_a_file_with_the_inode_of_an_original_may_be_another(unit: Path, tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.write_bytes(bytes(100))
    write_map(tmp_path / "map", [(original, [Replica(100, length=100).build(bytes(100), tmp_path / "replica")])])
    seen = original.stat()
    asked = itertools.product([original, tmp_path / "other"], [seen.st_dev, seen.st_dev + 1])
    found = [run_unit(unit, "find", tmp_path / "map", path, f"{device}:{seen.st_ino}").stdout for path, device in asked]
    assert found == ["found\n", "found\n", "found\n", "-\n"]


def half_replicated(directory: Path) -> tuple[Path, Path]:
    """An original of 100 bytes with a replica of the last 50, in the map there; and the state file."""
    original = directory / "original"
    original.write_bytes(bytes(100))
    replica = Replica(size=50, start=50, length=50).build(bytes(100), directory / "replica")
    return original, write_map(directory / "map", [(original, [replica])])


@pytest.mark.parametrize("part", ["size", "mtime", "ctime"])
def test_h20_each_part_of_the_identity_of_an_original_counts(unit: Path, tmp_path: Path, part: str) -> None:
    """The map has the identity that the file had when it was copied."""
    original, _ = half_replicated(tmp_path)
    assert run_unit(unit, "check", tmp_path / "map", original).stdout == "fresh 0, seems fresh\n"
    image = bytearray((tmp_path / "map").read_bytes())
    image[int.from_bytes(image[36:40], "little") + FILE.fields[part if part == "size" else f"{part}_ns"][1]] ^= 1
    renew(image)
    (tmp_path / "map").write_bytes(image)
    assert run_unit(unit, "check", tmp_path / "map", original).stdout == "not fresh 2, seems changed\n"


def test_h20_an_original_that_cannot_be_examined_is_not_fresh(unit: Path, tmp_path: Path) -> None:
    half_replicated(tmp_path)
    assert run_unit(unit, "check", tmp_path / "map", tmp_path / "none").stdout == "not fresh 2, seems changed\n"


# ---- real programs ---------------------------------------------------------------------------------------------------


def reasons(reports: list[dict[str, Any]]) -> set[str]:
    return {passed["why"] for report in reports for file in report["files"] for passed in file["passed"]}


def states(reports: list[dict[str, Any]]) -> set[str]:
    return {replica["state"] for report in reports for file in report["files"] for replica in file["replicas"]}


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_every_kind_of_read_sees_what_it_sees_natively(case: Case, ranks: int) -> None:
    case.publish(case.columns())
    reports = case.compare(*STEPS, ranks=ranks)
    assert {(report["map"], report["ranks"], report["generation"]) for report in reports} == {("ok", ranks, 1)}
    assert total(reports, "replica", "bytes") > 10000 * ranks
    assert total(reports, "original", "bytes") > 0
    assert {"past the end of the file", "shared file pointer", "not replicated"} <= reasons(reports)


def test_every_kind_of_read_sees_the_same_under_older_mpis(
    debian_mpi: Mpi, tmp_path: Path, library: Path, programs: Path
) -> None:
    case = make_case(debian_mpi, tmp_path, library, programs)
    case.publish(case.columns())
    # Natively, MPICH 4.0 misplaces what it reads into a datatype whose lower bound is not 0.
    reports = case.compare(*(step for step in STEPS if step != "memory"), ranks=2)
    assert {(report["map"], report["ranks"]) for report in reports} == {("ok", 2)}
    assert total(reports, "replica", "bytes") > 20000


@pytest.mark.parametrize(
    "layout",
    [
        {"strips": [64, 32, 48], "section": 1 << 40},
        {"groups": 4, "strips": [1000], "section": ROWS * PIECE},
        {"groups": 2, "strips": [0, 100, 7], "section": 1000},
    ],
    ids=["1-DH", "1-DV", "2-D"],
)
def test_a_striped_replica_reads_back_the_same(mpich: Case, layout: dict[str, Any]) -> None:
    mpich.publish(mpich.columns(**layout))
    reports = mpich.compare(*STEPS)
    assert total(reports, "replica", "bytes") > 40000


def test_the_better_of_several_replicas_is_read(mpich: Case) -> None:
    """A column is contiguous in the first replica only; the third holds no more than a part of the file."""
    rows = Replica(size=4 * ROWS * PIECE, start=START, length=4 * ROWS * PIECE)
    part = Replica(size=900, extents=[(600, 400, 0), (5000, 100, 800), (5100, 400, 400)])
    mpich.publish(rows, mpich.columns(), part)
    reports = mpich.compare("independent", "views", "collective", "memory")
    served = {replica["id"]: replica["bytes"] for replica in reports[0]["files"][0]["replicas"]}
    assert served[1] > 0 and served[2] > 0
    assert states(reports) == {"valid"}


@pytest.mark.parametrize("seed", range(4))
def test_random_views_on_random_replicas_read_the_same(mpich: Case, seed: int) -> None:
    """Loop nests in any order and direction, and extents, striped in any way, of a file that no request leaves.

    (What MPICH reads through a view with holes behind the end of a file depends on what its memory held before.)
    """
    case = replace(mpich, tail=2_000_000)
    choose = random.Random(seed)
    replicas = []
    for scale in (7, 40, 100):
        nest = random_striping(choose, scaled(random_nest(choose, fewest=4), scale))
        replicas += [nest, random_striping(choose, scaled(random_extents(choose), 2 * scale))]
    case.publish(*replicas)
    reports = case.compare("random")
    assert "past the end of the file" not in reasons(reports)
    assert total(reports, "replica", "bytes") > 5000


def test_an_irregular_replica_serves_what_it_has(mpich: Case) -> None:
    mpich.publish(Replica(size=900, extents=[(600, 400, 0), (5000, 100, 800), (5100, 400, 400)]))
    reports = mpich.compare("independent", "views", "memory", "nonblocking")
    assert total(reports, "replica", "bytes") > 0


def test_strided_reads_become_contiguous_ones(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    for report in mpich.compare("views"):
        (file,) = report["files"]
        # Five reads of a column, each one run of the replica; the first three and the last follow one another.
        assert file["path"] == str(mpich.original)
        assert file["replica"]["requests"] >= 5
        assert file["replica"]["contiguous"] >= 2


def test_a_request_over_many_strips_is_in_order_of_each_component(mpich: Case) -> None:
    assert mpich.reads_of_components(strip=16, request=4000) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_components_that_are_not_in_memory_are_fetched_before_any_is_waited_for(mpich: Case) -> None:
    calls = mpich.traced(over_four(1 << 16, 1 << 20), 1 << 20, 1 << 20, cached=False)
    if any("EOPNOTSUPP" in call for call in calls):
        unavailable("the file system cannot say what is in memory")
    waiting = next(i for i, call in enumerate(calls) if call.startswith("pread") and "RWF_NOWAIT" not in call)
    there = {component_of(call) for call in calls[:waiting] if "POSIX_FADV_WILLNEED" in call or "EAGAIN" not in call}
    assert there | {component_of(calls[waiting])} == {0, 1, 2, 3}


def test_what_leaves_small_holes_is_fetched_a_mebibyte_at_a_time(mpich: Case) -> None:
    """As where a rank reads the first half of each row of a neighbour's: rows of 128 KiB, from the third on."""
    extents = [(i << 16, 1 << 16, i << 17) for i in range(32)]
    calls = mpich.traced(Replica(32 << 17, extents=extents), 32 << 16, 1 << 16)
    fetched = [re.findall(r", (\d+), (\d+), POSIX_FADV_WILLNEED", call) for call in calls if "fadvise" in call]
    assert fetched == [[(str((2 << 17) + (i << 20)), str(1 << 20))] for i in range(5)]


def check_written(case: Case, step: str) -> None:
    case.publish(case.columns())
    reports = case.compare("writable", "look", step, "look", "writable", "look", "collective")
    assert total(reports, "replica", "bytes") > 0
    assert states(reports) == {"written"}


@pytest.mark.parametrize("step", ["write-by-last", "iwrite-inside"])
def test_h01_a_write_to_replicated_bytes_is_seen_by_every_rank(case: Case, step: str) -> None:
    check_written(case, step)


@pytest.mark.parametrize("step", ["write-inside", "write-only", "write-long"])
def test_h01_a_write_through_another_handle_or_of_more_than_the_replica_is_seen(mpich: Case, step: str) -> None:
    check_written(mpich, step)


@pytest.mark.parametrize("how", ["shared", "ordered", "external32", "nested"])
def test_h01_a_write_whose_place_is_not_known_is_seen(case: Case, how: str) -> None:
    check_written(case, f"write-{how}")


def test_h20_a_replica_stays_stale_in_the_next_run(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    mpich.run("writable", "write-inside", redirected=True)
    reports = mpich.compare("independent", "collective")
    assert total(reports, "replica", "bytes") == 0
    assert reasons(reports) == {"no replica is usable"}
    assert states(reports) == {"written"}


def test_h20_a_mark_counts_at_once_though_the_original_looks_as_it_was_copied(case: Case) -> None:
    """Its file system may show the write of another node, or one within a tick of its clock, later or never."""
    place = STATE_HEADER.itemsize + STATE_FILE.itemsize
    mark = f"mark:{place}:{case.publish(case.columns())}"
    reports = case.compare("look", mark, "look")
    assert total(reports, "replica", "bytes") > 0
    assert reasons(reports) == {"no replica is usable"}


def test_h62_a_write_of_somebody_else_during_ones_own_is_seen(case: Case) -> None:
    """Also by later runs: the times that the original has after the own write say nothing about the other."""
    case.publish(case.columns())
    reports = case.compare("writable", "look", "write-around-another", "look", "collective")
    assert total(reports, "replica", "bytes") > 0
    assert states(reports) == {"changed"}
    assert "the original was changed" in reasons(reports)
    assert total(case.compare("independent", "collective"), "replica", "bytes") == 0


@pytest.mark.parametrize("step", ["write-beside", "write-together-beside", "iwrite-beside"])
def test_h62_after_a_write_outside_the_replica_nobody_knows_who_else_wrote(case: Case, step: str) -> None:
    case.publish(case.columns())
    reports = case.compare("writable", "look", step, "look", "writable", "look", "collective")
    assert total(reports, "replica", "bytes") > 0
    assert states(reports) == {"changed"}


def test_h13_a_truncated_original_is_not_served_from_its_replica(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    reports = mpich.compare("writable", "look", "shrink", "look", "ends", "independent")
    assert states(reports) == {"written"}


def test_h20_an_original_changed_by_another_program_is_not_served_from_its_replica(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    changed = bytearray(mpich.content())
    changed[START : START + 1000] = bytes(1000)
    mpich.original.write_bytes(changed)
    reports = mpich.compare("independent", "collective")
    assert total(reports, "replica", "bytes") == 0
    assert states(reports) == {"changed"}


def test_h04_atomic_mode_passes_through(case: Case) -> None:
    case.publish(case.columns())
    reports = case.compare("writable", "atomic", "independent", "collective", "nonblocking")
    assert total(reports, "replica", "bytes") == 0
    assert "atomic mode" in reasons(reports)


@pytest.mark.parametrize("damage", ["missing", "short", "newer", "another", "cut in secret"])
def test_a_damaged_component_is_refused(mpich: Case, damage: str) -> None:
    mpich.publish(mpich.columns(strips=[64, 64]))
    component = mpich.directory / "replica0" / "1"
    found, content = component.stat(), component.read_bytes()
    if damage == "missing":
        component.unlink()
    elif damage == "short":
        component.write_bytes(content[:100])
    elif damage == "newer":
        os.utime(component)
    else:
        if damage == "another":
            component.rename(component.with_name("old"))
        component.write_bytes(content if damage == "another" else content[:100])
        os.utime(component, ns=(found.st_atime_ns, found.st_mtime_ns))
    reports = mpich.compare("independent", "collective")
    assert total(reports, "replica", "bytes") == 0
    want = "a component is missing" if damage == "missing" else "a component was changed"
    assert states(reports) == {f"refused: {want}"}


def test_a_component_that_is_another_user_s_is_refused(mpich: Case) -> None:
    mpich.publish(mpich.columns(strips=[64, 64]))
    give_away(mpich.directory / "replica0" / "1")
    reports = mpich.compare("independent", "collective")
    assert total(reports, "replica", "bytes") == 0
    assert states(reports) == {"refused: a component is neither the user's nor root's"}


def test_a_short_read_of_a_replica_falls_back_to_the_original(mpich: Case) -> None:
    """The map knows the component as it is, but the component does not hold all that the map says."""
    replica = mpich.columns().build(mpich.content(), mpich.directory / "replica")
    mpich.original.write_bytes(mpich.content())
    os.truncate(replica.components[0], 5000)
    write_map(mpich.map, [(mpich.original, [replica])])
    reports = mpich.compare(*STEPS)
    assert "a replica could not be read" in reasons(reports)
    assert "refused: a read from it failed or was short" in states(reports)


@pytest.fixture
def gone(mpich: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    """With replicas on storage whose server does not answer."""
    monkeypatch.setenv("GONE_LOG", str(mpich.directory / "tries"))
    monkeypatch.setenv("GONE_PLACE", str(mpich.directory / "replica"))
    return replace(mpich, library=Path(f"{mpich.library}:{compile_preloaded('gone', mpich.directory)}"))


def tries(case: Case, *steps: str, ranks: int = 4) -> tuple[str, list[dict[str, Any]]]:
    """What the ranks ask such storage, a letter a call, and their reports."""
    log = case.directory / "tries"
    log.write_text("")
    reports = case.compare(*steps, ranks=ranks)
    return log.read_text(), reports


@pytest.mark.parametrize("how", ["o", "r", "O"])
@pytest.mark.thorough(1)
def test_storage_that_does_not_answer_is_asked_once_by_each_rank_and_then_by_nobody(
    gone: Case, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """In a hundred reads of each, which are those of the original."""
    monkeypatch.setenv("GONE", how)
    gone.publish(gone.columns(strips=[64, 64]))
    steps = ["independent", "writable"] * 5
    asked, reports = tries(gone, *steps)
    assert 1 <= len(asked) <= 4
    assert total(reports, "redirected", "calls") == 0
    assert np.count_nonzero(read_places(gone.directory / "map.1.state")) == 1
    now = int(time.time())
    for when, wanted in ((now, [0]), (now - 60, range(1, 5))):
        write_places(gone.directory / "map.1.state", when)
        asked, reports = tries(gone, *steps)
        assert len(asked) in wanted
        assert total(reports, "redirected", "calls") == 0


def test_the_second_directory_that_does_not_answer_speaks_for_all(gone: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE", "o")
    gone.original.write_bytes(gone.content())
    # Two directories may share a place in the state file, which is then that of one.
    built: dict[int, Replica] = {}
    for number in count():
        if len(built) == 4:
            break
        replica = gone.columns().build(gone.content(), gone.directory / f"replica{number}")
        place = google_crc32c.value(bytes(replica.components[0].parent)) % (PLACES // 2 - 1)
        built.setdefault(place, replica)
    write_map(gone.map, [(gone.original, [*built.values()])])
    asked, reports = tries(gone, *["independent", "writable"] * 5, ranks=1)
    assert asked == "oo"
    assert total(reports, "redirected", "calls") == 0


def test_a_program_does_not_ask_again_however_long_it_lasts(gone: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when the storage did not answer, by the time of that."""
    monkeypatch.setenv("GONE", "o")
    gone.publish(gone.columns())
    write_places(gone.directory / "map.1.state", int(time.time()) + 1000)
    assert tries(gone, "independent")[0] == ""


def give_away(path: Path) -> None:
    """To another user."""
    if os.geteuid() != 0:
        unavailable("only root gives files away")
    os.chown(path, 1234, -1)


def flip(path: Path, at: int) -> None:
    """Damage a byte of the index of a map, or of the entry of its last file."""
    image = bytearray(path.read_bytes())
    image[at] ^= 1
    path.write_bytes(image)


def of_generation(state: Path, number: int) -> None:
    """Makes the state file that of another publication."""
    image = state.read_bytes()
    state.write_bytes(image[:8] + number.to_bytes(8, "little") + image[16:])


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(b"\0" * 200), "it is not a map of replicas"),
        (
            lambda path: path.write_bytes(b"PDLAMAP2" + path.read_bytes()[8:]),
            "it is of another version of pdla (pdla gc writes a new one)",
        ),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "it was cut short or is too long"),
        (lambda path: flip(path, 56), "its checksum does not match"),
        (lambda path: flip(path, -1), "its checksum does not match"),
        (lambda path: path.write_bytes(b""), "it is empty or not a regular file"),
        (lambda path: path.unlink(), "it cannot be opened"),
        (lambda path: path.chmod(0o666), "it is neither the user's nor root's, or others may write to it"),
        (give_away, "it is neither the user's nor root's, or others may write to it"),
        (lambda path: path.with_suffix(".1.state").unlink(), "its state file is missing or not writable"),
        (lambda path: path.with_suffix(".1.state").write_bytes(b"x" * 200), "its state file is of another map"),
        (lambda path: of_generation(path.with_suffix(".1.state"), 2), "its state file is of another map"),
    ],
)
def test_a_map_in_doubt_is_refused_with_the_reason(mpich: Case, damage: Callable[[Path], object], why: str) -> None:
    mpich.publish(mpich.columns())
    damage(mpich.map)
    reports = mpich.compare("independent", "collective", ranks=2)
    assert [(report["map"], report["files"]) for report in reports] == [(why, [])] * 2
    assert mpich.said(PDLA_MAP=mpich.map) == [f"{NO_MAP} {mpich.map} (PDLA_MAP) cannot be used: {why}"]


def test_what_a_map_has_of_other_files_is_not_looked_at(mpich: Case) -> None:
    """Each process of a program would read all of it."""
    mpich.publish(mpich.columns())
    other = mpich.directory / "other"
    other.write_bytes(bytes(100))
    files = [(mpich.original, [mpich.columns().build(mpich.content(), mpich.directory / "columns")])]
    files += [(other, [Replica(100, length=100).build(bytes(100), mpich.directory / "copy")])]
    write_map(mpich.map, files)
    image = mpich.map.read_bytes()
    path = bytes(other) + b"\0"
    flip(mpich.map, image.index(path))
    reports = mpich.compare("independent", "collective", ranks=2)
    assert {report["map"] for report in reports} == {"ok"}
    assert total(reports, "replica", "bytes") > 0


def test_without_a_map_the_library_is_silent_under_pdla_run(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    mpich.map.unlink()
    assert mpich.said(PDLA_MAP=mpich.map, PDLA_REPORT=mpich.directory) == []


def test_a_rank_that_was_killed_is_known_to_have_opened_files(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    out = mpich.directory / "out"
    out.mkdir()
    words = ["env", f"PDLA_MAP={mpich.map}", f"PDLA_REPORT={out}", f"LD_PRELOAD={mpich.library}"]
    words += [mpich.program, mpich.original, mpich.directory / "rank", "independent", "killed"]
    environment = {**os.environ, **mpich.mpi.env}
    subprocess.run(mpich.mpi.command(2, *words), env=environment, check=False, timeout=PATIENCE)
    assert [path.suffix for path in out.glob("*/.*")] == [".part"] * 2


def test_what_cannot_be_printed_of_a_path_is_escaped_on_standard_error(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    (line,) = mpich.said(PDLA_MAP="/a\nb\x1b[2J\x7f \u00e4\u009b \udcff")
    assert line == NO_MAP + r" /a\x0ab\x1b[2J\x7f ä\xc2\x9b \xff (PDLA_MAP) cannot be used: it cannot be opened"


def calls_by_reason(reports: list[dict[str, Any]]) -> Counter[str]:
    return sum((Counter({p["why"]: p["calls"]}) for r in reports for f in r["files"] for p in f["passed"]), Counter())


def test_replicated_calls_that_were_left_by_an_earlier_agreement_are_reported_as_such(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    reports = mpich.compare("collective-late", ranks=2)
    assert calls_by_reason(reports) == {"not replicated": 8, "agreed at an earlier collective call": 4}
    assert total(reports, "redirected", "calls") == 4


def test_the_reason_for_no_replica_is_that_of_the_best_one(mpich: Case) -> None:
    """The bytes are in a replica, though in pieces too small; another replica has none of them."""
    extents = [(START + 2 * i, 1, (i * 4099) % (1 << 13)) for i in range(1 << 13)]
    scattered = Replica(size=1 << 13, extents=extents)
    beyond = Replica(size=64, start=0, length=64)
    mpich.publish(scattered, beyond)
    assert "in too many pieces in the replica" in reasons(mpich.compare("collective-late", ranks=2))


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_h26_ranks_without_the_map_agree_with_those_that_have_it(mpich: Case, how: str, bad: int) -> None:
    """Half of the ranks cannot read the map: no rank redirects or waits for ever, and a write is still noticed."""
    mpich.publish(mpich.columns())
    if how == "damaged":
        shutil.copy(mpich.map, mpich.directory / "nothing")
        flip(mpich.directory / "nothing", -1)
    out = mpich.directory / "out"
    out.mkdir()
    words: list[str | Path] = []
    for half in range(2):
        name = mpich.directory / "nothing" if half == bad else mpich.map
        words += [":"] if half else []
        words += ["-n", "2", "env", f"PDLA_MAP={name}", f"PDLA_REPORT={out}", f"LD_PRELOAD={mpich.library}"]
        words += [mpich.program, mpich.original, out / "rank", "writable", "look", "write-inside", "look", "collective"]
    mpich.mpi.run([*mpich.mpi.mpiexec, *map(str, words)])
    reports = [json.loads(path.read_text()) for path in out.glob("*/*.json")]
    why = "it cannot be opened" if how == "missing" else "its checksum does not match"
    assert sorted(report["map"] for report in reports) == [why] * 2 + ["ok"] * 2
    assert total(reports, "replica", "bytes") == 0
    reports = mpich.compare("independent", "collective")
    assert total(reports, "replica", "bytes") == 0


def test_h26_ranks_with_different_maps_redirect_nothing(mpich: Case) -> None:
    """As if one node has seen a publication and another one has not yet."""
    mpich.publish(mpich.columns())
    replica = mpich.columns().build(mpich.content(), mpich.directory / "next")
    write_map(mpich.directory / "map.next", [(mpich.original, [replica])], generation=2)
    out = mpich.directory / "out"
    out.mkdir()
    words: list[str | Path] = []
    for name in ("map", "map.next"):
        words += [":"] if words else []
        words += ["-n", "1", "env", f"PDLA_MAP={mpich.directory / name}", f"PDLA_REPORT={out}"]
        words += [
            f"LD_PRELOAD={mpich.library}",
            mpich.program,
            mpich.original,
            out / "rank",
            "independent",
            "collective",
        ]
    mpich.mpi.run([*mpich.mpi.mpiexec, *map(str, words)])
    reports = [json.loads(path.read_text()) for path in out.glob("*/*.json")]
    assert sorted(report["generation"] for report in reports) == [1, 2]
    assert reasons(reports) == {"no replica is usable"}


def test_h32_a_writer_that_was_killed_leaves_no_trust(unit: Path, mpich: Case) -> None:
    """It had not written yet: the original is as it was, but others may have the bytes already."""
    mpich.publish(mpich.columns())
    assert run_unit(unit, "killed", mpich.map).returncode == 0
    reports = mpich.compare("independent", "collective")
    assert total(reports, "replica", "bytes") == 0
    assert states(reports) == {"written"}


def test_a_write_of_very_many_extents_spares_only_what_lies_outside_their_hull(mpich: Case) -> None:
    near = Replica(size=100, start=14001, length=100)
    far = Replica(size=100, start=15000, length=100)
    mpich.publish(near, far)
    _, reports = mpich.run("writable", "write-thinly", redirected=True)
    assert [replica["state"] for replica in reports[0]["files"][0]["replicas"]] == ["written", "valid"]


def test_h35_a_map_published_during_the_run_is_used_from_the_next_open_on(mpich: Case) -> None:
    mpich.publish(Replica(size=10, length=10))
    columns = mpich.columns().build(mpich.content(), mpich.directory / "next")
    write_map(mpich.directory / "map.next", [(mpich.original, [columns])], generation=2)
    reports = mpich.compare("independent", "republish", "independent", "writable", "collective", ranks=2)
    assert [report["generation"] for report in reports] == [2, 2]
    new, old = reports[0]["files"]
    assert old["redirected"] == {"calls": 2, "bytes": 40000}
    assert new["redirected"]["calls"] == 7


def test_a_report_names_any_path(mpich: Case) -> None:
    """Quotes, control characters, and bytes that are no UTF-8, which Python's file names have as surrogates."""
    name = os.fsdecode(b'a "b"\\\t\xc3\xa9\xff')
    (mpich.directory / name).mkdir()
    odd = replace(mpich, directory=mpich.directory / name)
    odd.publish(odd.columns())
    reports = odd.compare("independent", ranks=1)
    assert reports[0]["files"][0]["path"] == str(odd.original)


@pytest.mark.parametrize("steps", [("independent", "views"), ("collective",), ("nonblocking", "others")])
def test_reads_are_compared_with_the_original(
    mpich: Case, steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte of the replica is another: the program sees the original's, and the report says which it was."""
    monkeypatch.setenv("PDLA_VERIFY", "1")
    mpich.publish(mpich.columns())
    assert total(mpich.compare(*steps), "compared", "calls") > 0
    component = mpich.directory / "replica0" / "0"
    found = component.stat()
    content = bytearray(component.read_bytes())
    content[3] ^= 255
    component.write_bytes(content)
    os.utime(component, ns=(found.st_atime_ns, found.st_mtime_ns))
    reports = mpich.compare(*steps)
    difference = reports[0]["files"][0]["difference"]
    assert (difference["offset"], difference["replica"]) == (START + 3, 1)
    assert difference["call"] == {"independent": "MPI_File_read_at", "collective": "MPI_File_read_at_all"}.get(
        steps[0], "MPI_File_iread_at"
    )
    assert "refused: differs from the original" in states(reports)


def test_h37_threads_share_a_handle(mpich: Case) -> None:
    mpich.publish(mpich.columns(strips=[50, 40]))
    reports = mpich.compare("threads", ranks=2)
    assert [report["files"][0]["redirected"]["calls"] for report in reports] == [800, 800]


def test_h37_threads_that_share_a_file_pointer_read_each_byte_once(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    reports = mpich.compare(*["threads-read-on"] * 5, ranks=1)
    left = calls_by_reason(reports)["in another order in the replica"]
    assert reports[0]["files"][0]["redirected"]["calls"] + left == 1000


def test_an_open_file_leaves_the_program_most_of_the_descriptors(mpich: Case) -> None:
    """With 100 replicas of one component each, at most a quarter of the process's descriptors is used."""
    mpich.publish(*[Replica(size=96, start=START + 96 * i, length=96) for i in range(100)])
    limited = mpich.directory / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -S -n 80\nexec {mpich.program} "$@"\n')
    limited.chmod(0o755)
    reports = replace(mpich, program=limited).compare("independent", ranks=1)
    (file,) = reports[0]["files"]
    assert sum(replica["bytes"] > 0 for replica in file["replicas"]) == 20
    assert states(reports) == {"valid"}


def test_h17_a_misused_call_has_the_error_of_the_mpi(mpi: Mpi, mpich: Case) -> None:
    mpich.publish(mpich.columns())
    case = replace(
        mpich, mpi=mpi, program=mpi.compile(REPOSITORY / "tests/programs/misuse.c", mpich.directory / "misuse")
    )
    case.compare(ranks=2)


def test_h11_a_rank_that_is_past_the_end_in_a_run_of_collective_reads_has_their_count(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    reports = mpich.compare("jump")
    assert total(reports, "replica", "bytes") > 0
    assert "past the end of the file" in reasons(reports)


def test_h27_each_rank_opens_the_file_alone_while_all_have_it_open(mpich: Case) -> None:
    mpich.publish(mpich.columns())
    reports = mpich.compare("alone", "collective")
    assert [report["files"][0]["redirected"]["calls"] for report in reports] == [9, 10, 10, 10]
