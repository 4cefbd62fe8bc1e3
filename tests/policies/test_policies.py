"""Every online policy keeps the rules, and does what its paper says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.errors import ConfigError
from pdla.layouts.config import load_cluster
from pdla.model import Cluster, Device, Op, Pool
from pdla.policies import make_online, online_names
from pdla.policies.e10 import E10, Phase, bandwidth
from pdla.policies.ibridge import IBridge
from pdla.policies.liu import LiU, head_bytes, latency, segment_time
from pdla.policies.online import Extent, Online, Request
from pdla.policies.s4d import S4D, benefit_of
from pdla.simulator.conformance import CLUSTER, KIB, PolicyTests
from pdla.simulator.enactor import Enactor, Move, Step, Transfer


class TestS4D(PolicyTests):
    def make(self) -> Online:
        return S4D(chunk=2000)


class TestIBridge(PolicyTests):
    def make(self) -> Online:
        return IBridge()


class TestLiU(PolicyTests):
    def make(self) -> Online:
        return LiU(head=KIB, body=2 * KIB, buffer=6 * KIB)


class TestE10Immediate(PolicyTests):
    def make(self) -> Online:
        return E10(chunk=700)


class TestE10OnClose(PolicyTests):
    def make(self) -> Online:
        return E10(flush="close", discard=False)


def request(op: Op, start: int, stop: int, *, rank: int = 0, collective: bool = False) -> Request:
    return Request(0.0, rank, rank, 0, op, start, stop, collective)


def spaces(step: Step) -> list[str]:
    """Where the transfers of a request go."""
    return [transfer.space for stage in step.foreground for transfer in stage]


def finish(enactor: Enactor, moves: Sequence[Move]) -> None:
    """All of them, and those that follow."""
    left = list(moves)
    while left:
        left += enactor.finished(left.pop(0).token, 9.0)


def with_pool(name: str, **changes: object) -> Cluster:
    """CLUSTER with another pool of this name."""

    def changed(pool: Pool) -> Pool:
        return replace(pool, **changes) if pool.name == name else pool  # type: ignore[arg-type]

    return replace(CLUSTER, pools=tuple(changed(pool) for pool in CLUSTER.pools))


@pytest.mark.parametrize("name", online_names())
def test_a_policy_has_the_parameters_of_its_paper_by_default(name: str) -> None:
    made = make_online(name)
    wanted = {
        "s4d": {"period": 1.0, "by_part": False},
        "ibridge": {"fragment": None, "random": None, "period": 1.0, "by_part": True},
        "liu": {"head": None, "body": None, "sections": 4, "buffer": 268435456, "locality": 0.5, "by_part": True},
        "e10": {"flush": "immediate", "discard": True, "period": None, "by_part": False},
    }[name]
    assert {key: getattr(made, key) for key in wanted} == wanted


@pytest.mark.parametrize("name", ["s4d", "ibridge", "liu", "e10"])
def test_a_policy_runs_on_the_testbed_of_its_paper(name: str) -> None:
    cluster = load_cluster("s4d-cache" if name == "s4d" else name)
    step = Enactor(make_online(name), cluster, {0: 1 << 30}).serve(request("write", 1000, 70_000, collective=True))
    assert spaces(step) == {
        "s4d": ["ssd"], "ibridge": ["ssd", "ssd"], "liu": ["home", "home"], "e10": ["scratch"]
    }[name]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (S4D, 's4d needs a pool of kind "ssd", but suite has hdd .hdd.$'),
        (IBridge, 'ibridge needs a pool of kind "ssd"'),
        (LiU, 'liu needs a pool of kind "ssd"'),
        (E10, 'e10 needs a pool of kind "node"'),
    ],
)
def test_a_cluster_without_what_a_policy_needs_is_refused(policy: Callable[[], Online], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Enactor(policy(), replace(CLUSTER, pools=CLUSTER.pools[:1]))


@pytest.mark.parametrize("policy", [IBridge, LiU])
def test_a_policy_of_the_servers_needs_an_ssd_for_each(policy: Callable[[], Online]) -> None:
    with pytest.raises(ConfigError, match="needs an SSD for each of 4 home servers, but pool ssd has 3"):
        Enactor(policy(), with_pool("ssd", servers=3))


# ---- S4D-Cache ------------------------------------------------------------------------------------------------------

SLOW_SSDS = with_pool("ssd", read_seconds_per_byte=1e-6, write_seconds_per_byte=1e-6)


def test_s4d_equation_8() -> None:
    # T_s = 0 + 1/2*(0.01 - 0), T_t = 1024*1e-8; T_C = 1024*2e-9.
    assert benefit_of(CLUSTER, "write", 0, 1024, distance=0) == pytest.approx(0.005 + 1.024e-5 - 2.048e-6)
    # T_s = 4/5*0.01, T_t = 16384*1e-8; T_C = 16384*1e-6.
    assert benefit_of(SLOW_SSDS, "write", 0, 65536, distance=0) == pytest.approx(0.008 + 1.6384e-4 - 1.6384e-2)


def test_s4d_redirects_critical_writes_and_no_others() -> None:
    enactor = Enactor(S4D(), SLOW_SSDS)
    assert spaces(enactor.serve(request("write", 0, KIB))) == ["ssd"]
    assert spaces(enactor.serve(request("write", KIB, 65 * KIB))) == ["home"]
    assert enactor.dirty == [Extent(0, 0, KIB, "ssd", True)]


def test_s4d_fetches_critical_reads_when_the_rebuilder_runs() -> None:
    enactor = Enactor(S4D(), CLUSTER, {0: 40 * KIB})
    assert enactor.serve(request("read", 0, KIB, rank=2)) == Step(((Transfer("home", None, 0, "read", 0, KIB, 2, 0),),))
    (move,) = enactor.tick(1.0).background
    assert move.stages == (
        (Transfer("home", None, 0, "read", 0, KIB, 2, 0),),
        (Transfer("ssd", None, 0, "write", 0, KIB, 2, 0),),
    )
    assert not move.urgent
    finish(enactor, [move])
    assert spaces(enactor.serve(request("read", 0, KIB))) == ["ssd"]
    assert enactor.tick(2.0) == Step()


def test_s4d_splits_what_is_cached_in_part() -> None:
    enactor = Enactor(S4D(), CLUSTER, {0: 40 * KIB})
    enactor.serve(request("write", 0, KIB))
    step = enactor.serve(request("write", 512, 1536))
    assert step.foreground == ((Transfer("ssd", None, 0, "write", 512, 1536, 0, 512),),)
    assert enactor.used == {"ssd": 1536}
    assert spaces(enactor.serve(request("read", 1024, 2048))) == ["ssd", "home"]


def test_s4d_replaces_clean_copies_and_keeps_dirty_ones() -> None:
    enactor = Enactor(S4D(), CLUSTER)
    for number in range(16):
        enactor.serve(request("write", number * KIB, (number + 1) * KIB))
    assert spaces(enactor.serve(request("write", 20 * KIB, 21 * KIB))) == ["home"]
    finish(enactor, enactor.tick(1.0).background)
    assert not enactor.dirty
    enactor.serve(request("read", 0, KIB))
    assert spaces(enactor.serve(request("write", 20 * KIB, 21 * KIB))) == ["ssd"]
    # The first was read again: the second is the least recently used.
    assert [extent.space for extent in enactor.extents(0, 0, 3 * KIB)] == ["ssd", "home", "ssd"]


# ---- iBridge --------------------------------------------------------------------------------------------------------


def admits_sequential_fragment(
    slow: int = 1, accesses: int = 1, ssd_startup: float = 5e-3, exchanged: bool = True
) -> bool:
    """Whether the SSD of server 1 takes a fragment whose own return is negative, since the disk need not seek for it.

    Before, server ``slow`` has served the first strips of its part: it sought for the first one.
    """
    enactor = Enactor(IBridge(), with_pool("ssd", startup=((0, ssd_startup),)), {0: 40 * KIB})
    for number in range(accesses):
        start = (4 * number + slow) * KIB
        enactor.serve(request("write", start, start + KIB))
    if exchanged:
        enactor.tick(1.0)
    start = 4 * KIB * accesses
    if slow != 1:
        enactor.serve(request("write", start - 3 * KIB, start - 2 * KIB))
    return spaces(enactor.serve(request("write", start, start + KIB + 100))) == ["home", "ssd"]


def test_ibridge_a_fragment_on_the_slowest_server_returns_more() -> None:
    assert admits_sequential_fragment()
    assert not admits_sequential_fragment(slow=0)
    assert not admits_sequential_fragment(exchanged=False)


def test_ibridge_average_service_time() -> None:
    """A fragment on the slowest of two servers returns 2*T more than T/8 + 7/8*(100*1e-8 - (ssd + 100*2e-9))."""
    first = (0.01 + 1024e-8) * 7 / 8
    second = first / 8 + 1024e-8 * 7 / 8
    for accesses, average in ((1, first), (2, second)):
        limit = (2 + 1 / 8) * average * 8 / 7 + 1e-6 - 2e-7
        assert admits_sequential_fragment(accesses=accesses, ssd_startup=0.999 * limit)
        assert not admits_sequential_fragment(accesses=accesses, ssd_startup=1.001 * limit)


def test_ibridge_serves_fragments_and_random_requests_from_the_ssd_of_the_disk() -> None:
    enactor = Enactor(IBridge(), CLUSTER, {0: 40 * KIB})
    step = enactor.serve(request("write", 0, 2 * KIB + 100))
    assert step.foreground == (
        (
            Transfer("home", 0, 0, "write", 0, KIB, 0, 0),
            Transfer("home", 1, 0, "write", 0, KIB, 0, 0),
            Transfer("ssd", 2, 0, "write", 0, 100, 0, 0),
        ),
    )
    assert spaces(enactor.serve(request("write", 7 * KIB + 10, 7 * KIB + 20))) == ["ssd"]
    assert spaces(enactor.serve(request("write", 8 * KIB, 9 * KIB))) == ["home"]


def test_ibridge_writes_back_within_the_server() -> None:
    enactor = Enactor(IBridge(), CLUSTER, {0: 40 * KIB})
    enactor.serve(request("write", 10, 20))
    (move,) = enactor.tick(1.0).background
    assert move.stages == (
        (Transfer("ssd", 0, 0, "read", 0, 10, None, 10),),
        (Transfer("home", 0, 0, "write", 10, 20, None, 10),),
    )


def test_ibridge_reads_a_fragment_from_the_disk_once() -> None:
    enactor = Enactor(IBridge(), CLUSTER, {0: 40 * KIB})
    step = enactor.serve(request("read", 8 * KIB, 9 * KIB + 100))
    assert spaces(step) == ["home", "home"]
    assert [move.stages for move in step.background] == [((Transfer("ssd", 1, 0, "write", 0, 100, None, 2 * KIB),),)]
    finish(enactor, step.background)
    assert spaces(enactor.serve(request("read", 8 * KIB, 9 * KIB + 100))) == ["home", "ssd"]


def test_ibridge_leaves_what_is_read_in_order_on_the_disk() -> None:
    """Of each rank in its part of the file, or of ranks whose requests follow one another."""
    enactor, size = Enactor(IBridge(), CLUSTER, {0: 100 * KIB, 1: 100 * KIB}), KIB + 100
    own = [(number * size + rank * 40 * KIB, rank) for number in range(10) for rank in range(2)]
    turns = [((2 * number + rank) * size, rank) for number in range(10) for rank in range(2)]
    moves = [
        enactor.serve(request("read", start, start + size, rank=rank)._replace(file=file)).background
        for file, starts in enumerate((own, turns))
        for start, rank in starts
    ]
    assert [number for number, found in enumerate(moves) if found] == [1]


def test_ibridge_lets_in_only_what_the_disk_would_be_slower_for() -> None:
    """Sequential: 0 + 100*1e-8 on the disk, 1e-4 + 100*2e-9 on the SSD; and an eighth of the disk's average before."""
    for accesses, space in ((1, "ssd"), (4, "home")):
        enactor = Enactor(IBridge(), CLUSTER, {0: 40 * KIB})
        for number in range(accesses):
            enactor.serve(request("write", 4 * number * KIB, (4 * number + 1) * KIB))
        start = 4 * accesses * KIB
        assert spaces(enactor.serve(request("write", start, start + 100))) == [space]
    assert spaces(enactor.serve(request("write", 32 * KIB, 32 * KIB + 100))) == ["ssd"]


