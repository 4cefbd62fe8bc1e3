"""The data behind the report's other pictures: bytes by rank, bandwidth over time, loops, data to zoom into."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.model import Growth, Loop, Signature
from pdla.report.activity import activity_picture, busy, extent_picture, touched
from pdla.report.loop_diagrams import Level, levels, loops_picture
from pdla.report.raster import spread
from pdla.report.zoom import zoom_data

INTERVALS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 100), st.integers(0, 10**9), st.integers(0, 2)))


def whole(amounts: list[int], cells: int, places: list[tuple[int, int]], group: list[int]) -> np.ndarray:
    """The same as ``spread``, one interval after the other, where the cells are of one unit each."""
    found = np.zeros((3, cells))
    for (start, stop), amount, row in zip(places, amounts, group, strict=True):
        for cell in range(start, max(stop, start + 1)):
            found[row, cell] += amount / max(stop - start, 1)
    return found


@given(INTERVALS)
def test_amounts_are_spread_evenly_over_their_intervals(rows: list[tuple[int, int, int, int]]) -> None:
    places = [(min(a, b), max(a, b)) if a != b else (a, a) for a, b, _, _ in rows]
    start, stop = (np.array([place[i] for place in places], np.int64) for i in (0, 1))
    amount, group = (np.array([row[i] for row in rows], np.int64) for i in (2, 3))
    found = spread((start, stop), amount, group, 3, (0.0, 100.0), 100)
    right = whole(amount.tolist(), 100, places, group.tolist())
    assert found == pytest.approx(right, rel=1e-9, abs=1e-5)
    assert found.sum() == pytest.approx(float(amount.sum()), rel=1e-9)


def test_every_byte_moved_is_in_the_cell_of_its_rank_and_extent() -> None:
    trace = workloads.mpi_tile_io(4, 4, 64, 64, 32)  # 16 ranks, tiles of 64 rows of 2 KiB in a matrix of 2 MiB
    found = touched(trace.accesses(), 16)
    assert (found.per_row, found.start, found.width) == (1, 0, 8389)
    assert found.moved.sum(axis=1).tolist() == [131072.0] * 16
    # Rank 0's tile ends 2 KiB into the last row of the first quarter of the file.
    assert int(np.flatnonzero(found.moved[0]).max()) == 518143 // 8389
    assert int(np.flatnonzero(found.moved[15]).min()) == 1579008 // 8389


def test_ranks_beyond_64_share_rows() -> None:
    trace = workloads.pio_simple_strided(200, 512, 3)
    found = touched(trace.accesses(), 200)
    assert found.per_row == 4
    assert found.moved.shape == (50, 250)
    assert found.moved.sum(axis=1).tolist() == [4 * 3 * 512.0] * 50


def test_the_bandwidth_over_time_adds_up_to_the_bytes() -> None:
    accesses = workloads.ior(4, 65536, 4096, 3).accesses()
    found = busy(accesses)
    seconds = (found.stop - found.start) / 250
    moved = {op: float(rate.sum() * seconds) for op, rate in found.rate.items()}
    assert moved == {
        op: pytest.approx(float(part["length"].sum())) for op, part in accesses.groupby("op", observed=True)
    }


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_pictures_of_any_accesses_can_be_drawn(rows: int) -> None:
    accesses = workloads.pio_simple_strided(4, 512, 10).accesses()[:rows]
    assert [axes.get_ylabel() for axes in activity_picture(accesses).axes] == ["all ranks", "size of requests"]
    assert extent_picture(accesses, ranks=4).axes[0].get_xlabel() == "offset in the file"


def test_the_loops_of_a_signature_are_drawn_widest_first() -> None:
    tiles = analyze(workloads.mpi_tile_io(4, 4, 64, 64, 32)).signatures[0]
    assert str(tiles) == "{READ, 0, 3, ([8192, 2048, 64], [2048, 2048, 4]r, [524288, 2048, 4]r), 1}"
    assert levels(tiles) == [
        Level(524288, 4, 524288, 0, 4),
        Level(8192, 64, 8192, 1),
        Level(2048, 4, 2048, 0, 1),
    ]
    words = [text.get_text() for text in loops_picture(tiles).axes[0].texts]
    assert words == [
        "4 times along the ranks, 512 KiB apart", "512 KiB each",
        "...", "64 steps, 8 KiB apart", "8 KiB each",
        "4 times along the ranks, 2 KiB apart", "2 KiB each",
    ]  # fmt: skip


def test_loops_that_grow_or_stand_still_can_be_drawn_too() -> None:
    triangle = Signature(
        "a", "read", False, 0, 8, (Loop(800, 100), Loop(8, 1)), (0,), growth=(Growth(0, 0, 1), Growth())
    )
    assert [level.count for level in levels(triangle)] == [100, 50]
    again = Signature("a", "write", False, 0, 8, (Loop(0, 5),), (0,))
    assert levels(again) == []
    assert loops_picture(again).axes[0].texts[0].get_text() == "1 request"


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def test_the_data_to_zoom_into_are_the_accesses() -> None:
    accesses = workloads.pio_nested_strided(8, 4096, 20, 10, 1 << 24).accesses()
    told = zoom_data(accesses, 8)
    (panel,) = told["panels"]
    assert (panel["op"], panel["extents"], len(told["colours"])) == ("read", 1600, 8)
    raw = unpacked(panel["data"])
    columns = np.frombuffer(raw, "<f8", 4 * 1600).reshape(4, 1600)
    for column, name in zip(columns, ("t_start", "t_end", "offset"), strict=False):
        assert column.tolist() == accesses[name].tolist()
    assert columns[3].tolist() == [4096.0] * 1600
    assert list(raw[4 * 8 * 1600 :]) == accesses["rank"].tolist()


def test_too_many_accesses_become_cells_and_no_rank_is_lost() -> None:
    accesses = workloads.pio_nested_strided(64, 4096, 50, 20, 1 << 26).accesses()
    (panel,) = zoom_data(accesses, 64)["panels"]
    assert panel["cells"] == (1000, 240)
    shown = np.frombuffer(unpacked(panel["data"]), "u1")
    assert len(shown) == 240000
    assert set(shown.tolist()) == {*range(64), 255}
