"""Servers with many requests: queues of finite depth, work in the background; distances, latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pdla.model import Cluster, Device, Op, Pool
from pdla.policies.online import Drop, Online, Place, Request, Space, View, Wish, whole_pool
from pdla.simulator import core
from pdla.simulator.machine import Machine
from pdla.simulator.online import simulate_online
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import Result, outcome_of, simulate
from pdla.simulator.schemes import BASELINES, Scheme
from pdla.simulator.workload import from_trace
from tests.support.handmade_traces import Call, make_trace

PIECE = 1000


def storage(b: float = 1e-6, **device: Any) -> Cluster:
    """A disk and an SSD, each on one server; a request of PIECE bytes takes the disk a millisecond."""
    disk = Pool("hdd", "hdd", 1, ((0, 0.0),), b, b, None, 1, "directories", ("hdd0",))
    disk = replace(disk, device=Device(**device))
    ssd = replace(disk, name="ssd", kind="ssd", read_seconds_per_byte=1e-9, write_seconds_per_byte=1e-9)
    return Cluster((disk, ssd), "hdd", 1, 1 << 30, 1, 0.0, 0.0, 0.0, "test", sieve_write=0)


def served(places: list[int], **device: Any) -> list[int]:
    """Requests of a rank each, in the order in which the disk serves them."""
    calls = [Call(rank, "read", at * PIECE, PIECE) for rank, at in enumerate(places)]
    workload, machine = from_trace(make_trace(calls)).at_once(), Machine(storage(**device))
    machine.add_file(1 << 30)
    log = outcome_of(workload, machine, BASELINES[0], Replicas.of(None, workload, machine), log_room=1000).log
    return [int(one["address"]) // PIECE for one in log if core.EVENTS[one["what"]] == "started"]


# ---- queues of finite depth ------------------------------------------------------------------------------------------


def test_a_queue_orders_no_more_requests_than_fit_into_it():
    places = [5, 1, 7, 3, 6, 0, 4, 2]
    assert served(places, queue="elevator") == [5, 6, 7, 0, 1, 2, 3, 4]
    # While 5 is served, 1 and 7 are in the queue; as one is done, the next comes in.
    assert served(places, queue="elevator", queue_depth=3) == [5, 7, 1, 3, 4, 6, 0, 2]
    assert served(places, queue="elevator", queue_depth=1) == places


def test_a_queue_of_finite_depth_serves_all():
    for queue in ("fifo", "elevator", "cfq"):
        assert sorted(served(list(range(20)), queue=queue, queue_depth=4)) == list(range(20))


# ---- what many clients cost a server ---------------------------------------------------------------------------------


def handled(ranks: int, rounds: int = 1, servers: int = 1, ops: tuple[Op, ...] = ("read",), **device: Any) -> float:
    """Seconds of rounds of a piece a rank, by ranks with these ops in turn, on servers that serve a piece in turn.

    Nothing takes time but what the servers themselves do: 1 s a request for a client, 2 s for three.
    """
    made = storage(b=0.0, clients_cost=((1, 1.0), (3, 2.0)), **device)
    calls = [
        Call(rank, ops[rank % len(ops)], (turn * ranks + rank) * PIECE, PIECE)
        for turn in range(rounds)
        for rank in range(ranks)
    ]
    striped = replace(made, home_strip=PIECE, home_servers=servers)
    return simulate(from_trace(make_trace(calls)).at_once(), striped, BASELINES[0]).seconds


def test_a_request_costs_its_server_what_the_number_of_its_clients_makes_of_it():
    assert handled(1, rounds=4) == pytest.approx(4)
    assert handled(2) == pytest.approx(1 + 1.5)
    assert handled(3, rounds=3) == pytest.approx(1 + 1.5 + 2 + 6 * 2)
    assert handled(5) == pytest.approx(1 + 1.5 + 2 + 2 + 2)


def test_readers_and_writers_are_clients_of_the_same_server():
    assert handled(2, ops=("read", "write")) == pytest.approx(1 + 1.5)
    assert handled(2, ops=("read", "write"), duplex=True) == pytest.approx(1 + 1.5)


def test_each_server_has_its_own_clients():
    assert handled(2, servers=2) == pytest.approx(1)


# ---- ranks out of step -----------------------------------------------------------------------------------------------


def late(seed: int) -> Result:
    calls = [Call(rank, "read", (1000 * rank + piece) * PIECE, PIECE) for piece in range(500) for rank in range(4)]
    jittery = replace(storage(b=0.0), jitter_seconds=0.25)
    return simulate(from_trace(make_trace(calls)).at_once(), jittery, BASELINES[0], seed=seed)


def test_jitter_makes_ranks_late_and_the_seed_says_by_how_much():
    first, again, other = late(1), late(1), late(2)
    assert first == again
    assert first.until != other.until
    # 500 exponential times with a mean of 0.25 s: 125 s, standard deviation 5.6 s; of four ranks the slowest.
    assert 120 < first.until < 148


# ---- work in the background ------------------------------------------------------------------------------------------


class Fetches(Online):
    """Copies ten pieces, one after another, while the program reads others."""

    def spaces(self, cluster: Cluster) -> list[Space]:
        return [Space("ssd", 1 << 20, whole_pool(cluster, "ssd", 1 << 30), chunk=PIECE)]

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        if request.start == 0:
            yield Place(0, 1000 * PIECE, 1010 * PIECE, "ssd", "fetched", fetch=True)


def fetched(share: float, requests: int) -> Result:
    calls = [Call(piece % 2, "read", piece * PIECE, PIECE) for piece in range(requests)]
    workload = from_trace(make_trace([*calls, Call(0, "read", 2000 * PIECE, PIECE)])).at_once()
    return simulate_online(workload, storage(background_share=share), Fetches(), Scheme("fetches"))


@pytest.mark.parametrize(("share", "settled"), [(0.5, 0.019), (0.25, 0.037), (0.125, 0.073)])
def test_the_background_has_its_share_of_a_busy_device(share: float, settled: float):
    found = fetched(share, 200)
    assert found.settled == pytest.approx(settled, abs=2e-3)
    assert found.seconds == pytest.approx(0.211, abs=1e-4)


def test_without_a_share_the_background_waits_until_nothing_else_does():
    # What has begun while nothing else was there is done.
    assert fetched(0.0, 100).settled > 0.101


def test_while_nothing_else_waits_the_background_has_the_device():
    assert fetched(0.0, 2).settled == pytest.approx(fetched(1.0, 2).settled, abs=4e-3)


# ---- distances and latencies -----------------------------------------------------------------------------------------


def test_distances_are_from_the_end_of_one_request_to_the_begin_of_the_next():
    calls = [Call(0, "read", at * PIECE, PIECE) for at in (3, 4, 10, 0)]
    found = simulate(from_trace(make_trace(calls)), storage(), BASELINES[0])
    assert found.distance == {"hdd": (0 + 0 + 5 + 11) * PIECE / 4, "ssd": 0.0}


def test_the_latency_of_requests_is_that_at_servers():
    calls = [Call(0, "read", 0, PIECE, "a"), Call(1, "read", 0, 3 * PIECE, "b")]
    slow = replace(storage(), network_seconds_per_byte=1.0)
    found = simulate(from_trace(make_trace(calls)).at_once(), slow, BASELINES[0])
    assert found.latency == pytest.approx((0.001, 0.004))


class Loads(Fetches):
    """Loads what is read, and makes the read wait."""

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        yield Place(0, 0, 10 * PIECE, "ssd", "loaded", fetch=True, wait=True)


def test_what_a_request_waits_for_is_in_its_latency():
    workload = from_trace(make_trace([Call(0, "read", 0, PIECE), Call(0, "read", 9 * PIECE, PIECE)])).at_once()
    found = simulate_online(workload, storage(), Loads(), Scheme("loads"))
    assert found.latency == pytest.approx(((0.010 + 2e-6 * 5 + 1e-6) / 2,), abs=1e-5)


class ChangesItsMind(Fetches):
    """Fetches three ranges, and drops the second before its turn has come."""

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        if request.start == 0:
            for place in (1000, 2000, 3000):
                yield Place(0, place * PIECE, (place + 10) * PIECE, "ssd", "fetched", fetch=True)
        else:
            yield Drop(0, 2000 * PIECE, 2010 * PIECE, "ssd", "no more")


def test_a_move_whose_copies_have_gone_ends_and_lets_the_next_begin():
    calls = [Call(0, "read", at * PIECE, PIECE) for at in (0, 1, 5000)]
    found = simulate_online(from_trace(make_trace(calls)).at_once(), storage(), ChangesItsMind(), Scheme("changes"))
    assert found.moved["ssd"] == (0, 20 * PIECE)
