"""A month of the autopilot as a page that can be mailed: one file with tables, without pictures and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import jinja2

from pdla import __version__
from pdla.atomic_files import replacing
from pdla.autopilot.months import ApplicationMonth, Month
from pdla.report.autopilot import undo_of
from pdla.units import counted, format_bytes, format_count, format_seconds, format_share, shown

MOST = 20
"""Applications, and decisions, that are listed."""
TOLD = ("built", "retired", "postponed", "chose", "drifted", "ignored", "paused", "resumed", "forgot")
"""Decisions that are told, those of the first kinds first if there are too many; what is left as it is, is not."""
NAMES = {
    "built": ("replica", "built"),
    "retired": ("replica", "retired"),
    "postponed": ("replica", "postponed"),
    "drifted": ("run", "with other patterns"),
    "chose": ("policy choice", ""),
    "ignored": ("run", "from which nothing was learned"),
}
"""What decisions of a kind are about, and what happened to it."""


def write_month(path: Path, month: Month) -> None:
    """Write the page to ``path``.

    Raises:
        PdlaError: the file cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pdla", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("month.html.j2").render(
        title=f"I/O in {month.first:%B %Y}",
        owner=month.owner,
        head=sentences(month),
        applications=[_row(one) for one in month.applications[:MOST]],
        more=max(len(month.applications) - MOST, 0),
        days=_bars(month),
        decisions=[
            {"when": f"{one.time.astimezone():%-d %b, %H:%M}", "kind": one.kind, "why": one.why, "undo": undo_of(one)}
            for one in _told(month)
        ],
        left=sum(month.counts[kind] for kind in TOLD) - len(_told(month)),
        counts=", ".join(
            f"{counted(month.counts[kind], noun)} {done}".rstrip()
            for kind, (noun, done) in NAMES.items()
            if month.counts[kind]
        ),
        written=datetime.now().astimezone().strftime("%-d %B %Y, %H:%M %Z"),
        version=__version__,
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def sentences(month: Month) -> list[str]:
    """The month in a few sentences."""
    runs = sum(len(one.runs) for one in month.applications)
    if not runs:
        return ["No run was learned from in this month (pdla run --learn -- COMMAND learns from a run)."]
    before, after = (sum(getattr(one, name) for one in month.applications) for name in ("before", "after"))
    estimated = sum(one.estimated for one in month.applications)
    said = [f"{counted(runs, 'run')} of {counted(len(month.applications), 'application')}."]
    if before:
        saved = before - after
        said.append(
            f"Runs that pdla served took {_time(after)} of I/O in place of {_time(before)}: it "
            f"{'saved' if saved >= 0 else 'cost'} {_time(abs(saved))} ({format_share(abs(saved), before)})."
        )
    else:
        said.append("No run was served yet that can be compared with an earlier one.")
    if estimated:
        verb = "saved" if estimated > 0 else "cost"
        said.append(f"Runs that were not recorded, because nothing had changed, {verb} about {_time(abs(estimated))}.")
    space = sum(one.space for one in month.applications)
    said.append(f"The replicas of these applications take {format_bytes(space)} now.")
    return said


def _row(one: ApplicationMonth) -> dict[str, Any]:
    compared = one.before > 0
    return {
        "number": one.id,
        "name": shown(one.name),
        "runs": format_count(len(one.runs)),
        "ranks": ", ".join(map(str, sorted({run.facts.ranks for run in one.runs}))),
        "before": _time(one.before) if compared else "-",
        "after": _time(one.after) if compared else "-",
        "saved": _time(one.saved) if one.saved >= 0 else f"-{_time(-one.saved)}",
        "hits": f"{one.hit_ratio:.0%}",
        "space": format_bytes(one.space),
        "changed": str(one.changed or ""),
        "share": 100 * min(one.after / one.before, 1.0) if compared else 100.0,
        "loses": one.after > one.before,
    }


def _bars(month: Month) -> list[dict[str, Any]]:
    """A bar for each day until today, as a share of the best one."""
    days = {day: saved for day, saved in month.days.items() if day <= date.today()}
    most = max((abs(saved) for saved in days.values()), default=0.0)
    return [
        {
            "day": f"{day:%-d %b}",
            "width": round(100 * abs(saved) / most) if most else 0,
            "saved": f"{'-' if saved < 0 else ''}{_time(abs(saved))}" if saved else "",
            "loses": saved < 0,
        }
        for day, saved in days.items()
    ]


def _told(month: Month) -> Sequence[Any]:
    """The decisions that are listed, oldest first."""
    found = [one for one in month.decisions if one.kind in TOLD]
    kept = sorted(found, key=lambda one: (TOLD.index(one.kind), -one.id))[:MOST]
    return sorted(kept, key=lambda one: one.id)


def _time(seconds: float) -> str:
    """Seconds, or what people say of many: minutes, hours."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.3g} {name}"
    return format_seconds(seconds)