def test_ibridge_spares_an_ssd_that_is_slow() -> None:
    """Requests that it has served count in its average, as those of a disk do."""
    enactor = Enactor(IBridge(), with_pool("ssd", startup=((0, 9e-3),)), {0: 80 * KIB})
    found = []
    for number in range(3):
        start = (20 - 8 * number) * 4 * KIB
        found += spaces(enactor.serve(request("write", start, start + 100)))
    assert found == ["ssd", "home", "ssd"]


def test_ibridge_thresholds_are_parameters() -> None:
    enactor = Enactor(IBridge(fragment=50, random=50), CLUSTER, {0: 40 * KIB})
    assert spaces(enactor.serve(request("write", 0, KIB + 100))) == ["home", "home"]
    assert spaces(enactor.serve(request("write", 0, KIB + 49))) == ["home", "ssd"]


def test_ibridge_shares_an_ssd_between_fragments_and_random_requests() -> None:
    """When it is full, the kind with more than its share, by its mean return, makes room."""
    enactor = Enactor(IBridge(), with_pool("ssd", capacity=4 * 2000), {0: 1 << 20})
    for number in range(20):
        start = 4 * KIB * (20 - number) + 10
        enactor.serve(request("write", start, start + 100))
    finish(enactor, enactor.tick(1.0).background)
    assert enactor.used["ssd/0"] == 2000
    step = enactor.serve(request("write", 200 * KIB - KIB, 200 * KIB + 50))
    assert spaces(step) == ["home", "ssd"]
    assert enactor.used["ssd/0"] == 1950
    assert enactor.extents(0, 20 * KIB + 10, 20 * KIB + 110, 0) == [Extent(0, 20490, 20590, "home", False, 0)]


