"""Storage back ends, by the name that a pool gives in ``backend``."""

from __future__ import annotations

from functools import cache

from pdla.errors import ConfigError
from pdla.model import Layout, Pool
from pdla.policies.base import Obstacle
from pdla.replicator.backends.base import Backend
from pdla.replicator.backends.directories import Directories
from pdla.replicator.backends.orangefs import OrangeFS

BACKENDS: dict[str, type[Backend]] = {backend.name: backend for backend in (Directories, OrangeFS)}


def backend_of(pool: Pool) -> Backend:
    """The back end of a pool, or of the pools that a hybrid consists of.

    Raises:
        ConfigError: there is none of this name, or not one for both.
    """
    names = [part.backend for part in pool.parts or (pool,)]
    if len(set(names)) > 1:
        raise ConfigError(f"pools of different back ends cannot be striped together (these are {' and '.join(names)})")
    if pool.backend not in BACKENDS:
        raise ConfigError(f"pool {pool.name}: unknown backend {pool.backend!r} (there are: {', '.join(BACKENDS)})")
    return BACKENDS[pool.backend](pool)


def obstacles() -> Obstacle:
    """What the planner asks about a candidate: why no replica of so many bytes can be in this layout of a pool."""
    backend = cache(backend_of)

    def obstacle(pool: Pool, layout: Layout, size: int) -> str:
        try:
            return backend(pool).obstacle(layout, size)
        except ConfigError as error:
            return str(error)

    return obstacle
