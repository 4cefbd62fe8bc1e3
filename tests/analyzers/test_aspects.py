"""Aspects, dependences and phases of signatures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdla.analyzers.analysis import analyze
from pdla.analyzers.aspects import Aspects, describe
from pdla.analyzers.phases import WritePhase, find_phases, write_phases
from pdla.collectors import workloads
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace


def described(trace: Trace) -> list[Aspects]:
    return list(describe(trace, analyze(trace), find_phases(trace)))


def test_what_is_written_and_read_again_depends_on_the_writes() -> None:
    read, write = described(workloads.ior(4, 1 << 20, 1 << 17, 2))
    assert read == Aspects(
        "nested", "large", "fixed", 0.001, "once", "read-write", ("read-after-write",), phases=(1, 1)
    )
    assert write == replace(read, phases=(0, 0))


def test_regions_of_one_file_that_nobody_shares_are_independent() -> None:
    assert [(one.spatial, one.size, one.period, one.operation) for one in described(workloads.lanl_app2_like(2))] == [
        ("strided", "large", 0.002, "write-only"),
        ("strided", "large", 0.002, "write-only"),
        ("strided", "medium", 0.001, "write-only"),
        ("strided", "small", 0.001, "write-only"),
    ]


def test_bytes_written_again_and_again() -> None:
    (one,) = described(workloads.hpio(4, 8, 256, 128, repetitions=3))
    assert (one.repetition, one.operation, one.dependences) == ("repeated", "write-only", ("write-after-write",))
    assert str(one) == "strided, small, every 1 ms, repeated, write-only, write-after-write"


def test_two_calls_have_no_period() -> None:
    assert [one.temporal for one in described(workloads.ior(2, 4096, 2048, operations=["read"]))] == ["once"]


def test_calls_at_random_times_have_no_period() -> None:
    trace = make_trace([Call(0, "read", place * 100, 10) for place in range(50)])
    trace.records["t_start"] = np.cumsum(np.random.default_rng(0).exponential(size=50))
    (one,) = described(trace)
    assert (one.temporal, one.period, one.spatial) == ("random", 0.0, "strided")


def test_spatial_words() -> None:
    offsets = {"contiguous": [0, 8, 16], "strided": [0, 10, 20], "backwards": [20, 10, 0], "single": [7, 7, 7]}
    for word, places in offsets.items():
        assert [one.spatial for one in described(make_trace([Call(0, "read", at, 8) for at in places]))] == [word]


def test_spatial_words_of_what_grows() -> None:
    rows = make_trace([Call(0, "read", row * 800, 8 * row + 8) for row in range(9)])
    triangle = make_trace([Call(0, "read", row * 800 + at * 10, 8) for row in range(9) for at in range(row + 1)])
    assert [one.spatial for trace in (rows, triangle) for one in described(trace)] == ["variable", "triangular"]


def test_phases_of_a_file_are_counted_by_its_opens_and_views() -> None:
    trace = workloads.coll_perf((1, 1, 2), (4, 4, 4))
    assert [
        (str(s).split(",")[0], one.phases) for s, one in zip(analyze(trace).signatures, described(trace), strict=True)
    ] == [
        ("{READ", (1, 1)),
        ("{WRITE", (0, 0)),
    ]


def test_phases_of_one_file_leave_those_of_another_alone() -> None:
    assert [one.phases for one in described(workloads.flash_io(2))] == [(0, 0), (0, 0), (0, 0)]


def test_the_owner_of_each_access_is_the_signature_that_holds_it() -> None:
    trace = workloads.lanl_app2_like(4, requests=16)
    analysis, accesses = analyze(trace), trace.accesses()
    for number, signature in enumerate(analysis.signatures):
        mine = accesses[analysis.owner == number]
        columns = [mine[name] for name in ("offset", "rank", "length")]
        assert sorted(zip(*signature.expand(), strict=True)) == sorted(zip(*columns, strict=True))


def test_irregular_accesses_have_no_owner_and_no_aspects() -> None:
    trace = make_trace([Call(0, "write", offset, 8) for offset in (5, 900, 17, 300)])
    assert analyze(trace).owner.tolist() == [-1] * 4
    assert described(trace) == []


def test_which_files_a_program_opens_again_after_it_has_written_them() -> None:
    (phases,) = write_phases(workloads.ior(2, 100, 100, 3, ["write", "write"])).values()
    assert [(one.bytes, one.opened_again) for one in phases] == [(600, True), (600, False)]


def test_phases_without_an_open_between_them_are_one_use_of_a_file() -> None:
    files = ["/data/a", "/data/a", "/data/b", "/data/c", "/data/c"]
    calls = [Call(0, op, 0, 100, file) for op, file in zip(["write"] * 4 + ["read"], files, strict=True)]
    trace = make_trace(calls)
    starts, ends = [0.0, 4.0, 7.5, 11.0, 20.0], [1.0, 5.0, 9.0, 12.0, 21.0]
    trace = replace(trace, records=trace.records.assign(t_start=starts, t_end=ends))
    assert write_phases(trace) == {
        "/data/a": (WritePhase(0.0, 5.0, 200, False),),
        "/data/b": (WritePhase(7.5, 9.0, 100, False),),
        "/data/c": (WritePhase(11.0, 21.0, 100, False),),
    }
    assert write_phases(replace(trace, records=trace.records.assign(op="read"))) == {}
