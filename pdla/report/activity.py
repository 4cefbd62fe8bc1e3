"""Pictures of a program's activity: bandwidth and request sizes over time, and which rank touches which bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pdla.report.raster import Floats, Ints, spread
from pdla.report.style import FAINT, INK, OP_COLOURS, WIDTH, ByteFormatter, ByteLocator, legend, one_axes, plain
from pdla.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOMENTS = 250  # columns along time
EXTENTS = 250  # columns along a file
MOST_ROWS = 64  # rows of ranks; neighbouring ranks share a row if there are more
FAR = 100  # a scale of bytes is logarithmic if they differ by more than this factor
_SHADES = LinearSegmentedColormap.from_list("bytes", ["#b7cde2", "#3f90da", "#1d3557"])


class Touched(NamedTuple):
    """Bytes moved by each row of ranks in each extent of a file.

    ``moved`` has the shape (rows, extents); a row is ``per_row`` neighbouring ranks, an extent ``width`` bytes from
    ``start`` on.
    """

    moved: Floats
    per_row: int
    start: int
    width: int


def touched(accesses: pd.DataFrame, ranks: int) -> Touched:
    """How many bytes each rank moves of which part of a file (``accesses``); a byte counts as often as it is moved."""
    per_row = -(-ranks // MOST_ROWS)
    offsets = accesses["offset"].to_numpy(np.int64)
    ends = offsets + accesses["length"].to_numpy(np.int64)
    start, stop = (int(offsets.min()), int(ends.max())) if len(offsets) else (0, 1)
    width = max(-(-(stop - start) // EXTENTS), 1)
    rows = accesses["rank"].to_numpy(np.int64) // per_row
    span = (0.0, float(width * EXTENTS))
    moved = spread((offsets - start, ends - start), ends - offsets, rows, -(-ranks // per_row), span, EXTENTS)
    return Touched(np.rint(moved), per_row, start, width)


def extent_picture(accesses: pd.DataFrame, *, ranks: int) -> Figure:
    """Which ranks move which bytes of a file, and how often: a row for each rank, a column for each extent."""
    found = touched(accesses, ranks)
    rows = len(found.moved)
    figure = Figure(figsize=(WIDTH, 1.0 + min(max(0.22 * rows, 0.6), 3.4)), layout="constrained")
    axes = one_axes(figure)
    shown = np.ma.masked_equal(found.moved, 0.0)
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (1.0, 1.0)
    far = high > FAR * low
    used = int(np.flatnonzero(found.moved.any(axis=0)).max(initial=0)) + 1
    span = (found.start, found.start + found.width * EXTENTS, rows * found.per_row, 0)
    image = axes.imshow(
        shown,
        extent=span,
        aspect="auto",
        interpolation="none",
        cmap=_SHADES,
        norm=LogNorm(low, high) if far else Normalize(0, high),
    )
    axes.grid(False)
    axes.set_xlim(found.start, found.start + found.width * used)
    axes.set_ylim(ranks, 0)
    axes.xaxis.set_major_locator(ByteLocator())
    axes.xaxis.set_major_formatter(ByteFormatter())
    axes.set_xlabel("offset in the file", color=INK, fontsize=9)
    axes.set_ylabel("rank", color=INK, fontsize=9)
    if ranks <= 16:
        axes.set_yticks(np.arange(ranks) + 0.5, [str(rank) for rank in range(ranks)])
        axes.tick_params(axis="y", length=0)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ticks = [low, (low * high) ** 0.5, high] if far else [0, high / 2, high]
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=12, ticks=ticks)
    bar.ax.yaxis.set_major_formatter(lambda value, _: format_bytes(value))
    bar.ax.minorticks_off()
    bar.set_label("moved", color=INK, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=9, length=0)
    note = f"Each cell: how many bytes are moved of {format_bytes(found.width)} of the file"
    note += f" by {found.per_row} neighbouring ranks together." if found.per_row > 1 else "."
    figure.supxlabel(note, fontsize=8, color=FAINT, x=0.01, ha="left")
    return figure


class Busy(NamedTuple):
    """The activity of a program from ``start`` to ``stop``: ``rate[op]`` in bytes/s, shape (moments,)."""

    rate: dict[str, Floats]
    start: float
    stop: float


def busy(accesses: pd.DataFrame) -> Busy:
    """Bytes/s of all ranks together; the bytes of each access are spread evenly over the time of its call."""
    begins, ends = (accesses[name].to_numpy(np.float64) for name in ("t_start", "t_end"))
    start, stop = (float(begins.min()), float(ends.max())) if len(begins) else (0.0, 1.0)
    stop = max(stop, start + 1e-6)
    rate = {}
    for op in ("read", "write"):
        of_op = (accesses["op"] == op).to_numpy(np.bool_)
        if of_op.any():
            sizes = accesses["length"].to_numpy(np.int64)[of_op]
            everyone = np.zeros(len(sizes), np.int64)
            moved = spread((begins[of_op], ends[of_op]), sizes, everyone, 1, (start, stop), MOMENTS)[0]
            rate[op] = moved / ((stop - start) / MOMENTS)
    return Busy(rate, start, stop)


def activity_picture(accesses: pd.DataFrame) -> Figure:
    """Bandwidth of all ranks together (bytes/s), and below it the sizes of the requests, over time (s)."""
    found = busy(accesses)
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes in (above, below):
        plain(axes)
    moments = np.linspace(found.start, found.stop, MOMENTS + 1)
    for op, rate in found.rate.items():
        above.stairs(rate, moments, fill=True, color=OP_COLOURS[op], alpha=0.75)
    above.set_ylim(0, None)
    above.yaxis.set_major_formatter(lambda value, _: f"{format_bytes(value)}/s" if value else "0")
    above.yaxis.set_major_locator(ByteLocator())
    above.set_ylabel("all ranks", color=INK, fontsize=9)
    legend(above, [Patch(color=OP_COLOURS[op], label=f"{op}s") for op in found.rate])
    _draw_sizes(below, accesses, found)
    below.set_xlim(found.start, found.stop)
    below.set_xlabel("seconds since MPI_Init", color=INK, fontsize=9)
    below.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    figure.supxlabel(
        f"The bytes of a request are spread evenly over its call; {format_count(len(accesses))} requests, a column for "
        f"each of {MOMENTS} moments. Below, the darker a cell, the more requests begin in it.",
        fontsize=8, color=FAINT, x=0.01, ha="left",
    )  # fmt: skip
    return figure


def _draw_sizes(axes: Axes, accesses: pd.DataFrame, found: Busy) -> None:
    """How many requests of which size begin when; a cell reaches up to a power of two, which belongs to it."""
    sizes = np.maximum(accesses["length"].to_numpy(np.int64), 1)
    powers: Ints = np.ceil(np.log2(sizes)).astype(np.int64) if len(sizes) else np.zeros(0, np.int64)
    low, high = (int(powers.min()), int(powers.max())) if len(powers) else (0, 0)
    moment = np.clip((accesses["t_start"].to_numpy(np.float64) - found.start) / (found.stop - found.start), 0, 1)
    column = np.minimum((moment * MOMENTS).astype(np.int64), MOMENTS - 1)
    counts = np.bincount((powers - low) * MOMENTS + column, minlength=(high - low + 1) * MOMENTS)
    shown = np.ma.masked_equal(counts.reshape(high - low + 1, MOMENTS), 0)
    norm = LogNorm(1, max(int(counts.max(initial=1)), 2))
    span = (found.start, found.stop, low - 1, high)
    axes.imshow(shown, extent=span, origin="lower", aspect="auto", interpolation="none", cmap=_SHADES, norm=norm)
    axes.set_ylim(low - 1.5, high + 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: format_bytes(2**value) if value >= 0 else "")
    axes.set_ylabel("size of requests", color=INK, fontsize=9)
