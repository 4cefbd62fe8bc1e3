"""The catalog: what replicas exist, of what, in which state, and what redirected runs reported."""

from pdla.catalog.records import Checksum, Component, Original, Replica, Result, State
from pdla.catalog.store import Catalog, open_catalog

__all__ = ["Catalog", "Checksum", "Component", "Original", "Replica", "Result", "State", "open_catalog"]
