"""A server's memory: writes return before the device serves them, sequential reads are read ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdla.model import Cluster, Device, Pool
from pdla.simulator import core
from pdla.simulator.machine import Machine
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import outcome_of
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import from_trace
from pdla.units import KiB
from tests.support.handmade_traces import Call, make_trace

PIECE = 64 * KiB
TRANSFER = PIECE * 1e-6
SEEK = 1.0


def outcome(calls: list[Call], memory: int = 0, read_ahead: int = 0, memory_depth: int = 0) -> core.Outcome:
    """On one disk, which needs a second for a request that does not follow the one before."""
    disk = Pool("hdd", "hdd", 1, ((0, 0.0), (1, SEEK)), 1e-6, 1e-6, None, 1, "directories", ("disk",))
    disk = replace(disk, device=Device(memory=memory, memory_depth=memory_depth, read_ahead=read_ahead))
    cluster = Cluster((disk,), "hdd", 1, PIECE, 1, 0.0, 0.0, 0.0, "test")
    workload, machine = from_trace(make_trace(calls, ())).at_once(), Machine(cluster)
    for size in workload.sizes:
        machine.add_file(size)
    return outcome_of(workload, machine, BASELINES[0], Replicas.of(None, workload, machine), log_room=1000)


def started(result: core.Outcome) -> list[int]:
    """Addresses in the order in which the device served them, in pieces."""
    return [int(one["address"]) // PIECE for one in result.log if core.EVENTS[one["what"]] == "started"]


def test_writes_return_at_once_while_memory_has_room():
    result = outcome([Call(0, "write", piece * PIECE, PIECE) for piece in range(4)], memory=4 * PIECE)
    assert result.seconds == 0.0
    assert result.settled == pytest.approx(4 * TRANSFER)
    assert result.busy.tolist() == pytest.approx([4 * TRANSFER, 0.0])


def test_a_write_for_which_there_is_no_room_waits_for_the_device():
    result = outcome([Call(0, "write", piece * PIECE, PIECE) for piece in range(4)], memory=2 * PIECE)
    assert result.seconds == pytest.approx(2 * TRANSFER)


def test_a_write_larger_than_memory_is_taken_alone():
    result = outcome([Call(0, "write", piece * PIECE, PIECE) for piece in range(3)], memory=1)
    assert result.seconds == pytest.approx(2 * TRANSFER)


def test_what_is_in_memory_is_written_in_the_order_of_the_addresses():
    pieces = [0, 5, 3, 7, 1]
    result = outcome([Call(0, "write", piece * PIECE, PIECE) for piece in pieces], memory=5 * PIECE)
    assert started(result) == [0, 1, 3, 5, 7]
    unsorted = outcome([Call(0, "write", piece * PIECE, PIECE) for piece in pieces])
    assert started(unsorted) == pieces


def test_no_more_writes_are_ordered_than_its_depth():
    pieces = [0, 9, 5, 3, 7, 1]
    found = outcome([Call(0, "write", piece * PIECE, PIECE) for piece in pieces], memory=6 * PIECE, memory_depth=3)
    # 0 is begun at once, and 9 and 5 wait behind it; each that is done lets in the next.
    assert started(found) == [0, 3, 5, 7, 9, 1]
    assert found.seconds == 0.0


def test_reads_in_sequence_find_what_was_read_ahead():
    result = outcome([Call(0, "read", piece * PIECE, PIECE) for piece in range(5)], read_ahead=2 * PIECE)
    assert started(result) == [0, 1, 4]
    assert result.seconds == pytest.approx((1 + 3 + 3) * TRANSFER)
    assert result.bytes == (5 * PIECE, 0)


def test_each_process_is_read_ahead_for_by_itself():
    calls = [Call(rank, "read", (10 * rank + piece) * PIECE, PIECE) for piece in range(4) for rank in range(2)]
    assert outcome(calls).seconds == pytest.approx(8 * TRANSFER + 7 * SEEK)
    assert outcome(calls, read_ahead=2 * PIECE).seconds == pytest.approx((2 * 1 + 2 * 3) * TRANSFER + 3 * SEEK)


def test_strided_reads_are_not_read_ahead():
    calls = [Call(0, "read", 2 * piece * PIECE, PIECE) for piece in range(4)]
    assert outcome(calls, read_ahead=2 * PIECE).seconds == outcome(calls).seconds == pytest.approx(4 * TRANSFER + 3)


def test_processes_in_turns_are_one_sequence():
    calls = [Call(piece % 5, "read", piece * PIECE, PIECE) for piece in range(5)]
    alone = [Call(0, "read", piece * PIECE, PIECE) for piece in range(5)]
    found, want = (outcome(program, read_ahead=2 * PIECE) for program in (calls, alone))
    # 1, 2 and 3 are read at once, 4 with what comes after it.
    assert started(found) == started(want) == [0, 1, 4]
    assert found.busy.tolist() == want.busy.tolist()


def test_what_is_being_read_ahead_is_waited_for():
    calls = [Call(rank, "read", piece * PIECE, PIECE) for rank, piece in ((0, 0), (1, 0), (0, 1), (1, 2))]
    found = outcome(calls, read_ahead=PIECE)
    assert started(found) == [0, 0, 1]
    returned = [float(one["time"]) for one in found.log if core.EVENTS[one["what"]] == "returned"]
    # Going back takes a seek; then 1 and 2 are read for both processes.
    assert returned == pytest.approx([TRANSFER, SEEK + 2 * TRANSFER, SEEK + 4 * TRANSFER, SEEK + 4 * TRANSFER])


def test_what_is_read_ahead_serves_once():
    calls = [Call(0, "read", piece * PIECE, PIECE) for piece in (0, 1, 2, 0, 1, 2)]
    assert started(outcome(calls, read_ahead=PIECE)) == [0, 1, 0, 1]
