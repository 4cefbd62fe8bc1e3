"""Traces, signatures and plans in a notebook: the tables and pictures of the report."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from pdla.analyzers.analysis import Analysis
from pdla.analyzers.file_statistics import summarize
from pdla.model import PatternPlan, Plan, Signature
from pdla.report.html import Table, costs_table, overview_table, signatures_table, warnings
from pdla.report.loop_diagrams import loops_picture
from pdla.report.plans import cost_picture, layout_picture
from pdla.report.text import by_ranks, call_name, prediction
from pdla.traces.trace import Trace
from pdla.units import counted, format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PICTURED = 8  # patterns of a plan with pictures

_TABLE = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(
    """<table><thead><tr>{% for header in table.headers %}<th>{{ header }}</th>{% endfor %}</tr></thead><tbody>
{% for row in table.rows %}
<tr{% if table.marks and table.marks[loop.index0] == "chosen" %} style="font-weight: bold"{% endif %}>
{%- for cell in row %}<td align="{{ "right" if table.align[loop.index0] == "r" else "left" }}">{{ cell }}</td>
{%- endfor -%}</tr>
{% endfor %}</tbody></table>"""
)


def register(html: Any) -> None:
    """Register these types with IPython's formatter of HTML."""
    html.for_type(Trace, trace_html)
    html.for_type(Analysis, analysis_html)
    html.for_type(Signature, signature_html)
    html.for_type(Plan, plan_html)


def trace_html(trace: Trace) -> str:
    """What ran, what to know before trusting the numbers, and a row for each file."""
    facts = f"{counted(trace.ranks, 'rank')}, {trace.mpi or 'no MPI known'}, source: {trace.source}"
    parts = [Markup("<p>{}</p>").format(warning) for warning in warnings(trace)]
    return _block(
        Markup("<p><code>{}</code><br>{}</p>").format(trace.command or "a program whose command is not known", facts),
        *parts,
        _table(overview_table(summarize(trace))),
    )


def analysis_html(analysis: Analysis) -> str:
    """The signatures of every file."""
    paths = dict.fromkeys([one.file for one in analysis.signatures] + [one.file for one in analysis.irregular])
    return _block(*(Markup("<h4>{}</h4>{}").format(path, _table(signatures_table(analysis, path))) for path in paths))


def signature_html(signature: Signature) -> str:
    """The signature's notation, what it moves, and its loops."""
    what = f"{call_name(signature)} {by_ranks(signature.ranks)}, {format_bytes(signature.bytes)} of {signature.file}"
    return _block(
        Markup("<p><code>{}</code><br>{}</p>").format(str(signature), what), _picture(loops_picture(signature))
    )


def plan_html(plan: Plan) -> str:
    """The plan's prediction, and each pattern."""
    more = len(plan.patterns) - MOST_PICTURED
    return _block(
        Markup("<p>{}</p>").format(prediction(plan)),
        *(_pattern(pattern, plan) for pattern in plan.patterns[:MOST_PICTURED]),
        Markup("<p>and {} more</p>").format(more) if more > 0 else Markup(),
    )


def _pattern(pattern: PatternPlan, plan: Plan) -> Markup:
    parts = [
        Markup("<h4>{}</h4><p>{}</p>").format(str(pattern.signature), pattern.reason),
        _picture(cost_picture(pattern)),
        _table(costs_table(pattern)),
    ]
    if pattern.choice.layout is not None:
        parts.append(_picture(layout_picture(pattern, plan.cluster)))
    return Markup().join(parts)


def _table(table: Table) -> Markup:
    return Markup(_TABLE.render(table=table))


def _picture(figure: Figure) -> Markup:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    return Markup('<div style="max-width: 900px">{}</div>').format(Markup(svg[svg.index("<svg") :]))


def _block(*parts: Markup) -> str:
    return str(Markup("<div>{}</div>").format(Markup().join(map(escape, parts))))
