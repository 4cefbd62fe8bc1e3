"""A simulated month in which applications share the space for replicas by worth, beside an offline optimum.

    python -m benchmarks.sharing [--applications 50] [--runs 10000] [--months 8] [--picture FILE]

What a run saves is simulated; who gets the space is decided by ``pdla.autopilot`` itself, which sees no
more than it sees of real runs: patterns after their first run, predictions that are wrong by a factor,
and measurements with noise. Saved seconds are those of the runs, less those of background work.
"""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from pdla.autopilot.factors import RECENT, Factor, Observation, factors
from pdla.autopilot.worth import DAY, RUNS, PastRun, Stake, Step, attributed, failure, lasting, steps
from pdla.units import GiB

DAYS = 30
ROOM = 0.5
"""The space, as a share of what all applications could use at the beginning."""
BUILD_SECONDS = 5.0
"""Background work for a GiB of a replica: it is read and written once."""
FILL_DAYS = 1.0
"""Background work may fill the space in so many days."""
OFF = {"ssd": 1.6, "hdd": 0.8}
"""The seconds of a pool, over those of its model; ``OFF_SPREAD`` (log-normal) more for each pattern."""
OFF_SPREAD = 0.2
NOISE = 0.03
"""Of a run's measured seconds, of all its I/O."""
USELESS = 0.06
"""Of all patterns: a replica makes them slower, whatever is predicted."""
LASTING = {60: 0.15, 200: 0.35, 600: 0.3, 10**9: 0.2}
"""Runs after which a pattern of an application changes, on average, and the share of such applications."""
KINDS = {"steady": 0.6, "nightly": 0.12, "office hours": 0.14, "series": 0.14}
"""When applications run, and the share of each."""
DIVIDED_SECONDS = DAY / 4
"""The space is shared anew as often, and after each run with a new pattern."""
FORGOTTEN = 6
"""A pattern that none of the last runs had, so many, is proposed no more."""


@dataclass(frozen=True)
class Pattern:
    """A pattern of an application: bytes of its replica, and the seconds of a run with and without it."""

    number: int
    application: int
    bytes: int
    pool: str
    before: float
    modelled: float
    after: float

    @property
    def gain(self) -> float:
        """Seconds that a run saves, in truth."""
        return self.before - self.after

    @property
    def build(self) -> float:
        """Seconds of background work."""
        return BUILD_SECONDS * self.bytes / GiB


@dataclass(frozen=True)
class Run:
    """A run, at its end (seconds), with the patterns that it has."""

    time: float
    application: int
    patterns: tuple[int, ...]


@dataclass(frozen=True)
class Month:
    """What happens: all patterns, by number, all runs in order, the bytes of space, and background bytes a second."""

    patterns: Sequence[Pattern]
    runs: Sequence[Run]
    room: int
    bandwidth: float


@dataclass
class Outcome:
    """What a way to share the space reached: saved seconds, after each run too, and builds."""

    saved: float = 0.0
    course: list[tuple[float, float]] = field(default_factory=list)
    built: int = 0
    removed: int = 0
    retired: int = 0
    factors: dict[str, Factor] = field(default_factory=dict)


def simulated_month(applications: int, runs: int, seed: int) -> Month:
    """Applications that run as often as a log-normal distribution says, with patterns that change."""
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0, 1.2, applications)
    patterns: list[Pattern] = []
    found: list[Run] = []
    first_bytes = 0

    def new(application: int, size: float, per_gib: float, pool: str) -> int:
        bytes_ = int(size * rng.lognormal(0, 0.3)) + 1
        before = per_gib * bytes_ / GiB
        modelled = before * rng.uniform(0.05, 0.7)
        after = modelled * OFF[pool] * rng.lognormal(0, OFF_SPREAD)
        if rng.random() < USELESS:
            after = before * rng.uniform(1.0, 1.3)
        patterns.append(Pattern(len(patterns), application, bytes_, pool, before, modelled, after))
        return len(patterns) - 1

    for application, weight in enumerate(weights):
        kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
        times = _times(rng, kind, max(1, round(runs * weight / weights.sum())))
        files = [
            (8 * GiB * rng.lognormal(0, 1.0), 5 * rng.lognormal(0, 1.5), str(rng.choice(list(OFF))))
            for _ in range(rng.integers(1, 5))
        ]
        live = [new(application, *one) for one in files]
        first_bytes += sum(patterns[i].bytes for i in live)
        lasts = int(rng.choice(list(LASTING), p=list(LASTING.values())))
        for time in times:
            for j, one in enumerate(files):
                if rng.random() < 1 / lasts:
                    live[j] = new(application, *one)
            found.append(Run(float(time), application, tuple(live)))
    room = int(ROOM * first_bytes)
    return Month(patterns, sorted(found, key=lambda run: run.time), room, room / (FILL_DAYS * DAY))


