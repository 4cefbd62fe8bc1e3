"""Plans that the simulator has judged: never slower than no plan, and near the best that there is."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest

from benchmarks.random_programs import Case, random_case
from pdla.analyzers.analysis import Analysis
from pdla.collectors import workloads
from pdla.errors import PdlaError
from pdla.layouts.config import load_cluster
from pdla.model import Loop, PatternPlan, Plan, Signature
from pdla.policies.plan import RedirectedWrites, make_plan
from pdla.report.text import plan_table
from pdla.simulator import core
from pdla.simulator.run import simulate
from pdla.simulator.scheme_comparison import Program
from pdla.simulator.schemes import Scheme
from pdla.simulator.verification import NOT_SIMULATED, Judge, differences, verified_plan
from pdla.simulator.workload import from_signatures
from pdla.units import KiB
from tests.support.fewer_cases import THOROUGH

PROGRAMS = 200 if THOROUGH else 50
MOST = 400
"""Plans of a program that are tried."""


def redirected(case: Case) -> RedirectedWrites:
    return RedirectedWrites(case.program.dependences)


def planned_for(case: Case, seconds: float = 10.0) -> Plan:
    more = {"workload": lambda: case.program.workload, "seconds": seconds, "leased": case.leased}
    return verified_plan(case.program.analysis, case.cluster, writes=redirected(case), **more)


def seconds_of(case: Case, plan: Plan | None) -> float:
    return simulate(case.program.workload, case.cluster, Scheme("none"), plan, leased=case.leased).seconds


def best_of(case: Case, plan: Plan) -> float | None:
    """The seconds of the best of all plans that there are; None: there are too many."""
    unlimited = replace(case.cluster, pools=tuple(replace(one, capacity=None) for one in case.cluster.pools))
    possible = make_plan(case.program.analysis, unlimited, "ns-pdla", writes=redirected(case))
    obstacles = [one.chosen == 0 for one in possible.patterns]
    choices = [
        [0] if alone else [i for i, one in enumerate(each.candidates) if i == 0 or (one.layout and _fits(one.refused))]
        for alone, each in zip(obstacles, plan.patterns, strict=True)
    ]
    if math.prod(map(len, choices)) > MOST:
        return None
    plans = (
        replace(plan, patterns=tuple(replace(one, chosen=i) for one, i in zip(plan.patterns, each, strict=True)))
        for each in product(*choices)
    )
    return min(seconds_of(case, one) for one in plans)


def _fits(refused: str) -> bool:
    return not refused.startswith("needs ") and "grain" not in refused


@pytest.mark.thorough
def test_plans_are_near_the_best_of_all_and_never_slower_than_none() -> None:
    """Those of the cost model alone may take twice as long as the best."""
    ratios, alone = [], []
    for seed in range(PROGRAMS):
        case = random_case(seed)
        plan = planned_for(case)
        seconds = seconds_of(case, plan)
        assert seconds <= seconds_of(case, None), seed
        assert plan.simulated is not None and plan.simulated[1] == pytest.approx(seconds), seed
        if (best := best_of(case, plan)) is not None:
            ratios.append(seconds / best)
            alone.append(seconds_of(case, planned_for(case, seconds=0)) / best)
    assert len(ratios) > 0.8 * PROGRAMS
    assert sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)
    assert max(ratios) <= 1.2
    share = 0.9 if THOROUGH else 0.85  # of so few programs
    assert sum(ratio <= 1.05 for ratio in alone) >= share * len(alone) and max(alone) <= 2


STRIDED = Signature("/d/a", "read", False, 0, 16 * KiB, (Loop(16 * KiB, 4), Loop(512 * KiB, 64)), (0, 1, 2, 3), 1)
"""A pattern of which 64 KiB in every 512 are on one server of cluster pdla."""


def judge(seconds: float, *signatures: Signature) -> Judge:
    analysis = Analysis(signatures, (), sum(one.requests for one in signatures), sum(one.bytes for one in signatures))
    return Judge(load_cluster("pdla"), analysis, lambda: from_signatures(signatures), False, seconds)


def planned(seconds: float, *signatures: Signature) -> Plan:
    found = judge(seconds, *signatures).analysis
    return verified_plan(found, load_cluster("pdla"), seconds=seconds)


def test_what_the_budget_does_not_allow_is_not_simulated_and_not_chosen() -> None:
    full, none = planned(10, STRIDED), planned(0, STRIDED)
    assert all(one.simulated is not None for one in full.patterns[0].candidates if one.layout)
    assert full.simulated is not None and none.simulated is None
    assert all(one.simulated is None for one in none.patterns[0].candidates)
    found = tuple(replace(one, refused="") if one.layout else one for one in none.patterns[0].candidates)
    few = judge(2 * 7 * STRIDED.requests / 500_000, STRIDED).candidates(STRIDED, found)
    replicas = sorted((one for one in few if one.layout), key=lambda one: one.cost.total)
    assert [one.simulated is not None for one in replicas] == [number < 5 for number in range(len(replicas))]
    assert all(one.refused == NOT_SIMULATED for one in replicas[5:])
    assert [one.simulated for one in few if one.simulated] == [
        one.simulated for one, kept in zip(full.patterns[0].candidates, few, strict=True) if kept.simulated
    ]
    too_few = judge(2 * 5 * STRIDED.requests / 500_000, STRIDED)
    assert too_few.candidates(STRIDED, found) == found


def test_equal_plans_whatever_the_machine() -> None:
    assert planned(10, STRIDED) == planned(10, STRIDED)


def test_a_pattern_with_more_loops_than_the_simulator_takes_is_left_to_the_cost_model() -> None:
    many = replace(STRIDED, loops=(Loop(16 * KiB, 4), *(Loop((1 << 21) << i, 2) for i in range(13))))
    plan = planned(10, many)
    assert plan.simulated is None and all(one.simulated is None for one in plan.patterns[0].candidates)


def test_the_explanation_has_both_figures_and_the_term_that_differs() -> None:
    simulated = planned(10, STRIDED)
    (pattern,) = simulated.patterns
    assert differences(simulated, 20) == [[]]
    far = (replace(pattern.candidates[0], simulated=1.0), *pattern.candidates[1:])
    plan = replace(simulated, patterns=(replace(pattern, candidates=far),))
    (said,) = differences(plan, 20)
    table = plan_table(plan, [said])
    assert "simulated    model  connect" in table
    assert said[0].startswith("For the original the cost model says ")
    assert "and the simulator 1 s. They differ most in " in said[0]
    assert differences(planned(0, STRIDED), 20) == [[]]
    near = tuple(replace(one, simulated=one.cost.total * 1.2) for one in pattern.candidates)
    assert differences(replace(plan, patterns=(replace(pattern, candidates=near),)), 20) == [[]]


def test_bringing_home_costs_each_region_whatever_their_number() -> None:
    """They are written one after the other in the order of the file, by all ranks at the same time."""
    seconds = []
    for count in (256, 257):
        case = Case(Program.of(workloads.hpio(16, count, 8 * KiB, 4 * KiB, "write", False)), load_cluster(None))
        (pattern,) = planned_for(case, seconds=0).patterns
        number = next(i for i, one in enumerate(pattern.candidates) if one.space == "ssd")
        plan = Plan("", "", (replace(pattern, chosen=number),), (), case.cluster)
        seconds.append(seconds_of(case, plan))
    assert seconds[0] < seconds[1] < 1.5 * seconds[0]  # shares are multiples of 1 MiB: 257 are shared less evenly
    assert seconds_of(replace(case, leased=True), plan) < seconds[1] / 10


def test_what_adjoins_comes_home_in_large_requests() -> None:
    """Four ranks whose pieces take turns: each brings home its quarter of the file, of all ranks' pieces."""
    signature = Signature("/d/a", "write", False, 0, KiB, (Loop(KiB, 4), Loop(4 * KiB, 1 << 14)), (0, 1, 2, 3), 1)
    workload, cluster = from_signatures([signature]), load_cluster("pdla")
    found = make_plan(Analysis((signature,), (), 1, 1), cluster, writes=RedirectedWrites((0,))).patterns[0]
    number = next(i for i, one in enumerate(found.candidates) if one.layout)
    plan = Plan("", "", (PatternPlan(signature, found.candidates, number, ""),), (), cluster)
    closed, leased = (simulate(workload, cluster, Scheme("none"), plan, leased=one) for one in (False, True))
    assert closed.bytes_written == leased.bytes_written == signature.bytes
    assert (closed.moved["home"][0], leased.moved["home"][0]) == (signature.bytes, 0)
    assert closed.requests - leased.requests == 20


def test_without_the_simulators_core_the_cost_model_decides_and_the_plan_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise PdlaError("libpdla-simulator.so is missing")

    monkeypatch.setattr(core, "library", missing)
    plan, alone = planned(10, STRIDED), planned(0, STRIDED)
    assert plan == replace(alone, refused=(*alone.refused, ("the simulation", "libpdla-simulator.so is missing")))


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_leased_comes_home_in_the_run_only_if_the_program_opens_the_file_again(times: int) -> None:
    program, cluster = Program.of(workloads.ior(4, 64 * KiB, 16 * KiB, 16, ["write"] * times)), load_cluster("pdla")
    plan = make_plan(program.analysis, cluster, "ns-pdla", writes=RedirectedWrites(program.dependences))
    candidates = plan.patterns[0].candidates
    chosen = next(number for number, one in enumerate(candidates) if one.layout)
    plan = replace(plan, patterns=tuple(replace(one, chosen=chosen) for one in plan.patterns))
    kept, home = (
        simulate(program.workload, cluster, Scheme("none"), plan, leased=one).seconds for one in (True, False)
    )
    assert (kept < home) == (times == 1)
