"""The simulator against known results: closed forms, queueing theory, bytes, an event log; programs and methods."""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.errors import ConfigError, PdlaError
from pdla.layouts.cost import layout_time
from pdla.model import Cluster, Device, Growth, Layout, Loop, Op, Pool, Signature
from pdla.policies.online import Online, Place, Request, Space, Wish, WriteBack, whole_pool
from pdla.policies.online import View as PolicyView
from pdla.policies.s4d import S4D
from pdla.simulator import core
from pdla.simulator.conformance import CLUSTER
from pdla.simulator.machine import Machine
from pdla.simulator.online import simulate_online
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import Result, outcome_of, simulate
from pdla.simulator.schemes import BASELINES, Scheme
from pdla.simulator.workload import Workload, from_signatures, from_trace
from pdla.traces.file_views import BLOCK, LOOP, View
from pdla.units import KiB, MiB
from tests.support.handmade_traces import Call, make_trace

SCHEMES = {scheme.name: scheme for scheme in BASELINES}


def pool(name: str = "hdd", kind: str = "hdd", servers: int = 4, startup: float = 0.0, b: float = 1e-6) -> Pool:
    where = tuple(f"{name}{number}" for number in range(servers))
    return Pool(name, kind, servers, ((0, startup),), b, b, None, 1, "directories", where)  # type: ignore[arg-type]


def cluster(
    *pools: Pool, strip: int = 64 * KiB, per_node: int = 1, e: float = 0.0, v: float = 0.0, buffer: int = 1 << 24
) -> Cluster:
    home = pools[0]
    return Cluster(
        pools, home.name, home.servers, strip, per_node, e, v, 0.0, "test", collective_buffer=buffer, sieve_write=0
    )


def simulated(calls: list[Call], storage: Cluster, scheme: str = "none", views: tuple[View, ...] = ()) -> Result:
    return simulate(from_trace(make_trace(calls, views)).at_once(), storage, SCHEMES[scheme])


def events(workload: Workload, storage: Cluster) -> list[tuple[float, str, int, int, int, int]]:
    """The log of a simulation: (time, what, rank, server or file, address or offset, length)."""
    machine = Machine(storage)
    for size in workload.sizes:
        machine.add_file(size)
    outcome = outcome_of(workload, machine, SCHEMES["none"], Replicas.of(None, workload, machine), log_room=10_000)
    return [(round(float(one["time"]), 9), core.EVENTS[one["what"]], *one.tolist()[2:]) for one in outcome.log]


# ---- one request, and rounds of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("servers", [1, 4, 8])
def test_a_request_alone_takes_the_closed_form(op: Op, servers: int) -> None:
    size = servers * 64 * KiB
    storage = cluster(pool(servers=servers, startup=0.25, b=1e-6), e=1e-3, v=1e-7)
    want = layout_time(1, 1, servers, 1, size, e=1e-3, v=1e-7, a=0.25, b=1e-6).total
    assert simulated([Call(0, op, 0, size)], storage).seconds == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(
    ("processes", "per_node", "servers"), [(8, 1, 8), (8, 1, 4), (16, 4, 8), (3, 1, 8), (32, 8, 4)]
)
@pytest.mark.parametrize("op", ["read", "write"])
def test_a_round_takes_no_longer_than_the_closed_form_and_no_less_than_its_longest_term(
    processes: int, per_node: int, servers: int, op: Op
) -> None:
    size = servers * 64 * KiB
    storage = cluster(pool(servers=servers, startup=0.01, b=1e-8), per_node=per_node, e=1e-3, v=1e-8)
    calls = [Call(rank, op, rank * size, size) for rank in range(processes)]
    cost = layout_time(processes, per_node, servers, 1, size, e=1e-3, v=1e-8, a=0.01, b=1e-8)
    longest = max(cost.connect, cost.network, cost.startup + cost.transfer)
    assert longest <= simulated(calls, storage).seconds * (1 + 1e-12) <= cost.total * (1 + 2e-12)


