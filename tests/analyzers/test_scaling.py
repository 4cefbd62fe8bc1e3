"""Traces at two numbers of ranks predict a third, or say why they do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pdla.analyzers.analysis import analyze
from pdla.analyzers.rank_scaling import Scaling, balanced_grid, fit, scale
from pdla.collectors import workloads
from pdla.errors import PdlaError
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace

TOTAL = 1 << 20
GRIDS = {4: (1, 2, 2), 8: (2, 2, 2), 16: (4, 2, 2), 32: (8, 2, 2)}

PROGRAMS: dict[str, Callable[[int], Trace]] = {
    "weak scaling, interleaved": lambda ranks: workloads.ior(ranks, 4096, 4096, 20),
    "weak scaling, nested": lambda ranks: workloads.ior(ranks, 65536, 4096, 20),
    "strong scaling, blocks": lambda ranks: workloads.ior(ranks, TOTAL // ranks, 4096),
    "tiles in a row": lambda ranks: workloads.mpi_tile_io(ranks, 1, 8, 16, 4, header_bytes=100),
    "overlapping tiles in a column": lambda ranks: workloads.mpi_tile_io(1, ranks, 8, 16, 4, overlap_y=2),
    "rows of a growing size in turn": lambda ranks: rows_in_turn(ranks),
    "flash-io": workloads.flash_io,
    "three regions, the later ones start where the ranks say": workloads.lanl_app2_like,
}


def rows_in_turn(ranks: int) -> Trace:
    """The ranks read rows 4 KiB apart in turn, all of 8 bytes, then all of 16, 24, ..., 5 for each rank there is."""
    return make_trace(
        [
            Call(rank, "read", (row * ranks + rank) * 4096, 8 * row + 8)
            for rank in range(ranks)
            for row in range(5 * ranks)
        ]
    )


def compare(program: Callable[[int], Trace], *sizes: int) -> Scaling:
    return scale({ranks: analyze(program(ranks)) for ranks in sizes})


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_four_and_eight_ranks_predict_sixteen(program: Callable[[int], Trace]) -> None:
    scaling = compare(program, 4, 8)
    assert predicted(scaling, 16) == accessed(program(16))


def predicted(scaling: Scaling, ranks: int) -> list[tuple[int, int, int, str]]:
    return sorted(
        (rank, offset, length, one.op)
        for one in scaling.at(ranks)
        for offset, rank, length in np.stack(one.expand(), axis=1).tolist()
    )


def accessed(trace: Trace) -> list[tuple[int, int, int, str]]:
    accesses = trace.accesses()
    return sorted(zip(accesses["rank"], accesses["offset"], accesses["length"], accesses["op"], strict=True))


def grid(ranks: int) -> Trace:
    return workloads.coll_perf(GRIDS[ranks], (16, 16, 16))


def test_a_process_grid_that_grows_in_one_dimension() -> None:
    assert predicted(compare(grid, 8, 16), 32) == accessed(grid(32))


def test_a_process_grid_with_another_number_of_dimensions_is_a_disagreement() -> None:
    assert compare(grid, 4, 8).disagreements[0] == "reads of /coll/file with 4 loops: 1 at 4, 0 at 8 ranks"


def test_the_notation_has_p_for_the_ranks() -> None:
    scaling = compare(PROGRAMS["weak scaling, interleaved"], 4, 8)
    assert [str(one) for one in scaling.signatures] == [
        "{READ, 0, 2, ([4096 P, 4096, 20], [4096, 4096, P]r)}",
        "{WRITE, 0, 2, ([4096 P, 4096, 20], [4096, 4096, P]r)}",
    ]
    assert scaling.disagreements == ()


def test_the_notation_has_growth_in_brackets() -> None:
    (one,) = compare(rows_in_turn, 4, 8).signatures
    assert str(one) == "{READ, 0, 2, ([4096 P, 8 (+ 8), 5 P], [4096, 8, P]r)}"


def test_a_third_number_of_ranks_can_contradict() -> None:
    def blocks(ranks: int) -> Trace:
        return workloads.ior(ranks, 4096, 4096, {2: 10, 4: 20, 8: 30}[ranks], operations=["read"])

    assert compare(blocks, 2, 4).disagreements == ()
    assert compare(blocks, 2, 4, 8).disagreements == (
        "reads of /ior/testFile with 2 loops: no rule gives the count of loop 1: 10 at 2, 20 at 4, 30 at 8 ranks",
    )


def test_another_number_of_patterns_is_a_disagreement() -> None:
    def more(ranks: int) -> Trace:
        return workloads.ior(ranks, 4096, 4096, 20, operations=["read"] if ranks == 4 else ["read", "write"])

    scaling = compare(more, 4, 8)
    assert scaling.disagreements == ("writes of /ior/testFile with 2 loops: 0 at 4, 1 at 8 ranks",)
    with pytest.raises(PdlaError, match="the traces disagree, so nothing can be predicted: writes of"):
        scaling.at(16)


def test_random_accesses_are_not_predicted() -> None:
    scaling = compare(lambda ranks: workloads.ior(ranks, 1 << 20, 2048, operations=["read"], random_offset=True), 2, 4)
    assert "are in signatures, the rest is irregular" in scaling.disagreements[0]


def test_ranks_among_which_the_pattern_does_not_divide() -> None:
    with pytest.raises(PdlaError, match=r"does not divide among 3 ranks: 1048576 / P is 349525 there"):
        compare(PROGRAMS["strong scaling, blocks"], 4, 8).at(3)


def test_one_number_of_ranks_is_not_enough() -> None:
    with pytest.raises(PdlaError, match=r"needs traces of two or more numbers of ranks \(got 1\)"):
        compare(workloads.flash_io, 4)


def test_the_rule_of_a_value() -> None:
    found = [fit({(4,): four, (8,): eight}) for four, eight in ((7, 7), (8, 16), (8, 4), (108, 116), (0, 0))]
    assert [str(*rules) for rules in found] == ["7", "2 P", "32 / P", "100 + 2 P", "0"]


def tiles(ranks: int) -> Trace:
    """One matrix of rows of tiles on the grid of MPI_Dims_create."""
    rows, columns = balanced_grid(ranks, 2)
    return workloads.mpi_tile_io(columns, rows, 8, 16, 4, header_bytes=100)


@pytest.mark.parametrize("ranks", [32, 64, 128])
def test_three_grids_that_grow_in_turn_predict_others(ranks: int) -> None:
    scaling = compare(tiles, 4, 8, 16)
    notation = "{READ, 100, 3, ([32 P2, 32, 16], [32, 32, P2]r, [512 P2, 32, P1]r)}"
    assert [str(one) for one in scaling.signatures] == [notation]
    assert predicted(scaling, ranks) == accessed(tiles(ranks))


def test_one_matrix_divided_among_more_and_more_ranks() -> None:
    def blocks(ranks: int) -> Trace:
        return workloads.coll_perf((1, *balanced_grid(ranks, 2)), (4, 32, 32))

    assert predicted(compare(blocks, 4, 8, 16), 64) == accessed(blocks(64))


def test_grids_that_nobody_can_continue_are_a_disagreement() -> None:
    def upright(ranks: int) -> Trace:
        columns, rows = balanced_grid(ranks, 2)
        return workloads.mpi_tile_io(columns, rows, 8, 16, 4)

    assert compare(upright, 4, 8, 16).disagreements == (
        "reads of /tile/file with 3 loops: its process grids are 2 x 2, 2 x 4, 4 x 4, not those of MPI_Dims_create: "
        "no other grid can be predicted",
    )


def test_square_grids_do_not_tell_one_size_from_the_other() -> None:
    scaling = compare(tiles, 4, 16)
    assert predicted(scaling, 64) == accessed(tiles(64))
    with pytest.raises(PdlaError, match=r"the traces do not tell whether a number is .* P1 or .* P2: add a trace of"):
        scaling.at(32)
