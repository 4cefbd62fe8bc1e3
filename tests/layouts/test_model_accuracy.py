"""The cost model against the simulator: its seconds, and its order of candidates, for random programs on clusters."""

from __future__ import annotations

from statistics import mean, median

from benchmarks.model_accuracy import compared, off
from benchmarks.random_programs import random_case
from tests.support.fewer_cases import THOROUGH

PROGRAMS = 80 if THOROUGH else 20


def test_the_model_says_what_is_simulated_and_in_the_same_order() -> None:
    found = [one for seed in range(PROGRAMS) for one in compared(random_case(seed))]
    errors = sorted(off(ratio) for one in found for ratio in one.ratios)
    assert len(errors) > 12 * PROGRAMS
    assert median(errors) <= 0.05 and errors[int(0.9 * len(errors))] <= 0.4
    assert sum(error <= 1 for error in errors) >= 0.99 * len(errors)
    assert mean(right for one in found for right in one.orders) >= 0.97