def test_a_round_in_which_nobody_meets_takes_the_closed_form() -> None:
    storage = cluster(pool(servers=8, startup=0.01, b=1e-8), e=1e-3, v=1e-8)
    calls = [Call(rank, "write", rank * 64 * KiB, 64 * KiB) for rank in range(8)]
    want = layout_time(8, 1, 8, 8, 64 * KiB, e=1e-3, v=1e-8, a=0.01, b=1e-8).total
    assert simulated(calls, storage).seconds == pytest.approx(want, rel=1e-12)


def test_an_exact_event_log() -> None:
    """Two ranks, two servers: the second rank's request waits for the device of server 0."""
    storage = cluster(pool(servers=2, startup=0.5, b=1 / (64 * KiB)))
    workload = from_trace(make_trace([Call(0, "read", 0, 128 * KiB), Call(1, "read", 128 * KiB, 64 * KiB)]))
    assert events(workload, storage) == [
        (0.0, "call", 0, 0, 0, 131072),
        (0.0, "queued", 0, 0, 0, 65536),
        (0.0, "started", 0, 0, 0, 65536),
        (0.0, "queued", 0, 1, 0, 65536),
        (0.0, "started", 0, 1, 0, 65536),
        (0.0, "call", 1, 0, 131072, 65536),
        (0.0, "queued", 1, 0, 65536, 65536),
        (1.5, "served", 0, 0, 0, 65536),
        (1.5, "started", 1, 0, 65536, 65536),
        (1.5, "served", 0, 1, 0, 65536),
        (1.5, "returned", 0, 0, 0, 131072),
        (3.0, "served", 1, 0, 65536, 65536),
        (3.0, "returned", 1, 0, 131072, 65536),
    ]


# ---- queues and devices ----------------------------------------------------------------------------------------------


def poisson(calls: int, rate: float, seed: int) -> Workload:
    """A rank whose calls of 1000 bytes begin at random times, ``rate`` of them a second."""
    one = from_trace(make_trace([Call(0, "read", 0, 1000)]))
    table = np.repeat(one.arrays["call"][:1], calls + 1)
    table["item"] = np.minimum(np.arange(calls + 1), calls)
    table["start"][:-1] = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, calls))
    arrays = {"call": table, "item": np.repeat(one.arrays["item"], calls), "first_call": np.array([0, calls])}
    return replace(one, arrays={**one.arrays, **arrays})


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_as_in_an_m_d_1_queue(load: float) -> None:
    """W = rho * s / (2 (1 - rho)) (Pollaczek, Khinchine), within 4 standard errors of 10 runs of 10,000 requests."""
    service = 1.0
    storage = cluster(pool(servers=1, b=service / 1000))
    waits = [
        simulate(poisson(10_000, load / service, seed), storage, SCHEMES["none"], open_loop=True).wait
        for seed in range(10)
    ]
    error = np.std(waits, ddof=1) / math.sqrt(len(waits))
    assert abs(np.mean(waits) - load * service / (2 * (1 - load))) < 4 * error


def test_an_aligned_scan_runs_at_the_bandwidth_of_all_devices() -> None:
    storage = cluster(pool(servers=8, b=1e-8))
    calls = [Call(rank, "read", rank * 32 * MiB, 32 * MiB) for rank in range(4)]
    assert simulated(calls, storage).bandwidth == pytest.approx(8e8, rel=1e-12)


def test_a_far_request_starts_up_for_longer() -> None:
    disk = replace(pool(servers=1, b=0.0), startup=((0, 0.0), (1000, 1.0)))
    calls = [Call(0, "read", 0, 10), Call(0, "read", 10, 10), Call(0, "read", 520, 10), Call(0, "read", 9000, 10)]
    assert simulated(calls, cluster(disk)).seconds == pytest.approx(0 + 0 + 0.5 + 1.0)


def test_writes_may_start_up_for_longer_than_reads() -> None:
    ssd = replace(pool(servers=1, startup=0.25), device=Device(write_startup=((0, 1.0),)))
    assert simulated([Call(0, "read", 0, 1000)], cluster(ssd)).seconds == pytest.approx(0.251)
    assert simulated([Call(0, "write", 0, 1000)], cluster(ssd)).seconds == pytest.approx(1.001)


