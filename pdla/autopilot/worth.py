"""How all applications share the space for replicas: by worth, the measured seconds that a byte saves a day.

A *stake* is what is known of one replica, built or proposed: the bytes that it takes, the seconds that
a run is predicted to save, and the runs of its application with what they saved. ``steps`` takes all
stakes and the room in each space. It returns which proposed replicas to build, the most profitable
first, and which replicas give way to each, with the reason. ``failure`` says why a replica is to be
retired because it did not pay. ``attributed`` shares what a run saved among the replicas that it read.
All of them are functions of their arguments: the time is one, too.

Why it is done in steps, and how far from an optimum that ends: ADR 50.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pdla.layouts.selection import take
from pdla.units import GiB, counted, format_seconds

DAY = 86400.0
NEWCOMERS = 0.05
"""The share of each space in which newcomers are favoured."""
NEWCOMER_RUNS = 2
"""A replica that so many measured runs have read is no newcomer any more."""
NEWCOMER_DAYS = 3.0
"""Nor is one that was built so many days ago."""
UNREAD_DAYS = 14.0
"""A replica that nobody read for so many days goes first when space is short."""
STAYING = 2.0
"""A replica gives way only to what is worth more by this factor: a prediction may be wrong, and building is work."""
RUNS = 25
"""The last runs of an application that say how often it runs."""
FAVOUR = 2.0
"""So many times their predicted worth newcomers count, as long as they take no more than their share."""
OVERFULL = "replicas take more space than there is, and it saves least"
MEASURED = 8
"""The last runs whose savings count."""
PRIOR_RUNS = 20
"""A pattern of an application of which nothing is known is expected to last so many runs."""
RECENT = 0.75
"""What a run counts beside the next one, for how often an application still reads the bytes of a replica."""


@dataclass(frozen=True)
class PastRun:
    """A run of the application of a stake, since the stake's pattern was first seen.

    Attributes:
        time: its end, in seconds since 1970.
        reads: whether it accessed what the replica has, from the replica or from the original.
        saved: seconds that the replica saved it, as measured, negative if it was slower; None: not
            measured, or it did not read the replica.
    """

    time: float
    reads: bool = True
    saved: float | None = None


@dataclass(frozen=True)
class Stake:
    """One replica, built or proposed.

    Attributes:
        name: names it in a ``Step``, such as the digest of its pattern.
        space: bytes that it takes in each space (``pdla.layouts.capacity.spaces``).
        predicted: seconds that a run is predicted to save with it, corrected by the factor of its pool.
        runs: the runs of its application since its pattern was first seen, oldest first, also those
            that did not read it.
        earlier: the ends of the application's runs before those, in seconds since 1970, oldest first:
            a new pattern of an application that runs often is worth more.
        built: when it was built, in seconds since 1970; None: it is only proposed.
        build: seconds of background work that its build takes.
        lasting: runs that its pattern is expected to last (``lasting``).
    """

    name: str
    space: Mapping[str, int]
    predicted: float
    runs: Sequence[PastRun]
    earlier: Sequence[float] = ()
    built: float | None = None
    build: float = 0.0
    lasting: float = float(PRIOR_RUNS)

    @property
    def bytes(self) -> int:
        """In all spaces together."""
        return sum(self.space.values())

    @property
    def measured(self) -> list[float]:
        """Seconds that runs saved, oldest first."""
        return [run.saved for run in self.runs if run.saved is not None]


@dataclass(frozen=True)
class Removal:
    """A replica that gives way, and the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Step:
    """Replicas to remove first, and then the one to build; None: the replicas take more than there is."""

    remove: tuple[Removal, ...]
    build: str | None


