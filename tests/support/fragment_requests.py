"""Programs whose fragments go to SSD servers, as iBridge has them."""

from __future__ import annotations

from tests.support import critical_requests
from tests.support.cached_writes import Case

STRIP, SERVERS = 64, 3

SLOW = f"{STRIP} {SERVERS} 2 5e-9 1e-8 1e-8 1 0 60 1 0 60 1e-8 1e-8 1 0 0 1 0 0"
"""The disks take a minute, by the model: however busy the machine is, any fragment is worth it."""
RANKS, PIECE, COUNT = 3, 96, 200
"""Of tests/programs/cached.c."""


def costs(case: Case, model: str = SLOW, **more: str) -> dict[str, str]:
    """The variables of ``pdla run --policy ibridge`` with two SSD servers."""
    return {**critical_requests.costs(case, model), "PDLA_POLICY": "ibridge", **more}


STEPS = {
    "over": ["apart:0", "each:0", "barrier", "over:0", "barrier", "each:0", "barrier", "apart:0"],
    "collective": ["apart:0", "one:0", "apart:0", "write:0", "barrier", "over:0", "barrier", "all:0"],
    "others": ["write:0", "iapart:0", "halves:1", "read:1", "single:0", "reopen", "over:1", "barrier", "spread:3"],
    "opened again": ["apart:1", "reopen", "apart:0", "ordered", "barrier", "over:1", "barrier", "iwrite:0", "vector:2"],
}