def test_where_start_up_and_transfer_overlap_the_longer_counts() -> None:
    volume = replace(pool(servers=1, startup=0.25), overlap=True)
    assert simulated([Call(0, "read", 0, 1000)], cluster(volume)).seconds == pytest.approx(0.25)
    assert simulated([Call(0, "read", 0, 500_000)], cluster(volume)).seconds == pytest.approx(0.5)


def test_where_requests_are_counted_only_a_reader_itself_goes_on() -> None:
    volume = replace(pool(servers=1), startup=((0, 0.0), (1, 1.0)), overlap=True)
    alone = [Call(0, "read", at * 1000, 1000) for at in range(4)]
    in_turns = [Call(at % 2, "read", at * 1000, 1000) for at in range(4)]
    assert simulated(alone, cluster(volume)).seconds == pytest.approx(0.004)
    assert simulated(in_turns, cluster(volume)).seconds == pytest.approx(3.001)


def test_channels_start_up_together_and_transfer_in_turn() -> None:
    ssd = replace(pool(servers=1, startup=1.0), device=Device(channels=4))
    calls = [Call(rank, "read", rank * 1000, 1000) for rank in range(8)]
    assert simulated(calls, cluster(ssd)).seconds == pytest.approx(2.008, abs=0.004)
    assert simulated(calls, cluster(pool(servers=1, startup=1.0))).seconds == pytest.approx(8.008)


def order_of_service(queue: str) -> list[int]:
    """The addresses in the order in which a disk serves them; the first is in progress when the others arrive."""
    disk = replace(pool(servers=1), device=Device(queue=queue, slice_seconds=0.0015))  # type: ignore[arg-type]
    calls = [Call(rank, "read", at * 1000, 1000) for rank, at in enumerate([5, 1, 7, 3, 6])]
    log = events(from_trace(make_trace(calls)), cluster(disk))
    return [address // 1000 for _, what, _, _, address, _ in log if what == "started"]


def test_queues_serve_in_their_order() -> None:
    assert order_of_service("fifo") == [5, 1, 7, 3, 6]
    assert order_of_service("elevator") == [5, 6, 7, 1, 3]
    assert order_of_service("cfq") == [5, 1, 7, 3, 6]


def test_cfq_gives_a_process_a_slice() -> None:
    disk = replace(pool(servers=1), device=Device(queue="cfq", slice_seconds=0.0025, idle_seconds=0.01))
    calls = [Call(rank, "read", (10 * rank + i) * 1000, 1000) for rank in range(2) for i in range(4)]
    log = events(from_trace(make_trace(calls)).at_once(), cluster(disk))
    assert [rank for _, what, rank, *_ in log if what == "started"] == [0, 0, 0, 1, 1, 1, 0, 1]


def test_rotation_is_random_and_the_seed_says_how() -> None:
    disk = replace(pool(servers=1, b=0.0), device=Device(rotation_seconds=1.0))
    workload = from_trace(make_trace([Call(0, "read", 5000 * i, 10) for i in range(1000)])).at_once()
    first, again, other = (simulate(workload, cluster(disk), SCHEMES["none"], seed=seed).seconds for seed in (1, 1, 2))
    assert first == again != other
    assert first == pytest.approx(500, rel=0.06)  # 999 waits of half a turn, sqrt(999/12) = 9.1 about it


# ---- programs --------------------------------------------------------------------------------------------------------


def test_think_times_are_kept() -> None:
    trace = make_trace([Call(0, "read", 0, 1000), Call(0, "read", 1000, 1000)])
    trace.records.loc[1, ["t_start", "t_end"]] = [5.001, 5.002]
    found = simulate(from_trace(trace), cluster(pool(servers=1)), SCHEMES["none"])
    assert (found.until, found.seconds) == (pytest.approx(5.002), pytest.approx(0.002))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_signatures_do_what_their_accesses_do(data: st.DataObject) -> None:
    """A workload from signatures makes the requests of one from the accesses, whatever the loops and their growth."""
    number = st.integers(1, 4)
    loops = data.draw(st.lists(st.tuples(st.integers(0, 5000), number), max_size=3))
    growth = data.draw(
        st.one_of(
            st.just(()),
            st.lists(
                st.builds(Growth, st.integers(0, 50), st.integers(0, 20), st.integers(0, 2)),
                min_size=len(loops), max_size=len(loops),
            ).map(tuple),
        )
    )  # fmt: skip
    if growth:
        growth = (*growth[:-1], growth[-1]._replace(count=0)) if growth else ()
    one = Signature("f", "read", False, 100, 50, tuple(Loop(*loop) for loop in loops), (0,), growth=growth)
    offsets, _, lengths = one.expand()
    calls = [Call(0, "read", int(at), int(size), "f") for at, size in zip(offsets, lengths, strict=True)]
    storage = cluster(pool())
    assert events(from_signatures([one]), storage) == events(from_trace(make_trace(calls)).at_once(), storage)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=3))
