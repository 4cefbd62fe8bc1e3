"""The catalog: what runs were traced, their patterns, what replicas exist, and what redirected runs reported."""

from pdla.catalog.records import (
    Checksum,
    Component,
    Occurrence,
    Original,
    Pattern,
    Replica,
    Result,
    Run,
    State,
)
from pdla.catalog.store import Catalog, open_catalog

__all__ = [
    "Catalog",
    "Checksum",
    "Component",
    "Occurrence",
    "Original",
    "Pattern",
    "Replica",
    "Result",
    "Run",
    "State",
    "open_catalog",
]
