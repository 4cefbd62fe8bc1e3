"""Phases follow from what a program does to a file, whatever its clocks say and however loaded its machine is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.analyzers.phases import Phases, find_phases
from pdla.collectors import workloads
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace


def described(phases: Phases) -> list[tuple[str, int, str, int, int]]:
    return [(one.file, one.phase, one.begins, one.ranks, one.calls) for one in phases.phases]


def timed(starts: Sequence[Sequence[float]], seconds: float = 0.001) -> Trace:
    """A trace of reads, with the starts of each rank's calls."""
    calls = [Call(rank, "read", 8 * place, 8) for rank, times in enumerate(starts) for place in range(len(times))]
    trace = make_trace(calls)
    start = np.concatenate([np.asarray(times, np.float64) for times in starts])
    trace.records["t_start"], trace.records["t_end"] = start, start + seconds
    return trace


def test_a_phase_begins_after_an_open_and_after_a_change_of_the_view() -> None:
    trace = workloads.coll_perf((1, 1, 2), (4, 4, 4))
    (write, read) = find_phases(trace).phases
    assert (write.begins, write.bytes_read, write.bytes_written) == ("open", 0, 4 * 4 * 4 * 4)
    assert (read.begins, read.bytes_read, read.bytes_written) == ("open", 4 * 4 * 4 * 4, 0)
    assert write.t_end <= read.t_start
    # The same with nothing but the view set in between.
    kinds = trace.records["kind"].astype(str)
    inside = kinds.isin(["MPI_File_open", "MPI_File_close"]) & (trace.records["call"] > 0) & (trace.records["call"] < 7)
    trace.records["kind"] = pd.Categorical(kinds.where(~inside, "MPI_File_get_size"))
    assert [one[2:] for one in described(find_phases(trace))] == [("open", 2, 2), ("view", 2, 2)]


def test_files_have_their_own_phases() -> None:
    found = find_phases(workloads.flash_io(2))
    assert [one[1:3] for one in described(found)] == [(0, "open")] * 3
    assert found.of_call.tolist() == [0] * len(found.of_call)


def bursts(count: int, calls: int, pause: float = 1.0) -> list[float]:
    """The starts of a rank's calls in ``count`` bursts."""
    return [burst * pause + call * 0.002 for burst in range(count) for call in range(calls)]


def late(starts: Sequence[float], seed: int, share: float) -> list[float]:
    """The same starts if the machine stops the program, for times of no typical length, before a ``share`` of calls."""
    random = np.random.default_rng(seed)
    delays = np.where(random.random(len(starts)) < share, 0.02 * (1 + random.pareto(0.7, len(starts))), 0)
    return (np.asarray(starts) + np.cumsum(delays)).tolist()


@pytest.mark.parametrize("share", [0.004, 0.05, 0.3])
@pytest.mark.parametrize("calls", [24, 60, 1000])
@pytest.mark.thorough(3)
def test_a_loop_without_pauses_is_one_phase_on_a_loaded_machine(calls: int, share: float) -> None:
    loop = bursts(1, calls)
    for seed in range(30):
        alone, together = late(loop, seed, share), np.asarray(late(loop, seed + 1000, share))
        assert len(find_phases(timed([alone])).phases) == 1
        assert len(find_phases(timed([together, together + 0.0003])).phases) == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_checkpoints_with_computation_between_them_are_phases_on_a_loaded_machine(share: float) -> None:
    for seed in range(30):
        starts = np.asarray(late(bursts(8, 25), seed, share))
        assert [one[2:] for one in described(find_phases(timed([starts, starts + 0.0003])))] == [
            ("pause" if place else "open", 2, 50) for place in range(8)
        ]


@pytest.mark.parametrize(("first", "last"), [(1, 0), (0, 13)])
def test_a_header_before_the_first_checkpoint_and_a_shorter_last_one_are_no_obstacle(first: int, last: int) -> None:
    starts = [time - 0.001 * (first > 0) for time in [0.0][:first]] + bursts(9, 25)[: 8 * 25 + last]
    phases = find_phases(timed([starts])).phases
    assert [one.calls for one in phases] == [25 + first] + [25] * 7 + [last] * (last > 0)


def test_pauses_at_places_that_do_not_recur_and_few_pauses_of_few_calls_part_nothing() -> None:
    uneven = np.concatenate([np.arange(calls) * 0.002 + begin for begin, calls in enumerate([20, 31, 17, 40, 25])])
    for starts in (uneven, bursts(2, 100), bursts(3, 5)):
        assert len(find_phases(timed([starts])).phases) == 1


