"""From signatures to a plan: which replicas are worth it, which are refused and why; and the plan as a file."""

from __future__ import annotations

import gc
import json
import math
import os
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import Analysis, Irregular
from pdla.analyzers.dependence import RAW, WAR, WAW
from pdla.analyzers.phases import WritePhase
from pdla.catalog import Component, Original, Replica
from pdla.errors import ConfigError, FormatError
from pdla.layouts.candidates import Asked, Costed, candidates
from pdla.layouts.capacity import room, spaces
from pdla.layouts.config import load_cluster
from pdla.layouts.striping import component_sizes
from pdla.model import STILL, Cluster, Growth, Identity, Layout, Loop, Plan, Pool, Signature
from pdla.policies import get_policy, policy_names
from pdla.policies.plan import Limits, RedirectedWrites, make_plan
from pdla.policies.planfile import SCHEMA, plan_from_json, plan_to_json, read_plan, write_plan
from pdla.units import GiB, KiB, MiB

HDD = Pool(
    "hdd", "hdd", 4, ((0, 0.0), (MiB, 5e-3)), 5e-9, 5e-9, 100 * GiB, 64 * KiB, "directories", ("a", "b", "c", "d")
)
SSD = Pool("ssd", "ssd", 2, ((0, 0.0), (4096, 1e-4)), 2e-9, 2e-9, 10 * GiB, 64 * KiB, "directories", ("e", "f"))
CLUSTER = Cluster((HDD, SSD), "hdd", 4, 64 * KiB, 1, 1e-5, 1e-9, 0.0, "test")

# Rank r of four reads 4 KiB of every 16 MiB: seeks in the original, none in a replica in 1-DV.
STRIDED = Signature("/d/a", "read", False, 0, 4096, (Loop(1 << 30, 4), Loop(1 << 24, 64)), (0, 1, 2, 3), 1, calls=256)
CONTIGUOUS = Signature("/d/b", "read", False, 0, MiB, (Loop(MiB, 64),), (0,), calls=64)

SCHEMA_JSON = json.loads(SCHEMA.read_text())
VALIDATOR = Draft202012Validator(SCHEMA_JSON)


def analysis(*signatures: Signature, irregular: tuple[Irregular, ...] = ()) -> Analysis:
    return Analysis(signatures, irregular, 0, 0)


def plan(*signatures: Signature, policy: str = "pdla-h", cluster: Cluster = CLUSTER) -> Plan:
    return make_plan(analysis(*signatures), cluster, policy, "mpiexec -n 4 ./app")


def test_small_strided_reads_get_a_replica_in_1dv():
    (pattern,) = plan(STRIDED).patterns
    assert pattern.choice.layout == Layout("hdd", 4, 4, (64 * KiB,), 256 * KiB)
    assert pattern.candidates[0].cost.startup == pytest.approx(255 * 5e-3)
    assert pattern.choice.cost.startup == 0.0
    assert pattern.reason == (
        "contiguous replica in 1-DV on hdd: 2.21 ms instead of 1.28 s, most saved on device start-up (1.27 s to 0 s)"
    )


def test_a_plan_makes_no_garbage_and_looks_for_none():
    """Its objects need not be looked through while it is made."""
    found = analysis(*(replace(STRIDED, file=f"/d/{n}", length=4096 * (1 + n)) for n in range(1000)))
    make_plan(found, CLUSTER)  # imports make some
    gc.collect()
    before = gc.get_stats()
    made = make_plan(found, CLUSTER)
    assert gc.get_stats() == before and gc.get_threshold()[0] > 0
    assert len(made.patterns) == 1000 and gc.collect() == 0


def test_one_rank_that_reads_in_sequence_gets_no_advice():
    made = plan(CONTIGUOUS)
    assert made.patterns[0].chosen == 0
    assert made.patterns[0].reason.startswith("left in the original, 154 ms: the best replica (1-DH on hdd) would take")
    assert made.refused == ()
    assert made.predicted_after == made.predicted_before


