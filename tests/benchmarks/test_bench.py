"""The benchmarks' programs access what the originals would, and check each byte; the bench leaves nothing."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import results
from benchmarks.bench import failures_noted, too_small
from benchmarks.cache_nodes import STORAGE
from benchmarks.cache_runs import IMMEDIATE, ONCLOSE
from benchmarks.cache_runs import Case as Checkpoint
from benchmarks.cache_simulated import HIDDEN
from benchmarks.caches import cases as checkpoints
from benchmarks.cases import COLLECTIVE, H_LEASE, H_PDLA, INDEPENDENT, S_LEASE, S_ORIG, S_PDLA, SIEVING, ior_strided
from benchmarks.cleanup import workspace
from benchmarks.contestants import Run, bytes_of, fill
from benchmarks.doc_tables import placed, tables
from benchmarks.drift import Times
from benchmarks.loop_devices import attachments
from benchmarks.month import applications, schedule
from benchmarks.scale import Curve
from benchmarks.seeking import Model, compile_heads, seeking_obstacle, serve
from benchmarks.ssd_cache import full
from benchmarks.ssd_cache_plots import FIGURES, draw, gains
from benchmarks.ssd_cache_runs import FIRST, ORACLE, SECOND, WRITTEN, order_of
from benchmarks.storage import Counted
from benchmarks.table import Found, limit_of
from benchmarks.throttled import obstacle
from pdla.collectors import workloads
from pdla.traces.trace import Trace
from tests.support.compilers import compiled
from tests.support.mpi import REPOSITORY, available_mpis, unavailable
from tests.support.recorded_programs import Recorder

KIB = 1 << 10
SOURCES = REPOSITORY / "benchmarks/workloads"
BENCH = [sys.executable, "-m", "benchmarks.bench"]

mpich_only = pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)


def workload_program(recorder: Recorder, name: str) -> Path:
    sources = [str(SOURCES / f"{one}.c") for one in (name, "workload")]
    program = recorder.directory / name
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    compiled([recorder.mpi.mpicc, *flags, *sources, "-o", program])
    return program


def errors_of(bench: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines that it printed as errors, without those on benches that were killed before on this machine."""
    return [line for line in bench.stderr.splitlines() if not line.startswith("removing the remains of a killed bench")]


def extents(trace: Trace, op: str) -> list[tuple[int, int, int]]:
    accesses = trace.accesses()
    accesses = accesses[accesses["op"] == op]
    return sorted(zip(accesses["rank"], accesses["offset"], accesses["length"], strict=True))


def checkpoint_of_flash_io(blocks: int, variables: int) -> Trace:
    """Without the two plot files."""
    trace = workloads.flash_io(4, 16, 16, 16, blocks, variables)
    records = trace.records[trace.records["file"] == 0]
    return replace(trace, records=records, files=trace.files[:1])


@mpich_only
@pytest.mark.parametrize(
    ("name", "options", "generated"),
    [
        ("ior", "-t 8k -b 16k -s 8 --useFileView --collective", workloads.ior(4, 16 * KIB, 8 * KIB, 8, ["read"])),
        (
            "pio_nested",
            "--request_size 4k --requests 4 --groups 5 --group_stride 128k",
            workloads.pio_nested_strided(4, 4 * KIB, 4, 5, 128 * KIB),
        ),
        (
            "mpi_tile_io",
            "--nr_tiles_x 2 --nr_tiles_y 2 --sz_tile_x 8 --sz_tile_y 10 --sz_element 512 --overlap_x 2 --overlap_y 3"
            " --header_bytes 1k --bufferSize 16k",
            workloads.mpi_tile_io(2, 2, 8, 10, 512, 2, 3, KIB),
        ),
        ("hpio", "-c 20 -s 1k -p 512", workloads.hpio(4, 20, KIB, 512, "read")),
        ("btio", "--problem_size 8 --steps 2", workloads.btio((2, 2, 1), (8, 8, 8), 2, "simple", "read")),
        ("coll_perf", "--asize 32", workloads.coll_perf((2, 2, 1), (32, 32, 32))),
        ("flash_io", "--blocks 2 --variables 3", checkpoint_of_flash_io(2, 3)),
        (
            "parts",
            "--small 1k --medium 4k --large 8k --other 16k --smalls 6 --mediums 6 --larges 6",
            workloads.lanl_app2_like(4, 6, KIB, 4 * KIB, (8 * KIB, 16 * KIB)),
        ),
    ],
)
def test_programs_access_what_the_generators_say(recorder: Recorder, name: str, options: str, generated: Trace) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 1 << 20)
    trace = recorder.trace(4, workload_program(recorder, name), *options.split(), "--testFile", file)
    assert merged(extents(trace, "read")) == merged(extents(generated, "read") or extents(generated, "write"))


