"""From signatures to a plan: what to replicate, where, in which layout, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import Analysis
from pdla.analyzers.dependence import DEPENDENCES, RAW, UNSYNCED
from pdla.analyzers.phases import WritePhase
from pdla.errors import ConfigError, PdlaError
from pdla.layouts.candidates import candidates
from pdla.layouts.capacity import room, space_of_each, summed
from pdla.layouts.selection import Choose, Option, choose_greedy, choose_optimal, take
from pdla.layouts.striping import component_sizes
from pdla.model import Candidate, Cluster, Op, PatternPlan, Plan, Signature
from pdla.policies import get_policy
from pdla.policies.base import LEAST_GAIN, Obstacle, Place, Policy
from pdla.policies.planfile import LARGEST
from pdla.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from pdla.catalog import Replica

SELECTIONS: Mapping[str, Choose] = {"optimal": choose_optimal, "greedy": choose_greedy}
"""How space is shared out if there is not enough for all; the first one is the default."""


@dataclass(frozen=True)
class RedirectedWrites:
    """What the planner must know about a program whose writes may go to replicas.

    Attributes:
        dependences: for each signature, how its writes depend on other accesses
            (``pdla.analyzers.dependence``).
        phases: for each file, the phases that are followed by a write-back, hidden by the program's
            computation (E10);
            None: there is one write-back, at the end.
    """

    dependences: Sequence[int]
    phases: Mapping[str, Sequence[WritePhase]] | None = None


@dataclass(frozen=True)
class Limits:
    """What limits a plan.

    Attributes:
        replicas: the replicas that exist already; they take space.
        gone: files that no longer exist.
        obstacle: why storage cannot hold a layout.
    """

    replicas: Sequence[Replica] = ()
    gone: Collection[str] = ()
    obstacle: Obstacle = lambda pool, layout, size: ""


def make_plan(
    analysis: Analysis,
    cluster: Cluster,
    policy: str = "auto",
    command: str = "",
    *,
    selection: str = "optimal",
    writes: RedirectedWrites | None = None,
    limits: Limits = Limits(),
    progress: Callable[[str, float, float], None] | None = None,
) -> Plan:
    """The plan of ``policy`` for the patterns of one run (``command``) on ``cluster``.

    The policy proposes, and this function rejects what must not be built. It rejects a pattern that
    writes, unless its writes are to be redirected, do not depend on earlier accesses (PDLA 6) and
    are not read by other ranks before a sync or a close (UNSYNCED). It rejects a pattern that reads
    bytes that the same run writes (a replica would be stale at once), what the ``limits`` exclude,
    and a pool without room. No costs are predicted for irregular accesses, nor for patterns that
    the replica of another one serves. Signatures in the plan have no members. ``progress`` is
    called with the name of the work, the patterns done and their number.

    Raises:
        ConfigError: unknown policy or selection.
    """
    if selection not in SELECTIONS:
        raise ConfigError(f"unknown selection {selection!r}: choose one of {', '.join(SELECTIONS)}")
    chosen_policy = get_policy(policy)
    patterns, refused = _patterns(analysis, writes, limits.gone)
    phases = writes.phases if writes else None
    servers = cache(lambda name: space_of_each(cluster.pool(name)))
    asked = []
    for pattern in patterns:
        asked.append(_ask(pattern, cluster, chosen_policy, limits.obstacle, phases, servers))
        if progress:
            progress("costing", len(asked), len(patterns))
    left = _room(cluster, patterns, limits.replicas)
    choice = SELECTIONS[selection]([one.options for one in asked], left)

    placed = [one.wishes[j] if j is not None else None for one, j in zip(asked, choice.options, strict=True)]
    for one, place in zip(asked, placed, strict=True):
        take(left, one.space(place), 1)
    plans = []
    for one, place in zip(asked, placed, strict=True):
        take(left, one.space(place), -1)
        plans.append(_explained(one, place, left, cluster.threshold_seconds))
        take(left, one.space(place), 1)
        if one.pattern.obstacle or (one.wishes and not place):
            refused.append((_name(one.pattern.signature), plans[-1].reason.removeprefix(LEFT)))
    return Plan(policy, command, tuple(plans), tuple(refused), cluster, selection, choice.gap)


LEFT = "left in the original: "
GONE = "the file no longer exists"


@dataclass(frozen=True)
class _Pattern:
    """A pattern to plan for, and why it cannot have a replica whatever it would save (empty: it can)."""

    signature: Signature
    map: AccessMap
    obstacle: str


@dataclass(frozen=True)
class _Asked:
    """The costs of a pattern, the policy's wishes for it, and the bytes of every space that each wish takes."""

    pattern: _Pattern
    candidates: tuple[Candidate, ...]
    wishes: tuple[Place, ...]
    options: tuple[Option, ...]

    def space(self, place: Place | None) -> Mapping[str, int]:
        """The bytes of every space that this wish takes."""
        return self.options[self.wishes.index(place)].space if place else {}


