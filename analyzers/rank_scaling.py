"""From traces of one program at several numbers of ranks to its signatures at any other number: `scale`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, product

from pdla.analyzers.analysis import Analysis
from pdla.errors import PdlaError
from pdla.model import Growth, Loop, Op, Signature
from pdla.units import format_share

Sizes = tuple[int, ...]
"""The sizes that numbers may depend on: (P,), the number of ranks, or the process grid (P1, P2, ...)."""


@dataclass(frozen=True)
class Rule:
    """A number as a function of sizes: ``constant + factor * P1**powers[0] * P2**powers[1] * ...``."""

    constant: Fraction = Fraction(0)
    factor: Fraction = Fraction(0)
    powers: tuple[int, ...] = ()

    def value(self, sizes: Sizes) -> Fraction:
        """The number for these sizes; it may be fractional."""
        if not self.factor:
            return self.constant
        powers = zip(sizes, self.powers, strict=True)
        return self.constant + self.factor * math.prod(Fraction(size) ** power for size, power in powers)

    def at(self, sizes: Sizes) -> int:
        """The number for these sizes.

        Raises:
            PdlaError: it is not a whole number.
        """
        value = self.value(sizes)
        if value.denominator != 1:
            ranks = " x ".join(map(str, sizes))
            raise PdlaError(f"the pattern does not divide among {ranks} ranks: {self} is {float(value):g} there")
        return int(value)

    def __str__(self) -> str:
        """The rule as a formula: P is the number of ranks; P1, P2, ... are the sizes of a grid.

        >>> str(Rule(Fraction(3), Fraction(8), (1, -1)))
        '3 + 8 P1 / P2'
        """
        names = ["P"] if len(self.powers) == 1 else [f"P{place}" for place in range(1, len(self.powers) + 1)]
        above = [name for name, power in zip(names, self.powers, strict=True) if power > 0]
        below = [f" / {name}" for name, power in zip(names, self.powers, strict=True) if power < 0]
        over = [f"{self.factor}"] if self.factor != 1 or not above else []
        parts = [f"{self.constant}"] if self.constant else []
        parts += [" ".join([*over, *above]) + "".join(below)] if self.factor else []
        return " + ".join(parts) or "0"


def fit(values: Mapping[Sizes, int]) -> tuple[Rule, ...]:
    """The simplest rules that give all sizes their values; several if the values do not decide between them.

    A number is, simplest first: constant; a multiple of a size or of its inverse, of a product of
    two of them, ...; the sum of a constant and a multiple of one size.

    >>> [str(rule) for rule in fit({(4,): 1024, (8,): 512})], fit({(2,): 1, (4,): 2, (8,): 9})
    (['4096 / P'], ())
    >>> [str(rule) for rule in fit({(2, 2): 6, (4, 2): 12, (4, 4): 12})]
    ['3 P1']
    """
    for rules in _candidates(values):
        fitting = tuple(rule for rule in rules if all(rule.value(sizes) == value for sizes, value in values.items()))
        if fitting:
            return fitting
    return ()


Rules = tuple[Rule, ...]
NONE: Rules = (Rule(),)


def _candidates(values: Mapping[Sizes, int]) -> Iterator[list[Rule]]:
    """The rules that give the first sizes, or the first two, their values, in classes, the simplest first."""
    (first, value), *rest = values.items()
    yield [Rule(constant=Fraction(value))]
    dimensions = len(first)
    of_powers = sorted(product((1, -1, 0), repeat=dimensions), key=lambda powers: sum(map(abs, powers)))
    for _, alike in groupby(of_powers[1:], key=lambda powers: sum(map(abs, powers))):
        ones = [Rule(factor=Fraction(1), powers=powers) for powers in alike]
        yield [replace(one, factor=value / one.value(first)) for one in ones if value]
    yield [
        Rule(value - slope * first[place], slope, tuple(int(place == other) for other in range(dimensions)))
        for place in range(dimensions)
        for other, another in rest[:1]
        if other[place] != first[place]
        for slope in [Fraction(another - value, other[place] - first[place])]
    ]


def balanced_grid(ranks: int, dimensions: int) -> Sizes:
    """The process grid of MPI_Dims_create: sizes as close to each other as possible, the largest first.

    >>> balanced_grid(8, 2), balanced_grid(16, 2), balanced_grid(24, 3), balanced_grid(7, 2)
    ((4, 2), (4, 4), (4, 3, 2), (7, 1))
    """
    if dimensions == 1:
        return (ranks,)
    return min(
        (size, *rest)
        for size in range(1, ranks + 1)
        if ranks % size == 0
        for rest in [balanced_grid(ranks // size, dimensions - 1)]
        if rest[0] <= size
    )


@dataclass(frozen=True)
class Parametric:
    """A signature whose start, length, loops (stride, count) and their growth depend on the number of ranks.

    ``ranks`` are those that make it; None if all do. If its process grid grows in more than one
    dimension, the numbers depend on the sizes of the grid, and the signature is ``gridded``. Each
    number has all rules that fit equally well.
    """

    file: str
    op: Op
    collective: bool
    start: Rules
    length: Rules
    loops: tuple[tuple[Rules, Rules], ...]
    rank_loops: int
    ranks: tuple[int, ...] | None
    growth: tuple[tuple[Rules, Rules, Rules], ...] = ()
    gridded: bool = False

    def at(self, ranks: int) -> Signature:
        """The signature for so many ranks, on the grid that MPI_Dims_create makes of them.

        Raises:
            PdlaError: the pattern does not divide among the ranks, or the traces do not determine
                it.
        """
        sizes = balanced_grid(ranks, self.rank_loops) if self.gridded else (ranks,)
        loops = tuple(Loop(_at(stride, sizes), _at(count, sizes)) for stride, count in self.loops)
        members = tuple(range(ranks)) if self.ranks is None else self.ranks
        start, length = _at(self.start, sizes), _at(self.length, sizes)
        growth = tuple(Growth(*(_at(rules, sizes) for rules in grows)) for grows in self.growth)
        found = Signature(
            self.file, self.op, self.collective, start, length, loops, members, self.rank_loops, growth=growth
        )
        grid = [loop.count for loop in loops[: self.rank_loops]]
        if min((loop.count for loop in loops), default=1) < 1 or math.prod(grid) != len(members):
            raise PdlaError(f"the pattern does not divide among {ranks} ranks: its grid would be {grid}")
        return found

    def __str__(self) -> str:
        """The I/O signature notation with P for the number of ranks (Signature.__str__), growth in brackets."""
        parts, more = [], NONE
        for depth, (stride, count) in enumerate(self.loops):
            step, longer, following = self.growth[depth] if self.growth else (NONE, NONE, NONE)
            entries = (_growing(stride, step), _growing(self.length, longer), _growing(count, more))
            parts.append(f"[{', '.join(entries)}]" + "r" * (depth < self.rank_loops))
            more = following
        return f"{{{self.op.upper()}, {self.start[0]}, {len(parts)}, ({', '.join(reversed(parts))})}}"


def _growing(rules: Rules, growth: Rules) -> str:
    return f"{rules[0]} (+ {growth[0]})" if growth != NONE else str(rules[0])


def _at(rules: Rules, sizes: Sizes) -> int:
    values = {rule.at(sizes) for rule in rules}
    if len(values) > 1:
        said = " or ".join(map(str, rules))
        raise PdlaError(f"the traces do not tell whether a number is {said}: add a trace of another number of ranks")
    return values.pop()


@dataclass(frozen=True)
class Scaling:
    """What the traces agree on, and in words what they disagree on; ``ranks`` are the numbers of ranks compared."""

    ranks: tuple[int, ...]
    signatures: tuple[Parametric, ...]
    disagreements: tuple[str, ...]

    def at(self, ranks: int) -> tuple[Signature, ...]:
        """The signatures for so many ranks.

        Raises:
            PdlaError: the traces disagree, or a pattern does not divide among the ranks.
        """
        if self.disagreements:
            raise PdlaError(f"the traces disagree, so nothing can be predicted: {self.disagreements[0]}")
        return tuple(one.at(ranks) for one in self.signatures)


def scale(analyses: Mapping[int, Analysis]) -> Scaling:
    """The parametric signatures of a program, from its analyses by number of ranks (two or more).

    Signatures of the same file, operation, kind of call and depth are matched in the order of their
    starts. If one dimension of their process grids grows, it is assumed to go on growing. If
    several do, the grids must be those of MPI_Dims_create; otherwise the grid of another number of
    ranks is not known. A third trace can contradict two.

    Raises:
        PdlaError: fewer than two numbers of ranks.
    """
    if len(analyses) < 2:
        raise PdlaError(f"comparing runs needs traces of two or more numbers of ranks (got {len(analyses)})")
    sizes = tuple(sorted(analyses))
    found: list[Parametric] = []
    wrong = [
        f"{format_share(analyses[ranks].coverage.bytes, 1)} of the bytes at {ranks} ranks are in signatures, "
        "the rest is irregular"
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
    """The signature that these are, by number of ranks; or in words why they are not one signature."""

    def rule(what: str, values: Iterable[int]) -> Rules:
        of = list(values)
        fitted = fit(dict(zip(sizes, of, strict=True)))
        if not fitted:
            listed = ", ".join(f"{value} at {ranks}" for ranks, value in zip(of_ranks, of, strict=True))
            raise _NoRuleError(f"no rule gives the {what}: {listed} ranks")
        return fitted

    signatures = tuple(of_ranks.values())
    one = signatures[0]
    everyone = all(signature.ranks == tuple(range(ranks)) for ranks, signature in of_ranks.items())
    if not everyone and len({signature.ranks for signature in signatures}) > 1:
        return "at each number of ranks other ranks make it"
    sizes = [tuple(loop.count for loop in signature.loops[: one.rank_loops]) for signature in signatures]
    gridded = everyone and sum(len(set(grown)) > 1 for grown in zip(*sizes, strict=True)) > 1
    if not gridded:
        sizes = [(ranks,) for ranks in of_ranks]
    elif any(grid != balanced_grid(ranks, one.rank_loops) for ranks, grid in zip(of_ranks, sizes, strict=True)):
        grids = ", ".join(" x ".join(map(str, grid)) for grid in sizes)
        return f"its process grids are {grids}, not those of MPI_Dims_create: no other grid can be predicted"
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
    return Parametric(one.file, one.op, one.collective, start, length, loops, one.rank_loops, ranks, growth, gridded)


class _NoRuleError(Exception):
    """No rule gives these values."""
