"""From traces of one program at several numbers of ranks to its signatures at any other: `scale`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from pdla.analyzers.analysis import Analysis
from pdla.errors import PdlaError
from pdla.model import Growth, Loop, Op, Signature


@dataclass(frozen=True)
class Rule:
    """A whole number that depends on the number of ranks P: ``constant + slope * P + share / P``."""

    constant: Fraction = Fraction(0)
    slope: Fraction = Fraction(0)
    share: Fraction = Fraction(0)

    def at(self, ranks: int) -> int:
        """The number for so many ranks.

        Raises:
            PdlaError: it is no whole number there.
        """
        value = self.constant + self.slope * ranks + self.share / ranks
        if value.denominator != 1:
            raise PdlaError(f"the pattern does not divide among {ranks} ranks: {self} is {float(value):g} there")
        return int(value)

    def __str__(self) -> str:
        parts = [f"{self.constant}"] if self.constant else []
        parts += ["P" if self.slope == 1 else f"{self.slope} P"] if self.slope else []
        parts += [f"{self.share} / P"] if self.share else []
        return " + ".join(parts) or "0"


def fit(values: Mapping[int, int]) -> Rule | None:
    """The simplest rule that gives each number of ranks its value: the same, k P, k / P or a + b P; None: no such rule.

    >>> str(fit({4: 1024, 8: 512})), str(fit({4: 40, 8: 80})), fit({2: 1, 4: 2, 8: 9})
    ('4096 / P', '10 P', None)
    """
    (ranks, value), (others, other) = list(values.items())[:2]
    slope = Fraction(other - value, others - ranks)
    candidates = (
        Rule(constant=Fraction(value)),
        Rule(slope=Fraction(value, ranks)),
        Rule(share=Fraction(value * ranks)),
        Rule(constant=value - slope * ranks, slope=slope),
    )
    for rule in candidates:
        if all(rule.constant + rule.slope * p + rule.share / p == v for p, v in values.items()):
            return rule
    return None


@dataclass(frozen=True)
class Parametric:
    """A signature whose start, length, loops (stride, count) and their growth depend on the number of ranks.

    ``ranks`` are those that make it, None where all do.
    """

    file: str
    op: Op
    collective: bool
    start: Rule
    length: Rule
    loops: tuple[tuple[Rule, Rule], ...]
    rank_loops: int
    ranks: tuple[int, ...] | None
    growth: tuple[tuple[Rule, Rule, Rule], ...] = ()

    def at(self, ranks: int) -> Signature:
        """The signature for so many ranks.

        Raises:
            PdlaError: it does not divide among them.
        """
        loops = tuple(Loop(stride.at(ranks), count.at(ranks)) for stride, count in self.loops)
        members = tuple(range(ranks)) if self.ranks is None else self.ranks
        start, length = self.start.at(ranks), self.length.at(ranks)
        growth = tuple(Growth(*(rule.at(ranks) for rule in rules)) for rules in self.growth)
        found = Signature(
            self.file, self.op, self.collective, start, length, loops, members, self.rank_loops, growth=growth
        )
        grid = [loop.count for loop in loops[: self.rank_loops]]
        if min((loop.count for loop in loops), default=1) < 1 or math.prod(grid) != len(members):
            raise PdlaError(f"the pattern does not divide among {ranks} ranks: its grid would be {grid}")
        return found

    def __str__(self) -> str:
        """The I/O signature notation with P for the number of ranks (Signature.__str__), growth in brackets."""
        parts, more = [], Rule()
        for depth, (stride, count) in enumerate(self.loops):
            step, longer, following = self.growth[depth] if self.growth else (Rule(), Rule(), Rule())
            entries = (_growing(stride, step), _growing(self.length, longer), _growing(count, more))
            parts.append(f"[{', '.join(entries)}]" + "r" * (depth < self.rank_loops))
            more = following
        return f"{{{self.op.upper()}, {self.start}, {len(parts)}, ({', '.join(reversed(parts))})}}"


def _growing(rule: Rule, growth: Rule) -> str:
    return f"{rule} (+ {growth})" if growth != Rule() else str(rule)


@dataclass(frozen=True)
class Scaling:
    """What the traces agree on, and in words what they do not; ``ranks`` are the numbers of ranks compared."""

    ranks: tuple[int, ...]
    signatures: tuple[Parametric, ...]
    disagreements: tuple[str, ...]

    def at(self, ranks: int) -> tuple[Signature, ...]:
        """The signatures for so many ranks.

        Raises:
            PdlaError: the traces disagree, or a pattern does not divide among the ranks.
        """
        if self.disagreements:
            raise PdlaError(f"the traces do not agree, so nothing is predicted: {self.disagreements[0]}")
        return tuple(one.at(ranks) for one in self.signatures)


def scale(analyses: Mapping[int, Analysis]) -> Scaling:
    """The parametric signatures of a program from its analyses by number of ranks (two or more).

    Signatures of the same file, operation, kind of call and depth belong together in the order of their starts. Two
    numbers of ranks cannot tell which dimension of a process grid grows: a third one can contradict.

    Raises:
        PdlaError: fewer than two numbers of ranks.
    """
    if len(analyses) < 2:
        raise PdlaError(f"comparing runs takes traces of two or more numbers of ranks (got {len(analyses)})")
    sizes = tuple(sorted(analyses))
    found: list[Parametric] = []
    wrong = [
        f"{analyses[ranks].coverage.bytes:.0%} of the bytes at {ranks} ranks are in signatures, the rest is irregular"
        for ranks in sizes
        if analyses[ranks].irregular
    ]
    groups = [_grouped(analyses[ranks].signatures, ranks) for ranks in sizes]
    for key in dict.fromkeys(key for group in groups for key in group):
        alike = [group.get(key, []) for group in groups]
        what = f"{key[1]}s of {key[0]} with {key[3]} loops"
        if len({len(signatures) for signatures in alike}) > 1:
            counts = ", ".join(f"{len(some)} at {ranks}" for some, ranks in zip(alike, sizes, strict=True))
            wrong.append(f"{what}: {counts} ranks")
            continue
        for same in zip(*alike, strict=True):
            parametric = _parametric(dict(zip(sizes, same, strict=True)))
            if isinstance(parametric, str):
                wrong.append(f"{what}: {parametric}")
            else:
                found.append(parametric)
    return Scaling(sizes, tuple(found), tuple(wrong))


_Key = tuple[str, Op, bool, int, int, bool, bool]


def _grouped(signatures: Iterable[Signature], ranks: int) -> dict[_Key, list[Signature]]:
    def key(one: Signature) -> _Key:
        everyone = len(one.ranks) == ranks
        return one.file, one.op, one.collective, len(one.loops), one.rank_loops, everyone, bool(one.growth)

    ordered = sorted(signatures, key=lambda one: (key(one), one.start, one.ranks))
    return {name: list(members) for name, members in groupby(ordered, key)}


def _parametric(of_ranks: Mapping[int, Signature]) -> Parametric | str:
    """The signature that these are, by number of ranks; or in words why they are not one."""

    def rule(what: str, values: Iterable[int]) -> Rule:
        of = dict(zip(of_ranks, values, strict=True))
        fitted = fit(of)
        if fitted is None:
            listed = ", ".join(f"{value} at {ranks}" for ranks, value in of.items())
            raise _NoRuleError(f"no rule gives the {what}: {listed} ranks")
        return fitted

    signatures = tuple(of_ranks.values())
    one = signatures[0]
    everyone = all(signature.ranks == tuple(range(ranks)) for ranks, signature in of_ranks.items())
    if not everyone and len({signature.ranks for signature in signatures}) > 1:
        return "other ranks make it at each number of ranks"
    try:
        loops = tuple(
            (
                rule(f"stride of loop {depth}", [signature.loops[depth].stride for signature in signatures]),
                rule(f"count of loop {depth}", [signature.loops[depth].count for signature in signatures]),
            )
            for depth in range(len(one.loops))
        )
        growth = tuple(
            (
                rule(f"growth of stride {depth}", [signature.growth[depth].stride for signature in signatures]),
                rule(f"growth of length {depth}", [signature.growth[depth].length for signature in signatures]),
                rule(f"growth of count {depth + 1}", [signature.growth[depth].count for signature in signatures]),
            )
            for depth in range(len(one.growth))
        )
        start = rule("start", [signature.start for signature in signatures])
        length = rule("length", [signature.length for signature in signatures])
    except _NoRuleError as error:
        return str(error)
    ranks = None if everyone else one.ranks
    return Parametric(one.file, one.op, one.collective, start, length, loops, one.rank_loops, ranks, growth)


class _NoRuleError(Exception):
    """Values that no rule gives."""
