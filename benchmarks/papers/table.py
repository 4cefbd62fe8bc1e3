"""The rows of the table as the papers' texts state them, and their comparison with simulated values."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
CLUSTERS = HERE.parents[1] / "layouts" / "clusters"
PAPERS = ("pdla", "s4d-cache", "liu", "ibridge", "e10")
TOLERANCE = 0.25
"""Largest deviation from a stated number, either way: as much as simulated times may differ from measured ones."""
MARGIN = 0.05
"""What a text says without a number must hold by this share: what falls or rises changes by it from the first value to
the last, what is faster or steadier is so by it at every value, a bound is met with as much to spare."""
AGAINST = 0.01
"""A value that falls or rises may go the other way by this share of the value before it."""
NEAR_ZERO = 5.0
"""Percentage points by which a gain may always be off, and within which "the same" is."""
VARIED = ("disk start-up", "disk time per byte", "SSD start-up", "SSD time per byte", "link time per byte", "memory")
"""What is varied to see whether a row survives it, each by itself."""
FACTORS = (0.8, 1.2)
KINDS = ("quantitative", "trend", "arithmetic")
"""A number or a range that is simulated; a direction or a bound; what a formula gives."""


class Other(NamedTuple):
    """Another value of a parameter: of the program, of the policy, or (with dots) of a key of cluster.toml; or a factor
    of one of ``VARIED``."""

    key: str
    value: str | int | float


class Point(NamedTuple):
    """One simulated run: an experiment at one value of its sweep, with one scheme, and perhaps with another value of
    something that the text does not state."""

    experiment: str
    value: str
    op: str
    scheme: str
    other: Other | None = None


@dataclass(frozen=True)
class Experiment:
    """What was run for one figure: ``parameters`` are the program's; ``values`` those of the swept one.

    ``others`` are other possible values of what the text does not state. ``larger`` are parameters
    with which more is simulated, to see whether scaling down matters.
    """

    name: str
    cluster: str
    figure: str
    section: str
    program: str
    schemes: tuple[str, ...]
    ops: tuple[str, ...]
    sweep: str
    values: tuple[Any, ...]
    parameters: Mapping[str, Any]
    others: tuple[Other, ...] = ()
    larger: Mapping[str, Any] = field(default_factory=dict)

    def points(self) -> list[Point]:
        """All its runs."""
        return [
            Point(self.name, str(value), op, scheme)
            for value in self.values
            for op in self.ops
            for scheme in self.schemes
        ]

    def taken(self, key: str) -> Any:
        """The value of a parameter, or of a key of cluster.toml."""
        if "." not in key:
            return self.parameters[key]
        table: Any = tomllib.loads((CLUSTERS / f"{self.cluster}.toml").read_text(encoding="utf-8"))
        for part in key.split("."):
            table = table[part]
        return table

    def at(self, point: Point) -> tuple[dict[str, Any], dict[str, str]]:
        """The parameters at a point, and the keys of cluster.toml that have another value there."""
        (chosen,) = (one for one in self.values if str(one) == point.value)
        key, value = point.other or ("", "")
        parameters = {**self.parameters, self.sweep: chosen}
        if "." in key:
            return parameters, {key: str(value)}
        return ({**parameters, key: value} if key and key not in VARIED else parameters), {}


@dataclass(frozen=True)
class Row:
    """One statement of a paper: of an experiment, or of a ``formula`` (benchmarks/papers/closed.py).

    ``stated`` is a number, two ends, one number for each of ``only``, or a text. It is compared
    with a ``measure`` of ``scheme``; or, in percent, with its gain over ``base``, or with its share
    of the value ``against`` another value of the sweep. The testbed has a ``parameter`` from the
    statement itself. ``reason`` says why the simulated value is out of range.
    """

    figure: str
    section: str
    what: str
    stated: Any = None
    unit: str = ""
    compare: str = "value"
    formula: str = ""
    experiment: Experiment | None = None
    op: str = ""
    scheme: str = ""
    base: str = ""
    against: str = ""
    measure: str = "bandwidth"
    only: tuple[str, ...] = ()
    parameter: bool = False
    reason: str = ""

    @property
    def kind(self) -> str:
        """One of ``KINDS``: what a formula gives, a direction or a bound, or a number that is simulated."""
        if self.compare in _TRENDS:
            return "trend"
        return "arithmetic" if self.formula else "quantitative"


@dataclass(frozen=True)
class Unstated:
    """A parameter that a text does not state: what it is, and the values that are tried."""

    key: str
    what: str
    values: tuple[str | int | float, ...]
    experiments: tuple[str, ...]


@dataclass(frozen=True)
class Paper:
    """A paper's rows and experiments, and what its text does not state."""

    name: str
    rows: tuple[Row, ...]
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    unstated: tuple[Unstated, ...] = ()


