"""The results of one case, as rows of build/bench.json and as printed lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.cases import H_PDLA, LEASES, REPLICATED, S_PDLA, Case
from benchmarks.contestants import Run
from pdla.units import KiB

LIMIT_GOAL = 0.9
"""Of the sequential bandwidth of the devices a replica is on, when it is read."""
ORIGINAL_GOAL = 1.0
"""Planned replicas are never slower than the original."""
PLANNED = (H_PDLA, S_PDLA, *LEASES)
NO_REPLICA = "no replica"
LIMITED = ", of the limit"
"""What the names of rows end with whose baseline it is."""
WHOLLY = 0.99
"""Of the bytes of a program: so many come from replicas where all its patterns have one."""
HEAD = f"{'':<22}{'MB/s':>8}{'spread':>8}{'x orig.':>9}{'of limit':>9}{'in calls':>9}{'requests':>10}{'KiB each':>9}"
HEAD += "  paper; replica"


@dataclass(frozen=True)
class Found:
    """A contestant's rounds, and the limit in each: bytes/s of one stream on each device that it used."""

    case: Case
    contestant: str
    runs: Sequence[Run]
    originals: Sequence[Run]
    limits: Sequence[float]
    layouts: str

    @property
    def rate(self) -> float:
        """Median, bytes/s."""
        return median(run.rate for run in self.runs)

    @property
    def spread(self) -> float:
        """Of all rounds, of the median."""
        return (max(run.rate for run in self.runs) - min(run.rate for run in self.runs)) / self.rate

    @property
    def of_original(self) -> float:
        """Median over the rounds."""
        return median(own.rate / other.rate for own, other in zip(self.runs, self.originals, strict=True))

    @property
    def of_limit(self) -> float:
        """Median over the rounds."""
        return median(run.rate / limit for run, limit in zip(self.runs, self.limits, strict=True))

    @property
    def inside(self) -> float | None:
        """Likewise in the calls that read alone, without the open and the close; those that write only reach memory."""
        if self.case.op == "write":
            return None
        return median(run.inside / limit for run, limit in zip(self.runs, self.limits, strict=True))

    @property
    def moved(self) -> float:
        """Bytes, median: fewer than the case has where the time was up."""
        return median(run.bytes for run in self.runs)

    @property
    def requests(self) -> float:
        """Requests to all devices, median."""
        return median(sum(one.requests for one in run.devices) for run in self.runs)

    @property
    def seeks(self) -> float | None:
        """Of these; None where no device has a head."""
        return median(sum(one.seeks for one in run.devices) for run in self.runs) if self._heads else None

    @property
    def by_heads(self) -> float | None:
        """Bytes/s if only the busiest device's seconds count, median."""
        return median(run.bytes / max(one.busy for one in run.devices) for run in self.runs) if self._heads else None

    @property
    def _heads(self) -> bool:
        return any(one.busy for run in self.runs for one in run.devices)

    @property
    def replicated(self) -> float:
        """The share of its bytes that replicas served, median."""
        return median(run.redirected / run.bytes for run in self.runs) if self.contestant in REPLICATED else 0.0

    @property
    def limit_goal(self) -> float | None:
        """None for what replicas serve in part, as the original limits the rest, and on devices that nobody counts and
        knows."""
        return LIMIT_GOAL if self.replicated >= WHOLLY and self.case.op == "read" and self.requests else None

    @property
    def served(self) -> str:
        """The replicas that served it, in words."""
        if self.contestant not in REPLICATED or self.replicated >= WHOLLY:
            return self.layouts
        return f"{self.replicated:.0%} of it: {self.layouts}" if self.replicated else NO_REPLICA

    def rows(self, storage: str) -> list[dict[str, Any]]:
        """The rows for build/bench.json."""
        name = f"{storage}: {self.case.title}: {self.contestant}"
        beside = {
            "name": name,
            "value": self.rate / 1e6,
            "unit": "MB/s",
            "baseline": median(run.rate for run in self.originals) / 1e6,
            "ratio": self.of_original,
            "goal": ORIGINAL_GOAL if self.contestant in PLANNED else None,
            "spread": self.spread,
            "rounds": len(self.runs),
            "bytes": self.moved,
            "requests": self.requests,
            "seeks": self.seeks,
            "by_heads": self.by_heads and self.by_heads / 1e6,
            "replica": self.served,
            "replicated": self.replicated,
            "paper": self.case.paper(self.contestant),
        }
        limited = {
            "name": f"{name}{LIMITED}",
            "value": self.rate / 1e6,
            "unit": "MB/s",
            "baseline": median(self.limits) / 1e6,
            "ratio": self.of_limit,
            "goal": self.limit_goal,
            "spread": self.spread,
            "inside": self.inside,
        }
        return [beside, limited]

    def line(self) -> str:
        """The line to print."""
        each = f"{self.moved / self.requests / KiB:9.0f}" if self.requests else f"{'-':>9}"
        inside = f"{'-':>9}" if self.inside is None else f"{self.inside:9.2f}"
        slower = self.contestant in PLANNED and self.of_original < ORIGINAL_GOAL - self.spread
        missed = " !" if slower or self.of_limit < (self.limit_goal or 0.0) else ""
        notes = "; ".join(one for one in (self.case.paper(self.contestant), self.served) if one)
        return (
            f"{self.contestant:<22}{self.rate / 1e6:8.1f}{self.spread:8.0%}{self.of_original:9.2f}{self.of_limit:9.2f}"
            f"{inside}{self.requests or '-':>10}{each}  {notes}{missed}"
        )


def limit_of(parts: Sequence[tuple[int, str]], limits: Mapping[str, float]) -> float:
    """Bytes/s at which parts of the bytes are accessed one after another, each in one stream on all devices of its
    pools; "hdd+ssd" are two."""
    seconds = sum(size / sum(limits[pool] for pool in space.split("+")) for size, space in parts)
    return sum(size for size, _ in parts) / seconds
