"""From signatures to a plan: what to replicate, where, in which layout, and why."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import Analysis
from pdla.analyzers.dependence import DEPENDENCES, RAW, UNSYNCED
from pdla.analyzers.phases import WritePhase
from pdla.errors import ConfigError, PdlaError
from pdla.layouts.candidates import Asked, Costed
from pdla.layouts.capacity import room, space_of_each, summed, taken_in
from pdla.layouts.selection import Choose, Option, choose_greedy, choose_optimal, take
from pdla.layouts.striping import component_sizes
from pdla.model import Candidate, Cluster, Layout, Op, PatternPlan, Plan, Signature
from pdla.policies import get_policy
from pdla.policies.base import LEAST_GAIN, Obstacle, Place, Policy
from pdla.policies.planfile import LARGEST
from pdla.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from pdla.catalog import Replica

SELECTIONS: Mapping[str, Choose] = {"optimal": choose_optimal, "greedy": choose_greedy}
"""How space is shared out if there is not enough for all; the first one is the default."""

AT_ONCE = 2000
"""Patterns whose costs are predicted together: most arrays then stay in the processor's cache."""


@dataclass(frozen=True)
class RedirectedWrites:
    """What the planner must know about a program whose writes may go to replicas.

    Attributes:
        dependences: for each signature, how its writes depend on other accesses
            (``pdla.analyzers.dependence``).
        phases: for each file, the phases that are followed by a write-back when the program opens the
            file again (a lease); None: there is one write-back, before the close.
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


class Simulator(Protocol):
    """Says what the simulator has to say about candidates and plans, as far as its time allows."""

    def candidates(self, signature: Signature, found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """The candidates of a pattern, simulated alone; unchanged if that takes too long."""

    def seconds(self, plan: Plan) -> float | None:
        """The seconds in I/O of the whole run with this plan; None: that takes too long."""


@contextmanager
def _not_collecting() -> Iterator[None]:
    """Python does not look for garbage. A plan makes none that it would find, and looking takes a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        # All that is new counts as old from now on: nobody looks through a plan that has just been made.
        gc.freeze()
        gc.unfreeze()
        gc.set_threshold(*before)


@_not_collecting()
def make_plan(
    analysis: Analysis,
    cluster: Cluster,
    policy: str = "auto",
    command: str = "",
    *,
    selection: str = "optimal",
    writes: RedirectedWrites | None = None,
    limits: Limits = Limits(),
    simulator: Simulator | None = None,
    progress: Callable[[str, float, float], None] | None = None,
) -> Plan:
    """The plan of ``policy`` for the patterns of one run (``command``) on ``cluster``.

    The policy proposes, and this function rejects what must not be built. It rejects a pattern that
    writes, unless its writes are to be redirected, do not depend on earlier accesses (PDLA 6) and
    are not read by other ranks before a sync or a close (UNSYNCED). It rejects a pattern that reads
    bytes that the same run writes (a replica would be stale at once), what the ``limits`` exclude,
    and a pool without room. No costs are predicted for irregular accesses, nor for patterns that
    the replica of another one serves. Signatures in the plan have no members.

    The cost model proposes. With a ``simulator`` (pdla.simulator.verification) the seconds that it
    gives decide, first for each pattern alone and then for the whole run, which a plan never makes
    slower. ``progress`` is called with the name of the work, the patterns done and their number.

    Raises:
        ConfigError: unknown policy or selection.
    """
    if selection not in SELECTIONS:
        raise ConfigError(f"unknown selection {selection!r}: choose one of {', '.join(SELECTIONS)}")
    chosen_policy, advance = get_policy(policy), progress or (lambda what, done, total: None)
    patterns, refused = _patterns(analysis, writes, limits.gone)
    phases = writes.phases if writes else None
    servers = cache(lambda name: space_of_each(cluster.pool(name)))
    spaces = cache(lambda layout, size: summed(servers(layout.pool), component_sizes(layout, size)))
    known = Costed(cluster, *chosen_policy.spaces(cluster))
    costed: list[tuple[Candidate, ...]] = []
    for first in range(0, len(patterns), AT_ONCE):
        costed += _costed(patterns[first : first + AT_ONCE], known, limits.obstacle, phases)
        advance("costing", len(costed), len(patterns))
    if simulator:
        # Where most is at stake first: time may end.
        order = sorted(range(len(costed)), key=lambda i: -costed[i][0].cost.total)
        for done, number in enumerate(order):
            advance("simulating patterns", done, len(order))
            costed[number] = simulator.candidates(patterns[number].signature, costed[number])
    asked = [
        _ask(pattern, found, cluster, chosen_policy, spaces) for pattern, found in zip(patterns, costed, strict=True)
    ]
    left = _room(cluster, patterns, limits.replicas)
    choice = SELECTIONS[selection]([one.options for one in asked], left)

    placed = [one.wishes[j] if j is not None else None for one, j in zip(asked, choice.options, strict=True)]
    for one, place in zip(asked, placed, strict=True):
        take(left, one.space(place), 1)
    whole = Plan(policy, command, (), (), cluster, selection, choice.gap)
    if simulator:
        placed, seconds = _in_whole_run(asked, placed, left, whole, chosen_policy, simulator, advance)
        whole = replace(whole, simulated=seconds)
    plans = []
    for one, place in zip(asked, placed, strict=True):
        take(left, one.space(place), -1)
        plans.append(_explained(one, place, left, cluster.threshold_seconds))
        take(left, one.space(place), 1)
        if one.pattern.obstacle or (one.wishes and not place):
            refused.append((_name(one.pattern.signature), plans[-1].reason.removeprefix(LEFT)))
    return replace(whole, patterns=tuple(plans), refused=tuple(refused))