def test_ranks_may_be_in_loops_that_grow(drawn: list[tuple[int, int, int]]) -> None:
    """Rank j is iteration j of the rank loops, of which each turn of one may give the next one more turns."""
    loops = (*(Loop(stride, count) for stride, count, _ in drawn), Loop(70_000, 3))
    growth = (*(Growth(0, 0, more) for _, _, more in drawn), Growth(0, 0, 0))
    outer = replace(Signature("f", "read", False, 0, 50, loops[:-1], (0,)), growth=growth[:-2] + growth[-1:])
    ranks = tuple(range(outer.requests))
    one = Signature("f", "read", False, 0, 50, loops, ranks, len(drawn), growth=growth)
    offsets, owners, _ = one.expand()
    want = sorted(zip(owners.tolist(), offsets.tolist(), strict=True))
    log = events(from_signatures([one]), cluster(pool()))
    assert sorted((rank, at) for _, what, rank, _, at, _ in log if what == "call") == want


def test_ranks_of_a_signature_begin_where_they_did() -> None:
    trace = workloads.mpi_tile_io(3, 2, 8, 4, 512)
    storage = cluster(pool(), strip=1000)
    signatures = analyze(trace).signatures
    assert [one.rank_loops for one in signatures] == [2]
    found, want = (
        [event for event in events(workload, storage) if event[1] == "queued"]
        for workload in (from_signatures(signatures), from_trace(trace).at_once())
    )
    assert found == want


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(SCHEMES)),
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["read", "write"]), st.integers(0, 50_000), st.integers(1, 9_000)),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
def test_bytes_are_conserved(scheme: str, drawn: list[tuple[int, str, int, int]], collective: bool) -> None:
    """The servers move what the calls ask for, unless sieving reads further bytes."""
    calls = [Call(*one, collective=collective) for one in drawn]
    storage = cluster(pool(), pool("ssd", "ssd", 2), strip=4 * KiB, buffer=8 * KiB)
    workload = from_trace(make_trace(calls)).at_once()
    found = simulate(workload, storage, SCHEMES[scheme])
    asked = sum(length for _, _, _, length in drawn)
    assert found.bytes_read + found.bytes_written == sum(workload.bytes) == asked
    assert found.calls == len(calls)
    moved = sum(map(sum, found.moved.values()))
    assert moved == asked if scheme in ("independent", "s-orig", "sieving") and not collective else moved > 0


# ---- methods ---------------------------------------------------------------------------------------------------------

ROWS = View(0, 1, 4000, 1000, np.array([BLOCK, 1000]))  # 1000 bytes of every 4000


def test_independent_pieces_are_requests_and_sieving_reads_across_them() -> None:
    calls = [Call(0, "read", 0, 10_000, view=1)]
    alone = simulated(calls, cluster(pool(servers=1)), "independent", (ROWS,))
    sieved = simulated(calls, cluster(pool(servers=1)), "none", (ROWS,))
    assert (alone.requests, alone.moved["home"]) == (10, (10_000, 0))
    assert (sieved.requests, sieved.moved["home"]) == (1, (37_000, 0))