class Verdict(NamedTuple):
    """The simulated value as text, and whether it is in range; the least and the largest of the compared numbers, if
    there are any."""

    found: str
    within: bool
    ends: tuple[float, float] | None = None


Measures = Mapping[Point, Mapping[str, float]]


def load(name: str, larger: bool = False) -> Paper:
    """The paper of benchmarks/papers/NAME.toml; with ``larger`` only the rows of experiments that have ``larger``
    parameters, with these."""
    text = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    cluster = text["cluster"]
    unstated = [_unstated(key, table) for key, table in text.get("unstated", {}).items()]
    experiments = {
        key: _experiment(f"{name}/{key}", cluster, table, [one for one in unstated if key in one.experiments])
        for key, table in text["experiments"].items()
    }
    if larger:
        experiments = {
            key: replace(one, parameters={**one.parameters, **one.larger})
            for key, one in experiments.items()
            if one.larger
        }
    rows = []
    for table in text["rows"]:
        if larger and table.get("experiment") not in experiments:
            continue
        experiment = experiments[table.pop("experiment")] if "experiment" in table else None
        if experiment:
            table = {"figure": experiment.figure, "section": experiment.section, **table}
        only = tuple(str(value) for value in table.pop("only", experiment.values if experiment else ()))
        rows += _one_by_one(Row(experiment=experiment, only=only, **table))
    return Paper(text["paper"], tuple(rows), experiments, tuple(unstated))


def _unstated(key: str, table: Mapping[str, Any]) -> Unstated:
    return Unstated(key, table["what"], tuple(table["values"]), tuple(table["experiments"]))


def _one_by_one(row: Row) -> list[Row]:
    """A row for each of the numbers that are stated for several values of the sweep."""
    if row.compare != "each" or len(row.only) == 1:
        return [row]
    numbers = zip(row.only, row.stated, strict=True)
    return [replace(row, what=f"{row.what}: {value}", only=(value,), stated=[number]) for value, number in numbers]


def _experiment(name: str, cluster: str, table: dict[str, Any], unstated: Sequence[Unstated]) -> Experiment:
    known = {key: table.pop(key) for key in ("figure", "section", "program", "sweep")}
    schemes, values = tuple(table.pop("schemes")), tuple(table.pop("values"))
    others = tuple(Other(one.key, value) for one in unstated for value in one.values)
    return Experiment(name, cluster, schemes=schemes, ops=tuple(table.pop("ops", ("read", "write"))), values=values,
                      larger=table.pop("larger", {}), parameters=table, others=others, **known)  # fmt: skip


def needed(row: Row, other: Other | None = None) -> list[Point]:
    """The runs of a row."""
    if row.experiment is None:
        return []
    return [
        Point(row.experiment.name, value, row.op, scheme, other)
        for value in (*row.only, *([row.against] if row.against else []))
        for scheme in (row.scheme, row.base)
        if scheme
    ]


def judge(
    row: Row, measures: Measures, formulas: Mapping[str, Callable[[], Any]], other: Other | None = None
) -> Verdict:
    """The simulator's or a formula's value for a row, and whether it agrees with the paper."""
    if row.formula:
        return _judge_formula(row, formulas[row.formula]())
    values = _values(row, measures, other)
    verdict = _COMPARISONS[row.compare](row, values)
    return verdict if verdict.ends else verdict._replace(ends=(min(values), max(values)))


def if_otherwise(row: Row, measures: Measures, unstated: Sequence[Unstated]) -> str:
    """The values of a row for other values of what is not stated: the extremes, and where it would be in range."""
    found = []
    for one in unstated:
        others = [Other(one.key, value) for value in one.values]
        if row.parameter or row.experiment is None or not set(others) <= set(row.experiment.others):
            continue
        verdicts = [judge(row, measures, {}, other) for other in (None, *others)]
        ends = [end for verdict in verdicts for end in verdict.ends or ()]
        within = [str(other.value) for other, verdict in zip(others, verdicts[1:], strict=True) if verdict.within]
        holds = "always" if len(within) == len(others) else f"at {', '.join(within)}" if within else "never"
        found.append(f"`{one.key}` {_ends(min(ends), max(ends))}: {holds}")
    return "; ".join(found)