# ---- LiU ------------------------------------------------------------------------------------------------------------


def test_liu_the_head_hides_the_latency_of_the_paper() -> None:
    assert head_bytes(70e6, 0.012) == pytest.approx(0.84e6)
    # 1 MB from an SSD of 125 MB/s while a disk of 70 MB/s seeks for 12 ms and reads 4 MB.
    assert segment_time(1_000_000, 4_000_000, 1e-4, 125e6, 0.012, 70e6) == pytest.approx(0.012 + 4 / 70)
    # Without: the head comes from the disk as well.
    assert segment_time(0, 5_000_000, 1e-4, 125e6, 0.012, 70e6) == pytest.approx(0.012 + 5 / 70)


def test_liu_a_segment_follows_from_the_disk() -> None:
    """B*t, in a strip that is doubled until it is enough; the body is four times as large."""
    assert LiU().segment(load_cluster("liu")) == (1 << 20, 4 << 20)  # II-B
    assert latency(CLUSTER.pools[0]) == pytest.approx(0.01)
    assert LiU().segment(CLUSTER) == (KIB << 10, KIB << 12)  # 1e8 bytes/s * 0.01 s
    assert LiU(head=KIB).segment(CLUSTER) == (KIB, 4 * KIB)
    assert LiU(body=KIB).segment(with_pool("hdd", read_seconds_per_byte=1e-7)) == (KIB << 7, KIB)
    assert LiU().segment(with_pool("hdd", read_seconds_per_byte=0.0)) == (KIB, 4 * KIB)


