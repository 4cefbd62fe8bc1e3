"""Lines on a grid of cells: down-sampling that hides no rank and no gap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def rasterise(
    x: tuple[Floats, Floats],
    y: tuple[Ints, Ints],
    group: Ints,
    groups: int,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    cells: tuple[int, int],
) -> npt.NDArray[np.bool_]:
    """Which cells of a grid the lines of each group touch, shape (groups, cells along y, cells along x).

    A line from (x[0], y[0]) to (x[1], y[1]) covers y half-open. Each line fills at least one cell,
    so no line is lost. A cell that no line touches stays empty, so a gap of two cells or more is
    always visible.
    """
    columns, rows = cells
    width = (x_range[1] - x_range[0]) / columns or 1.0
    height = (y_range[1] - y_range[0]) / rows or 1.0
    first = np.clip(((y[0] - y_range[0]) / height).astype(np.int64), 0, rows - 1)
    last = np.clip(np.ceil((y[1] - y_range[0]) / height).astype(np.int64) - 1, first, rows - 1)
    left = np.clip(((x[0] - x_range[0]) / width).astype(np.int64), 0, columns - 1)
    right = np.clip(np.ceil((x[1] - x_range[0]) / width).astype(np.int64) - 1, left, columns - 1)

    # Most extents of a long trace fall on the same few cells: each such line is kept once.
    size = max(columns, rows)
    key = ((group * size + first) * size + last) * size * size + left * size + right
    _, keep = np.unique(key, return_index=True)
    first, last, left, right, group = first[keep], last[keep], left[keep], right[keep], group[keep]

    # Each line is a run of columns in every row that it crosses; a run adds +1 at its start and -1
    # behind its end.
    edges = np.zeros((groups, rows, columns + 1), dtype=np.int32)
    spanned = last - first + 1
    batches = np.searchsorted(np.cumsum(spanned), np.arange(0, spanned.sum(), 4_000_000)).tolist()
    for low, high in pairwise([*batches, len(keep)]):
        part = slice(low, high)
        n = spanned[part]
        line = np.repeat(np.arange(low, high), n)
        step = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        run = right[line] - left[line] + 1
        begin = left[line] + step * run // spanned[line]
        end = np.maximum(left[line] + -(-(step + 1) * run // spanned[line]), begin + 1)
        np.add.at(edges, (group[line], first[line] + step, begin), 1)
        np.add.at(edges, (group[line], first[line] + step, end), -1)
    return np.cumsum(edges, axis=2, out=edges)[:, :, :-1] > 0


def weave(present: npt.NDArray[np.bool_]) -> Ints:
    """The group that each cell shows, -1 for none. In a cell of several groups they alternate from cell to cell.

    A group that is present anywhere is shown somewhere, as long as there are more cells than
    groups.
    """
    groups, rows, columns = present.shape
    count = present.sum(axis=0)
    # The groups alternate in squares of 2 x 2 cells: single cells would mix into a colour that no
    # rank has.
    turn = (np.arange(rows)[:, None] // 2 + np.arange(columns)[None, :] // 2) % np.maximum(count, 1)
    order = np.cumsum(present, axis=0, dtype=np.int16) - 1
    shown = np.full((rows, columns), -1, dtype=np.int64)
    for number in range(groups):
        shown[present[number] & (order[number] == turn)] = number
    tally = np.bincount(shown[shown >= 0], minlength=groups)
    for number in np.flatnonzero(present.any(axis=(1, 2)) & (tally == 0)).tolist():
        where = np.argwhere(present[number])
        row, column = where[np.argmax(tally[shown[where[:, 0], where[:, 1]]])]
        tally[shown[row, column]] -= 1
        shown[row, column] = number
        tally[number] += 1
    return shown


def spread(
    x: tuple[Floats | Ints, Floats | Ints],
    amount: Ints,
    group: Ints,
    groups: int,
    span: tuple[float, float],
    cells: int,
) -> Floats:
    """What falls into each of the ``cells`` of ``span``, shape (groups, cells): every amount evenly over its interval.

    An interval without length puts everything into its cell. All intervals are in ``span``, so the
    sum of the cells is the sum of the amounts.
    """
    width = (span[1] - span[0]) / cells
    start, stop = ((np.asarray(end, np.float64) - span[0]) / width for end in x)
    first = np.clip(start.astype(np.int64), 0, cells - 1)
    last = np.clip(np.ceil(stop).astype(np.int64) - 1, first, cells - 1)
    within = first == last
    density = amount / np.where(within, 1.0, stop - start)

    def total(cell: Ints, value: Floats | Ints, which: npt.NDArray[np.bool_]) -> Floats:
        key = group[which] * (cells + 1) + cell[which]
        found = np.bincount(key, weights=value[which], minlength=groups * (cells + 1))
        return found.astype(np.float64).reshape(groups, cells + 1)

    across = ~within
    result = total(first, amount, within)
    result += total(first, density * (first + 1 - start), across) + total(last, density * (stop - last), across)
    steps = total(first + 1, density, across) - total(last, density, across)
    return np.maximum((result + np.cumsum(steps, axis=1))[:, :cells], 0.0)
