"""Placement policies: which patterns get a replica, where, and why."""

from __future__ import annotations

from pdla.errors import ConfigError
from pdla.policies.base import Greedy, Policy
from pdla.policies.pdla_h import H_PDLA
from pdla.policies.pdla_s import S_PDLA

_POLICIES: dict[str, Policy] = {
    "auto": Greedy(kinds=("hdd", "ssd", "node")),
    "none": Greedy(kinds=()),
    "pdla-h": H_PDLA,
    "pdla-s": S_PDLA,
}


def policy_names() -> tuple[str, ...]:
    """The names that ``get_policy`` knows."""
    return tuple(_POLICIES)


def get_policy(name: str) -> Policy:
    """The policy of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in _POLICIES:
        raise ConfigError(f"unknown policy {name!r}: choose one of {', '.join(_POLICIES)}")
    return _POLICIES[name]
