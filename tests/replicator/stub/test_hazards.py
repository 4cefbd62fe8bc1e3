"""The hazards of redirected reads that a program text shows, by their numbers in docs/guarantees.md.

Each text is run natively and redirected by two ranks that read a table of four columns.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.searches.mpiio import Job, Program, Runner
from tests.support.command_line import Pdla
from tests.support.compilers import compiled
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY, Mpi
from tests.support.redirected_reads import Case, total

TABLE = """
file a 20000
replica a {"size":15360,"start":480,"length":96,"loops":[[40,384,96],[4,96,3840]],"strips":[64,48]}
open 0 a r world
"""
COLUMN = "view 0 480|576 b r(0,384,c(96,b)) native"

TEXTS = {
    6: f"""{COLUMN}
        read_all_begin 0 0 500|400 b
        ask 0 3
        end 0
        read_at_all_begin 0 96 300 r(0,9,c(3,b))
        end 0
        read_all_begin 0 0 100 b ignore
        end 0
        read_all 0 0 70 b""",
    7: COLUMN
    + "".join(
        f"""
        iread_at 0 {offset} 200 b
        iread 0 0 100|150 b
        iread_at 0 7 96 s(3:4;3:0,b)
        complete 0 {how}
        iread_all 0 0 96|192 b
        complete 0 {how}
        seek 0 {offset} set
        iread_at_all 0 480 96 b
        complete 0 {how}
        read 0 0 10 b"""
        for offset, how in enumerate(["wait", "waitall", "waitany", "waitsome", "test", "testany", "ask"])
    ),
    8: """read_at 0 480 200 b
        view 0 480|576 b r(0,384,c(96,b)) native
        read 0 0 300 b
        view 0 672 c(4,b) v(40,24,96,c(4,b)) native
        read_all 0 0 50 c(4,b)
        read_all 0 0 50 c(4,b)
        view 0 1 b b native
        read_at_all 0 900 700 b
        view 0 864|768 b a(C,40:10:3;384:96:96,b) native
        read 0 0 960 b""",
    9: f"""{COLUMN}
        read 0 0 20 v(4,6,11,b)
        read_all 0 0 20 r(0,42,x(9:27;6:3,b))
        read_at 0 33 9 s(12:0;12:40,b)
        iread 0 0 9 c(24,b)
        complete 0 wait
        read_at_all 0 100 5 a(F,5:2:1;7:3:2,b)""",
    10: """view 0 480 c(4,b) c(4,b) external32
        read_at 0 10 50 c(4,b)
        read_at_all 0 20 50 c(4,b)
        view 0 0 b b native
        read_at 0 480 50 b""",
    11: """file c 50
        replica c {"size":50,"start":0,"length":50}
        open 1 c r world
        read_at 1 30 100 b
        read_at 1 30 100 b ignore
        read_at 1 60 100 b
        read_at 1 50 1 b
        read_at 1 10 40 b
        read_at_all 1 30|0 100|20 b
        seek 1 45 set
        read 1 0 10 b
        read_all 1 0 10 b
        close 1
        read_at 0 480 100 b""",
    12: """read_at 0 400 300 b
        view 0 96|192 b r(0,384,c(96,b)) native
        read 0 0 960 b
        read_all 0 0 3648 b
        read_at 0 50 300 b""",
    16: """open 1 a u world
        read_at 1 480 100 b
        close 1
        open 1 a uc world
        read_at 1 480 100 b
        close 1
        open 1 a rs world
        read_at 1 480 100 b
        close 1
        open 1 a ra world
        read 1 0 100 b
        seek 1 480 set
        read 1 0 100 b
        close 1
        open 1 none r world
        open 1 a w world
        read_at 1 480 100 b
        close 1
        open 1 a ro world
        read_at_all 1 480 100 b
        close 1
        read_at 0 480 100 b""",
    25: """view 0 480|672 b r(0,384,c(96,b)) native
        read_all 0 0 3840 b
        view 0 576|480 b r(0,768,c(192,b)) native
        read_all 0 0 3840|192 b
        open 1 a r self
        read_at 1 500|900 300 b
        close 1
        open 1 a r reversed
        read_at_all 1 500|900 300 b""",
    42: f"""{COLUMN}
        read_all 0 0 0|96 b
        read_all 0 0 96|0 b
        read_at_all 0 0 0 b
        read_all_begin 0 0 0|96 b
        end 0
        iread_all 0 0 96|0 b
        complete 0 wait
        read 0 0 0 b
        read_at 0 50 0 b
        read 0 0 96 b""",
}


class Outcome(NamedTuple):
    """What the ranks saw of one program, and the bytes that came from replicas."""

    native: list[str]
    redirected: list[str]
    replica_bytes: int


@pytest.fixture(scope="module")
def outcomes(mpi: Mpi, library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Outcome]:
    """Of every text, by its number, in one launch each."""
    directory = tmp_path_factory.mktemp("hazards")
    runner = Runner.prepare(mpi, directory, library)
    texts = {number: TABLE + text for number, text in TEXTS.items()}
    lines = {number: (line.strip() for line in text.splitlines()) for number, text in texts.items()}
    native, redirected = runner.both(
        [Program(number, 2, tuple(filter(None, lines[number]))) for number in texts], directory / "case"
    )
    reports = [json.loads(path.read_text()) for path in (directory / "case/reports").glob("*/*.json")]
    files = [file for report in reports for file in report["files"]]
    return {
        number: Outcome(
            [line for rank in native for line in rank if line.startswith(f"{number}:")],
            [line for rank in redirected for line in rank if line.startswith(f"{number}:")],
            sum(file["replica"]["bytes"] for file in files if f"/redirected/{number}/" in file["path"]),
        )
        for number in texts
    }


def check(outcome: Outcome, replica_bytes: int) -> None:
    assert outcome.redirected == outcome.native
    assert outcome.replica_bytes == replica_bytes


def test_h06_split_collectives_have_their_status_at_the_end(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[6], 500 + 400 + 2 * 900 + 2 * 100 + 2 * 70)


def test_h07_a_nonblocking_read_may_be_completed_in_any_way(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[7], 7 * (2 * 200 + 100 + 150 + 2 * 576 + 96 + 192 + 2 * 96 + 2 * 10))


def test_h08_a_view_that_changes_is_followed(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[8], 2 * 200 + 2 * 300 + 4 * 200 + 2 * 700 + 2 * 960)


def test_h09_memory_datatypes_are_packed_at_the_call_and_may_be_freed_after_it(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[9], 2 * (20 * 24 + 20 * 15 + 9 * 24 + 9 * 24 + 5 * 6))


def test_h10_another_data_representation_passes_through(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[10], 2 * 50)


def test_h11_the_status_of_a_read_at_the_end_counts_what_there_was(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[11], 2 * 40 + 2 * 100)
    counts = [int(count) for line in outcomes[11].redirected for count in re.findall(r"read_at .* bytes=(-?\d+)", line)]
    assert counts == [20, -1, 0, 0, 40, 100] * 2


def test_h12_a_request_partly_in_the_replica_is_stitched(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[12], 2 * (220 + 9 * 96 + 31 * 96 + 254))


def test_h16_the_mode_of_the_open_is_the_originals_affair(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[16], 2 * 5 * 100)
    assert any(re.search(r"open class=(20|37|42)", line) for line in outcomes[16].redirected)  # no such file


def test_h25_a_replica_serves_any_mapping_of_ranks(outcomes: dict[int, Outcome]) -> None:
    """Except for collective reads that MPI makes in large requests, and that the replica has in many pieces."""
    check(outcomes[25], 2 * 3840 + 4 * 300)


def test_h42_calls_of_no_bytes_join_the_others(outcomes: dict[int, Outcome]) -> None:
    check(outcomes[42], 5 * 96 + 96)


# ---- what a text does not show ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["longjmp", "exception"])
def test_h17_error_handlers_may_leave_a_call_without_returning(mpi: Mpi, mpich: Case, way: str) -> None:
    """Also in one rank only, before collective calls from deeper on its stack."""
    compiler = mpi if way == "longjmp" else replace(mpi, mpicc=mpi.tool("mpicxx"))
    flags = ["-Wall", "-Wextra", *(["-xc++"] if way == "exception" else [])]
    program = compiler.compile(REPOSITORY / "tests/programs/jumps.c", mpich.directory / "jumps", *flags)
    jumps = replace(mpich, mpi=mpi, program=program)
    jumps.publish(jumps.columns())
    reports = jumps.compare(ranks=2)
    assert [report["files"][0]["redirected"]["calls"] for report in reports] == [6, 6]


def test_h18_pdla_run_preloads_what_looks_after_posix_calls(pdla: Pdla) -> None:
    printed = pdla.run("run", "--writes", "close", "--", "printenv", "LD_PRELOAD").stdout
    assert [Path(name).name for name in printed.strip().split(":")] == ["libpdla.so", "libpdla-coherence.so"]


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_h28_a_file_is_known_by_any_of_its_names(mpich: Case, kind: str) -> None:
    real = mpich.directory / "real"
    real.touch()
    if kind == "hard":
        os.link(real, mpich.original)
    else:
        mpich.original.symlink_to(real)
    mpich.publish(mpich.columns())
    assert total(mpich.compare("independent", "collective"), "replica", "bytes") > 0


@contextmanager
def overlay(directory: Path, name: str) -> Iterator[Path]:
    """A file system without a block device: its files and inodes stay, its device number does not."""
    layers = [directory / f"overlay-{layer}" for layer in ("lower", "upper", "work")]
    mount = directory / name
    for one in (*layers, mount):
        one.mkdir(exist_ok=True)
    options = ",".join(f"{layer}dir={one}" for layer, one in zip(("lower", "upper", "work"), layers, strict=True))
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, mount], check=False).returncode:
        pytest.skip("mounting an overlay takes root and a kernel that has it")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


@contextmanager
def taken_number(directory: Path) -> Iterator[None]:
    """The number of a device that was given back is in use again."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def test_h28_a_file_is_known_by_its_path_where_a_mount_has_another_device_number(mpich: Case) -> None:
    with overlay(mpich.directory, "mnt") as mount:
        there = replace(mpich, directory=mount)
        there.publish(there.columns())
        was = there.original.stat()
    with taken_number(mpich.directory / "tmpfs"):
        with overlay(mpich.directory, "mnt"):
            now = there.original.stat()
            assert (now.st_ino == was.st_ino, now.st_dev == was.st_dev) == (True, False)
            assert total(there.compare("independent", ranks=1), "replica", "bytes") > 0
        with overlay(mpich.directory, "elsewhere") as mount:
            elsewhere = replace(mpich, directory=mount)
            assert total(elsewhere.compare("independent", ranks=1), "replica", "bytes") == 0
        with overlay(mpich.directory, "mnt"):
            there.original.write_bytes(there.content())
            os.utime(there.original, ns=(was.st_atime_ns, was.st_mtime_ns))
            assert total(there.compare("independent", ranks=1), "replica", "bytes") == 0


