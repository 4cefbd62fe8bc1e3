"""What the functions of the package return, in a notebook: the tables and pictures of the report."""

from __future__ import annotations

import importlib.resources
import io
import json
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from pdla.analyzers.analysis import Analysis
from pdla.analyzers.file_statistics import summarize
from pdla.catalog import Catalog
from pdla.model import PatternPlan, Plan, Signature
from pdla.report import head, runs, scheme_tables, style
from pdla.report.html import Table, costs_table, overview_table, signatures_table, warnings
from pdla.report.loop_diagrams import loops_picture
from pdla.report.pictures import access_picture
from pdla.report.plans import cost_picture, layout_picture
from pdla.report.text import by_ranks, call_name, candidate_name, prediction
from pdla.report.zoom import zoom_data
from pdla.simulator.scheme_comparison import Contest
from pdla.steps import Findings
from pdla.traces.trace import Trace
from pdla.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

MOST_ROWS = 12  # of a table; programs have thousands of files
MOST_FILES = 2  # files of a trace with pictures, those with the most bytes, and of an analysis with tables
MOST_LOOPS = 3  # signatures of a file with pictures
MOST_FINDINGS = 3
MOST_PATTERNS = 2  # patterns of a plan with pictures: those that take longest

_TABLE = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(
    """{% macro aligned(column) -%}
style="text-align: {{ "right" if table.align[column] == "r" else "left" }}"
{%- endmacro %}
<table><thead><tr>
{%- for header in table.headers %}<th {{ aligned(loop.index0) }}>{{ header }}</th>{% endfor -%}
</tr></thead><tbody>
{% for row in table.rows %}
<tr{% if table.marks and table.marks[loop.index0] == "chosen" %} style="font-weight: bold"{% endif %}>
{%- for cell in row -%}
<td {{ aligned(loop.index0) }}>{{ cell }}</td>
{%- endfor -%}
</tr>
{% endfor %}</tbody></table>"""
)


def register(html: Any) -> None:
    """Register these types with IPython's formatter of HTML."""
    html.for_type(Trace, trace_html)
    html.for_type(Analysis, analysis_html)
    html.for_type(Signature, signature_html)
    html.for_type(Findings, findings_html)
    html.for_type(Plan, plan_html)
    html.for_type(Contest, contest_html)
    html.for_type(Catalog, catalog_html)


def trace_html(trace: Trace) -> str:
    """What ran, what to know before trusting the numbers, a row for each file, and pictures of the largest files."""
    facts = f"{counted(trace.ranks, 'rank')}, {trace.mpi or 'no MPI known'}, source: {trace.source}"
    accesses = trace.accesses()
    sizes = accesses.groupby("file")["length"].sum().sort_values(ascending=False, kind="stable")
    pictures = []
    for file in sizes.index[:MOST_FILES].tolist():
        part, path = accesses[accesses["file"] == file], trace.path(file)
        picture = _svg(access_picture(part, path, ranks=trace.ranks))
        pictures.append(_zoomable(picture, zoom_data(part, trace.ranks)))
    return _block(
        Markup("<p><code>{}</code><br>{}</p>").format(trace.command or "a program whose command is not known", facts),
        *(Markup("<p>{}</p>").format(warning) for warning in warnings(trace)),
        _table(overview_table(summarize(trace)), "files"),
        *pictures,
    )


def analysis_html(analysis: Analysis) -> str:
    """The signatures of the files with the most bytes, and the loops of the largest ones."""
    paths = list(dict.fromkeys([one.file for one in analysis.signatures] + [one.file for one in analysis.irregular]))
    parts = []
    for path in paths[:MOST_FILES]:
        parts += [Markup("<h4>{}</h4>").format(path), _table(signatures_table(analysis, path), "rows")]
        for one in [one for one in analysis.signatures if one.file == path][:MOST_LOOPS]:
            parts += [Markup("<p><code>{}</code></p>").format(str(one)), _picture(loops_picture(one))]
    return _block(*parts, _more(len(paths) - MOST_FILES, "files"))


def signature_html(signature: Signature) -> str:
    """The signature's notation, what it moves, and its loops."""
    what = f"{call_name(signature)} {by_ranks(signature.ranks)}, {format_bytes(signature.bytes)} of {signature.file}"
    return _block(
        Markup("<p><code>{}</code><br>{}</p>").format(str(signature), what), _picture(loops_picture(signature))
    )


def findings_html(findings: Findings) -> str:
    """What the run did, and each finding with what shows it, what to do, and what that brings."""
    seen = findings.seen
    return _block(
        Markup("<p>{}</p>").format(head.verdict(seen)),
        Markup() if findings else Markup("<p>{}</p>").format(head.no_findings(seen)),
        *map(_finding, head.cards(findings[:MOST_FINDINGS], seen)),
        _more(len(findings) - MOST_FINDINGS, "findings"),
    )