def _times(rng: np.random.Generator, kind: str, count: int) -> npt.NDArray[np.float64]:
    """The ends of ``count`` runs (of nightly ones, the same number each night)."""
    if kind == "steady":
        return np.sort(rng.uniform(0, DAYS * DAY, count))
    if kind == "nightly":
        nights = np.repeat(np.arange(DAYS), max(1, round(count / DAYS)))
        return np.sort(nights * DAY + rng.uniform(2, 5, len(nights)) * 3600)
    if kind == "office hours":
        days = [day for day in range(DAYS) if day % 7 < 5]
        return np.sort(rng.choice(days, count) * DAY + rng.uniform(8, 20, count) * 3600)
    series = int(rng.integers(2, 5))
    starts, lengths = rng.uniform(0, (DAYS - 4) * DAY, series), rng.uniform(1, 4, series) * DAY
    which = rng.integers(0, series, count)
    return np.sort(starts[which] + rng.uniform(0, 1, count) * lengths[which])


class Sharing:
    """The month as ``pdla.autopilot`` shares the space."""

    def __init__(self, month: Month, seed: int) -> None:
        self._month, self._rng = month, np.random.default_rng(seed)
        self._past: dict[int, list[PastRun]] = {}
        self._earlier: dict[int, list[float]] = {}
        self._live: dict[int, list[int]] = {}
        self._ends: dict[int, list[float]] = {}
        self._lasted: dict[int, tuple[int, int]] = {}
        self._built: dict[int, float] = {}
        self._retired: set[int] = set()
        self._queue: list[Step] = []
        self._building: tuple[int, float] | None = None
        self._idle_since = 0.0
        self._observed: list[Observation] = []
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """All runs, one after the other."""
        divided = 0.0
        for run in self._month.runs:
            self._build(run.time)
            is_new = any(i not in self._past for i in run.patterns)
            self._learn(run)
            if is_new or run.time >= divided:
                divided = run.time + DIVIDED_SECONDS
                self._divide(run.time)
            self.outcome.course.append((run.time, self.outcome.saved))
        return self.outcome

    def _build(self, now: float) -> None:
        """Carry out steps until ``now``."""
        while True:
            if self._building is None:
                if not self._queue:
                    self._idle_since = max(self._idle_since, now)
                    return
                step = self._queue.pop(0)
                for one in step.remove:
                    self.outcome.removed += self._built.pop(int(one.name), None) is not None
                if step.build is not None:
                    pattern = self._month.patterns[int(step.build)]
                    self._building = pattern.number, self._idle_since + pattern.bytes / self._month.bandwidth
                    self.outcome.saved -= pattern.build
                continue
            number, done = self._building
            if done > now:
                return
            self._built[number], self._idle_since, self._building = done, done, None
            self.outcome.built += 1

    def _learn(self, run: Run) -> None:
        """Serve a run with what is there, measure it, and retire what did not pay."""
        patterns = [self._month.patterns[i] for i in run.patterns]
        read = [one for one in patterns if one.number in self._built]
        gain = sum(one.gain for one in read)
        self.outcome.saved += gain
        measured = gain + self._rng.normal(0, NOISE * sum(one.before for one in patterns))
        shares = attributed(measured, {str(one.number): max(self._predicted(one), 1e-9) for one in read})
        ends = self._ends.setdefault(run.application, [])
        live = self._live.setdefault(run.application, [])
        for i in run.patterns:
            if i not in self._past:
                self._past[i], self._earlier[i] = [], ends[-RUNS:]
                live.append(i)
        before, ended = self._lasted.get(run.application, (0, 0))
        for i in list(live):
            past = self._past[i]
            ended += bool(past) and past[-1].reads and i not in run.patterns
            past.append(PastRun(run.time, i in run.patterns, shares.get(str(i))))
            if i not in self._built and not any(one.reads for one in past[-FORGOTTEN:]):
                live.remove(i)
        self._lasted[run.application] = before + len(patterns), ended
        ends.append(run.time)
        for one in read:
            value = self._factor(one.pool)
            saved = shares[str(one.number)]
            self._observed.append(Observation(one.pool, one.before, one.modelled * value, saved, value))
            if failure(self._stake(one)):
                self._retired.add(one.number)
                del self._built[one.number]
                self.outcome.retired += 1

    def _divide(self, now: float) -> None:
        self._observed = self._observed[-RECENT * 20 :]
        self.outcome.factors = factors(self._observed)
        building = self._building[0] if self._building else -1
        taken = self._month.patterns[building].bytes if self._building else 0
        known = [i for live in self._live.values() for i in live if i not in self._retired and i != building]
        stakes = [self._stake(self._month.patterns[i]) for i in known]
        self._queue = list(steps(stakes, {"pool": self._month.room - taken}, now))

    def _factor(self, pool: str) -> float:
        return self.outcome.factors[pool].value if pool in self.outcome.factors else 1.0

    def _predicted(self, pattern: Pattern) -> float:
        return pattern.before - pattern.modelled * self._factor(pattern.pool)

    def _stake(self, pattern: Pattern) -> Stake:
        return Stake(
            str(pattern.number),
            {"pool": pattern.bytes},
            self._predicted(pattern),
            self._past[pattern.number][-2 * RUNS :],
            self._earlier[pattern.number],
            self._built.get(pattern.number),
            pattern.build,
            lasting(*self._lasted[pattern.application]),
        )


