"""Waits of tests: for what happens, not for a time. A machine may be as busy as it likes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300
"""Seconds that nothing here takes on a busy machine: what has not ended by then hangs."""


def wait_until(happens: Callable[[], object]) -> None:
    """Return as soon as something has happened.

    Raises:
        AssertionError: it does not.
    """
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end, "this does not happen"
        time.sleep(0.005)
