"""The simulator as the judge of plans: what the cost model proposes is simulated before it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pdla.analyzers.analysis import Analysis
from pdla.errors import PdlaError
from pdla.model import Candidate, Cluster, PatternPlan, Plan, Pool, Signature
from pdla.policies.plan import RedirectedWrites, make_plan
from pdla.simulator import core
from pdla.simulator.run import simulate
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import Workload, from_signatures
from pdla.units import format_seconds

SECONDS = 10.0
"""The budget of a plan."""

RATE = 500_000
"""Accesses that are taken to be simulated in a second. A count, not a clock: all machines make the same plan."""

FEW = 4
"""Replicas of a pattern that are simulated at least: those that the cost model finds cheapest."""

AS_IT_IS, TOGETHER = Scheme("none"), Scheme("two-phase", together=True)
NOT_SIMULATED = "not simulated: the cost model finds others cheaper"

APART = 0.25
"""So far, as a share of the simulated seconds, the cost model may be from the simulation without a word about it."""

TERMS: Mapping[str, tuple[str, Callable[[Cluster], Cluster]]] = {
    "connect": ("connections", lambda cluster: replace(cluster, connect_seconds=0.0)),
    "network": ("network", lambda cluster: replace(cluster, network_seconds_per_byte=0.0)),
    "startup": ("device start-up", lambda cluster: _all_pools(cluster, _without_startup)),
    "transfer": ("device transfer", lambda cluster: _all_pools(cluster, _without_transfer)),
}
"""The terms of the cost model (``Cost``): their names, and the cluster on which each takes no time."""


def verified_plan(
    analysis: Analysis,
    cluster: Cluster,
    policy: str = "auto",
    command: str = "",
    *,
    workload: Callable[[], Workload] | None = None,
    seconds: float = SECONDS,
    writes: RedirectedWrites | None = None,
    leased: bool = False,
    **options: Any,
) -> Plan:
    """The plan of ``make_plan``, with the simulator as its judge.

    ``workload`` makes the calls of the whole run (None: those that its signatures stand for, one
    after the other). ``seconds`` are the budget for simulations; 0: the cost model alone decides.
    If writes are ``leased``, they come home after the run. ``options`` are those of ``make_plan``.
    Without the simulator's core the cost model decides, and the plan says so among what it refused.

    Raises:
        ConfigError: unknown policy or selection.
    """
    judge = Judge(cluster, analysis, workload or (lambda: from_signatures(analysis.signatures)), leased, seconds)
    missing = _missing_core() if seconds else ""
    simulator = judge if seconds and not missing else None
    plan = make_plan(analysis, cluster, policy, command, writes=writes, simulator=simulator, **options)
    return replace(plan, refused=(*plan.refused, ("the simulation", missing))) if missing else plan


def _missing_core() -> str:
    """Why nothing can be simulated; empty: it can."""
    try:
        core.library()
    except PdlaError as error:
        return str(error)
    return ""


@dataclass
class Judge:
    """Simulates candidates and plans (``pdla.policies.plan.Simulator``) until a budget of seconds is used up.

    Half of the budget is for patterns alone, the rest for plans as a whole. The other attributes
    are the arguments of ``verified_plan``.
    """

    cluster: Cluster
    analysis: Analysis
    workload: Callable[[], Workload]
    leased: bool
    budget: float
    _left: float = field(init=False)
    _left_for_plans: float = field(init=False)

    def __post_init__(self) -> None:
        self._left = self._left_for_plans = self.budget / 2 * RATE

    def candidates(self, signature: Signature, found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """The original, collective calls, and as many replicas as the budget allows, simulated alone.

        Replicas that are not simulated are refused. Without time for ``FEW`` replicas nothing is
        simulated.
        """
        replicas = [i for i, one in enumerate(found) if one.layout and not one.refused]
        replicas.sort(key=lambda i: found[i].cost.total)
        others = [i for i, one in enumerate(found) if not one.layout]
        affordable = int(self._left // signature.requests) - len(others)
        if affordable < min(FEW, len(replicas)):
            return found
        chosen = [*others, *replicas[:affordable]]
        try:
            workload = from_signatures([signature])
        except PdlaError:  # more loops than the simulator takes
            return found
        seconds = {i: self._alone(workload, signature, found, i) for i in chosen}
        self._left -= len(chosen) * signature.requests
        refused = dict.fromkeys(replicas[affordable:], NOT_SIMULATED)
        return tuple(
            replace(one, simulated=seconds.get(i), refused=refused.get(i, one.refused)) for i, one in enumerate(found)
        )

    def seconds(self, plan: Plan) -> float | None:
        """The seconds in I/O of the run with this plan; None: the budget is used up, or the run has more loops than the
        simulator takes."""
        if self._left_for_plans < self.analysis.requests or self._run is None:
            return None
        self._left_for_plans -= self.analysis.requests
        return self._simulated(self._run, plan)

    @cached_property
    def _run(self) -> Workload | None:
        try:
            return self.workload()
        except PdlaError:
            return None

    def _alone(self, workload: Workload, signature: Signature, found: tuple[Candidate, ...], number: int) -> float:
        if found[number].space == "collective":
            return simulate(workload, self.cluster, TOGETHER).seconds
        pattern = PatternPlan(signature, found, number, "")
        return self._simulated(workload, Plan("", "", (pattern,), (), self.cluster))

    def _simulated(self, workload: Workload, plan: Plan) -> float:
        return simulate(workload, self.cluster, AS_IT_IS, plan, leased=self.leased).seconds


def differences(plan: Plan, most: int, leased: bool = False) -> list[list[str]]:
    """Where the cost model and the simulation of the first ``most`` patterns of a plan are ``APART``, in words.

    That is said of the original and of the choice of each pattern, with the term in which the two
    differ most. What a term takes in the simulator is what is saved on a cluster on which it takes
    no time.
    """
    return [
        [
            _difference(one.signature, one.candidates, number, plan.cluster, leased)
            for number in dict.fromkeys((0, one.chosen))
            if one.signature.requests <= RATE and _apart(one.candidates[number])
        ]
        for one in plan.patterns[:most]
    ]


def _apart(one: Candidate) -> bool:
    return one.simulated is not None and abs(one.cost.total - one.simulated) > APART * one.simulated


def _difference(signature: Signature, found: tuple[Candidate, ...], number: int, cluster: Cluster, leased: bool) -> str:
    one, workload = found[number], from_signatures([signature])
    plan = Plan("", "", (PatternPlan(signature, found, number, ""),), (), cluster)

    def seconds(on: Cluster) -> float:
        return simulate(workload, on, AS_IT_IS, plan, leased=leased).seconds

    whole, terms = seconds(cluster), {}
    for name, (words, changed) in TERMS.items():
        terms[words] = getattr(one.cost, name), max(whole - seconds(changed(cluster)), 0.0)
    worst = max(terms, key=lambda words: abs(terms[words][0] - terms[words][1]))
    predicted, simulated = map(format_seconds, terms[worst])
    what = "the original" if one.layout is None else "the choice"
    assert one.simulated is not None
    return (
        f"For {what} the cost model says {format_seconds(one.cost.total)}, and the simulator "
        f"{format_seconds(one.simulated)}. They differ most in {worst}: {predicted} and {simulated}."
    )


def _all_pools(cluster: Cluster, changed: Callable[[Pool], Pool]) -> Cluster:
    return replace(cluster, pools=tuple(map(changed, cluster.pools)))


def _without_startup(pool: Pool) -> Pool:
    return replace(pool, startup=((0, 0.0),), device=replace(pool.device, write_startup=(), rotation_seconds=0.0))


def _without_transfer(pool: Pool) -> Pool:
    return replace(pool, read_seconds_per_byte=0.0, write_seconds_per_byte=0.0)