LEFT = "left in the original: "
GONE = "the file no longer exists"
SLOWER = "makes the whole run no faster than what was chosen, as simulated"


@dataclass(frozen=True)
class _Pattern:
    """A pattern to plan for, and why it cannot have a replica whatever it would save (empty: it can)."""

    signature: Signature
    map: AccessMap
    obstacle: str


@dataclass(frozen=True)
class _Asked:
    """The costs of a pattern, the policy's wishes, and the bytes of every space that each possible replica takes."""

    pattern: _Pattern
    candidates: tuple[Candidate, ...]
    wishes: tuple[Place, ...]
    spaces: Mapping[int, Mapping[str, int]]

    @property
    def options(self) -> list[Option]:
        """The wishes, for the selection."""
        return [Option(place.gain, self.space(place)) for place in self.wishes]

    def space(self, place: Place | None) -> Mapping[str, int]:
        """The bytes of every space that this wish takes."""
        return self.spaces[place.candidate] if place else {}


def _costed(
    patterns: Sequence[_Pattern],
    known: Costed,
    obstacle: Obstacle,
    written: Mapping[str, Sequence[WritePhase]] | None,
) -> Iterator[tuple[Candidate, ...]]:
    """The candidates of each pattern, with their costs; some are refused."""
    asked = [
        Asked(one.signature, one.map.size, None if written is None else _opened_again(one.signature, written))
        for one in patterns
    ]
    pool = known.cluster.pool
    for pattern, found in zip(patterns, known.candidates(asked), strict=True):
        refusals = [
            (pattern.obstacle or one.refused or obstacle(pool(one.space), one.layout, pattern.map.size))
            if one.layout
            else ""
            for one in found
        ]
        yield tuple(_refused(one, why) if why else one for one, why in zip(found, refusals, strict=True))


def _ask(
    pattern: _Pattern,
    found: tuple[Candidate, ...],
    cluster: Cluster,
    policy: Policy,
    spaces: Callable[[Layout, int], Mapping[str, int]],
) -> _Asked:
    """The policy's wishes, as far as they may be granted."""
    size = pattern.map.size
    taken = {j: spaces(one.layout, size) for j, one in enumerate(found) if one.layout and not one.refused}
    wishes = [place for place in policy.place(pattern.signature, found, cluster) if place.candidate in taken]
    return _Asked(pattern, found, tuple(wishes), taken)


