"""A finding: something in a run that costs time, with its evidence, what to do about it, and what that brings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

Level = Literal["high", "medium", "low"]

KINDS = {
    "small-strided": "small strided requests",
    "small": "small requests",
    "independent": "independent calls that should be collective",
    "interleaved": "requests of the ranks that interleave",
    "misaligned": "requests that are not aligned with strips",
    "fragments": "fragments",
    "imbalance": "imbalance of the ranks",
    "straggler": "stragglers",
    "collective-useless": "collective calls that do not help",
    "hints": "hints of collective calls and data sieving",
    "read-modify-write": "writes that read",
    "re-read": "bytes that are read again",
    "write-then-read": "bytes that are read back",
    "never-read": "bytes that are overwritten unread",
    "shared-pointer": "shared file pointers",
    "open-storm": "files that are opened again and again",
    "hideable": "writes that a computation could hide",
}
"""The kinds of findings: each with its name in English. docs/findings.md says when each is found."""

HARMED = {
    "collective_unknown": (
        "it is not known which calls were collective",
        {"independent", "interleaved", "small-strided", "small", "misaligned", "fragments", "straggler", "re-read"},
    ),
    "holes_unknown": (
        "only the first byte of a call through a file view is known",
        {"independent", "interleaved", "small-strided", "small", "misaligned", "fragments"}
        | {"re-read", "write-then-read", "never-read"},
    ),
}
"""For each of the trace's DOUBTS how to say it, and the kinds of findings that may be wrong then."""


class Bar(NamedTuple):
    """A bar of the small picture beside a finding: its label, its length in any unit, and the text at its end."""

    label: str
    value: float
    text: str


Exchange = Literal["stays", "goes", "changes"]


@dataclass(frozen=True)
class Prediction:
    """Seconds in I/O of the whole run as it is and with the remedy, simulated on the storage that ``storage`` names.

    ``exchange``: what the remedy makes of the time in collective calls that is not the storage's, which is not
    simulated. ``spread``: by which factor ``after`` changes if ranks are a little later or earlier.
    """

    before: float
    after: float
    storage: str
    exchange: Exchange = "stays"
    spread: float = 1.0

    @property
    def ratio(self) -> float:
        """What is left of the time."""
        return self.after / self.before if self.before else 1.0


@dataclass(frozen=True)
class Finding:
    """Something that costs time in a run.

    Attributes:
        kind: one of ``KINDS``.
        file: the path; "" if it concerns the whole run.
        title: what it is, in one sentence.
        severity: by the share of the run, or of its I/O if it is not known how long the run took.
        costs: measured seconds of the slowest rank in what the finding names.
        evidence: what shows it, with a number.
        bars: the small picture.
        remedy: what to do.
        command: the same as a command to copy; "" if the program must be changed.
        predicted: what the simulator says; None: it says nothing about this remedy, or nothing reliable.
        after: seconds in I/O of the whole run with the remedy, as expected; None: nothing can be said.
        confidence: in ``after``: "high", or "medium" if what the finding costs is taken from a model; "low" if
            nothing is expected. ``why`` is the reason.
    """

    kind: str
    file: str
    title: str
    severity: Level
    costs: float
    evidence: str
    bars: tuple[Bar, ...]
    remedy: str
    command: str
    predicted: Prediction | None
    after: float | None
    confidence: Level
    why: str

    def saves(self, seconds: float) -> float:
        """Of the seconds in I/O of the run those that the remedy is expected to save; without an expectation, all that
        the finding costs."""
        return self.costs if self.after is None else seconds - self.after

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in docs/json.md."""
        return {**asdict(self), "bars": [bar._asdict() for bar in self.bars]}
