"""The tables of what S4D-Cache gains, from the rows of benchmarks/ssd_cache.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cases import COLLECTIVE, H_PDLA, INDEPENDENT, S_LEASE, S_ORIG, S_PDLA
from benchmarks.ssd_cache_plots import gains
from benchmarks.ssd_cache_runs import FIRST, ORACLE, SECOND, WRITTEN

CASE = re.compile(r"ssd cache: (\w+): (.*), (read|write): (.*)")
OF_SSDS, OF_ORACLE = f"{SECOND}, of the SSDs", f"{SECOND}, of the oracle's gain"
READS = {
    INDEPENDENT: "original", COLLECTIVE: "collective", H_PDLA: "H-PDLA", S_PDLA: "S-PDLA", S_ORIG: "S-ORIG",
    ORACLE: "oracle", FIRST: "first run", SECOND: "second run",
}  # fmt: skip
WRITES = {
    INDEPENDENT: "original", COLLECTIVE: "collective", S_LEASE: "lease", S_ORIG: "S-ORIG", WRITTEN: "S4D-Cache",
}  # fmt: skip

Rows = Mapping[str, Mapping[str, Any]]


def lines(rows: Rows, op: str, short: Callable[[float], str]) -> Iterator[list[str]]:
    """MiB/s of each contestant; what S4D-Cache is of the original, of the SSDs or the oracle's gain, and simulated."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for name, one in rows.items():
        match = CASE.fullmatch(name)
        if match and match[3] == op and not match[1].startswith("smoke"):
            found.setdefault((match[1], match[2]), {})[match[4]] = one
    for (storage, case), who in found.items():
        columns, shares = (READS, (FIRST, SECOND, OF_SSDS, OF_ORACLE)) if op == "read" else (WRITES, (WRITTEN,))
        rates = [short(who[one]["value"]) if one in who else "" for one in columns]
        ratios = [f"{who[one]['ratio']:.2f}" if one in who else "" for one in shares]
        simulated = gains(rows, storage, case, op)[1]
        spread = who[SECOND if op == "read" else WRITTEN]["spread"]
        end = ["" if simulated is None else f"{simulated:.2f}", f"{100 * spread:.0f} %"]
        yield [f"{storage}: {case}", *rates, *ratios, *end]


def heads() -> Iterator[tuple[str, Sequence[str]]]:
    """The first row for each operation."""
    yield "read", (
        "reads", *READS.values(), "first run, x original", "second run, x original", "of the SSDs",
        "of the oracle's gain", "simulated, x original", "spread",
    )  # fmt: skip
    yield "write", ("writes", *WRITES.values(), "x original", "simulated, x original", "spread")