@mpich_only
def test_the_random_order_of_ior_is_known(recorder: Recorder) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 512 * KIB)
    trace = recorder.trace(4, workload_program(recorder, "ior"), "-b", "128k", "-t", "8k", "-z", "--testFile", file)
    accesses = trace.accesses()
    for rank in range(4):
        offsets = accesses["offset"][accesses["rank"] == rank].to_numpy()
        assert (offsets == (rank * 16 + order_of(rank, 16)) * 8 * KIB).all()


def merged(found: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """A call may take several neighbours at once."""
    longest: list[tuple[int, int, int]] = []
    for rank, offset, length in found:
        if longest and longest[-1][0] == rank and longest[-1][1] + longest[-1][2] == offset:
            longest[-1] = (rank, longest[-1][1], longest[-1][2] + length)
        else:
            longest.append((rank, offset, length))
    return longest


@mpich_only
def test_a_wrong_byte_fails_the_run(recorder: Recorder) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 64 * KIB)
    command = recorder.mpi.command(2, workload_program(recorder, "ior"), "-t", "8k", "-s", "4", "--testFile", file)
    assert json.loads(recorder.mpi.run(command))["wrong"] == 0
    with file.open("r+b") as opened:
        opened.seek(40_001)
        opened.write(b"?")
    environment = {**os.environ, **recorder.mpi.env}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[0])["wrong"] == 1


@mpich_only
def test_what_is_written_is_read_again(recorder: Recorder) -> None:
    file = recorder.directory / "file"
    file.touch()
    fill(file, 64 * KIB)
    options = ["-t", "8k", "-s", "2", "--numTasks", "4", "--setTimeStampSignature", "3", "--testFile", str(file)]
    program = workload_program(recorder, "ior")
    recorder.mpi.run(recorder.mpi.command(2, program, *options, "--writeFile"))
    assert json.loads(recorder.mpi.run(recorder.mpi.command(2, program, *options)))["wrong"] == 0


@mpich_only
def test_checkpoints_have_every_byte_and_a_computation_before_each_close(recorder: Recorder) -> None:
    for number in range(2):
        (recorder.directory / f"file.{number}").touch()
        fill(recorder.directory / f"file.{number}", 64 * KIB)
    options = ["-t", "8k", "-s", "4", "--writeFile", "--collective", "--useFileView", "--files", "2"]
    options += ["--pause", "20", "--work", "1", "--setTimeStampSignature", "3", "--testFile"]
    program = workload_program(recorder, "ior")
    said = recorder.mpi.run(recorder.mpi.command(2, program, *options, recorder.directory / "file"))
    result = json.loads(said.splitlines()[0])
    assert [bytes_of(recorder.directory / f"file.{i}", 64 * KIB, 3) for i in range(2)] == [64 * KIB] * 2
    assert (result["bytes"], result["wrong"]) == (128 * KIB, 0)
    assert [len(phases) for phases in result["files"]] == [5, 5]
    assert all(phases[2] >= 0.02 for phases in result["files"])
    assert result["elapsed"] >= 0.04
    assert result["memory"] > 1000