def by_worth(month: Month, seed: int = 0) -> Outcome:
    """The month as pdla shares the space; ``seed`` is that of the noise."""
    return Sharing(month, seed).run()


def by_last_use(month: Month) -> Outcome:
    """The month with the usual rule of caches: what a run has is built, in place of what was read least recently."""
    outcome = Outcome()
    held: OrderedDict[int, None] = OrderedDict()
    queue: list[int] = []
    free, idle_since = month.room, 0.0
    for run in month.runs:
        while queue and idle_since <= run.time:
            pattern = month.patterns[queue.pop(0)]
            if pattern.bytes > month.room:
                continue
            while pattern.bytes > free:
                free += month.patterns[held.popitem(last=False)[0]].bytes
                outcome.removed += 1
            held[pattern.number] = None
            free -= pattern.bytes
            idle_since += pattern.bytes / month.bandwidth
            outcome.built += 1
            outcome.saved -= pattern.build
        idle_since = max(idle_since, run.time) if not queue else idle_since
        for i in run.patterns:
            if i in held:
                outcome.saved += month.patterns[i].gain
                held.move_to_end(i)
            elif i not in queue:
                queue.append(i)
        outcome.course.append((run.time, outcome.saved))
    return outcome


def offline_bound(month: Month, interval: float = DAY / 4) -> float:
    """Seconds that nobody can save more of, with the same space and background work, who knows the whole month.

    A linear program: in each interval of time (seconds) a share of each replica is there at its
    beginning, or is built in it, and serves the runs of the interval to this share. What is there at
    the beginning fits in the space; what is built, in the bandwidth. A real schedule does no more than
    that, since each run is served by what was there or was built since. No replica is there before the
    first run that has its pattern: until then nobody has seen it.
    """
    import highspy

    gains: dict[tuple[int, int], float] = {}
    alive: dict[int, tuple[int, int]] = {}
    for run in month.runs:
        at = int(run.time // interval)
        for i in run.patterns:
            if month.patterns[i].gain > 0:
                if i in alive:
                    gains[i, at] = gains.get((i, at), 0.0) + month.patterns[i].gain
                alive[i] = alive.get(i, (at, at))[0], at
    costs: list[float] = []
    held: dict[int, list[tuple[int, float]]] = {}
    made: dict[int, list[tuple[int, float]]] = {}
    limits: list[list[tuple[int, float]]] = []

    def variable(cost: float) -> tuple[int, float]:
        costs.append(cost)
        return len(costs) - 1, 1.0

    for i, (first, last) in alive.items():
        pattern = month.patterns[i]
        share = pattern.bytes / month.room
        before: list[tuple[int, float]] = []
        for at in range(first, last + 1):
            there = [variable(-pattern.build)]
            made.setdefault(at, []).append((there[0][0], share))
            if before:
                there.append(variable(0.0))
                held.setdefault(at, []).append((there[1][0], share))
                limits.append([there[1], *((one, -1.0) for one, _ in before)])
            if (i, at) in gains:
                limits.append([variable(gains[i, at]), *((one, -1.0) for one, _ in there)])
            before = there
    rows = [*((row, 1.0) for row in held.values()), *((row, 0.0) for row in limits)]
    rows += [(row, month.bandwidth * interval / month.room) for row in made.values()]
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(costs), len(rows)
    program.col_cost_ = -np.array(costs)
    program.col_lower_, program.col_upper_ = np.zeros(len(costs)), np.ones(len(costs))
    program.row_lower_ = np.full(len(rows), -highspy.kHighsInf)
    program.row_upper_ = np.array([limit for _, limit in rows])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _ in rows)])
    program.a_matrix_.index_ = np.array([one for row, _ in rows for one, _ in row])
    program.a_matrix_.value_ = np.array([value for row, _ in rows for _, value in row])
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError("the linear program of the bound was not solved")
    return -float(solver.getInfo().objective_function_value)


