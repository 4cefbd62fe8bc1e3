"""Patterns as text: those of the catalog, the comparison of two runs, the prediction for other numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pdla.report.text import MOST, aspects_text, by_ranks, call_name, more, paragraph, shown_members, table
from pdla.units import counted, format_bytes, format_count, ranks_text

if TYPE_CHECKING:
    from pdla.analyzers.rank_scaling import Scaling
    from pdla.analyzers.run_difference import Difference
    from pdla.catalog import Occurrence, Pattern, Run
    from pdla.model import Signature


def pattern_table(patterns: Sequence[Pattern]) -> str:
    """The first patterns of a list, a row each."""
    if not patterns:
        return "No patterns."
    rows = [
        [
            str(one.id),
            str(one.runs),
            one.state,
            ranks_text(one.signature.ranks),
            format_bytes(one.signature.bytes),
            f"{one.signature} {one.signature.file}",
        ]
        for one in patterns[:MOST]
    ]
    listed = table(["id", "runs", "state", "ranks", "bytes", "pattern and file"], rows, "rrllrl")
    return "\n".join([listed, *more(len(patterns), "patterns")])


def pattern_text(pattern: Pattern, seen: Sequence[tuple[Run, Occurrence]], members: Sequence[Signature]) -> str:
    """Everything about one pattern: its loops, its members, and the runs that have it."""
    from pdla.analyzers.aspects import Aspects

    one = pattern.signature
    lines = [
        paragraph(f"Pattern {pattern.id}: {call_name(one)} {by_ranks(one.ranks)} of {one.file}"),
        paragraph(str(one)),
        paragraph(
            f"{counted(one.requests, 'request')} of {format_bytes(one.length)}, {format_bytes(one.bytes)}; "
            f"{pattern.state} since {pattern.since.astimezone():%Y-%m-%d %H:%M}"
            + (f": {pattern.why}" if pattern.why else "")
        ),
    ]
    rows = [
        ["ranks" if depth < one.rank_loops else "time", f"{loop.stride:,}", f"{loop.count:,}"]
        for depth, loop in enumerate(one.loops)
    ]
    lines += ["", table(["loop over", "stride", "count"], rows, "lrr")] if rows else []
    shown, left_out = shown_members(members)
    lines += ["", "Members:"] if shown else []
    lines += [paragraph(f"rank {member.ranks[0]}: {member}", "  ") for member in shown]
    lines += [f"  ... and {format_count(left_out)} more"] if left_out else []
    for run, occurrence in seen[:MOST]:
        started = f", {run.started.astimezone():%Y-%m-%d %H:%M}" if run.started else ""
        about = [*run.hosts, *filter(None, [run.mpi]), *(f"{name}={text}" for name, text in run.environment.items())]
        lines += ["", paragraph(f"Run {run.id} ({counted(run.ranks, 'rank')}{started}): {run.command}")]
        lines += [paragraph(", ".join(about), "  ")] if about else []
        lines.append(paragraph(aspects_text(Aspects.from_json(occurrence.aspects)), "  "))
    return "\n".join([*lines, *more(len(seen), "runs")])


def difference_text(found: Difference, before: str, after: str) -> str:
    """The patterns of two runs: those in both, those that changed (and in what), those in one only."""
    lines = [f"{counted(len(found.both), 'pattern')} in both."]
    for old, new, what in found.changed[:MOST]:
        file = f"{old.file} -> {new.file}" if old.file != new.file else new.file
        lines += ["", paragraph(f"changed in {', '.join(what)}: {call_name(new)} of {file}")]
        for one in (old, new):
            lines.append(paragraph(f"{one} {by_ranks(one.ranks)}", "  "))
    lines += more(len(found.changed), "changed")
    for name, only in ((before, found.before), (after, found.after)):
        for one in only[:MOST]:
            lines += ["", paragraph(f"only in {name}: {call_name(one)} of {one.file}")]
            lines.append(paragraph(f"{one} {by_ranks(one.ranks)}", "  "))
        lines += more(len(only), f"only in {name}")
    return "\n".join(lines)


def scaling_text(found: Scaling, predicted: Sequence[Signature], ranks: int) -> str:
    """The signatures as functions of the number of ranks, those at ``ranks``, and the disagreements of the traces."""
    lines = [f"Signatures that {', '.join(map(str, found.ranks))} ranks agree on, P being the number of ranks:"]
    for one in found.signatures[:MOST]:
        lines += [paragraph(one.file, "  "), paragraph(str(one), "    ")]
    lines += more(len(found.signatures), "signatures")
    lines += ["", f"At {ranks} ranks:"] if predicted else []
    for signature in predicted[:MOST]:
        low, high = signature.extent
        lines.append(paragraph(f"{signature.file}, bytes {low:,} to {high:,}", "  "))
        lines.append(paragraph(str(signature), "    "))
    lines += ["", "The traces disagree on:"] if found.disagreements else []
    lines += [paragraph(reason, "  ") for reason in found.disagreements[:MOST]]
    return "\n".join([*lines, *more(len(found.disagreements), "disagreements")])