def test_h39_reads_beyond_two_gibibytes_by_calls_of_large_counts(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    start = 5 << 29
    columns = Replica(size=7680, start=start, length=96, loops=[(40, 192, 96), (2, 96, 3840)])
    file = tmp_path / "case/redirected/39/a"
    file.parent.mkdir(parents=True)
    with file.open("wb+") as out:
        out.truncate(start + 10_000)
        out.seek(start)
        out.write(bytes(i * 7 % 251 for i in range(10_000)))
        out.flush()
        with mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ) as content:
            columns.build(content, tmp_path / "replica")  # type: ignore[arg-type]
    (tmp_path / "case/native").symlink_to("redirected")
    write_map(tmp_path / "case/replicas.map", [(file, [columns])])
    text = tmp_path / "text"
    text.write_text(f"""program 39
        open 0 a r world
        view 0 {start}|{start + 96} b r(0,192,c(96,b)) native
        read_c 0 0 1000 b
        read_at_all_c 0 96 3000 b
        iread_at_c 0 5 700 b
        complete 0 wait
        view 0 0 b b native
        read_at 0 {start - 500} 1000 b
        ask 0 {start}
        """)
    runner = Runner.prepare(mpi, tmp_path, library)
    native = runner.run(text, Job(2, "original"), tmp_path / "case", "native")
    assert runner.run(text, Job(2, "original"), tmp_path / "case", "redirected") == native
    reports = [json.loads(path.read_text()) for path in (tmp_path / "case/reports").glob("*/*.json")]
    assert total(reports, "replica", "bytes") == 2 * (1000 + 3000 + 700 + 500)


def test_h41_another_preloaded_tool_sees_what_it_saw(mpich: Case) -> None:
    tool = mpich.directory / "tool.so"
    sources = [f"-I{REPOSITORY / 'pdla/interpose'}", str(REPOSITORY / "tests/programs/tool.c")]
    compiled(["gcc", "-shared", "-fPIC", *sources, "-o", str(tool), "-ldl"])
    mpich.publish(mpich.columns())
    for both in (f"{tool}:{mpich.library}", f"{mpich.library}:{tool}"):
        beside = replace(mpich, library=Path(both))
        assert total(beside.compare("independent", "collective"), "replica", "bytes") > 0