def _in_whole_run(
    asked: Sequence[_Asked],
    placed: Sequence[Place | None],
    left: dict[str, int],
    plan: Plan,
    policy: Policy,
    simulator: Simulator,
    advance: Callable[[str, float, float], None],
) -> tuple[list[Place | None], tuple[float, float] | None]:
    """The choice once the whole run was simulated, and its seconds without and with it, if there was time for that.

    Pattern by pattern, where most is at stake first, the policy is asked again with what the run
    takes with each of its replicas. What was chosen stays unless another one saves ``LEAST_GAIN``
    more: otherwise equal programs would have different plans. If the run is not faster in the end,
    there is no replica.
    ``left`` is the room next to the choice.
    """
    found: list[Place | None] = [None] * len(asked)

    def seconds(number: int = 0, candidate: int | None = None) -> float | None:
        """With another candidate of one pattern."""
        chosen = [place.candidate if place else 0 for place in found]
        if candidate is not None:
            chosen[number] = candidate
        patterns = (
            PatternPlan(one.pattern.signature, one.candidates, j, "") for one, j in zip(asked, chosen, strict=True)
        )
        return simulator.seconds(replace(plan, patterns=tuple(patterns)))

    before = seconds()
    found = list(placed)
    now = seconds()
    if before is None or now is None:
        return found, None
    order = sorted(range(len(asked)), key=lambda i: -asked[i].candidates[0].seconds)
    for done, number in enumerate(order):
        advance("simulating the run", done, len(order))
        one, mine = asked[number], found[number]
        asks = [(j, seconds(number, j)) for j in (0, *one.spaces)] if one.spaces else []
        run = {j: value for j, value in asks if value is not None}
        if not run or len(run) < len(asks):
            continue
        least = max(one.candidates[0].seconds, run[0] - min(run.values()))
        judged = [
            replace(each, simulated=least + run[j] - run[0]) if j in run else each
            for j, each in enumerate(one.candidates)
        ]
        take(left, one.space(mine), -1)
        wishes = [
            place
            for place in policy.place(one.pattern.signature, tuple(judged), plan.cluster)
            if place.candidate in one.spaces and all(size <= left[name] for name, size in one.space(place).items())
        ]
        best = max(wishes, key=lambda place: place.gain, default=None)
        kept = next((place for place in wishes if mine and place.candidate == mine.candidate), None)
        if best and kept and best.gain - kept.gain < LEAST_GAIN * least:
            best = mine
        elif best:
            best = replace(best, reason=_why_in_whole_run(one.candidates[best.candidate], run[best.candidate], run[0]))
        found[number] = best
        take(left, one.space(found[number]), 1)
        now = run[best.candidate if best else 0]
    if now < before:
        return found, (before, now)
    for one, place in zip(asked, found, strict=True):
        take(left, one.space(place), -1)
    return [None] * len(asked), (before, before)


def _why_in_whole_run(candidate: Candidate, seconds: float, without: float) -> str:
    assert candidate.layout is not None
    return (
        f"contiguous replica in {candidate.layout.name} on {candidate.space}: simulated, the whole run takes "
        f"{format_seconds(seconds)} instead of {format_seconds(without)}"
    )


def _opened_again(signature: Signature, writes: Mapping[str, Sequence[WritePhase]]) -> float:
    """The share of what a pattern writes that comes home when the program opens the file again."""
    low, high = signature.t_start, signature.t_end
    phases = [one for one in writes.get(signature.file, ()) if one.t_start <= high and low <= one.t_end]
    again = sum(one.bytes for one in phases if one.opened_again)
    return again / sum(one.bytes for one in phases) if again else 0.0


