"""Compare the patterns of two runs: `compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pdla.model import Signature


@dataclass(frozen=True)
class Difference:
    """The patterns that both runs have, those that have changed, and those of only one run.

    ``changed`` are (before, after, what: some of file, ranks, start, length, strides, growth,
    counts, loops).
    """

    both: tuple[Signature, ...]
    changed: tuple[tuple[Signature, Signature, tuple[str, ...]], ...]
    before: tuple[Signature, ...]
    after: tuple[Signature, ...]


def compare(before: Sequence[Signature], after: Sequence[Signature]) -> Difference:
    """The difference between the patterns of two runs, each in the order of the second run.

    Equal patterns are paired first. The rest is paired in three steps: patterns of the same file,
    operation and kind of call with equally many loops, then with any loops, then those of different
    files; each time the k-th by start with the k-th.
    """
    left, right = list(before), list(after)
    both = [new for _, new in _paired(left, right, _pattern)]
    pairs = [
        pair
        for key in (
            lambda one: (one.file, *_kind(one), len(one.loops), one.rank_loops),
            lambda one: (one.file, *_kind(one)),
            lambda one: (*_kind(one), len(one.loops), one.rank_loops),
        )
        for pair in _paired(left, right, key)
    ]
    place = {id(one): number for number, one in enumerate(after)}
    changed = [(old, new, _changes(old, new)) for old, new in sorted(pairs, key=lambda pair: place[id(pair[1])])]
    return Difference(tuple(both), tuple(changed), tuple(left), tuple(right))


def _kind(one: Signature) -> tuple[Any, ...]:
    return one.op, one.collective


def _pattern(one: Signature) -> tuple[Any, ...]:
    return one.file, *_kind(one), one.start, one.length, one.loops, one.growth, one.rank_loops, one.ranks


def _paired(
    left: list[Signature], right: list[Signature], key: Callable[[Signature], tuple[Any, ...]]
) -> list[tuple[Signature, Signature]]:
    """Take the signatures with equal keys out of both lists, pair by pair."""
    waiting: dict[tuple[Any, ...], list[Signature]] = {}
    for one in sorted(left, key=lambda one: one.start, reverse=True):
        waiting.setdefault(key(one), []).append(one)
    partner = {}
    for one in sorted(right, key=lambda one: one.start):
        if found := waiting.get(key(one)):
            partner[id(one)] = found.pop()
    pairs = [(partner[id(one)], one) for one in right if id(one) in partner]
    taken = {id(one) for pair in pairs for one in pair}
    left[:] = [one for one in left if id(one) not in taken]
    right[:] = [one for one in right if id(one) not in taken]
    return pairs


def _changes(old: Signature, new: Signature) -> tuple[str, ...]:
    found = [name for name in ("file", "ranks", "start", "length") if getattr(old, name) != getattr(new, name)]
    if len(old.loops) != len(new.loops) or old.rank_loops != new.rank_loops:
        return (*found, "loops")
    loops = list(zip(old.loops, new.loops, strict=True))
    found += ["strides"] if any(one.stride != other.stride for one, other in loops) else []
    found += ["growth"] if old.growth != new.growth else []
    found += ["counts"] if any(one.count != other.count for one, other in loops) else []
    return tuple(found)
