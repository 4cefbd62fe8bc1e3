"""One self-contained HTML file about one run or several: what the programs did, the plan, and what it changed."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import matplotlib
import numpy as np
from markupsafe import Markup, escape

from pdla import __version__
from pdla.analyzers.analysis import Analysis, Irregular
from pdla.analyzers.file_statistics import FileStats, Summary, summarize
from pdla.analyzers.posix_requests import MadeOf, made_of
from pdla.atomic_files import replacing
from pdla.findings import Finding, Seen, found_in
from pdla.model import Signature
from pdla.report import activity, head, loop_diagrams, pictures, plans, style
from pdla.report.comparison import Comparison, Contrast
from pdla.report.scheme_tables import ALIGN, HEADERS, scheme_rows
from pdla.report.text import (
    by_ranks,
    call_name,
    candidate_name,
    prediction,
    shown_members,
)
from pdla.report.zoom import zoom_data
from pdla.traces.trace import Trace
from pdla.units import format_bytes, format_count, format_seconds, format_share, ranks_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from pdla.model import PatternPlan, Plan
    from pdla.replicator.exit_reports import RunReport

MOST_FILES = 12  # files with pictures; programs with a file per process have thousands of files
MOST_SIGNATURES = 40  # signatures listed per file
MOST_LOOPS = 4  # signatures drawn per file
MOST_PATTERNS = 12  # patterns with pictures
MOST_LIBRARY = 40  # rows of the table of what the MPI library made of the calls
MOST_REFUSED = 20
HALF = 5.2  # inches: two pictures side by side


@dataclass(frozen=True)
class Run:
    """Everything known about a program: its traced run, the plan for it and, if there is one, another run of it."""

    trace: Trace
    analysis: Analysis
    plan: Plan
    after: Trace | None = None
    served: RunReport | None = None
    comparison: Comparison | Contrast | None = None
    simulated: Mapping[str, Any] | None = None  # an answer of pdla simulate (docs/json.md)
    trace_file: str = "RUN.h5"  # as the commands name it

    @cached_property
    def seen(self) -> Seen:
        """The traced run as the findings see it."""
        return Seen(self.trace, self.plan, self.trace_file)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What costs time in the traced run."""
        return found_in(self.seen)


def write_report(path: Path, runs: Sequence[Run], progress: Callable[[str, float, float], None] | None = None) -> None:
    """Write the report of ``runs`` to ``path``: one file that needs no other file and no network.

    ``progress`` is called with the name of the work, and the files and patterns drawn so far and in
    all.

    Raises:
        PdlaError: the file cannot be written.
    """
    loader = jinja2.PackageLoader("pdla", "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    draw = _Drawing(progress)
    text = environment.get_template("report.html.j2").render(
        runs=[_run(run, number, draw) for number, run in enumerate(runs, 1)],
        written=datetime.now().astimezone().strftime("%-d %B %Y, %H:%M %Z"),
        version=__version__,
        script=Markup(loader.get_source(environment, "zoom.js")[0]),
    )
    # Paths are bytes to the operating system; bytes that are not text become question marks.
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


class Table(NamedTuple):
    """Headers, rows of cells, and the setting of each column: right (``r``), left (``l``), left and wrapped (``w``),
    code (``c``). ``marks`` are CSS classes of the rows.
    """

    headers: Sequence[str]
    align: str
    rows: Sequence[Sequence[str]]
    marks: Sequence[str] = ()


class _Drawing:
    """Figures as SVG inside a page: their colours follow the page's, and their ids are unique in it."""

    def __init__(self, progress: Callable[[str, float, float], None] | None) -> None:
        self.numbers: Iterator[int] = count(1)
        self._progress = progress
        self._done = self._parts = 0

    def expect(self, parts: int) -> None:
        """Announce so many more files and patterns to draw."""
        self._parts += parts

    def drawn(self) -> None:
        """Report that one of them is drawn."""
        self._done += 1
        if self._progress:
            self._progress("drawing", self._done, self._parts)

    def __call__(self, figure: Figure, says: str) -> Markup:
        """The figure; ``says`` is what it shows, for those who cannot see it."""
        buffer = io.StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pdla"}):
            figure.savefig(buffer, format="svg", transparent=True, dpi=192, metadata={"Date": None})
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
        svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(says)}"', 1)
        prefix = f"p{next(self.numbers)}-"
        svg = re.sub(r'\bid="', f'id="{prefix}', svg)
        svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
        svg = re.sub(r'href="#', f'href="#{prefix}', svg)
        for colour, name in ((style.INK, "ink"), (style.FAINT, "faint"), (style.PALE, "line")):
            svg = re.sub(colour, f"var(--{name})", svg, flags=re.IGNORECASE)
        return Markup(svg)


