"""pdla simulate: which scheme would help a program on a storage system, and by how much."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

import pdla
from pdla.cli.options import PICTURES, Named, Output, cluster_option, json_option, print_json, read_cluster, say
from pdla.cli.processes import mpi_processes
from pdla.cli.progress import progress
from pdla.errors import PdlaError

if TYPE_CHECKING:
    from pdla.analyzers.rank_scaling import Scaling
    from pdla.simulator.sweep import Sweep


def _schemes() -> Iterable[str]:
    from pdla.simulator.schemes import scheme_names

    return scheme_names()


def _scheme(name: str) -> None:
    from pdla.simulator.schemes import check_scheme

    check_scheme(name)


@click.command()
@click.argument("traces", metavar="RUN.h5...", nargs=-1, required=True, type=click.Path(path_type=Path))
@cluster_option
@click.option(
    "--policy",
    "policies",
    type=Named(_schemes, _scheme, own=True),
    multiple=True,
    help="A scheme to simulate (repeatable); default: every scheme that the cluster can have.",
)
@click.option(
    "--sweep",
    "sweeps",
    metavar="KEY=V1,V2,...",
    multiple=True,
    help="Repeat for values of a key of cluster.toml, such as pools.ssd.capacity, or of processes.",
)
@click.option("--open-loop", is_flag=True, help="Begin calls at the trace's times, not after the previous call.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random rotation.")
@click.option("--plot", type=Output(PICTURES), metavar="FILE", help="Picture to write (.png, .svg, .pdf).")
@json_option
def simulate(
    traces: tuple[Path, ...],
    cluster: str | None,
    policies: tuple[str, ...],
    sweeps: tuple[str, ...],
    open_loop: bool,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare known schemes for parallel I/O on simulated storage.

    The program of RUN.h5 is simulated with each scheme. Give several traces only for --sweep
    processes=...: traces of one program at different numbers of ranks. The first one is simulated;
    the others show how the program depends on the number of ranks. With mpiexec -n N, the processes
    share the values of the sweep.
    """
    from pdla.catalog import open_catalog
    from pdla.replicator.backends.originals import home_of
    from pdla.report.scheme_tables import (
        contest_json,
        contest_picture,
        contest_text,
        save,
        sweep_json,
        sweep_picture,
        sweep_text,
    )  # fmt: skip
    from pdla.simulator.scheme_comparison import Program, contest
    from pdla.simulator.sweep import sweep

    storage = read_cluster(cluster, *traces)
    wanted = [_sweep(text, cluster, len(traces)) for text in sweeps]
    processes = mpi_processes() if sweeps else None
    trace = pdla.load(traces[0])
    program, storage = Program.of(trace), home_of(storage, map(str, trace.files["path"]))
    scaling = _scaling(traces) if len(traces) > 1 else None
    with progress(" simulations") as advance:
        swept = [
            (
                one.key,
                sweep(
                    *(one, program, cluster, policies),
                    scaling=scaling,
                    open_loop=open_loop,
                    seed=seed,
                    processes=processes,
                    progress=advance,
                ),
            )
            for one in wanted
        ]
        if processes and processes.rank:
            sys.exit(0)
        found = None if swept else contest(program, storage, policies, open_loop=open_loop, seed=seed, progress=advance)
    answer = {
        "cluster": storage.source,
        "command": program.command,
        "ranks": program.workload.ranks,
        **(contest_json(found) if found else {}),
        "sweeps": [sweep_json(key, points) for key, points in swept],
    }
    if plot:
        save(contest_picture(found) if found else sweep_picture(swept), plot)
    if as_json:
        print_json(answer)
    elif found:
        click.echo(contest_text(found, storage.source))
    else:
        click.echo("\n\n".join(sweep_text(key, points) for key, points in swept))
    try:
        open_catalog().simulations.add(answer)
    except PdlaError as error:
        # The answer is printed already; a catalog that fails does not change the exit code.
        say(f"the simulation was not recorded in the catalog: {error}")


def _sweep(text: str, cluster: str | None, traces: int) -> Sweep:
    """The sweep, if each of its values is possible."""
    from pdla.errors import ConfigError
    from pdla.simulator.sweep import Sweep

    try:
        found = Sweep.parse(text)
        found.check(cluster, scaled=traces > 1)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="'--sweep'") from None
    return found


def _scaling(traces: tuple[Path, ...]) -> Scaling:
    from pdla.analyzers.analysis import analyze
    from pdla.analyzers.rank_scaling import scale

    analyses = {}
    for path in traces:
        trace = pdla.load(path)
        if trace.ranks in analyses:
            raise PdlaError(f"{path} has {trace.ranks} ranks, as has another trace: give one trace for each number")
        analyses[trace.ranks] = analyze(trace)
    return scale(analyses)
