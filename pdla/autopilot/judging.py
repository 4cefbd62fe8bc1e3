"""What runs measured of the replicas that were built for them: who paid, who gives way, how far predictions are off.

A replica for writes is judged by what its application saves and by what those save or lose that read the file after it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from pdla.autopilot.chains import Chain, chains, file_of
from pdla.autopilot.factors import Factor, Observation, factors
from pdla.autopilot.worth import PastRun, Stake, attributed, failure
from pdla.catalog import Catalog, Decision, LearnedRun, Replica
from pdla.catalog.autopilot import NEVER
from pdla.units import shown

BUDGET = "budget"
"""The space that the budget is: replicas on all pools share it."""


def usable(catalog: Catalog) -> list[Replica]:
    """The replicas that serve reads, and those that take writes, also while bytes wait in them."""
    return [
        *catalog.replicas.find("valid", purpose="read"),
        *catalog.replicas.find("valid", "dirty", purpose="write"),
    ]


@dataclass(frozen=True)
class Holding:
    """A replica that is there, and the decision with which it was built."""

    replica: Replica
    built: Decision


class Judge:
    """Judges the replicas of a user by the runs that are on record."""

    def __init__(self, catalog: Catalog, owner: str) -> None:
        self._catalog, self._owner = catalog, owner

    @cached_property
    def _built(self) -> dict[int, Decision]:
        """The decisions with which replicas were built, by the replica, whether it is still there or not."""
        return {int(one.replica or 0): one for one in self._catalog.autopilot.decisions(self._owner, kinds=["built"])}

    @cached_property
    def _runs(self) -> dict[int, list[LearnedRun]]:
        """The runs of each application."""
        numbers = [one.id for one in self._catalog.autopilot.applications(self._owner)]
        return {number: self._catalog.autopilot.runs(number) for number in numbers}

    @cached_property
    def holdings(self) -> list[Holding]:
        """The replicas that were built for the user's applications and are there."""
        return [Holding(one, self._built[one.id]) for one in usable(self._catalog) if one.id in self._built]

    def stake(self, one: Holding) -> Stake:
        """What is known of a replica."""
        series = self._series(one.built)
        began = series[0].time
        runs = self._runs.get(one.built.application or 0, [])
        return Stake(
            name=str(one.replica.id),
            space={BUDGET: one.replica.size},
            predicted=float(one.built.facts.get("predicted", 0.0)),
            runs=[self._past(run, one, {str(each.replica) for each in series}) for run in runs if run.time >= began],
            earlier=[run.time.timestamp() for run in runs if run.time < began],
            built=one.built.time.timestamp(),
        )

    def _series(self, last: Decision) -> list[Decision]:
        """The replicas of the same pattern that took the place of one another, as the file was written anew."""
        retired = [one.time for one in self._retired if one.pattern == last.pattern and one.time < last.time]
        return [
            one
            for one in self._built.values()
            if (one.application, one.pattern) == (last.application, last.pattern)
            and max(retired, default=NEVER) < one.time <= last.time
        ]

    @cached_property
    def _retired(self) -> list[Decision]:
        return self._catalog.autopilot.decisions(self._owner, kinds=["retired"])

    def failures(self) -> list[Decision]:
        """The replicas to retire because they did not pay twice, with the reason."""
        judged = [(one, failure(self.stake(one))) for one in self.holdings]
        return [self.retired(one, why) for one, why in judged if why]

    def retired(self, one: Holding, why: str, *, gives_way: bool = False) -> Decision:
        """The decision to remove a replica; one that ``gives_way`` may come back."""
        text = f"replica {one.replica.id} of {shown(one.replica.signature.file)}: {why}"
        name = f"retired:{self._catalog.token}:{one.replica.id}"
        facts = {"gives_way": gives_way, "writes": one.built.facts.get("writes", "")}
        return Decision(name, "retired", text, one.built.application, one.built.pattern, one.replica.id, facts)

    @cached_property
    def factors(self) -> dict[str, Factor]:
        """How far the cost model is off for each pool."""
        runs = sorted((run for some in self._runs.values() for run in some), key=lambda run: run.time)
        return factors(one for run in runs for one in self._observations(run))

    def _observations(self, run: LearnedRun) -> list[Observation]:
        saved = self._saved(run)
        return [
            Observation(facts["pool"], facts["before"], facts["after"], saved[number], facts.get("factor", 1.0))
            for number in saved
            for facts in [self._built[int(number)].facts]
            if facts.get("before", 0.0) > 0
        ]

    def _past(self, run: LearnedRun, one: Holding, series: Set[str]) -> PastRun:
        measured = [seconds for number, seconds in self._saved(run).items() if number in series]
        saved = sum(measured) if measured else None
        if saved is not None and one.replica.purpose == "write":
            saved += self._readers_saved(run, one.replica.signature.file)
        return PastRun(run.time.timestamp(), not series.isdisjoint(run.facts.replicas), saved)

    @cached_property
    def _chains(self) -> list[Chain]:
        return chains(self._runs)

    def _readers_saved(self, run: LearnedRun, path: str) -> float:
        """The seconds that other applications saved, or lost, which read what a run wrote to replicas."""
        read = [one for one in self._chains if (one.file, one.writer) == (file_of(path), run.application)]
        return sum(one.saved_by(run) for one in read)

    def _saved(self, run: LearnedRun) -> dict[str, float]:
        """The seconds that a run saved by each replica that it used; empty: not measured."""
        read: Sequence[str] = [number for number in run.facts.replicas if int(number) in self._built]
        if run.facts.measured is None or run.facts.policy or not read:
            return {}
        predicted = {number: float(self._built[int(number)].facts.get("predicted", 0.0)) for number in read}
        return attributed(run.facts.measured, predicted)
