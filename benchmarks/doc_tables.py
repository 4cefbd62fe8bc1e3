"""The tables of docs/benchmarks.md, its appendix and docs/autopilot.md, from build/bench.json.

    python -m benchmarks.doc_tables [build/bench.json] [--before BENCH.JSON] [--write]

This prints the tables that have figures. With --write it replaces, in the pages, the tables with
the same first rows.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import ssd_cache_tables
from benchmarks.cache_simulated import HIDDEN
from benchmarks.cases import (
    COLLECTIVE,
    CONTESTANTS,
    H_PDLA,
    INDEPENDENT,
    LEASES,
    PD,
    REPLICATED,
    S_LEASE,
    S_ORIG,
    S_PDLA,
    SIEVING,
)
from benchmarks.results import BENCH
from benchmarks.schemes_simulated import SIMULATED
from benchmarks.table import LIMIT_GOAL, LIMITED, NO_REPLICA, PLANNED, WHOLLY
from pdla.units import KiB, format_seconds

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "benchmarks.md", DOCS / "benchmarks-appendix.md", DOCS / "autopilot.md")
STORAGES = ("disks", "seeking", "cephfs")
MPI = {INDEPENDENT: "independent", SIEVING: "sieving", COLLECTIVE: "collective"}
"""What the MPI library does without replicas, as columns."""
ORIGINAL = "original"
PAPER = ((PD, ORIGINAL), (H_PDLA, ORIGINAL), (H_PDLA, PD), (S_PDLA, H_PDLA), (S_PDLA, S_ORIG))
"""The pairs of contestants that the paper compares."""
COSTS = (
    "recorder: recording it",
    "recorder: 4 ranks*",
    "recorder: *: packed",
    "recorder: pdla trace after *",
    "analyzer: regular",
    "analyzer: random",
    "planner: plan of*",
    "builder: 64 KiB, * compared with *",
    "stub: look-up in a nest*, at random",
    "stub: look-up in a table of * irregular extents, *",
    "stub: open of *",
    "stub: open by 8 ranks *",
    "stub: read of 8 bytes in memory *",
    "library: *",
    "overhead: * without a pattern, *",
    "maintenance: status of * replicas",
    "maintenance: verifying*",
)
"""The most informative rows; the sections on the parts have the others."""

Rows = Mapping[str, Mapping[str, Any]]
"""By name."""
Table = list[str]


class Figure(NamedTuple):
    """The result of one contestant in one case: the two rows of table.py."""

    beside: Mapping[str, Any]
    limited: Mapping[str, Any]

    @property
    def replicated(self) -> bool:
        """Whether only replicas served it."""
        return bool(self.beside["replicated"] >= WHOLLY)

    @property
    def rate(self) -> str:
        """MB/s."""
        return _short(self.beside["value"])

    @property
    def share(self) -> str:
        """The share of the limit; if replicas do not serve everything, also their share."""
        if self.replicated:
            return f"{self.limited['ratio']:.2f}"
        return f"{_percent(self.beside['replicated'])} replicated" if self.beside["replicated"] else NO_REPLICA

    @property
    def shares(self) -> str:
        """Likewise, also within calls, if that is known."""
        inside = self.limited["inside"]
        return f"{self.share}; {inside:.2f}" if self.replicated and inside is not None else self.share

    @property
    def gained(self) -> str:
        """MB/s and times the original."""
        return f"{self.rate}, {_short(self.beside['ratio'])} times" if self.beside["replicated"] else NO_REPLICA


Figures = dict[str, dict[str, Figure]]
"""By case and contestant."""


def figures(rows: Rows, storage: str) -> Figures:
    """The figures of a storage, first those of cases that read."""
    found: Figures = {}
    for name, one in rows.items():
        if name.startswith(f"{storage}: ") and f"{name}{LIMITED}" in rows:
            case, contestant = name.removeprefix(f"{storage}: ").rsplit(": ", 1)
            found.setdefault(case, {})[contestant] = Figure(one, rows[f"{name}{LIMITED}"])
    return dict(sorted(found.items(), key=lambda item: _op(item[0]) != "read"))


def summary(rows: Rows) -> Table:
    """What planned replicas gain on each storage."""
    lines = []
    for storage in STORAGES:
        found = figures(rows, storage)
        for op in ("read", "write"):
            for planned in PLANNED:
                if cases := [who for case, who in found.items() if _op(case) == op and planned in who]:
                    lines.append([f"{storage}, {op}: {planned}", *_gains(cases, planned)])
    gains = ("replicas", "x original", "x the best without", "of the limit", f"at {LIMIT_GOAL}")
    return _table(("planned", *gains, "no replica: x original", "spread"), lines)


def _gains(cases: Sequence[Mapping[str, Figure]], planned: str) -> list[str]:
    """How many cases have a replica; their gains and shares of the limit; gains of those without one; all spreads.

    A case that has a replica for some of its bytes counts with neither.
    """
    beside = [who[planned].beside for who in cases]
    own = [(who[planned], who) for who in cases if who[planned].replicated]
    best = [max(who[one].beside["value"] for one in MPI if one in who) for _, who in own]
    goals = [figure.limited["ratio"] >= goal for figure, _ in own if (goal := figure.limited["goal"]) is not None]
    return [
        f"{len(own)} of {len(cases)}",
        _range([figure.beside["ratio"] for figure, _ in own]),
        _range([figure.beside["value"] / other for (figure, _), other in zip(own, best, strict=True)]),
        _range([figure.limited["ratio"] for figure, _ in own], "{:.2f}".format),
        f"{sum(goals)} of {len(goals)}" if goals else "",
        _range([one["ratio"] for one in beside if not one["replicated"]], "{:.2f}".format),
        _range([one["spread"] for one in beside], _percent),
    ]


def rates(first: str, found: Figures, contestants: Sequence[str], inside: bool = False) -> Table:
    """MB/s of contestants, and the share of the limit for replicas, also ``inside`` of calls."""
    lines = []
    for case, who in found.items():
        shares = {one: f" ({who[one].shares if inside else who[one].share})" for one in who if one in REPLICATED}
        lines.append([case, *(who[one].rate + shares.get(one, "") if one in who else "" for one in contestants)])
    return _table([first, *(MPI.get(one, one) for one in contestants)], lines)


def leases(found: Figures) -> Table:
    """Writes with a write-back before the close ends, and after the program."""
    lines = []
    for case, who in found.items():
        if _op(case) == "write" and all(one in who for one in LEASES):
            closed = dict.fromkeys(who[one].gained for one in (H_PDLA, S_PDLA) if one in who)
            leased = [
                who[one].gained + (f" ({who[one].share})" if who[one].beside["replicated"] else "") for one in LEASES
            ]
            lines.append([case.removesuffix(", write"), who[INDEPENDENT].rate, "; ".join(closed), *leased])
    planned = [f"for `lease`, {pool} (of the limit)" for pool in ("disks", "SSDs")]
    return _table(["program, piece", "original", "planned for `close`, disks; SSDs", *planned], lines)


def heads(found: Figures) -> Table:
    """What disks with heads did: requests, seeks; KiB of each; MB/s by the busiest disk."""
    contestants = (INDEPENDENT, PD, H_PDLA)
    lines = []
    for case, who in found.items():
        did = [who[one].beside for one in contestants]
        each = [one["bytes"] / one["requests"] / KiB for one in did]
        cells = [
            f"{one['requests']:.0f}, {one['seeks']:.0f}; {size:.0f}; {_short(one['by_heads'])}"
            for one, size in zip(did, each, strict=True)
        ]
        lines.append([case, *cells])
    return _table(["program, piece", *contestants], lines)


def beside_the_paper(rows: Rows) -> Table:
    """How many times as fast contestants are as others, and what the paper says about similar cases."""
    lines = []
    for storage in STORAGES:
        for case, who in figures(rows, storage).items():
            # The paper writes its replicas as pdla does under a lease.
            leased = who | {one.removesuffix(", lease"): who[one] for one in LEASES if one in who}
            cells = [_beside(leased, own, INDEPENDENT if other == ORIGINAL else other, other) for own, other in PAPER]
            if any("(" in cell for cell in cells):
                lines.append([f"{storage}: {case}", *cells])
    return _table(["the paper's in parentheses", *(f"{own}, x {other}" for own, other in PAPER)], lines)


def _beside(who: Mapping[str, Figure], own: str, other: str, called: str) -> str:
    if own not in who or other not in who:
        return ""
    times = who[own].beside["value"] / who[other].beside["value"]
    said = re.findall(rf"([\w. -]+) x {re.escape(called)}(?![\w-])", who[own].beside["paper"])
    return f"{times:.{0 if times >= 20 else 2}f}" + (f" ({'; '.join(one.strip() for one in said)})" if said else "")


def costs(rows: Rows, before: Rows) -> Table:
    """The costs of pdla's parts, and what an earlier version found ``before``."""
    lines = []
    for name in (name for glob in COSTS for name in rows if fnmatch.fnmatchcase(name, glob)):
        one = rows[name]
        beside = "" if one["ratio"] is None else f"{one['ratio']:.2f} of {_number(one['baseline'])}"
        spread = "" if one["spread"] is None else _percent(one["spread"])
        goal = "" if one["goal"] is None else _number(one["goal"])
        earlier = _number(before[name]["value"]) if name in before else ""
        lines.append([name, earlier, f"{_number(one['value'])} {one['unit']}", beside, spread, goal])
    return _table(("cost", "before", "found", "compared with", "spread", "goal"), lines)