def _run(run: Run, number: int, draw: _Drawing) -> dict[str, Any]:
    """The variables of the template for one run."""
    trace, analysis = run.trace, run.analysis
    mpi = " ".join(trace.mpi.split(",")[0].replace("Version:", " ").split())
    accesses = trace.accesses()
    summary, library = summarize(trace), made_of(trace)
    seen, found = run.seen, head.cards(run.findings, run.seen)
    paths = {row.file for row in summary.files}
    families = _families(pattern.signature for pattern in run.plan.patterns)
    draw.expect(min(len(paths), MOST_FILES) + min(len(families), MOST_PATTERNS))
    facts = [
        _number(trace.ranks, "rank"),
        mpi,
        f"source: {trace.source}" if trace.source != "pdla" else "",
        _number(len(trace.hosts), "node") if trace.hosts else "",
    ]
    return {
        "title": _title(trace.command),
        "command": trace.command,
        "facts": [fact for fact in facts if fact],
        "warnings": warnings(trace),
        "id": f"run{number}",
        "verdict": head.verdict(seen),
        "limit": head.limit(seen),
        "levels": head.levels(seen),
        "times": head.time_rows(seen),
        "findings": found[: head.SHOWN],
        "more_findings": found[head.SHOWN :],
        "no_findings": "" if found else head.no_findings(seen),
        "story": story(trace, analysis, summary, accesses),
        "overview": overview_table(summary),
        "files": _files(trace, analysis, summary, accesses, draw),
        "more_files": max(len(paths) - MOST_FILES, 0),
        "library": _library(library),
        "plan": _plan(run.plan, seen.seconds, draw),
        "simulated": _simulated(run.simulated) if run.simulated else None,
        "comparison": _comparison(run, accesses, draw) if run.comparison else None,
    }


