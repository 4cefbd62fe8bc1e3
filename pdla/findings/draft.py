"""What a detector says of a run, and how a finding is made of it: severity, what is expected, and confidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from pdla.findings.finding import HARMED, Bar, Finding, Level, Prediction
from pdla.findings.seen import Floats, Seen
from pdla.units import counted, format_share

LEAST_SHARE = 0.05
"""A finding costs at least this share of the time in I/O: less is within the noise of single runs."""

HIGH, MEDIUM = 0.10, 0.03
"""Severities, as shares of the run that could be saved."""

CLOSE = 1.25
"""An expectation is kept within this factor. The simulated and the measured seconds of the run as it is may be so many
times apart: the root of it may be wrong because of that, and the other root in the simulation of the remedy."""

UNKNOWN_SHARE = 0.2
"""The most of the measured time of which nobody knows what the remedy makes."""


class _Expected(NamedTuple):
    """Seconds in I/O with the remedy; None: nothing can be said, for the reason ``why``."""

    seconds: float | None
    confidence: Level
    why: str


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
        predicted = None if seen.is_nominal else self.predict()
        costs = min(self.costs, seen.seconds)
        expected = self._expected(seen, predicted)
        more = f" So it is with {counted(self.others, 'more file')}." if self.others else ""
        saved = costs if expected.seconds is None else seen.seconds - expected.seconds
        share = saved / (seen.trace.seconds or seen.seconds)
        return Finding(
            kind=self.kind,
            file=self.file,
            title=self.title,
            severity="high" if share >= HIGH else "medium" if share >= MEDIUM else "low",
            costs=costs,
            evidence=self.evidence + more,
            bars=self.bars,
            remedy=self.remedy,
            command=self.command,
            predicted=None if expected.seconds is None else predicted,
            after=expected.seconds,
            confidence=expected.confidence,
            why=expected.why,
        )

    def _expected(self, seen: Seen, predicted: Prediction | None) -> _Expected:
        """What the simulation leaves of the storage's seconds, and what is not the storage's.

        The storage takes between ``Seen.storage`` and all of the measured seconds. If the simulation of the run as it
        is takes more or less, either the whole storage is as much faster or slower than it is described, and the share
        that is left is right; or only this run is, and the seconds with the remedy are right. The expectation is the
        geometric mean of both, which is off by no more than the root of the factor.
        """
        doubts = seen.doubts(self.file)
        doubted = [text for doubt, (text, kinds) in HARMED.items() if doubt in doubts and self.kind in kinds]
        if doubted:
            return _Expected(None, "low", " and ".join(doubted))
        if seen.is_nominal:
            return _Expected(None, "low", f"{self.why}, but nobody has described the storage: give --cluster")
        if predicted is None:
            return _Expected(None, "low", f"{self.why}, but what the remedy brings is not simulated")
        storage = min(max(predicted.before, seen.storage), seen.repeated)
        other = seen.repeated - storage
        if predicted.exchange == "changes" and other > UNKNOWN_SHARE * seen.repeated:
            share = format_share(other, seen.repeated)
            why = f"{share} of the time in these calls is not the storage's, and what the remedy makes of it is unknown"
            return _Expected(None, "low", f"{self.why}, but {why}")
        times = predicted.before / storage
        factor = max(times, 1 / times)
        apart = predicted.before / seen.repeated
        simulated = f"simulated as it is, the run takes {apart:.2g} times the measured seconds"
        if factor > CLOSE:
            return _Expected(None, "low", f"{self.why}, but {simulated}: let pdla calibrate describe your storage")
        if predicted.spread > CLOSE**2:
            why = (
                f"ranks that are late by a part of a call change the simulated seconds by {predicted.spread:.2g} times"
            )
            return _Expected(None, "low", f"{self.why}, but {why}")
        left = predicted.after / math.sqrt(times) + (0.0 if predicted.exchange == "goes" else other)
        seconds = min(seen.seconds - seen.repeated + left, seen.seconds)
        if seconds > (1 - LEAST_SHARE) * seen.seconds:
            seconds, simulated = seen.seconds, f"{simulated}, and the remedy would bring nothing there"
        return _Expected(seconds, self.sure, f"{self.why}; {simulated}")