def test_sieving_of_writes_reads_first_and_locks() -> None:
    views = tuple(View(1000 * rank, 1, 4000, 1000, np.array([BLOCK, 1000])) for rank in range(4))
    calls = [Call(rank, "write", 0, 10_000, view=rank + 1) for rank in range(4)]
    storage = replace(cluster(pool(servers=1)), sieve_write=1 << 20)
    found = simulated(calls, storage, "none", views)
    # Each reads and writes 37,000 bytes, one rank after another.
    assert (found.requests, found.moved["home"]) == (8, (8 * 37_000, 0))
    assert found.seconds == pytest.approx(8 * 0.037)
    assert found.wait == 0.0


def test_two_phase_accesses_a_buffer_a_round_and_shuffles() -> None:
    views = tuple(View(1000 * rank, 1, 4000, 1000, np.array([BLOCK, 1000])) for rank in range(4))
    calls = [Call(rank, "write", 0, 10_000, collective=True, view=rank + 1) for rank in range(4)]
    found = simulated(calls, cluster(pool(servers=1), v=1e-6, buffer=5000), "none", views)
    # 40,000 bytes, 4 aggregators, two buffers each: 8 requests. In each round a node sends 5,000 bytes, less the
    # quarter that it keeps; then the aggregators send 20,000 to the server, one after the other, and it writes them.
    assert found.requests == 8
    assert found.moved == {"home": (40_000, 0)}
    assert found.seconds == pytest.approx(2 * (0.00375 + 0.020 + 0.005))


@pytest.mark.parametrize(("op", "moved"), [("write", 8000 + 8000 + 3000), ("read", 8000 + 3000)])
def test_an_aggregator_accesses_whole_buffers_and_reads_first_what_it_writes_with_holes(op: Op, moved: int) -> None:
    """Of the bytes 1,000 to 12,000 nobody asks for 4,000 to 9,000: the first buffer ends there."""
    view = View(0, 1, 9000, 4000, np.array([BLOCK, 4000]))
    calls = [Call(0, op, 1000, 6000, collective=True, view=1), Call(1, op, 2000, 1000, collective=True, view=1)]
    found = simulated(calls, cluster(pool(servers=1), per_node=2, buffer=8000), views=(view,))
    assert found.moved == {"home": (moved, 0)}


def test_what_a_node_has_read_is_not_read_again_where_it_keeps_it() -> None:
    calls = [Call(rank, "read", at * 4096, 8192) for at in range(4) for rank in range(4)]
    storage = cluster(pool(servers=1), per_node=2)
    assert simulated(calls, storage).moved == {"home": (16 * 8192, 0)}
    assert simulated(calls, replace(storage, client_cache=True)).moved == {"home": (2 * 5 * 4096, 0)}


def test_collective_calls_that_do_not_interleave_are_independent() -> None:
    calls = [Call(rank, "read", 1000 * rank, 1000, collective=True) for rank in range(4)]
    assert simulated(calls, cluster(pool(servers=1))).requests == 4
    assert simulated(calls, cluster(pool(servers=1)), "two-phase").requests == 4


def test_aggregators_are_one_a_node_or_as_many_as_asked_for() -> None:
    views = tuple(View(1000 * rank, 1, 8000, 1000, np.array([BLOCK, 1000])) for rank in range(8))
    calls = [Call(rank, "read", 0, 4_000, collective=True, view=rank + 1) for rank in range(8)]
    storage = cluster(pool(servers=1), per_node=2)
    assert simulated(calls, storage, views=views).requests == 4
    assert simulated(calls, replace(storage, aggregators=3), views=views).requests == 3
    assert simulated(calls, replace(storage, aggregators=6), views=views).requests == 6
    assert simulated(calls, replace(storage, aggregators=100), views=views).requests == 8
    one_node = cluster(pool(servers=1), per_node=8)
    assert simulated(calls, replace(one_node, aggregators=6), views=views).requests == 6


