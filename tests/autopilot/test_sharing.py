"""Applications that share too little space save nearly what somebody could who knows the whole month."""

from __future__ import annotations

import pytest

from benchmarks.sharing import Month, Pattern, Run, by_last_use, by_worth, offline_bound, simulated_month
from pdla.autopilot.worth import DAY
from pdla.units import GiB


def pattern(number: int, before: float) -> Pattern:
    """A pattern of an application of its own, of 1 GiB, that a replica makes ten times as fast, as predicted."""
    return Pattern(number, number, GiB, "ssd", before, before / 10, before / 10)


def month(patterns: list[Pattern], room: int, days: int = 20, bandwidth: float = GiB / 60) -> Month:
    """Each pattern has a run a day."""
    return Month(
        patterns,
        [Run(day * DAY + one.number * 3600, one.number, (one.number,)) for day in range(days) for one in patterns],
        room,
        bandwidth,
    )


def test_the_bound_is_what_all_runs_but_the_first_save_less_the_build_where_there_is_room() -> None:
    assert offline_bound(month([pattern(0, 100.0)], GiB)) == pytest.approx(19 * 90 - 5)


def test_the_bound_of_two_that_share_the_space_of_one_is_more_than_that_of_the_better_one_and_no_more_than_both() -> (
    None
):
    both, one = [pattern(0, 100.0), pattern(1, 50.0)], month([pattern(0, 100.0)], GiB)
    assert offline_bound(one) < offline_bound(month(both, GiB)) <= 19 * (90 + 45) - 2 * 5


def test_no_bandwidth_no_replica() -> None:
    assert offline_bound(month([pattern(0, 100.0)], GiB, bandwidth=0.0)) == pytest.approx(0.0)


def test_of_two_that_share_the_space_of_one_the_better_one_gets_it() -> None:
    found = by_worth(month([pattern(0, 50.0), pattern(1, 500.0)], GiB))
    assert found.saved == pytest.approx(19 * 450 - 5 + 0 * 45, abs=60)
    assert (found.built, found.removed) in {(1, 0), (2, 1)}


@pytest.mark.parametrize("seed", range(3))
def test_under_pressure_the_month_is_within_five_percent_of_an_optimum_that_knows_it(seed: int) -> None:
    simulated = simulated_month(20, 2000, seed)
    bound, found = offline_bound(simulated), by_worth(simulated, seed)
    assert 0.95 * bound < found.saved < bound
    assert by_last_use(simulated).saved < 0.75 * found.saved
