"""Placement policies: which patterns get a replica, where, and why."""

from __future__ import annotations

from pdla.errors import ConfigError
from pdla.policies.base import Policy, Replicate
from pdla.policies.pdla_h import H_PDLA
from pdla.policies.pdla_s import S_PDLA

_POLICIES: dict[str, Policy] = {
    "auto": Replicate(kinds=("hdd", "ssd", "node"), hybrid=True),
    "none": Replicate(kinds=()),
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