def _room(cluster: Cluster, patterns: Iterable[_Pattern], replicas: Sequence[Replica]) -> dict[str, int]:
    """The room in every space. Replicas of these patterns do not count, so that a plan can be repeated."""
    planned = {(pattern.signature.file, pattern.map) for pattern in patterns} if replicas else set()
    own = [replica for replica in replicas if (replica.signature.file, replica.access_map) in planned]
    return room(cluster.pools, partial(taken_in, replicas=replicas), leaving=own)


def _explained(asked: _Asked, place: Place | None, left: Mapping[str, int], threshold: float) -> PatternPlan:
    """The outcome for one pattern, with the reason, and why each faster candidate was not chosen."""
    before = asked.candidates[0].seconds
    found = [_worth(before, one, threshold) for one in asked.candidates]
    for wish in asked.wishes:
        if place is None or wish.gain > place.gain:
            space = asked.space(wish)
            full = next((name for name, size in space.items() if size > left[name]), None)
            why = (
                f"needs {format_bytes(space[full])}, and {full} has {format_bytes(left[full])} left" if full else SLOWER
            )
            found[wish.candidate] = _refused(found[wish.candidate], why)
    signature = asked.pattern.signature
    if place:
        found[place.candidate] = asked.candidates[place.candidate]
        return PatternPlan(signature, tuple(found), place.candidate, place.why)
    return PatternPlan(signature, tuple(found), 0, _why_left(asked, found, threshold))


def _worth(before: float, candidate: Candidate, threshold: float) -> Candidate:
    """The candidate, refused if it saves too little of the seconds ``before``."""
    saved = before - candidate.seconds
    if candidate.layout is None or candidate.refused or (saved > threshold and saved >= LEAST_GAIN * before):
        return candidate
    if saved <= 0:
        why = "saves nothing"
    elif saved < LEAST_GAIN * before:
        why = f"saves {100 * saved / before:.1f} %, and must save {100 * LEAST_GAIN:.0f} %"
    else:
        why = f"saves {format_seconds(saved)}, and must save more than {format_seconds(threshold)}"
    return _refused(candidate, why)


def _refused(candidate: Candidate, why: str) -> Candidate:
    """``dataclasses.replace`` takes three times as long."""
    return Candidate(candidate.space, candidate.layout, candidate.cost, why, candidate.simulated)


def _why_left(asked: _Asked, found: Sequence[Candidate], threshold: float) -> str:
    if asked.pattern.obstacle:
        return LEFT + asked.pattern.obstacle
    if asked.wishes:
        best = max(asked.wishes, key=lambda wish: wish.gain)
        return f"{LEFT}a replica {found[best.candidate].refused}"
    replicas = [(one, asked_of.refused) for one, asked_of in zip(found, asked.candidates, strict=True) if one.layout]
    if not replicas:
        return f"{LEFT}the cluster has no pool that this policy uses"
    best_replica, refused = min(replicas, key=lambda one: (one[1] != "", one[0].simulated is None, one[0].seconds))
    if refused:
        return f"{LEFT}{refused}"
    assert best_replica.layout is not None
    return (
        f"left in the original, {format_seconds(found[0].seconds)}: the best replica ({best_replica.layout.name} on "
        f"{best_replica.space}) would take {format_seconds(best_replica.seconds)}, and must save "
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
            obstacle = writing_obstacle(writes.dependences[number])
        if not obstacle:
            twin = seen.setdefault((signature.file, signature.op, access_map), signature)
            if twin is not signature:
                why = f"the same bytes in the same order as {twin}: one replica serves both"
                refused.append((_name(signature), why))
                continue
        alone = replace(signature, members=()) if signature.members else signature
        patterns.append(_Pattern(alone, access_map, obstacle))
    for part in analysis.irregular:
        what = f"{part.file} {counted(part.requests, part.op)} of rank {part.rank}"
        refused.append((what, "irregular: no template describes them"))
    return patterns, refused


def writing_obstacle(depends: int) -> str:
    """Why writes that depend so on other accesses (pdla.analyzers.dependence) get no replica; empty: they may."""
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
