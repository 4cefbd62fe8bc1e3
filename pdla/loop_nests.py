"""Loop nests: accesses as nested loops whose steps, lengths and counts may grow, and exact arithmetic on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# RATIONALE: NumPy takes longer to import than all else that a verb without arrays needs.
Int64Array: TypeAlias = "npt.NDArray[np.int64]"


class Loop(NamedTuple):
    """``count`` repetitions, ``stride`` bytes apart. A stride of 0 repeats the same bytes."""

    stride: int
    count: int  # type: ignore[assignment]  # hides the tuple's own method of this name, which nobody needs here


class Growth(NamedTuple):
    """What each iteration of a loop adds (negative: subtracts).

    ``stride`` bytes are added to the step to the next iteration, ``length`` bytes to every request
    inside, and ``count`` iterations to the loop directly inside. Iteration i begins ``i *
    loop.stride + stride * i * (i - 1) / 2`` bytes after the first one.
    """

    stride: int = 0
    length: int = 0
    count: int = 0  # type: ignore[assignment]


STILL = Growth()


class Nest(NamedTuple):
    """Accesses as nested loops, outermost first in the order of access. Without loops it is one access.

    ``start`` and ``length`` (bytes) are those of the first access. Strides and counts are those of
    each loop's first run. ``growth`` has an item for each loop, or is empty if nothing grows. So a
    nest can express accesses that are strided at any depth, and linear variation: of sizes or
    strides (variable-size strided), and of the counts of inner loops (triangular).
    """

    start: int
    length: int
    loops: tuple[Loop, ...]
    growth: tuple[Growth, ...] = ()

    @property
    def levels(self) -> list[tuple[Loop, Growth]]:
        """Each loop with its growth."""
        return list(zip(self.loops, self.growth or (STILL,) * len(self.loops), strict=True))

    @property
    def repeated(self) -> list[bool]:
        """Which loops only access the same bytes again, the same number of times in each run."""
        more = [0, *(grows.count for grows in self.growth or (STILL,) * len(self.loops))]
        return [
            not loop.stride and grows == STILL and not n for (loop, grows), n in zip(self.levels, more, strict=False)
        ]

    @property
    def requests(self) -> int:
        """Number of accesses."""
        return self._totals()[0]

    @property
    def bytes(self) -> int:
        """Bytes accessed. A byte that is accessed repeatedly counts every time."""
        return self._totals()[1]

    def _totals(self) -> tuple[int, int]:
        """Requests and bytes.

        The contents of a loop are a polynomial in its count. The polynomial is summed over the
        enclosing loop in its Newton form: the sum of the binomials C(i, k) over i < n is C(n, k +
        1).
        """
        if not self.growth:
            requests = math.prod(loop.count for loop in self.loops)
            return requests, requests * self.length
        requests_in, bytes_in, base = [1], [self.length], 0
        for (_, count), grows in reversed(self.levels):
            inner = [base + grows.count * i for i in range(len(requests_in) + len(bytes_in) + 1)]
            held = [_value(requests_in, n) for n in inner]
            filled = [_value(bytes_in, n) + grows.length * i * held[i] for i, n in enumerate(inner)]
            requests_in, bytes_in, base = _sums(held), _sums(filled), count
        return _value(requests_in, base), _value(bytes_in, base)

    @property
    def extent(self) -> tuple[int, int]:
        """The half-open range from the first to the last byte touched."""
        if not self.growth:
            spans = [loop.stride * (loop.count - 1) for loop in self.loops]
            return self.start + sum(min(0, s) for s in spans), self.start + sum(max(0, s) for s in spans) + self.length
        import numpy as np

        # The counts that each loop has: a single one, or one for every iteration of the enclosing
        # loop.
        counts = [np.array([loop.count], np.int64) for loop in self.loops]
        for depth, (_, grows) in enumerate(self.levels[:-1]):
            if grows.count:
                counts[depth + 1] = counts[depth + 1] + grows.count * np.arange(counts[depth].max())
        low, high = np.zeros(1, np.int64), np.full(1, self.length)
        for (loop, grows), count in zip(reversed(self.levels), reversed(counts), strict=True):
            if grows == STILL:
                span = loop.stride * (count - 1)
                low, high = low + np.minimum(0, span), high + np.maximum(0, span)
            else:
                i = np.arange(count.max())
                at = i * loop.stride + grows.stride * (i * (i - 1) // 2)
                low = np.minimum.accumulate(at + low)[count - 1]
                high = np.maximum.accumulate(at + grows.length * i + high)[count - 1]
        return self.start + int(low[0]), self.start + int(high[0])

    def expand(self) -> tuple[Int64Array, Int64Array]:
        """The accesses in their order: (offsets, lengths), each of shape (requests,)."""
        import numpy as np

        offsets, lengths, _ = self.expand_with(np.zeros(1, np.int64), 0)
        return offsets, lengths

    def expand_with(self, labels: Int64Array, depth: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """As ``expand``; also gives each access the one of ``labels`` that stands for its iterations of the outer
        ``depth`` loops."""
        import numpy as np

        offsets, lengths = np.array([self.start], np.int64), np.array([self.length], np.int64)
        more = np.zeros(1, np.int64)  # iterations by which the next loop has grown
        owner = labels
        for level, ((stride, count), grows) in enumerate(self.levels):
            counts = count + more
            i = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            offsets = np.repeat(offsets, counts) + i * stride + grows.stride * (i * (i - 1) // 2)
            lengths = np.repeat(lengths, counts) + i * grows.length
            if level >= depth:
                owner = np.repeat(owner, counts)
            more = i * grows.count
        return offsets, lengths, owner

    def once(self) -> Nest:
        """The nest without the loops that only repeat."""
        kept = [level for level, again in zip(self.levels, self.repeated, strict=True) if not again]
        loops, growth = tuple(loop for loop, _ in kept), tuple(grows for _, grows in kept)
        return self._replace(loops=loops, growth=growth if self.growth else ())

    def evened(self) -> Nest:
        """The nearest nest without growth: mean steps, mean counts, and the mean length of a request.

        >>> Nest(0, 8, (Loop(100, 5), Loop(8, 1)), (Growth(10, 0, 1), STILL)).evened()
        Nest(start=0, length=8, loops=(Loop(stride=115, count=5), Loop(stride=8, count=3)), growth=())
        """
        if not self.growth:
            return self
        loops, outer = [], 1
        for depth, (loop, grows) in enumerate(self.levels):
            inner = self._replace(loops=self.loops[: depth + 1], growth=self.growth[: depth + 1]).requests
            count = max(1, round(inner / outer))
            loops.append(Loop(loop.stride + round(grows.stride * max(0, count - 2) / 2), count))
            outer = inner
        return Nest(self.start, -(-self.bytes // self.requests), tuple(loops))


def _value(differences: Sequence[int], n: int) -> int:
    """The value at n of the polynomial with these forward differences at 0."""
    return sum(
        difference * math.prod(range(n, n - k, -1)) // math.factorial(k)
        for k, difference in enumerate(differences)
        if difference
    )


def _sums(values: list[int]) -> list[int]:
    """The sums of the first n of a polynomial's values at 0, 1, 2, ..., as forward differences at n = 0."""
    differences = [0]
    while any(values):
        differences.append(values[0])
        values = [after - before for before, after in pairwise(values)]
    return differences
