"""Choose the policy of an application's next run from what its runs took, and from a forecast that is made once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from pdla.autopilot import spool
from pdla.autopilot.forecast import LEAD, Forecast
from pdla.autopilot.schemes import ALIKE, NATIVE, REPLICAS, Choice, Taken, choose
from pdla.catalog import Catalog, Decision, LearnedRun, RunFacts


def choose_policy(
    catalog: Catalog,
    owner: str,
    application: int,
    run: spool.Waiting,
    facts: RunFacts,
    made: Callable[[float], Forecast],
) -> tuple[Choice, list[Decision]]:
    """The policy of the next run after ``run``, and what to log of it.

    ``made`` makes the forecast for a program that takes so many seconds natively. It is called once for the runs that
    do the same; the log keeps what it said.
    """
    runs = [*catalog.autopilot.runs(application), LearnedRun(0, application, run.name, run.time, facts)]
    taken = _taken(runs, facts)
    logged = catalog.autopilot.decisions(owner, application=application, kinds=["chose"])
    known = [one.facts for one in logged if _same(one.facts["ranks"], one.facts["bytes"], facts)]
    if facts.drift or not known:
        native = [one.seconds for one in taken if one.scheme == NATIVE]
        found = made(native[-1]) if native else Forecast(absent={"": "no run was measured without replicas"})
        seconds, absent = dict(found.seconds), dict(found.absent)
    else:
        seconds, absent = known[-1]["seconds"], known[-1]["absent"]
    barred = {one.facts["policy"] for one in logged if one.undone is not None} | _failed(catalog, owner, run)
    lead = LEAD if facts.read else {}
    choice = choose(taken, {one: value for one, value in seconds.items() if one not in barred}, lead)
    if known and not facts.drift and choice.policy == run.policy:
        return choice, []
    why = f"{choice.policy or 'no policy'} for the next run: {choice.why}"
    if "" in absent:
        why += f"; nothing is tried: {absent['']}"
    remembered: dict[str, Any] = {"run": run.name, "policy": choice.policy, "seconds": seconds, "absent": absent}
    remembered |= {"ranks": facts.ranks, "bytes": facts.bytes}
    return choice, [Decision(f"chose:{run.name}", "chose", why, application, facts=remembered)]


def ignored_facts(run: spool.Waiting) -> dict[str, Any]:
    """What is remembered of a run that failed: the policy that was chosen for it is not chosen again."""
    return {"run": run.name, **({"policy": run.policy, "command": shlex.join(run.command)} if run.chosen else {})}


def _failed(catalog: Catalog, owner: str, run: spool.Waiting) -> set[str]:
    failed = (one.facts for one in catalog.autopilot.decisions(owner, kinds=["ignored"]))
    return {one["policy"] for one in failed if one.get("command") == shlex.join(run.command)}


def _taken(runs: Sequence[LearnedRun], facts: RunFacts) -> list[Taken]:
    """The runs that did the same as the last one, since the patterns changed."""
    since = max((place for place, one in enumerate(runs) if one.facts.drift), default=0)
    same = [one.facts for one in runs[since:] if _same(one.facts.ranks, one.facts.bytes, facts)]
    return [Taken(_scheme(one), one.io) for one in same if one.io is not None]


def _scheme(facts: RunFacts) -> str:
    return facts.policy or (REPLICAS if facts.served else NATIVE)


def _same(ranks: int, size: int, facts: RunFacts) -> bool:
    return ranks == facts.ranks and abs(size - facts.bytes) <= ALIKE * facts.bytes