def _ask(
    pattern: _Pattern,
    cluster: Cluster,
    policy: Policy,
    obstacle: Obstacle,
    written: Mapping[str, Sequence[WritePhase]] | None,
    servers: Callable[[str], Sequence[str]],
) -> _Asked:
    pools, hybrids = policy.spaces(cluster)
    size, phases = pattern.map.size, None if written is None else _write_back_phases(pattern.signature, written)
    found = candidates(pattern.signature, size, cluster, pools, hybrids, phases)
    refusals = [
        (pattern.obstacle or one.refused or obstacle(cluster.pool(one.space), one.layout, size)) if one.layout else ""
        for one in found
    ]
    found = tuple(replace(one, refused=why) if why else one for one, why in zip(found, refusals, strict=True))
    wishes, options = [], []
    for place in policy.place(pattern.signature, found, cluster):
        one = found[place.candidate]
        if one.layout and not one.refused:
            wishes.append(place)
            options.append(Option(place.gain, summed(servers(one.layout.pool), component_sizes(one.layout, size))))
    return _Asked(pattern, found, tuple(wishes), tuple(options))


def _write_back_phases(signature: Signature, writes: Mapping[str, Sequence[WritePhase]]) -> list[tuple[int, float]]:
    """The bytes that a pattern writes in each phase of its file, and the seconds after it that hide write-back."""
    low, high = signature.t_start, signature.t_end
    phases = [one for one in writes.get(signature.file, ()) if one.t_start <= high and low <= one.t_end]
    total = sum(one.bytes for one in phases)
    if signature.op == "read" or not total:
        return []
    return [(signature.bytes * one.bytes // total, one.compute) for one in phases]


def _room(cluster: Cluster, patterns: Iterable[_Pattern], replicas: Sequence[Replica]) -> dict[str, int]:
    """The room in every space. Replicas of these patterns do not count, so that a plan can be repeated."""
    planned = {(pattern.signature.file, pattern.map) for pattern in patterns}
    own = [replica for replica in replicas if (replica.signature.file, replica.access_map) in planned]
    return room(cluster.pools, replicas, leaving=own)


def _explained(asked: _Asked, place: Place | None, left: Mapping[str, int], threshold: float) -> PatternPlan:
    """The outcome for one pattern, with the reason, and why each faster candidate was not chosen."""
    found = [_worth(asked.candidates[0], one, threshold) for one in asked.candidates]
    for wish, option in zip(asked.wishes, asked.options, strict=True):
        if place is None or wish.gain > place.gain:
            full = next(name for name, size in option.space.items() if size > left[name])
            why = f"needs {format_bytes(option.space[full])}, and {full} has {format_bytes(left[full])} left"
            found[wish.candidate] = replace(found[wish.candidate], refused=why)
    signature = asked.pattern.signature
    if place:
        found[place.candidate] = asked.candidates[place.candidate]
        return PatternPlan(signature, tuple(found), place.candidate, place.reason)
    return PatternPlan(signature, tuple(found), 0, _why_left(asked, found, threshold))


def _worth(original: Candidate, candidate: Candidate, threshold: float) -> Candidate:
    """The candidate, refused if it saves too little."""
    before = original.cost.total
    saved = before - candidate.cost.total
    if candidate.layout is None or candidate.refused or (saved > threshold and saved >= LEAST_GAIN * before):
        return candidate
    if saved <= 0:
        why = "saves nothing"
    elif saved < LEAST_GAIN * before:
        why = f"saves {100 * saved / before:.1f} %, and must save {100 * LEAST_GAIN:.0f} %"
    else:
        why = f"saves {format_seconds(saved)}, and must save more than {format_seconds(threshold)}"
    return replace(candidate, refused=why)


def _why_left(asked: _Asked, found: Sequence[Candidate], threshold: float) -> str:
    if asked.pattern.obstacle:
        return LEFT + asked.pattern.obstacle
    if asked.wishes:
        best = max(asked.wishes, key=lambda wish: wish.gain)
        return f"{LEFT}a replica {found[best.candidate].refused}"
    replicas = [one for one in found if one.layout]
    if not replicas:
        return f"{LEFT}the cluster has no pool that this policy uses"
    best_replica = min(replicas, key=lambda one: one.cost.total)
    assert best_replica.layout is not None
    return (
        f"left in the original, {format_seconds(found[0].cost.total)}: the best replica ({best_replica.layout.name} on "
        f"{best_replica.space}) would take {format_seconds(best_replica.cost.total)}, and must save "
        f"{100 * LEAST_GAIN:.0f} % and more than {format_seconds(threshold)}"
    )


def _patterns(
    analysis: Analysis, writes: RedirectedWrites | None, gone: Collection[str]
) -> tuple[list[_Pattern], list[tuple[str, str]]]:
    """The patterns to predict costs for, and why the other accesses are not among them."""
    written = _written(analysis)
    patterns: list[_Pattern] = []
    seen: dict[tuple[str, Op, AccessMap], Signature] = {}
    refused: list[tuple[str, str]] = []
    for number, signature in enumerate(analysis.signatures):
        if signature.extent[1] > LARGEST:
            refused.append((_name(signature), f"reaches byte {signature.extent[1]}, of at most {LARGEST}"))
            continue
        try:
            access_map = AccessMap.from_signature(signature)
        except PdlaError as error:
            refused.append((_name(signature), f"irregular: {error}"))
            continue
        if signature.op == "read":
            obstacle = GONE if signature.file in gone else _reading_obstacle(signature, written)
        elif writes is None:
            obstacle = "writes go to the original"
        else:
            obstacle = _writing_obstacle(writes.dependences[number])
        if not obstacle:
            twin = seen.setdefault((signature.file, signature.op, access_map), signature)
            if twin is not signature:
                why = f"the same bytes in the same order as {twin}: one replica serves both"
                refused.append((_name(signature), why))
                continue
        patterns.append(_Pattern(replace(signature, members=()), access_map, obstacle))
    for part in analysis.irregular:
        what = f"{part.file} {counted(part.requests, part.op)} of rank {part.rank}"
        refused.append((what, "irregular: no template describes them"))
    return patterns, refused


def _writing_obstacle(depends: int) -> str:
    if found := [name for flag, name in DEPENDENCES.items() if flag != RAW and depends & flag]:
        return f"its bytes are accessed before they are written ({' and '.join(found)})"
    return "its bytes are read by other ranks before a sync or close" if depends & UNSYNCED else ""


def _reading_obstacle(signature: Signature, written: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    low, high = signature.extent
    overlap = next(((a, b) for a, b in written.get(signature.file, ()) if low < b and a < high), None)
    return f"the same run writes to bytes {overlap[0]} to {overlap[1]} of this file" if overlap else ""


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
