"""Take back what the autopilot did: one decision, or all that it knows of an application."""

from __future__ import annotations

import os

from pdla.autopilot import spool
from pdla.autopilot.names import this_user
from pdla.autopilot.spool import trace_of
from pdla.catalog import AutopilotApplication, Catalog, Decision, Replica
from pdla.catalog.autopilot import Kind
from pdla.catalog.records import pattern_digest
from pdla.errors import PdlaError
from pdla.file_policies import FilePolicies
from pdla.model import Signature
from pdla.replicator.sync import waiting_targets, write_back
from pdla.replicator.verify import discard

NOTHING = {
    "ignored": "nothing was learned from that run",
    "drifted": "it says what the program did",
    "forgot": "what was forgotten is gone; the next runs are learned from again",
}
"""Why a decision of a kind cannot be undone."""
ONCE: tuple[Kind, ...] = ("planned", "built")
"""Decisions that give a pattern a replica."""


def undo(catalog: Catalog, number: int) -> str:
    """Undo the decision of this number; return in words what that did.

    Raises:
        PdlaError: there is no such decision, it cannot be undone, or it is undone already.
    """
    owner = this_user()
    one = catalog.autopilot.decision(owner, number)
    if one.undone is not None:
        raise PdlaError(f"decision {number} is undone already")
    if one.kind in NOTHING:
        raise PdlaError(f"decision {number} ({one.kind}) cannot be undone: {NOTHING[one.kind]}")
    same = [one]
    if one.kind in ONCE:
        said, same = _remove_replicas(catalog, owner, one)
    elif one.kind == "learned":
        catalog.autopilot.forget_run(str(one.facts["run"]))
        trace_of(str(one.facts["run"])).unlink(missing_ok=True)
        said = "the run is not in the history any more"
    elif one.kind == "chose":
        for each in catalog.autopilot.applications(owner):
            if each.id == one.application:
                spool.forget_application(each.name, policies_only=True)
        policies = FilePolicies.from_text(one.facts["policy"])
        barred = f", and {policies.sentence} is not chosen again" if policies.rules else ""
        barred = barred or "".join(f", and {name} is not chosen again" for name in policies.names)
        said = f"the next runs have no policy{barred}"
    elif one.kind == "paused":
        spool.resume()
        said = "runs are learned from again"
    elif one.kind == "resumed":
        spool.pause()
        said = "learning is paused"
    else:
        said = "it is decided anew after the next run of the application"
    catalog.autopilot.undo([each.id for each in same])
    return said


def _remove_replicas(catalog: Catalog, owner: str, one: Decision) -> tuple[str, list[Decision]]:
    """Remove the replicas of a pattern; it gets none any more."""
    same = [
        each
        for each in catalog.autopilot.decisions(owner, kinds=ONCE)
        if each.pattern == one.pattern and each.undone is None
    ]
    catalog.queue.set_state(_signatures(catalog, {one.pattern}), "left", "the user undid the decision")
    replicas = _replicas(catalog, {each.replica for each in same})
    _remove(catalog, replicas)
    numbers = ", ".join(str(replica.id) for replica in replicas)
    gone = f"replica {numbers} is removed, and " if replicas else ""
    return f"{gone}its pattern gets no other one", same


def forget(catalog: Catalog, application: AutopilotApplication) -> int:
    """Forget an application: its runs, patterns, traces and replicas; return the number of replicas removed.

    Replicas stay if a run of another application, also of another user, used them or has their
    patterns, or a trace that was analyzed by hand has. They count as built for the one that used them last.
    """
    owner = this_user()
    runs = catalog.autopilot.runs(application.id)
    traced = _traced_runs(catalog, owner, application.id)
    traced |= {run.facts.run for run in runs if run.facts.run}
    decisions = catalog.autopilot.decisions(owner, kinds=ONCE)
    others = {one.pattern for one in decisions if one.application != application.id}
    own = {one.pattern for one in decisions if one.application == application.id}
    own -= others | catalog.patterns.outside(traced)
    catalog.queue.set_state(_signatures(catalog, own), "left", "its application was forgotten")
    users = catalog.autopilot.other_users(application.id)
    replicas = [one for one in catalog.replicas.find() if pattern_digest(one.signature) in own and one.id not in users]
    _remove(catalog, replicas)
    for run in runs:
        trace_of(run.name).unlink(missing_ok=True)
    spool.forget_application(application.name)
    said = Decision(f"forgot:{os.urandom(8).hex()}", "forgot", f"{application.name}, as the user asked")
    mine = {one.id for one in catalog.autopilot.applications(owner)}
    heirs = {replica: user for replica, user in users.items() if user in mine}
    catalog.autopilot.forget(owner, application.id, sorted(traced), heirs, said)
    return len(replicas)


def _traced_runs(catalog: Catalog, owner: str, application: int) -> set[int]:
    """The numbers of the traced runs that were learned from, also of those that the user undid."""
    learned = catalog.autopilot.decisions(owner, application=application, kinds=["learned"])
    traces = {str(trace_of(str(one.facts["run"])).absolute()) for one in learned}
    return {run.id for run in catalog.runs.find() if run.path in traces}


def _signatures(catalog: Catalog, patterns: set[str | None]) -> list[Signature]:
    planned = catalog.patterns.find(state="planned") + catalog.patterns.find(state="built")
    return [one.signature for one in planned if pattern_digest(one.signature) in patterns]


def _remove(catalog: Catalog, replicas: list[Replica]) -> None:
    """Remove replicas when what was written to them is home."""
    for path in waiting_targets(replicas):
        write_back(catalog, only=path)
    discard(catalog, [replica.id for replica in replicas])


def _replicas(catalog: Catalog, numbers: set[int | None]) -> list[Replica]:
    return [one for one in catalog.replicas.find() if one.id in numbers]
