"""The catalog: what runs were traced, their patterns, what replicas exist, and what redirected runs reported."""

from pdla.catalog.records import (
    Census,
    Checksum,
    Component,
    Lease,
    Occurrence,
    Original,
    Pattern,
    Purpose,
    Replica,
    Result,
    Run,
    State,
    Use,
)
from pdla.catalog.store import Catalog, open_catalog

__all__ = [
    "Catalog",
    "Census",
    "Checksum",
    "Component",
    "Lease",
    "Occurrence",
    "Original",
    "Pattern",
    "Purpose",
    "Replica",
    "Result",
    "Run",
    "State",
    "Use",
    "open_catalog",
]