def test_the_slowest_rank_may_spend_less_than_the_time_in_which_any_is_in_a_call() -> None:
    workload = from_trace(make_trace([Call(0, "read", 0, 1000), Call(1, "read", 5000, 3000)])).at_once()
    workload.arrays["call"]["think"][1] = 1.0
    found = simulate(workload, cluster(pool(servers=1, b=1e-4)), SCHEMES["none"])
    assert (found.seconds, found.slowest) == (pytest.approx(0.4), pytest.approx(0.3))


@pytest.mark.parametrize("last", ["close", "sync"])
def test_what_ranks_wait_for_each_other_before_a_collective_call_is_no_computation(last: str) -> None:
    """Rank 1 ends its write 4 ms after rank 0; both close the file at once, or when each has computed for as long."""
    calls = [Call(0, "write", 0, 1000), Call(0, last, 0, 0), Call(1, "write", 5000, 1000), Call(1, last, 0, 0)]
    for closes, thinks in (((6e-3, 6e-3), (1e-3, 1e-3)), ((2e-3, 6e-3), (1e-3, 1e-3)), ((9e-3, 6e-3), (8e-3, 1e-3))):
        trace = make_trace(calls)
        trace.records.loc[2, "t_end"] = 5e-3
        trace.records.loc[[1, 3], "t_start"] = closes
        made = from_trace(trace).arrays["call"]["think"]
        np.testing.assert_allclose(made[[1, 3]], thinks)


def test_collective_calls_wait_for_all_ranks() -> None:
    calls = [
        Call(0, "read", 0, 1000),
        Call(0, "read", 0, 1000, collective=True),
        Call(1, "read", 0, 1000, collective=True),
    ]
    log = events(from_trace(make_trace(calls)).at_once(), cluster(pool(servers=1)))
    assert sorted((time, what, rank) for time, what, rank, *_ in log if what == "returned") == [
        (0.001, "returned", 0),
        (0.002, "returned", 0),
        (0.002, "returned", 1),
    ]


def test_calls_that_others_do_not_make_go_on_without_them() -> None:
    trace = make_trace([Call(0, "read", 0, 1000, collective=True), Call(1, "read", 0, 1000, "b", collective=True)])
    workload = from_trace(trace)
    table = workload.arrays["call"].copy()
    table["participants"] = 2
    workload = replace(workload, arrays={**workload.arrays, "call": table})
    found = simulate(workload, cluster(pool()), SCHEMES["none"])
    assert (found.calls, found.stuck) == (2, 2)
    # The ticks of a policy never end while a program runs.
    found = simulate_online(workload, CLUSTER, S4D(), SCHEMES["none"])
    assert (found.calls, found.stuck) == (2, 2)


@pytest.mark.parametrize(("backend", "requests"), [("cephfs", 4), ("directories", 2)])
@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("overlap", "startup"), [(True, 0.5), (False, 0.0)])
def test_clients_of_cephfs_send_each_strip_of_an_original_by_itself(
    backend: str, requests: int, op: str, overlap: bool, startup: float
) -> None:
    """Two calls of 512 KiB, one after the other: each of four servers has two strips of 64 KiB of a call. Where
    requests are counted, a further strip costs a start-up; a head is there already."""
    disk = replace(pool(b=0.0), startup=((0, 0.0), (1, 0.5)), overlap=overlap, backend=backend)
    found = simulated([Call(0, op, at * 512 * KiB, 512 * KiB) for at in range(2)], cluster(disk))
    assert found.subrequests == 4 * requests
    assert found.seconds == pytest.approx(startup * (requests - 2))


# ---- replicas --------------------------------------------------------------------------------------------------------


