"""From signatures to a plan: which replicas are worth it, which are refused and why; and the plan as a file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.analyzers.analysis import Analysis, Irregular
from pdla.errors import ConfigError, FormatError
from pdla.layouts.config import load_cluster
from pdla.model import STILL, Cluster, Growth, Layout, Loop, Plan, Pool, Signature
from pdla.policies import policy_names
from pdla.policies.plan import make_plan
from pdla.policies.planfile import plan_from_json, plan_to_json, read_plan, write_plan
from pdla.units import GiB, KiB, MiB

HDD = Pool(
    "hdd", "hdd", 4, ((0, 0.0), (MiB, 5e-3)), 5e-9, 5e-9, 100 * GiB, 64 * KiB, "directories", ("a", "b", "c", "d")
)
SSD = Pool("ssd", "ssd", 2, ((0, 0.0), (4096, 1e-4)), 2e-9, 2e-9, 10 * GiB, 64 * KiB, "directories", ("e", "f"))
CLUSTER = Cluster((HDD, SSD), "hdd", 4, 64 * KiB, 1, 1e-5, 1e-9, 0.0, "test")

# Rank r of four reads 4 KiB of every 16 MiB: seeks in the original, none in a replica in 1-DV.
STRIDED = Signature("/d/a", "read", False, 0, 4096, (Loop(1 << 30, 4), Loop(1 << 24, 64)), (0, 1, 2, 3), 1, calls=256)
CONTIGUOUS = Signature("/d/b", "read", False, 0, MiB, (Loop(MiB, 64),), (0,), calls=64)


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


def test_one_rank_that_reads_in_sequence_is_left_alone():
    made = plan(CONTIGUOUS)
    assert made.patterns[0].chosen == 0
    assert made.patterns[0].reason.startswith("left in the original, 154 ms: the best replica (1-DH on hdd) would take")
    assert made.refused == ()
    assert made.predicted_after == made.predicted_before


@pytest.mark.parametrize(
    ("policy", "spaces"),
    [
        ("auto", ["original", "collective", "hdd", "hdd", "hdd", "ssd", "ssd"]),
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
    # On SSDs of nearly the disks' speed, sequential reading gains 3 % in transfer and less in all.
    almost = replace(SSD, servers=4, where=("e", "f", "g", "h"), read_seconds_per_byte=0.97 * 5e-9)
    made = plan(CONTIGUOUS, policy="pdla-s", cluster=replace(CLUSTER, pools=(HDD, almost)))
    assert made.patterns[0].choice.space == "original"
    assert made.patterns[0].candidates[1].cost.total < made.patterns[0].candidates[0].cost.total


def test_writes_go_to_the_original():
    write = replace(STRIDED, op="write")
    made = plan(write)
    assert made.patterns == ()
    assert made.refused == ((f"/d/a {write}", "writes go to the original"),)


def test_a_read_of_bytes_that_the_run_writes_is_refused():
    write = Signature("/d/a", "write", False, 4096 * 10, 4096, (), (0,))
    read = Signature("/d/a", "read", False, 0, 4096, (Loop(8192, 100),), (0,))
    assert plan(read, write).refused[0][1] == "the same run writes to bytes 40960 to 45056 of this file"
    assert len(plan(read, replace(write, file="/d/other")).patterns) == 1
    assert len(plan(read, replace(write, start=1 << 30)).patterns) == 1


def test_an_irregular_write_counts_as_well_as_a_regular_one():
    scattered = Irregular(0, "/d/a", "write", False, 2, 16, (100, 508))
    read = Signature("/d/a", "read", False, 104, 16, (), (0,))
    made = make_plan(analysis(read, irregular=(scattered,)), CLUSTER)
    assert made.patterns == ()
    assert made.refused[0][1] == "the same run writes to bytes 100 to 508 of this file"


def test_irregular_reads_are_refused():
    scattered = Irregular(3, "/d/a", "read", False, 2, 16, (100, 508))
    made = make_plan(analysis(irregular=(scattered,)), CLUSTER)
    assert made.refused == (("/d/a 2 reads of rank 3", "irregular: no template describes them"),)


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
    assert made.refused == ((f"/d/a {STRIDED}", why),)


def test_space_goes_to_the_larger_benefit_first():
    smaller = replace(STRIDED, file="/d/c", loops=(Loop(1 << 30, 4), Loop(1 << 24, 32)))
    made = plan(smaller, STRIDED, cluster=replace(CLUSTER, pools=(replace(HDD, capacity=MiB),)))
    assert [pattern.chosen > 0 for pattern in made.patterns] == [False, True]


def test_a_pattern_that_does_not_fit_its_best_pool_takes_the_next():
    tight = replace(CLUSTER, pools=(HDD, replace(SSD, capacity=0)))
    random_ssd = replace(STRIDED, loops=(Loop(1 << 30, 64), Loop(1 << 24, 64)), ranks=tuple(range(64)))
    assert plan(random_ssd, policy="auto").patterns[0].choice.space == "ssd"
    made = plan(random_ssd, policy="auto", cluster=tight)
    assert made.patterns[0].choice.space == "hdd"
    assert made.refused == ()


def test_equal_patterns_are_served_in_their_order():
    twins = [replace(STRIDED, file=f"/d/{name}") for name in "xyz"]
    made = plan(*twins, cluster=replace(CLUSTER, pools=(replace(HDD, capacity=2 * MiB),)))
    assert [pattern.chosen > 0 for pattern in made.patterns] == [True, True, False]


def test_an_unknown_policy_is_told_the_known_ones():
    assert policy_names() == ("auto", "none", "pdla-h", "pdla-s")
    with pytest.raises(ConfigError, match=r"unknown policy 'best': choose one of auto, none, pdla-h, pdla-s"):
        plan(policy="best")


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


@given(st.lists(SIGNATURES, max_size=4), st.sampled_from(policy_names()), st.integers(0, 1 << 24))
def test_a_plan_survives_its_file(signatures, policy, capacity):
    cluster = replace(CLUSTER, pools=(replace(HDD, capacity=capacity), SSD))
    made = make_plan(analysis(*signatures), cluster, policy, "./app ünï")
    assert plan_from_json(json.loads(json.dumps(plan_to_json(made)))) == made


@given(st.lists(SIGNATURES, max_size=4), st.sampled_from(policy_names()))
def test_a_plan_never_makes_things_worse_nor_overfills_a_pool(signatures, policy):
    cluster = replace(CLUSTER, pools=(replace(HDD, capacity=4 * MiB), replace(SSD, capacity=MiB)))
    made = make_plan(analysis(*signatures), cluster, policy)
    assert made.predicted_after <= made.predicted_before
    for pool in cluster.pools:
        sections = [
            pattern.choice.layout.section for pattern in made.patterns
            if pattern.choice.layout and pattern.choice.space == pool.name
        ]  # fmt: skip
        assert sum(sections) <= pool.capacity


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
    assert value["predicted_before"] == pattern["candidates"][0]["seconds"]["total"]
    assert value["predicted_after"] == chosen["seconds"]["total"]
    assert value["refused"] == [{"what": f"/d/b {replace(CONTIGUOUS, op='write')}", "why": "writes go to the original"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not JSON"),
        ("[]", 'not a plan: "format" should be "pdla-plan"'),
        ('{"format": "pdla-plan", "version": 99}', "a plan of version 99, this pdla reads version 1"),
        ('{"format": "pdla-plan", "version": 1}', "a damaged plan: 'policy' is missing"),
        ('{"format": "pdla-plan", "version": 1, "policy": "", "command": "", "patterns": 3}', "a damaged plan"),
    ],
)
def test_a_file_that_is_no_plan_gets_one_line(tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(FormatError) as error:
        read_plan(path)
    assert str(error.value).startswith(f"{path}: {message}")
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
        ("growth", [[0, 0, 1]], "2 loops and the growth of 1"),
        ("growth", [[0, 0, 0], [0, -66, 0]], "grows beyond 64 bits or 10000000 iterations, or down to nothing"),
        ("growth", [[0, 0, -32], [0, 0, 0]], "grows beyond 64 bits or 10000000 iterations, or down to nothing"),
        ("growth", [[0, 0, 0], [2**60, 0, 0]], "grows beyond 64 bits or 10000000 iterations, or down to nothing"),
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
    (tmp_path / "plan.json").write_text("9" * 10_000)
    with pytest.raises(FormatError, match="not JSON"):
        read_plan(tmp_path / "plan.json")


def test_a_missing_plan(tmp_path):
    with pytest.raises(FormatError, match="cannot read this plan: No such file"):
        read_plan(tmp_path / "none.json")


def test_the_default_cluster_plans_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path))
    made = make_plan(analysis(STRIDED), load_cluster(None))
    assert made.patterns[0].chosen > 0
