"""Applications share the space by measured worth, and predictions are corrected by measurements."""

from __future__ import annotations

import pytest

from pdla.autopilot.factors import Factor, Observation, corrected, factors
from pdla.autopilot.worth import (
    DAY,
    NEWCOMERS,
    UNREAD_DAYS,
    PastRun,
    Removal,
    Stake,
    Step,
    failure,
    lasting,
    share_of_runs,
    steps,
    worth,
)
from pdla.layouts.config import load_cluster

NOW = 100 * DAY
ROOM = {"pool ssd": 1000}


def daily(saved: float | None, days: int = 20, until: float = NOW) -> list[PastRun]:
    """A run a day, the last one just now, each of which saved so much."""
    return [PastRun(until - day * DAY, True, saved) for day in reversed(range(days))]


def stake(name: str, bytes_: int, saved: float, built: bool = True) -> Stake:
    runs = daily(saved if built else None)
    return Stake(name, {"pool ssd": bytes_}, saved, runs, built=runs[0].time if built else None, lasting=1e9)


def test_all_replicas_stay_and_are_built_where_there_is_room():
    stakes = [stake("kept", 400, 1.0), stake("useless", 100, -1.0), stake("new", 500, 1.0, built=False)]
    assert steps(stakes, ROOM, NOW) == (Step((), "new"),)


def test_the_replica_that_saves_least_a_byte_gives_way_to_one_that_saves_more():
    stakes = [stake("much", 500, 9.0), stake("little", 500, 1.0), stake("new", 500, 5.0, built=False)]
    (step,) = steps(stakes, ROOM, NOW)
    assert step.build == "new"
    why = "space is short: it saves 2.26e+06 s a day and GiB, and new 1.13e+07 s"
    assert step.remove == (Removal("little", why),)


def test_a_replica_does_not_give_way_to_one_that_is_predicted_to_save_a_little_more():
    stakes = [stake("old", 1000, 4.0), stake("new", 1000, 5.0, built=False)]
    assert steps(stakes, ROOM, NOW) == ()


def test_no_more_replicas_give_way_than_the_new_one_needs():
    stakes = [stake("tiny", 10, 0.01), stake("small", 490, 1.0), stake("large", 500, 9.0)]
    (step,) = steps([*stakes, stake("new", 490, 5.0, built=False)], ROOM, NOW)
    assert [one.name for one in step.remove] == ["small"]


def test_steps_come_in_the_order_of_what_they_save_a_byte():
    stakes = [stake("b", 300, 2.0, built=False), stake("a", 300, 4.0, built=False), stake("c", 300, 1.0, built=False)]
    assert [step.build for step in steps(stakes, ROOM, NOW)] == ["a", "b", "c"]


def test_each_space_has_its_own_room():
    full = stake("full", 1000, 9.0)
    other = Stake("other", {"pool hdd": 10}, 1.0, daily(None), lasting=1e9)
    assert steps([full, other], {**ROOM, "pool hdd": 10}, NOW) == (Step((), "other"),)
    assert steps([full, other], {**ROOM, "pool hdd": 9}, NOW) == ()


def test_a_replica_that_nobody_read_for_a_time_goes_first_and_only_if_space_is_short():
    ago = NOW - (UNREAD_DAYS + 1) * DAY
    unread = Stake("unread", {"pool ssd": 500}, 900.0, daily(900.0, until=ago), built=ago - 20 * DAY)
    others = [unread, stake("read", 500, 0.001)]
    assert steps(others, ROOM, NOW) == ()
    (step,) = steps([*others, stake("new", 100, 1.0, built=False)], ROOM, NOW)
    assert step.remove == (Removal("unread", "space is short, and nobody read it for 15 days"),)


def test_newcomers_are_favoured_within_their_share_only():
    proposed = [
        Stake(name, {"pool ssd": size}, 1.2 * size / 1000, daily(None), lasting=1e9)
        for name, size in (("a", int(NEWCOMERS * 1000)), ("b", int(NEWCOMERS * 1000)))
    ]
    residents = [stake(f"old {n}", 50, 0.05) for n in range(20)]
    assert [step.build for step in steps([*residents, *proposed], ROOM, NOW)] == ["a"]


def test_replicas_that_take_more_than_there_is_give_way():
    (step,) = steps([stake("much", 600, 9.0), stake("little", 600, 1.0)], ROOM, NOW)
    assert step == Step((Removal("little", "replicas take more space than there is, and it saves least"),), None)


def test_what_a_build_takes_counts_by_the_runs_that_the_pattern_lasts():
    runs = daily(None)
    for lasts, is_built in ((lasting(0, 3), False), (lasting(400, 3), True)):
        new = Stake("new", {"pool ssd": 10}, 2.0, runs, build=20.0, lasting=lasts)
        assert bool(steps([new], ROOM, NOW)) is is_built


def test_a_replica_whose_pattern_is_gone_is_worth_less_with_each_run():
    runs = [*daily(1.0), PastRun(NOW, False), PastRun(NOW, False), PastRun(NOW, False)]
    gone = Stake("gone", {}, 1.0, runs)
    assert share_of_runs(gone) < 0.45
    assert worth(gone, NOW) < 0.5 * worth(Stake("there", {}, 1.0, daily(1.0)), NOW)


def test_a_replica_that_did_not_pay_twice_is_retired_and_one_that_did_once_is_not():
    assert failure(Stake("bad", {}, 1.0, [PastRun(1.0, True, -1.0), PastRun(2.0, False), PastRun(3.0, True, -2.0)]))
    assert not failure(Stake("good", {}, 1.0, [PastRun(1.0, True, -1.0), PastRun(2.0, True, 2.0)]))
    assert not failure(Stake("once", {}, 1.0, [PastRun(1.0, True, -1.0)]))


def test_a_factor_follows_what_most_runs_measured_and_stays_in_bounds():
    right = Observation("ssd", before=10.0, after=2.0, saved=7.0)
    odd = Observation("ssd", before=10.0, after=2.0, saved=-90.0)
    assert factors([right] * 5 + [odd]) == {"ssd": Factor(1.5, 6)}
    assert factors([odd] * 30) == {"ssd": Factor(4.0, 30)}
    assert factors([]) == {}


def test_a_factor_stays_when_plans_are_made_with_it():
    after = Observation("ssd", before=10.0, after=3.0, saved=7.0, factor=1.5)
    assert factors([after] * 5)["ssd"].value == pytest.approx(1.5)


def test_a_corrected_cluster_has_the_factor_in_the_devices_of_the_pool_only():
    cluster = load_cluster(None)
    found = corrected(cluster, {"ssd": Factor(2.0, 9), cluster.home_pool: Factor(3.0, 9)})
    before, after = cluster.pool("ssd"), found.pool("ssd")
    assert after.read_seconds_per_byte == 2 * before.read_seconds_per_byte
    assert [seconds for _, seconds in after.startup] == [2 * seconds for _, seconds in before.startup]
    assert found.pool(cluster.home_pool) == cluster.pool(cluster.home_pool)
