"""pdla demo: trace, analyze, plan, replicate and run two real MPI programs."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import pdla
from pdla.cli.launch import Mpi, find_mpis
from pdla.cli.options import json_option, print_json
from pdla.cli.replicate import built_line
from pdla.cli.run import redirection
from pdla.cli.trace import record
from pdla.config import home
from pdla.errors import PdlaError
from pdla.units import GiB, MiB, format_bytes

if TYPE_CHECKING:
    from pdla.report.html import Run
    from pdla.traces.trace import Trace

RANKS = 4
SIDE = 8192  # the matrix of floats is SIDE x SIDE: 256 MiB
SLABS = (64, 1024, 1024)  # the same bytes as a 3-D array
SPACE = 3 * GiB // 2  # data, result and replicas
MARKER = ".pdla-demo"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Program:
    """A program of the demo, what it does, and how to start it."""

    name: str
    does: str
    command: tuple[str, ...]


@click.command()
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="pdla-demo",
    show_default=True,
    help="Directory for the data, the replicas and the report (1.5 GiB).",
)
@json_option
def demo(directory: Path, as_json: bool) -> None:
    """Try pdla on two real MPI programs.

    The demo traces each program, analyzes it, plans, builds the replicas, runs the program
    redirected, and compares every byte. It fails if a byte differs.
    """
    mpi = _find_mpi()
    directory = directory.absolute()
    _prepare(directory)
    os.environ.update(mpi.environment, PDLA_HOME=str(directory / "home"))
    os.environ.pop("PDLA_CATALOG", None)
    say: Say = (lambda text: None) if as_json else click.echo
    programs = _programs(mpi, directory)
    say(f"{mpi.version}, {RANKS} ranks, one file of {format_bytes(4 * SIDE * SIDE)}, all in {directory}")
    runs = []
    for program in programs:
        say(f"\n== {program.name}: {program.does}")
        runs.append(_loop(program, directory, say))
    _conclude(runs, directory / "report.html", as_json, say)


def _find_mpi() -> Mpi:
    mpi = next((mpi for mpi in find_mpis() if mpi.mpicc), None)
    if mpi is None or importlib.util.find_spec("mpi4py") is None:
        raise PdlaError(
            "the demo compiles and runs MPI programs, but found no mpicc or no mpi4py: pip install mpich mpi4py"
        )
    return mpi


def _prepare(directory: Path) -> None:
    """Make an empty PDLA_HOME and a data file in ``directory``, which is new or was made by an earlier demo."""
    marker = directory / MARKER
    if directory.exists() and not marker.exists() and any(directory.iterdir()):
        raise PdlaError(f"{directory} has other files in it: name a new directory with --directory")
    directory.mkdir(parents=True, exist_ok=True)
    marker.touch()
    shutil.rmtree(directory / "home", ignore_errors=True)
    (directory / "home").mkdir(mode=0o700)
    free = shutil.disk_usage(directory).free
    if free < SPACE:
        raise PdlaError(f"the demo needs {format_bytes(SPACE)} in {directory}, but only {format_bytes(free)} are free")
    data = directory / "matrix.dat"
    if not data.exists() or data.stat().st_size != 4 * SIDE * SIDE:
        import numpy as np

        numbers = np.random.default_rng(2020)
        with data.open("wb") as file:
            while (left := 4 * SIDE * SIDE - file.tell()) > 0:
                file.write(numbers.bytes(min(left, 16 * MiB)))


def _programs(mpi: Mpi, directory: Path) -> list[Program]:
    """The two example programs, compiled if necessary."""
    examples = Path(str(importlib.resources.files("pdla") / "examples"))
    tiles = directory / "tiles"
    done = subprocess.run(
        [str(mpi.mpicc), "-O2", "-o", tiles, examples / "tiles.c"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PdlaError(f"{mpi.mpicc} cannot compile {examples / 'tiles.c'}: {done.stderr.strip().splitlines()[-1]}")
    mpiexec = (str(mpi.mpiexec), "-n", str(RANKS))
    data = str(directory / "matrix.dat")
    return [
        Program(
            "tiles",
            "a C program reads and writes tiles of a matrix collectively, then reads blocks of columns row by row",
            (*mpiexec, str(tiles), data, str(directory / "result.dat"), str(SIDE)),
        ),
        Program(
            "slabs",
            "an mpi4py program reads a 3-D array slab by slab, collectively",
            (*mpiexec, sys.executable, str(examples / "slabs.py"), data, *map(str, SLABS)),
        ),
    ]


def _loop(program: Program, directory: Path, say: Say) -> Run:
    """Trace, analyze, plan, replicate and run one program; print the result of each step."""
    from pdla.catalog import open_catalog
    from pdla.policies.planfile import write_plan
    from pdla.replicator.builder import replicate
    from pdla.replicator.exit_reports import collect
    from pdla.report.comparison import Comparison
    from pdla.report.html import Run
    from pdla.report.text import comparison_table, plan_table, signature_table

    command = shlex.join(Path(word).name for word in program.command)
    first = directory / f"{program.name}.h5"
    say(f"\n$ pdla trace -o {first.name} -- {command}")
    before, output_before, wall_before = _run(program, first, {}, directory)
    say(output_before.rstrip())
    analysis = pdla.analyze(before)
    say(f"\n$ pdla analyze {first.name}\n{signature_table(analysis)}")
    plan = pdla.plan(before, analysis=analysis)
    write_plan(plan, directory / f"{program.name}.json")
    say(f"\n$ pdla plan {first.name} --explain -o {program.name}.json\n{plan_table(plan)}")
    say("(Predicted for the nominal disks and SSDs of the default cluster. Below is what this machine measured.)")
    say(f"\n$ pdla replicate {program.name}.json")
    catalog = open_catalog()
    for replica in replicate(plan, catalog):
        say(built_line(replica))
    say(f"\n$ pdla run -- {command}")
    with redirection(program.command) as (variables, reports):
        after, output_after, wall_after = _run(
            program, directory / f"{program.name}-redirected.h5", variables, directory
        )
        redirected = collect(reports, shlex.join(program.command))
    catalog.results.add(redirected, reports.name)
    say(output_after.rstrip())
    say(f"pdla: {redirected.sentence}")
    comparison = Comparison.of(
        before, after, redirected, wall_before, wall_after, identical=output_before == output_after
    )
    say(f"\n{comparison_table(comparison)}\n{comparison.sentence}")
    return Run(before, analysis, plan, after, redirected, comparison)


def _run(program: Program, output: Path, variables: dict[str, str], directory: Path) -> tuple[Trace, str, float]:
    """Record a run of ``program`` with none of the data in the page cache: trace, standard output, seconds."""
    _evict([directory / "matrix.dat", *(path for path in (home() / "pools").rglob("*") if path.is_file())])
    with tempfile.TemporaryFile() as stdout:
        start = time.perf_counter()
        packed, code = record(program.command, output, variables, stdout)
        seconds = time.perf_counter() - start
        stdout.seek(0)
        text = stdout.read().decode()
    if code or packed is None:
        raise PdlaError(f"{program.name} failed with exit code {code}: {shlex.join(program.command)}")
    return pdla.load(output), text, seconds


def _evict(paths: Iterable[Path]) -> None:
    """Write dirty pages back and drop the clean ones, so that both runs read from the storage."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _conclude(runs: list[Run], report: Path, as_json: bool, say: Say) -> None:
    """Write the report, print the outcome, and fail if a byte differed."""
    from pdla.report.comparison import Comparison
    from pdla.report.html import write_report

    write_report(report, runs)
    comparisons = [run.comparison for run in runs if isinstance(run.comparison, Comparison)]
    identical = all(comparison.identical for comparison in comparisons)
    say(f"\nThe report with the pictures: {report}")
    if as_json:
        print_json(
            {
                "identical": identical,
                "requests_before": sum(comparison.requests_before for comparison in comparisons),
                "requests_after": sum(comparison.requests_after for comparison in comparisons),
                "bytes_from_replicas": sum(comparison.bytes_from_replicas for comparison in comparisons),
                "seconds_before": sum(comparison.seconds_before for comparison in comparisons),
                "seconds_after": sum(comparison.seconds_after for comparison in comparisons),
                "report": str(report),
            }
        )
    if not identical:
        raise PdlaError("a redirected run received other bytes than the first run: please report this")
