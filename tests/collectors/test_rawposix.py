"""The MPI call in which a POSIX call was made, from logs written by the tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pdla.collectors.rawlog import RECORD
from pdla.collectors.rawposix import Operations, PosixCalls, Records

PREAD, LINK = 0, 1
A, B = 7, 8  # rows of the trace's files; in the log they are 1 and 2


def log(*rows: tuple[int, int, int, int]) -> Records:
    """Records of (call, group, file in the log or the operation that a link names, time)."""
    records = np.zeros(len(rows), RECORD)
    for record, (call, group, named, time) in zip(records, rows, strict=True):
        record["call"], record["view"], record["t_start"] = call, group, time
        record["position" if call == LINK else "file"] = named
    return records


def operations(*rows: tuple[int, int, int, bool]) -> Operations:
    """MPI calls of (file, start, end, nonblocking or split)."""
    records = np.zeros(len(rows), RECORD)
    records["t_start"], records["t_end"] = [row[1] for row in rows], [row[2] for row in rows]
    files, long = np.array([row[0] for row in rows], np.int32), np.array([row[3] for row in rows])
    # Some at a time, as they are read.
    return Operations([(records[:1], files[:1], long[:1]), (records[1:], files[1:], long[1:])])


def enclosing(blocks: Sequence[Records], made: Operations) -> list[int]:
    def read() -> Iterator[Records]:
        return iter(blocks)

    calls = PosixCalls(read, ["pread"], {1: A, 2: B}, 0)
    found = [number for _, _, numbers in calls.blocks(made) for number in numbers.tolist()]
    assert calls.rows == len(found)
    return found


def test_the_calls_of_a_group_belong_to_the_operation_that_it_is_linked_to() -> None:
    made = operations((A, 0, 9, False), (A, 10, 19, False))
    # Two threads; the links come later, in another block than what they are about.
    blocks = [log((PREAD, 1, 1, 3), (PREAD, 2, 1, 4), (PREAD, 1, 1, 5), (PREAD, 0, 1, 6)), log((LINK, 2, 2, 0))]
    blocks.append(log((LINK, 1, 1, 0)))
    assert enclosing(blocks, made) == [1, 2, 1, 0]


def test_an_open_that_failed_has_its_calls_without_a_file() -> None:
    assert enclosing([log((PREAD, 1, 1, 3), (LINK, 1, 1, 0))], operations((-1, 0, 9, False))) == [1]


def test_of_several_operations_that_a_call_ends_the_file_decides() -> None:
    made = operations((A, 0, 50, True), (B, 1, 50, True), (B, 2, 50, True))
    block = log((PREAD, 1, 2, 30), (PREAD, 1, 1, 31), (LINK, 1, 1, 0), (LINK, 1, 2, 0), (LINK, 1, 3, 0))
    assert enclosing([block], made) == [2, 1]


def test_what_a_call_does_for_an_operation_that_it_does_not_end_is_found_by_the_time() -> None:
    made = operations((A, 0, 40, True), (A, 10, 60, True), (B, 0, 90, True), (A, 70, 75, False))
    # Tests that find nothing complete have groups without a link; one ends an operation on another file.
    block = log((PREAD, 1, 1, 20), (PREAD, 2, 1, 50), (PREAD, 3, 1, 65), (PREAD, 4, 1, 30), (LINK, 4, 3, 0))
    assert enclosing([block], made) == [1, 2, 0, 1]


def test_a_link_to_a_record_that_was_lost_links_nothing() -> None:
    assert enclosing([log((PREAD, 1, 1, 3), (LINK, 1, 9, 0))], operations((A, 0, 9, False))) == [0]


def test_calls_on_files_that_were_not_named_are_left_out() -> None:
    assert enclosing([log((PREAD, 1, 5, 3), (PREAD, 1, 1, 3), (LINK, 1, 1, 0))], operations((A, 0, 9, False))) == [1]