def plan_html(plan: Plan) -> str:
    """The plan's prediction, a row for each pattern, and what was compared for those that take longest."""
    longest = sorted(plan.patterns, key=lambda one: -one.candidates[0].seconds)
    rows = [
        [
            f"{call_name(one.signature)} {by_ranks(one.signature.ranks)} of {one.signature.file}",
            format_seconds(one.candidates[0].seconds),
            format_seconds(one.choice.seconds),
            candidate_name(one.choice),
        ]
        for one in longest
    ]
    return _block(
        Markup("<p>{}</p>").format(prediction(plan)),
        _table(Table(["pattern", "before", "after", "choice"], "lrrl", rows), "patterns"),
        *(_pattern(one, plan) for one in longest[:MOST_PATTERNS]),
    )


def contest_html(contest: Contest) -> str:
    """The seconds of each scheme as a picture and as a table, and notes on them."""
    rows = scheme_tables.scheme_rows(scheme_tables.contest_json(contest)["schemes"])
    return _block(
        _picture(scheme_tables.contest_picture(contest)),
        _table(Table(scheme_tables.HEADERS, scheme_tables.ALIGN, rows), "schemes"),
        *(Markup("<p>{}</p>").format(note) for note in scheme_tables.notes(contest)),
    )


def catalog_html(catalog: Catalog) -> str:
    """The runs of a catalog as a picture, and its programs."""
    found = catalog.runs.find()
    programs = runs.by_program(found)
    return _block(
        Markup("<p><code>{}</code><br>{} of {}</p>").format(
            str(catalog), counted(len(found), "run"), counted(len(programs), "program")
        ),
        _picture(runs.runs_picture(found)),
        _table(Table(runs.HEADERS, runs.ALIGN, runs.program_rows(found)), "programs"),
        _more(len(programs) - runs.MOST_PROGRAMS, "programs"),
    )


def _finding(card: Mapping[str, Any]) -> Markup:
    """A card of the report, without its bars."""
    brings = f"{card['expected']} (confidence {card['confidence'].removesuffix('.')})."
    if card["predicted"]:
        brings += f" Simulated on {card['storage']}: {card['predicted']}."
    parts = [Markup("<h4>{} ({})</h4><p>{}</p>").format(card["title"], card["severity"], card["evidence"])]
    parts.append(Markup("<p><b>{}</b> {}</p>").format(card["remedy"], brings))
    if card["command"]:
        parts.append(Markup("<pre>{}</pre>").format(card["command"]))
    return Markup().join(parts)


def _pattern(pattern: PatternPlan, plan: Plan) -> Markup:
    parts = [
        Markup("<h4>{}</h4><p>{}</p>").format(str(pattern.signature), pattern.reason),
        _picture(cost_picture(pattern)),
        _table(costs_table(pattern), "candidates"),
    ]
    if pattern.choice.layout is not None:
        parts.append(_picture(layout_picture(pattern, plan.cluster)))
    return Markup().join(parts)


def _table(table: Table, what: str) -> Markup:
    """The first rows of a table, and how many more there are of ``what``."""
    first = table._replace(rows=table.rows[:MOST_ROWS])
    return Markup('<div style="overflow-x: auto">{}</div>{}').format(
        Markup(_TABLE.render(table=first)), _more(len(table.rows) - MOST_ROWS, what)
    )


def _more(number: int, what: str) -> Markup:
    return Markup("<p>and {} more {}</p>").format(f"{number:,}", what) if number > 0 else Markup()


def _picture(figure: Figure) -> Markup:
    return Markup('<div style="max-width: 900px">{}</div>').format(_svg(figure))


def _svg(figure: Figure) -> Markup:
    """A figure as wide as its place in the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    return Markup(svg[svg.index("<svg") :].replace("<svg ", '<svg style="width: 100%; height: auto" ', 1))


def _zoomable(picture: Markup, data: dict[str, Any]) -> Markup:
    """A picture of accesses, with the script that zooms into it, as in the report."""
    script = (importlib.resources.files("pdla.report") / "zoom.js").read_text(encoding="utf-8")
    return Markup(
        '<figure class="zoom" style="max-width: 900px; margin: 0; background: white; --ink: {}; --line: {}">{}'
        '<script type="application/json">{}</script></figure><script>{}</script>'
    ).format(style.INK, style.PALE, picture, Markup(json.dumps(data)), Markup(script))


def _block(*parts: Markup) -> str:
    return str(Markup("<div>{}</div>").format(Markup().join(map(escape, parts))))