def test_a_replica_serves_a_strided_pattern_in_one_request_a_call() -> None:
    from pdla.policies.plan import make_plan

    views = [View(1000 * rank, 1, 4000, 1000, np.array([BLOCK, 1000])) for rank in range(4)]
    trace = make_trace([Call(rank, "read", 0, 16_000, view=rank + 1) for rank in range(4)], views)
    disk = replace(pool(startup=0.0), startup=((0, 0.0), (1, 0.01)))
    storage = cluster(disk, strip=1000)
    plan = make_plan(analyze(trace), storage, "pdla-h")
    found = simulate(from_trace(trace).at_once(), storage, Scheme("pdla-h"), plan)
    assert found.space == {"hdd": 64_000}
    assert found.moved == {"home": (0, 0), "hdd": (64_000, 0)}
    assert found.requests == 4
    before = simulate(from_trace(trace).at_once(), storage, SCHEMES["none"])
    assert (found.seconds, before.seconds) == (pytest.approx(0.016), pytest.approx(0.091))


def test_layouts_stripe_as_everywhere_else() -> None:
    """The pieces of any range in any layout are those of pdla.layouts.striping."""
    from pdla.layouts.striping import locate

    layout = Layout("hdd", 4, 2, (3000, 5000), 20_000)
    storage = cluster(pool())
    machine = Machine(storage)
    number = machine.add(layout, 200_000)
    arrays = machine.arrays()
    one = arrays["object"][number]
    bases = arrays["bases"][one["first"] : one["first"] + 4]
    want: dict[int, list[tuple[int, int]]] = {}
    for piece in locate(layout, 12_345, 98_765):
        low = int(bases[piece.component]) + piece.offset
        held = want.setdefault(piece.component, [])
        if held and held[-1][1] == low:
            held[-1] = held[-1][0], low + piece.length
        else:
            held.append((low, low + piece.length))
    # The same object as a file's, so that a program can read it.
    workload = from_trace(make_trace([Call(0, "read", 12_345, 98_765 - 12_345)]))
    log = core.simulate(
        {
            **machine.numbers(1), "files": 1, "seed": 0, "open_loop": False, "sieve": (0, 0),
            "collective_buffer": 0, "aggregators": 0, "client_cache": False, "always": False,
        },
        {**workload.arrays, **arrays, **Replicas([[]]).arrays()},
        log_room=1000,
    ).log  # fmt: skip
    queued = log[log["what"] == core.EVENTS.index("queued")]
    found: dict[int, list[tuple[int, int]]] = {}
    for server, address, length in sorted(queued[["server", "address", "length"]].tolist()):
        held = found.setdefault(server, [])
        if held and held[-1][1] == address:
            held[-1] = held[-1][0], address + length
        else:
            held.append((address, address + length))
    assert found == {server: sorted(held) for server, held in want.items()}


def test_what_was_written_to_a_replica_is_written_back() -> None:
    from pdla.analyzers.dependence import pattern_dependences
    from pdla.policies.plan import RedirectedWrites, make_plan

    views = [View(1000 * rank, 1, 4000, 1000, np.array([BLOCK, 1000])) for rank in range(4)]
    trace = make_trace([Call(rank, "write", 0, 16_000, view=rank + 1) for rank in range(4)], views)
    disk = replace(pool(), startup=((0, 0.0), (1, 1.0)))
    storage = cluster(disk, strip=1000, buffer=32_000)
    analysis = analyze(trace)
    plan = make_plan(
        analysis, storage, "pdla-h", writes=RedirectedWrites(pattern_dependences(analysis, trace.accesses()))
    )
    (one,) = plan.patterns
    chosen = next(number for number, found in enumerate(one.candidates) if found.layout)  # whether it pays or not
    plan = replace(plan, patterns=(replace(one, chosen=chosen),))
    found = simulate(from_trace(trace).at_once(), storage, Scheme("pdla-h"), plan)
    assert found.moved == {"home": (64_000, 0), "hdd": (128_000, 0)}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3000)), min_size=0, max_size=3),
    st.integers(0, 20_000),
    st.integers(1, 5000),
)
def test_nests_of_views_are_expanded_as_they_are(loops: list[tuple[int, int]], position: int, length: int) -> None:
    words: list[int] = []
    size, extent = 100, 100
    nested: list[int] = [BLOCK, 100]
    for count, gap in loops:
        nested = [LOOP, count, extent + gap, *nested]
        size, extent = size * count, (extent + gap) * count
    words = nested
    view = View(7, 1, extent + 10, size, np.array(words))
    trace = make_trace([Call(0, "read", position, length, view=1)], (view,))
    storage = cluster(pool(servers=1, b=0.0))
    machine = Machine(storage)
    machine.add_file(1 << 30)
    workload = from_trace(trace)
    outcome = outcome_of(workload, machine, SCHEMES["independent"], Replicas([[]]), log_room=10_000)
    log = outcome.log[outcome.log["what"] == core.EVENTS.index("queued")]
    accesses = trace.accesses()
    assert log["address"].tolist() == accesses["offset"].tolist()
    assert log["length"].tolist() == accesses["length"].tolist()


