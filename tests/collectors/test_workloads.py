"""Generated benchmark traces: they touch the bytes that the benchmark would, and each phase is one signature."""

from __future__ import annotations

import numpy as np
import pytest

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.traces.trace import Trace

KIB, MIB = 1 << 10, 1 << 20

REGULAR = {
    "ior segmented": (
        workloads.ior(8, 4 * MIB, 64 * KIB),
        ["{READ, 0, 2, ([65536, 65536, 64], [4194304, 65536, 8]r), 1}"] * 2,
    ),
    "ior strided": (
        workloads.ior(8, 64 * KIB, 64 * KIB, 64, collective=True),
        ["{READ, 0, 2, ([524288, 65536, 64], [65536, 65536, 8]r), 1}"] * 2,
    ),
    "ior with transfers smaller than its blocks": (
        workloads.ior(8, 64 * KIB, 16 * KIB, 64),
        ["{READ, 0, 3, ([16384, 16384, 4], [524288, 16384, 64], [65536, 16384, 8]r), 1}"] * 2,
    ),
    "pio-bench simple strided": (
        workloads.pio_simple_strided(8, 4096, 100),
        ["{READ, 0, 2, ([32768, 4096, 100], [4096, 4096, 8]r), 1}"],
    ),
    "pio-bench nested strided": (
        workloads.pio_nested_strided(8, 4096, 10, 20, 10**6),
        ["{READ, 0, 3, ([32768, 4096, 10], [1000000, 4096, 20], [4096, 4096, 8]r), 1}"],
    ),
    "pio-bench segmented": (
        workloads.pio_segmented(8, 4096, 100),
        ["{READ, 0, 2, ([4096, 4096, 100], [409600, 4096, 8]r), 1}"],
    ),
    "pio-bench tiled": (
        workloads.pio_tiled((2, 4), 4096, 16, 8),
        ["{READ, 0, 4, ([4096, 4096, 8], [131072, 4096, 16], [32768, 4096, 4]r, [2097152, 4096, 2]r), 1}"],
    ),
    "mpi-tile-io with overlap": (
        workloads.mpi_tile_io(4, 2, 16, 32, 8, 2, 4, header_bytes=512, collective=True),
        ["{READ, 512, 3, ([464, 128, 32], [112, 128, 4]r, [12992, 128, 2]r), 1}"],
    ),
    "hpio three times": (
        workloads.hpio(8, 64, 256, 128, repetitions=3),
        ["{WRITE, 0, 2, ([3072, 256, 64], [384, 256, 8]r), 3}"],
    ),
    "btio full": (
        workloads.btio((2, 2, 2), (16, 16, 16), 5),
        [
            "{WRITE, 0, 6, ([640, 320, 8], [10240, 320, 8], [163840, 320, 5], "
            "[320, 320, 2]r, [5120, 320, 2]r, [81920, 320, 2]r), 1}"
        ],
    ),
    "coll_perf": (
        workloads.coll_perf((2, 2, 2), (32, 32, 32)),
        ["{READ, 0, 5, ([128, 64, 16], [4096, 64, 16], [64, 64, 2]r, [2048, 64, 2]r, [65536, 64, 2]r), 1}"] * 2,
    ),
    "flash-io": (
        workloads.flash_io(8),
        [
            "{WRITE, 0, 2, ([2621440, 327680, 24], [327680, 327680, 8]r), 1}",
            "{WRITE, 0, 2, ([1866240, 233280, 4], [233280, 233280, 8]r), 1}",
            "{WRITE, 0, 2, ([1310720, 163840, 4], [163840, 163840, 8]r), 1}",
        ],
    ),
    "lanl app 2, like; two signatures where two sizes take turns": (
        workloads.lanl_app2_like(8),
        [
            "{WRITE, 39845888, 2, ([5242880, 393216, 64], [393216, 393216, 8]r), 1}",
            "{WRITE, 37748736, 2, ([5242880, 262144, 64], [262144, 262144, 8]r), 1}",
            "{WRITE, 4194304, 2, ([262144, 32768, 128], [32768, 32768, 8]r), 1}",
            "{WRITE, 0, 2, ([32768, 4096, 128], [4096, 4096, 8]r), 1}",
        ],
    ),
}


