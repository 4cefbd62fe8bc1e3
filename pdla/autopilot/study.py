"""What a run teaches: which application it was, what it did, what changed, and what is to be built for the next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import Analysis, Irregular, combine
from pdla.analyzers.aspects import describe, outline
from pdla.analyzers.dependence import write_dependences
from pdla.analyzers.local_patterns import find_local
from pdla.analyzers.phases import NO_PHASES, find_phases
from pdla.autopilot import spool
from pdla.autopilot.choosing import choose_policies
from pdla.autopilot.drifts import drifts, expected
from pdla.autopilot.factors import Factor, corrected
from pdla.autopilot.file_groups import ALL, groups_of, part_of, seconds_of
from pdla.autopilot.forecast import Forecast, forecast
from pdla.autopilot.judging import BUDGET, Judge, usable
from pdla.autopilot.names import application_name, joined
from pdla.autopilot.renewal import UNREAD, unread
from pdla.autopilot.schemes import ALIKE
from pdla.autopilot.spool import trace_of
from pdla.autopilot.storage import Storage
from pdla.autopilot.usage import bytes_read, bytes_written, replicas_used, served_files
from pdla.autopilot.worth import PastRun, Stake, steps
from pdla.catalog import Catalog, Decision, Drift, LearnedRun, RunFacts
from pdla.catalog.records import pattern_digest
from pdla.collectors.packing import pack
from pdla.collectors.rawlog import RawLogs
from pdla.collectors.tracefile import StoredTrace, fingerprint, read_trace, stored_trace
from pdla.errors import PdlaError
from pdla.layouts.striping import component_sizes
from pdla.model import Cluster, Op, PatternPlan, Plan, Signature
from pdla.policies.plan import writing_obstacle
from pdla.replicator.queued_plans import enqueue
from pdla.steps import plan as make_plan
from pdla.steps import record_run
from pdla.traces.tables import OPS
from pdla.traces.trace import Trace
from pdla.units import counted, format_bytes, format_seconds, shown

WHOLE = 1 << 22
"""Calls of a trace that is held in memory; of a larger one some aspects are not found, and plans are not simulated."""


class UnteachableError(PdlaError):
    """Nothing can be learned from a run."""


def learn_served(catalog: Catalog, owner: str, run: spool.Waiting) -> set[str]:
    """Learn from a run that was served and not recorded; return the files that it wrote.

    Raises:
        UnteachableError: nothing is known of this command, or the user has forgotten its application.
    """
    name = spool.known(run.command, run.writes).get("application")
    runs = [
        each
        for one in catalog.autopilot.applications(owner)
        if one.name == name
        for each in catalog.autopilot.runs(one.id)
    ]
    recorded = [one.facts for one in runs if one.facts.run]
    if not recorded:
        spool.forget_known(run.command, run.writes)
        raise UnteachableError("it was not recorded, and nothing is known of its command")
    last = recorded[-1]
    facts = RunFacts(
        *(last.ranks, last.bytes, last.read, bytes_read(run.report)),
        replicas=replicas_used(catalog, run.report),
        files=last.files,
        calls=last.calls,
        policy=run.policy,
        redirected=bytes_written(run.report),
    )
    catalog.autopilot.learn(runs[0].application, run.name, run.time, facts, owner, [])
    if facts.hit_ratio < last.hit_ratio - ALIKE:
        spool.forget_known(run.command, run.writes)  # something has changed
    return _written(facts)


def learn_recorded(catalog: Catalog, owner: str, run: spool.Waiting) -> set[str]:
    """Learn from a run that was recorded, and queue what is to be built for it; return the files that it wrote.

    Whatever kills it: the next time it does the same, and nothing is recorded twice.

    Raises:
        UnteachableError: the run failed, or left no records.
        PdlaError: the catalog or the cluster cannot be used.
    """
    storage = Storage.of(run.cluster)
    logs = _logs(run)
    path = trace_of(run.name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        pack(run.path / spool.RAW, path, shlex.join(run.command or logs.programs[0].words), os.environ)
    with stored_trace(path) as stored:
        source: Trace | StoredTrace = read_trace(path) if stored.rows <= WHOLE else stored
        local = find_local(source.blocks())
        analysis = combine(local, source)
        about = stored.about
        seconds, calls = _seconds(source), _calls(source, about.files["path"])
        if isinstance(source, Trace):
            phases = find_phases(source)
            aspects = describe(source, analysis, phases)
        else:
            phases, aspects = NO_PHASES, outline(analysis)
        recorded = record_run(path, about, analysis, aspects, phases, catalog)
    name = _name(logs)
    application = catalog.autopilot.application(owner, name)
    runs = catalog.autopilot.runs(application)
    changed, is_new = _changes(catalog, runs, analysis.signatures, about.ranks)
    used, redirected = replicas_used(catalog, run.report), bytes_written(run.report)
    io = _io_seconds(source) if isinstance(source, Trace) and not about.dropped else None
    facts = RunFacts(
        ranks=about.ranks,
        bytes=analysis.bytes,
        read=_bytes_read(analysis),
        hit=bytes_read(run.report),
        seconds=io if redirected else None if about.dropped else seconds,
        before=_expected_seconds(runs, about.ranks, analysis.bytes, in_all_calls=redirected > 0),
        predicted=_predicted(catalog, owner, used),
        run=recorded.run,
        trace=fingerprint(path),
        replicas=used,
        drift=changed,
        files=tuple(map(str, about.files["path"])),
        calls=calls,
        policy=run.policy,
        io=io,
        redirected=redirected,
    )
    chooser = _Chooser(catalog, owner, application, run, storage)
    decisions = [_summary(application, name, run, facts), *_drifted(application, run, changed)]
    decisions += chooser.decide(source, analysis)
    settled = True
    if run.chosen:
        recorded_run = _RecordedRun(source, analysis, storage.cluster, run.writes)
        choice, parts, said = choose_policies(catalog, owner, application, run, facts, recorded_run)
        facts, settled, decisions = replace(facts, parts=parts), choice.settled, [*decisions, *said]
    catalog.autopilot.learn(application, run.name, run.time, facts, owner, decisions)
    changes = is_new or changed or chooser.changes or not settled
    steady = 0 if changes else spool.known(run.command, run.writes).get("steady", 0) + 1
    if run.command:
        spool.note_known(run.command, name, steady, run.writes)
        if run.chosen:
            spool.note_policy(run.command, name, choice.policy)
    for older in runs:
        if older.facts.ranks == about.ranks and older.name != run.name:
            trace_of(older.name).unlink(missing_ok=True)
    return _written(facts)


def _written(facts: RunFacts) -> set[str]:
    return {path for path, spent in facts.calls.items() if "write" in spent}


def _logs(run: spool.Waiting) -> RawLogs:
    """What the program's processes recorded.

    Raises:
        UnteachableError: nothing, or a process of it failed.
    """
    try:
        logs = RawLogs(run.path / spool.RAW)
    except PdlaError:
        raise UnteachableError("it made no MPI-IO call that could be recorded") from None
    if logs.failed:
        raise UnteachableError(logs.failed)
    if not logs.programs:
        raise UnteachableError("its rank 0 did not say which program it is")
    return logs


def _name(logs: RawLogs) -> str:
    files = set(map(str, logs.about.files["path"]))
    return joined(application_name(one.executable, one.words, one.directory, files) for one in logs.programs)


def _seconds(source: Trace | StoredTrace) -> float:
    """Seconds that the slowest rank spent in data calls."""
    spent: dict[int, float] = {}
    for block in source.blocks():
        for rank, seconds in enumerate(np.bincount(block.rank, block.t_end - block.t_start).tolist()):
            spent[rank] = spent.get(rank, 0.0) + seconds
    return max(spent.values(), default=0.0)


def _calls(source: Trace | StoredTrace, paths: Iterable[str]) -> dict[str, dict[str, float]]:
    """By path and operation, seconds that the slowest rank spent in data calls."""
    spent: dict[tuple[int, int], float] = {}  # by file and operation, and by rank
    for block in source.blocks():
        key = 2 * block.file + block.written
        pairs, of = np.unique(np.stack([key, block.rank]), axis=1, return_inverse=True)
        seconds = np.bincount(of.ravel(), block.t_end - block.t_start)
        for one, rank, more in zip(*pairs.tolist(), seconds.tolist(), strict=True):
            spent[one, rank] = spent.get((one, rank), 0.0) + more
    names, found = list(paths), dict[str, dict[str, float]]()
    for (one, _), slowest in spent.items():
        of_file, op = found.setdefault(str(names[one // 2]), {}), OPS[one % 2]
        of_file[op] = max(of_file.get(op, 0.0), slowest)
    return found


def _io_seconds(trace: Trace) -> float:
    """Seconds that the slowest rank spent in all calls of MPI-IO, with opens, syncs and closes."""
    records = trace.records
    spent = np.bincount(records["rank"].to_numpy(np.int64), (records["t_end"] - records["t_start"]).to_numpy())
    return float(spent.max(initial=0.0))


@dataclass(frozen=True)
class _RecordedRun:
    """What choosing.py needs of the records of a run."""

    source: Trace | StoredTrace
    analysis: Analysis
    cluster: Cluster
    writes: spool.Writes

    def groups(self) -> tuple[str, ...]:
        return groups_of(self.source) if isinstance(self.source, Trace) else ALL

    def seconds(self, groups: Sequence[str]) -> dict[str, float]:
        return seconds_of(self.source, groups) if isinstance(self.source, Trace) else {}

    def forecast(self, group: str, groups: Sequence[str], native: float) -> Forecast:
        if not isinstance(self.source, Trace):
            return Forecast(absent={"": "the trace is too large to simulate it"})
        trace, plan = part_of(self.source, self._plan, group, groups)
        return forecast(trace, plan, native, leased=self.writes == "lease")

    @cached_property
    def _plan(self) -> Plan:
        return _planned(self.source, self.analysis, self.cluster, self.writes)


def _bytes_read(analysis: Analysis) -> int:
    parts: list[Signature | Irregular] = [*analysis.signatures, *analysis.irregular]
    return sum(one.bytes for one in parts if one.op == "read")


def _expected_seconds(runs: Iterable[LearnedRun], ranks: int, size: int, *, in_all_calls: bool = False) -> float | None:
    """Seconds in data calls, or in all calls of MPI-IO, of a run without replicas; None: not known.

    They are those of the earlier runs that did the same work.
    """
    alike = [
        seconds
        for one in runs
        if (seconds := one.facts.io if in_all_calls else one.facts.seconds) is not None
        and not one.facts.served
        and not one.facts.policy
        and one.facts.ranks == ranks
        and abs(one.facts.bytes - size) <= ALIKE * size
    ]
    return median(alike) if alike else None


def _predicted(catalog: Catalog, owner: str, used: Collection[str]) -> float:
    """What the plans expected the replicas that a run used to save."""
    found = catalog.autopilot.decisions(owner, kinds=["built"]) if used else []
    return float(sum(one.facts.get("predicted", 0.0) for one in found if str(one.replica) in used))


def _changes(
    catalog: Catalog, runs: Sequence[LearnedRun], found: Sequence[Signature], ranks: int
) -> tuple[tuple[Drift, ...], bool]:
    """The drift since earlier runs; and whether there is none with which to compare."""
    latest = {one.facts.ranks: one.facts.run for one in runs if one.facts.run}
    before = expected(
        {of: [one.signature for one in catalog.runs.get(number)[1]] for of, number in latest.items()}, ranks
    )
    return ((), True) if before is None else (drifts(before, found), False)


def _summary(application: int, name: str, run: spool.Waiting, facts: RunFacts) -> Decision:
    said = [counted(facts.ranks, "rank"), format_bytes(facts.bytes)]
    said += [f"{format_seconds(facts.seconds)} of I/O"] if facts.seconds is not None else []
    said += [f"{facts.hit_ratio:.0%} of the bytes read came from replicas"] if facts.hit else []
    said += [f"{format_bytes(facts.redirected)} went to replicas"] if facts.redirected else []
    said += [f"saved {format_seconds(facts.measured)}"] if facts.measured is not None else []
    why = f"{shown(name)}: {', '.join(said)}"
    return Decision(f"learned:{run.name}", "learned", why, application, facts={"run": run.name})


def _drifted(application: int, run: spool.Waiting, changed: Sequence[Drift]) -> list[Decision]:
    if not changed:
        return []
    first = changed[0]
    more = f", and {counted(len(changed) - 1, 'more change')}" if len(changed) > 1 else ""
    why = f"a {first.op} pattern of {shown(first.file)} {first.kind}: {first.what}{more}"
    return [Decision(f"drifted:{run.name}", "drifted", why, application, facts={"run": run.name})]


class _Chooser:
    """Decides which patterns of a run get replicas."""

    def __init__(self, catalog: Catalog, owner: str, application: int, run: spool.Waiting, storage: Storage) -> None:
        self._catalog, self._owner, self._application, self._run = catalog, owner, application, run
        self._storage = storage
        self._judge = Judge(catalog, owner)
        self._decisions = catalog.autopilot.decisions(owner)
        self._replicas = usable(catalog)
        self.changes = False

    def decide(self, source: Trace | StoredTrace, analysis: Analysis) -> list[Decision]:
        """The decisions on the patterns; what gets a replica is in the queue then."""
        decisions = self._unfit(source, analysis)
        if not (open_ones := self._undecided(analysis.signatures)):
            return decisions
        factors = self._judge.factors
        made = _planned(source, analysis, corrected(self._storage.cluster, factors), self._run.writes)
        chosen: list[PatternPlan] = []
        left: list[PatternPlan] = []
        for one in made.patterns:
            digest = pattern_digest(one.signature)
            if digest not in open_ones:
                continue
            if one.choice.layout is None:
                left.append(one)
            else:
                chosen.append(one)
        chosen, out = self._share_space(chosen)
        decisions += out
        for one in list(chosen):
            digest = pattern_digest(one.signature)
            if why := self._no_room(one, chosen):
                chosen.remove(one)
                decisions.append(self._decision("postponed", digest, why))
            else:
                decisions.append(self._decision("planned", digest, _why(one), self._facts(one, factors)))
        if chosen:
            self.changes = True
            enqueue(self._catalog, replace(made, patterns=tuple(chosen)))
        if left:
            reason = max(left, key=lambda one: one.signature.bytes).reason
            what = f"{counted(len(left), 'pattern')} in the original: {reason}"
            digests = [pattern_digest(one.signature) for one in left]
            decisions.append(self._decision("left", None, what, {"patterns": digests, "writes": self._run.writes}))
        return decisions

    def _undecided(self, signatures: Sequence[Signature]) -> set[str]:
        """The patterns that may have replicas and on which nothing is decided."""
        served = served_files(self._run.report)
        ops = ("read",) if self._run.writes == "original" else ("read", "write")
        decided = {digest for digest, count in unread(self._catalog, self._decisions).items() if count >= UNREAD}
        for one in self._decisions:
            kept_from_it = (
                (one.kind == "retired" and not one.facts.get("gives_way") and self._is_for_now(one))
                if one.undone is None
                else one.kind in ("planned", "built")
            )
            if one.kind == "left" and one.undone is None and self._is_for_now(one):
                decided.update(one.facts.get("patterns", ()))
            elif one.pattern and kept_from_it:
                decided.add(one.pattern)
        there = {(one.purpose, one.signature.file, one.access_map) for one in self._replicas}
        ours = {one.pattern for one in self._decisions if one.kind == "planned"}
        waiting = {pattern_digest(one.signature) for one in self._catalog.patterns.find(state="planned")} & ours
        return {
            digest
            for one in signatures
            if one.op in ops and (one.op, one.file) not in served
            for digest in [pattern_digest(one)]
            if digest not in decided | waiting and (one.op, one.file, AccessMap.from_signature(one)) not in there
        }

    def _is_for_now(self, one: Decision) -> bool:
        """Whether a decision is for runs whose writes may go where those of this run may, or for reads."""
        return one.facts.get("writes", "original" if one.kind == "left" else "") in ("", self._run.writes)

    def _unfit(self, source: Trace | StoredTrace, analysis: Analysis) -> list[Decision]:
        """The replicas for writes that would get none by this run, because of when others accessed their bytes."""
        files = {one.file for one in analysis.signatures if one.op == "write"}
        held = {
            (one.replica.signature.file, one.replica.access_map): one
            for one in self._judge.holdings
            if one.replica.purpose == "write" and one.replica.signature.file in files
        }
        if not held or not isinstance(source, Trace):
            return []
        found = []
        for signature, depends in zip(analysis.signatures, write_dependences(analysis, source), strict=True):
            if signature.op == "write" and (why := writing_obstacle(depends)):
                holding = held.get((signature.file, AccessMap.from_signature(signature)))
                found += [self._judge.retired(holding, why)] if holding else []
        return found

    def _share_space(self, proposed: list[PatternPlan]) -> tuple[list[PatternPlan], list[Decision]]:
        """Which of the proposed replicas to build in the budget of space, and what that means for the others."""
        space = self._storage.budget.space
        if space is None or not proposed:
            return proposed, []
        held = {str(one.replica.id): one for one in self._judge.holdings}
        now = self._run.time.timestamp()
        past = [run.time.timestamp() for run in self._catalog.autopilot.runs(self._application)]
        new = {f"new {number}": one for number, one in enumerate(proposed)}
        stakes = [self._judge.stake(one) for one in held.values()]
        stakes += [
            Stake(name, {BUDGET: one.signature.bytes}, _gain(one), [PastRun(now)], past) for name, one in new.items()
        ]
        chosen, decisions = [], []
        for step in steps(stakes, {BUDGET: space}, now):
            decisions += [self._judge.retired(held[one.name], one.why, gives_way=True) for one in step.remove]
            chosen += [new[step.build]] if step.build else []
        for one in proposed:
            if one not in chosen:
                why = (
                    f"no room in the budget of {format_bytes(space)} for {format_bytes(one.signature.bytes)} of "
                    f"{shown(one.signature.file)}: what is there is worth more"
                )
                decisions.append(self._decision("postponed", pattern_digest(one.signature), why))
        return chosen, decisions

    def _no_room(self, one: PatternPlan, chosen: Sequence[PatternPlan]) -> str:
        """Why the budget has no room for the files of a replica; empty: it has."""
        budget = self._storage.budget
        files = sum(len(held.replica.components) for held in self._judge.holdings)
        files += sum(_files(other) for other in chosen[: chosen.index(one)])
        if budget.files is not None and files + _files(one) > budget.files:
            return f"no room in the budget of files: {files} of {budget.files} are there, and {_files(one)} more needed"
        return ""

    def _facts(self, one: PatternPlan, factors: Mapping[str, Factor]) -> dict[str, Any]:
        layout = one.choice.layout
        assert layout is not None
        return {
            "predicted": _gain(one),
            "before": one.candidates[0].seconds,
            "after": one.choice.seconds,
            "factor": factors[layout.pool].value if layout.pool in factors else 1.0,
            "pool": layout.pool,
            "layout": layout.name,
            "bytes": one.signature.bytes,
            "file": one.signature.file,
            "writes": self._run.writes if one.signature.op == "write" else "",
        }

    def _decision(self, kind: Any, pattern: str | None, why: str, facts: dict[str, Any] | None = None) -> Decision:
        name = f"{kind}:{self._run.name}:{(pattern or '')[:64]}"
        more = {"run": self._run.name, "cluster": self._run.cluster, **(facts or {})}
        return Decision(name, kind, why, self._application, pattern, facts=more)


def _planned(source: Trace | StoredTrace, analysis: Analysis, cluster: Cluster, writes: spool.Writes) -> Plan:
    if isinstance(source, Trace):
        return make_plan(source, cluster, writes=writes, analysis=analysis)
    # RATIONALE: writes are redirected only if it is known from all calls which other accesses depend on them.
    return make_plan(source.about, cluster, seconds=0, analysis=analysis)


def _files(one: PatternPlan) -> int:
    layout = one.choice.layout
    return len(component_sizes(layout, one.signature.bytes)) if layout else 0


def _gain(one: PatternPlan) -> float:
    return one.candidates[0].seconds - one.choice.seconds


def _use(op: Op) -> str:
    return "written to" if op == "write" else "of"


def _why(one: PatternPlan) -> str:
    layout = one.choice.layout
    assert layout is not None
    what = f"{format_bytes(one.signature.bytes)} {_use(one.signature.op)} {shown(one.signature.file)}"
    return f"{what} as {layout.name} on {layout.pool}: expected to save {format_seconds(_gain(one))} in a run"