def test_a_cache_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """A wrong byte, or a program that fails, would fail the benchmark."""
    if obstacle():
        unavailable(obstacle())
    rows = tmp_path / "build/bench.json"
    script = f"from pathlib import Path; from benchmarks import results; results.BENCH = Path({str(rows)!r}); "
    script += "from benchmarks.caches import main; main()"
    (tmp_path / "disks").mkdir()
    rows.parent.mkdir()
    options = ["--smoke", "--rounds", "1", "--only", "*full cache*", "--directory", str(tmp_path / "disks")]
    command = [sys.executable, "-c", script, *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, errors_of(done)) == (0, [])
    (found,) = json.loads(rows.read_text())
    assert found["name"].startswith("caches: smoke disks, 2 nodes: full cache: IOR, 64 KiB, 2 ranks: E10")
    assert found["ratio"] > 0
    assert list((tmp_path / "disks").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize("case", [*checkpoints(2), *checkpoints(4)], ids=lambda case: case.title)
def test_checkpoints_without_a_cache_stop_before_the_bench_gives_up(case: Checkpoint) -> None:
    """Each piece is a request of the storage, and all ranks end the call that they began."""
    call = int(case.options[case.options.index("--bufferSize") + 1])
    pieces = call // case.piece * case.ranks
    assert case.files * pieces / STORAGE.requests_per_second < 300


@pytest.mark.thorough
def test_an_ssd_cache_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """A wrong byte, or a program that fails, would fail the benchmark."""
    if obstacle():
        unavailable(obstacle())
    rows = tmp_path / "build/bench.json"
    script = f"from pathlib import Path; from benchmarks import results; results.BENCH = Path({str(rows)!r}); "
    script += "from benchmarks.ssd_cache import main; main()"
    (tmp_path / "disks").mkdir()
    rows.parent.mkdir()
    options = ["--smoke", "--rounds", "1", "--amount", "2M", "--only", "*IOR*, read", "--directory"]
    command = [sys.executable, "-c", script, *options, str(tmp_path / "disks")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, errors_of(done)) == (0, [])
    found = {one["name"]: one for one in json.loads(rows.read_text())}
    begin = "ssd cache: smoke disks: IOR, 64 KiB, random, room for 20 %, read: "
    names = {"independent", FIRST, SECOND, S_ORIG, ORACLE, f"{SECOND}, of the oracle's gain"}
    assert found.keys() == {begin + one for one in (*names, *(f"{one}, x simulated" for one in (INDEPENDENT, SECOND)))}
    assert found[begin + SECOND]["ratio"] > 0
    assert list((tmp_path / "disks").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_rows_have_all_keys_and_replace_those_of_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "BENCH", tmp_path / "bench.json")
    results.keep([{"name": "a", "value": 1.0, "unit": "s"}, {"name": "b", "value": 2.0, "unit": "s", "goal": 3.0}])
    results.keep([{"name": "a", "value": 4.0, "unit": "s"}])
    empty = {"baseline": None, "ratio": None, "spread": None}
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert [datetime.fromisoformat(one.pop("at")).tzinfo for one in kept] == [UTC, UTC]
    assert kept == [
        {"name": "a", "value": 4.0, "unit": "s", "goal": None, **empty},
        {"name": "b", "value": 2.0, "unit": "s", "goal": 3.0, **empty},
    ]


def found(op: str, contestant: str, rates: Sequence[float], limit: float, replicated: float) -> list[dict[str, Any]]:
    """The rows of a contestant whose original is at 50 MB/s."""
    case = ior_strided(256 * KIB * KIB, 64 * KIB, 4, op)
    runs, originals = (
        [
            Run(rate * 1e6, rate * 2e6, [Counted(128, 2, 0.5)], 100_000_000, int(replicated * 100_000_000))
            for rate in one
        ]
        for one in (rates, [50.0] * len(rates))
    )
    layout = "1-DV on hdd" if replicated else ""
    return Found(case, contestant, runs, originals, [limit * 1e6] * len(rates), layout).rows("disks")


def test_the_limit_of_bytes_in_several_pools_is_that_of_one_part_after_the_other() -> None:
    limits = {"hdd": 100.0, "ssd": 300.0}
    assert limit_of([(8, "hdd")], limits) == 100
    assert limit_of([(400, "hdd+ssd"), (300, "ssd"), (100, "hdd")], limits) == 800 / 3


def test_tables_of_the_documentation_are_made_of_rows() -> None:
    every = [
        *found("write", INDEPENDENT, [50, 50, 50], 200, 0.0),
        *found("write", H_PDLA, [50, 49, 52], 200, 0.0),
        *found("write", H_LEASE, [150, 149, 152], 200, 1.0),
        *found("write", S_LEASE, [250, 240, 260], 300, 1.0),
        *found("read", INDEPENDENT, [50, 50, 50], 200, 0.0),
        *found("read", SIEVING, [100, 90, 110], 200, 0.0),
        *found("read", H_PDLA, [190, 192, 171], 200, 1.0),
        *found("read", S_PDLA, [51, 51, 51], 300, 0.01),
    ]
    summary, rates, leases, paper = tables({one["name"]: one for one in every})
    assert summary[2:] == [
        "| disks, read: H-PDLA | 1 of 1 | 3.8 | 1.9 | 0.95 | 1 of 1 |  | 11 % |",
        "| disks, read: S-PDLA | 0 of 1 |  |  |  |  |  | 0 % |",
        "| disks, write: H-PDLA | 0 of 1 |  |  |  |  | 1.00 | 6 % |",
        "| disks, write: H-PDLA, lease | 1 of 1 | 3.0 | 3.0 | 0.75 |  |  | 2 % |",
        "| disks, write: S-PDLA, lease | 1 of 1 | 5.0 | 5.0 | 0.83 |  |  | 8 % |",
    ]
    assert rates == [
        "| program, piece, ranks | independent | sieving | collective | PD | H-PDLA | S-PDLA | S-ORIG | NS-PDLA |",
        "|---|---|---|---|---|---|---|---|---|",
        "| IOR strided, 64 KiB, 4 ranks, read | 50 | 100 |  |  | 190 (0.95) | 51 (1 % replicated) |  |  |",
        "| IOR strided, 64 KiB, 4 ranks, write | 50 |  |  |  | 50 (no replica) |  |  |  |",
    ]
    assert leases[2:] == [
        "| IOR strided, 64 KiB, 4 ranks | 50 | no replica | 150, 3.0 times (0.75) | 250, 5.0 times (0.83) |"
    ]
    assert paper[2:] == [
        "| disks: IOR strided, 64 KiB, 4 ranks, read |  | 3.80 (1.84-10.70) |  | 0.27 |  |",
        "| disks: IOR strided, 64 KiB, 4 ranks, write |  | 3.00 (1.16-3.08) |  | 1.67 |  |",
    ]


def test_a_table_of_caches_has_a_line_for_each_contest() -> None:
    contest = "caches: disks, 2 nodes: contest: IOR, 16 KiB, 4 ranks: "
    found = {"independent": (3.61, 0.1), "E10, hidden": (102.8, 3.0), "E10, hidden, total time, x least": (23.4, 1.037)}
    every = {f"{contest}{name}": {"value": value, "ratio": ratio} for name, (value, ratio) in found.items()}
    (table,) = tables({**every, "caches: disks, 2 nodes: mover: IOR, 1 MiB, 2 ranks: seconds": {"value": 1.0}})
    assert table[2:] == ["| disks, 2 nodes: IOR, 16 KiB, 4 ranks | 3.6 |  |  |  |  |  | 103 |  | 1.04 |"]


def test_tables_of_caches_compare_with_the_simulator_and_with_equation_2() -> None:
    contest, equation = (f"caches: disks, 2 nodes: {one}: IOR, 1 MiB, 4 ranks: " for one in ("contest", "Eq. 2"))
    contestants = (INDEPENDENT, SIEVING, COLLECTIVE, IMMEDIATE, ONCLOSE, HIDDEN)
    times = {f"{contest}{one}, x simulated": {"ratio": 1 + i / 10} for i, one in enumerate(contestants)}
    said = {"mean absolute error": {"value": 0.121}, "pairs in order": {"value": 1.0}}
    ratios = {"perceived, x Eq. 2": 1.65, "perceived, x Eq. 2 with an early flush": 0.91, "total time, x least": 1.04}
    perceived = {name: {"value": 98.9, "ratio": ratio} for name, ratio in ratios.items()}
    _, computed, simulated = tables(
        times
        | {f"{contest}simulator: {what}": row for what, row in said.items()}
        | {f"{equation}computation of 0.75 flushes: {what}": row for what, row in perceived.items()}
    )
    assert computed[2:] == ["| 0.75 | 99 | 1.65 | 0.91 | 1.04 |"]
    case = "disks, 2 nodes: IOR, 1 MiB, 4 ranks"
    assert simulated[2:] == [f"| {case} | 1.00 | 1.10 | 1.20 | 1.30 | 1.40 | 1.50 | 12 % | 100 % |"]


def test_a_table_of_costs_has_what_an_earlier_version_found_beside_it() -> None:
    row = {"value": 16.6, "unit": "ns", "baseline": None, "ratio": None, "spread": 0.1, "goal": 20.0}
    name, fresh = "library: random reads", "overhead: IOR without a pattern, 8 ranks"
    (table,) = tables({name: row, fresh: row}, {name: {**row, "value": 27.5}})
    assert table[2:] == [f"| {name} | 27.5 | 16.6 ns |  | 10 % | 20 |", f"| {fresh} |  | 16.6 ns |  | 10 % | 20 |"]


def test_a_table_of_months_has_the_share_of_the_native_seconds_that_each_leaves() -> None:
    def month(name: str, left: float) -> dict[str, dict[str, Any]]:
        return {
            f"{name}: BTIO, 3 runs": {"value": 4.0 * left, "baseline": 4.0, "ratio": left, "unit": "s of I/O"},
            f"{name}: all, as a multiple of pdla's": {"value": 4.0, "ratio": 1 / left, "unit": "s of I/O"},
            f"{name}: background work": {"value": 7.0, "ratio": None, "unit": "s"},
        }

    (table,) = tables({**month("month", 0.5), **month("smoke month", 0.9), **month("month --writes=lease", 0.25)})
    assert table[2:] == ["| BTIO | 3 | 4.0 s | 0.50 |  | 0.25 |", "| **all** |  | 4.0 s | **0.50** |  | **0.25** |"]


def ssd_cache_rows() -> dict[str, dict[str, Any]]:
    """Of one case that reads and writes; the original is at 10 MiB/s, simulated 8."""
    case = "ssd cache: disks: HPIO, gaps of 0 B"
    measured = {"read: independent": (10.0, None), f"read: {FIRST}": (9.9, 10.0), f"read: {SECOND}": (40.2, 10.0)}
    measured |= {f"read: {SECOND}, of the SSDs": (40.2, 50.0), f"read: {SECOND}, x simulated": (40.2, 24.0)}
    measured |= {"read: independent, x simulated": (10.0, 8.0)}
    measured |= {"write: independent": (4.0, None), f"write: {WRITTEN}": (9.0, 4.0)}
    rows = {}
    for name, (value, baseline) in measured.items():
        ratio = None if baseline is None else value / baseline
        rows[f"{case}, {name}"] = {"value": value, "baseline": baseline, "ratio": ratio, "spread": 0.02}
    return rows


def test_tables_of_s4d_cache_have_a_line_for_each_case() -> None:
    rows = ssd_cache_rows()
    smoke = {name.replace("disks", "smoke disks"): one for name, one in rows.items()}
    reads, writes = tables({**rows, **smoke})
    first = "disks: HPIO, gaps of 0 B | 10.0"
    assert reads[2:] == [f"| {first} |  |  |  |  |  | 9.9 | 40 | 0.99 | 4.02 | 0.80 |  | 3.00 | 2 % |"]
    assert writes[2:] == ["| disks: HPIO, gaps of 0 B | 4.0 |  |  |  | 9.0 | 2.25 |  | 2 % |"]


def test_figures_of_s4d_cache_are_drawn_from_rows(tmp_path: Path) -> None:
    rows = ssd_cache_rows()
    assert gains(rows, "disks", "HPIO, gaps of 0 B", "read") == pytest.approx((4.02, 3.0))
    assert gains(rows, "disks", "HPIO, gaps of 0 B", "write") == (2.25, None)
    assert gains(rows, "disks", "HPIO, gaps of 1 KiB", "write") == (None, None)
    (tmp_path / "bench.json").write_text(json.dumps([{"name": name, **one} for name, one in rows.items()]))
    (picture,) = draw(tmp_path / "bench.json")
    assert picture == tmp_path / "bench-ssd-cache-disks.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    known = {case.title for case in full(1 << 20)}
    assert {case for figure in FIGURES for case in figure.cases.values()} <= known


def test_a_table_takes_the_place_of_the_one_with_its_first_row() -> None:
    table = ["| a | b |", "|---|---|", "| 3 | 4 |", "| 5 | 6 |"]
    assert placed("Text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n| c |\n", table) == (
        "Text\n\n| a | b |\n|---|---|\n| 3 | 4 |\n| 5 | 6 |\n\n| c |\n"
    )
    assert placed("Text\n", table) == "Text\n"


def test_the_bench_goes_on_after_what_fails_and_says_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed: list[str] = []
    with failures_noted("disks: IOR", failed):
        raise RuntimeError("ior: exit 1")
    assert (failed, capsys.readouterr().err) == (["disks: IOR"], "\ndisks: IOR: ior: exit 1\n")
    assert too_small(tmp_path, [ior_strided(1 << 20, 64 * KIB, 4)]) == ""
    assert "18,350,080 TiB are needed" in too_small(tmp_path, [ior_strided(1 << 60, 64 * KIB, 4)])


@pytest.mark.parametrize(("storage", "number"), [("disks", signal.SIGTERM), ("plain", signal.SIGINT)])
def test_nothing_is_left_after_a_signal(tmp_path: Path, storage: str, number: signal.Signals) -> None:
    if storage == "disks" and obstacle():
        unavailable(obstacle())
    command = [*BENCH, "--smoke", "--storage", storage, "--amount", "1M", "--directory", str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        try:
            while not list(tmp_path.glob("*/*/original-hdd/original")):
                assert bench.poll() is None
                time.sleep(0.05)
            bench.send_signal(number)
            assert bench.wait() == 128 + number
        finally:
            bench.kill()
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not [one for one in Path("/sys/block").glob("loop*/loop/backing_file") if str(tmp_path) in one.read_text()]


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := seeking_obstacle():
        unavailable(why)
    return compile_heads(tmp_path_factory.mktemp("heads") / "heads")


def test_disks_take_the_time_of_their_transfers_and_seeks(heads: Path, tmp_path: Path) -> None:
    """64 KiB take 1 ms; 64 KiB from the head, which is a quarter of the disk, they take 0.5 + 2 + 0.5 ms more."""
    model = Model(65_536_000, overhead=0.0005, shortest=0.001, longest=0.003, rotation=0.0005)
    with serve(heads, tmp_path / "disks", count=2, striped=256 * KIB, own=128 * KIB, model=model) as disks:
        striped = os.open(disks.striped, os.O_RDWR)
        own = [os.open(image, os.O_RDWR) for image in disks.images]
        content = os.urandom(192 * KIB)
        disks.set_timed(False)
        assert os.pwrite(striped, content, 0) == 192 * KIB
        disks.set_timed(True)
        unused = {"requests": 0, "bytes": 0, "seeks": 0, "distance": 0, "busy": 0.0}
        assert disks.counters() == [unused, unused]

        read = os.pread(striped, 128 * KIB, 0)  # a strip of each, at their heads
        read += os.pread(striped, 64 * KIB, 128 * KIB)  # the next of the first
        assert read == content
        assert os.pread(own[0], 64 * KIB, 0) == bytes(64 * KIB)  # goes on behind its strips
        os.pread(own[0], 64 * KIB, 0)  # 64 KiB back
        assert os.pwrite(own[1], content[: 32 * KIB], 0) == 32 * KIB  # behind a strip that nobody read
        assert disks.counters() == [
            {"requests": 4, "bytes": 262_144, "seeks": 1, "distance": 65_536, "busy": 0.007},
            {"requests": 2, "bytes": 98_304, "seeks": 1, "distance": 65_536, "busy": 0.0045},
        ]
        assert os.pread(own[1], 64 * KIB, 0) == content[: 32 * KIB] + bytes(32 * KIB)
        assert os.pread(own[1], 64 * KIB, 96 * KIB) == bytes(32 * KIB)
        with pytest.raises(OSError, match="No space left"):
            os.pwrite(own[1], b"?", 128 * KIB)
        for descriptor in (striped, *own):
            os.close(descriptor)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--disks 4", "name one directory to mount in"),
        ("--disks many /mnt", "--disks needs a number of at least 0 (got many)"),
        ("--disks 2.5 /mnt", "--disks needs a whole number from 1 to 16"),
        ("--disks 2 --strip 8 --striped 24 /mnt", "--striped must be a multiple of --disks times --strip"),
        (
            "--disks 2 --strip 8 --striped 32 --size 16 /mnt",
            "--size must be a whole number, more than each disk's part",
        ),
        ("--disks 2 --strip 8 --striped 32 --size 17 /mnt", "--bandwidth must be more than 0"),
    ],
)
def test_disks_say_what_is_wrong_with_their_options(heads: Path, options: str, said: str) -> None:
    done = subprocess.run([heads, *options.split()], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"seeking_disk: {said}")


