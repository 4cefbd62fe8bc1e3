"""What a detector says of a run, and how a finding is made of it: severity, what is expected, and confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdla.findings.finding import HARMED, Bar, Finding, Level, Prediction
from pdla.findings.seen import Floats, Seen
from pdla.units import counted, format_seconds

LEAST_SHARE = 0.05
"""A finding costs at least this share of the time in I/O: less is within the noise of single runs."""

HIGH, MEDIUM = 0.10, 0.03
"""Severities, as shares of the run that could be saved."""

CLOSE, APART = 1.25, 2.0
"""So many times the measured seconds, or less, the simulated ones may be for high and for medium confidence."""


@dataclass(frozen=True)
class Draft:
    """A finding before it is known whether it matters; the attributes are those of ``Finding``.

    ``lost`` are the seconds that it costs each rank. ``predict`` simulates the remedy. It is asked
    only if the finding is reported. ``sure`` is how certain it is that the finding is there, with
    the reason ``why``. ``others`` are more files with the same finding.
    """

    kind: str
    file: str
    title: str
    lost: Floats
    evidence: str
    bars: tuple[Bar, ...]
    remedy: str
    command: str = ""
    predict: Callable[[], Prediction | None] = lambda: None
    sure: Level = "high"
    why: str = "it was measured in the trace"
    others: int = 0

    @property
    def costs(self) -> float:
        """Seconds that it costs the rank that it costs most."""
        return float(self.lost.max(initial=0.0))

    def matters(self, seen: Seen) -> bool:
        """Whether the finding costs enough to be reported."""
        return self.costs > 0 and self.costs >= LEAST_SHARE * seen.seconds

    def joined(self, other: Draft) -> Draft:
        """Both as one: that of the file which it costs more, with the seconds of both."""
        first = self if self.costs >= other.costs else other
        return replace(first, lost=self.lost + other.lost, others=self.others + other.others + 1)

    def finding(self, seen: Seen) -> Finding:
        """The finding, with what its remedy is expected to bring."""
        predicted = self.predict()
        costs = min(self.costs, seen.seconds)
        least = seen.seconds - costs
        after = least
        if predicted and predicted.ratio <= 1 - LEAST_SHARE:
            after = max(seen.repeated * predicted.ratio + seen.seconds - seen.repeated, least)
        elif predicted and _factor(seen, predicted) <= APART:
            after = seen.seconds
        saved = (seen.seconds - after) / (seen.trace.seconds or seen.seconds)
        confidence, why = self._confidence(seen, predicted)
        more = f" So it is with {counted(self.others, 'more file')}." if self.others else ""
        return Finding(
            kind=self.kind,
            file=self.file,
            title=self.title,
            severity="high" if saved >= HIGH else "medium" if saved >= MEDIUM else "low",
            costs=costs,
            evidence=self.evidence + more,
            bars=self.bars,
            remedy=self.remedy,
            command=self.command,
            predicted=predicted,
            after=after,
            confidence=confidence,
            why=why,
        )

    def _confidence(self, seen: Seen, predicted: Prediction | None) -> tuple[Level, str]:
        doubts = seen.doubts(self.file)
        doubted = [text for doubt, (text, kinds) in HARMED.items() if doubt in doubts and self.kind in kinds]
        if doubted:
            return "low", " and ".join(doubted)
        if predicted is None:
            level: Level = "medium" if self.sure == "high" else "low"
            return level, f"{self.why}; what the remedy brings is at most these {format_seconds(self.costs)}"
        times, factor = predicted.before / seen.repeated, _factor(seen, predicted)
        simulated = f"simulated as it is, the run takes {times:.2g} times the measured seconds"
        if predicted.ratio > 1 - LEAST_SHARE:
            simulated += ", and the remedy would bring nothing there"
        if factor <= CLOSE:
            return self.sure, f"{self.why}; {simulated}"
        level = "medium" if factor <= APART and self.sure == "high" else "low"
        return level, f"{self.why}, but {simulated}: let pdla calibrate describe your storage"


def _factor(seen: Seen, predicted: Prediction) -> float:
    """How far the simulated and the measured seconds of the run as it is are apart."""
    times = predicted.before / seen.repeated
    return max(times, 1 / times)