def steps(stakes: Sequence[Stake], room: Mapping[str, int], now: float) -> tuple[Step, ...]:
    """What to do so that the replicas in the room are worth most together, the most profitable step first.

    A proposed replica is built if it is worth more than what has to give way to it. Nothing is removed
    but for the next step, so whoever carries out only the first steps loses nothing.

    Args:
        stakes: all replicas that may be removed, and all that may be built.
        room: bytes in each space for all stakes together: what is free, and what built ones take.
        now: seconds since 1970.
    """
    worths = {stake.name: worth(stake, now) for stake in stakes}
    held = {stake.name: stake for stake in stakes if stake.built is not None}
    free = dict(room)
    for stake in held.values():
        take(free, stake.space, 1)

    def density(stake: Stake) -> float:
        return worths[stake.name] / max(stake.bytes, 1)

    # Who gives way first.
    order = sorted(held.values(), key=lambda one: (unread_days(one, now) < UNREAD_DAYS, density(one)))
    found = []
    if gone := _giving_way(order, free, {}):
        found.append(Step(tuple(Removal(one.name, OVERFULL) for one in gone), None))
        _leave(gone, order, free)
    share = {name: NEWCOMERS * size for name, size in room.items()}
    for stake in order:
        if is_newcomer(stake, now):
            for name, size in stake.space.items():
                share[name] -= size
    proposed = (stake for stake in stakes if stake.built is None and worths[stake.name] > 0)
    for stake in sorted(proposed, key=density, reverse=True):
        gone = _giving_way(order, free, stake.space)
        if gone is None:
            continue
        lost = STAYING * sum(worths[one.name] for one in gone)
        favoured = is_newcomer(stake, now) and all(size <= share.get(name, 0) for name, size in stake.space.items())
        if worths[stake.name] * (FAVOUR if favoured else 1.0) <= lost:
            continue
        found.append(Step(tuple(Removal(one.name, _reason(one, worths, stake, now)) for one in gone), stake.name))
        _leave(gone, order, free)
        take(free, stake.space, 1)
        if is_newcomer(stake, now):
            for name, size in stake.space.items():
                share[name] = share.get(name, 0) - size
    return tuple(found)


def _giving_way(order: Sequence[Stake], free: Mapping[str, int], space: Mapping[str, int]) -> list[Stake] | None:
    """Replicas that make room for ``space`` if they are removed, the first of ``order`` that do; None: no room."""
    left, gone = dict(free), []
    take(left, space, 1)
    for stake in order:
        if min(left.values(), default=0) >= 0:
            break
        if any(left.get(name, 0) < 0 for name in stake.space):
            take(left, stake.space, -1)
            gone.append(stake)
    if min(left.values(), default=0) < 0:
        return None
    for stake in list(reversed(gone)):  # those worth most stay if what else goes is enough
        if all(left[name] >= size for name, size in stake.space.items()):
            take(left, stake.space, 1)
            gone.remove(stake)
    return gone


def _leave(gone: Iterable[Stake], order: list[Stake], free: dict[str, int]) -> None:
    for stake in gone:
        order.remove(stake)
        take(free, stake.space, -1)


def worth(stake: Stake, now: float) -> float:
    """Seconds that a replica is expected to save a day, of which its build takes some if it is only proposed.

    The seconds of a run, times the runs of its application a day, times the share of them that read
    it. 0 if it is of no use, or if nobody read it for ``UNREAD_DAYS``.
    """
    if stake.built is not None and unread_days(stake, now) >= UNREAD_DAYS:
        return 0.0
    build = 0.0 if stake.built is not None else stake.build / stake.lasting
    return max(seconds_a_run(stake) - build, 0.0) * runs_a_day(stake, now) * share_of_runs(stake)


def lasting(runs: int, ended: int) -> float:
    """The number of runs that a pattern of an application is expected to last.

    Args:
        runs: runs of all patterns of the application so far, those of each pattern counted.
        ended: number of its patterns that came to an end.

    >>> lasting(0, 0), lasting(180, 3)
    (20.0, 50.0)
    """
    return (runs + PRIOR_RUNS) / (ended + 1)


