"""What the autopilot learned and did, as tables and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from pdla.file_policies import FilePolicies
from pdla.report.text import paragraph, table
from pdla.units import counted, format_bytes, format_count, format_seconds, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pdla.autopilot.chains import Chain
    from pdla.autopilot.factors import Factor
    from pdla.catalog import AutopilotApplication, Decision, LearnedRun

UNDO = {
    "learned": "pdla undo {id}",
    "planned": "pdla undo {id}",
    "left": "pdla undo {id}",
    "built": "pdla undo {id}",
    "postponed": "pdla undo {id}",
    "retired": "pdla undo {id}",
    "chose": "pdla undo {id}",
    "paused": "pdla resume",
    "resumed": "pdla pause",
}
"""The command that undoes a decision of a kind."""


def applications_text(found: Sequence[tuple[AutopilotApplication, Sequence[LearnedRun], int]]) -> str:
    """Applications, each with its runs and the bytes of its replicas."""
    if not found:
        return "No application is known yet: pdla run --learn -- COMMAND learns from a run."
    headers = ("", "application", "runs", "last run", "ranks", "replicas", "hits", "saved")
    rows = []
    for one, runs, size in found:
        saved = [run.facts.measured for run in runs if run.facts.measured is not None]
        rows.append(
            [
                str(one.id),
                one.name,
                format_count(len(runs)),
                f"{one.last.astimezone():%Y-%m-%d %H:%M}" if one.last else "-",
                ", ".join(map(str, sorted({run.facts.ranks for run in runs}))),
                format_bytes(size),
                f"{runs[-1].facts.hit_ratio:.0%}" if runs else "-",
                format_seconds(sum(saved)) if saved else "-",
            ]
        )
    return table(headers, rows, "rlrrlrrr")


def history_text(application: AutopilotApplication, runs: Sequence[LearnedRun], factors: Mapping[str, Factor]) -> str:
    """The runs of an application, and what changed in which of them."""
    headers = ["run", "date", "ranks", "bytes", "before", "after", "hits", "predicted", "measured", "changes"]
    has_policies = any(run.facts.policy for run in runs)
    headers += ["policy", "all I/O"] if has_policies else []
    rows = [
        [
            str(run.id),
            f"{run.time.astimezone():%Y-%m-%d %H:%M}",
            format_count(run.facts.ranks),
            format_bytes(run.facts.bytes),
            _seconds(run.facts.before),
            _seconds(run.facts.seconds),
            f"{run.facts.hit_ratio:.0%}",
            _seconds(run.facts.predicted or None),
            _seconds(run.facts.measured),
            str(len(run.facts.drift) or ""),
            *([_policies(run.facts.policy), _seconds(run.facts.io)] if has_policies else []),
        ]
        for run in runs
    ]
    lines = [
        paragraph(f"Application {application.id}: {application.name}"),
        "",
        table(headers, rows, "r" * len(headers)),
    ]
    for run in runs:
        if run.facts.drift:
            lines += ["", f"Run {run.id} changed:"]
            lines += [
                paragraph(f"{one.kind}: {one.op} of {shown(one.file)}: {one.what}", "  ") for one in run.facts.drift
            ]
    if runs and FilePolicies.from_text(runs[-1].facts.policy).rules:
        said = f"Run {runs[-1].id} had {FilePolicies.from_text(runs[-1].facts.policy).sentence}."
        lines += ["", paragraph(said)]
    if factors:
        known = [
            f"{pool} {one.value:.2f} (by {counted(one.observations, 'replica')} read)"
            for pool, one in sorted(factors.items())
        ]
        lines += ["", paragraph(f"Factors of the pools' seconds, as measured: {', '.join(known)}")]
    served = [run for run in runs if not run.facts.run]
    lines += ["", f"{counted(len(served), 'run')} served, but not recorded: nothing had changed."] if served else []
    return "\n".join(lines)


def chains_text(found: Sequence[Chain], names: Mapping[int, str]) -> str:
    """Files from one application to another; ``names`` are those of the applications."""
    if not found:
        return "No application reads what another one has written."
    headers = ("times", "writes take", "reads take", "written by", "read by", "file")
    rows = [
        [
            format_count(one.times),
            format_seconds(median(one.writing)),
            format_seconds(median(one.reading)),
            f"{one.writer}: {names[one.writer]}",
            f"{one.reader}: {names[one.reader]}",
            shown(one.file),
        ]
        for one in found
    ]
    return table(headers, rows, "rrrlll")


def log_text(decisions: Sequence[Decision]) -> str:
    """Decisions, oldest first, each with the command that undoes it."""
    if not decisions:
        return "Nothing was learned or decided yet."
    rows = [
        [
            str(one.id),
            f"{one.time.astimezone():%Y-%m-%d %H:%M:%S}",
            one.kind,
            one.why + (f" (undone {one.undone.astimezone():%Y-%m-%d %H:%M})" if one.undone else ""),
            undo_of(one),
        ]
        for one in decisions
    ]
    return table(("", "time", "what", "why", "undo"), rows, "rrrlr")


def undo_of(one: Decision) -> str:
    """The command that undoes a decision; empty: there is none, or it is undone."""
    return "" if one.undone else UNDO.get(one.kind, "").format(id=one.id)


def _policies(text: str) -> str:
    return ", ".join(FilePolicies.from_text(text).names) or "-"


def history_picture(runs: Sequence[LearnedRun]) -> Figure:
    """The seconds in I/O of the recorded runs, with those expected without replicas, and the hits of all runs."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    from pdla.report.style import FAINT, INK, OP_COLOURS, WIDTH, plain

    figure = Figure((WIDTH, 4.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    places = list(range(1, len(runs) + 1))
    nan = float("nan")
    seconds = [nan if run.facts.seconds is None else run.facts.seconds for run in runs]
    before = [nan if run.facts.before is None else run.facts.before for run in runs]
    above.plot(places, before, "_", markersize=12, color=FAINT, label="expected without replicas")
    above.plot(places, seconds, "o", color=OP_COLOURS["read"], label="measured")
    for place, run in zip(places, runs, strict=True):
        if run.facts.drift:
            above.axvline(place, color=OP_COLOURS["write"], linewidth=1, linestyle=":")
    above.plot([], [], ":", color=OP_COLOURS["write"], label="patterns changed")
    above.set_ylim(bottom=0)
    above.set_ylabel("seconds of I/O", color=INK, fontsize=9)
    above.legend(loc="upper right", frameon=False, fontsize=9)
    below.bar(places, [run.facts.hit_ratio for run in runs], width=0.6, color=OP_COLOURS["read"])
    below.set_ylim(0, 1)
    below.set_ylabel("hits", color=INK, fontsize=9)
    below.yaxis.set_major_formatter(PercentFormatter(1.0))
    below.set_xlabel("run", color=INK, fontsize=9)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (above, below):
        plain(axes)
    return figure


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)
