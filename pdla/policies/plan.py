"""From signatures to a plan: what is replicated, where, in which layout, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pdla.accessmap import AccessMap
from pdla.errors import PdlaError
from pdla.layouts.candidates import candidates
from pdla.model import Cluster, PatternPlan, Plan, Signature
from pdla.policies import get_policy
from pdla.policies.base import Costed
from pdla.units import format_bytes


def make_plan(signatures: Iterable[Signature], cluster: Cluster, policy: str = "auto", command: str = "") -> Plan:
    """The plan of ``policy`` for the patterns of one run (``command``) on ``cluster``.

    Patterns that the run writes, also in part, are refused: their replicas would be stale at once. A local signature
    that is a member of a global one is planned with it. Signatures in the plan carry no members.

    Raises:
        ConfigError: unknown policy.
    """
    chosen_policy = get_policy(policy)
    pools = [pool for pool in cluster.pools if chosen_policy.uses(pool)]
    patterns, refused = _plannable(list(signatures))
    costed = [
        Costed(candidates(pattern.signature, pattern.map.size, cluster, pools), pattern.map.size)
        for pattern in patterns
    ]
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


def _plannable(signatures: Sequence[Signature]) -> tuple[list[_Readable], list[tuple[str, str]]]:
    """The patterns that may have a replica, and why the others may not."""
    members = {member for signature in signatures for member in signature.members}
    writes = [signature for signature in signatures if signature.op == "write"]
    patterns: list[_Readable] = []
    refused: list[tuple[str, str]] = []
    for signature in signatures:
        if signature in members:
            continue
        name = _name(signature)
        if signature.op == "write":
            refused.append((name, "writes go to the original"))
            continue
        if overlapping := next((write for write in writes if _overlap(signature, write)), None):
            low, high = overlapping.extent
            refused.append(
                (name, f"the same run writes bytes {low} to {high} of this file ({format_bytes(high - low)})")
            )
            continue
        try:
            access_map = AccessMap.from_signature(signature)
        except PdlaError as error:
            refused.append((name, f"irregular: {error}"))
            continue
        twin = next((p for p in patterns if p.signature.file == signature.file and p.map == access_map), None)
        if twin:
            refused.append((name, f"the same bytes in the same order as {twin.signature}, whose replica serves both"))
            continue
        patterns.append(_Readable(replace(signature, members=()), access_map))
    return patterns, refused


def _overlap(one: Signature, other: Signature) -> bool:
    (low, high), (other_low, other_high) = one.extent, other.extent
    return one.file == other.file and low < other_high and other_low < high


def _name(signature: Signature) -> str:
    return f"{signature.file} {signature}"