SCALE = "scale: "


def growth(rows: Rows) -> Table:
    """How the seconds of each step grow: the slope over the last decade."""
    lines = [
        [name.removeprefix(SCALE), format_seconds(one["seconds"]), f"{one['value']:.2f}"]
        for name, one in rows.items()
        if name.startswith(SCALE)
    ]
    return _table(("step, from the least to the most", "takes with the most", "slope"), lines)


MONTHS = {
    "month": "with `--learn`",
    "month --policy=auto": "`--policy auto`",
    "month --writes=lease": "`--writes lease`",
}
ALL_RUNS = "all, as a multiple of pdla's"


def months(rows: Rows) -> Table:
    """By application, the seconds natively, and the share of them that is left with each way to learn."""
    first = next(iter(MONTHS))
    names = [name.removeprefix(f"{first}: ") for name, one in rows.items() if name.startswith(f"{first}: ")]
    lines = []
    for name in (name for name in names if rows[f"{first}: {name}"]["unit"] == "s of I/O"):
        found = [rows.get(f"{month}: {name}") for month in MONTHS]
        if name == ALL_RUNS:
            native = rows[f"{first}: {name}"]["value"]
            lines.append(
                ["**all**", "", f"{native:.1f} s", *(f"**{1 / one['ratio']:.2f}**" if one else "" for one in found)]
            )
        else:
            program, runs = name.removesuffix(" runs").rsplit(", ", 1)
            native = rows[f"{first}: {name}"]["baseline"]
            lines.append([program, runs, f"{native:.1f} s", *(f"{one['ratio']:.2f}" if one else "" for one in found)])
    return _table(("application", "runs", "natively", *MONTHS.values()), lines)


