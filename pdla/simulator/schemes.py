"""The schemes that are compared: the program as it is, other methods of MPI-IO, and policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdla.errors import ConfigError
from pdla.model import Cluster
from pdla.policies import make_online, online_names, policy_names


@dataclass(frozen=True)
class Scheme:
    """How accesses are served.

    Attributes:
        policy: the policy that chooses replicas (pdla.policies), "" for none.
        home: the kind of pool that holds the originals; None: the pool that the cluster names.
        together: independent calls are made collective.
        collective: collective calls use two-phase I/O; if not, each rank accesses the file by
            itself.
        sieve: pieces of a call are read and written together (data sieving), if the cluster has a
            buffer for it.
    """

    name: str
    policy: str = ""
    home: str | None = None
    together: bool = False
    collective: bool = True
    sieve: bool = True


BASELINES = (
    Scheme("none"),
    Scheme("independent", collective=False, sieve=False),
    Scheme("sieving", collective=False),
    Scheme("two-phase", together=True),
    Scheme("s-orig", home="ssd"),
)
"""Calls as the program makes them; every piece by itself; with data sieving; collectively; all originals on SSDs."""


def methods(scheme: Scheme, cluster: Cluster) -> dict[str, Any]:
    """The members of struct sim_input that say how calls become requests."""
    return {
        "sieve": (cluster.sieve_read, cluster.sieve_write) if scheme.sieve else (0, 0),
        "collective_buffer": cluster.collective_buffer if scheme.collective else 0,
        "aggregators": cluster.aggregators or 0,
        "client_cache": cluster.client_cache,
        "client_sync": cluster.client_sync,
        "client_read_ahead": cluster.client_read_ahead,
        "always": scheme.together,
    }


def home_pool(scheme: Scheme, cluster: Cluster) -> str | None:
    """The pool that holds the originals instead of their own.

    Raises:
        ConfigError: the cluster has no pool of the kind.
    """
    if scheme.home is None:
        return None
    pools = [pool.name for pool in cluster.pools if pool.kind == scheme.home]
    if not pools:
        raise ConfigError(f"{cluster.source}: {scheme.name} needs a pool of kind {scheme.home!r}, but there is none")
    return pools[0]


def scheme_names() -> tuple[str, ...]:
    """All names that ``simulate_scheme`` accepts; it also accepts a user's policy, ``FILE.py:CLASS``."""
    return tuple(dict.fromkeys((*(scheme.name for scheme in BASELINES), *policy_names(), *online_names())))


def check_scheme(name: str) -> None:
    """Refuse names that ``simulate_scheme`` does not accept.

    Raises:
        ConfigError: the name is unknown, or is that of a user's policy that cannot be loaded.
    """
    if ":" in name:
        make_online(name)
    elif name not in scheme_names():
        raise ConfigError(f"unknown scheme {name!r}: choose one of {', '.join(scheme_names())}, or FILE.py:CLASS")
