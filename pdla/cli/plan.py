"""pdla plan: what to replicate, where, and why."""

from __future__ import annotations

from pathlib import Path

import click

import pdla
from pdla.cli.options import json_option, print_json, trace_argument


@click.command()
@trace_argument
@click.option(
    "--cluster", "cluster_path", type=click.Path(path_type=Path), help="cluster.toml; by default a nominal one."
)
@click.option("--policy", default="auto", show_default=True, help="auto, pdla-h, pdla-s or none.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Plan to write, for pdla replicate.")
@json_option
def plan(trace_path: Path, cluster_path: Path | None, policy: str, output: Path | None, as_json: bool) -> None:
    """Choose what to replicate, where, and why.

    Costs every way to serve the patterns of RUN.h5 on the storage of cluster.toml.
    """
    from pdla.analyzers.analysis import analyze
    from pdla.layouts.config import load_cluster
    from pdla.policies.plan import make_plan
    from pdla.policies.planfile import plan_to_json, write_plan
    from pdla.report.text import plan_table

    cluster = load_cluster(cluster_path)
    trace = pdla.load(trace_path)
    made = make_plan(analyze(trace), cluster, policy, trace.command)
    if output is not None:
        write_plan(made, output)
    if as_json:
        print_json(plan_to_json(made))
    else:
        click.echo(plan_table(made))
