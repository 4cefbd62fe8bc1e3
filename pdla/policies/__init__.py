"""Policies: which bytes get a copy, where, and why; before a run (base.Policy) or while it runs (online.Online)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from pdla.errors import ConfigError
from pdla.file_kinds import PYTHON, mistaken
from pdla.policies.base import Policy, Replicate
from pdla.policies.baselines import NS_PDLA
from pdla.policies.e10 import COLLECTIVE_WRITES, E10
from pdla.policies.ibridge import IBridge
from pdla.policies.liu import LiU
from pdla.policies.online import Online
from pdla.policies.pdla_h import H_PDLA
from pdla.policies.pdla_s import S_PDLA
from pdla.policies.s4d import S4D, Critical

_POLICIES: Mapping[str, Policy] = {
    "auto": Replicate(kinds=("hdd", "ssd", "node"), hybrid=True),
    "none": Replicate(kinds=()),
    "pdla-h": H_PDLA,
    "pdla-s": S_PDLA,
    "ns-pdla": NS_PDLA,
    "s4d": Critical(),
    "e10": COLLECTIVE_WRITES,
}
_ONLINE: Mapping[str, Callable[[], Online]] = {"s4d": S4D, "ibridge": IBridge, "liu": LiU, "e10": E10}


def policy_names() -> tuple[str, ...]:
    """The names that ``get_policy`` accepts."""
    return tuple(_POLICIES)


def get_policy(name: str) -> Policy:
    """The policy of this name, which acts before a run.

    Raises:
        ConfigError: there is no such policy.
    """
    if name in _POLICIES:
        return _POLICIES[name]
    if name in _ONLINE:
        raise ConfigError(f"policy {name!r} acts only while a program runs: use it with pdla simulate")
    raise ConfigError(f"unknown policy {name!r}: choose one of {', '.join(_POLICIES)}")


def online_names() -> tuple[str, ...]:
    """The names that ``make_online`` accepts."""
    return tuple(_ONLINE)


def make_online(name: str) -> Online:
    """A new policy of this name, or of a class in a file of the user's: ``FILE.py:CLASS``.

    Raises:
        ConfigError: there is no such policy, or the file cannot be run.
    """
    if name in _ONLINE:
        return _ONLINE[name]()
    path, colon, wanted = name.rpartition(":")
    if not colon:
        raise ConfigError(f"unknown policy {name!r}: choose one of {', '.join(_ONLINE)}, or FILE.py:CLASS")
    made = getattr(_run(Path(path)), wanted, None)
    if not (isinstance(made, type) and issubclass(made, Online)):
        raise ConfigError(f"{path} has no class {wanted} derived from Online (pdla.policies.online)")
    return made()


def _run(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if wrong := mistaken(path, PYTHON):
        raise ConfigError(f"{wrong} (give a policy as FILE.py:CLASS)")
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} does not have the name of a Python file (give a policy as FILE.py:CLASS)")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path}: {type(error).__name__}: {error}") from error
    return module