CONTEST = re.compile(r"caches: (\w+, \d+ nodes: )contest: (.*?, \d+ ranks): (.*)")
CACHED = {
    INDEPENDENT: "independent",
    SIEVING: "sieving",
    COLLECTIVE: "collective",
    "S-PDLA, lease": "lease",
    "E10, immediate": "E10",
    "E10, on close": "E10, on close",
    "E10, hidden": "E10, hidden",
}
"""The contestants of benchmarks/caches.py, as columns."""
PERCEIVED, TIME = "E10, hidden, perceived, of devices", "E10, hidden, total time, x least"


def caches(rows: Rows) -> Table:
    """MB/s of checkpoints by each contestant; what a program perceives of the devices, and the time of all."""
    lines = []
    for case, who in _grouped(rows, CONTEST).items():
        cells = [_short(who[one]["value"]) if one in who else "" for one in CACHED]
        shares = [f"{who[one]['ratio']:.2f}" if one in who else "" for one in (PERCEIVED, TIME)]
        lines.append([case, *cells, *shares])
    return _table(("checkpoints", *CACHED.values(), "perceived, of the devices", "time, x least"), lines)


def caches_simulated(rows: Rows) -> Table:
    """What checkpoints perceived with each contestant, as a multiple of what is simulated; how wrong that is."""
    names = {HIDDEN if one == "E10, hidden" else one: column for one, column in CACHED.items() if one != S_LEASE}
    lines = []
    for case, who in _grouped(rows, CONTEST).items():
        if "simulator: mean absolute error" in who:
            times = [f"{who[said]['ratio']:.2f}" for said in (f"{one}, x simulated" for one in names)]
            shares = [
                _percent(who[f"simulator: {what}"]["value"]) for what in ("mean absolute error", "pairs in order")
            ]
            lines.append([case, *times, *shares])
    return _table(("measured, x simulated", *names.values(), "mean error", "pairs in order"), lines)


COMPUTATION = re.compile(r"caches: .*: Eq\. 2: .*: computation of (.*) flushes: (.*)")


def equation_2(rows: Rows) -> Table:
    """What a program perceives beside Eq. 2, by how long it computes."""
    ratios = ("perceived, x Eq. 2", "perceived, x Eq. 2 with an early flush", "total time, x least")
    lines = [
        [computation, _short(who[ratios[0]]["value"]), *(f"{who[one]['ratio']:.2f}" for one in ratios)]
        for computation, who in _grouped(rows, COMPUTATION).items()
    ]
    head = ("computation", "perceived, MB/s", "x Eq. 2", "x Eq. 2 with an early flush", "time, x least")
    return _table(head, lines)


