"""Only patterns that say much less than the list of their accesses are signatures; what is random has none."""

from __future__ import annotations

import numpy as np
import pytest

from pdla.analyzers.analysis import Analysis, analyze
from pdla.collectors import workloads
from pdla.traces.trace import Trace
from tests.support.handmade_traces import Call, make_trace

KIB = 1 << 10


def random_ior(ranks: int, requests: int, seed: int = 0) -> Trace:
    return workloads.ior(ranks, requests * 16 * KIB, 16 * KIB, operations=["read"], random_offset=True, seed=seed)


def reads(starts: dict[int, list[int]]) -> Analysis:
    return analyze(make_trace([Call(rank, "read", at, 64) for rank, places in starts.items() for at in places]))


@pytest.mark.parametrize(
    ("ranks", "requests"), [(1, 64), (2, 64), (4, 32), (8, 4), (8, 64), (16, 16), (64, 4), (32, 128), (256, 16)]
)
def test_random_accesses_have_no_signatures(ranks: int, requests: int) -> None:
    for seed in range(3):
        analysis = analyze(random_ior(ranks, requests, seed))
        assert analysis.signatures == ()
        assert [(part.rank, part.requests) for part in analysis.irregular] == [
            (rank, requests) for rank in range(ranks)
        ]
        assert (analysis.owner == -1).all()


def test_a_regular_pattern_beside_random_accesses_is_the_only_signature() -> None:
    rng = np.random.default_rng(0)
    places = rng.permutation(8 * 64).reshape(8, 64) * 64
    starts = {
        rank: [*places[rank, :32], *(10**6 + rank * 64 + i * 512 for i in range(5)), *places[rank, 32:]]
        for rank in range(8)
    }
    assert [str(one) for one in reads(starts).signatures] == ["{READ, 1000000, 2, ([512, 64, 5], [64, 64, 8]r), 1}"]


def test_a_run_needs_three_times_as_many_accesses_as_numbers() -> None:
    """Start, length, stride and count are four numbers."""
    odd = (np.random.default_rng(0).permutation(200) ** 2 * 777).tolist()
    for requests, signatures in ((11, 0), (12, 1)):
        analysis = reads({0: [*odd[:100], *(10**8 + i * 100 for i in range(requests)), *odd[100:]]})
        assert len(analysis.signatures) == signatures
        assert sum(part.requests for part in analysis.irregular) == 200 + 11 * (not signatures)


def test_the_ranks_of_a_pattern_are_numbers_too() -> None:
    """Two loops, start and length are six; four ranks in a row are three more, and any four are four."""
    odd = np.random.default_rng(0).permutation(10 * 100).reshape(10, 100) ** 2 * 777
    for ranks, requests, signatures in (
        ((3, 4, 5, 6), 7, 1),
        ((3, 4, 5, 6), 6, 0),
        ((2, 8, 3, 7), 8, 1),
        ((2, 8, 3, 7), 7, 0),
    ):
        starts = {rank: odd[rank].tolist() for rank in range(10)}
        for place, rank in enumerate(ranks):
            starts[rank][50:50] = [10**9 + place * 10**5 + i * 100 for i in range(requests)]
        assert [one.ranks for one in reads(starts).signatures] == [ranks] * signatures


@pytest.mark.parametrize("ranks", [2, 5, 64])
def test_a_request_of_each_rank_is_a_pattern_if_all_ranks_are_in_it(ranks: int) -> None:
    (signature,) = reads({rank: [rank * 1000] for rank in range(ranks)}).signatures
    assert (signature.requests, signature.rank_loops) == (ranks, 1)


def test_few_accesses_that_a_stream_consists_of_are_patterns() -> None:
    assert [str(one) for one in reads({0: [0]}).signatures] == ["{READ, 0, 1, ([0, 64, 1]), 1}"]
    assert [str(one) for one in reads({0: [0, 100, 200], 1: [7000, 7300, 7600]}).signatures] == [
        "{READ, 0, 1, ([100, 64, 3]), 1}",
        "{READ, 7000, 1, ([300, 64, 3]), 1}",
    ]


def test_many_short_runs_at_random_places_are_irregular() -> None:
    places = (np.random.default_rng(0).permutation(100) ** 2 * 10**4).tolist()
    for length, signatures in ((3, 0), (12, 100)):
        analysis = reads({0: [place + i * 64 for place in places for i in range(length)]})
        assert len(analysis.signatures) == signatures


def test_large_blocks_beside_small_metadata_are_patterns() -> None:
    """As HDF5 writes: four blocks of each rank, and more pieces of metadata by rank 0."""
    blocks = [Call(rank, "write", 2048 + (rank * 4 + i) * 256 * KIB, 256 * KIB) for rank in range(4) for i in range(4)]
    metadata = [Call(0, "write", at, 100) for at in (0, 1500, 800, 96, 1700, 1200, 300)]
    analysis = analyze(make_trace([*metadata, *blocks]))
    assert [str(one) for one in analysis.signatures] == [
        "{WRITE, 2048, 2, ([262144, 262144, 4], [1048576, 262144, 4]r), 1}"
    ]
    assert sum(part.requests for part in analysis.irregular) == 7