def variations(row: Row, measures: Measures) -> list[Other]:
    """What may change a row: every one of ``VARIED`` that its runs use, by each of ``FACTORS``."""
    used = [name for name in VARIED if any(_uses(point, name, measures[point]) for point in needed(row))]
    return [Other(name, factor) for name in used for factor in FACTORS]


def varied(row: Row, other: Other, measures: Measures) -> list[Point]:
    """The runs of a row that ``other`` may change."""
    return [point._replace(other=other) for point in needed(row) if _uses(point, other.key, measures[point])]


def sensitive(row: Row, measures: Measures) -> list[str]:
    """What takes a row out of range that is in range, for example "disk start-up +20 %"."""
    found = []
    for other in variations(row, measures):
        whole = {point._replace(other=other): measures[point] for point in needed(row)} | dict(measures)
        if not judge(row, whole, {}, other).within:
            found.append(f"{other.key} {100 * (float(other.value) - 1):+.0f} %")
    return found


def _uses(point: Point, name: str, measured: Mapping[str, float]) -> bool:
    """Whether a run uses a device (``served_hdd``, ``served_ssd``: how many requests each kind served)."""
    if name == "memory":
        return point.op == "write"
    if name == "link time per byte":
        return True
    return measured["served_hdd" if name.startswith("disk") else "served_ssd"] > 0


def _judge_formula(row: Row, found: Any) -> Verdict:
    """A formula must agree to the printed digits; one of physics must be ``near``, one with a bound beyond it."""
    if isinstance(row.stated, str):
        return Verdict(str(found), str(found) == row.stated)
    if row.compare in _TRENDS:
        return _COMPARISONS[row.compare](row, [found])
    if row.compare == "near":
        return _one(row, found)
    digits = -int(Decimal(str(row.stated)).as_tuple().exponent)
    return Verdict(_number(found), round(found, digits) == row.stated)


def _values(row: Row, measures: Measures, other: Other | None) -> list[float]:
    """The compared values, at each value of the sweep."""

    def of(scheme: str, measure: str = "bandwidth") -> list[float]:
        return [measures[Point(_name(row), value, row.op, scheme, other)][measure] for value in row.only]

    if row.against:
        whole = measures[Point(_name(row), row.against, row.op, row.scheme, other)]["bandwidth"]
        return [100 * value / whole for value in of(row.scheme)]
    if row.compare == "steadier":
        return [max(values) / min(values) for values in (of(row.scheme), of(row.base))]
    if not row.base:
        return of(row.scheme, row.measure)
    if row.compare == "best":
        return [100 * (max(of(row.scheme)) / max(of(row.base)) - 1)]
    pairs = zip(of(row.scheme), of(row.base), strict=True)
    if row.measure == "saved":
        return [base - mine for mine, base in zip(of(row.scheme, "seconds"), of(row.base, "seconds"), strict=True)]
    if row.measure == "less_time":
        return [100 * (1 - base / scheme) for scheme, base in pairs]
    return [100 * (scheme / base - 1) for scheme, base in pairs]


def _name(row: Row) -> str:
    assert row.experiment is not None
    return row.experiment.name


def close(found: float, stated: float, unit: str) -> bool:
    """Within TOLERANCE of the stated number, or NEAR_ZERO percentage points.

    >>> close(11, 9, "%"), close(15, 9, "%"), close(70, 58, "MB/s"), close(80, 58, "MB/s")
    (True, False, True, False)
    """
    return abs(found - stated) <= max(TOLERANCE * abs(stated), NEAR_ZERO if unit == "%" else 0.0)


def _range(row: Row, values: Sequence[float]) -> Verdict:
    low, high = min(values), max(values)
    within = close(low, row.stated[0], row.unit) and close(high, row.stated[1], row.unit)
    return Verdict(_ends(low, high), within)


def _one(row: Row, value: float) -> Verdict:
    return Verdict(_number(value), close(value, row.stated, row.unit), (value, value))


def _each(row: Row, values: Sequence[float]) -> Verdict:
    found = ", ".join(_number(value) for value in values)
    return Verdict(found, all(close(value, stated, row.unit) for value, stated in zip(values, row.stated, strict=True)))


def _trend(values: Sequence[float], sign: int) -> Verdict:
    """The values must change by MARGIN in all, and from none to the next by more than AGAINST the other way."""
    in_order = all(sign * (after - before) >= -AGAINST * abs(before) for before, after in pairwise(values))
    clear = sign * (values[-1] - values[0]) >= MARGIN * abs(values[0])
    return Verdict(", ".join(_number(value) for value in values), in_order and clear)


def _all(values: Sequence[float], holds: bool) -> Verdict:
    return Verdict(_ends(min(values), max(values)), holds)


