"""The cost model: PDLA's closed forms, start-up by distance, and what candidates of known patterns cost."""

from __future__ import annotations

import doctest
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.layouts import contiguity, cost, devices
from pdla.layouts.candidates import candidates
from pdla.layouts.contiguity import Pattern, gaps, total_startup
from pdla.layouts.cost import layout_time
from pdla.layouts.devices import startup
from pdla.layouts.plugins import backend_class
from pdla.model import Candidate, Cluster, Device, Loop, Pool, Signature
from pdla.units import KiB, MiB

# A disk whose start-up is 0 in sequence, 1 s from 1 MiB on; a byte takes 1 us. Round numbers make costs readable.
DISK = Pool("hdd", "hdd", 4, ((0, 0.0), (MiB, 1.0)), 1e-6, 1e-6, 1 << 40, 64 * KiB, "directories", tuple("abcd"))
CLUSTER = Cluster((DISK,), "hdd", 4, 64 * KiB, 1, 0.0, 0.0, 0.0, "test")


def read(
    length: int,
    *loops: tuple[int, int],
    start: int = 0,
    ranks: int = 1,
    rank_loops: int = 0,
    collective: bool = False,
    calls: int = 0,
) -> Signature:
    nest = tuple(Loop(*loop) for loop in loops)
    return Signature("data", "read", collective, start, length, nest, tuple(range(ranks)), rank_loops, calls)


def by_layout(signature: Signature, size: int, cluster: Cluster = CLUSTER) -> dict[str, Candidate]:
    found = candidates(signature, size, cluster, cluster.pools)
    return {candidate.layout.name if candidate.layout else candidate.space: candidate for candidate in found}


@pytest.mark.parametrize("module", [contiguity, cost, devices])
def test_the_examples_in_the_docstrings_hold(module):
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)


def t_1dh(p, n, m, s, e, v, a, b):
    """PDLA Table 2 as printed."""
    return max(p, m * n) * e + max(p / n, m) * s * v + p * a + p / n * s * b


def t_1dv(p, n, m, s, e, v, a, b):
    """PDLA Table 2 as printed."""
    return max(m, math.ceil(p / n)) * (e + s * v) + math.ceil(p / n) * (a + s * b)


SECONDS = st.floats(0, 1)
CASES = st.tuples(st.integers(1, 500), st.integers(1, 24), st.integers(1, 40), st.integers(1, 1 << 26))


@given(CASES, SECONDS, SECONDS, SECONDS, SECONDS)
def test_one_group_is_the_papers_1dh(case, e, v, a, b):
    p, n, m, s = case
    assert layout_time(p, m, n, 1, s, e, v, a, b).total == pytest.approx(t_1dh(p, n, m, s, e, v, a, b))


@given(CASES, SECONDS, SECONDS, SECONDS, SECONDS)
def test_as_many_groups_as_servers_is_the_papers_1dv(case, e, v, a, b):
    p, n, m, s = case
    assert layout_time(p, m, n, n, s, e, v, a, b).total == pytest.approx(t_1dv(p, n, m, s, e, v, a, b))


def test_guideline_few_processes_want_1dh_does_not_hold_for_16_kib_requests():
    """p = 2 < n = 8: 1-DV wins at 16 KiB and 2-D (g = 2) above, whatever the paper's guideline says."""

    def best(s: int) -> int:
        return min((1, 2, 4, 8), key=lambda g: layout_time(2, 1, 8, g, s, 1e-4, 8e-9, 8e-3, 1.2e-8).total)

    assert [best(s) for s in (16 * KiB, MiB, 64 * MiB)] == [8, 2, 2]


def test_startup_is_linear_between_the_points_and_constant_beyond():
    assert [startup(DISK, d) for d in (0, 512 * KiB, MiB, 1 << 40)] == [0.0, 0.5, 1.0, 1.0]


def test_a_curve_may_be_a_constant():
    flat = Pool("x", "ssd", 1, ((0, 0.25),), 0.0, 0.0, 0, 1, "directories", ("x",))
    assert [startup(flat, d) for d in (0, 1, 1 << 50)] == [0.25, 0.25, 0.25]


NESTS = st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 5)).map(lambda loop: Loop(*loop)), max_size=4)


