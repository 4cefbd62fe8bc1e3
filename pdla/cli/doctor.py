"""pdla doctor, pdla preload: what works on this machine."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdla import __version__
from pdla.cli.launch import find_mpis, library, preloaded
from pdla.cli.mpi_probe import RANKS, Probe, probe
from pdla.cli.options import Output, json_option, print_json
from pdla.cli.processes import mpi_processes
from pdla.config import catalog_url, home, map_path
from pdla.errors import PdlaError
from pdla.units import format_bytes

if TYPE_CHECKING:
    from pdla.cli.directory_probe import Fact

NO_LIBRARY = "libpdla.so is missing"
EXTRAS = ("mpi4py", "darshan", "otf2", "pyarrow", "psycopg")


@click.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=Path)
@click.option(
    "--bundle", "bundle_path", type=Output(), metavar="FILE", help="Write what to send with a report of a bug, as JSON."
)
@click.option("--backend", metavar="NAME", help="Test this storage back end in DIR: lustre or beegfs.")
@json_option
def doctor(directories: tuple[Path, ...], bundle_path: Path | None, backend: str | None, as_json: bool) -> None:
    """Check what works on this machine, or in directories.

    The check records a tiny MPI-IO program of two ranks under each MPI that it finds, and compares
    the records with what the program does. It fails if it captured nothing under any MPI.

    With DIR it checks instead what the file system of each directory can do, and says what follows.
    With mpiexec -n 2 pdla doctor DIR, it also compares what several nodes see.

    With --backend it makes small replicas in DIR on such storage, in every layout, asks where they
    are, reads them back, and removes them.
    """
    if backend is not None:
        if len(directories) != 1 or bundle_path:
            raise click.UsageError("give one directory with --backend")
        from pdla.cli.backend_test import test_backend

        test_backend(backend, directories[0].absolute(), as_json)
        return
    if directories and bundle_path:
        raise click.UsageError("give directories, or --bundle, not both")
    if directories:
        _directories(directories, as_json)
        return
    found = _installation()
    if bundle_path:
        from pdla.cli.bundle import bundle

        text = json.dumps(bundle(found), indent=1)
        bundle_path.write_text(f"{text}\n", encoding="utf-8")
        click.echo(f"wrote {bundle_path}: {format_bytes(len(text))} of text; read it before you send it")
        return
    if as_json:
        print_json(found)
    else:
        _print(found)
    _judge(found)


def _installation() -> dict[str, Any]:
    """What is installed here, and what was captured of a program under each MPI."""
    preload_library = library()
    mpis = find_mpis()
    if preload_library is None:
        probes = [Probe(mpi, why=(NO_LIBRARY,)) for mpi in mpis]
    else:
        with ThreadPoolExecutor(max(1, len(mpis))) as threads:
            probes = list(threads.map(probe, mpis))
    return {
        "version": __version__,
        "python": platform.python_version(),
        "library": str(preload_library) if preload_library else None,
        "mpi": [_as_json(probed) for probed in probes],
        "extras": {name: importlib.util.find_spec(name) is not None for name in EXTRAS},
        "home": str(home()),
        "catalog": catalog_url(),
        "map": str(map_path()) if map_path().exists() else None,
    }


def _print(found: Mapping[str, Any]) -> None:
    click.echo(f"pdla {__version__} on Python {found['python']}, {platform.system()} {platform.machine()}")
    click.echo(f"library    {found['library'] or 'missing: analysis only (install gcc, then install pdla again)'}")
    for mpi in found["mpi"]:
        for number, line in enumerate(_lines(mpi)):
            click.echo(f"{'' if number else 'mpi':<10} {line}")
    if not found["mpi"]:
        click.echo("mpi        none found here or on PATH (pip install mpich, or load your site's module)")
    for name, present in found["extras"].items():
        click.echo(f"{name:<10} {'installed' if present else f'not installed (pip install {name})'}")
    click.echo(f"home       {found['home']}")
    click.echo(f"replicas   {'published in ' + found['map'] if found['map'] else 'none published yet'}")


def _judge(found: Mapping[str, Any]) -> None:
    if found["library"] is None:
        raise PdlaError(f"no program can be traced or redirected here: {NO_LIBRARY} (analysis of traces works)")
    if not any(mpi["calls_seen"] for mpi in found["mpi"]):
        raise PdlaError(
            f"no MPI-IO call was captured under any of the {len(found['mpi'])} MPIs found "
            "(the lines above give the reasons)"
            if found["mpi"]
            else "found no MPI to trace programs with: pip install mpich, or load your site's module"
        )


def _directories(directories: Sequence[Path], as_json: bool) -> None:
    from pdla.cli.directory_probe import probe_directory
    from pdla.cli.node_comparison import compare_nodes

    processes = mpi_processes()
    first = processes is None or not processes.rank
    found: list[tuple[Path, list[Fact]]] = []
    for directory in directories:
        try:
            facts = compare_nodes(directory, processes) if processes else []
        except PdlaError:
            if first:
                raise
            sys.exit(1)  # process 0 prints the reason
        found.append((directory, [*(probe_directory(directory) if first else ()), *facts]))
    if first and as_json:
        print_json({"directories": [{"directory": str(one), "facts": [*map(asdict, facts)]} for one, facts in found]})
    elif first:
        for directory, facts in found:
            _print_facts(directory, facts)


def _print_facts(directory: Path, facts: Sequence[Fact]) -> None:
    click.echo(directory)
    width = max(len(fact.name) for fact in facts)
    for fact in facts:
        click.echo(f"  {fact.name:<{width}}  {fact.found}")
        if fact.trouble:
            click.echo(f"  {'':<{width}}  -> {fact.trouble}")


def _as_json(probed: Probe) -> dict[str, Any]:
    return {
        "mpiexec": str(probed.mpi.mpiexec),
        "mpicc": str(probed.mpi.mpicc or ""),
        "version": probed.mpi.version,
        "program": probed.program,
        "library": probed.library,
        "captured": probed.captured,
        "calls_made": probed.calls_made,
        "calls_seen": probed.calls_seen,
        "bytes_made": probed.bytes_made,
        "bytes_seen": probed.bytes_seen,
        "extents_right": probed.extents_right,
        "large_counts": probed.large_counts,
        "why": list(probed.why),
    }


def _lines(mpi: Mapping[str, Any]) -> Iterator[str]:
    yield f"{mpi['version']}: {mpi['mpiexec']}"
    if mpi["calls_seen"]:
        yield (
            f"captured{'' if mpi['captured'] else ' in part'}: {mpi['calls_seen']} of {mpi['calls_made']} calls, "
            f"{mpi['bytes_seen']} of {mpi['bytes_made']} bytes, "
            f"extents {'right' if mpi['extents_right'] else 'wrong'} ({mpi['program']}, {RANKS} ranks)"
        )
    else:
        yield "nothing captured"
    yield from mpi["why"]


@click.command()
def preload() -> None:
    """Print the path of the library to preload.

    For launchers that need LD_PRELOAD set by hand: mpirun -x LD_PRELOAD=..., srun
    --export=ALL,LD_PRELOAD=...
    """
    preloaded({})
    click.echo(library())
