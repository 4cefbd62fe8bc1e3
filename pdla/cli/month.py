"""pdla month: what the autopilot was worth in a month, as a page that can be mailed."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import click

from pdla.cli.learning import start_in_background
from pdla.cli.options import Output, json_option, print_json, say


def _month(_: click.Context, __: click.Parameter, value: str | None) -> date:
    """The first day of a month; without a value of the present one."""
    if value is None:
        return date.today().replace(day=1)
    try:
        return datetime.strptime(value, "%Y-%m").date()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a month such as 2026-11") from None


@click.command()
@click.argument("first", metavar="[YYYY-MM]", required=False, callback=_month)
@click.option(
    "-o", "output", type=Output(), default="month.html", show_default=True, metavar="FILE", help="File to write."
)
@json_option
def month(first: date, output: Path, as_json: bool) -> None:
    """Make an HTML report of a month, by default of this one, for a browser or a mail.

    It says how much time your applications spent in I/O, what pdla saved, and what it decided.
    """
    from pdla.autopilot.months import Month
    from pdla.autopilot.names import this_user
    from pdla.catalog import open_catalog
    from pdla.report.month import sentences, write_month

    start_in_background()
    found = Month.of(open_catalog(), this_user(), first)
    write_month(output, found)
    if as_json:
        print_json(
            {
                "report": str(output),
                "month": f"{first:%Y-%m}",
                "saved": found.saved,
                "applications": [
                    {
                        "id": one.id,
                        "name": one.name,
                        "runs": len(one.runs),
                        "before": one.before,
                        "after": one.after,
                        "estimated": one.estimated,
                        "hit_ratio": one.hit_ratio,
                        "replica_bytes": one.space,
                        "changed": one.changed,
                    }
                    for one in found.applications
                ],
                "decisions": dict(found.counts),
            }
        )
        return
    say(f"wrote {output}", err=False)
    for line in sentences(found):
        say(line, err=False)
