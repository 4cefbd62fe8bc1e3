"""Trace MPI-IO programs, understand their access patterns, and serve later runs from replicas in pattern order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from pdla.traces.trace import Trace

__version__ = "0.1.0"


def load(path: str | PathLike[str]) -> Trace:
    """The trace in ``path`` (an HDF5 file made by ``pdla trace`` or ``pdla import``).

    Raises:
        PdlaError: there is no such file, or it is not a trace that this version reads.
    """
    from pdla.collectors.tracefile import read_trace

    return read_trace(path)


def _display_in_notebooks() -> None:
    """If IPython runs this process, show traces, analyses, signatures and plans there as tables and pictures."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from pdla.report.notebook import register

        register(shell.display_formatter.formatters["text/html"])


_display_in_notebooks()
