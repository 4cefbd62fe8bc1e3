"""What the autopilot was worth in a month: of each application and day, the seconds of I/O with and without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from statistics import median

from pdla.autopilot.schemes import ALIKE
from pdla.catalog import Catalog, Decision, LearnedRun, RunFacts


@dataclass(frozen=True)
class ApplicationMonth:
    """An application's runs in a month.

    Attributes:
        runs: those that ended in the month.
        before, after: seconds in I/O of the slowest rank in the runs that pdla served and recorded: without it, as
            runs that were not served took, and with it.
        estimated: the seconds that served runs saved which were not recorded, if each saved what recorded ones did.
        space: bytes of its replicas now.
        days: the seconds that runs saved, by the day on which they ended; those of ``estimated`` included.
    """

    id: int
    name: str
    runs: Sequence[LearnedRun]
    before: float
    after: float
    estimated: float
    space: int
    days: Mapping[date, float]

    @property
    def saved(self) -> float:
        """Seconds, measured and estimated; less than 0: pdla cost time."""
        return self.before - self.after + self.estimated

    @property
    def hit_ratio(self) -> float:
        """The share of the bytes read that came from replicas, and of those written by runs that wrote to replicas."""
        asked = sum(one.facts.asked for one in self.runs)
        return sum(one.facts.hit + one.facts.redirected for one in self.runs) / asked if asked else 0.0

    @property
    def changed(self) -> int:
        """The runs whose patterns were others than before."""
        return sum(bool(one.facts.drift) for one in self.runs)


@dataclass(frozen=True)
class Month:
    """All applications of a user in a month, the one that saved most first, and the decisions in it.

    ``first`` is its first day. Days are those of the local time.
    """

    first: date
    owner: str
    applications: Sequence[ApplicationMonth]
    decisions: Sequence[Decision]

    @classmethod
    def of(cls, catalog: Catalog, owner: str, first: date) -> Month:
        """The month that begins on this day.

        Raises:
            CatalogError: the catalog failed.
        """
        decisions = catalog.autopilot.decisions(owner)
        sizes = {one.id: one.size for one in catalog.replicas.listing()}
        found = []
        for one in catalog.autopilot.applications(owner):
            runs = catalog.autopilot.runs(one.id)
            built = {each.replica for each in decisions if each.kind == "built" and each.application == one.id}
            space = sum(size for number, size in sizes.items() if number in built)
            month = _of_application(one.id, one.name, runs, space, first)
            found += [month] if month.runs else []
        found.sort(key=lambda one: -one.saved)
        return cls(first, owner, found, [one for one in decisions if _is_in(one.time, first)])

    @cached_property
    def days(self) -> Mapping[date, float]:
        """Seconds saved on each day of the month."""
        last = _next(self.first) - timedelta(days=1)
        days = [self.first + timedelta(days=number) for number in range(last.day)]
        return {day: sum(one.days.get(day, 0.0) for one in self.applications) for day in days}

    @property
    def saved(self) -> float:
        """Seconds of all applications."""
        return sum(one.saved for one in self.applications)

    @property
    def counts(self) -> Counter[str]:
        """The number of decisions of each kind."""
        return Counter(one.kind for one in self.decisions)


def _of_application(number: int, name: str, runs: Sequence[LearnedRun], space: int, first: date) -> ApplicationMonth:
    measured = {one.id: found for one in runs if (found := _seconds(one.facts, runs)) is not None}
    by_ranks: dict[int, list[float]] = {}
    for one in runs:
        if one.id in measured:
            before, after = measured[one.id]
            by_ranks.setdefault(one.facts.ranks, []).append(before - after)
    own = [one for one in runs if _is_in(one.time, first)]
    recorded = [measured[one.id] for one in own if one.id in measured]
    days: dict[date, float] = {}
    estimated = 0.0
    for one in own:
        saved = 0.0
        if one.id in measured:
            saved = measured[one.id][0] - measured[one.id][1]
        elif not one.facts.run and one.facts.ranks in by_ranks:
            saved = median(by_ranks[one.facts.ranks])
            estimated += saved
        day = one.time.astimezone().date()
        days[day] = days.get(day, 0.0) + saved
    sums = sum(before for before, _ in recorded), sum(after for _, after in recorded)
    return ApplicationMonth(number, name, own, *sums, estimated, space, days)


def _seconds(facts: RunFacts, runs: Sequence[LearnedRun]) -> tuple[float, float] | None:
    """Without and with pdla: in data calls, or with a policy, which moves time into the close, in all calls."""
    if not facts.policy:
        return None if facts.measured is None else (facts.measured + (facts.seconds or 0.0), facts.seconds or 0.0)
    native = [
        one.facts.io
        for one in runs
        if one.facts.io is not None
        and not (one.facts.served or one.facts.policy)
        and one.facts.ranks == facts.ranks
        and abs(one.facts.bytes - facts.bytes) <= ALIKE * facts.bytes
    ]
    return (median(native), facts.io) if native and facts.io is not None else None


def _is_in(time: datetime, first: date) -> bool:
    return first <= time.astimezone().date() < _next(first)


def _next(first: date) -> date:
    """The first day of the next month."""
    return (first.replace(day=1) + timedelta(days=32)).replace(day=1)