@pytest.mark.parametrize(
    ("policy", "spaces"),
    [
        ("auto", ["original", "collective", "hdd", "hdd", "hdd", "ssd", "ssd"]),  # a call of 4 KiB is for one kind
        ("pdla-h", ["original", "collective", "hdd", "hdd", "hdd"]),
        ("pdla-s", ["original", "collective", "ssd", "ssd"]),
        ("none", ["original", "collective"]),
    ],
)
def test_a_policy_sees_its_own_pools(policy, spaces):
    (pattern,) = plan(STRIDED, policy=policy).patterns
    assert [candidate.space for candidate in pattern.candidates] == spaces
    assert (pattern.chosen > 0) == (policy != "none")


def test_no_replica_is_made_for_less_than_the_threshold():
    made = plan(STRIDED, cluster=replace(CLUSTER, threshold_seconds=2.0))
    assert made.patterns[0].chosen == 0
    assert "must save 5 % and more than 2 s" in made.patterns[0].reason


def test_no_replica_is_made_for_less_than_5_percent():
    # On storage of nearly the disks' speed, sequential reading gains 3 % in transfer and less in all.
    almost = replace(SSD, kind="node", servers=4, where=("e", "f", "g", "h"), read_seconds_per_byte=0.97 * 5e-9)
    made = plan(CONTIGUOUS, policy="auto", cluster=replace(CLUSTER, pools=(HDD, almost)))
    assert made.patterns[0].choice.space == "original"
    (near,) = (one for one in made.patterns[0].candidates if one.space == "ssd" and one.layout.name == "1-DH")
    assert near.cost.total < made.patterns[0].candidates[0].cost.total
    assert near.refused == "saves 1.6 %, and must save 5 %"


def test_large_sequential_reads_are_shared_by_disks_and_ssds():
    (pattern,) = plan(CONTIGUOUS, policy="pdla-s").patterns
    assert pattern.choice.layout == Layout("hdd+ssd", 6, 1, (2 * 65536,) * 4 + (4 * 65536,) * 2, 64 * MiB)
    assert pattern.reason.startswith("contiguous replica in 1-DH on hdd+ssd: 113 ms instead of 154 ms")


def test_what_the_storage_cannot_do_is_not_chosen_and_the_plan_says_why():
    mixed = replace(
        CLUSTER, pools=(HDD, replace(SSD, backend="cephfs", where=("/mnt/ceph",), names=("ssd:osd.4", "x")))
    )

    def obstacle(pool: Pool, layout: Layout, size: int) -> str:
        return "" if len({part.backend for part in pool.parts}) < 2 else f"{size} bytes over {layout.servers} servers"

    made = make_plan(analysis(CONTIGUOUS), mixed, "pdla-s", limits=Limits(obstacle=obstacle))
    hybrid = made.patterns[0].candidates[-1]
    assert (hybrid.space, hybrid.refused) == ("hdd+ssd", "67108864 bytes over 6 servers")
    assert made.patterns[0].choice.space == "ssd"


def test_if_the_storage_can_hold_no_replica_the_reason_is_that_and_no_comparison_of_seconds():
    limits = Limits(obstacle=lambda pool, layout, size: f"cannot use {pool.name}")
    (pattern,) = make_plan(analysis(CONTIGUOUS), CLUSTER, "pdla-s", limits=limits).patterns
    assert pattern.choice.layout is None
    assert pattern.reason.startswith("left in the original: cannot use ")


def test_a_hybrid_takes_room_of_both_pools():
    tight = replace(CLUSTER, pools=(replace(HDD, capacity=20 * MiB), SSD))
    hybrid = plan(CONTIGUOUS, policy="pdla-s", cluster=tight).patterns[0].candidates[-1]
    assert hybrid.refused == "needs 32 MiB, and pool hdd has 20 MiB left"


def test_writes_go_to_the_original():
    write = replace(STRIDED, op="write")
    made = plan(write)
    assert made.patterns[0].chosen == 0
    assert made.patterns[0].reason == "left in the original: writes go to the original"
    assert {one.refused for one in made.patterns[0].candidates if one.layout} == {"writes go to the original"}
    assert made.refused == ((f"/d/a {write}", "writes go to the original"),)


