"""Trace MPI-IO programs, understand their access patterns, and serve later runs from replicas in pattern order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdla.analyzers.analysis import analyze
    from pdla.analyzers.aspects import describe
    from pdla.catalog import open_catalog
    from pdla.collectors import workloads
    from pdla.collectors.tracefile import read_trace as load
    from pdla.collectors.tracefile import write_trace as save
    from pdla.layouts.config import load_cluster
    from pdla.steps import add_run, diagnose, plan, simulate

__version__ = "0.2.0"

__all__ = [
    "add_run",
    "analyze",
    "describe",
    "diagnose",
    "load",
    "load_cluster",
    "open_catalog",
    "plan",
    "save",
    "simulate",
    "workloads",
]

# RATIONALE: what is behind these takes a second to import, and most verbs need little of it.
_PLACES = {
    "add_run": "pdla.steps:add_run",
    "analyze": "pdla.analyzers.analysis:analyze",
    "describe": "pdla.analyzers.aspects:describe",
    "diagnose": "pdla.steps:diagnose",
    "load": "pdla.collectors.tracefile:read_trace",
    "load_cluster": "pdla.layouts.config:load_cluster",
    "open_catalog": "pdla.catalog:open_catalog",
    "plan": "pdla.steps:plan",
    "save": "pdla.collectors.tracefile:write_trace",
    "simulate": "pdla.steps:simulate",
    "workloads": "pdla.collectors.workloads:",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'pdla' has no attribute {name!r}")
    from pkgutil import resolve_name

    from pdla.extras import missing

    try:
        globals()[name] = found = resolve_name(_PLACES[name])
    except ModuleNotFoundError as error:
        raise missing(error, f"pdla.{name}") or error from error
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _display_in_notebooks() -> None:
    """If IPython runs this process, show what the public functions return there as tables and pictures."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from pdla.report.notebook import register

        register(shell.display_formatter.formatters["text/html"])


_display_in_notebooks()