def _title(command: str) -> str:
    """The command without the folders of its files."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return shlex.join(Path(word).name or word for word in words) or "A program whose command is not known"


def warnings(trace: Trace) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found = []
    if trace.dropped:
        found.append(f"{format_count(trace.dropped)} records were dropped while the program ran: numbers are too low.")
    if trace.truncated:
        ranks = f"rank{'s' if len(trace.truncated) > 1 else ''} {ranks_text(trace.truncated)}"
        found.append(f"The records of {ranks} end before MPI_Finalize: later calls are missing.")
    if trace.unrecorded:
        calls = ", ".join(f"{name} ({format_count(number)})" for name, number in sorted(trace.unrecorded.items()))
        found.append(f"Calls that passed through without being recorded: {calls}.")
    return [*found, *trace.notes]


def story(trace: Trace, analysis: Analysis, summary: Summary, accesses: pd.DataFrame) -> list[str]:
    """What the program did, in up to five sentences."""
    if not summary.requests:
        return ["The program read and wrote nothing through MPI-IO."]
    by_op = {op: [row for row in summary.files if row.op == op] for op in ("read", "write")}
    moved = " and ".join(
        f"{verb} {format_bytes(sum(row.bytes for row in rows))}"
        for verb, rows in (("read", by_op["read"]), ("wrote", by_op["write"]))
        if rows
    )
    calls = sum(row.calls for row in summary.files)
    files = len({row.file for row in summary.files})
    sizes, counts = np.unique(accesses["length"].to_numpy(np.int64), return_counts=True)
    often = int(counts.argmax())
    sentences = [
        f"{_number(trace.ranks, 'rank')} {moved} in {_number(calls, 'call')} on {_number(files, 'file')}.",
        f"In the files these are {_number(summary.requests, 'contiguous request')}, of which "
        f"{format_share(int(counts[often]), summary.requests)} are of {format_bytes(int(sizes[often]))}; "
        f"{format_share(summary.contiguous, 1)} start where the same rank's previous one ended.",
    ]
    if summary.io_seconds:
        slowest = max(summary.rank_seconds, key=lambda rank: summary.rank_seconds[rank])
        quickest = min(summary.rank_seconds.values())
        sentences.append(
            f"Rank {slowest} spent the most time in these calls, {format_seconds(summary.io_seconds)}. The rank with "
            f"the least time spent {format_seconds(quickest)}."
        )
    both = [signature for signature in analysis.signatures if signature.scope == "global"]
    alone = len(analysis.signatures) - len(both)
    parts = [_number(len(both), "global signature")] if both else []
    parts += [_number(alone, "local signature")] if alone else []
    if parts:
        coverage = analysis.coverage
        verb, it = ("stands", "It") if len(both) + alone == 1 else ("stand", "The largest")
        sentences.append(
            f"{' and '.join(parts)} {verb} for {format_share(coverage.requests, 1)} of the requests and "
            f"{format_share(coverage.bytes, 1)} of the bytes."
        )
        largest = max(analysis.signatures, key=lambda signature: signature.bytes)
        average = " on average" if any(grows.length for grows in largest.growth) else ""
        sentences.append(
            f"{it} moves {format_bytes(largest.bytes)} ({format_share(analysis.share(largest).bytes, 1)} of all) of "
            f"{Path(largest.file).name} in requests of {format_bytes(largest.bytes // largest.requests)}{average}."
        )
    else:
        sentences.append("No regular pattern was found.")
    return sentences


def _number(number: int, noun: str) -> str:
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"


def overview_table(summary: Summary) -> Table:
    """A row for the reads and one for the writes of each file."""
    headers = ["file", "", "calls", "requests", "bytes", "contiguous", "slowest rank", "bytes / that time"]
    return Table(headers, "wlrrrrrr", [[row.file, row.op, *_numbers(row)] for row in summary.files])


def _numbers(row: FileStats) -> list[str]:
    return [
        format_count(row.calls),
        format_count(row.requests),
        format_bytes(row.bytes),
        format_share(row.contiguous, 1),
        format_seconds(row.seconds),
        f"{format_bytes(row.bandwidth)}/s" if row.bandwidth else "-",
    ]


def _files(
    trace: Trace, analysis: Analysis, summary: Summary, accesses: pd.DataFrame, draw: _Drawing
) -> list[dict[str, Any]]:
    """The files with the most bytes, each with its pictures and signatures."""
    sizes = accesses.groupby("file")["length"].sum().sort_values(ascending=False, kind="stable")
    files = []
    for file in sizes.index[:MOST_FILES].tolist():
        path, part = trace.path(file), accesses[accesses["file"] == file]
        rows = [row for row in summary.files if row.file == path]
        said = "; ".join(
            f"{format_count(row.requests)} {row.op}s of {format_bytes(row.smallest)} to {format_bytes(row.largest)}"
            for row in rows
        )
        files.append(
            {
                "path": path,
                "access": draw(
                    pictures.access_picture(part, path, ranks=trace.ranks, title=""),
                    f"Offsets in {path} over time, coloured by rank: {said}",
                ),
                "zoom": zoom_data(part, trace.ranks),
                "extents": draw(
                    activity.extent_picture(part, ranks=trace.ranks), f"Bytes of {path} that each rank moves: {said}"
                ),
                "activity": draw(
                    activity.activity_picture(part), f"Bytes per second and sizes of requests over time: {said}"
                ),
                "loops": [
                    {"notation": str(one), "picture": draw(loop_diagrams.loops_picture(one), f"The loops of {one}")}
                    for one, *_ in _families(one for one in analysis.signatures if one.file == path)[:MOST_LOOPS]
                ],
                "order": draw(
                    pictures.order_picture(part, "", ranks=trace.ranks), f"Offsets in the order of requests: {said}"
                ),
                "sizes": draw(pictures.size_histogram(part), f"Requests by size: {said}"),
                "numbers": Table(
                    [
                        "",
                        "calls",
                        "requests",
                        "bytes",
                        "contiguous",
                        "slowest rank",
                        "bytes / that time",
                        "smallest",
                        "median",
                        "largest",
                    ],
                    "lrrrrrrrrr",
                    [
                        [row.op, *_numbers(row), *map(format_bytes, (row.smallest, row.median, row.largest))]
                        for row in rows
                    ],
                ),
                "signatures": signatures_table(analysis, path),
            }
        )
        draw.drawn()
    return files


def signatures_table(analysis: Analysis, path: str) -> Table:
    """The signatures of a file, and the accesses that no template matches."""
    rows: list[list[str]] = []
    marks: list[str] = []

    def add(mark: str, scope: str, one: Signature | Irregular, ranks: str, notation: str) -> None:
        share = analysis.share(one)
        numbers = [
            format_count(one.requests),
            format_share(share.requests, 1),
            format_bytes(one.bytes),
            format_share(share.bytes, 1),
        ]
        rows.append([scope, call_name(one), ranks, *numbers, notation])
        marks.append(mark)

    def skip(mark: str, text: str) -> None:
        rows.append([text, *[""] * 7])
        marks.append(mark)

    families = _families(signature for signature in analysis.signatures if signature.file == path)
    for signature, *others in families[:MOST_SIGNATURES]:
        add(signature.scope, signature.scope, signature, ranks_text(signature.ranks), str(signature))
        if others:
            total = sum(one.bytes for one in others)
            skip("member", f"and {format_count(len(others))} more of this shape, {format_bytes(total)}")
            continue
        shown, more = shown_members(signature.members)
        for member in shown:
            add("member", "local", member, ranks_text(member.ranks), str(member))
        if more:
            skip("member", f"and {format_count(more)} more")
    if more := sum(map(len, families[MOST_SIGNATURES:])):
        skip("local", f"and {format_count(more)} more signatures")
    for parts in _alike(analysis.irregular, path):
        totals = sum(part.requests for part in parts), sum(part.bytes for part in parts)
        shares = [analysis.share(part) for part in parts]
        numbers = [
            format_count(totals[0]),
            format_share(sum(share.requests for share in shares), 1),
            format_bytes(totals[1]),
            format_share(sum(share.bytes for share in shares), 1),
        ]
        ranks = ranks_text(part.rank for part in parts)
        rows.append(["irregular", call_name(parts[0]), ranks, *numbers, "no pattern"])
        marks.append("irregular")
    return Table(
        ["scope", "call", "ranks", "requests", "share", "bytes", "share", "signature"], "lllrrrrc", rows, marks
    )


def _families(signatures: Iterable[Signature]) -> list[list[Signature]]:
    """Signatures that differ only in where they begin and in their strides."""
    families: dict[Any, list[Signature]] = {}
    for one in signatures:
        shape = one.scope, one.op, one.collective, one.length, tuple(loop.count for loop in one.loops)
        families.setdefault(shape, []).append(one)
    return list(families.values())


def _alike(irregular: Iterable[Irregular], path: str) -> list[list[Irregular]]:
    """What no template matches in a file, each kind of call by itself."""
    kinds: dict[str, list[Irregular]] = {}
    for part in irregular:
        if part.file == path:
            kinds.setdefault(call_name(part), []).append(part)
    return list(kinds.values())


def _library(rows: Sequence[MadeOf]) -> Table | None:
    """The requests that the MPI library made for the calls; None if they are not known."""
    headers = ["file", "call", "calls", "bytes", "requests", "read", "written", "ratio", "ranks", "median", "largest"]
    cells = [
        [
            row.file,
            row.kind or "the program itself",
            format_count(row.calls),
            format_bytes(row.bytes),
            format_count(row.requests),
            format_bytes(row.read),
            format_bytes(row.written),
            "-" if row.ratio is None else f"{row.ratio:.3g}",
            ranks_text(row.ranks),
            format_bytes(row.median),
            format_bytes(row.largest),
        ]
        for row in sorted(rows, key=lambda row: -(row.read + row.written))[:MOST_LIBRARY]
    ]
    if more := len(rows) - len(cells):
        cells.append([f"and {format_count(more)} more", *[""] * (len(headers) - 1)])
    return Table(headers, "wlrrrrrrlrr", cells) if cells else None


def _plan(plan: Plan, measured: float, draw: _Drawing) -> dict[str, Any]:
    families = _families(pattern.signature for pattern in plan.patterns)
    shown = {id(first): len(others) for first, *others in families[:MOST_PATTERNS]}
    patterns = [pattern for pattern in plan.patterns if id(pattern.signature) in shown]
    reasons: dict[str, list[str]] = {}
    for what, why in plan.refused:
        reasons.setdefault(why, []).append(what)
    return {
        "sentence": prediction(plan),
        "measured": format_seconds(measured),
        "policy": plan.policy,
        "cluster": head.storage_name(plan.cluster.source),
        "patterns": [_pattern(pattern, shown[id(pattern.signature)], plan, draw) for pattern in patterns],
        "more_patterns": sum(map(len, families[MOST_PATTERNS:])),
        "refused": [(what, len(others), why) for why, (what, *others) in reasons.items()][:MOST_REFUSED],
        "more_refused": max(len(reasons) - MOST_REFUSED, 0),
    }


def _simulated(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cluster": answer["cluster"],
        "table": Table(HEADERS, ALIGN, scheme_rows(answer["schemes"])),
        "absent": answer["absent"],
    }


def costs_table(pattern: PatternPlan) -> Table:
    """What each candidate of a pattern takes, by the cost model and simulated, and why it cannot be chosen."""
    rows = []
    judged = pattern.candidates[0].simulated is not None
    for candidate in pattern.candidates:
        cost = candidate.cost
        seconds = (cost.connect, cost.network, cost.startup, cost.transfer, cost.total)
        simulated = "" if candidate.simulated is None else format_seconds(candidate.simulated)
        shown = [*map(format_seconds, seconds), *([simulated] if judged else [])]
        rows.append([candidate_name(candidate), *shown, candidate.refused])
    marks = ["chosen" if number == pattern.chosen else "" for number in range(len(rows))]
    sums = ["model", "simulated"] if judged else ["total"]
    headers = ["candidate", "connect", "network", "start-up", "transfer", *sums, ""]
    return Table(headers, "l" + "r" * (len(headers) - 2) + "w", rows, marks)


def _pattern(pattern: PatternPlan, alike: int, plan: Plan, draw: _Drawing) -> dict[str, Any]:
    signature, replicated = pattern.signature, pattern.choice.layout is not None
    values = {
        "head": f"{call_name(signature)} {by_ranks(signature.ranks)}, {format_bytes(signature.bytes)} of "
        f"{signature.file}",
        "notation": str(signature),
        "alike": format_count(alike) if alike else "",
        "reason": pattern.reason,
        "costs": costs_table(pattern),
        "cost_picture": draw(plans.cost_picture(pattern), f"Predicted seconds of each candidate: {pattern.reason}"),
        "layout_picture": draw(
            plans.layout_picture(pattern, plan.cluster), f"Servers and their strips: {candidate_name(pattern.choice)}"
        )
        if replicated
        else None,
    }
    draw.drawn()
    return values


def _comparison(run: Run, accesses: pd.DataFrame, draw: _Drawing) -> dict[str, Any]:
    assert run.comparison is not None
    pairs = []
    if run.after is not None:
        after = run.after.accesses()
        sizes = accesses.groupby("file")["length"].sum().sort_values(ascending=False, kind="stable")
        others = {
            str(path): int(file) for file, path in zip(run.after.files["file"], run.after.files["path"], strict=True)
        }
        for file in sizes.index[:MOST_FILES].tolist():
            path = run.trace.path(file)
            parts = accesses[accesses["file"] == file], after[after["file"] == others.get(path, -1)]
            # Both pictures show the same length of time, so that the eye compares seconds, not
            # inches.
            seconds = max(float(part["t_end"].max() - part["t_start"].min()) for part in parts if len(part))
            pictured = [
                draw(
                    pictures.access_picture(
                        part, path, ranks=run.trace.ranks, seconds=seconds, title=title, width=HALF
                    ),
                    f"Offsets in {path} over time, {title}",
                )
                for part, title in zip(parts, ("before", "after"), strict=True)
            ]
            pairs.append({"path": path, "pictures": pictured})
    return {
        "sentence": run.comparison.sentence,
        "served": run.served.sentence if run.served else "",
        "wrong": isinstance(run.comparison, Comparison) and not run.comparison.identical,
        "table": Table(["", "before", "after", ""], "lrrl", run.comparison.rows),
        "pairs": pairs,
    }