@pytest.mark.parametrize(("trace", "notations"), REGULAR.values(), ids=REGULAR.keys())
def test_one_signature_for_each_phase_and_operation_of(trace: Trace, notations: list[str]) -> None:
    analysis = analyze(trace)
    written_too = [text.replace("READ", "WRITE") if place else text for place, text in enumerate(notations)]
    assert [str(signature) for signature in analysis.signatures] == written_too
    assert analysis.coverage == (1.0, 1.0)


def test_btio_simple_touches_the_bytes_of_btio_full_row_by_row() -> None:
    full, simple = (workloads.btio((1, 2, 4), (8, 8, 8), 3, subtype) for subtype in ("full", "simple"))
    names = ["rank", "offset", "length"]
    assert full.accesses()[names].to_numpy().tolist() == simple.accesses()[names].to_numpy().tolist()
    assert ((full.records["op"] == "write").sum(), (simple.records["op"] == "write").sum()) == (24, 8 * 3 * 8 * 4)


def test_ior_reordered_reads_what_the_rank_before_wrote() -> None:
    accesses = workloads.ior(4, 2, 1, reorder_tasks=True).accesses()
    of_rank_0 = accesses[accesses["rank"] == 0]
    assert of_rank_0["offset"].tolist() == [0, 1, 6, 7]
    assert of_rank_0["op"].tolist() == ["write", "write", "read", "read"]


def test_ior_random_is_its_own_transfers_in_another_order() -> None:
    accesses = workloads.ior(4, MIB, 4 * KIB, operations=["read"], random_offset=True).accesses()
    of_rank_1 = accesses["offset"][accesses["rank"] == 1].to_numpy()
    assert sorted(of_rank_1.tolist()) == list(range(MIB, 2 * MIB, 4 * KIB))
    assert np.any(np.diff(of_rank_1) < 0)


def test_ior_with_a_file_for_each_rank_has_as_many_files() -> None:
    trace = workloads.ior(3, 2, 1, file_per_proc=True)
    assert trace.files["path"].tolist() == [f"/ior/testFile.{rank:08}" for rank in range(3)]
    assert trace.files["ranks"].tolist() == [1, 1, 1]
    assert trace.accesses()["offset"].tolist() == [0, 1, 0, 1] * 3


def test_random_strided_ranks_stay_together() -> None:
    accesses = workloads.pio_random_strided(4, 100, 50).accesses()
    by_rank = accesses["offset"].to_numpy().reshape(4, 50)
    assert np.diff(by_rank, axis=0).tolist() == [[100] * 50] * 3
    assert np.diff(by_rank[0]).min() >= 400


def test_a_phase_is_an_open_a_view_data_calls_and_a_close() -> None:
    records = workloads.coll_perf((1, 1, 1), (4, 4, 4)).records
    assert records["kind"].tolist() == [
        f"MPI_File_{name}"
        for name in ("open", "set_view", "write_at_all", "close", "open", "set_view", "read_at_all", "close")
    ]
    assert records["view"].tolist() == [0, 0, 1, 0, 0, 0, 2, 0]
    assert records["t_start"].tolist() == [0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007]


def test_generated_traces_are_traces_like_any_other(tmp_path) -> None:
    trace = workloads.mpi_tile_io(2, 2, 4, 4, 8)
    write_trace(trace, tmp_path / "tile.h5")
    again = read_trace(tmp_path / "tile.h5")
    assert again.accesses().to_numpy().tolist() == trace.accesses().to_numpy().tolist()
    assert again.notes == ("generated, not recorded: its times are made up",)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"blockSize must be a multiple of transferSize \(got 10, 4\)"):
        workloads.ior(2, 10, 4)
    with pytest.raises(
        ValueError, match=r"sizes must be multiples of the process grid \(got \(4, 4, 5\) on \(2, 2, 2\)"
    ):
        workloads.coll_perf((2, 2, 2), (4, 4, 5))
