"""pdla doctor, pdla preload: what works here."""

from __future__ import annotations

import importlib.util
import platform

import click

from pdla import __version__
from pdla.cli.launch import find_mpis, library, preloaded
from pdla.cli.options import json_option, print_json
from pdla.config import catalog_url, home, map_path
from pdla.errors import PdlaError


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what works on this machine.

    Fails when no program can be traced.
    """
    preload_library = library()
    mpis = find_mpis()
    extras = {name: importlib.util.find_spec(name) is not None for name in ("mpi4py", "darshan")}
    if as_json:
        print_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "library": str(preload_library) if preload_library else None,
                "mpi": [
                    {"mpiexec": str(mpi.mpiexec), "mpicc": str(mpi.mpicc or ""), "version": mpi.version} for mpi in mpis
                ],
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
        for mpi in mpis:
            click.echo(f"mpi        {mpi.version}: {mpi.mpiexec}" + ("" if mpi.mpicc else " (no mpicc)"))
        if not mpis:
            click.echo("mpi        none found here or on PATH (pip install mpich, or load your site's module)")
        for name, present in extras.items():
            click.echo(f"{name:<10} {'installed' if present else f'not installed (pip install {name})'}")
        click.echo(f"home       {home()}")
        click.echo(f"replicas   {'published in ' + str(map_path()) if map_path().exists() else 'none published yet'}")
    if preload_library is None:
        raise PdlaError("no program can be traced or redirected here: libpdla.so is missing (analysis of traces works)")


@click.command()
def preload() -> None:
    """Print the path of the library to preload.

    For launchers that want LD_PRELOAD by hand: mpirun -x LD_PRELOAD=..., srun --export=ALL,LD_PRELOAD=...
    """
    preloaded({})
    click.echo(library())