KILLED = """
import sys, time
from pathlib import Path
from benchmarks.cleanup import workspace
from benchmarks.loop_devices import attached, file_system
from benchmarks.seeking import Model, serve
from benchmarks.throttled import HDD, throttled_disk

with (
    workspace(Path(sys.argv[2])) as scratch,
    serve(Path(sys.argv[1]), scratch / "heads", 1, 0, 16 << 20, Model(50e6)) as heads,
    attached(heads.images[0]) as loop,
    file_system(loop, scratch / "seeking") as seeking,
    throttled_disk(scratch, "throttled", 16 << 20, HDD) as throttled,
):
    (seeking / "file").write_bytes(bytes(1 << 20))
    (throttled / "file").write_bytes(bytes(1 << 20))
    (scratch / "ready").touch()
    time.sleep(60)
"""


def test_the_next_bench_removes_what_a_killed_one_has_left(heads: Path, tmp_path: Path) -> None:
    if obstacle():
        unavailable(obstacle())
    command = [sys.executable, "-c", KILLED, str(heads), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment) as killed:
        while not list(tmp_path.glob("*/ready")):
            assert killed.poll() is None
            time.sleep(0.02)
        (left,) = tmp_path.glob("pdla-bench-*")
        with workspace(tmp_path) as other:
            assert sorted(tmp_path.iterdir()) == sorted([left, other])
        killed.kill()
    assert len(list(left.iterdir())) > 1
    with workspace(tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]
    assert str(left) not in Path("/proc/mounts").read_text()
    assert not [file for _, file in attachments() if left in file.parents]
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(left) in read(one)]


