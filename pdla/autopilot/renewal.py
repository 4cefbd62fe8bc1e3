"""A program writes a file anew that others read: its replicas are built anew before their readers run again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pdla.autopilot.storage import Storage
from pdla.catalog import Catalog, Decision, Replica
from pdla.model import Candidate, Cost, PatternPlan, Plan
from pdla.replicator.mapfile import fold
from pdla.replicator.queued_plans import enqueue

UNREAD = 2
"""So many replicas of a pattern in a row were stale before anybody read them: then there is no other."""
REASON = "its file was written anew"


def unread(catalog: Catalog, decisions: Iterable[Decision]) -> dict[str, int]:
    """By pattern, how many of its replicas nobody has read, since the last one that was read."""
    found: dict[str, int] = {}
    read: dict[int, set[str]] = {}
    for one in decisions:
        if one.kind == "built" and one.pattern and one.application:
            if one.application not in read:
                runs = catalog.autopilot.runs(one.application)
                read[one.application] = {number for run in runs for number in run.facts.replicas}
            is_read = str(one.replica) in read[one.application]
            found[one.pattern] = 0 if is_read else found.get(one.pattern, 0) + 1
    return found


def renew(catalog: Catalog, owner: str, written: Collection[str], map_path: Path) -> None:
    """Queue the user's replicas of these files that were copies until a run wrote the files.

    Raises:
        BusyError: another process is changing the replicas.
        PdlaError: the catalog or a cluster cannot be used.
    """
    decisions = catalog.autopilot.decisions(owner, kinds=["planned", "built", "retired"])
    built = [one for one in decisions if one.kind == "built" and _is_copy_of(one, written)]
    if not built:
        return
    with catalog.exclusive():
        fold(catalog, map_path)
    replicas = {one.id: one for one in catalog.replicas.find()}
    latest = {one.pattern: one for one in decisions}
    skipped = unread(catalog, decisions)
    plans: dict[str, list[PatternPlan]] = {}
    for one in {one.pattern: one for one in built}.values():
        replica = replicas.get(one.replica or 0)
        is_last = latest[one.pattern] is one and one.undone is None
        if replica is not None and replica.state == "stale" and is_last and skipped[str(one.pattern)] < UNREAD:
            plans.setdefault(one.facts.get("cluster", ""), []).append(_again(replica, one))
    for named, patterns in plans.items():
        enqueue(catalog, Plan("auto", "", tuple(patterns), (), Storage.of(named).cluster))


def _is_copy_of(built: Decision, files: Collection[str]) -> bool:
    return built.facts.get("file") in files and not built.facts.get("writes")


def _again(replica: Replica, built: Decision) -> PatternPlan:
    """The plan for the same replica."""
    before, after = (Cost(0.0, 0.0, 0.0, built.facts.get(when, 0.0)) for when in ("before", "after"))
    candidates = Candidate("original", None, before), Candidate(replica.layout.pool, replica.layout, after)
    return PatternPlan(replica.signature, candidates, 1, REASON)
