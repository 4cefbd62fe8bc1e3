"""The examples in the docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import pdla

# Neither the MPI programs of the demo nor the preload library are modules to import.
FOREIGN = ("pdla.examples", "pdla.libpdla")
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(pdla.__path__, "pdla.") if not module.name.startswith(FOREIGN)
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    assert "pdla.units" in MODULES
    assert "pdla.layouts.cost" in MODULES
    assert doctest.testmod(importlib.import_module("pdla.units")).attempted > 0
