"""Pictures of what a program did, as matplotlib figures (object API: nothing global)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pdla.report.raster import Floats, Ints, rasterise, weave
from pdla.report.style import (
    FAINT,
    INK,
    MOST_GROUPS,
    OP_COLOURS,
    WIDTH,
    ByteFormatter,
    ByteLocator,
    exact_bytes,
    legend,
    one_axes,
    plain,
    rank_colours,
    rank_key,
)
from pdla.report.text import shorten
from pdla.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    import pandas as pd


MOST_LINES = 20_000  # extents that are drawn one by one; more are binned
THIN, LONG = 0.01, 8
"""A request is small beside a cell's bytes below the first share, and takes long from so many cells on."""
PALE_SHARE = 0.25
CELLS = (400, 160)  # of a raster as wide as WIDTH: along x, along y


def access_picture(
    accesses: pd.DataFrame,
    path: str,
    *,
    ranks: int | None = None,
    seconds: float | None = None,
    title: str | None = None,
    width: float = WIDTH,
) -> Figure:
    """Where in the file each rank was, and when: offset (bytes) over time (s), with reads and writes apart.

    An extent is a line from (t_start, offset) to (t_end, offset + length). More than MOST_LINES
    extents, or extents of several ranks too close to draw side by side, are binned; the caption
    gives the size of the cells.

    Args:
        accesses: rows of one file (ACCESS_COLUMNS).
        path: the file, for the title.
        ranks: number of ranks of the whole job, so that its pictures agree on colours (default: up
            to the highest seen).
        seconds: least length of the time axis, so that the eye can compare two runs.
        title: shown instead of the path.
        width: of the figure, inches.
    """
    start = float(accesses["t_start"].min()) if len(accesses) else 0.0
    stop = float(accesses["t_end"].max()) if len(accesses) else 1.0
    extents = _Extents.of(accesses, accesses["t_start"], accesses["t_end"])
    x_range = (start, max(stop, start + (seconds or 0.0)))
    return _extent_picture(
        extents, path if title is None else title, "seconds since MPI_Init", x_range, ranks, format_seconds, width
    )


def order_picture(accesses: pd.DataFrame, path: str, *, ranks: int | None = None) -> Figure:
    """The pattern's shape without time: offset (bytes) over the number of the request within its rank."""
    index = accesses.groupby(["op", "rank"], observed=True).cumcount()
    span = (0.0, float(index.max() + 1) if len(index) else 1.0)
    extents = _Extents.of(accesses, index, index + 1)
    return _extent_picture(extents, path, "request of its rank", span, ranks, lambda count: f"{count:,.3g} requests")