def draw(month: Month, bound: float, ways: dict[str, Outcome], file: Path) -> None:
    """The saved seconds in the course of the month, as shares of the bound."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for number, (name, outcome) in enumerate(ways.items()):
        days, saved = zip(*((time / DAY, 100 * saved / bound) for time, saved in outcome.course), strict=True)
        axes.plot(days, saved, color=f"C{number}", label=f"{name}: {100 * outcome.saved / bound:.1f} %")
    axes.axhline(100, color="black", linewidth=1.2, label="the offline bound at the end of the month")
    axes.set_xlabel("day")
    axes.set_ylabel("saved seconds, % of the bound")
    applications = len({run.application for run in month.runs})
    axes.set_title(f"{applications} applications, {len(month.runs):,} runs, space for half of them", fontsize=10)
    axes.legend(loc="upper left", fontsize=8)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Print a row for each month, and draw the first one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=50)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--months", type=int, default=8, help="simulated months, each with another seed")
    parser.add_argument("--picture", type=Path, default=Path("build/bench-sharing.png"))
    options = parser.parse_args()
    if min(options.applications, options.runs, options.months) < 1:
        parser.error("--applications, --runs and --months must be at least 1")
    shares = []
    for seed in range(options.months):
        month = simulated_month(options.applications, options.runs, seed)
        bound, worth, last_use = offline_bound(month), by_worth(month, seed), by_last_use(month)
        shares.append(worth.saved / bound)
        known = ", ".join(f"{pool} {one.value:.2f}" for pool, one in sorted(worth.factors.items()))
        sys.stdout.write(
            f"month {seed}: {len(month.patterns)} patterns; by worth {100 * worth.saved / bound:.1f} % of the bound "
            f"with {worth.built} builds, {worth.retired} retired, factors {known}; "
            f"by last use {100 * last_use.saved / bound:.1f} % with {last_use.built}\n"
        )
        sys.stdout.flush()
        if seed == 0:
            options.picture.parent.mkdir(parents=True, exist_ok=True)
            draw(month, bound, {"by worth": worth, "by last use": last_use}, options.picture)
    sys.stdout.write(f"by worth: median {100 * median(shares):.1f} %, least {100 * min(shares):.1f} %\n")


if __name__ == "__main__":
    main()