def test_liu_the_latency_is_that_of_most_reads_at_random() -> None:
    """Distances of two points at random, and any part of a turn."""
    far = ((0, 0.0), (1000, 0.01))
    assert latency(with_pool("hdd", startup=far).pools[0], 1000) == pytest.approx(0.01 * (1 - 0.2**0.5), rel=0.01)
    turning = with_pool("hdd", startup=((0, 0.002),), device=Device(rotation_seconds=0.008))
    assert latency(turning.pools[0], share=0.5) == pytest.approx(0.006)


ROW = 12 * KIB  # a segment of 3 KiB on each of four servers


def liu() -> Enactor:
    """Two segments a buffer; the first three segments of each server have been read as a whole."""
    enactor = Enactor(LiU(head=KIB, body=2 * KIB, buffer=6 * KIB), CLUSTER, {0: 10 * ROW})
    for number in range(3):
        assert spaces(enactor.serve(request("read", number * ROW, (number + 1) * ROW))) == ["home"] * 4
    return enactor


def test_liu_loads_a_segment_of_high_locality_by_sections() -> None:
    enactor = liu()
    step = enactor.serve(request("read", 0, 100))
    assert [move.stages[0] for move in step.background] == [
        (Transfer("home", 0, 0, "read", 0, 1024, None, 0),),
        *((Transfer("home", 0, 0, "read", low, low + 512, None, low),) for low in (1024, 1536, 2048, 2560)),
    ]
    assert all(move.urgent for move in step.background)
    # It waits for what it needs alone.
    assert step.wait == (step.background[0].token,)
    assert step.foreground == ((Transfer("memory", 0, 0, "read", 0, 100, 0, 0),),)


