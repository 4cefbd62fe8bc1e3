"""The background step: take in the runs that wait, and build what they need; one process at a time."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pdla import config
from pdla.autopilot import spool
from pdla.autopilot.choosing import ignored_facts
from pdla.autopilot.judging import Judge, usable
from pdla.autopilot.names import this_user
from pdla.autopilot.renewal import renew
from pdla.autopilot.storage import Storage
from pdla.autopilot.study import UnteachableError, learn_recorded, learn_served
from pdla.catalog import Catalog, Decision, Pattern, Replica
from pdla.catalog.records import pattern_digest
from pdla.collectors.rawlog import is_over
from pdla.errors import BusyError, CatalogError, FormatError, PdlaError, UnfitError
from pdla.layouts.budget import Budget
from pdla.replicator.builder import build
from pdla.replicator.exit_reports import collect
from pdla.replicator.mapfile import publish
from pdla.replicator.metrics import ApplicationFigures
from pdla.replicator.queued_plans import choice
from pdla.replicator.sync import waiting_targets, write_back
from pdla.replicator.throttling import Gate, Limit
from pdla.replicator.verify import discard
from pdla.units import counted, format_bytes, format_seconds, shown

LEASE = "autopilot "
"""A learner holds the lease of this and the name of the user."""
TRIES = 5
"""So often it is tried to learn from a run that ends the learner."""
BUSY_SECONDS = 10.0
"""Between two looks at the load of others, while they need the machine."""
TURN_SECONDS = 0.5
"""Between two tries to get the lease from another learner."""


class PausedError(PdlaError):
    """Learning was paused: what is being built is given up."""


class LeftError(PdlaError):
    """A user waits: what is being built is given up, and left to the process of that user."""


class Outcome(NamedTuple):
    """What a learner did: runs learned from, replicas built, and why something still waits."""

    runs: int
    built: int
    waits: tuple[str, ...]


class Learner:
    """Learns from the runs of this user. With a ``gate`` it gives way to others while it builds."""

    def __init__(self, catalog: Catalog, gate: Gate | None = None, map_path: Path | None = None) -> None:
        self._catalog, self._gate = catalog, gate
        self._map_path = map_path or config.map_path()
        self._owner = this_user()
        self._counted = 0
        self._limit: Limit | None = None
        self._failed: dict[str, str] = {}
        self._known: dict[int, tuple[int, float, float, int]] = {}  # of applications: runs, saved, hits, changes

    def learn(self, until: str | None = None) -> Outcome:
        """Learn from all runs that wait, and build. If another learner does, wait until it is done.

        One with a gate leaves its work to one without. With ``until`` return when the run of this name is done,
        whoever learned from it.

        Raises:
            CatalogError: the catalog failed.
            PausedError: learning is paused.
        """
        runs = built = 0
        with nullcontext() if self._gate else spool.user_waits():
            while self._waiting(until) if until else (self._waiting(None) or self.plans_wait()):
                try:
                    with self._catalog.leases.hold(LEASE + self._owner, name="the autopilot of " + self._owner):
                        runs += self.take_in()
                        self.bring_home()
                        built += self.build()
                        self.clear()
                except BusyError:
                    time.sleep(TURN_SECONDS)
                    continue
                except LeftError:
                    pass
                break
        return Outcome(runs, built, tuple(dict.fromkeys(self._failed.values())))

    def _waiting(self, name: str | None) -> bool:
        """Whether a run waits: that of this name, or any."""
        return any(name in (None, one.name) for one in spool.waiting(self._catalog.url))

    def plans_wait(self) -> bool:
        """Whether something that a run needs is still to be built."""
        return bool(self._planned())

    def take_in_now(self) -> tuple[str, ...]:
        """For a daemon, which builds: learn from the runs that wait; return why something still does.

        While another process learns, this does nothing.

        Raises:
            CatalogError: the catalog failed.
        """
        self._failed = {}
        if not spool.something_waits() or spool.is_paused():
            return ()
        with suppress(BusyError, PausedError), self._catalog.leases.hold(LEASE + self._owner):
            self.take_in()
            self.settle()
            self.clear()
        return tuple(dict.fromkeys(self._failed.values()))

    def holds_back(self, pattern: Pattern) -> bool:
        """Whether the pause of the user, or the budget, says that a pattern is not to be built now."""
        for one, storage in self._planned():
            if one.id == pattern.id:
                return spool.is_paused() or not storage.budget.is_open(datetime.now())
        return False

    def waiting(self) -> int:
        """The number of runs that wait to be learned from."""
        return len(spool.waiting(self._catalog.url))

    def figures(self) -> list[ApplicationFigures]:
        """What the applications are worth. The runs of one are read again only if there are more.

        Raises:
            CatalogError: the catalog failed.
        """
        sizes = {one.id: one.size for one in self._catalog.replicas.listing()}
        built: dict[int | None, int] = {}
        for one in self._catalog.autopilot.decisions(self._owner, kinds=["built"]):
            built[one.application] = built.get(one.application, 0) + sizes.get(one.replica or 0, 0)
        found = []
        for each in self._catalog.autopilot.applications(self._owner):
            if self._known.get(each.id, (0,))[0] != each.runs:
                facts = [run.facts for run in self._catalog.autopilot.runs(each.id)]
                saved = sum(run.measured or 0.0 for run in facts)
                changes = sum(bool(run.drift) for run in facts)
                self._known[each.id] = (each.runs, saved, facts[-1].hit_ratio if facts else 0.0, changes)
            runs, saved, hits, changes = self._known[each.id]
            found.append(ApplicationFigures(each.name, runs, saved, hits, built.get(each.id, 0), changes))
        return found

    # ---- runs ----------------------------------------------------------------------------------------------------

    def take_in(self) -> int:
        """Learn from the runs that wait; return their number. The lease is held."""
        learned = 0
        spool.clear_remains()
        for run in spool.waiting(self._catalog.url):
            if spool.is_paused():
                raise PausedError("learning is paused (pdla resume ends that)")
            self.settle()
            if run.may_run:
                if not is_over(run.path / spool.RAW):
                    continue
                run = run.adopt(collect(run.path, "").to_json(), self._catalog.url)
            learned += self._take_in_one(run)
            self.retire()
        return learned

    def _take_in_one(self, run: spool.Waiting) -> int:
        if self._catalog.autopilot.is_learned(run.name):
            run.forget_records()
            return 0
        try:
            if run.failed:
                raise UnteachableError(run.failed)
            if run.tried() > TRIES:
                raise UnteachableError(f"learning from it was given up after {TRIES} tries")
            written = (learn_recorded if run.recorded else learn_served)(self._catalog, self._owner, run)
            renew(self._catalog, self._owner, written, self._map_path)
        except (UnteachableError, FormatError) as error:
            self._ignore(run, str(error))
            return 0
        except CatalogError:
            raise
        except (PdlaError, OSError) as error:
            self._failed[run.name] = f"learning from a run waits: {error}"
            return 0
        run.forget_records()
        return 1

    def _ignore(self, run: spool.Waiting, why: str) -> None:
        what = shown(" ".join(run.command)) or "a program that was preloaded by hand"
        decision = Decision(f"ignored:{run.name}", "ignored", f"{what}: {why}", facts=ignored_facts(run))
        self._catalog.autopilot.decide(self._owner, [decision])
        if run.chosen:
            spool.forget_policy(run.command)
        run.remove()

    def clear(self) -> None:
        """Remove what is left of the runs that were learned from, if nothing is to be built for them any more."""
        if not self.plans_wait():
            for run in spool.waiting(self._catalog.url):
                if self._catalog.autopilot.is_learned(run.name):
                    run.remove()

    # ---- replicas ------------------------------------------------------------------------------------------------

    def build(self) -> int:
        """Build what is planned, if the budget allows it now; return the number of new replicas. The lease is held."""
        self.settle()
        built = 0
        for pattern, storage in self._planned():
            if not storage.budget.is_open(datetime.now()):
                self._failed["hours"] = f"building waits for {storage.budget.hours_text}"
                continue
            built += self._build_one(pattern, storage.budget)
        self.settle()
        return built

    def _planned(self) -> list[tuple[Pattern, Storage]]:
        """The patterns that this learner is to build, with where."""
        decided = self._catalog.autopilot.decisions(self._owner, kinds=["planned"])
        ours = {one.pattern: one for one in decided if one.undone is None}
        found = []
        for pattern in self._catalog.patterns.find(state="planned") if ours else ():
            decision = ours.get(pattern_digest(pattern.signature))
            if decision is not None:
                try:
                    found.append((pattern, Storage.of(decision.facts.get("cluster", ""))))
                except PdlaError as error:
                    self._failed[f"pattern {pattern.id}"] = str(error)
        return found

    def _build_one(self, pattern: Pattern, budget: Budget) -> int:
        signature = pattern.signature
        self._limit = Limit(budget.bandwidth) if budget.bandwidth else None
        self._counted = 0
        try:
            layout, pool = choice(self._catalog, pattern)
            built = build(signature, layout, pool, self._catalog, progress=self._progress, map_path=self._map_path)
            publish(self._catalog, self._map_path)
            discard(self._catalog, [one.id for one in self._catalog.replicas.find("retired")], self._map_path)
        except (BusyError, CatalogError, PausedError, LeftError):
            raise
        except UnfitError as error:
            self._catalog.queue.set_state([signature], "failed", str(error))
            self._postpone(pattern, str(error))
            return 0
        except (PdlaError, OSError) as error:
            self._catalog.queue.postpone(pattern.id, str(error))
            self._failed[f"pattern {pattern.id}"] = f"a replica of {shown(signature.file)} waits: {error}"
            self._postpone(pattern, str(error))
            return 0
        if not self._is_wanted(pattern):  # the user undid it meanwhile
            discard(self._catalog, [built.id], self._map_path)
            return 0
        self._catalog.queue.set_state([signature], "built")
        return int(not built.kept)

    def _is_wanted(self, pattern: Pattern) -> bool:
        digest = pattern_digest(pattern.signature)
        decided = self._catalog.autopilot.decisions(self._owner, kinds=["planned"])
        return any(one.pattern == digest and one.undone is None for one in decided)

    def _postpone(self, pattern: Pattern, why: str) -> None:
        digest = pattern_digest(pattern.signature)
        name = f"postponed:{pattern.plan}:{digest}"
        text = f"no replica of {shown(pattern.signature.file)}: {why}"
        decided = self._catalog.autopilot.decisions(self._owner, kinds=["planned"])
        application = next((one.application for one in reversed(decided) if one.pattern == digest), None)
        self._catalog.autopilot.decide(self._owner, [Decision(name, "postponed", text, application, digest)])

    def retire(self) -> None:
        """Retire what did not pay, and remove what was retired or gives way."""
        self._catalog.autopilot.decide(self._owner, Judge(self._catalog, self._owner).failures())
        retired = self._catalog.autopilot.decisions(self._owner, kinds=["retired"])
        numbers = {one.replica for one in retired if one.undone is None}
        gone = [one for one in usable(self._catalog) if one.id in numbers]
        discard(self._catalog, [one.id for one in gone if one.purpose == "read"], self._map_path)
        for one in gone:
            if one.purpose == "write":
                self._discard_when_home(one)

    def _discard_when_home(self, replica: Replica) -> None:
        """Remove a replica for writes, unless bytes wait in it or a program writes to it: then another time."""
        try:
            discard(self._catalog, [replica.id], self._map_path)
        except CatalogError:
            raise
        except PdlaError:
            pass

    def bring_home(self) -> None:
        """Write back what leases left in the replicas that were built here. The lease is held."""
        built = [one.replica for one in Judge(self._catalog, self._owner).holdings]
        for path in waiting_targets(built, self._map_path):
            self._give_way()
            for one in write_back(self._catalog, map_path=self._map_path, only=path, who="pdla run --learn"):
                if one.problem and not one.busy:
                    self._failed[f"home {path}"] = f"{one.original}: {one.problem}"
        self.retire()

    def settle(self) -> None:
        """Note the replicas that were built for what was planned, whoever built them."""
        decided = self._catalog.autopilot.decisions(self._owner, kinds=["planned", "built"])
        planned = {one.pattern: one for one in decided if one.kind == "planned" and one.undone is None}
        noted = {one.replica for one in decided if one.kind == "built"}
        new = []
        for replica in usable(self._catalog):
            plan = planned.get(pattern_digest(replica.signature))
            if plan is None or replica.id in noted:
                continue
            saves = format_seconds(plan.facts.get("predicted", 0.0))
            why = (
                f"replica {replica.id} of {shown(replica.signature.file)}: {format_bytes(replica.size)}"
                f"{' for its writes' if replica.purpose == 'write' else ''}, "
                f"{replica.layout.name} on {replica.layout.pool}, expected to save {saves} in a run"
            )
            facts = {**plan.facts, "components": len(replica.components)}
            name = f"built:{self._catalog.token}:{replica.id}"
            new.append(Decision(name, "built", why, plan.application, plan.pattern, replica.id, facts))
        if new:
            self._catalog.autopilot.decide(self._owner, new)

    def _progress(self, _: str, done: int, total: int) -> None:
        """Called by the builder every few MiB: slow down, pause or stop here."""
        moved = done - self._counted if done >= self._counted else done
        self._counted = done
        if self._limit:
            time.sleep(self._limit.wait(moved))
        self._give_way()

    def _give_way(self) -> None:
        """Wait until nobody else needs the machine. Pause or stop here."""
        while True:
            if spool.is_paused():
                raise PausedError("learning is paused (pdla resume ends that)")
            if self._gate is None:
                return
            if spool.has_user():
                raise LeftError("a user waits for it")
            if not self._gate.busy():
                return
            look = time.monotonic() + BUSY_SECONDS
            while time.monotonic() < look and not spool.has_user():
                time.sleep(TURN_SECONDS)


def take_lowest_priority() -> None:
    """Beyond a low priority: use only what processors have left over."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def sentence(outcome: Outcome) -> str:
    """The outcome in words."""
    return f"learned from {counted(outcome.runs, 'run')}, {counted(outcome.built, 'new replica')}"