def size_histogram(accesses: pd.DataFrame) -> Figure:
    """How many requests have which size: a bar per size if there are few sizes, otherwise per power of two."""
    operations = [op for op in ("read", "write") if (accesses["op"] == op).any()]
    lengths = {op: accesses.loc[accesses["op"] == op, "length"].to_numpy(np.int64) for op in operations}
    sizes, labels = _size_bins(accesses["length"].to_numpy(np.int64))
    figure = Figure(figsize=(WIDTH, 0.8 + 0.28 * max(len(sizes) * len(operations), 1)), layout="constrained")
    axes = one_axes(figure)
    height = 0.8 / max(len(operations), 1)
    for number, op in enumerate(operations):
        which = np.searchsorted(sizes, lengths[op])
        counts = np.bincount(which, minlength=len(sizes))
        at = np.arange(len(sizes)) + (number - (len(operations) - 1) / 2) * height
        bars = axes.barh(at, counts, height=0.85 * height, color=OP_COLOURS[op])
        texts = [format_count(int(count)) if count else "" for count in counts]
        axes.bar_label(bars, texts, padding=4, fontsize=9, color=INK)
    axes.set_yticks(np.arange(len(sizes)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("requests", color=INK, fontsize=9)
    axes.grid(axis="y", visible=False)
    if len(operations) > 1:
        legend(axes, [Patch(color=OP_COLOURS[op], label=f"{op}s") for op in operations])
    return figure


# --- extents, as lines or as cells -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Extents:
    """Parallel arrays of shape (extents,): from (x0, y0) to (x1, y1), by a rank, read or written."""

    x0: Floats
    x1: Floats
    y0: Ints
    y1: Ints
    rank: Ints
    op: npt.NDArray[np.object_]

    @classmethod
    def of(cls, accesses: pd.DataFrame, x0: pd.Series[Any], x1: pd.Series[Any]) -> _Extents:
        offset = accesses["offset"].to_numpy(np.int64)
        return cls(
            x0.to_numpy(np.float64),
            x1.to_numpy(np.float64),
            offset,
            offset + accesses["length"].to_numpy(np.int64),
            accesses["rank"].to_numpy(np.int64),
            accesses["op"].to_numpy(object),
        )

    def only(self, op: str) -> _Extents:
        keep = self.op == op
        return _Extents(self.x0[keep], self.x1[keep], self.y0[keep], self.y1[keep], self.rank[keep], self.op[keep])


def _extent_picture(
    extents: _Extents,
    title: str,
    x_label: str,
    x_range: tuple[float, float],
    ranks: int | None,
    format_x: Callable[[float], str],
    width: float = WIDTH,
) -> Figure:
    ranks = max(ranks or 0, int(extents.rank.max()) + 1 if len(extents.rank) else 1)
    operations = [op for op in ("read", "write") if (extents.op == op).any()] or ["read"]
    y_range = _y_range(extents)
    if x_range[1] <= x_range[0]:
        x_range = (x_range[0], x_range[0] + 1e-6)
    figure = Figure(figsize=(width, 0.9 + 2.9 * len(operations)), layout="constrained")
    panels = figure.subplots(len(operations), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    captions = []
    for axes, op in zip(panels, operations, strict=True):
        plain(axes)
        note = _draw(axes, extents.only(op), ranks, x_range, y_range, format_x, width)
        if note:
            captions.append(f"{op}s: {note}" if len(operations) > 1 else note)
        axes.set_ylabel(f"offset of {op}s", color=INK, fontsize=9)
        margins = [0.01 * (high - low) for low, high in (x_range, y_range)]
        axes.set_xlim(x_range[0] - margins[0], x_range[1] + margins[0])
        axes.set_ylim(y_range[0] - margins[1], y_range[1] + margins[1])
        axes.yaxis.set_major_locator(ByteLocator())
        axes.yaxis.set_major_formatter(ByteFormatter())
    panels[0].set_title(shorten(title, int(9 * width)), loc="left", fontsize=10, color=INK, parse_math=False)
    panels[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    panels[-1].set_xlabel(x_label, color=INK, fontsize=9)
    rank_key(figure, list(panels), ranks)
    if captions:
        captions = [line for caption in captions for line in textwrap.wrap(caption, int(15 * width))]
        figure.supxlabel("\n".join(captions), fontsize=8, color=FAINT, x=0.01, ha="left")
    return figure


def _draw(
    axes: Axes,
    extents: _Extents,
    ranks: int,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    format_x: Callable[[float], str],
    width: float,
) -> str:
    """Draw the extents of one operation; the returned caption is empty if each is drawn by itself."""
    groups = min(ranks, MOST_GROUPS)
    group = extents.rank * groups // ranks
    colours = rank_colours(groups)
    cells = round(CELLS[0] * width / WIDTH), CELLS[1]
    present = rasterise((extents.x0, extents.x1), (extents.y0, extents.y1), group, groups, x_range, y_range, cells)
    shared = present.sum(axis=0) > 1
    hidden = (present & shared).sum(axis=(1, 2)) > present.sum(axis=(1, 2)) / 2
    if len(extents.rank) <= MOST_LINES and not hidden.any():
        order = np.argsort(extents.x0, kind="stable")
        ends = (extents.x0, extents.y0), (extents.x1, extents.y1)
        lines = np.stack([np.column_stack(end) for end in ends], axis=1)[order]
        # With projecting caps, an extent too small to see still is a dot as wide as the line.
        collection = LineCollection(
            list(lines),
            colors=colours[group[order]],
            linewidths=1.6,
            capstyle="projecting",
            rasterized=len(lines) > 500,
        )
        axes.add_collection(collection, autolim=False)
        return ""
    shown = weave(present)
    image = np.zeros((*shown.shape, 4))
    image[shown >= 0] = colours[shown[shown >= 0]]
    # A few small requests that take long would fill as many cells as large ones do.
    y_cell, x_cell = (y_range[1] - y_range[0]) / cells[1], (x_range[1] - x_range[0]) / cells[0]
    thin = (extents.y1 - extents.y0 < THIN * y_cell) & (extents.x1 - extents.x0 > LONG * x_cell)
    thick = _Extents(*(getattr(extents, name)[~thin] for name in ("x0", "x1", "y0", "y1", "rank", "op")))
    filled = rasterise((thick.x0, thick.x1), (thick.y0, thick.y1), group[~thin] * 0, 1, x_range, y_range, cells)[0]
    pale = (shown >= 0) & ~filled
    image[pale, 3] *= PALE_SHARE
    axes.imshow(image, extent=(*x_range, *y_range), origin="lower", aspect="auto", interpolation="none")
    note = (
        f"{format_count(len(extents.rank))} extents, binned into cells of {format_bytes(y_cell)} by {format_x(x_cell)}"
    )
    if shared.any():
        note += "; cells of several ranks show their colours in turn"
    if pale.any():
        note += "; pale cells have only small requests that take long"
    if groups < ranks:
        note += f"; up to {-(-ranks // groups)} neighbouring ranks have one colour"
    return note + "."


def _y_range(extents: _Extents) -> tuple[float, float]:
    if not len(extents.y0):
        return 0.0, 1.0
    low, high = int(extents.y0.min()), max(int(extents.y1.max()), int(extents.y0.min()) + 1)
    # Begin at the start of the file, unless that would squeeze the data into the upper half.
    return (0.0 if low < high / 2 else float(low)), float(high)


def _size_bins(lengths: Ints) -> tuple[Ints, list[str]]:
    """Upper edges of the bins, ascending, and their names. A size belongs to the bin that ends with it."""
    distinct = np.unique(lengths)
    if len(distinct) <= 8:
        return distinct, [exact_bytes(int(size)) for size in distinct]
    powers = np.unique(np.where(lengths > 0, 2 ** np.ceil(np.log2(np.maximum(lengths, 1))), 0).astype(np.int64))
    return powers, [f"up to {format_bytes(int(high))}" if high else "0 B" for high in powers]
