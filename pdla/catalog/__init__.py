"""The catalog: what runs were traced, their patterns, what replicas exist, and what redirected runs reported."""

from pdla.catalog.records import (
    Census,
    Checksum,
    Component,
    Copy,
    Lease,
    Listed,
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
    "Catalog",
    "Census",
    "Checksum",
    "Component",
    "Copy",
    "Lease",
    "Listed",
    "Occurrence",
    "Original",
    "Pattern",
    "Purpose",
    "Replica",
    "Result",
    "Run",
    "Simulation",
    "State",
    "open_catalog",
]