def read(command: Path) -> str:
    """The command of a process; "" if it has ended."""
    try:
        return command.read_text()
    except OSError:
        return ""


def test_a_call_is_late_beyond_the_shortest_pause_of_the_run() -> None:
    """Two ranks of three calls that take 2 s; the second one pauses 1 s and 4 s, the first one 1 s each time."""
    begins = np.array([[0.0, 3.0, 6.0], [0.0, 3.0, 9.0]])
    times = Times(begins, begins + 2)
    assert times.takes == 2
    assert times.late.tolist() == times.late_in_all.tolist() == [[0, 0], [0, 3]]
    assert Times(begins, begins + np.array([0, 1, 0])).late.tolist() == [[1, 0], [1, 3]]
    assert times.apart == 0
    assert Times(begins[:, 1:], begins[:, 1:]).apart == 1.5


@pytest.mark.parametrize(("sizes", "power"), [([10, 100, 1000, 10_000], 1), ([4, 16, 64, 256], 2), ([4, 8], 0)])
def test_the_slope_of_a_curve_is_its_exponent_over_the_last_decade(sizes: list[int], power: int) -> None:
    seconds = [1.0, *(float(size**power) for size in sizes[1:])]
    assert Curve("it", sizes, seconds).slope == pytest.approx(power if len(sizes) > 2 else math.log(seconds[-1], 2))


def test_in_a_month_each_application_runs_in_all_its_versions_one_after_the_other() -> None:
    those = applications(32 << 20)
    runs = schedule(those, 20, random.Random(1))
    assert len(those) == len({one.name for one in those}) == 12
    assert [number for number, _ in runs] != sorted(number for number, _ in runs), "they take turns"
    for number, one in enumerate(those):
        made = [case for other, case in runs if other == number]
        assert 10 <= len(made) <= 30
        assert [case for i, case in enumerate(made) if i == 0 or case != made[i - 1]] == list(one.versions)