def _spared(row: Row) -> float:
    """What a bound needs to spare."""
    return MARGIN * abs(row.stated)


_COMPARISONS: Mapping[str, Callable[[Row, list[float]], Verdict]] = {
    "range": _range,
    "most": lambda row, values: _one(row, max(values)),
    "best": lambda row, values: _one(row, values[0]),
    "mean": lambda row, values: _one(row, sum(values) / len(values)),
    "each": _each,
    "falls": lambda row, values: _trend(values, -1),
    "rises": lambda row, values: _trend(values, 1),
    "faster": lambda row, values: _all(values, min(values) >= 100 * MARGIN),
    "slower once": lambda row, values: _all(values, min(values) <= -100 * MARGIN),
    "steadier": lambda row, values: Verdict(
        " against ".join(map(_number, values)) + " times", values[1] >= (1 + MARGIN) * values[0]
    ),
    "the same": lambda row, values: _all(values, max(map(abs, values)) <= NEAR_ZERO),
    "steady": lambda row, values: _all([100 * (values[-1] / values[0] - 1)], abs(values[-1] / values[0] - 1) <= MARGIN),
    "below": lambda row, values: _all(values, max(values) <= row.stated - _spared(row)),
    "above": lambda row, values: _all(values, min(values) >= row.stated + _spared(row)),
}
_LEAST = f"by {100 * MARGIN:g} %"
_TRENDS = {
    "falls": f"falls, {_LEAST} in all",
    "rises": f"rises, {_LEAST} in all",
    "faster": f"faster, {_LEAST}",
    "slower once": f"slower at a value, {_LEAST}",
    "steadier": f"steadier, {_LEAST}",
    "the same": f"the same within {NEAR_ZERO:g} %",
    "steady": f"the same within {100 * MARGIN:g} %",
    "below": "<",
    "above": ">",
}
"""The comparisons of trends and bounds, as the table names them."""


def stated(row: Row) -> str:
    """The paper's side of a row, as text."""
    if row.stated is None:
        return _TRENDS[row.compare]
    if isinstance(row.stated, str):
        return row.stated
    if isinstance(row.stated, list):
        numbers = list(dict.fromkeys(_plain(number) for number in row.stated))
        text = (" to " if row.compare == "range" else ", ").join(numbers)
    else:
        text = f"{_TRENDS.get(row.compare, '')} {_plain(row.stated)}"
    return f"{text} {row.unit}".strip()


def legend(paper: Paper) -> list[str]:
    """What the text does not state, the assumed values, and others that were tried: a Markdown table, or nothing."""
    lines = []
    for one in paper.unstated:
        experiments = [experiment for name, experiment in paper.experiments.items() if name in one.experiments]
        taken = ", ".join(dict.fromkeys(str(experiment.taken(one.key)) for experiment in experiments))
        figures = ", ".join(dict.fromkeys(experiment.figure for experiment in experiments))
        lines.append(f"| `{one.key}` | {one.what} | {figures} | {taken} | {', '.join(map(str, one.values))} |")
    heads = ["| not stated | what it is | figures | used | tried |", "|---|---|---|---|---|"]
    return ["\n".join([*heads, *lines])] if lines else []


def line(row: Row, verdict: Verdict, fragile: Sequence[str] = (), otherwise: str = "") -> str:
    """A row of the Markdown table; ``fragile`` is what takes it out of range (``sensitive``)."""
    within = "parameter" if row.parameter else "yes" if verdict.within else "no"
    if fragile:
        within += f", sensitive: {', '.join(fragile)}"
    percent = row.base or row.compare in ("steady", "the same")
    unit = row.unit or ("" if row.compare == "steadier" or row.formula else "%" if percent else "MB/s")
    where = row.figure if row.figure == row.section else f"{row.figure} ({row.section})"
    cells = (where, row.what, row.kind, stated(row), f"{verdict.found} {unit}".strip(), within, otherwise)
    return f"| {' | '.join(cells)} | {'' if verdict.within else row.reason} |"


def _ends(low: float, high: float) -> str:
    return _number(low) if _number(low) == _number(high) else f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    """Three digits, as a model deserves, and no more than three after the point.

    >>> _number(1234.5), _number(12.345), _number(0.8412), _number(-0.00001)
    ('1230', '12.3', '0.841', '0')
    """
    if abs(value) < 5e-4:
        return "0"
    rounded = Decimal(f"{round(value, 3):.3g}")
    return f"{rounded:f}".rstrip("0").rstrip(".") if rounded % 1 else f"{int(rounded)}"


def _plain(value: float) -> str:
    return f"{value:g}"
