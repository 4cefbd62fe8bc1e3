"""From signatures to a plan: what is replicated, where, in which layout, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import Analysis
from pdla.errors import PdlaError
from pdla.layouts.candidates import candidates
from pdla.model import Cluster, PatternPlan, Plan, Signature
from pdla.policies import get_policy
from pdla.policies.base import Costed
from pdla.units import format_count


def make_plan(analysis: Analysis, cluster: Cluster, policy: str = "auto", command: str = "") -> Plan:
    """The plan of ``policy`` for the patterns of one run (``command``) on ``cluster``.

    Refused without being costed: writes, reads of bytes that the same run writes (a replica would be stale at once),
    irregular accesses, and patterns that another one's replica serves. Signatures in the plan carry no members.

    Raises:
        ConfigError: unknown policy.
    """
    chosen_policy = get_policy(policy)
    pools = [pool for pool in cluster.pools if chosen_policy.uses(pool)]
    patterns, refused = _plannable(analysis)
    costed = [Costed(candidates(one.signature, one.map.size, cluster, pools), one.map.size) for one in patterns]
    room = {pool.name: pool.capacity for pool in pools}
    decisions = chosen_policy.decide(costed, room, cluster.threshold_seconds)
    plans = []
    for pattern, costs, decision in zip(patterns, costed, decisions, strict=True):
        plans.append(PatternPlan(pattern.signature, costs.candidates, decision.chosen, decision.reason))
        if decision.no_room:
            refused.append((_name(pattern.signature), decision.reason))
    return Plan(policy, command, tuple(plans), tuple(refused), cluster)


@dataclass(frozen=True)
class _Readable:
    signature: Signature
    map: AccessMap


def _plannable(analysis: Analysis) -> tuple[list[_Readable], list[tuple[str, str]]]:
    """The patterns that may have a replica, and why the others may not."""
    written = _written(analysis)
    patterns: dict[tuple[str, AccessMap], _Readable] = {}
    refused: list[tuple[str, str]] = []
    for signature in analysis.signatures:
        name = _name(signature)
        if signature.op == "write":
            refused.append((name, "writes go to the original"))
            continue
        low, high = signature.extent
        if overlap := next(((a, b) for a, b in written.get(signature.file, ()) if low < b and a < high), None):
            refused.append((name, f"the same run writes to bytes {overlap[0]} to {overlap[1]} of this file"))
            continue
        try:
            access_map = AccessMap.from_signature(signature)
        except PdlaError as error:
            refused.append((name, f"irregular: {error}"))
            continue
        if twin := patterns.get((signature.file, access_map)):
            refused.append((name, f"the same bytes in the same order as {twin.signature}: one replica serves both"))
            continue
        patterns[signature.file, access_map] = _Readable(replace(signature, members=()), access_map)
    for part in analysis.irregular:
        what = f"{part.file} {format_count(part.requests)} {part.op}s of rank {part.rank}"
        refused.append((what, "irregular: no template describes them"))
    return list(patterns.values()), refused


def _written(analysis: Analysis) -> dict[str, list[tuple[int, int]]]:
    """The ranges of every file that the run writes to, each from its first to its last byte."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for signature in analysis.signatures:
        if signature.op == "write":
            ranges.setdefault(signature.file, []).append(signature.extent)
    for part in analysis.irregular:
        if part.op == "write":
            ranges.setdefault(part.file, []).append(part.extent)
    return ranges


def _name(signature: Signature) -> str:
    return f"{signature.file} {signature}"
