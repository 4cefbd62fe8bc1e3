"""pdla replicate: build the replicas of a plan."""

from __future__ import annotations

from pathlib import Path

import click

from pdla.cli.options import json_option, print_json
from pdla.config import catalog_url


@click.command()
@click.argument("plan_path", metavar="PLAN.json", type=click.Path(path_type=Path))
@json_option
def replicate(plan_path: Path, as_json: bool) -> None:
    """Build, verify and publish the replicas that PLAN.json asks for."""
    from pdla.catalog import open_catalog
    from pdla.policies.planfile import read_plan
    from pdla.replicator.builder import replicate as build_all
    from pdla.units import format_bytes

    built = build_all(read_plan(plan_path), open_catalog(catalog_url()))
    if as_json:
        print_json({"replicas": [replica.to_json() for replica in built]})
    elif not built:
        click.echo("Nothing to build: the plan leaves every pattern alone.")
    for replica in [] if as_json else built:
        what = f"built and verified in {replica.seconds:.2f} s" if replica.built else "already there, still valid"
        where = f"{replica.layout.name} on {replica.layout.pool}"
        click.echo(f"replica {replica.id}  {format_bytes(replica.bytes)}  {where}  {what}")
