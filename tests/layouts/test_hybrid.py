"""Strips over disks and SSDs together: against a solver and a grid, whole grains, and a replica that is built."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pulp  # type: ignore[import-untyped]
import pytest

from pdla.layouts.candidates import candidates
from pdla.layouts.hybrid import Round, best_strips, whole_strips
from pdla.model import Cluster, Loop, Pool, Signature
from pdla.units import GiB, KiB, MiB
from tests.support.example_programs import Job
from tests.support.mpi import Mpi, available_mpis

# No start-up: what counts is seconds per byte, twice as many on a disk as on an SSD.
HDD = Pool("hdd", "hdd", 4, ((0, 0.0),), 2e-8, 2e-8, GiB, 64 * KiB, "directories", ("a", "b", "c", "d"))
SSD = Pool("ssd", "ssd", 2, ((0, 0.0),), 1e-8, 1e-8, GiB, 64 * KiB, "directories", ("e", "f"))
CLUSTER = Cluster((HDD, SSD), "hdd", 4, 64 * KiB, 1, 0.0, 0.0, 0.0, "test")


def random_round(choose: random.Random) -> Round:
    def power(low: float, high: float) -> float:
        return 10 ** choose.uniform(low, high)

    return Round(
        processes=choose.randint(1, 2048),
        per_node=choose.randint(1, 32),
        request=choose.randint(4 * KiB, 64 * MiB),
        servers=(choose.randint(1, 64), choose.randint(1, 32)),
        e=power(-6, -3),
        v=power(-11, -8),
        a=(power(-5, -2), power(-6, -3)),
        b=(power(-9, -7.5), power(-10, -8.5)),
    )


def solved(one: Round) -> tuple[float, float]:
    """The linear program's strips, by a solver, in shares of a request and of the longest times."""
    device = max(one.a) + one.request * max(one.b)
    program = pulp.LpProblem("strips", pulp.LpMinimize)
    disks, ssds = program.add_variable("disks", 0, 1), program.add_variable("ssds", 0, 1)
    carried, served = program.add_variable("carried", one.per_node), program.add_variable("served", 0)
    program += one.v * one.request / device * carried + one.processes * served
    program += one.servers[0] * disks + one.servers[1] * ssds == 1
    for share, a, b in zip((disks, ssds), one.a, one.b, strict=True):
        program += carried >= one.processes * share
        program += served >= a / device + (one.request * b / device) * share
    program.solve(pulp.HiGHS(msg=False, threads=1))
    return disks.value() * one.request, ssds.value() * one.request


@pytest.mark.parametrize("seed", range(200))
def test_the_strips_are_the_optimum_of_the_linear_program_or_an_end_that_costs_less(seed: int):
    one = random_round(random.Random(seed))
    ends = (one.request / one.servers[0], 0.0), (0.0, one.request / one.servers[1])
    by_hand, by_solver = one.time(best_strips(one)).total, one.time(solved(one)).total
    assert by_hand == pytest.approx(min(by_solver, *(one.time(end).total for end in ends)), rel=1e-6)


@pytest.mark.parametrize("seed", range(50))
def test_the_strips_are_within_a_thousandth_of_a_fine_grid(seed: int):
    one = random_round(random.Random(seed))
    shares = [number / 2000 for number in range(2001)]
    grid = min(
        one.time((share * one.request / one.servers[0], (1 - share) * one.request / one.servers[1])).total
        for share in shares
    )
    assert one.time(best_strips(one)).total <= grid * 1.001


def test_a_kind_of_server_without_bytes_costs_nothing():
    one = Round(8, 1, MiB, (4, 2), e=1e-4, v=0.0, a=(0.01, 0.0), b=(1e-8, 1e-9))
    # A linear program alone would be content with tiny strips on the disks, and 8 start-ups of 10 ms.
    assert best_strips(one) == (0.0, MiB / 2)
    assert one.time((0.0, MiB / 2)).startup == 0.0
    assert one.time((1.0, MiB / 2 - 2)).startup == 0.08


def test_whole_strips_hold_a_request_in_grains_of_either_pool():
    found = list(whole_strips((100 * KiB, 200 * KiB), 800 * KiB, (4, 2), (64 * KiB, 32 * KiB)))
    assert found == [(64 * KiB, 288 * KiB), (128 * KiB, 160 * KiB), (192 * KiB, 32 * KiB)]


def test_a_hybrid_is_as_fast_as_all_its_servers_together():
    signature = Signature("f", "read", False, 0, MiB, (Loop(MiB, 64),), (0,))
    (hybrid,) = (one for one in candidates(signature, 64 * MiB, CLUSTER, [], [(HDD, SSD)]) if one.space == "hdd+ssd")
    assert hybrid.layout is not None
    assert hybrid.layout.strips == (2 * 65536,) * 4 + (4 * 65536,) * 2
    assert hybrid.cost.transfer == pytest.approx(64 * 2 * 65536 * 2e-8)
    assert hybrid.refused == ""


