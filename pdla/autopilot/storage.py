"""Where replicas of the autopilot may go: the cluster and the budget that a run named."""

from __future__ import annotations

from dataclasses import dataclass

from pdla import config
from pdla.layouts.budget import Budget
from pdla.layouts.config import load_budget, load_cluster
from pdla.model import Cluster


@dataclass(frozen=True)
class Storage:
    """Where replicas may go, and how much of it."""

    cluster: Cluster
    budget: Budget

    @classmethod
    def of(cls, named: str) -> Storage:
        """That of a cluster.toml or example; "": ``PDLA_HOME/cluster.toml``, or without it the built-in default.

        Raises:
            ConfigError: it cannot be used.
        """
        own = config.home() / "cluster.toml"
        path = named or (str(own) if own.exists() else None)
        return cls(load_cluster(path), load_budget(path))