@given(NESTS, st.integers(1, 50))
def test_gaps_are_those_between_the_expanded_requests(loops, length):
    offsets = read(length, *loops, start=10_000).expand()[0]
    expected = np.abs(offsets[1:] - (offsets[:-1] + length))
    found = sorted(distance for gap in gaps(loops, length) for distance in [gap.distance] * gap.times)
    assert found == sorted(expected.tolist())


def test_contiguous_requests_need_no_startup():
    assert total_startup(DISK, "read", [Loop(4096, 1_000_000_000)], 4096, 1) == 0.0


def test_startup_of_a_billion_strided_requests_is_a_product():
    assert total_startup(DISK, "read", [Loop(2 * MiB, 1_000_000_001)], MiB, 1) == 1e9


@pytest.mark.parametrize(("length", "seconds"), [(MiB, 0.5), (4 * MiB, 1.0), (8 * MiB, 2.0)])
def test_where_start_up_and_transfer_overlap_a_request_takes_the_longer(length: int, seconds: float):
    """0.5 s or 4 MiB/s, of which every other request on two servers gets half."""
    pool = replace(DISK, startup=((0, 0.5),), read_seconds_per_byte=0.25 / MiB, overlap=True)
    for spread in (1, 2):
        startup = total_startup(pool, "read", [Loop(1 << 30, 2)], spread * length, spread)
        assert startup + length * pool.read_seconds_per_byte == seconds


def test_where_requests_are_counted_ranks_that_take_turns_do_not_read_sequentially():
    """Four ranks read quarters of a strip in turn. The busiest of four servers has three strips: 12 parts of 0.5 s each
    less its transfer, but for the first one; the last rank comes to it after the three others."""
    pool = replace(DISK, startup=((0, 0.0), (4096, 0.5)), overlap=True)
    turns = read(16 * KiB, (16 * KiB, 4), (64 * KiB, 10), ranks=4, rank_loops=1)
    own = read(64 * KiB, (64 * KiB, 4), (256 * KiB, 10), ranks=4, rank_loops=1)
    startup = {
        (overlap, pattern): by_layout(
            pattern, pattern.bytes, replace(CLUSTER, pools=(replace(pool, overlap=overlap),))
        )["original"].cost.startup
        for pattern in (turns, own)
        for overlap in (True, False)
    }
    assert startup[False, turns] == startup[False, own] == startup[True, own] == 0.0
    assert startup[True, turns] == pytest.approx(13 / 12 * 11 * (0.5 - 16 * 1024e-6))


@pytest.mark.parametrize(
    ("backend", "overlap", "seconds"),
    [
        ("directories", True, 0.5 - 128 * 1024e-6),
        ("cephfs", True, 3 * (0.5 - 64 * 1024e-6)),
        ("directories", False, 0.5),
        ("cephfs", False, 0.5),
    ],
)
def test_cephfs_is_asked_for_a_strip_at_a_time(backend: str, overlap: bool, seconds: float):
    """Two calls of 512 KiB far from each other, of which each of four servers has two strips of 64 KiB, or 128 KiB:
    one start-up after the first request, or three where requests are counted. A head moves once all the same."""
    pool = replace(DISK, startup=((0, 0.0), (4096, 0.5)), overlap=overlap, backend=backend)
    cluster = replace(CLUSTER, pools=(pool,))
    found = by_layout(read(512 * KiB, (1 << 30, 2)), MiB, cluster)
    assert found["original"].cost.startup == pytest.approx(seconds)
    assert by_layout(read(4 * KiB), 4 * KiB, cluster)["original"].cost.startup == 0.0


def test_a_back_end_says_itself_that_its_clients_send_strip_by_strip(monkeypatch: pytest.MonkeyPatch):
    pool = replace(DISK, startup=((0, 0.0), (4096, 0.5)), overlap=True)
    apart = read(512 * KiB, (1 << 30, 2))
    cluster = replace(CLUSTER, pools=(pool,))
    at_once = by_layout(apart, MiB, cluster)["original"].cost.startup
    monkeypatch.setattr(backend_class(pool.backend), "strip_by_strip", True)
    singly = by_layout(apart, MiB, replace(cluster, source="another"))["original"].cost.startup
    assert (at_once, singly) == pytest.approx((0.5 - 128 * 1024e-6, 3 * (0.5 - 64 * 1024e-6)))


