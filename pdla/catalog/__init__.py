"""The catalog: the traced runs, their patterns, the replicas, and the reports of redirected runs."""

from pdla.catalog.autopilot import AutopilotApplication, Decision, Drift, LearnedRun, RunFacts
from pdla.catalog.critical import CriticalFile
from pdla.catalog.records import (
    Census,
    Checksum,
    Component,
    Copy,
    Lease,
    Listed,
    Mapped,
    Occurrence,
    Original,
    Pattern,
    Purpose,
    Replica,
    Result,
    Run,
    Simulation,
    State,
)
from pdla.catalog.store import Catalog, open_catalog

__all__ = [
    "AutopilotApplication",
    "Catalog",
    "Census",
    "Checksum",
    "Component",
    "Copy",
    "CriticalFile",
    "Decision",
    "Drift",
    "LearnedRun",
    "Lease",
    "Listed",
    "Mapped",
    "Occurrence",
    "Original",
    "Pattern",
    "Purpose",
    "Replica",
    "Result",
    "Run",
    "RunFacts",
    "Simulation",
    "State",
    "open_catalog",
]