def test_writes_that_are_to_be_redirected_get_replicas_unless_their_bytes_were_accessed_before():
    write = replace(STRIDED, op="write", loops=(Loop(4096, 4), Loop(1 << 24, 64), Loop(16384, 1024)))
    made = make_plan(analysis(write), CLUSTER, writes=RedirectedWrites([RAW]))
    assert made.patterns[0].choice.layout is not None
    before = made.patterns[0].candidates[0].cost.total
    assert made.patterns[0].choice.cost.total < before
    made = make_plan(analysis(write), CLUSTER, writes=RedirectedWrites([WAR | WAW]))
    why = "its bytes are accessed before they are written (write-after-read and write-after-write)"
    assert (made.patterns[0].chosen, made.refused[0][1]) == (0, why)


def test_the_writes_of_patterns_that_grow_are_redirected_too():
    triangle = replace(STRIDED, op="write", growth=(STILL, Growth(0, 512, 0)))
    (pattern,) = make_plan(analysis(triangle), CLUSTER, writes=RedirectedWrites([0])).patterns
    assert {one.refused.split(" ")[0] for one in pattern.candidates if one.layout} <= {"", "saves"}


def test_under_a_lease_only_what_the_program_opens_again_is_waited_for():
    """The pattern writes half of its bytes in each of two phases."""
    write = replace(STRIDED, op="write", t_start=0.0, t_end=30.0)

    def seconds(writes: RedirectedWrites) -> float:
        (pattern,) = make_plan(analysis(write), CLUSTER, writes=writes).patterns
        return next(one.cost.total for one in pattern.candidates if one.space == "ssd")

    def leased(*opened_again: bool) -> float:
        phases = [WritePhase(20.0 * i, 20.0 * i + 10, 100, again) for i, again in enumerate(opened_again)]
        return seconds(RedirectedWrites([0], {write.file: phases}))

    alone, home = 0.0271678, 1.281887
    assert seconds(RedirectedWrites([0])) == pytest.approx(alone + home, rel=1e-5)
    assert leased(False, False) == pytest.approx(alone, rel=1e-5)
    assert leased(True, False) == pytest.approx(alone + home / 2, rel=1e-5)
    assert leased(True, True) == pytest.approx(alone + home, rel=1e-5)


def test_a_read_of_bytes_that_the_run_writes_is_refused():
    write = Signature("/d/a", "write", False, 4096 * 10, 4096, (), (0,))
    read = Signature("/d/a", "read", False, 0, 4096, (Loop(8192, 100),), (0,))
    assert plan(read, write).refused[0][1] == "the same run writes to bytes 40960 to 45056 of this file"
    assert plan(read, write).patterns[0].chosen == 0
    assert plan(read, replace(write, file="/d/other")).patterns[0].chosen > 0
    assert plan(read, replace(write, start=1 << 30)).patterns[0].chosen > 0


def test_an_irregular_write_counts_as_well_as_a_regular_one():
    scattered = Irregular(0, "/d/a", "write", False, 2, 16, (100, 508))
    read = Signature("/d/a", "read", False, 104, 16, (), (0,))
    made = make_plan(analysis(read, irregular=(scattered,)), CLUSTER)
    assert made.patterns[0].reason == "left in the original: the same run writes to bytes 100 to 508 of this file"
    assert made.refused[1][1] == "the same run writes to bytes 100 to 508 of this file"


def test_irregular_reads_are_refused():
    scattered = Irregular(3, "/d/a", "read", False, 2, 16, (100, 508))
    made = make_plan(analysis(irregular=(scattered,)), CLUSTER)
    assert made.refused == (("/d/a 2 reads of rank 3", "irregular: no template describes them"),)


def test_a_pattern_beyond_what_a_plan_can_say_is_refused():
    far = replace(CONTIGUOUS, start=2**62)
    made = plan(far)
    assert made.patterns == ()
    assert made.refused == ((f"/d/b {far}", "reaches byte 4611686018494496768, of at most 4611686018427387904"),)
    assert plan_from_json(plan_to_json(made)) == made


