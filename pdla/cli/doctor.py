"""pdla doctor, pdla preload: what works on this machine."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from pdla import __version__
from pdla.cli.launch import find_mpis, library, preloaded
from pdla.cli.mpi_probe import RANKS, Probe, probe
from pdla.cli.options import json_option, print_json
from pdla.config import catalog_url, home, map_path
from pdla.errors import PdlaError

NO_LIBRARY = "libpdla.so is missing"


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what works on this machine.

    The check records a tiny MPI-IO program of two ranks under each MPI that it finds, and compares
    the records with what the program does. It fails if it captured nothing under any MPI.
    """
    preload_library = library()
    mpis = find_mpis()
    if preload_library is None:
        probes = [Probe(mpi, why=(NO_LIBRARY,)) for mpi in mpis]
    else:
        with ThreadPoolExecutor(max(1, len(mpis))) as threads:
            probes = list(threads.map(probe, mpis))
    extras = {
        name: importlib.util.find_spec(name) is not None for name in ("mpi4py", "darshan", "otf2", "pyarrow", "psycopg")
    }
    if as_json:
        print_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "library": str(preload_library) if preload_library else None,
                "mpi": [_as_json(probed) for probed in probes],
                "extras": extras,
                "home": str(home()),
                "catalog": catalog_url(),
                "map": str(map_path()) if map_path().exists() else None,
            }
        )
    else:
        click.echo(
            f"pdla {__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        )
        click.echo(f"library    {preload_library or 'missing: analysis only (install gcc, then install pdla again)'}")
        for probed in probes:
            for number, line in enumerate(_lines(probed)):
                click.echo(f"{'' if number else 'mpi':<10} {line}")
        if not mpis:
            click.echo("mpi        none found here or on PATH (pip install mpich, or load your site's module)")
        for name, present in extras.items():
            click.echo(f"{name:<10} {'installed' if present else f'not installed (pip install {name})'}")
        click.echo(f"home       {home()}")
        click.echo(f"replicas   {'published in ' + str(map_path()) if map_path().exists() else 'none published yet'}")
    if preload_library is None:
        raise PdlaError(f"no program can be traced or redirected here: {NO_LIBRARY} (analysis of traces works)")
    if not any(probed.calls_seen for probed in probes):
        raise PdlaError(
            f"no MPI-IO call was captured under any of the {len(mpis)} MPIs found (the lines above give the reasons)"
            if mpis
            else "found no MPI to trace programs with: pip install mpich, or load your site's module"
        )


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


def _lines(probed: Probe) -> Iterator[str]:
    yield f"{probed.mpi.version}: {probed.mpi.mpiexec}"
    if probed.calls_seen:
        yield (
            f"captured{'' if probed.captured else ' in part'}: {probed.calls_seen} of {probed.calls_made} calls, "
            f"{probed.bytes_seen} of {probed.bytes_made} bytes, extents {'right' if probed.extents_right else 'wrong'} "
            f"({probed.program}, {RANKS} ranks)"
        )
    else:
        yield "nothing captured"
    yield from probed.why


@click.command()
def preload() -> None:
    """Print the path of the library to preload.

    For launchers that need LD_PRELOAD set by hand: mpirun -x LD_PRELOAD=..., srun
    --export=ALL,LD_PRELOAD=...
    """
    preloaded({})
    click.echo(library())
