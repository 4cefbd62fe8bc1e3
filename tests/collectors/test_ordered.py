"""Ordered calls are placed only as far as the logs of all ranks agree on where the shared file pointer was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.collectors.rawlog import RECORD
from pdla.collectors.shared_pointer_order import Log, place

CALLS = [
    *("MPI_File_open", "MPI_File_set_view", "MPI_File_seek_shared", "MPI_File_write_ordered"),
    *("MPI_File_write_ordered_begin_c", "MPI_File_iwrite_shared", "MPI_File_sync"),
]
OPEN, VIEW, SEEK, ORDERED, SPLIT, ALONE, SYNC = range(len(CALLS))
FAILED = 1 << 10  # added to a call
APPEND, SEQUENTIAL = 128, 256

Step = tuple[int, int]  # the call, and the bytes asked for or sought


def log(steps: Sequence[Step], rank: int, ranks: int = 2, mode: int = 8, files: int = 1, program: int = 0) -> Log:
    """That of a process that opened "/f" ``files`` times and made these calls on the last."""
    records = np.zeros(len(steps), RECORD)
    for record, (call, size) in zip(records, steps, strict=True):
        record["call"], record["error"], record["file"] = call % FAILED, call // FAILED, files
        record["position"], record["length"] = (size, 0) if call == SEEK else (-1, size)
    about = {"comm_size": ranks, "comm_rank": rank, "amode": mode}
    known = dict.fromkeys(range(1, files + 1), ("/f", about))
    return Log(program, CALLS, known, {files}, lambda: iter(np.array_split(records, 2)))


def placed(logs: Sequence[Log]) -> list[dict[int, int]]:
    """Row -> position, of each log."""
    return [dict(zip(*(part.tolist() for part in found), strict=True)) if found else {} for found in place(logs)]


def two(*steps: tuple[int, int, int], mode: int = 8) -> list[dict[int, int]]:
    """Two ranks that make the same calls: (call, size on rank 0, size on rank 1)."""
    return placed([log([(call, sizes[rank]) for call, *sizes in steps], rank, mode=mode) for rank in range(2)])


def test_each_rank_begins_after_those_below_it_and_each_call_after_the_one_before() -> None:
    assert two((OPEN, 0, 0), (ORDERED, 10, 20), (SYNC, 0, 0), (SPLIT, 0, 5)) == [{1: 0, 3: 30}, {1: 10, 3: 30}]


def test_a_view_sets_the_pointer_to_0_and_a_seek_where_it_says() -> None:
    found = two((OPEN, 0, 0), (ORDERED, 1, 2), (SEEK, 100, 100), (ORDERED, 3, 4), (VIEW, 0, 0), (ORDERED, 5, 6))
    assert found == [{1: 0, 3: 100, 5: 0}, {1: 1, 3: 103, 5: 5}]


@pytest.mark.parametrize("seek", [(SEEK, -1, -1), (SEEK, 8, 16)])
def test_after_a_seek_to_somewhere_the_pointer_is_known_from_the_next_on(seek: Step) -> None:
    found = two((OPEN, 0, 0), seek, (ORDERED, 3, 4), (SEEK, 7, 7), (ORDERED, 5, 6))
    assert found == [{4: 7}, {4: 12}]


@pytest.mark.parametrize(
    "harm", [(ALONE, 4, 4), (ORDERED + FAILED, 4, 4), (SEEK + FAILED, 0, 0), (VIEW + FAILED, 0, 0)]
)
def test_a_rank_on_its_own_or_an_error_hides_the_pointer_up_to_the_next_view(harm: Step) -> None:
    steps = (ORDERED, 1, 1), (SEEK, 0, 0), (ORDERED, 1, 1), (VIEW, 0, 0), (ORDERED, 5, 6)
    assert two((OPEN, 0, 0), (ORDERED, 1, 2), harm, *steps) == [{1: 0, 7: 0}, {1: 1, 7: 5}]


def test_a_call_of_one_rank_alone_hides_the_pointer_from_all() -> None:
    alone = [(OPEN, 0), (ORDERED, 1), (ALONE, 4), (ORDERED, 1)]
    assert placed([log(alone, 0), log([(OPEN, 0), (ORDERED, 2), (ORDERED, 2)], 1)]) == [{1: 0}, {1: 1}]


def test_a_split_call_during_which_a_rank_may_have_moved_the_pointer_is_not_placed() -> None:
    during = [(OPEN, 0), (ORDERED, 1), (SPLIT, 1), (ALONE, 4)]
    assert placed([log(during, 0), log([(OPEN, 0), (ORDERED, 2), (SPLIT, 2)], 1)]) == [{1: 0}, {1: 1}]


def test_a_log_that_was_cut_short_ends_what_is_known_of_all() -> None:
    whole = [(OPEN, 0), (ORDERED, 1), (ORDERED, 1), (ORDERED, 1)]
    assert placed([log(whole, 0), log([(OPEN, 0), (ORDERED, 2)], 1)]) == [{1: 0}, {1: 1}]


def test_where_ranks_made_different_calls_nothing_is_known_from_there_on() -> None:
    one, other = [(OPEN, 0), (ORDERED, 1), (SPLIT, 1)], [(OPEN, 0), (ORDERED, 1), (ORDERED, 1)]
    assert placed([log(one, 0), log(other, 1)]) == [{1: 0}, {1: 1}]


def test_an_appended_file_has_its_pointer_at_an_end_that_is_not_known() -> None:
    found = two((OPEN, 0, 0), (ORDERED, 1, 2), (SEEK, 50, 50), (ORDERED, 1, 2), mode=8 | APPEND)
    assert found == [{3: 50}, {3: 51}]
    assert two((OPEN, 0, 0), (ORDERED, 1, 2), mode=4 | SEQUENTIAL) == [{}, {}]


STEPS = [(OPEN, 0), (ORDERED, 4)]


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([log(STEPS, 1), log(STEPS, 0)], [{1: 4}, {1: 0}]),  # a communicator whose order is not the world's
        ([log(STEPS, 0)], [{}]),  # the other left no log
        ([log(STEPS, 0), log(STEPS, 0)], [{}, {}]),
        ([log(STEPS, 0), log(STEPS, 1), log(STEPS, 0), log(STEPS, 1)], [{}] * 4),  # two communicators
        ([log(STEPS, 0), log(STEPS, 1), log(STEPS, 0, program=2), log(STEPS, 1, program=2)], [{1: 0}, {1: 4}] * 2),
        ([log(STEPS, 0, files=2), log(STEPS, 1, files=2)], [{1: 0}, {1: 4}]),
        ([log(STEPS, 0, files=2), log(STEPS, 1)], [{}, {}]),  # not the same open
    ],
)
def test_only_ranks_that_opened_a_file_together_are_taken_together(logs: list[Log], expected: list) -> None:
    assert placed(logs) == expected


@given(
    st.integers(2, 4).flatmap(
        lambda ranks: st.lists(
            st.tuples(
                st.sampled_from([VIEW, SEEK, ORDERED, SPLIT, ALONE]),
                st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks),
                st.integers(0, ranks - 1),
            ),
            max_size=20,
        ).map(lambda steps: (ranks, steps))
    )
)
def test_what_is_placed_is_where_a_pointer_went_that_ranks_moved_in_turn(
    program: tuple[int, list[tuple[int, list[int], int]]],
) -> None:
    ranks, steps = program
    made: list[list[Step]] = [[(OPEN, 0)] for _ in range(ranks)]
    went: list[dict[int, int]] = [{} for _ in range(ranks)]
    pointer, known = 0, True
    for number, (call, sizes, one) in enumerate(steps):
        pointer = 0 if call == VIEW else sizes[0] if call == SEEK else pointer
        known = (known and call != ALONE) or call == VIEW
        disturbed = call == SPLIT and steps[number + 1 : number + 2] and steps[number + 1][0] == ALONE
        for rank in [one] if call == ALONE else range(ranks):
            if call in (ORDERED, SPLIT) and known and not disturbed:
                went[rank][len(made[rank])] = pointer
            made[rank].append((call, sizes[0] if call == SEEK else sizes[rank]))
            pointer += 0 if call in (VIEW, SEEK) else sizes[rank]
    assert placed([log(steps, rank, ranks) for rank, steps in enumerate(made)]) == went