def test_a_pattern_that_another_replica_serves_gets_none_of_its_own():
    made = plan(STRIDED, replace(STRIDED, t_start=5.0))
    assert len(made.patterns) == 1
    assert made.refused[0][1] == f"the same bytes in the same order as {STRIDED}: one replica serves both"


def test_the_members_of_a_global_signature_are_planned_with_it():
    member = Signature("/d/a", "read", False, 0, 4096, (Loop(1 << 24, 64),), (0,))
    (pattern,) = plan(replace(STRIDED, members=(member,))).patterns
    assert pattern.signature == STRIDED


def test_a_pool_that_is_too_small_is_a_refusal_with_numbers():
    made = plan(STRIDED, cluster=replace(CLUSTER, pools=(replace(HDD, capacity=MiB // 2),)))
    why = "left in the original: a replica needs 1 MiB, and pool hdd has 512 KiB left"
    assert made.patterns[0].chosen == 0
    assert made.patterns[0].reason == why
    assert made.patterns[0].candidates[-1].refused == "needs 1 MiB, and pool hdd has 512 KiB left"
    assert made.refused == ((f"/d/a {STRIDED}", why.removeprefix("left in the original: ")),)


def test_space_goes_to_the_larger_benefit_first():
    smaller = replace(STRIDED, file="/d/c", loops=(Loop(1 << 30, 4), Loop(1 << 24, 32)))
    made = plan(smaller, STRIDED, cluster=replace(CLUSTER, pools=(replace(HDD, capacity=MiB),)))
    assert [pattern.chosen > 0 for pattern in made.patterns] == [False, True]


def test_a_pattern_that_does_not_fit_its_best_pool_takes_the_next():
    tight = replace(CLUSTER, pools=(HDD, replace(SSD, capacity=0)))
    random_ssd = replace(STRIDED, loops=(Loop(1 << 30, 64), Loop(1 << 24, 64)), ranks=tuple(range(64)), calls=4096)
    assert plan(random_ssd, policy="auto").patterns[0].choice.space == "ssd"
    made = plan(random_ssd, policy="auto", cluster=tight)
    assert made.patterns[0].choice.space == "hdd"
    assert made.refused == ()


def test_two_smaller_patterns_may_be_worth_more_than_the_one_that_is_greedily_served_first():
    small = [replace(STRIDED, file=f"/d/{name}", loops=(Loop(1 << 30, 4), Loop(1 << 24, 40))) for name in "xy"]
    room = replace(CLUSTER, pools=(replace(HDD, capacity=2 * 40 * 4 * 4096),))
    chosen = {
        name: [one.chosen > 0 for one in make_plan(analysis(STRIDED, *small), room, selection=name).patterns]
        for name in ("optimal", "greedy")
    }
    assert chosen == {"optimal": [False, True, True], "greedy": [True, False, False]}


def test_the_greedy_choice_says_how_much_another_might_gain():
    small = [replace(STRIDED, file=f"/d/{name}", loops=(Loop(1 << 30, 4), Loop(1 << 24, 40))) for name in "xy"]
    room = replace(CLUSTER, pools=(replace(HDD, capacity=2 * 40 * 4 * 4096),))
    assert make_plan(analysis(STRIDED, *small), room, selection="optimal").gap == 0.0
    assert make_plan(analysis(STRIDED, *small), room, selection="greedy").gap == pytest.approx(1.24, rel=0.01)


def test_an_unknown_selection_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="unknown selection 'random': choose one of optimal, greedy"):
        make_plan(analysis(STRIDED), CLUSTER, selection="random")


def replica_of(signature: Signature, pool: Pool, size: int) -> Replica:
    identity = Identity(1, 2, 3, 4, 5)
    component = Component(Path(pool.where[0]) / "pdla-replicas" / "1.0", size)
    layout = Layout(pool.name, 1, 1, (65536,), size)
    original, held = Original(Path(signature.file), identity), AccessMap.from_signature(signature)
    return Replica(1, original, signature, held, layout, "valid", "", datetime(2026, 1, 1), (component,))


def test_what_other_replicas_take_is_subtracted_and_the_own_is_not():
    pool = replace(HDD, capacity=MiB, where=("/p/a", "/p/b", "/p/c", "/p/d"))
    cluster = replace(CLUSTER, pools=(pool,))
    other = replica_of(replace(STRIDED, file="/d/other"), pool, 4096)
    own = replica_of(STRIDED, pool, MiB)
    assert make_plan(analysis(STRIDED), cluster, limits=Limits(replicas=[other])).patterns[0].reason == (
        "left in the original: a replica needs 1 MiB, and pool hdd has 1,020 KiB left"
    )
    assert make_plan(analysis(STRIDED), cluster, limits=Limits(replicas=[own])).patterns[0].chosen > 0


def test_a_pool_without_a_capacity_has_what_its_file_systems_have_free(tmp_path):
    pool = replace(HDD, capacity=None, where=tuple(str(tmp_path / name) for name in "abcd"))
    # Rank 0 reads 8 bytes of every MiB of more than any file system can hold.
    huge = replace(STRIDED, loops=(Loop(1 << 62, 1), Loop(MiB, 1 << 40)), ranks=(0,), calls=0)
    made = plan(STRIDED, huge, cluster=replace(CLUSTER, pools=(pool,)))
    assert [one.chosen > 0 for one in made.patterns] == [True, False]


def test_pools_without_a_capacity_share_what_their_file_system_has_free(tmp_path):
    pools = [
        replace(pool, capacity=None, where=tuple(str(tmp_path / f"{pool.name}{n}") for n in range(pool.servers)))
        for pool in (HDD, SSD)
    ]
    ((space, free),) = room(pools, lambda pool: 0).items()
    assert free == pytest.approx(os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize, rel=0.05)
    taken = [spaces(pool, [MiB] * pool.servers) for pool in pools]
    assert taken == [{space: HDD.servers * MiB}, {space: SSD.servers * MiB}]


def test_equal_patterns_are_served_in_their_order():
    twins = [replace(STRIDED, file=f"/d/{name}") for name in "xyz"]
    made = plan(*twins, cluster=replace(CLUSTER, pools=(replace(HDD, capacity=2 * MiB),)))
    assert [pattern.chosen > 0 for pattern in made.patterns] == [True, True, False]


def test_an_unknown_policy_is_refused_with_the_known_ones():
    assert policy_names() == ("auto", "none", "pdla-h", "pdla-s", "ns-pdla", "s4d", "e10")
    with pytest.raises(ConfigError, match=r"unknown policy 'best': choose one of auto, none, pdla-h, pdla-s"):
        plan(policy="best")
    with pytest.raises(ConfigError, match=r"policy 'liu' acts only while a program runs: use it with pdla simulate"):
        plan(policy="liu")


SIGNATURES = st.builds(
    Signature,
    file=st.sampled_from(["/d/a", "/d/ä b"]),
    op=st.sampled_from(["read", "read", "write"]),
    collective=st.booleans(),
    start=st.integers(1 << 32, 1 << 40),
    length=st.integers(1, 1 << 20),
    loops=st.tuples(*[st.builds(Loop, st.integers(-(1 << 24), 1 << 24), st.integers(1, 4))] * 2).map(
        lambda inner: (Loop(1 << 26, 3), *inner)
    ),
    ranks=st.just((0, 5, 7)),
    rank_loops=st.just(1),
    calls=st.integers(0, 100),
    t_start=st.floats(0, 1e6),
    t_end=st.floats(0, 1e6),
    growth=st.sampled_from([(), (STILL, Growth(4096, 64, 2), STILL), (Growth(1 << 20, 0, 0), STILL, STILL)]),
)


CACHED = replace(CLUSTER, client_cache=True, client_read_ahead=128 * KiB, home_strip=6 * KiB)


@given(
    SIGNATURES, st.sampled_from([CLUSTER, CACHED, load_cluster("pdla"), load_cluster("ibridge")]), st.integers(1, 99)
)
def test_signatures_of_one_shape_are_costed_once_and_alike(signature, cluster, cycles):
    size, waited = AccessMap.from_signature(signature).size, 0.5
    spaces = get_policy("auto").spaces(cluster)
    known = Costed(cluster, *spaces)
    apart = math.lcm(cluster.home_strip * cluster.home_servers, 4 * KiB)
    later = replace(signature, file="/d/later", start=signature.start + cycles * apart, t_start=0.0)
    found, again, *others = known.candidates(
        [
            Asked(signature, size, waited),
            Asked(later, size, waited),
            Asked(replace(signature, start=signature.start + apart // 2), size, waited),
            Asked(replace(signature, collective=not signature.collective), size, waited),
            Asked(signature, size + 4096, waited),
            Asked(signature, size, None),
        ]
    )
    assert again is found and known.candidates([Asked(later, size, waited)]) == [found]
    assert (
        candidates(later, size, cluster, *spaces, waited)
        == found
        == candidates(signature, size, cluster, *spaces, waited)
    )
    assert not any(one is found for one in others)


@given(st.lists(SIGNATURES, max_size=4), st.sampled_from(policy_names()), st.integers(0, 1 << 24))
def test_a_plan_survives_its_file(signatures, policy, capacity):
    cluster = replace(CLUSTER, pools=(replace(HDD, capacity=capacity), SSD))
    made = make_plan(analysis(*signatures), cluster, policy, "./app ünï")
    value = json.loads(json.dumps(plan_to_json(made)))
    assert plan_from_json(value) == made
    VALIDATOR.validate(value)


def test_the_schema_is_one_and_refuses_what_is_no_plan():
    Draft202012Validator.check_schema(SCHEMA_JSON)
    value = plan_to_json(plan(STRIDED))
    del value["patterns"][0]["candidates"][0]["refused"]
    (error,) = VALIDATOR.iter_errors(value)
    assert error.message == "'refused' is a required property"


def test_patterns_keep_their_id_whenever_the_program_was_traced():
    first, later = plan(STRIDED, CONTIGUOUS), plan(replace(STRIDED, t_start=7.0, t_end=9.0), CONTIGUOUS)
    ids = [[pattern["id"] for pattern in plan_to_json(made)["patterns"]] for made in (first, later)]
    assert ids[0] == ids[1]
    write = replace(STRIDED, op="write")
    twice = [pattern["id"] for pattern in plan_to_json(plan(write, replace(write, t_start=5.0)))["patterns"]]
    assert twice == [twice[0], f"{twice[0]}-2"]


def test_a_plan_is_a_block_per_pattern_and_a_line_per_candidate(tmp_path):
    made = plan(STRIDED, CONTIGUOUS)
    write_plan(made, tmp_path / "plan.json")
    lines = (tmp_path / "plan.json").read_text().splitlines()
    assert [line[:13] for line in lines if '"id"' in line] == ['      "id": "'] * 2
    assert sum('"space": ' in line for line in lines) == sum(len(one.candidates) for one in made.patterns)
    keys = [line.split('"')[1] for line in lines if line.startswith('  "')]
    assert keys == sorted(keys)
    value = plan_to_json(plan(STRIDED, replace(CONTIGUOUS, length=2 * MiB)))
    other = plan_to_json(plan(replace(STRIDED, start=4096), replace(CONTIGUOUS, length=2 * MiB)))
    assert value["patterns"][1] == other["patterns"][1]


@given(st.lists(SIGNATURES, max_size=4), st.sampled_from(["auto", "none", "pdla-h", "pdla-s", "e10"]))
def test_a_plan_never_makes_things_worse_nor_overfills_a_pool(signatures, policy):
    cluster = replace(CLUSTER, pools=(replace(HDD, capacity=4 * MiB), replace(SSD, capacity=MiB)))
    made = make_plan(analysis(*signatures), cluster, policy)
    assert made.predicted_after <= made.predicted_before
    taken = Counter()
    for pattern in made.patterns:
        layout = pattern.choice.layout
        if layout is not None:
            size = AccessMap.from_signature(pattern.signature).size
            taken.update(spaces(cluster.pool(layout.pool), component_sizes(layout, size)))
    left = room(cluster.pools, lambda pool: 0)
    assert left == {"pool hdd": 4 * MiB, "pool ssd": MiB}
    assert all(taken[space] <= left[space] for space in left)


def test_a_plan_is_written_the_same_every_time(tmp_path):
    made = plan(STRIDED, CONTIGUOUS)
    write_plan(made, tmp_path / "one.json")
    write_plan(read_plan(tmp_path / "one.json"), tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert read_plan(tmp_path / "one.json") == made


def test_the_json_has_what_scripts_rely_on():
    value = plan_to_json(plan(STRIDED, replace(CONTIGUOUS, op="write")))
    pattern = value["patterns"][0]
    assert pattern["pattern"] == "{READ, 0, 2, ([16777216, 4096, 64], [1073741824, 4096, 4]r), 1}"
    assert pattern["chosen"] == 4
    assert pattern["candidates"][0]["space"] == "original"
    chosen = pattern["candidates"][4]
    assert (chosen["space"], chosen["layout"], chosen["groups"], chosen["strips"]) == ("hdd", "1-DV", 4, [65536])
    assert set(chosen["seconds"]) == {"connect", "network", "startup", "transfer", "total"}
    assert value["predicted_before"] == sum(one["candidates"][0]["seconds"]["total"] for one in value["patterns"])
    assert value["predicted_after"] == sum(
        one["candidates"][one["chosen"]]["seconds"]["total"] for one in value["patterns"]
    )
    assert (value["selection"], value["gap"]) == ("optimal", 0.0)
    assert pattern["candidates"][1]["refused"] == "only the program can make its calls collective"
    assert value["refused"] == [{"what": f"/d/b {replace(CONTIGUOUS, op='write')}", "why": "writes go to the original"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", " is a text file, not a plan: 'pdla plan RUN.h5 -o PLAN.json' makes one"),
        ("[]", " is a JSON file, not a plan: 'pdla plan RUN.h5 -o PLAN.json' makes one"),
        ('{"format": "pdla-plan", "version": 2', " is a damaged plan: not JSON"),
        ('{"format": "pdla-plan", "version": 99}', ": the plan has version 99, but this pdla reads version 2"),
        ('{"format": "pdla-plan", "version": 2}', ": a damaged plan: 'policy' is missing"),
        ('{"format": "pdla-plan", "version": 2, "policy": "", "command": "", "patterns": 3}', ": a damaged plan"),
    ],
)
def test_a_file_that_is_no_plan_gets_one_line(tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(FormatError) as error:
        read_plan(path)
    assert str(error.value).startswith(f"{path}{message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["signature", "chosen", "candidates", "reason"])
def test_a_pattern_without_a_key_is_refused(key):
    value = plan_to_json(plan(STRIDED))
    del value["patterns"][0][key]
    with pytest.raises(FormatError, match=f"a damaged plan: '{key}' is missing"):
        plan_from_json(value)


def test_a_choice_that_is_no_candidate_is_refused():
    value = plan_to_json(plan(STRIDED))
    value["patterns"][0]["chosen"] = 17
    with pytest.raises(FormatError, match="chooses candidate 17 of 5"):
        plan_from_json(value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("length", "4096", "wanted a whole number, got '4096'"),
        ("loops", [[1.5, 2]], "wanted a whole number, got 1.5"),
        ("op", "append", 'op should be "read" or "write" \\(got \'append\'\\)'),
        ("ranks", [0, 1], "do not count its 2 ranks"),
        ("start", 10**400, "wanted a whole number of at most 4611686018427387904, got 1000"),
        ("start", 2**62, "reaches byte"),
        ("growth", [[0, 0, 1]], "2 loops but 1 growths"),
        ("growth", [[0, 0, 0], [0, -66, 0]], "grows beyond 64 bits or 10000000 iterations, or shrinks to nothing"),
        ("growth", [[0, 0, -32], [0, 0, 0]], "grows beyond 64 bits or 10000000 iterations, or shrinks to nothing"),
        ("growth", [[0, 0, 0], [2**60, 0, 0]], "grows beyond 64 bits or 10000000 iterations, or shrinks to nothing"),
        ("growth", [[0, 0], [0, 0, 0]], "growth is \\[stride, length, count\\], got \\[0, 0\\]"),
        ("length", 0, "accesses nothing, or bytes before the file's first"),
        ("file", "a\0b", "wanted a path"),
        ("t_start", 10**400, "wanted a number, got 1000"),
    ],
)
def test_a_signature_with_a_wrong_value_is_refused(key, value, message):
    edited = plan_to_json(plan(STRIDED))
    edited["patterns"][0]["signature"][key] = value
    with pytest.raises(FormatError, match=f"a damaged plan: .*{message}"):
        plan_from_json(edited)


def test_a_pool_that_the_cluster_lacks_is_refused():
    value = plan_to_json(plan(STRIDED))
    del value["cluster"]["pools"][0]["where"][3]
    with pytest.raises(FormatError, match="goes to 4 servers of hdd, not in cluster"):
        plan_from_json(value)


def test_a_path_that_is_not_utf8_survives(tmp_path):
    named = replace(STRIDED, file="/data/\udcff\nü.dat")
    write_plan(plan(named), tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").patterns[0].signature.file == "/data/\udcff\nü.dat"


def test_a_number_too_long_to_read_is_no_traceback(tmp_path):
    (tmp_path / "plan.json").write_text('{"format": "pdla-plan", "version": ' + "9" * 10_000)
    with pytest.raises(FormatError, match="not JSON"):
        read_plan(tmp_path / "plan.json")


def test_a_missing_plan(tmp_path):
    with pytest.raises(FormatError, match=r"cannot read .*: No such file or directory \(it should be a plan\)"):
        read_plan(tmp_path / "none.json")


def test_the_default_cluster_plans_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path))
    made = make_plan(analysis(STRIDED), load_cluster(None))
    assert made.patterns[0].chosen > 0


def test_ns_pdla_replicates_every_pattern_on_the_ssds_whatever_it_saves():
    slow = replace(SSD, read_seconds_per_byte=1e-3)
    made = plan(STRIDED, CONTIGUOUS, policy="ns-pdla", cluster=replace(CLUSTER, pools=(HDD, slow)))
    assert [pattern.choice.space for pattern in made.patterns] == ["ssd", "ssd"]
    assert made.predicted_after > made.predicted_before
    assert [pattern.choice.refused for pattern in made.patterns] == ["", ""]


def test_s4d_replicates_patterns_whose_requests_are_critical():
    # 4 KiB: a disk starts up in 5 ms, an SSD transfers in 41 us. 64 MiB: 16 MiB of each disk take 84 ms, 32 MiB of each
    # SSD 320 ms.
    slow = replace(CLUSTER, pools=(HDD, replace(SSD, read_seconds_per_byte=1e-8)))
    large = Signature("/d/c", "read", False, 0, 64 * MiB, (Loop(64 * MiB, 4),), (0,), calls=4)
    small, big = plan(STRIDED, large, policy="s4d", cluster=slow).patterns
    assert (small.choice.space, small.choice.layout.name, big.choice.space) == ("ssd", "1-DH", "original")
    assert small.reason.startswith("critical: a request saves 4.98 ms on ssd")


def test_e10_puts_collective_writes_on_the_nodes():
    node = replace(SSD, name="scratch", kind="node", servers=4, where=("n0", "n1", "n2", "n3"))
    cluster = replace(CLUSTER, pools=(HDD, node))
    write = replace(STRIDED, op="write", collective=True)
    found = analysis(write, replace(write, file="/d/b", collective=False), replace(STRIDED, file="/d/c"))
    collective, independent, read = make_plan(found, cluster, "e10", writes=RedirectedWrites((0, 0, 0))).patterns
    assert [one.space for one in collective.candidates[1:]] == ["scratch"] * 3
    assert (independent.choice.space, read.choice.space) == ("original", "original")
