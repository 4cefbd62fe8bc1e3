"""Storage back ends, by the name that a pool gives in ``backend``."""

from __future__ import annotations

from pdla.errors import ConfigError
from pdla.model import Pool
from pdla.replicator.backends.base import Backend
from pdla.replicator.backends.directories import Directories

BACKENDS: dict[str, type[Backend]] = {Directories.name: Directories}


def backend_of(pool: Pool) -> Backend:
    """The back end of a pool.

    Raises:
        ConfigError: there is none of this name.
    """
    if pool.backend not in BACKENDS:
        raise ConfigError(f"pool {pool.name}: unknown backend {pool.backend!r} (there are: {', '.join(BACKENDS)})")
    return BACKENDS[pool.backend](pool)
