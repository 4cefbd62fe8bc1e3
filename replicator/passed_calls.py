"""Calls that pdla left to the MPI library, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Passed(NamedTuple):
    """Calls that the original served, for one reason."""

    why: str
    calls: int
    bytes: int


def read_passed(entries: Iterable[Mapping[str, Any]]) -> tuple[Passed, ...]:
    """From the JSON of an exit report."""
    return tuple(Passed(str(one["why"]), int(one["calls"]), int(one["bytes"])) for one in entries)


def merge_passed(entries: Iterable[Passed]) -> tuple[Passed, ...]:
    """The sums by reason, the most bytes first."""
    calls: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for entry in entries:
        calls[entry.why] += entry.calls
        moved[entry.why] += entry.bytes
    merged = [Passed(why, calls[why], moved[why]) for why in calls]
    return tuple(sorted(merged, key=lambda entry: (-entry.bytes, entry.why)))
