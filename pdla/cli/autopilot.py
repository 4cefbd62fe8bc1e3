"""pdla applications, history, log, undo, forget, pause, resume: what the autopilot learned and did."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdla import config
from pdla.autopilot import spool
from pdla.cli.learning import start_in_background
from pdla.cli.options import NUMBER, PICTURES, Output, json_option, print_json, say
from pdla.errors import CatalogError
from pdla.units import counted

if TYPE_CHECKING:
    from pdla.catalog import Catalog, Decision, LearnedRun

LATEST = 50
"""Decisions that are shown without --last."""

application_argument = click.argument("which", metavar="APP")


@click.command()
@json_option
def applications(as_json: bool) -> None:
    """List the applications that were learned from.

    All runs of a program with the same words on its command line are one application, whatever the
    numbers in them, the input files and the ranks.
    """
    from pdla.autopilot.names import this_user
    from pdla.catalog import open_catalog
    from pdla.report.autopilot import applications_text

    start_in_background()
    catalog = open_catalog()
    owner = this_user()
    found = [
        (one, catalog.autopilot.runs(one.id), _space(catalog, owner, one.id))
        for one in catalog.autopilot.applications(owner)
    ]
    if as_json:
        print_json(
            {
                "applications": [
                    {
                        "id": one.id,
                        "name": one.name,
                        "runs": len(runs),
                        "last": one.last.isoformat(timespec="seconds") if one.last else None,
                        "ranks": sorted({run.facts.ranks for run in runs}),
                        "replica_bytes": size,
                        "hit_ratio": runs[-1].facts.hit_ratio if runs else 0.0,
                        "saved": sum(run.facts.measured or 0.0 for run in runs),
                    }
                    for one, runs, size in found
                ]
            }
        )
    else:
        click.echo(applications_text(found))


@click.command()
@click.argument("which", metavar="[APP]", required=False)
@click.option("--files", is_flag=True, help="Show files that one application writes and another one reads.")
@click.option("--plot", type=Output(PICTURES), metavar="FILE", help="Draw the runs (.png, .svg, .pdf).")
@json_option
def history(which: str | None, files: bool, plot: Path | None, as_json: bool) -> None:
    """Show the runs of an application, what they gained, and what changed.

    APP is the number or the name of an application, as pdla applications lists them. With --files,
    and without APP, files of all applications are shown.
    """
    if files:
        _show_files(which, as_json)
        return
    if which is None:
        raise click.UsageError("Which application? pdla applications lists them (or --files for the files of all)")
    from pdla.autopilot.judging import Judge
    from pdla.autopilot.names import this_user
    from pdla.catalog import open_catalog
    from pdla.report.autopilot import history_picture, history_text

    start_in_background()
    catalog = open_catalog()
    application = catalog.autopilot.find(this_user(), which)
    runs = catalog.autopilot.runs(application.id)
    factors = Judge(catalog, this_user()).factors
    if plot is not None:
        from pdla.report.scheme_tables import save

        save(history_picture(runs), plot)
    if as_json:
        print_json(
            {
                "id": application.id,
                "name": application.name,
                "runs": [_run_json(run) for run in runs],
                "factors": {pool: asdict(one) for pool, one in factors.items()},
            }
        )
    else:
        click.echo(history_text(application, runs, factors))


def _show_files(which: str | None, as_json: bool) -> None:
    from pdla.autopilot.chains import chains
    from pdla.autopilot.names import this_user
    from pdla.catalog import open_catalog
    from pdla.report.autopilot import chains_text

    start_in_background()
    catalog = open_catalog()
    only = catalog.autopilot.find(this_user(), which).id if which else None
    names = {one.id: one.name for one in catalog.autopilot.applications(this_user())}
    found = [
        one
        for one in chains({number: catalog.autopilot.runs(number) for number in names})
        if only in (None, one.writer, one.reader)
    ]
    if as_json:
        print_json(
            {
                "files": [
                    {
                        "file": one.file,
                        "writer": one.writer,
                        "reader": one.reader,
                        "times": one.times,
                        "writing": one.writing,
                        "reading": one.reading,
                    }
                    for one in found
                ]
            }
        )
    else:
        click.echo(chains_text(found, names))


@click.command()
@click.argument("which", metavar="[APP]", required=False)
@click.option("--last", type=NUMBER, default=LATEST, show_default=True, help="Show so many of the latest lines.")
@json_option
def log(which: str | None, last: int, as_json: bool) -> None:
    """Show everything that the autopilot did, and why, with the command that undoes it."""
    from pdla.autopilot.names import this_user
    from pdla.catalog import open_catalog
    from pdla.report.autopilot import log_text

    start_in_background()
    catalog = open_catalog()
    application = catalog.autopilot.find(this_user(), which).id if which else None
    decisions = catalog.autopilot.decisions(this_user(), application=application, last=last)
    if as_json:
        print_json({"decisions": [_decision_json(one) for one in decisions]})
    else:
        click.echo(log_text(decisions))


@click.command()
@click.argument("number", metavar="NUMBER", type=NUMBER)
@json_option
def undo(number: int, as_json: bool) -> None:
    """Undo a decision; pdla log lists them with their numbers."""
    from pdla.autopilot.undoing import undo as take_back
    from pdla.catalog import open_catalog

    said = take_back(open_catalog(), number)
    if as_json:
        print_json({"undone": number, "what": said})
    else:
        click.echo(f"Decision {number} is undone: {said}.")


@click.command()
@application_argument
@json_option
def forget(which: str, as_json: bool) -> None:
    """Forget an application: its runs, its patterns, and the replicas that no other application has."""
    from pdla.autopilot.names import this_user
    from pdla.autopilot.undoing import forget as forget_all
    from pdla.catalog import open_catalog

    catalog = open_catalog()
    application = catalog.autopilot.find(this_user(), which)
    removed = forget_all(catalog, application)
    if as_json:
        print_json({"forgotten": application.id, "name": application.name, "replicas": removed})
    else:
        click.echo(f"Forgotten: {application.name}; {counted(removed, 'replica')} removed.")


@click.command()
@json_option
def pause(as_json: bool) -> None:
    """Learn and build nothing until pdla resume. Runs are served from the replicas that are there."""
    spool.pause()
    _log_it("paused")
    if as_json:
        print_json({"paused": True})
    else:
        click.echo("Learning is paused until pdla resume.")


@click.command()
@json_option
def resume(as_json: bool) -> None:
    """End pdla pause."""
    spool.resume()
    _log_it("resumed")
    start_in_background()
    if as_json:
        print_json({"paused": False})
    else:
        click.echo("Runs are learned from again.")


def _log_it(kind: Any) -> None:
    """Log that the user paused or resumed; a catalog that fails does not keep the user from it."""
    from pdla.autopilot.names import this_user
    from pdla.catalog import Decision, open_catalog

    # Several PDLA_HOMEs may share a catalog, each with a pause of its own.
    why = f"as the user asked, for {config.home()}"
    try:
        decision = Decision(f"{kind}:{os.urandom(8).hex()}", kind, why)
        open_catalog().autopilot.decide(this_user(), [decision])
    except CatalogError as error:
        say(f"this is not in the log: {error}")


def _space(catalog: Catalog, owner: str, application: int) -> int:
    """Bytes of the replicas that were built for an application."""
    built = {one.replica for one in catalog.autopilot.decisions(owner, application=application, kinds=["built"])}
    return sum(one.size for one in catalog.replicas.listing() if one.id in built)


def _run_json(run: LearnedRun) -> dict[str, Any]:
    facts = run.facts
    return {
        "id": run.id,
        "time": run.time.isoformat(timespec="seconds"),
        "ranks": facts.ranks,
        "bytes": facts.bytes,
        "before": facts.before,
        "seconds": facts.seconds,
        "read": facts.read,
        "hit": facts.hit,
        "redirected": facts.redirected,
        "hit_ratio": facts.hit_ratio,
        "predicted": facts.predicted,
        "measured": facts.measured,
        "policy": facts.policy,
        "io": facts.io,
        "run": facts.run or None,
        "replicas": {int(number): size for number, size in facts.replicas.items()},
        "drift": [asdict(one) for one in facts.drift],
        "files": list(facts.files),
    }


def _decision_json(one: Decision) -> dict[str, Any]:
    from pdla.report.autopilot import undo_of

    return {
        "id": one.id,
        "time": one.time.isoformat(timespec="seconds"),
        "kind": one.kind,
        "application": one.application,
        "replica": one.replica,
        "why": one.why,
        "facts": dict(one.facts),
        "undo": undo_of(one) or None,
        "undone": one.undone.isoformat(timespec="seconds") if one.undone else None,
    }
