"""The policy e10 as pdla's library does it: nodes bring home what their ranks, or an exchange, have given them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.cache_runs import ior
from benchmarks.cache_simulated import program as checkpoints
from pdla.model import Cluster, Device, Pool
from pdla.policies.e10 import E10, exchange_costs
from pdla.policies.online import Request
from pdla.simulator.enactor import Enactor
from pdla.simulator.online import simulate_online
from pdla.simulator.run import Result, simulate
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import Workload, from_trace
from pdla.traces.file_views import BLOCK, View
from pdla.units import KiB, MiB
from tests.support.handmade_traces import Call, make_trace

NONE, INDEPENDENT = BASELINES[:2]
PIECE, COUNT = 64 * KiB, 16
SIZE = 4 * COUNT * PIECE
TO_DEVICE = SIZE // 2 * 1e-8  # of a node's bytes
HOME = 32 * 1e-3 + SIZE * 1e-8


def pool(name: str, kind: str, servers: int, startup: float) -> Pool:
    where = tuple(f"{name}{number}" for number in range(servers))
    return Pool(name, kind, servers, ((0, startup),), 1e-8, 1e-8, None, 1, "directories", where)  # type: ignore[arg-type]


STORAGE = Cluster(
    (pool("hdd", "hdd", 1, 1e-3), pool("scratch", "node", 2, 0.0)), "hdd", 1, 1 << 40, 2, 0.0, 0.0, 0.0, "test", nodes=2
)
"""Two nodes with two ranks and a device each."""


def program(*more: Call, ranks: int = 4, pause: float = 0.0) -> Workload:
    """A collective write of so many ranks of four, whose pieces alternate; after a pause what is ``more``."""
    views = [View(PIECE * rank, 1, 4 * PIECE, PIECE, np.array([BLOCK, PIECE])) for rank in range(4)]
    calls = [Call(rank, "write", 0, COUNT * PIECE, collective=True, view=1 + rank) for rank in range(ranks)]
    made = from_trace(make_trace([*calls, *more], views)).at_once()
    made.arrays["call"]["think"][1:2] = pause
    return made


def simulated(made: Workload | None = None, cluster: Cluster = STORAGE, **how: Any) -> Result:
    return simulate_online(made or program(), cluster, E10(**how), NONE)


def test_an_exchange_is_judged_by_the_start_up_of_writes() -> None:
    flushed = replace(STORAGE.pools[0], device=Device(write_startup=((0, 0.0), (1, 2e-3))))
    assert exchange_costs(STORAGE).request == 1e-3
    assert exchange_costs(replace(STORAGE, pools=(flushed, STORAGE.pools[1]))).request == 2e-3


def test_pieces_of_a_node_come_home_as_far_as_they_adjoin() -> None:
    """Each rank writes its own in one request; a node reads what both ranks have in one, and writes 16 of 128 KiB."""
    found = simulated(exchange="disable")
    assert found.served == {"hdd": 32, "scratch": 4 + 2}
    assert found.moved == {"home": (0, SIZE), "scratch": (SIZE, SIZE)}
    assert found.seconds == pytest.approx(TO_DEVICE + TO_DEVICE + HOME)


def test_on_one_node_all_is_one_request() -> None:
    found = simulated(cluster=replace(STORAGE, nodes=1, processes_per_node=4), exchange="disable")
    assert found.served == {"hdd": 1, "scratch": 4 + 1}


def test_ind_wr_buffer_size_is_the_most_that_goes_home_in_a_request() -> None:
    assert simulated(exchange="disable", chunk=PIECE).served["hdd"] == 64


def test_a_node_with_a_page_cache_does_not_read_what_it_has_written() -> None:
    found = simulated(cluster=replace(STORAGE, client_cache=True), exchange="disable")
    assert found.served == {"hdd": 32, "scratch": 4}
    assert found.seconds == pytest.approx(TO_DEVICE + HOME)


def test_a_round_begins_when_no_more_was_written_for_a_moment() -> None:
    """50 ms, replicator/stub/mover.c."""
    made = program(Call(0, "read", 0, PIECE, "/data/b"), pause=1.0)
    assert simulated(made, exchange="disable").settled == pytest.approx(TO_DEVICE + 0.05 + TO_DEVICE + HOME)


def test_with_flush_on_close_it_begins_with_the_close() -> None:
    found = simulated(exchange="disable", flush="close")
    assert found.served == {"hdd": 32, "scratch": 4 + 2}
    assert found.seconds == pytest.approx(TO_DEVICE + TO_DEVICE + HOME)


def test_a_read_waits_until_its_bytes_are_home() -> None:
    found = simulated(program(Call(0, "read", 0, SIZE)), exchange="disable")
    assert found.seconds == pytest.approx(TO_DEVICE + TO_DEVICE + HOME + 1e-3 + SIZE * 1e-8)


def test_what_finds_no_room_goes_to_the_original() -> None:
    small = replace(STORAGE, pools=(STORAGE.pools[0], replace(STORAGE.pools[1], capacity=MiB)))
    found = simulated(cluster=small, exchange="disable")
    assert found.reasons == {"Place: a collective write": 48}
    assert found.moved == {"home": (SIZE - MiB, MiB), "scratch": (MiB, MiB)}


def test_exchanged_units_come_home_in_a_request_each() -> None:
    """Of 1 MiB, in turn for ranks of different nodes."""
    found = simulated(exchange="enable")
    assert found.served == {"hdd": 4, "scratch": 4 + 2}
    assert found.seconds == pytest.approx(TO_DEVICE + TO_DEVICE + 4 * 1e-3 + SIZE * 1e-8)


def test_half_of_a_unit_crosses_the_links_before_it_is_written() -> None:
    found = simulated(cluster=replace(STORAGE, network_seconds_per_byte=1e-8), exchange="enable")
    assert found.longest_call == pytest.approx(SIZE // 4 * 1e-8 + TO_DEVICE)


def test_an_exchange_does_not_fill_holes() -> None:
    found = simulated(program(ranks=3), exchange="enable")
    assert found.served["hdd"] == COUNT
    assert found.moved["home"] == (0, 3 * COUNT * PIECE)


@pytest.mark.parametrize(("slow", "nodes", "same"), [(0.0, 2, "enable"), (1e-6, 2, "disable"), (0.0, 1, "disable")])
def test_ranks_exchange_pieces_if_the_core_says_that_it_pays(slow: float, nodes: int, same: Any) -> None:
    """Small requests cost more than an exchange, unless the network is slow, or nobody is there to exchange with."""
    cluster = replace(STORAGE, network_seconds_per_byte=slow, nodes=nodes, processes_per_node=4 // nodes)
    assert simulated(cluster=cluster) == simulated(cluster=cluster, exchange=same)


SMALL, MANY = 4 * KiB, 64


def with_gaps(calls: int = 1) -> Workload:
    """Collective writes of four ranks whose pieces adjoin, with gaps as long; the second call fills them."""
    blocks, both = np.array([BLOCK, SMALL]), [(call, rank) for call in range(calls) for rank in range(4)]
    views = [View(SMALL * (rank + 4 * call), 1, 8 * SMALL, SMALL, blocks) for call, rank in both]
    made = [Call(rank, "write", 0, MANY * SMALL, collective=True, view=1 + 4 * call + rank) for call, rank in both]
    return from_trace(make_trace(made, views)).at_once()


ONE_NODE = replace(STORAGE, nodes=1, processes_per_node=4)


def test_the_mpi_library_writes_gaps_again_if_the_core_says_that_it_pays() -> None:
    sieved = simulated(with_gaps(), ONE_NODE)
    assert sieved.seconds == simulate(with_gaps(), ONE_NODE, BASELINES[3]).seconds
    assert sieved.seconds < simulated(with_gaps(), ONE_NODE, exchange="disable").seconds
    assert sieved.moved == {"home": (2 * (2 * MANY - 1) * 4 * SMALL, 0), "scratch": (0, 0)}


def test_gaps_that_later_calls_fill_are_written_to_the_caches() -> None:
    """The first call is past them."""
    assert simulated(with_gaps(calls=2), ONE_NODE).moved["scratch"] == (4 * MANY * SMALL, 4 * MANY * SMALL)


def test_what_the_mpi_library_takes_is_no_computation() -> None:
    """It takes longer for the six calls of the first file than what hides the way home of a call of the second one."""
    blocks, of_call = np.array([BLOCK, SMALL]), MANY * SMALL
    views = [View(SMALL * rank, 1, 8 * SMALL, SMALL, blocks) for rank in range(4)]
    made = []
    for file, rank in itertools.product("ab", range(4)):
        made += [Call(rank, "write", at * of_call, of_call, file, True, 1 + rank) for at in range(6)]
        made.append(Call(rank, "close", 0, 0, file, True))
    assert simulated(from_trace(make_trace(made, views)).at_once(), ONE_NODE).moved["scratch"] == (0, 0)


def test_a_computation_that_hides_the_way_home_makes_an_exchange_useless() -> None:
    """It is known from the file before: the first one is exchanged (4 units), the second one is not (32 runs)."""
    case = ior(SIZE, PIECE, 4, files=2)
    for pause, requests in ((0.0, 4 + 4), (1.0, 4 + 32)):
        assert simulated(checkpoints(case, 2, pause)).served["hdd"] == requests


def test_a_core_returns_the_moves_of_a_node_at_once_to_who_makes_them_together() -> None:
    for together, moves in ((False, [1, 0]), (True, [1, 1])):
        enactor = Enactor(E10(), STORAGE, together=together)
        requests = [Request(0.0, 0, 0, 0, "write", at * KiB, (at + 1) * KiB, True) for at in (0, 2)]
        assert [len(enactor.serve(request).background) for request in requests] == moves


# ---- what the bench's nodes have -------------------------------------------------------------------------------------


def test_a_duplex_device_reads_and_writes_at_the_same_time() -> None:
    made = from_trace(make_trace([Call(0, "read", 0, MiB), Call(1, "write", MiB, MiB)])).at_once()
    for duplex, requests in ((False, 2), (True, 1)):
        storage = replace(STORAGE, pools=(replace(STORAGE.pools[0], device=Device(duplex=duplex)),))
        found = simulate(made, storage, INDEPENDENT)
        assert found.seconds == pytest.approx(requests * (1e-3 + MiB * 1e-8))
        assert found.served == {"hdd": 2}


def test_on_synchronous_mounts_a_write_reaches_the_storage_and_stays_in_memory() -> None:
    made = from_trace(make_trace([Call(0, "write", 0, MiB), Call(1, "read", 0, MiB)])).at_once()
    made.arrays["call"]["think"][1] = 1.0
    cached = replace(STORAGE, client_cache=True, client_sync=True)
    found = simulate(made, cached, INDEPENDENT)
    assert (found.served["hdd"], found.seconds) == (1, pytest.approx(1e-3 + MiB * 1e-8))
