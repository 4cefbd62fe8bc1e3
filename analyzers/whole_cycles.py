"""Whole cycles: nests in a cycle of steps that neighbours make up otherwise, since its last step equals the next ones.

BT-IO with 9 ranks has three cells A B C in each of its time steps. On some ranks A is as far behind C as C behind B and
B behind the A before. Neighbours then make up A, loops of B C A, and B C. It is shorter to say that A returns, and that
B C returns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdla.analyzers.pattern_items import Items
from pdla.analyzers.shapes import Shapes
from pdla.model import Int64Array

LONGEST = 64
"""Largest number of nests in a cycle."""

MOST = 1 << 18
"""Largest number of nests in all cycles."""

SHAPES = 16
"""If there are more shapes than this, they are not the same nest in loops."""


def in_cycles(items: Items, nests: Items, of: Int64Array, numbers: Int64Array) -> tuple[Items, Int64Array] | None:
    """(nests, of) with each cycle from its beginning, where that takes no more numbers, or None if nothing is to do.

    A sequence is a cycle if all of it are loops over one nest, each as far behind the one of the cycle before.

    Args:
        items: accesses and nests in their order.
        nests: what neighbours make up.
        of: for each item the nest that it belongs to.
        numbers: for each sequence how many numbers its nests take, combined in other ways.
    """
    sequences = np.arange(len(items.rank))
    first, stop = (np.searchsorted(nests.sequence, sequences, side) for side in ("left", "right"))
    least = 2 * (2 + 2 + 2)  # two nests with two loops
    possible = (numbers > least) & (stop - first > 2)
    if not possible.any():
        return None
    # Most nests are loops, or the cycles have no loops.
    total = np.bincount(nests.sequence, nests.size, len(sequences))
    pieces: dict[int, tuple[Int64Array, Int64Array]] = {}
    for sequence in np.flatnonzero(possible & (4 * (stop - first) <= 3 * total)).tolist():
        low, high = int(first[sequence]), int(stop[sequence])
        found = _cycles(nests.start[low:high], nests.shape[low:high], nests.shapes, int(numbers[sequence]))
        if found is not None:
            pieces[sequence] = found
    return _in_pieces(items, nests, of, pieces) if pieces else None


def _cycles(start: Int64Array, shape: Int64Array, shapes: Shapes, numbers: int) -> tuple[Int64Array, Int64Array] | None:
    """The starts and shapes of the loops that make up each cycle of a sequence, if they take no more numbers."""
    kinds, kind = np.unique(shape, return_inverse=True)
    if len(kinds) > SHAPES:
        return None
    chains = [_chain(int(number), shapes) for number in kinds]
    inner = next((one for one in chains[0] if all(one in chain for chain in chains)), None)
    if inner is None or shapes.size[shape].sum() > MOST * shapes.size[inner]:
        return None
    offsets = [_offsets(int(number), inner, shapes) for number in kinds]
    count = np.array([len(one) for one in offsets])[kind]
    places = np.repeat(start, count) + np.concatenate([offsets[one] for one in kind.tolist()])
    for length in range(2, min(LONGEST, len(places) // 3) + 1):
        step = places[length] - places[0]
        if step == places[2 * length] - places[length] and (places[length:] - places[:-length] == step).all():
            break
    else:
        return None
    steps = np.diff(places[: length + 1])
    heads = _heads(steps.tolist())
    turns = np.diff([*heads, length])
    loops = np.where(turns > 1, shapes.loop(steps[heads], turns, np.full(len(heads), inner)), inner)
    cycles, rest = divmod(len(places), length)
    starts = np.append(np.add.outer(np.arange(cycles) * step, places[heads]), places[len(places) - rest :])
    if (shapes.numbers[loops] + 2).sum() > numbers or np.array_equal(starts, start):
        return None
    return starts, np.append(np.tile(loops, cycles), np.full(rest, inner))


def _heads(steps: list[int]) -> list[int]:
    """The first nests of the loops in a cycle, which consist of steps that the cycle has more than once."""
    heads = [0]
    for place, step in enumerate(steps[:-1], 1):
        if steps.count(step) == 1 or (place - heads[-1] > 1 and step != steps[place - 2]):
            heads.append(place)
    return heads


def _chain(shape: int, shapes: Shapes) -> list[int]:
    """The shape and those in its loops, as far as none of these grows."""
    chain = [shape]
    while shapes.child[chain[-1]] >= 0 and not shapes.grows[chain[-1]]:
        chain.append(int(shapes.child[chain[-1]]))
    return chain


def _offsets(shape: int, inner: int, shapes: Shapes) -> Int64Array:
    """The offsets of the nests of shape ``inner`` in this one."""
    offsets = np.zeros(1, np.int64)
    while shape != inner:
        offsets = np.add.outer(offsets, np.arange(shapes.count[shape]) * shapes.stride[shape]).ravel()
        shape = int(shapes.child[shape])
    return offsets


def _in_pieces(
    items: Items, nests: Items, of: Int64Array, pieces: dict[int, tuple[Int64Array, Int64Array]]
) -> tuple[Items, Int64Array] | None:
    """(nests, of) with these starts and shapes instead in these sequences, or None.

    Sequences in which an item would be in two pieces stay as they are.
    """
    bounds = np.searchsorted(nests.sequence, np.arange(len(items.rank) + 1))
    parts = [
        pieces.get(sequence, (nests.start[low:high], nests.shape[low:high]))
        for sequence, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    ]
    start, shape = (np.concatenate(column) for column in zip(*parts, strict=True))
    sequence = np.repeat(np.arange(len(parts)), [len(one) for one, _ in parts])
    ends, stops = np.cumsum(items.size), np.cumsum(nests.shapes.size[shape])
    last = np.searchsorted(ends, stops)
    torn = np.unique(sequence[ends[last] != stops])
    if len(torn):
        whole = {one: found for one, found in pieces.items() if one not in torn}
        return _in_pieces(items, nests, of, whole) if whole else None
    first = np.append(0, last[:-1] + 1)
    found = replace(
        nests,
        sequence=sequence,
        lane=np.zeros_like(start),
        start=start,
        shape=shape,
        tally=items.tally.total(first),
        bound=np.zeros(len(start), np.bool_),
    )
    return found, np.repeat(np.arange(len(start)), last - first + 1)
