"""What changed in the patterns of an application since its last run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdla.analyzers.analysis import Analysis
from pdla.analyzers.rank_scaling import scale
from pdla.analyzers.run_difference import compare
from pdla.autopilot.names import without_numbers
from pdla.catalog import Drift
from pdla.errors import PdlaError
from pdla.model import Signature

MOST = 20
"""Changes that are kept of a run."""


def drifts(before: Sequence[Signature], after: Sequence[Signature]) -> tuple[Drift, ...]:
    """The changes from one run to the next, those of the later run first; at most ``MOST``."""
    found = compare(before, after)
    changed = [Drift("changed", new.file, new.op, _change(old, new, what)) for old, new, what in found.changed]
    came = [Drift("came", one.file, one.op, str(one)) for one in found.after]
    went = [Drift("went", one.file, one.op, str(one)) for one in found.before]
    return tuple([*changed, *came, *went][:MOST])


def expected(runs: Mapping[int, Sequence[Signature]], ranks: int) -> tuple[Signature, ...] | None:
    """The patterns at a number of ranks that never ran, from those at others; None: they do not say."""
    if ranks in runs:
        return tuple(runs[ranks])
    try:
        found = scale({of: Analysis(tuple(some), (), 0, 0) for of, some in runs.items()})
        return None if found.disagreements else found.at(ranks)
    except PdlaError:
        return None


def does_other_work(changes: Sequence[Drift]) -> bool:
    """Whether a run with these changes did more than the same to files whose paths differ in numbers.

    >>> does_other_work([Drift("changed", "/scratch/check.2", "write", "file /scratch/check.1 -> /scratch/check.2")])
    False
    """
    return len(changes) == MOST or not all(map(_is_renamed, changes))


def _is_renamed(one: Drift) -> bool:
    begin, end = "file ", f" -> {one.file}"
    if one.kind != "changed" or not (one.what.startswith(begin) and one.what.endswith(end)):
        return False
    return without_numbers(one.what[len(begin) : -len(end)]) == without_numbers(one.file)


def _change(old: Signature, new: Signature, what: Sequence[str]) -> str:
    """What changed, with the values where they are numbers.

    >>> one = Signature("/f", "read", False, 0, 4096, (), (0,))
    >>> _change(one, Signature("/f", "read", False, 512, 4096, (), (0,)), ("start",))
    'start 0 -> 512'
    """
    return ", ".join(f"{name} {_value(old, name)} -> {_value(new, name)}" for name in what)


def _value(one: Signature, name: str) -> str:
    values = {
        "file": lambda: one.file,
        "ranks": lambda: str(len(one.ranks)),
        "start": lambda: str(one.start),
        "length": lambda: str(one.length),
        "strides": lambda: str([loop.stride for loop in one.loops]),
        "counts": lambda: str([loop.count for loop in one.loops]),
        "growth": lambda: str([tuple(grows) for grows in one.growth]),
        "loops": lambda: str([tuple(loop) for loop in one.loops]),
    }
    return values[name]()
