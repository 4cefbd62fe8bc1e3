"""pdla replicate: build the replicas of a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdla.cli.options import json_option, print_json, say
from pdla.cli.processes import mpi_processes
from pdla.cli.progress import progress
from pdla.units import format_bytes, format_seconds, shown

if TYPE_CHECKING:
    from pdla.model import Signature
    from pdla.replicator.builder import BuiltReplica


@click.command()
@click.argument("plan_path", metavar="PLAN.json", type=click.Path(path_type=Path))
@json_option
def replicate(plan_path: Path, as_json: bool) -> None:
    """Build the replicas of a plan.

    Each replica is verified and then published for later runs. If one cannot be built, the others
    are, and the exit code is 1. With mpiexec -n N pdla replicate, N processes share the copying.
    """
    from pdla.catalog import open_catalog
    from pdla.cli.supervised_build import supervised
    from pdla.policies.planfile import read_plan
    from pdla.replicator.backends import losable
    from pdla.replicator.builder import UnbuiltError
    from pdla.replicator.builder import replicate as build_all
    from pdla.replicator.collective_steps import Alone
    from pdla.replicator.copying import assist, dismiss

    processes = mpi_processes() or Alone()
    if processes.rank:
        assist(processes)
        return
    try:
        plan = read_plan(plan_path)
        # A process of MPI must not fork. mpiexec can end it.
        if processes.size == 1 and (trouble := losable(plan)) is not None:
            supervised(trouble)
        catalog = open_catalog()
        problems: dict[Signature, str] = {}
        with progress() as advance:
            try:
                built = build_all(plan, catalog, progress=advance, processes=processes)
            except UnbuiltError as error:
                built, problems = error.built, error.problems
    finally:
        dismiss(processes)
    chosen = [one.signature for one in plan.patterns if one.choice.layout is not None]
    catalog.queue.set_state([one for one in chosen if one not in problems], "built")
    catalog.queue.set_state([one.signature for one in plan.patterns if one.choice.layout is None], "left")
    if as_json:
        print_json({"replicas": [built_json(replica) for replica in built]})
    elif chosen:
        for replica in built:
            click.echo(built_line(replica))
    else:
        click.echo("Nothing to build: the plan leaves every pattern in the original.")
    for problem in problems.values():
        say(problem)
    if problems:
        sys.exit(1)


def built_line(replica: BuiltReplica) -> str:
    """One line about one replica of the plan."""
    what = "already there" if replica.kept else f"built and verified in {format_seconds(replica.seconds)}"
    where = f"{replica.layout.name} on {replica.layout.pool}"
    return f"replica {replica.id} of {shown(replica.original.name)}: {format_bytes(replica.bytes)}, {where}, {what}"


def built_json(replica: BuiltReplica) -> dict[str, Any]:
    """The replica as plain values."""
    return {
        "id": replica.id,
        "original": str(replica.original),
        "layout": replica.layout.name,
        "pool": replica.layout.pool,
        "bytes": replica.bytes,
        "seconds": replica.seconds,
        "kept": replica.kept,
    }
