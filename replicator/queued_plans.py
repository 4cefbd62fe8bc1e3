"""Plans in the replication queue: how they get there, and what a daemon builds from them."""

from __future__ import annotations

from pdla.analyzers.analysis import Analysis
from pdla.catalog import Catalog, Pattern
from pdla.catalog.records import pattern_digest
from pdla.errors import FormatError, PdlaError, UnfitError
from pdla.model import Cluster, Layout, Plan, Pool
from pdla.policies.plan import Limits
from pdla.policies.planfile import plan_from_json, plan_to_json
from pdla.replicator.backends import obstacles
from pdla.simulator.verification import verified_plan


def enqueue(catalog: Catalog, plan: Plan) -> int:
    """Queue what a plan chose for a daemon to build; return the number of patterns that now wait for it.

    Raises:
        PdlaError: the catalog does not know one of the patterns. Those that it knows are queued.
    """
    chosen = [one.signature for one in plan.patterns if one.choice.layout is not None]
    catalog.queue.set_state([one.signature for one in plan.patterns if one.choice.layout is None], "left")
    known = catalog.queue.add_plan(plan_to_json(plan), chosen)
    if known < len(chosen):
        raise PdlaError(f"the catalog knows {known} of the plan's {len(chosen)} patterns: run pdla analyze first")
    return known


def plan_queued(catalog: Catalog, cluster: Cluster, policy: str = "auto") -> int:
    """Plan for the patterns that wait for a plan, with the others of the latest run that has them; return how many.

    Raises:
        ConfigError: unknown policy.
    """
    planned = 0
    while queued := catalog.patterns.find(state="queued"):
        run, occurrences = catalog.runs.get(catalog.patterns.get(queued[0].id)[1][-1][0].id)
        found = tuple(one.signature for one in occurrences)
        plan = verified_plan(
            Analysis(found, (), run.requests, run.bytes),
            cluster,
            policy,
            run.command,
            limits=Limits(catalog.replicas.find(), obstacle=obstacles()),
        )
        waiting = {pattern_digest(one.signature) for one in queued}
        chosen = {
            pattern_digest(one.signature): one.signature for one in plan.patterns if one.choice.layout is not None
        }
        here = {pattern_digest(one): one for one in found}
        catalog.queue.set_state([here[one] for one in here.keys() & waiting - chosen.keys()], "left")
        planned += catalog.queue.add_plan(plan_to_json(plan), [chosen[one] for one in chosen.keys() & waiting])
    return planned


def choice(catalog: Catalog, pattern: Pattern) -> tuple[Layout, Pool]:
    """What the plan of a pattern chose for it.

    Raises:
        UnfitError: the plan is of another version, or has no replica for the pattern.
    """
    if pattern.plan is None:
        raise UnfitError(f"pattern {pattern.id} is {pattern.state}, so there is no plan to build")
    try:
        plan = plan_from_json(catalog.queue.plan(pattern.plan))
    except FormatError as error:
        raise UnfitError(f"plan {pattern.plan}: {error}") from error
    digest = pattern_digest(pattern.signature)
    for one in plan.patterns:
        if one.choice.layout is not None and pattern_digest(one.signature) == digest:
            return one.choice.layout, plan.cluster.pool(one.choice.layout.pool)
    raise UnfitError(f"plan {pattern.plan} has no replica for pattern {pattern.id}: make a new plan")
