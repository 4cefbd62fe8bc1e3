"""Trace MPI-IO programs, understand their access patterns, and serve later runs from replicas in pattern order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from pdla.model import Trace

__version__ = "0.1.0"


def load(path: str | PathLike[str]) -> Trace:
    """The trace in ``path`` (an HDF5 file made by ``pdla trace`` or ``pdla import``).

    Raises:
        PdlaError: there is no such file, or it is not a trace that this version reads.
    """
    from pdla.collectors.tracefile import read_trace

    return read_trace(path)
