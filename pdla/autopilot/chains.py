"""Files that one application writes and another one reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pdla.autopilot.names import without_numbers
from pdla.catalog import LearnedRun


@dataclass
class Chain:
    """A file, or files whose names differ in numbers, from one application to another.

    Attributes:
        file: the path, with N for each number in the name.
        writer, reader: the numbers of the applications.
        times: how often a run of ``reader`` read what ``writer`` had written since it was last read there.
        writing, reading: for each of these times, the seconds in data calls on the file of the slowest rank, of the
            run that wrote it last and of the run that read it.
        written: for each of these times, the run that wrote it last.
    """

    file: str
    writer: int
    reader: int
    writing: list[float] = field(default_factory=list)
    reading: list[float] = field(default_factory=list)
    written: list[LearnedRun] = field(default_factory=list)

    @property
    def times(self) -> int:
        """See the class."""
        return len(self.reading)

    @property
    def waits(self) -> float:
        """Seconds that both together wait for the file, in the median of all times."""
        return median(self.writing) + median(self.reading)

    def saved_by(self, run: LearnedRun) -> float:
        """Seconds that the reader waited less after a run of the writer than after those that wrote to the original."""
        before, after = [], []
        for seconds, by in zip(self.reading, self.written, strict=True):
            if by.id == run.id:
                after.append(seconds)
            elif not by.facts.redirected and not by.facts.policy:
                before.append(seconds)
        return median(before) - median(after) if before and after else 0.0


def file_of(path: str) -> str:
    """The file of a chain to which this one belongs."""
    return str(Path(path).with_name(without_numbers(Path(path).name)))


def chains(runs: Mapping[int, Sequence[LearnedRun]]) -> list[Chain]:
    """The chains between different applications, of which these are the runs; the one that waits longest comes first.

    A run that was served and not recorded is taken to have done what the last recorded one did.
    """
    written: dict[str, tuple[LearnedRun, float]] = {}
    seen: set[tuple[str, int, int]] = set()
    found: dict[tuple[str, int, int], Chain] = {}
    for run in sorted((one for each in runs.values() for one in each), key=lambda one: one.time):
        for path, spent in run.facts.calls.items():
            if "read" in spent and path in written and written[path][0].application != run.application:
                by, seconds = written[path]
                if (path, by.id, run.application) not in seen:
                    seen.add((path, by.id, run.application))
                    key = file_of(path), by.application, run.application
                    chain = found.setdefault(key, Chain(*key))
                    chain.writing.append(seconds)
                    chain.reading.append(spent["read"])
                    chain.written.append(by)
            if "write" in spent:
                written[path] = run, spent["write"]
    return sorted(found.values(), key=lambda one: -one.times * one.waits)