# ---- policies that act during a run ----------------------------------------------------------------------------------


class Everything(Online):
    """Copies all that is read, takes all that is written, and writes it back when a file is closed."""

    def spaces(self, cluster: Cluster) -> list[Space]:
        return [Space("ssd", 64_000, whole_pool(cluster, "ssd", 1000))]

    def request(self, request: Request, view: PolicyView) -> Iterator[Wish]:
        yield Place(request.file, request.start, request.stop, "ssd", "all")

    def close(self, file: int | None, view: PolicyView) -> Iterator[Wish]:
        for one in (0,) if file is None else (file,):
            yield WriteBack(one, 0, 1 << 40, "closed", wait=True)


def online(calls: list[Call], *, home_b: float = 1e-6) -> Result:
    storage = cluster(pool(servers=1, b=home_b), pool("ssd", "ssd", 1, b=1e-7), strip=1000)
    workload = from_trace(make_trace(calls)).at_once()
    return simulate_online(workload, storage, Everything(), Scheme("everything"))


def test_what_a_policy_copied_is_read_from_there() -> None:
    found = online([Call(0, "read", at, 10_000) for at in (0, 10_000, 0)])
    assert found.moved == {"home": (20_000, 0), "ssd": (10_000, 20_000)}
    assert found.space == {"ssd": 20_000}
    # Twice from the original, then from the SSD, whose copy of the second has just begun: that is not interrupted.
    assert found.seconds == pytest.approx(0.010 + 0.010 + 0.001 + 0.001)


def test_what_a_policy_took_is_written_back_before_the_run_ends() -> None:
    found = online([Call(0, "write", 0, 10_000)])
    assert found.moved == {"home": (0, 10_000), "ssd": (10_000, 10_000)}
    assert found.seconds == pytest.approx(0.001 + 0.001 + 0.010)
    assert found.settled == found.until == pytest.approx(0.012)


def test_what_has_no_room_is_refused_and_counted() -> None:
    found = online([Call(0, "read", 0, 100_000)])
    assert (found.refused, found.reasons, found.space) == (1, {"Place: all": 1}, {"ssd": 0})


def test_what_a_policy_raises_ends_the_simulation() -> None:
    class Broken(Everything):
        def request(self, request: Request, view: PolicyView) -> Iterator[Wish]:
            raise ConfigError("no")

    storage = cluster(pool(), pool("ssd", "ssd", 1))
    with pytest.raises(ConfigError, match="no"):
        simulate_online(from_trace(make_trace([Call(0, "read", 0, 10)])), storage, Broken(), Scheme("broken"))


# ---- the core --------------------------------------------------------------------------------------------------------


def test_a_core_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Path(str(importlib.resources.files("pdla") / "libpdla-simulator.so"))
    monkeypatch.setattr(core, "CALL", np.dtype([*core.CALL.descr, ("more", "<i8")]))
    with pytest.raises(PdlaError, match="belongs to another version of pdla"):
        core._opened(library)


def test_a_core_that_cannot_tell_its_version_is_refused() -> None:
    with pytest.raises(PdlaError, match="belongs to another version of pdla: install pdla"):
        core._opened(Path(str(importlib.import_module("_ctypes").__file__)))