SCHEME = re.compile(r"schemes: (?!smoke )(.*, (?:read|write)): (.*)")
SCHEMES = {one: one for one in SIMULATED} | {INDEPENDENT: ORIGINAL, COLLECTIVE: MPI[COLLECTIVE], S_LEASE: "lease"}
"""The schemes of benchmarks/schemes.py, as columns."""


def schemes(rows: Rows) -> Table:
    """MiB/s of each scheme, measured and, in parentheses, simulated; the fastest one in bold."""
    lines = []
    for program, who in sorted(_grouped(rows, SCHEME).items(), key=lambda item: _op(item[0])):
        rates = {one: who[one]["value"] for one in SCHEMES if one in who}
        best = max(rates, key=lambda one: rates[one])
        cells = []
        for one in SCHEMES:
            text = _short(rates[one]) if one in rates else ""
            said = f" ({_short(who[f'{one}, x simulated']['baseline'])})" if f"{one}, x simulated" in who else ""
            cells.append((f"**{text}**" if one == best else text) + said)
        lines.append([program, *cells, f"{100 * who['simulator: mean absolute error']['value']:.0f} %"])
    return _table(("program", *SCHEMES.values(), "mean error"), lines)


def tables(rows: Rows, before: Rows | None = None) -> Iterator[Table]:
    """All tables that have a line."""
    disks, seeking, ceph = (figures(rows, storage) for storage in STORAGES)
    found = (
        summary(rows),
        rates("program, piece, ranks", disks, CONTESTANTS),
        leases(disks),
        rates("on CephFS", ceph, (*CONTESTANTS, *LEASES), inside=True),
        rates("program, piece", seeking, CONTESTANTS[: CONTESTANTS.index(S_PDLA) + 1]),
        heads(seeking),
        beside_the_paper(rows),
        caches(rows),
        equation_2(rows),
        caches_simulated(rows),
        schemes(rows),
        *(_table(head, list(ssd_cache_tables.lines(rows, op, _short))) for op, head in ssd_cache_tables.heads()),
        costs(rows, before or {}),
        growth(rows),
        months(rows),
    )
    return (table for table in found if len(table) > 2)


def placed(page: str, table: Table) -> str:
    """A page with a table in the place of the one that has its first row; unchanged if there is none."""
    lines = page.splitlines()
    if table[0] not in lines:
        return page
    start = lines.index(table[0])
    end = start + sum(1 for _ in takewhile(lambda line: line.startswith("|"), lines[start:]))
    return "\n".join([*lines[:start], *table, *lines[end:]]) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=Path, default=BENCH)
    parser.add_argument("--before", type=Path, help="the rows of an earlier version, for the table of costs")
    parser.add_argument("--write", action="store_true", help="write the tables into the pages, and print the others")
    options = parser.parse_args()
    if not options.rows.exists():
        parser.error(f"there is no {options.rows}: run make bench")
    rows, before = _rows(options.rows), _rows(options.before) if options.before else {}
    if old := [name for name in rows if f"{name}{LIMITED}" in rows and "replicated" not in rows[name]]:
        parser.error(f"{len(old)} rows are from an earlier version, such as {old[0]}: measure again, or remove them")
    pages = {path: path.read_text() for path in PAGES}
    for table in tables(rows, before):
        there = [path for path, page in pages.items() if options.write and table[0] in page.splitlines()]
        pages |= {path: placed(pages[path], table) for path in there}
        if not there:
            sys.stdout.write("\n".join(table) + "\n\n")
    if options.write:
        for path, page in pages.items():
            path.write_text(page)


def _rows(path: Path) -> Rows:
    return {one["name"]: one for one in json.loads(path.read_text())}


def _grouped(rows: Rows, names: re.Pattern[str]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Rows by what all groups of their names but the last one say, and by the last one."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, one in rows.items():
        if match := names.fullmatch(name):
            *case, what = match.groups()
            found.setdefault("".join(case), {})[what] = one
    return found


def _op(case: str) -> str:
    return case.rsplit(", ", 1)[1]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _number(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _range(values: Sequence[float], text: Callable[[float], str] = _short) -> str:
    """The least, the largest, and the median if there are more than two."""
    ends = list(dict.fromkeys(text(one) for one in (min(values), max(values)))) if values else []
    return " to ".join(ends) + (f" ({text(median(values))})" if len(ends) == 2 < len(values) else "")


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    rule = "|" + "---|" * len(head)
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)]


if __name__ == "__main__":
    main()