def test_liu_lifts_the_head_and_reads_it_in_parallel_to_the_body() -> None:
    enactor = liu()
    finish(enactor, enactor.serve(request("read", 0, ROW)).background)
    lifting = enactor.serve(request("read", 0, ROW))
    assert spaces(lifting) == ["memory"] * 4
    assert lifting.background[0].stages == (
        (Transfer("memory", 0, 0, "read", 0, KIB, None, 0),),
        (Transfer("ssd", 0, 0, "write", 0, KIB, None, 0),),
    )
    finish(enactor, lifting.background)
    for number in (1, 2):
        finish(enactor, enactor.serve(request("read", number * ROW, (number + 1) * ROW)).background)
    # Two others have been in the buffer since: it is loaded again, its head from the SSD.
    finish(enactor, enactor.serve(request("read", 3 * ROW, 4 * ROW)).background)
    again = enactor.serve(request("read", 0, ROW))
    reads = [move.stages[0][0] for move in again.background if move.stages[0][0].op == "read"]
    assert {transfer.space for transfer in reads if transfer.first == 0} == {"ssd"}
    assert {transfer.space for transfer in reads if KIB <= transfer.first < 3 * KIB} == {"home"}


def test_liu_writes_to_lifted_segments_go_to_the_ssd() -> None:
    enactor = liu()
    finish(enactor, enactor.serve(request("read", 0, ROW)).background)
    finish(enactor, enactor.serve(request("read", 0, ROW)).background)
    assert spaces(enactor.serve(request("write", 0, 10))) == ["ssd"]
    assert spaces(enactor.serve(request("write", 5 * ROW, 5 * ROW + 10))) == ["home"]


def test_liu_writes_the_body_of_a_lifted_segment_to_the_disk_at_the_same_time() -> None:
    """A third of a segment is its head here."""
    enactor = liu()
    finish(enactor, enactor.serve(request("read", 0, ROW)).background)
    finish(enactor, enactor.serve(request("read", 0, ROW)).background)
    (stage,) = enactor.serve(request("write", 0, ROW)).foreground
    assert [(one.space, one.server, one.start, one.stop) for one in stage] == [
        transfer for server in range(4) for transfer in (("ssd", server, 0, KIB), ("home", server, KIB, 3 * KIB))
    ]
    assert spaces(enactor.serve(request("write", 4 * KIB, 4 * KIB + 10))) == ["home"]
    assert enactor.used["ssd/0"] == KIB


def test_liu_lifts_at_the_next_access_also_if_that_is_a_write() -> None:
    enactor = Enactor(LiU(head=KIB, body=2 * KIB, buffer=6 * KIB), CLUSTER)
    for number in range(3):
        assert spaces(enactor.serve(request("write", number * ROW, (number + 1) * ROW))) == ["home"] * 4
    assert spaces(enactor.serve(request("write", 0, ROW))) == ["ssd", "home"] * 4
    assert spaces(enactor.serve(request("write", 2 * ROW, 3 * ROW))) == ["home"] * 4


@pytest.mark.parametrize(("locality", "others", "loads"), [(2 / 6, 2, True), (0.34, 2, False), (2 / 6, 1, False)])
def test_liu_measures_what_share_of_a_segment_was_requested(locality: float, others: int, loads: bool) -> None:
    """Two of its six sectors; it is known when two others have pushed it out of the stack."""
    policy = LiU(head=KIB, body=2 * KIB, buffer=6 * KIB, locality=locality)
    enactor = Enactor(policy, CLUSTER, {0: 10 * ROW})
    for number in range(1 + others):
        enactor.serve(request("read", number * ROW, number * ROW + KIB))
    assert (enactor.serve(request("read", 0, KIB)).background != ()) == loads


def test_liu_what_was_requested_counts_from_a_close_on() -> None:
    """Also if the buffer has room for more than the program uses: no other segment pushes these out of the stack."""
    enactor = Enactor(LiU(head=KIB, body=2 * KIB, buffer=60 * KIB), CLUSTER, {0: 10 * ROW, 1: 10 * ROW})
    few, all_of_it = request("read", 0, 4 * KIB), request("read", ROW, 2 * ROW)
    for one in (few, all_of_it, all_of_it._replace(file=1)):
        assert set(spaces(enactor.serve(one))) == {"home"}
    enactor.close(1.0, 0)
    assert spaces(enactor.serve(few)) == ["home"] * 4
    assert spaces(enactor.serve(all_of_it)) == ["memory"] * 4
    assert spaces(enactor.serve(all_of_it._replace(file=1))) == ["home"] * 4