@pytest.mark.parametrize(("ahead", "seconds"), [(512 * KiB, 2.0), (MiB, 0.0)])
def test_a_page_cache_reads_a_replica_ahead(ahead: int, seconds: float):
    """Eight sections of 1 MiB on four servers: a head goes between two, by 512 KiB, back by 1 MiB, and on again."""
    strided = read(64 * KiB, (64 * KiB, 8), (512 * KiB, 16), ranks=8, rank_loops=1)
    node = replace(CLUSTER, client_cache=True, client_read_ahead=ahead)
    assert by_layout(strided, 8 * MiB, node)["1-DV"].cost.startup == pytest.approx(seconds)
    assert by_layout(strided, 8 * MiB)["1-DV"].cost.startup > 15


def test_a_call_through_a_view_has_pieces():
    pattern = Pattern.of(read(16 * KiB, (1 << 27, 2), (32 * KiB, 4096), ranks=2, rank_loops=1, calls=32))
    assert pattern == Pattern("read", 0, (Loop(1 << 27, 2),), (Loop(1 << 23, 16),), (Loop(32 * KiB, 256),), 16 * KiB)
    assert pattern.call_bytes == 4 * MiB


def test_calls_that_are_not_known_are_the_requests():
    assert Pattern.of(read(8, (16, 10))).calls == (Loop(16, 10),)


def test_contiguous_reading_costs_the_same_from_a_replica_striped_like_the_original():
    found = by_layout(read(256 * KiB, (256 * KiB, 8)), 2 * MiB)
    # 8 rounds, each 256 KiB over 4 servers at 1 us a byte, and no start-up.
    assert found["original"].cost.total == found["1-DH"].cost.total == pytest.approx(8 * 65536e-6)
    assert found["1-DV"].cost.total == pytest.approx(8 * 262144e-6)


def test_a_strided_reader_pays_startup_in_the_original_and_none_in_a_replica():
    found = by_layout(read(4 * KiB, (8 * MiB, 100)), 400 * KiB)
    assert found["original"].cost.startup == 99.0
    assert {name: found[name].cost.startup for name in ("1-DH", "2-D", "1-DV")} == {"1-DH": 0, "2-D": 0, "1-DV": 0}


def test_ranks_whose_requests_meet_on_one_home_server_queue_there():
    # Rank r reads 4 KiB at r*16 KiB of every 64 KiB: a round is one strip, one server, and gaps of 12 KiB.
    crowded = by_layout(read(4 * KiB, (16 * KiB, 4), (64 * KiB, 10), ranks=4, rank_loops=1), 160 * KiB)
    # A rank whose request was served goes on to the next server. So the last rank waits for the others only once.
    assert crowded["original"].cost.transfer == pytest.approx((10 + 3) * 4096e-6)
    # The server of three of the ten rounds has 12 requests, of which the first is free.
    assert crowded["original"].cost.startup == pytest.approx((10 + 3) * 11 / 12 * 12 / 1024)
    # Here every rank of a round is on a server of its own.
    spread = by_layout(read(4 * KiB, (64 * KiB, 4), (256 * KiB, 10), ranks=4, rank_loops=1), 160 * KiB)
    assert spread["original"].cost.transfer == pytest.approx(10 * 4096e-6)


