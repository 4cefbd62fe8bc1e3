"""Dependences by byte range and time, against a byte array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import Call, make_trace

from pdla.analyzers.analysis import analyze
from pdla.analyzers.dependence import RAW, WAR, WAW, dependences, pattern_dependences
from pdla.collectors import workloads
from pdla.model import Trace

READ, WRITE = "read", "write"
KINDS = {(READ, READ): 0, (READ, WRITE): WAR, (WRITE, READ): RAW, (WRITE, WRITE): WAW}


def found(accesses: list[tuple[str, int, int, float]], file: int = 0) -> list[int]:
    """Flags of (op, offset, length, t_start)."""
    table = pd.DataFrame(accesses, columns=["op", "offset", "length", "t_start"]).assign(file=file)
    return dependences(table).tolist()


@pytest.mark.parametrize(
    ("accesses", "flags"),
    [
        ([(READ, 0, 10, 0.0), (READ, 0, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (WRITE, 10, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (READ, 9, 10, 1.0)], [RAW, RAW]),
        ([(READ, 0, 10, 0.0), (WRITE, 9, 10, 1.0)], [WAR, WAR]),
        ([(WRITE, 0, 10, 0.0), (WRITE, 9, 10, 1.0)], [WAW, WAW]),
        ([(WRITE, 0, 10, 0.0), (READ, 10, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (READ, 2, 3, 1.0), (WRITE, 4, 9, 2.0)], [RAW + WAW, RAW + WAR, WAR + WAW]),
        ([(READ, 0, 10, 1.0), (WRITE, 5, 10, 1.0)], [0, 0]),
    ],
)
def test_the_dependences_of(accesses: list[tuple[str, int, int, float]], flags: list[int]) -> None:
    assert found(accesses) == flags


def test_files_do_not_depend_on_each_other() -> None:
    table = pd.DataFrame({"file": [0, 1], "op": ["write", "read"], "offset": 0, "length": 8, "t_start": [0.0, 1.0]})
    assert dependences(table).tolist() == [0, 0]


access = st.tuples(st.sampled_from([READ, WRITE]), st.integers(0, 60), st.integers(1, 40), st.integers(0, 9).map(float))


@settings(deadline=None)
@given(st.lists(access, max_size=25))
def test_they_are_those_of_every_pair_that_shares_a_byte(accesses: list[tuple[str, int, int, float]]) -> None:
    expected = np.zeros(len(accesses), np.int64)
    for i, (op, offset, length, time) in enumerate(accesses):
        for j, (later_op, later_offset, later_length, later_time) in enumerate(accesses):
            shared = max(offset, later_offset) < min(offset + length, later_offset + later_length)
            if shared and time < later_time:
                expected[[i, j]] |= KINDS[op, later_op]
    assert found(accesses) == expected.tolist()


def test_every_access_that_overlaps_many_is_found() -> None:
    offsets = np.random.default_rng(0).integers(0, 10**6, 10**5)
    table = pd.DataFrame(
        {
            "file": 0,
            "op": np.array([READ, WRITE])[np.arange(10**5) % 2],
            "offset": offsets,
            "length": 100,
            "t_start": 0.0,
        }
    )
    table["t_start"] = np.arange(10**5) * 1e-6
    assert (dependences(table) > 0).mean() > 0.99


def of_patterns(trace: Trace) -> list[int]:
    """The flags of the signatures, which must be those of their accesses."""
    analysis, accesses = analyze(trace), trace.accesses()
    flags = pattern_dependences(analysis, accesses)
    of_access = dependences(accesses)
    assert flags == [
        int(np.bitwise_or.reduce(of_access[analysis.owner == number])) for number in range(len(analysis.signatures))
    ]
    return flags


@pytest.mark.parametrize(
    ("trace", "flags"),
    [
        (workloads.ior(4, 65536, 4096, 4), [RAW, RAW]),
        (workloads.ior(4, 65536, 4096, 4, reorder_tasks=True), [RAW, RAW]),
        (workloads.coll_perf((2, 2, 2), (8, 8, 8)), [RAW, RAW]),
        (workloads.hpio(4, 8, 256, 128, repetitions=3), [WAW]),
        (workloads.mpi_tile_io(2, 2, 8, 8, 4, 2, 2), [0]),
        (workloads.btio((2, 2, 2), (8, 8, 8), 3), [0]),
        (workloads.lanl_app2_like(4), [0, 0, 0, 0]),
        (workloads.ior(2, 1 << 21, 2048, operations=["write", "read"], random_offset=True), []),
    ],
)
def test_patterns_are_compared_as_their_accesses_would_be(trace: Trace, flags: list[int]) -> None:
    assert of_patterns(trace) == flags


def test_interleaved_regions_share_no_byte() -> None:
    calls = [Call(0, "write", at, 10) for at in range(0, 1000, 100)]
    calls += [Call(0, "read", at + 10, 90) for at in range(0, 1000, 100)]
    assert of_patterns(make_trace(calls)) == [0, 0]


nest = st.tuples(
    st.sampled_from([READ, WRITE]),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(-12, 24),
    st.integers(1, 5),
    st.integers(0, 60),
    st.integers(1, 3),
)


@given(st.lists(nest, min_size=1, max_size=5), st.integers(1, 3))
def test_random_nests_are_compared_as_their_accesses_would_be(
    nests: list[tuple[str, int, int, int, int, int, int]], ranks: int
) -> None:
    of_patterns(
        make_trace(
            [
                Call(rank, op, 100 + rank * 7 + start + stride * i + outer * j, length)
                for rank in range(ranks)
                for op, start, length, stride, count, outer, times in nests
                for j in range(times)
                for i in range(count)
            ]
        )
    )
