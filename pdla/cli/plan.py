"""pdla plan: what to replicate, where, and why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import click

import pdla
from pdla.cli.options import Named, Output, cluster_option, json_option, print_json, read_cluster, say, trace_argument
from pdla.cli.progress import analyzed, progress
from pdla.errors import PdlaError
from pdla.units import counted


def _policies() -> Iterable[str]:
    from pdla.policies import policy_names

    return policy_names()


def _policy(name: str) -> None:
    from pdla.policies import get_policy

    get_policy(name)


@click.command()
@trace_argument
@cluster_option
@click.option(
    "--policy",
    type=Named(_policies, _policy),
    default="auto",
    show_default=True,
    help="Policy that chooses the replicas.",
)
@click.option(
    "--selection",
    type=click.Choice(["optimal", "greedy"]),
    default="optimal",
    show_default=True,
    help="How to choose if the pools are too small for all replicas that are worth it.",
)
@click.option(
    "--writes",
    type=click.Choice(["original", "close", "lease"]),
    default="original",
    show_default=True,
    help="Where pdla run --writes will send writes; with close or lease, patterns that write also get replicas.",
)
@click.option(
    "--simulate",
    "seconds",
    type=click.FloatRange(min=0),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="Time for simulations of what the cost model proposes; 0: only the cost model decides.",
)
@click.option("--explain", is_flag=True, help="Show what each candidate would cost, and why it was not chosen.")
@click.option("--queue", is_flag=True, help="Queue the plan for pdla daemon to build.")
@click.option("-o", "output", type=Output(), metavar="FILE", help="Plan to write, for pdla replicate.")
@json_option
def plan(
    trace_path: Path,
    cluster: str | None,
    policy: str,
    selection: str,
    writes: Literal["original", "close", "lease"],
    seconds: float,
    explain: bool,
    queue: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose what to replicate, where, and why.

    The planner predicts the cost of each way to serve the patterns of RUN.h5 on the storage of the
    cluster, and simulates the best ones.
    """
    from pdla.catalog import open_catalog
    from pdla.policies.planfile import plan_to_json, write_plan
    from pdla.replicator.queued_plans import enqueue
    from pdla.report.text import MOST, plan_summary, plan_table
    from pdla.simulator.verification import differences
    from pdla.steps import missing_files

    storage = read_cluster(cluster, trace_path)
    trace = pdla.load(trace_path)
    analysis = analyzed(trace)
    gone = missing_files(analysis)
    with progress(" patterns") as advance:
        made = pdla.plan(
            *(trace, storage, policy),
            selection=selection,
            writes=writes,
            seconds=seconds,
            analysis=analysis,
            progress=advance,
        )
    none = gone and all(one.op == "read" and one.file in gone for one in analysis.signatures)
    if output is not None and not none:
        write_plan(made, output)
    if queue and not none:
        say(f"{counted(enqueue(open_catalog(), made), 'pattern')} planned and queued for pdla daemon")
    if as_json:
        print_json(plan_to_json(made))
    else:
        click.echo(plan_table(made, differences(made, MOST, writes == "lease")) if explain else plan_summary(made))
    if none and (output or queue):
        raise PdlaError(f"nothing can be replicated, because these files no longer exist: {', '.join(gone)}")
    for path in gone:
        say(f"{path} no longer exists: its patterns get no replica")
