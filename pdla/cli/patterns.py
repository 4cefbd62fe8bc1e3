"""pdla patterns: what the catalog knows about access patterns, over all analyzed runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pdla
from pdla.cli.options import NUMBER, check_traces, json_option, print_json
from pdla.errors import PdlaError
from pdla.units import counted

if TYPE_CHECKING:
    from pdla.analyzers.analysis import Analysis
    from pdla.catalog import Occurrence, Pattern, Run
    from pdla.model import Signature


@click.group()
def patterns() -> None:
    """Look at the patterns of all analyzed runs.

    pdla analyze records them in the catalog.
    """


@patterns.command("list")
@click.option("--file", default="*", metavar="GLOB", help="Only patterns of files whose path matches.")
@click.option("--application", default="*", metavar="GLOB", help="Only patterns of applications whose command matches.")
@click.option("--ranks", type=NUMBER, help="Only patterns of runs with this number of ranks.")
@click.option("--queued", is_flag=True, help="Only patterns in the replication queue.")
@json_option
def list_(file: str, application: str, ranks: int | None, queued: bool, as_json: bool) -> None:
    """List the patterns."""
    from pdla.catalog import open_catalog
    from pdla.report.patterns import pattern_table

    found = open_catalog().patterns.find(
        file=file, application=application, ranks=ranks, state="queued" if queued else None
    )
    if as_json:
        print_json({"patterns": [_pattern_json(one) for one in found]})
    else:
        click.echo(pattern_table(found))


@patterns.command()
@click.argument("number", metavar="ID", type=NUMBER)
@json_option
def show(number: int, as_json: bool) -> None:
    """Show everything that is known about a pattern.

    ID is the number that pdla patterns list prints. Shown are the loops, the members, and each run
    that has the pattern.
    """
    from pdla.analyzers.analysis import MEMBERS
    from pdla.catalog import open_catalog
    from pdla.catalog.records import members_of
    from pdla.report.patterns import pattern_text

    found, seen = open_catalog().patterns.get(number)
    one = found.signature
    members = list(members_of(one)) if one.scope == "global" else []
    if as_json:
        print_json(
            {
                **_pattern_json(found),
                "members": [
                    {"rank": member.ranks[0], "start": member.start, "notation": str(member)}
                    for member in members[:MEMBERS]
                ],
                "members_left_out": max(0, len(members) - MEMBERS),
                "seen": [_seen_json(*one) for one in seen],
            }
        )
    else:
        click.echo(pattern_text(found, seen, members))


@patterns.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option
def diff(before: str, after: str, as_json: bool) -> None:
    """Compare the patterns of two runs.

    A and B are traces (RUN.h5) or numbers of runs in the catalog (pdla patterns show prints them).
    """
    from pdla.analyzers.run_difference import compare
    from pdla.report.patterns import difference_text

    check_traces(Path(word) for word in (before, after) if not _is_number(word))
    found = compare(_signatures(before), _signatures(after))
    if as_json:
        print_json(
            {
                "both": [str(one) for one in found.both],
                "changed": [
                    {"file": new.file, "before": str(old), "after": str(new), "what": list(what)}
                    for old, new, what in found.changed
                ],
                "only_before": [{"file": one.file, "notation": str(one)} for one in found.before],
                "only_after": [{"file": one.file, "notation": str(one)} for one in found.after],
            }
        )
    else:
        click.echo(difference_text(found, before, after))


@patterns.command()
@click.argument("traces", metavar="RUN.h5...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="Number of ranks to predict the patterns for.")
@json_option
def scale(traces: tuple[Path, ...], ranks: int, as_json: bool) -> None:
    """Predict the patterns at another number of ranks.

    Give traces of one program at two or more numbers of ranks. If the traces do not agree on how
    the patterns depend on the number of ranks, the verb fails and prints why.
    """
    from pdla.analyzers.analysis import analyze, shape_json
    from pdla.analyzers.rank_scaling import scale as compare
    from pdla.report.patterns import scaling_text

    check_traces(traces)
    analyses: dict[int, Analysis] = {}
    for path in traces:
        trace = pdla.load(path)
        if trace.ranks in analyses:
            raise PdlaError(
                f"{path} has {counted(trace.ranks, 'rank')}, as has another trace: give one trace for each number"
            )
        analyses[trace.ranks] = analyze(trace)
    found = compare(analyses)
    predicted: tuple[Signature, ...] = () if found.disagreements else found.at(ranks)
    if as_json:
        print_json(
            {
                "ranks": list(found.ranks),
                "signatures": [{"file": one.file, "notation": str(one)} for one in found.signatures],
                "disagreements": list(found.disagreements),
                "predicted": [
                    {**shape_json(one), "ranks": len(one.ranks), "extent": list(one.extent)} for one in predicted
                ],
            }
        )
    else:
        click.echo(scaling_text(found, predicted, ranks))
    if found.disagreements:
        raise PdlaError(f"the traces disagree, so nothing can be predicted: {found.disagreements[0]}")


def _is_number(word: str) -> bool:
    return word.isdecimal() and not Path(word).exists()


def _signatures(word: str) -> tuple[Signature, ...]:
    """The patterns of a trace, or of a run in the catalog."""
    if _is_number(word) and int(word) >= 2**63:
        raise PdlaError(f"there is no run {word} in the catalog")
    if _is_number(word):
        from pdla.catalog import open_catalog

        return tuple(occurrence.signature for occurrence in open_catalog().runs.get(int(word))[1])
    from pdla.analyzers.analysis import analyze

    return analyze(pdla.load(word)).signatures


def _pattern_json(one: Pattern) -> dict[str, Any]:
    from pdla.analyzers.analysis import shape_json

    return {
        "id": one.id,
        **shape_json(one.signature),
        "runs": one.runs,
        "state": one.state,
        "since": one.since.isoformat(timespec="seconds"),
        "why": one.why,
    }


def _seen_json(run: Run, occurrence: Occurrence) -> dict[str, Any]:
    return {
        "run": run.id,
        "application": run.application,
        "command": run.command,
        "ranks": run.ranks,
        "started": run.started and run.started.isoformat(timespec="seconds"),
        "trace": run.path,
        "mpi": run.mpi,
        "hosts": list(run.hosts),
        "environment": dict(run.environment),
        "calls": occurrence.signature.calls,
        "t_start": occurrence.signature.t_start,
        "t_end": occurrence.signature.t_end,
        "aspects": dict(occurrence.aspects),
    }
