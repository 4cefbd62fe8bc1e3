"""Storage back ends are plug-ins: classes that packages register as entry points of one group (docs/backends.md)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from pdla.errors import ConfigError

GROUP = "pdla.backends"
BASE = "pdla.replicator.backends.base.Backend"


class StorageKind(Protocol):
    """What a cluster.toml needs to know of a back end's class; the rest is ``Backend``'s."""

    name: str
    names_servers: bool
    grain: str
    strip_by_strip: bool
    cache_alone: bool


def backend_names() -> tuple[str, ...]:
    """The names of the back ends that are installed."""
    return tuple(sorted(_registered()))


@cache
def backend_class(name: str) -> type[StorageKind]:
    """The class of the back end ``name``, imported on first use.

    Raises:
        ConfigError: no package registers the name, or two do; or what is registered cannot be
            imported or is not a back end. The message has one line and names the package.
    """
    found = _registered().get(name, ())
    if not found:
        known = ", ".join(backend_names()) or "none: install pdla again"
        raise ConfigError(f"unknown backend {name!r} (known: {known})")
    if len(found) > 1:
        raise ConfigError(f"backend {name!r} is registered by several packages: {', '.join(map(_source, found))}")
    (entry,) = found
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a stranger's module raises
        lines = f"{type(error).__name__}: {error}".splitlines()
        raise ConfigError(f"backend {name!r} ({_source(entry)}) cannot be loaded: {lines[0]}") from error
    if why := _unfit(name, loaded):
        raise ConfigError(f"backend {name!r} ({_source(entry)}) {why}")
    return loaded  # type: ignore[no-any-return]


@cache
def _registered() -> Mapping[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _source(entry: EntryPoint) -> str:
    return f"{entry.value} of {entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _unfit(name: str, loaded: object) -> str:
    """Why an object is no back end of this name; empty if it is one."""
    if not inspect.isclass(loaded) or BASE not in {f"{kind.__module__}.{kind.__qualname__}" for kind in loaded.__mro__}:
        return f"is not a subclass of {BASE}"
    if inspect.isabstract(loaded):
        missing: frozenset[str] = getattr(loaded, "__abstractmethods__", frozenset())
        return f"does not define {', '.join(sorted(missing))}"
    if getattr(loaded, "name", None) != name:
        return f"has another name: {getattr(loaded, 'name', None)!r}"
    return ""
