"""Client nodes: page caches that read ahead and keep written bytes, processors that ranks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pdla.layouts.candidates import candidates
from pdla.model import Cluster, Loop, PatternPlan, Plan, Pool, Signature
from pdla.simulator import core
from pdla.simulator.machine import Machine
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import Result, outcome_of, simulate
from pdla.simulator.schemes import BASELINES, Scheme
from pdla.simulator.workload import Workload, from_signatures, from_trace
from pdla.traces.file_views import BLOCK, View
from pdla.units import KiB, MiB
from tests.support.handmade_traces import Call, make_trace

PAGE = 4 * KiB
DISK = Pool("hdd", "hdd", 1, ((0, 0.0),), 1e-6, 1e-6, None, 1, "directories", ("disk",))
CACHED = Cluster(
    (DISK,), "hdd", 1, 64 * KiB, 8, 0.0, 0.0, 0.0, "test", client_cache=True, client_read_ahead=256 * KiB, sieve_write=0
)
INDEPENDENT = BASELINES[1]
NONE = BASELINES[0]


def program(calls: Sequence[Call], views: Sequence[View] = (), size: int = 0) -> Workload:
    """Without pauses; of one file of at least ``size`` bytes."""
    made = from_trace(make_trace(calls, views)).at_once()
    return replace(made, sizes=(max(size, made.sizes[0]),))


def queued(workload: Workload, cluster: Cluster = CACHED) -> list[tuple[int, int]]:
    """Address and length of what reached the device, in its order."""
    machine = Machine(cluster)
    machine.add_file(workload.sizes[0])
    log = outcome_of(workload, machine, NONE, Replicas.of(None, workload, machine), log_room=1000).log
    events = log[log["what"] == core.EVENTS.index("queued")]
    return [(int(one["address"]), int(one["length"])) for one in events]


def simulated(workload: Workload, cluster: Cluster = CACHED, scheme: Scheme = INDEPENDENT) -> Result:
    return simulate(workload, cluster, scheme)


# ---- pages that are read ---------------------------------------------------------------------------------------------


def test_what_is_read_in_sequence_is_read_ahead_in_windows_that_grow() -> None:
    calls = [Call(0, "read", at * 64 * KiB, 64 * KiB) for at in range(16)]
    windows = [(0, 128), (128, 256), (384, 256), (640, 256), (896, 128)]
    assert queued(program(calls)) == [(start * KiB, length * KiB) for start, length in windows]


def test_the_next_window_is_on_its_way_while_one_is_read() -> None:
    """To copy a byte takes as long as to read it: hidden is all but the first window, and what its second half is less
    than the second window, which is asked for there."""
    calls = [Call(0, "read", at * 64 * KiB, 64 * KiB) for at in range(64)]
    busy = replace(CACHED, copy_seconds_per_byte=1e-6)
    found = simulated(program(calls), busy).seconds
    assert found == pytest.approx(4.194304 + 0.131072 + 0.196608)


def test_large_reads_are_read_in_windows_and_ahead() -> None:
    calls = [Call(0, "read", MiB, MiB)]
    windows = [(1024, 256), (1280, 256), (1536, 256), (1792, 256), (2048, 256)]
    assert queued(program(calls, size=4 * MiB)) == [(start * KiB, length * KiB) for start, length in windows]


def test_strided_reads_are_not_read_ahead() -> None:
    calls = [Call(0, "read", (1 + at) * MiB, 64 * KiB) for at in range(3)]
    assert queued(program(calls, size=8 * MiB)) == [((1 + at) * MiB, 64 * KiB) for at in range(3)]


def test_pages_before_a_read_make_it_one_in_sequence() -> None:
    """The third rank finds 128 KiB before its 64 KiB, and reads as much again."""
    calls = [Call(rank, "read", MiB + rank * 64 * KiB, 64 * KiB) for rank in range(3)]
    found = queued(program(calls, size=8 * MiB))
    assert found == [(MiB, 64 * KiB), (MiB + 64 * KiB, 64 * KiB), (MiB + 128 * KiB, 192 * KiB)]


def test_who_comes_to_pages_that_are_on_their_way_waits_for_them() -> None:
    calls = [Call(rank, "read", MiB, 64 * KiB) for rank in range(4)]
    found = simulated(program(calls, size=4 * MiB))
    assert (found.requests, found.seconds) == (1, pytest.approx(0.065536))
    assert found.call_seconds == pytest.approx(4 * 0.065536)


def test_nodes_have_pages_of_their_own() -> None:
    calls = [Call(rank, "read", MiB, 64 * KiB) for rank in range(4)]
    assert simulated(program(calls, size=4 * MiB), replace(CACHED, processes_per_node=2)).requests == 2


def test_nothing_is_read_ahead_behind_the_end_of_a_file() -> None:
    assert queued(program([Call(0, "read", 0, 100 * KiB)])) == [(0, 100 * KiB)]


def test_components_of_replicas_are_read_ahead_too() -> None:
    """Calls of 4 KiB, 256 KiB from each of four servers: in windows of 16, 32, 64 and 128 KiB, and the rest."""
    from pdla.analyzers.analysis import analyze
    from pdla.policies.plan import make_plan

    disks = replace(DISK, servers=4, where=("a", "b", "c", "d"), startup=((0, 0.0), (1, 0.01)))
    cluster = replace(CACHED, pools=(disks,), home_servers=4)
    trace = make_trace([Call(0, "read", at * 64 * KiB, 4 * KiB) for at in range(256)])
    plan = make_plan(analyze(trace), cluster, "pdla-h")
    found = simulate(from_trace(trace).at_once(), cluster, Scheme("pdla-h"), plan)
    assert found.moved == {"home": (0, 0), "hdd": (MiB, 0)}
    assert found.requests == 20


# ---- pages that are written ------------------------------------------------------------------------------------------


def test_what_is_written_goes_to_the_storage_when_the_file_is_closed_in_the_order_of_its_addresses() -> None:
    calls = [Call(0, "write", at * 64 * KiB, 64 * KiB) for at in (5, 1, 0, 2)]
    assert queued(program(calls)) == [(0, 192 * KiB), (320 * KiB, 64 * KiB)]
    found = simulated(program(calls))
    assert found.seconds == pytest.approx(0.262144)
    assert found.call_seconds == 0.0
    assert found.moved == {"home": (256 * KiB, 0)}


def test_a_page_that_is_written_in_part_is_read_before() -> None:
    calls = [Call(0, "write", 10, 100)]
    assert queued(program(calls, size=MiB)) == [(0, PAGE), (0, PAGE)]
    assert queued(program([Call(0, "write", PAGE, PAGE)], size=MiB)) == [(PAGE, PAGE)]


def test_a_replica_is_not_read_before_it_is_written() -> None:
    """48 pieces of 4,000 bytes, one after another in its 47 pages; the node writes them back from its cache."""
    from pdla.analyzers.analysis import analyze
    from pdla.analyzers.dependence import pattern_dependences
    from pdla.policies.plan import RedirectedWrites, make_plan

    disk = replace(DISK, name="replicas", where=("b",))
    cluster = replace(CACHED, pools=(DISK, disk))
    trace = make_trace([Call(0, "write", at * 64 * KiB, 4000) for at in range(48)])
    analysis = analyze(trace)
    plan = make_plan(
        analysis, cluster, "pdla-h", writes=RedirectedWrites(pattern_dependences(analysis, trace.accesses()))
    )
    (one,) = plan.patterns
    chosen = next(number for number, found in enumerate(one.candidates) if found.layout and found.space == "replicas")
    plan = replace(plan, patterns=(replace(one, chosen=chosen),))
    found = simulate(from_trace(trace).at_once(), cluster, Scheme("pdla-h"), plan)
    assert found.moved["replicas"] == (0, 0)


def test_what_is_written_can_be_read_at_once() -> None:
    calls = [Call(0, "write", 0, 64 * KiB), Call(0, "read", 0, 64 * KiB)]
    assert queued(program(calls)) == [(0, 64 * KiB)]


def test_a_sync_waits_for_what_has_been_written_so_far() -> None:
    made = program([Call(0, "write", at * 64 * KiB, 64 * KiB) for at in range(3)])
    calls = np.insert(made.arrays["call"], 2, np.zeros(1, core.CALL))
    calls[2] = (0, core.WRITES | core.SYNCS, calls[3]["item"], -1, 1, 0, 0)
    synced = replace(made, arrays={**made.arrays, "call": calls, "first_call": made.arrays["first_call"] + [0, 1]})
    assert queued(synced) == [(0, 128 * KiB), (128 * KiB, 64 * KiB)]
    assert simulated(synced).call_seconds == 0.0


def test_a_sieved_write_reads_and_writes_whole_buffers() -> None:
    """Like ROMIO: also if a piece fills the buffer."""
    views = (View(0, 1, 128 * KiB, 64 * KiB, np.array([BLOCK, 64 * KiB])),)
    storage = replace(CACHED, client_cache=False, sieve_write=64 * KiB)
    found = simulated(program([Call(0, "write", 0, 256 * KiB, view=1)], views), storage, NONE)
    assert (found.requests, found.moved["home"]) == (8, (2 * 256 * KiB, 0))


# ---- replicas --------------------------------------------------------------------------------------------------------


def written_under_a_lease(backend: str, nodes: int = 4) -> dict[str, Result]:
    """What two layouts of a replica take that four ranks write, 16 pages each in turn, on so many nodes."""
    signature = Signature("/d/a", "write", False, 0, PAGE, (Loop(PAGE, 4), Loop(4 * PAGE, 16)), (0, 1, 2, 3), 1)
    disks = replace(DISK, servers=4, startup=((0, 0.0), (1, 1.0)), backend=backend, where=("/d",) * 4)
    storage = replace(CACHED, pools=(disks,), home_servers=4, processes_per_node=4 // nodes)
    found = tuple(one for one in candidates(signature, 64 * PAGE, storage, [disks], waited=0.0) if one.layout)
    plans = {
        one.layout.name: Plan("", "", (PatternPlan(signature, found, number, ""),), (), storage)
        for number, one in enumerate(found)
        if one.layout
    }
    workload = from_signatures([signature])
    return {name: simulate(workload, storage, NONE, plan, leased=True) for name, plan in plans.items()}


def test_the_close_waits_for_the_replicas_that_nodes_have_written() -> None:
    """All the bytes reach the devices, a section at a time: nothing that is written under a lease is free."""
    found = written_under_a_lease("directories")
    assert {name: one.moved["hdd"] for name, one in found.items()} == dict.fromkeys(found, (64 * PAGE, 0))
    assert found["1-DV"].seconds == pytest.approx(16 * PAGE * 1e-6)


def test_cephfs_keeps_in_a_node_only_what_no_other_node_has_open() -> None:
    """Ranks on a node each have a component for themselves in 1-DV; else each of their writes is a request. On one node
    they keep what they write in every layout."""
    apart, together = written_under_a_lease("cephfs"), written_under_a_lease("cephfs", nodes=1)
    assert apart["1-DV"].subrequests == 4
    assert apart["1-DH"].subrequests >= 3 * 16
    assert apart["1-DH"].seconds > 10 > apart["1-DV"].seconds
    assert together["1-DH"].subrequests == together["1-DV"].subrequests == 4


# ---- processors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "seconds"), [(None, 0.5), (2, 1.0), (1, 2.0)])
@pytest.mark.parametrize("cached", [True, False])
def test_ranks_share_the_processors_of_their_node(cores: int | None, seconds: float, cached: bool) -> None:
    storage = replace(CACHED, client_cache=cached, cores=cores, call_seconds=0.25, copy_seconds_per_byte=0.25 / PAGE)
    storage = replace(storage, pools=(replace(DISK, read_seconds_per_byte=0.0),))
    calls = [Call(rank, "read", MiB + rank * MiB, PAGE) for rank in range(4)]
    assert simulated(program(calls, size=8 * MiB), storage).seconds == pytest.approx(seconds)


def test_an_aggregator_needs_a_processor_for_what_other_ranks_get() -> None:
    """Of 64 KiB three quarters, in one message for each."""
    views = [View(rank * 4 * KiB, 1, 16 * KiB, 4 * KiB, np.array([BLOCK, 4 * KiB])) for rank in range(4)]
    calls = [Call(rank, "read", 0, 16 * KiB, collective=True, view=rank + 1) for rank in range(4)]
    storage = replace(CACHED, client_cache=False, exchange_seconds_per_byte=1e-5)
    found = simulated(program(calls, views), storage, NONE)
    assert found.seconds == pytest.approx(0.065536 + 0.49152)