def test_calls_that_a_page_cache_joins_share_a_start_up():
    """Four ranks read 64 calls of 1 MiB each, of which a disk has 64 KiB or so. A seek a call would take the disks
    longer than the SSDs take for everything; but the page cache reads 1.25 MiB ahead."""
    heads = replace(HDD, startup=((0, 0.0), (1, 0.006)), grain=4 * KiB)
    ssds = replace(SSD, read_seconds_per_byte=7e-9, grain=4 * KiB)
    node = replace(CLUSTER, pools=(heads, ssds), processes_per_node=4, client_cache=True, client_read_ahead=1280 * KiB)
    strided = Signature("d", "read", False, 0, MiB, (Loop(MiB, 4), Loop(8 * MiB, 64)), (0, 1, 2, 3), 1)
    found = candidates(strided, 256 * MiB, node, node.pools, [(heads, ssds)])
    alone = min(one.cost.total for one in found if one.space == "ssd")
    (both,) = (one for one in found if one.space == "hdd+ssd")
    assert both.cost.total < 0.75 * alone


def test_small_calls_that_a_page_cache_joins_have_strips_as_good_as_large_ones():
    """Of a call of 10 KiB a disk should have 1.25 KiB and an SSD 2.5: no whole grains, as of 52 calls."""
    signature = Signature("f", "read", False, 0, 10 * KiB, (Loop(MiB, 512),), (0,))
    pools = replace(HDD, grain=4 * KiB), replace(SSD, grain=4 * KiB)
    ahead = replace(CLUSTER, pools=pools, client_cache=True, client_read_ahead=MiB)
    without = replace(ahead, client_cache=False)
    joined, single = (candidates(signature, 5120 * KiB, one, [], [pools])[-1] for one in (ahead, without))
    assert single.refused.startswith("strips of 1.25 KiB and 2.5 KiB are less")
    assert joined.refused == "" and joined.layout is not None
    assert joined.cost.transfer == pytest.approx(5120 * KiB / 4e8, rel=0.04)
    # Two ranks that read half of each other's bytes need all servers in a call.
    shared = Signature("f", "read", False, 0, 10 * KiB, (Loop(5 * KiB, 2), Loop(MiB, 512)), (0, 1), 1)
    both = candidates(shared, 7680 * KiB, ahead, [], [pools])[-1]
    assert both.refused == "strips of 1.25 KiB and 2.5 KiB are less than the grain of the pools"


def test_strips_below_a_grain_are_refused():
    signature = Signature("f", "read", False, 0, 8 * KiB, (Loop(MiB, 64),), (0,))
    hybrid = candidates(signature, 512 * KiB, CLUSTER, [], [(HDD, SSD)])[-1]
    assert hybrid.space == "hdd+ssd"
    assert hybrid.refused == "strips of 1 KiB and 2 KiB are less than the grain of the pools"


def test_where_one_kind_is_faster_alone_there_is_no_hybrid():
    slow = replace(HDD, startup=((0, 1.0),))
    signature = Signature("f", "read", False, 0, MiB, (Loop(MiB, 64),), (0,))
    assert [one.space for one in candidates(signature, 64 * MiB, CLUSTER, [], [(slow, SSD)])] == ["original"]


STORAGE = """
[home]
pool = "hdd"
servers = 2
strip = "64K"
[clients]
processes_per_node = 1
connect_seconds = 0
network_seconds_per_byte = 0
[pools.hdd]
kind = "hdd"
startup = [[0, 0.0]]
read_seconds_per_byte = 2e-8
write_seconds_per_byte = 2e-8
capacity = "1G"
grain = 64
where = ["home/hdd0", "home/hdd1", "home/hdd2"]
[pools.ssd]
kind = "ssd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1.3e-8
write_seconds_per_byte = 1e-8
capacity = "1G"
grain = 100
where = ["home/ssd0", "home/ssd1"]
"""


@pytest.mark.parametrize("mpi", available_mpis()[:1], indirect=True)
def test_a_hybrid_is_built_and_read_byte_for_byte(mpi: Mpi, tmp_path: Path):
    job = Job("slabs", mpi, tmp_path)
    (tmp_path / "cluster.toml").write_text(STORAGE)
    job.pdla.run("trace", "-o", "run.h5", "--", *job.command(4))
    made = job.pdla.json(
        "plan", "run.h5", "--cluster", "cluster.toml", "--policy", "pdla-s", "-o", "plan.json", "--json"
    )
    (pattern,) = made["patterns"]
    chosen = pattern["candidates"][pattern["chosen"]]
    assert (chosen["space"], chosen["layout"], chosen["servers"]) == ("hdd+ssd", "1-DH", 5)
    assert len(set(chosen["strips"])) == 2
    (built,) = job.pdla.json("replicate", "plan.json", "--json")["replicas"]
    assert (built["pool"], built["bytes"]) == ("hdd+ssd", 4 * 384 * 384 * 4)
    folders = {
        Path(one["path"]).parents[2].name for one in job.pdla.json("status", "--json")["replicas"][0]["components"]
    }
    assert folders == {"hdd0", "hdd1", "hdd2", "ssd0", "ssd1"}
    output, report = job.redirected(4)
    assert output == job.native(4)
    assert report["replica_bytes"] == 4 * 384 * 384 * 4
    assert job.pdla.json("verify", "--json")["findings"] == []