def seconds_a_run(stake: Stake) -> float:
    """The median of the seconds that the last ``MEASURED`` runs saved, and of the prediction.

    >>> seconds_a_run(Stake("new", {}, 10.0, [])), seconds_a_run(Stake("read", {}, 10.0, [PastRun(1.0, True, 4.0)]))
    (10.0, 7.0)
    """
    return median([stake.predicted, *stake.measured[-MEASURED:]])


def runs_a_day(stake: Stake, now: float) -> float:
    """How often the application of a stake runs a day, by its last ``RUNS`` runs, over a day or more.

    If it has been silent for longer than between any two of its runs, that counts less, by the square
    of the ratio.

    >>> daily = Stake("daily", {}, 1.0, [PastRun(day * DAY) for day in range(1, 8)])
    >>> runs_a_day(daily, 7.5 * DAY), runs_a_day(daily, 9 * DAY)
    (1.0769230769230769, 0.21875)
    """
    times = [*stake.earlier, *(run.time for run in stake.runs)]
    if not times:
        return 0.0
    last = times[-RUNS:]
    often = len(last) / max((now - last[0]) / DAY, 1.0)
    longest = max([DAY, *(after - before for before, after in pairwise(last))])
    silent = now - times[-1]
    return often * min(1.0, (longest / silent) ** 2 if silent > 0 else 1.0)


def share_of_runs(stake: Stake) -> float:
    """The share of the application's runs that read a replica; the last ones count most.

    >>> share_of_runs(Stake("left", {}, 1.0, [PastRun(1.0), PastRun(2.0), PastRun(3.0, reads=False)]))
    0.5675675675675675
    """
    runs = stake.runs[-RUNS:]
    weights = [RECENT**age for age in reversed(range(len(runs)))]
    reading = sum(weight for weight, run in zip(weights, runs, strict=True) if run.reads)
    return reading / sum(weights) if weights else 1.0


def is_newcomer(stake: Stake, now: float) -> bool:
    """Whether nothing but a prediction says yet what it is worth."""
    young = stake.built is None or now - stake.built < NEWCOMER_DAYS * DAY
    return young and len(stake.measured) < NEWCOMER_RUNS


def unread_days(stake: Stake, now: float) -> float:
    """Days since a run read what the replica has, or since it was built."""
    read = max((run.time for run in stake.runs if run.reads), default=-float("inf"))
    return (now - max(read, stake.built if stake.built is not None else read)) / DAY


def failure(stake: Stake) -> str:
    """Why a replica is to be retired: it did not pay in two runs in succession. Empty: it is not.

    >>> failure(Stake("slow", {}, 1.0, [PastRun(1.0, True, 2.0), PastRun(2.0, True, -0.5), PastRun(3.0, True, 0.0)]))
    'it did not pay in the last two runs that used it: they took 500 ms and 0 s longer than without it'
    """
    last = stake.measured[-2:]
    if len(last) < 2 or max(last) > 0:
        return ""
    first, second = (format_seconds(abs(saved)) for saved in last)
    return f"it did not pay in the last two runs that used it: they took {first} and {second} longer than without it"


def attributed(saved: float, predicted: Mapping[str, float]) -> dict[str, float]:
    """The seconds that a run saved, shared by the replicas that it read, in proportion to what was predicted of each.

    >>> attributed(6.0, {"a": 1.0, "b": 2.0})
    {'a': 2.0, 'b': 4.0}
    """
    whole = sum(predicted.values())
    return {name: saved * (one / whole if whole > 0 else 1 / len(predicted)) for name, one in predicted.items()}


def _reason(stake: Stake, worths: Mapping[str, float], other: Stake, now: float) -> str:
    """Why a replica gives way to another one."""
    days = unread_days(stake, now)
    if days >= UNREAD_DAYS:
        return f"space is short, and nobody read it for {counted(int(days), 'day')}"
    own, its = (f"{GiB * worths[one.name] / max(one.bytes, 1):.3g}" for one in (stake, other))
    return f"space is short: it saves {own} s a day and GiB, and {other.name} {its} s"
