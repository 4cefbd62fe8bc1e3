"""Choose policies for the files of an application's next run from what its runs took, and from a forecast made once."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from pdla.autopilot import spool
from pdla.autopilot.drifts import does_other_work
from pdla.autopilot.file_groups import ALL, OTHERS, grouped, ordered
from pdla.autopilot.forecast import LEAD, Forecast
from pdla.autopilot.schemes import ALIKE, NATIVE, REPLICAS, WORSE, Choice, Taken, choose, measured_seconds
from pdla.catalog import Catalog, Decision, LearnedRun, RunFacts
from pdla.file_policies import NONE, FilePolicies
from pdla.units import counted, format_seconds, shown

SAID = 3
"""So many groups of files the log has a reason for."""


class Recorded(Protocol):
    """The records of a run, as far as the choice needs them. A group is named by its pattern (file_groups.py)."""

    def groups(self) -> tuple[str, ...]:
        """The groups of its files."""

    def seconds(self, groups: Sequence[str]) -> Mapping[str, float]:
        """By group, what the slowest rank spent in all calls of MPI-IO on its files; empty: not recorded."""

    def forecast(self, group: str, groups: Sequence[str], native: float) -> Forecast:
        """The forecast for the files of a group, which take so many seconds natively."""


class Chosen(NamedTuple):
    """The policies of the next run, why, and what to log of it; ``parts``: seconds of the last run by group."""

    choice: Choice
    parts: Mapping[str, float]
    decisions: list[Decision]


def choose_policies(
    catalog: Catalog, owner: str, application: int, run: spool.Waiting, facts: RunFacts, recorded: Recorded
) -> Chosen:
    """The policies of the next run after ``run``; those of the choice are a value of ``PDLA_POLICY``, or "".

    The forecast is made once for the runs that do the same; the log keeps it, with the groups of files.
    """
    logged = catalog.autopilot.decisions(owner, application=application, kinds=["chose"])
    known = [one.facts for one in logged if _same(one.facts["ranks"], one.facts["bytes"], facts)]
    is_new = does_other_work(facts.drift) or not known
    before = _remembered(known[-1]) if known else {OTHERS: Forecast()}
    groups = recorded.groups() if is_new and not facts.policy else tuple(before)
    parts = recorded.seconds(groups)
    facts = replace(facts, parts=parts)
    runs = [*catalog.autopilot.runs(application), LearnedRun(0, application, run.name, run.time, facts)]
    same = _alike(runs, facts)
    undone = [one.facts["policy"] for one in logged if one.undone is not None]
    barred = list(filter(None, [*undone, *_failed(catalog, owner, run)]))
    forecasts, choices, files = {}, {}, grouped(facts.files, groups)
    for group in groups:
        taken, paths = _taken(same, group, groups), files.get(group, [])
        forecasts[group] = _forecast(recorded, group, groups, taken) if is_new else before[group]
        out = {FilePolicies.from_text(text).of(path) for text in barred for path in paths} - {NONE}
        allowed = {one: seconds for one, seconds in forecasts[group].seconds.items() if one not in out}
        reads = any("read" in facts.calls.get(path, {}) for path in paths)
        choices[group] = choose([one for one in taken if one.scheme not in out], allowed, LEAD if reads else {})
    together = _together(choices)
    whole = [one for one in same if one.policy not in barred]
    instead = _instead(together, whole, facts) if len(groups) > 1 and together.settled else None
    choice = instead or together
    if not is_new and choice.policy == run.policy:
        return Chosen(choice, parts, [])
    remembered: dict[str, Any] = {"run": run.name, "policy": choice.policy, "ranks": facts.ranks, "bytes": facts.bytes}
    remembered["groups"] = {
        group: {"seconds": dict(one.seconds), "absent": dict(one.absent)} for group, one in forecasts.items()
    }
    why = instead.why if instead else _why(choice, choices, forecasts)
    return Chosen(choice, parts, [Decision(f"chose:{run.name}", "chose", why, application, facts=remembered)])


def ignored_facts(run: spool.Waiting) -> dict[str, Any]:
    """What is remembered of a run that failed: the policies that were chosen for it are not chosen again."""
    return {"run": run.name, **({"policy": run.policy, "command": shlex.join(run.command)} if run.chosen else {})}


def _failed(catalog: Catalog, owner: str, run: spool.Waiting) -> list[str]:
    failed = (one.facts for one in catalog.autopilot.decisions(owner, kinds=["ignored"]))
    return [one["policy"] for one in failed if one.get("command") == shlex.join(run.command)]


def _remembered(facts: Mapping[str, Any]) -> dict[str, Forecast]:
    """The forecast of each group in a decision. Older decisions are on all files together."""
    found = facts.get("groups") or {OTHERS: facts}
    return {group: Forecast(found[group]["seconds"], found[group]["absent"]) for group in ordered(found)}


def _forecast(recorded: Recorded, group: str, groups: Sequence[str], taken: Sequence[Taken]) -> Forecast:
    native = [one.seconds for one in taken if one.scheme == NATIVE]
    if not native:
        return Forecast(absent={"": "no run was measured without replicas"})
    return recorded.forecast(group, groups, native[-1])


def _alike(runs: Sequence[LearnedRun], facts: RunFacts) -> list[RunFacts]:
    """The runs that did the same as the last one, since the patterns changed, as far as they were recorded."""
    since = max((place for place, one in enumerate(runs) if does_other_work(one.facts.drift)), default=0)
    same = [one.facts for one in runs[since:] if _same(one.facts.ranks, one.facts.bytes, facts)]
    return [one for one in same if one.io is not None]


def _taken(runs: Sequence[RunFacts], group: str, groups: Sequence[str]) -> list[Taken]:
    """What the files of a group took in these runs."""
    if tuple(groups) == ALL:
        return [Taken(_scheme(one, one.policy), one.io or 0.0) for one in runs]
    found = []
    for one in runs:
        if group in one.parts:
            # A pattern that was chosen is one of a group, and all files of that have the same policy.
            policy = FilePolicies.from_text(one.policy).of(grouped(one.files, groups)[group][0])
            found.append(Taken(_scheme(one, "" if policy == NONE else policy), one.parts[group]))
    return found


def _scheme(facts: RunFacts, policy: str) -> str:
    return policy or (REPLICAS if facts.served else NATIVE)


def _together(choices: Mapping[str, Choice]) -> Choice:
    """The choices for all groups as one."""
    settled = all(one.settled for one in choices.values())
    why = next(iter(choices.values())).why
    if len({one.policy for one in choices.values()}) == 1:
        return Choice(next(iter(choices.values())).policy, why, settled)
    named = {group: one.policy or NONE for group, one in choices.items()}
    default = named.pop(OTHERS, NONE)
    return Choice(str(FilePolicies(tuple(named.items()), default)), why, settled)


def _instead(choice: Choice, runs: Sequence[RunFacts], facts: RunFacts) -> Choice | None:
    """Other policies, if whole runs were faster with them: what is best for each file apart shares the devices."""
    lead = {
        one.policy: max((LEAD.get(name, 0) for name in FilePolicies.from_text(one.policy).names), default=0)
        for one in runs
    }
    taken = [Taken(_scheme(one, one.policy), one.io or 0.0) for one in runs]
    measured = measured_seconds(taken, lead if facts.read else {})
    if choice.policy not in measured:
        return None
    best = min(measured, key=lambda one: measured[one])
    if measured[choice.policy] <= WORSE * measured[best]:
        return None
    policy = "" if best in (NATIVE, REPLICAS) else best
    took, takes = format_seconds(measured[choice.policy]), format_seconds(measured[best])
    what = FilePolicies.from_text(choice.policy).sentence
    why = f"{FilePolicies.from_text(policy).sentence} in the next run: all files took {takes}, and {took} with {what}"
    return Choice(policy, why, settled=True)


def _why(choice: Choice, choices: Mapping[str, Choice], forecasts: Mapping[str, Forecast]) -> str:
    untried = {group: f"; nothing is tried: {one.absent['']}" for group, one in forecasts.items() if "" in one.absent}
    if len(choices) == 1:
        return f"{choice.policy or 'no policy'} for the next run: {choice.why}{''.join(untried.values())}"
    reasons = [f"{shown(group) or 'other files'}: {one.why}{untried.get(group, '')}" for group, one in choices.items()]
    more = [f"and {counted(len(reasons) - SAID, 'more reason')}"] if len(reasons) > SAID else []
    what = FilePolicies.from_text(choice.policy).sentence
    return f"{what} in the next run ({'; '.join([*reasons[:SAID], *more])})"


def _same(ranks: int, size: int, facts: RunFacts) -> bool:
    return ranks == facts.ranks and abs(size - facts.bytes) <= ALIKE * facts.bytes
