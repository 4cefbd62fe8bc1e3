"""Phases: opens, changes of the view and long pauses part a program's use of a file, whatever its clocks say."""

from __future__ import annotations

from collections.abc import Sequence

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


def test_bursts_with_long_pauses_between_them_are_phases() -> None:
    burst = np.arange(5) * 0.002
    trace = timed([np.concatenate([burst, burst + 1, burst + 2]), np.concatenate([burst, burst + 1, burst + 2]) + 0.01])
    assert described(find_phases(trace)) == [
        ("/data/a", 0, "open", 2, 10),
        ("/data/a", 1, "pause", 2, 10),
        ("/data/a", 2, "pause", 2, 10),
    ]
    assert find_phases(trace).of_call.tolist() == ([0] * 5 + [1] * 5 + [2] * 5) * 2


def test_a_rank_that_goes_on_while_the_others_pause_keeps_the_phase_open() -> None:
    burst = np.concatenate([np.arange(5) * 0.002, np.arange(5) * 0.002 + 1])
    assert len(find_phases(timed([burst, np.arange(500) * 0.002])).phases) == 1


def test_a_rank_without_calls_in_a_burst_is_in_the_right_phase_afterwards() -> None:
    burst = np.arange(5) * 0.002
    found = find_phases(timed([np.concatenate([burst, burst + 1]), burst + 1]))
    assert found.of_call.tolist() == [0] * 5 + [1] * 5 + [1] * 5
    assert [one.ranks for one in found.phases] == [1, 2]


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
