"""Terminal tables: everything that the command line prints as rows and columns, in the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pdla.model import Signature
from pdla.units import counted, format_bytes, format_count, format_seconds, format_share, ranks_text, shown

if TYPE_CHECKING:
    from pdla.analyzers.analysis import Analysis, Irregular
    from pdla.analyzers.aspects import Aspects
    from pdla.model import Candidate, Phase, Plan
    from pdla.report.comparison import Comparison

GAP = "  "
NARROWEST = 8  # least characters of a wrapped column
MOST_MEMBERS = 8  # local signatures listed under a global one
MOST_PHASES = 4  # phases listed for a file
MOST = 20  # files, signatures of a file, or patterns listed; --json lists all
NOTATION = (
    "A signature is {operation, first byte, dimension, loops, repeats}; a loop is [stride, bytes, count], the "
    "innermost first, with an r if it runs over the ranks."
)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str, *, width: int | None = None) -> str:
    """Rows under headers, columns aligned left (``l``) or right (``r``), wrapped to ``width`` columns (the terminal's).

    Left-aligned columns become narrower, the widest first; nothing is cut off.

    >>> print(table(["file", "requests"], [["a.dat", "1,024"], ["b", "7"]], "lr", width=80))
    file   requests
    -----  --------
    a.dat     1,024
    b             7
    """
    if any(len(row) != len(headers) for row in rows) or len(align) != len(headers):
        raise ValueError(f"every row and the alignment need {len(headers)} columns, as the headers have")
    headers, rows = list(map(shown, headers)), [list(map(shown, row)) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - (width or terminal_width())
    while excess > 0:
        wide = [number for number, letter in enumerate(align) if letter == "l" and widths[number] > NARROWEST]
        if not wide:
            break
        widest = max(wide, key=lambda number: widths[number])
        others = [widths[number] for number in wide if number != widest]
        cut = min(excess, max(widths[widest] - max([NARROWEST, *others]), 1))
        widths[widest] -= cut
        excess -= cut
    lines = [*_row(headers, widths, align), GAP.join("-" * width for width in widths)]
    for row in rows:
        lines += _row(row, widths, align)
    return "\n".join(lines)


def terminal_width() -> int:
    """Columns of the terminal; 80 without a terminal, at most 120 so that rows remain readable."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def _row(cells: Sequence[str], widths: Sequence[int], align: str) -> list[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(len(cell) for cell in wrapped)):
        parts = [
            (cell[number] if number < len(cell) else "").rjust(width)
            if letter == "r"
            else (cell[number] if number < len(cell) else "").ljust(width)
            for cell, width, letter in zip(wrapped, widths, align, strict=True)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines


def paragraph(text: str, indent: str = "", *, width: int | None = None) -> str:
    """``text`` wrapped to the terminal, with ``indent`` before every line."""
    # Paths and numbers are not split: somebody may want to copy them.
    return textwrap.fill(
        shown(text),
        width or terminal_width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def by_ranks(ranks: Sequence[int]) -> str:
    """The ranks that make a pattern.

    >>> by_ranks((0, 1, 2)), by_ranks((5,))
    ('by ranks 0-2', 'by rank 5')
    """
    return f"by rank{'s' if len(ranks) > 1 else ''} {ranks_text(ranks)}"


def shorten(text: str, width: int) -> str:
    """``text`` without its middle if it is longer than ``width``: the ends of a path say most.

    >>> shorten("/scratch/project/someone/run-17/matrix.dat", 24)
    '/scratch...17/matrix.dat'
    """
    if len(text) <= width:
        return text
    head = (width - 3) // 3 + 1
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def candidate_name(candidate: Candidate) -> str:
    """A short name of a way to serve a pattern, such as ``ssd 2-D (2 groups)``."""
    layout = candidate.layout
    if layout is None:
        return "original" if candidate.space == "original" else f"original, {candidate.space} calls"
    groups = f" ({layout.groups} groups)" if layout.name == "2-D" else ""
    return f"{candidate.space} {layout.name}{groups}"


def call_name(signature: Signature | Irregular) -> str:
    """``read``, or ``read_all`` if the calls are collective."""
    return f"{signature.op}_all" if signature.collective else signature.op


def signature_table(analysis: Analysis, aspects: Sequence[Aspects] = (), phases: Sequence[Phase] = ()) -> str:
    """The signatures of every file, with their aspects: global ones with their local ones, then the others.

    Files with several phases have these, too.
    """
    by_file: dict[str, list[tuple[Signature | Irregular, str]]] = {}
    parts: list[Signature | Irregular] = [*analysis.signatures, *analysis.irregular]
    several = phases_by_file(phases)
    words = [aspects_text(one) if part.file in several else str(one) for one, part in zip(aspects, parts, strict=False)]
    words += [""] * (len(parts) - len(aspects))
    for part, of_part in zip(parts, words, strict=True):
        by_file.setdefault(part.file, []).append((part, of_part))
    blocks = []
    for path, found in list(by_file.items())[:MOST]:
        rows = [row for part, of_part in found[:MOST] for row in _signature_rows(analysis, part, of_part)]
        columns = ["scope", "call", "ranks", "requests", "bytes", "signature"]
        head = [shown(path), *([paragraph(phases_text(several[path]))] if path in several else [])]
        blocks.append("\n".join([*head, table(columns, rows, "lllrrl"), *more(len(found), "signatures")]))
    shares = analysis.coverage
    blocks += more(len(by_file), "files")
    blocks.append(
        paragraph(
            f"{counted(analysis.requests, 'request')}, {format_bytes(analysis.bytes)}; signatures stand for "
            f"{format_share(shares.requests, 1)} of the requests and {format_share(shares.bytes, 1)} of the bytes."
        )
    )
    if analysis.signatures:
        blocks.append(paragraph(NOTATION))
    return "\n\n".join(blocks)


def phases_by_file(phases: Iterable[Phase]) -> dict[str, list[Phase]]:
    """The phases of the files that have more than one."""
    found: dict[str, list[Phase]] = {}
    for phase in phases:
        found.setdefault(phase.file, []).append(phase)
    return {path: several for path, several in found.items() if len(several) > 1}


def phases_text(phases: Sequence[Phase]) -> str:
    """The first phases of a file: what begins each, what it moves, and how long it is."""
    listed = []
    for phase in phases[:MOST_PHASES]:
        moved = (("reads", phase.bytes_read), ("writes", phase.bytes_written))
        does = " and ".join(f"{verb} {format_bytes(count)}" for verb, count in moved if count)
        listed.append(f"{phase.phase} ({phase.begins}) {does} in {format_seconds(phase.t_end - phase.t_start)}")
    more = f"; and {len(phases) - MOST_PHASES} more" if len(phases) > MOST_PHASES else ""
    return f"{len(phases)} phases: {'; '.join(listed)}{more}"


def aspects_text(aspects: Aspects) -> str:
    """The aspects of a signature, and the phases of its file in which it occurs."""
    if aspects.phases is None:
        return str(aspects)
    first, last = aspects.phases
    return f"{aspects}, " + (f"phase {first}" if first == last else f"phases {first}-{last}")


def more(number: int, what: str) -> list[str]:
    """A line that says how many of so many things are not shown, if any are not."""
    return [f"... and {format_count(number - MOST)} more {what} (--json lists all)"] if number > MOST else []


def shown_members(members: Sequence[Signature]) -> tuple[Sequence[Signature], int]:
    """The local signatures to list in a global one, and the number of the others."""
    shown = members if len(members) <= MOST_MEMBERS else members[: MOST_MEMBERS // 2]
    return shown, len(members) - len(shown)


def _signature_rows(analysis: Analysis, part: Signature | Irregular, words: str) -> list[list[str]]:
    def row(one: Signature, scope: str) -> list[str]:
        return [scope, call_name(one), ranks_text(one.ranks), *_shares(analysis, one), str(one)]

    if not isinstance(part, Signature):
        return [["irregular", call_name(part), str(part.rank), *_shares(analysis, part), "no pattern"]]
    shown, left_out = shown_members(part.members)
    rows = [row(part, part.scope), *(row(member, "- local") for member in shown)]
    if words:
        rows.insert(1, ["", "", "", "", "", words])
    if left_out:
        rows.append([f"- {format_count(left_out)} more", "", "", "", "", ""])
    return rows


def _shares(analysis: Analysis, part: Signature | Irregular) -> list[str]:
    share = analysis.share(part)
    return [format_share(share.requests, 1), format_share(share.bytes, 1)]


def plan_summary(plan: Plan) -> str:
    """A row for every pattern: its cost from the original, its cost by the plan, and its place."""
    rows = []
    for number, pattern in enumerate(plan.patterns[:MOST], 1):
        one = pattern.signature
        seconds = [format_seconds(candidate.seconds) for candidate in (pattern.candidates[0], pattern.choice)]
        what = [str(number), call_name(one), ranks_text(one.ranks), one.file]
        rows.append([*what, *seconds, candidate_name(pattern.choice)])
    blocks = []
    if rows:
        headers = ["", "call", "ranks", "file", "before", "after", "choice"]
        blocks.append("\n".join([table(headers, rows, "rlllrrl"), *more(len(plan.patterns), "patterns")]))
    return "\n\n".join([*blocks, *_outcome(plan)])


def plan_table(plan: Plan, notes: Sequence[Sequence[str]] = ()) -> str:
    """For every pattern what each candidate takes, simulated and by the cost model, the chosen one with the reason, and
    why others cannot be chosen. ``notes`` are sentences for each pattern."""
    blocks = []
    for number, pattern in enumerate(plan.patterns[:MOST], 1):
        one = pattern.signature
        what = f"Pattern {number}: {call_name(one)} {by_ranks(one.ranks)} of {one.file}"
        head = f"{paragraph(what)}\n{paragraph(str(one))}"
        rows = []
        refused: dict[str, list[str]] = {}
        judged = pattern.candidates[0].simulated is not None
        for place, candidate in enumerate(pattern.candidates):
            cost = candidate.cost
            parts = (cost.total, cost.connect, cost.network, cost.startup, cost.transfer)
            mark = "->" if place == pattern.chosen else ""
            simulated = "" if candidate.simulated is None else format_seconds(candidate.simulated)
            rows.append(
                [mark, candidate_name(candidate), *([simulated] if judged else []), *map(format_seconds, parts)]
            )
            if candidate.refused:
                refused.setdefault(candidate.refused, []).append(candidate_name(candidate))
        sums = ["simulated", "model"] if judged else ["total"]
        headers = ["", "candidate", *sums, "connect", "network", "start-up", "transfer"]
        whys = [paragraph(f"not {', '.join(names)}: {why}", "  ") for why, names in refused.items()]
        said = [paragraph(note) for note in (notes[number - 1] if notes else ())]
        costs = table(headers, rows, "ll" + "r" * (len(headers) - 2))
        blocks.append("\n".join([head, costs, paragraph(pattern.reason), *whys, *said]))
    return "\n\n".join([*blocks, *more(len(plan.patterns), "patterns"), *_outcome(plan)])


def _outcome(plan: Plan) -> list[str]:
    """What was refused, the plan's prediction, and how good the choice is."""
    blocks = []
    if plan.cluster.home_source:
        strip, servers = format_bytes(plan.cluster.home_strip), counted(plan.cluster.home_servers, "server")
        blocks.append(paragraph(f"Originals: strips of {strip} on {servers}, {plan.cluster.home_source}."))
    if plan.refused:
        refused = [paragraph(f"{what}: {why}", "  ") for what, why in plan.refused[:MOST]]
        blocks.append("\n".join(["Refused:", *refused, *more(len(plan.refused), "refused")]))
    blocks.append(paragraph(prediction(plan)))
    if plan.gap:
        another = f"Space was short: another choice might save up to {100 * plan.gap:.1f} % more than this one"
        blocks.append(paragraph(f"{another} ({plan.selection} selection)."))
    return blocks


def prediction(plan: Plan) -> str:
    """The plan's prediction in a sentence."""
    if not plan.patterns:
        return "There is no pattern to plan for."
    chosen = sum(pattern.choice.layout is not None for pattern in plan.patterns)
    before, after = plan.simulated or (plan.predicted_before, plan.predicted_after)
    predicted = f"{format_seconds(before)} {'simulated for the whole run' if plan.simulated else 'predicted'}"
    if not chosen:
        return f"No pattern gets a replica: {predicted} with the originals as they are."
    patterns = "The pattern gets" if len(plan.patterns) == 1 else f"{chosen} of {len(plan.patterns)} patterns get"
    return f"{patterns} a replica: {predicted} without, {format_seconds(after)} with."


def comparison_table(comparison: Comparison) -> str:
    """A traced run and its redirected run, side by side."""
    return table(["", "before", "after", ""], comparison.rows, "lrrl")
