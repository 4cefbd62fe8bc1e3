"""The storage back ends, by the name in a pool's ``backend``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pdla.errors import ConfigError
from pdla.layouts.plugins import backend_class as registered
from pdla.model import Layout, Plan, Pool
from pdla.replicator.backends.base import Backend

if TYPE_CHECKING:
    from pdla.catalog import Component
    from pdla.policies.base import Obstacle


def backend_class(name: str) -> type[Backend]:
    """The class of a back end.

    Raises:
        ConfigError: see ``pdla.layouts.plugins.backend_class``.
    """
    return cast(type[Backend], registered(name))


def backend_of(pool: Pool) -> Backend:
    """The back end of a pool, or of the two pools of a hybrid.

    Raises:
        ConfigError: there is no back end of this name, it cannot be loaded, or the two pools have
            different ones.
    """
    names = [part.backend for part in pool.parts or (pool,)]
    if len(set(names)) > 1:
        raise ConfigError(f"pools of different back ends cannot be striped together (got {' and '.join(names)})")
    try:
        return backend_class(pool.backend)(pool)
    except ConfigError as error:
        raise ConfigError(f"pool {pool.name}: {error}") from error


def placement_of(backend: Backend, path: Path) -> str:
    """Where the storage put a component, for ``misplaced``; empty if the path alone says it.

    Raises:
        OSError, PdlaError: the storage cannot be asked.
    """
    placement = backend.placement(path)
    return f"{backend.name} {placement}" if placement else ""


def misplaced(component: Component) -> str:
    """Where a component is now, if that is not where it was built; otherwise empty.

    Raises:
        OSError, PdlaError: the storage cannot be asked.
    """
    name, _, placement = component.placement.partition(" ")
    if not name:
        return ""
    now = backend_class(name).placement(component.path)
    return now if now != placement else ""


def losable(plan: Plan) -> Callable[[], str] | None:
    """A function that says whether storage that a plan uses is lost; None if no back end of the plan can know."""
    pools = {layout.pool for pattern in plan.patterns if (layout := pattern.choice.layout) is not None}
    found = [backend_of(plan.cluster.pool(pool)) for pool in sorted(pools)]
    telling = [backend for backend in found if type(backend).trouble is not Backend.trouble]
    if not telling:
        return None
    return lambda: next((why for backend in telling if (why := backend.trouble(backend.servers))), "")


def obstacles() -> Obstacle:
    """The function by which the planner asks why a pool cannot hold a replica of so many bytes in a layout."""
    backend = cache(backend_of)

    def obstacle(pool: Pool, layout: Layout, size: int) -> str:
        try:
            return backend(pool).obstacle(layout, size)
        except ConfigError as error:
            return str(error)

    return obstacle