def test_a_call_that_is_neither_read_nor_write_is_no_pause() -> None:
    trace = timed([bursts(8, 25)])
    assert len(find_phases(trace).phases) == 8
    sync = trace.records.iloc[[24 + 25 * burst for burst in range(7)]].copy()
    sync["kind"], sync["op"], sync["length"] = "MPI_File_sync", "other", 0
    sync["t_start"], sync["t_end"] = sync["t_end"], sync["t_end"] + 1 - 0.05
    records = pd.concat([trace.records.astype({"kind": str}), sync]).sort_values("t_start", kind="stable")
    records["kind"] = pd.Categorical(records["kind"])
    assert len(find_phases(replace(trace, records=records.reset_index(drop=True))).phases) == 1


@pytest.mark.parametrize(("pause", "phases"), [(0.002, 1), (0.1, 8)])
def test_the_recorders_own_pauses_are_not_those_of_the_program(pause: float, phases: int) -> None:
    """It writes its records after each 4096 of them. Here the open, which no other call follows, is the first."""
    starts = np.arange(8 * 4096) * 1e-5
    starts += np.arange(len(starts)) // 4096 * pause
    trace = timed([starts], seconds=8e-6)
    records = trace.records.assign(call=trace.records["call"] + 1)
    assert len(find_phases(replace(trace, records=records)).phases) == phases


def test_writing_after_reading_is_a_phase_of_its_own() -> None:
    """Rank 1 is slow: it still reads while rank 0 writes."""
    calls = [Call(rank, op, 8 * at, 8) for rank in range(2) for op in ("read", "write") for at in range(10 + 5 * rank)]
    assert described(find_phases(make_trace(calls))) == [
        ("/data/a", 0, "open", 2, 25),
        ("/data/a", 1, "operation", 2, 25),
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [Call(0, op, 8 * at, 8) for at in range(40) for op in ("read", "write")],
        [Call(rank, ("read", "write")[rank], 8 * at, 8) for rank in range(2) for at in range(40)],
        [Call(rank, op, 0, 8) for rank, op in [(0, "read"), (0, "write"), (1, "write"), (1, "read")]],
    ],
    ids=["in turn", "by different ranks", "in different orders"],
)
def test_reading_and_writing_at_the_same_time_is_one_phase(calls: list[Call]) -> None:
    assert len(find_phases(make_trace(calls)).phases) == 1


def test_a_rank_that_goes_on_while_the_others_pause_keeps_the_phase_open() -> None:
    assert len(find_phases(timed([bursts(8, 25), bursts(8, 25)])).phases) == 8
    assert len(find_phases(timed([bursts(8, 25), np.arange(4000) * 0.002])).phases) == 1


def test_a_rank_without_calls_in_a_burst_is_in_the_right_phase_afterwards() -> None:
    found = find_phases(timed([bursts(8, 25), bursts(8, 5)[5:]]))
    assert found.of_call.tolist() == np.repeat(range(8), 25).tolist() + np.repeat(range(1, 8), 5).tolist()
    assert [one.ranks for one in found.phases] == [1] + [2] * 7


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_program_that_computes_after_each_call_is_in_one_phase(ranks: int) -> None:
    assert len(find_phases(timed([np.arange(20) * 1.0 + rank * 0.01 for rank in range(ranks)])).phases) == 1


def test_times_without_two_clear_classes_have_no_pause() -> None:
    for seed in range(20):
        starts = np.cumsum(np.random.default_rng(seed).exponential(size=1000))
        assert len(find_phases(timed([starts])).phases) == 1


def test_a_clock_that_is_set_back_parts_nothing() -> None:
    starts = np.arange(40) * 0.002
    starts[20:] -= 1000
    assert len(find_phases(timed([starts])).phases) == 1


def test_an_empty_trace_has_no_phases() -> None:
    assert find_phases(make_trace([])).phases == ()


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-5, 100), st.floats(-1, 5), st.sampled_from("ab")), max_size=40))
def test_every_call_is_in_a_phase_and_phases_follow_one_another(
    calls: list[tuple[int, float, float, str]],
) -> None:
    calls = sorted(calls, key=lambda call: call[0])
    trace = make_trace([Call(rank, "read", 0, 8, file) for rank, _, _, file in calls])
    trace.records["t_start"] = [start for _, start, _, _ in calls]
    trace.records["t_end"] = [start + seconds for _, start, seconds, _ in calls]
    found = find_phases(trace)
    assert sum(one.calls for one in found.phases) == len(calls) == len(found.of_call)
    for file in {one.file for one in found.phases}:
        assert [one.phase for one in found.phases if one.file == file] == list(
            range(sum(one.file == file for one in found.phases))
        )
