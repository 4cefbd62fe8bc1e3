"""Which cases of tests a quick run leaves out: those that show what others show, and cost the most.

The other cases are in ``make test THOROUGH=1``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest

from tests.support.mpi import Mpi

THOROUGH = os.environ.get("PDLA_TEST_QUICK") != "1"
"""Whether a search within one test is to look at all that it may."""


def left_out(items: Sequence[pytest.Item], least: int) -> set[pytest.Item]:
    """Those cases of the tests. Of a thorough test its own number of cases stays, and the ``least`` one."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left = set()
    for cases in tests.values():
        shared = set(_of_other_mpis(cases))
        left |= shared
        if mark := cases[0].get_closest_marker("thorough"):
            stay = max(least, mark.args[0] if mark.args else 0)
            left |= set([item for item in cases if item not in shared][stay:])
    return left


def _of_other_mpis(cases: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """All cases of a test run under its first MPI, and of several cases each under one of the others at most."""
    found: dict[tuple[object, ...], dict[str, pytest.Item]] = {}
    for item in cases:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        mpi = next((value.name for value in values if isinstance(value, Mpi)), "")
        found.setdefault(tuple(str(value) for value in values if not isinstance(value, Mpi)), {})[mpi] = item
    mpis = list(dict.fromkeys(mpi for under in found.values() for mpi in under))
    turns = max(2, len(mpis) - 1)
    for number, under in enumerate(found.values() if len(found) > 1 else ()):
        for place, mpi in enumerate(mpis[1:]):
            if mpi in under and mpis[0] in under and number % turns != place:
                yield under[mpi]
