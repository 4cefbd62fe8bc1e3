"""The processes of a verb that mpiexec started."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from pdla.errors import PdlaError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_RANKS = {"OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"}
"""Variables in which Open MPI, and MPICH with its descendants, give each process its rank and the number of ranks."""


def mpi_processes() -> Intracomm | None:
    """The communicator of all processes that mpiexec started; None without mpiexec: then MPI is not initialized.

    Raises:
        PdlaError: mpi4py is missing, or is of another MPI than mpiexec.
    """
    found = [(int(os.environ[rank]), int(os.environ[size])) for rank, size in _RANKS.items() if size in os.environ]
    if not found or found[0][1] == 1:
        return None
    rank, size = found[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mpi4py warns if the MPIs differ, once in each process
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise _problem(rank, f"'mpiexec -n {size} pdla' needs mpi4py: pip install mpi4py ({error})") from None
    if size != MPI.COMM_WORLD.size:
        raise _problem(
            rank, f"mpiexec started {size} processes, but mpi4py sees {MPI.COMM_WORLD.size}: use the mpiexec of its MPI"
        )
    return MPI.COMM_WORLD


def _problem(rank: int, text: str) -> Exception | SystemExit:
    """The exception to raise so that only one process prints the error."""
    return SystemExit(1) if rank else PdlaError(text)