def test_liu_a_close_empties_the_buffer_and_lifts_what_was_in_it() -> None:
    enactor = liu()
    finish(enactor, enactor.serve(request("read", 0, ROW)).background)
    assert enactor.used["memory/0"] == 3 * KIB
    finish(enactor, enactor.close(1.0, 0).background)
    assert (enactor.used["memory/0"], enactor.used["ssd/0"]) == (0, KIB)
    again = enactor.serve(request("read", 0, ROW))
    assert {one.space for move in again.background for one in move.stages[0] if one.first == 0} == {"ssd"}


# ---- E10 ------------------------------------------------------------------------------------------------------------


def test_e10_bandwidth_of_phases() -> None:
    gib = 1 << 30
    hidden, last = Phase(32 * gib, 2.0, 16.0, 30.0), Phase(32 * gib, 2.0, 16.0, 0.0)
    assert (hidden.not_hidden, last.not_hidden) == (0.0, 16.0)
    assert bandwidth([hidden]) == 16 * gib  # Eq. 1
    assert bandwidth([hidden, hidden, hidden, last]) == pytest.approx(4 * 32 * gib / (3 * 2.0 + 18.0))  # Eq. 2


def test_e10_writes_collective_blocks_to_the_node_and_writes_them_back() -> None:
    enactor = Enactor(E10(chunk=KIB), CLUSTER)
    step = enactor.serve(request("write", 0, 1500, rank=3, collective=True))
    assert step.foreground == ((Transfer("scratch", 3, 0, "write", 0, 1500, None, 0),),)
    (move,) = step.background
    assert move.after
    assert [[(one.space, one.op, one.node, one.start, one.stop) for one in stage] for stage in move.stages] == [
        [("scratch", "read", None, 0, 1024)],
        [("home", "write", 3, 0, 1024)],
        [("scratch", "read", None, 1024, 1500)],
        [("home", "write", 3, 1024, 1500)],
    ]
    assert spaces(enactor.serve(request("write", 2000, 2100, rank=3))) == ["home"]


def test_e10_the_close_waits_for_the_write_back_and_empties_the_cache() -> None:
    enactor = Enactor(E10(), CLUSTER)
    first = enactor.serve(request("write", 0, 1000, rank=1, collective=True)).background[0]
    second = enactor.serve(request("write", 1000, 2000, rank=2, collective=True)).background[0]
    finish(enactor, [first])
    assert enactor.close(1.0, 0).wait == (second.token,)
    assert enactor.used["scratch/1"] == 0
    finish(enactor, [second])
    assert enactor.used["scratch/2"] == 0


def test_e10_flushes_on_close() -> None:
    enactor = Enactor(E10(flush="close"), CLUSTER)
    assert enactor.serve(request("write", 0, 1000, rank=1, collective=True)).background == ()
    step = enactor.close(1.0, 0)
    assert step.wait == (step.background[0].token,)


def test_e10_a_block_without_room_is_written_to_the_original() -> None:
    enactor = Enactor(E10(), CLUSTER)
    assert spaces(enactor.serve(request("write", 0, 5 * KIB, rank=1, collective=True))) == ["home"]
    assert [refusal.why for refusal in enactor.refused] == ["it needs 5120 bytes, but scratch/1 has 4096 left"]


# ---- one's own ------------------------------------------------------------------------------------------------------


def test_a_policy_of_ones_own_is_a_class_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pdla.policies.online import Online\nclass Mine(Online):\n    period = 7.0\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    assert make_online(f"{tmp_path}/mine.py:Mine").period == 7.0
    for name, message in {
        "mine": "unknown policy 'mine': choose one of s4d, ibridge, liu, e10, or FILE.py:CLASS",
        f"{tmp_path}/mine.py:Yours": "mine.py has no class Yours derived from Online",
        f"{tmp_path}/none.py:Mine": "none.py: No such file or directory .it should be a Python file.",
        f"{tmp_path}/broken.py:Mine": "broken.py: ZeroDivisionError: division by zero",
    }.items():
        with pytest.raises(ConfigError, match=message):
            make_online(name)