def test_sections_of_several_ranks_on_one_server_cost_a_jump_each():
    # 8 ranks in 1-DV on 4 servers: two sections of 1.5 MiB a server, read in turn.
    found = by_layout(read(MiB // 2, (1 << 30, 8), (1 << 26, 3), ranks=8, rank_loops=1), 12 * MiB)
    assert found["1-DV"].cost.startup == 5.0
    four = by_layout(read(MiB // 2, (1 << 30, 4), (1 << 26, 3), ranks=4, rank_loops=1), 6 * MiB)
    assert four["1-DV"].cost.startup == 0.0


def test_ranks_that_read_the_same_bytes_share_a_section():
    found = by_layout(read(64 * KiB, (0, 4), (MiB, 3), ranks=4, rank_loops=1), 192 * KiB)
    layout = found["1-DV"].layout
    assert layout is not None and layout.section == 192 * KiB
    assert found["1-DV"].cost.transfer == pytest.approx(3 * 4 * 65536e-6)


def test_a_strip_spreads_one_call_over_the_group_in_whole_grains():
    found = by_layout(read(300 * KiB, (MiB, 8)), 2400 * KiB)
    strips = {name: found[name].layout.strips for name in ("1-DH", "2-D", "1-DV")}  # type: ignore[union-attr]
    assert strips == {"1-DH": (128 * KiB,) * 4, "2-D": (192 * KiB,) * 2, "1-DV": (320 * KiB,)}


def test_candidates_are_the_original_and_every_group_count_that_divides_the_servers():
    found = candidates(read(4096, (8192, 10), ranks=1), 40960, CLUSTER, [DISK])
    assert [(c.space, c.layout.groups if c.layout else 0) for c in found] == [
        ("original", 0),
        ("hdd", 1),
        ("hdd", 2),
        ("hdd", 4),
    ]


def test_a_collective_original_reads_what_the_ranks_cover_together_without_startup():
    # Four ranks read interleaved 4 KiB pieces, 64 to a call: together every call is 1 MiB of the file, in order.
    signature = read(4 * KiB, (4 * KiB, 4), (16 * KiB, 640), ranks=4, rank_loops=1, calls=4 * 10, collective=True)
    found = by_layout(signature, 10 * MiB)
    assert found["original"].cost.startup == 0.0
    assert found["original"].cost.transfer == pytest.approx(10 * MiB / 4 * 1e-6)
    assert "collective" not in found


@pytest.mark.parametrize(("every", "seconds"), [(256, 0.0), (320, 6 * 0.25)])
def test_a_collective_original_goes_as_far_as_each_server_has_to(every: int, seconds: float):
    """Ten runs of a strip. In every fourth strip one server has all, one after the other. In every fifth, four servers
    take turns; six times one has to go 256 KiB of its own further, 0.25 s. All aggregators wait for that."""
    signature = read(16 * KiB, (16 * KiB, 4), (every * KiB, 10), ranks=4, rank_loops=1, collective=True)
    assert by_layout(signature, 640 * KiB)["original"].cost.total == pytest.approx(seconds + 10 * 4 * 16384e-6)


def test_where_nothing_takes_time_nothing_costs():
    """Requests that are not on the first server, with devices that need no time at all."""
    free = replace(DISK, startup=((0, 0.0),), read_seconds_per_byte=0.0)
    signature = read(4 * KiB, (4 * KiB, 4), start=64 * KiB, ranks=4, rank_loops=1)
    found = candidates(signature, 16 * KiB, replace(CLUSTER, pools=(free,)), [])
    assert [(one.space, one.cost.total) for one in found] == [("original", 0.0), ("collective", 0.0)]


def test_a_collective_original_also_shuffles_bytes_between_nodes():
    cluster = Cluster((DISK,), "hdd", 4, 64 * KiB, 4, 0.0, 1e-6, 0.0, "test")
    signature = read(64 * KiB, (64 * KiB, 4), (256 * KiB, 10), ranks=4, rank_loops=1, collective=True)
    # The link of one node has the 256 KiB of a call. Those of two nodes have half of it each, and half of that
    # again for the other node.
    for per_node, carried in ((4, 256), (2, 128 + 64)):
        found = by_layout(signature, 2560 * KiB, replace(cluster, processes_per_node=per_node))
        assert found["original"].cost.network == pytest.approx(10 * carried * 1024e-6)


def test_a_collective_call_is_buffered_in_rounds():
    # One aggregator on one node reads 256 KiB a call: at once, or 64 KiB at a time, a server at a time.
    signature = read(64 * KiB, (64 * KiB, 4), (256 * KiB, 10), ranks=4, rank_loops=1, collective=True)
    whole = Cluster((DISK,), "hdd", 4, 64 * KiB, 4, 1e-3, 0.0, 0.0, "test")
    one, four = (
        by_layout(signature, 2560 * KiB, replace(whole, collective_buffer=size))["original"].cost
        for size in (256 * KiB, 64 * KiB)
    )
    assert (one.connect, four.connect) == (pytest.approx(10 * 4 * 1e-3), pytest.approx(10 * 4 * 1e-3))
    assert (one.transfer, four.transfer) == (pytest.approx(10 * 65536e-6), pytest.approx(10 * 4 * 65536e-6))
    # A buffer of 96 KiB: three rounds of a third. A server has 64 KiB of the first and the last, half of the other.
    odd = by_layout(signature, 2560 * KiB, replace(whole, collective_buffer=96 * KiB))["original"].cost
    assert odd.transfer == pytest.approx(10 * (64 + 256 / 3 / 2 + 64) * 1024e-6, rel=1e-4)


def written(signature: Signature) -> Signature:
    return replace(signature, op="write")


def test_a_written_replica_also_costs_its_write_back():
    # One rank writes 64 KiB of every 8 MiB, 10 times. The replica is read over 4 servers, the original written piece by
    # piece, each on one server and with a start-up between them.
    signature = read(64 * KiB, (8 * MiB, 10))
    reading, writing = (
        {name: one.cost for name, one in by_layout(of, 640 * KiB).items()} for of in (signature, written(signature))
    )
    assert writing["original"] == reading["original"]
    # Before it is read, heads go back to where it begins.
    for name, held in (("1-DH", 160 * KiB), ("2-D", 320 * KiB), ("1-DV", 640 * KiB)):
        assert writing[name].startup == reading[name].startup + held / MiB + 9.0
    # With strips of 64 KiB a call is on one server; in 1-DV all of the one section is, to be read back from there.
    assert writing["1-DH"].transfer == pytest.approx((10 * 64 + 640 / 4 + 640) * 1024e-6)
    assert writing["1-DV"].transfer == pytest.approx((10 * 64 + 640 + 640) * 1024e-6)


ONE_NODE = replace(CLUSTER, processes_per_node=4, client_cache=True)


def test_what_one_node_keeps_is_flushed_in_the_order_of_the_file():
    # Four ranks write 64 KiB in turn, 10 rounds of every MiB: a run of 256 KiB is a strip of each server.
    signature = written(read(64 * KiB, (64 * KiB, 4), (8 * MiB, 10), ranks=4, rank_loops=1))
    cost = by_layout(signature, 2560 * KiB, ONE_NODE)["original"].cost
    assert (cost.startup, cost.transfer) == (9.0, pytest.approx(10 * 65536e-6))
    # On a node each they are four requests of each round; every rank's are on one server.
    apart = by_layout(signature, 2560 * KiB, replace(ONE_NODE, processes_per_node=1))["original"].cost
    assert (apart.startup, apart.transfer) == (9.0, pytest.approx(10 * 65536e-6))
    # Of 16 KiB, the requests of four nodes meet on one server, which goes on where the last one ended.
    small = written(read(16 * KiB, (16 * KiB, 4), (8 * MiB, 10), ranks=4, rank_loops=1))
    counted = replace(ONE_NODE, processes_per_node=1, pools=(replace(DISK, overlap=True),))
    assert by_layout(small, 640 * KiB, counted)["original"].cost.startup == pytest.approx(9 * (1 - 16 * 1024e-6))
    together = replace(counted, processes_per_node=4)
    assert by_layout(small, 640 * KiB, together)["original"].cost.startup == pytest.approx(9 * (1 - 64 * 1024e-6))


def test_a_page_of_which_a_part_is_written_is_read_first():
    cost = {
        length: by_layout(written(read(length, (8 * MiB, 10))), 10 * length, ONE_NODE)["original"].cost.startup
        for length in (4096, 4000)
    }
    assert cost == {4096: 9.0, 4000: 18.0}


def test_a_replica_on_the_node_itself_costs_nothing_before_its_write_back():
    signature = written(read(64 * KiB, (64 * KiB, 4), (8 * MiB, 10), ranks=4, rank_loops=1))
    found = by_layout(signature, 2560 * KiB, ONE_NODE)
    assert [found[name].cost for name in ("1-DH", "1-DV")] == [found["original"].cost] * 2
    # Under a lease the close waits for the replica, and for nothing else if nobody opens the file again.
    leased = candidates(signature, 2560 * KiB, ONE_NODE, [DISK], waited=0.0)
    assert [one.cost.transfer for one in leased if one.layout] == [pytest.approx(640 * 1024e-6)] * 3
    assert [one.cost.startup for one in leased if one.layout] == [0.0] * 3


def test_of_cephfs_a_node_keeps_only_what_it_writes_to_files_that_no_other_node_has_open():
    """Four ranks on a node each. In 1-DV each has a server's component for itself, and keeps its section; otherwise
    each write waits, as it does for the original."""
    signature = written(read(64 * KiB, (64 * KiB, 4), (8 * MiB, 10), ranks=4, rank_loops=1))
    pool = replace(DISK, overlap=True, startup=((0, 0.0), (1, 1.0)), backend="cephfs")
    nodes = replace(ONE_NODE, processes_per_node=1, pools=(pool,))
    five = written(read(64 * KiB, (64 * KiB, 5), (8 * MiB, 8), ranks=5, rank_loops=1))
    asked = {
        "alone": (signature, nodes),
        "with a node": (signature, replace(nodes, processes_per_node=4)),
        "five ranks": (five, nodes),
    }
    waiting = {
        name: {
            one.layout.name if one.layout else one.space: one.cost.startup
            for one in candidates(each, 2560 * KiB, cluster, [pool], waited=0.0)
        }
        for name, (each, cluster) in asked.items()
    }
    assert waiting["alone"]["1-DV"] == 0.0 < waiting["alone"]["original"] <= waiting["alone"]["1-DH"]
    assert waiting["with a node"]["1-DH"] == waiting["with a node"]["1-DV"] == 0.0
    assert waiting["five ranks"]["1-DV"] > 10


def test_a_server_with_memory_writes_in_the_order_of_its_addresses():
    """Four ranks write a contiguous MiB each, 4 KiB at a time: with memory, 16 KiB at each of the four places. Of the
    MiB of a server, its memory still has 64 KiB at the end."""
    segmented = written(read(4 * KiB, (MiB, 4), (4 * KiB, 256), ranks=4, rank_loops=1))
    disks = {size: replace(DISK, device=Device(memory=size)) for size in (0, 64 * KiB)}
    cost = {
        size: by_layout(segmented, 4 * MiB, replace(CLUSTER, pools=(disk,)))["original"].cost.startup
        for size, disk in disks.items()
    }
    assert 0.15 * cost[0] < cost[64 * KiB] < 15 / 16 * cost[0] / 4


def test_what_has_no_order_to_gain_is_never_worth_writing_elsewhere():
    signature = written(read(4 * KiB, (4 * MiB, 100)))
    found = by_layout(signature, 400 * KiB)
    assert min(found, key=lambda name: found[name].cost.total) == "original"


def test_an_independent_write_through_a_view_reads_the_holes_first():
    signature = read(4 * KiB, (64 * KiB, 64), calls=1)
    reading, writing = (by_layout(of, 256 * KiB)["original"].cost for of in (signature, written(signature)))
    assert writing.transfer == pytest.approx(2 * reading.transfer)


def test_the_plan_shows_what_collective_calls_of_independent_ranks_would_cost():
    node = replace(CLUSTER, processes_per_node=4, connect_seconds=1e-2)
    found = candidates(read(4096, (4096, 4), (16384, 10), ranks=4, rank_loops=1), 163840, node, [])
    assert [candidate.space for candidate in found] == ["original", "collective"]
    assert found[1].cost.total < found[0].cost.total


def test_an_independent_call_through_a_view_reads_the_holes_too():
    # One call: 64 pieces of 4 KiB in every 64 KiB. Data sieving reads all 4 MiB less the last hole, 16 strips of three
    # servers; a replica 256 KiB.
    found = by_layout(read(4 * KiB, (64 * KiB, 64), calls=1), 256 * KiB)
    assert found["original"].cost.transfer == pytest.approx(16 * 65536e-6)
    assert found["1-DH"].cost.transfer == pytest.approx(64 * 1024e-6)


def test_small_sections_are_spread_evenly_and_not_padded_to_a_cycle_of_grains():
    found = by_layout(read(4 * KiB, (4 * KiB, 64), (MiB, 2), ranks=64, rank_loops=1), 512 * KiB)
    strips = {name: found[name].layout.strips for name in ("1-DH", "2-D", "1-DV")}  # type: ignore[union-attr]
    assert strips == {"1-DH": (2 * KiB,) * 4, "2-D": (4 * KiB,) * 2, "1-DV": (8 * KiB,)}
