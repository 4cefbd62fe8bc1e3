"""Pictures of what a program did and of what a plan would do, as matplotlib figures (object API: nothing global)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import Formatter, Locator, MaxNLocator

from pdla.accessmap import AccessMap
from pdla.layouts.striping import Piece, locate
from pdla.model import Layout
from pdla.report.text import candidate_name, shorten
from pdla.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from pdla.model import Cluster, PatternPlan

# Ten colours that remain distinct for colour-blind readers, on white and on dark (Petroff 2021, arXiv:2107.02270).
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
# Viridis without its last, yellow part, which a white page swallows.
_SEQUENCE = LinearSegmentedColormap.from_list("ranks", ["#482878", "#3e4989", "#26828e", "#35b779", "#b5c918"])
INK, FAINT, PALE = "#39424e", "#7d8895", "#d3d9e0"  # text; secondary text; lines of the grid
OP_COLOURS = {"read": "#5b7c99", "write": "#c08a4d"}
COST_COLOURS = {"connect": "#94a4a2", "network": "#832db6", "startup": "#ffa90e", "transfer": "#3f90da"}

WIDTH = 10.0  # inches
MOST_LINES = 20_000  # extents drawn one by one; more are binned
CLIPPED = 4.0  # costs drawn in full, in units of the original's or the chosen one's
MOST_GROUPS = 64  # colours that a raster tells apart
CELLS = (400, 160)  # of a raster as wide as WIDTH: along x, along y
SHOWN_STRIPS = 12  # of every server, in a picture of a layout

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def rank_colours(ranks: int) -> npt.NDArray[np.float64]:
    """RGBA of every rank, shape (ranks, 4): a qualitative palette up to 10 ranks, a sequential one beyond."""
    if ranks <= len(PALETTE):
        return np.array([to_rgba(colour) for colour in PALETTE[:ranks]]).reshape(-1, 4)
    return np.asarray(_SEQUENCE(np.linspace(0, 1, ranks)))


def access_picture(
    accesses: pd.DataFrame,
    path: str,
    *,
    ranks: int | None = None,
    seconds: float | None = None,
    title: str | None = None,
    width: float = WIDTH,
) -> Figure:
    """Where in the file each rank was, when: offset (bytes) over time (s), reads and writes apart.

    An extent is a line from (t_start, offset) to (t_end, offset + length). More than MOST_LINES extents, or extents of
    several ranks too close to draw side by side, are binned; the caption says into what.

    Args:
        accesses: rows of one file (ACCESS_COLUMNS).
        path: the file, for the title.
        ranks: of the whole job, so that pictures of one job agree on colours (default: up to the highest seen).
        seconds: how long the time axis is at least, so that two runs can be compared by eye.
        title: instead of the path.
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
    """The pattern's shape regardless of time: offset (bytes) over the number of the request within its rank."""
    index = accesses.groupby(["op", "rank"], observed=True).cumcount()
    span = (0.0, float(index.max() + 1) if len(index) else 1.0)
    extents = _Extents.of(accesses, index, index + 1)
    return _extent_picture(extents, path, "request of its rank", span, ranks, lambda count: f"{count:,.3g} requests")


def size_histogram(accesses: pd.DataFrame) -> Figure:
    """How many requests have which size: a bar per size where there are few, else per power of two."""
    operations = [op for op in ("read", "write") if (accesses["op"] == op).any()]
    lengths = {op: accesses.loc[accesses["op"] == op, "length"].to_numpy(np.int64) for op in operations}
    sizes, labels = _size_bins(accesses["length"].to_numpy(np.int64))
    figure = Figure(figsize=(WIDTH, 0.8 + 0.28 * max(len(sizes) * len(operations), 1)), layout="constrained")
    axes = _axes(figure)
    height = 0.8 / max(len(operations), 1)
    for number, op in enumerate(operations):
        which = np.searchsorted(sizes, lengths[op], side="right") - 1
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
        _legend(axes, [Patch(color=OP_COLOURS[op], label=f"{op}s") for op in operations])
    return figure


def cost_picture(pattern: PatternPlan) -> Figure:
    """What each candidate of a pattern is predicted to cost (s), split as in the model; the chosen one is marked."""
    candidates = pattern.candidates
    figure = Figure(figsize=(WIDTH, 0.95 + 0.34 * len(candidates)), layout="constrained")
    axes = _axes(figure)
    # What costs many times more than leaving things alone runs off the scale: the others are what one wants to compare.
    shown = CLIPPED * max(candidates[0].cost.total, pattern.choice.cost.total, 1e-9)
    shown = min(shown, max(candidate.cost.total for candidate in candidates) or 1e-9)
    left = np.zeros(len(candidates))
    for part, colour in COST_COLOURS.items():
        seconds = np.array([getattr(candidate.cost, part) for candidate in candidates])
        visible = np.maximum(np.minimum(seconds, shown - left), 0)
        axes.barh(np.arange(len(candidates)), visible, left=np.minimum(left, shown), height=0.62, color=colour)
        left += seconds
    for number, total in enumerate(left.tolist()):
        chosen, off = number == pattern.chosen, total > shown * (1 + 1e-9)
        axes.annotate(
            format_seconds(total) + (", off the scale" if off else "") + ("   chosen" if chosen else ""),
            (min(total, shown), number),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
            weight="bold" if chosen else "normal",
        )
    axes.set_yticks(np.arange(len(candidates)), [candidate_name(candidate) for candidate in candidates])
    axes.get_yticklabels()[pattern.chosen].set_fontweight("bold")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * shown)
    axes.set_xlabel("predicted seconds", color=INK, fontsize=9)
    axes.grid(axis="y", visible=False)
    names = {"startup": "start-up"}
    _legend(axes, [Patch(color=colour, label=names.get(part, part)) for part, colour in COST_COLOURS.items()])
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

    A line from (x[0], y[0]) to (x[1], y[1]) covers y half-open. Each fills at least one cell, so nothing is dropped; a
    cell that no line touches stays empty, so a gap of two cells or more is always seen.
    """
    columns, rows = cells
    width = (x_range[1] - x_range[0]) / columns or 1.0
    height = (y_range[1] - y_range[0]) / rows or 1.0
    first = np.clip(((y[0] - y_range[0]) / height).astype(np.int64), 0, rows - 1)
    last = np.clip(np.ceil((y[1] - y_range[0]) / height).astype(np.int64) - 1, first, rows - 1)
    left = np.clip(((x[0] - x_range[0]) / width).astype(np.int64), 0, columns - 1)
    right = np.clip(np.ceil((x[1] - x_range[0]) / width).astype(np.int64) - 1, left, columns - 1)

    # Most extents of a long trace fall on the same few cells: keep each such line once.
    size = max(columns, rows)
    key = ((group * size + first) * size + last) * size * size + left * size + right
    _, keep = np.unique(key, return_index=True)
    first, last, left, right, group = first[keep], last[keep], left[keep], right[keep], group[keep]

    # Each line is a run of columns in every row that it crosses; runs add up as +1 at their start, -1 behind their end.
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
    return np.cumsum(edges, axis=2)[:, :, :-1] > 0


def weave(present: npt.NDArray[np.bool_]) -> Ints:
    """The group that each cell shows, -1 for none: where several share a cell they take turns from cell to cell.

    A group that is present anywhere is shown somewhere, as long as there are more cells than groups.
    """
    groups, rows, columns = present.shape
    count = present.sum(axis=0)
    # By turns of 2 x 2 cells: single ones would melt into a colour that is no rank's.
    turn = (np.arange(rows)[:, None] // 2 + np.arange(columns)[None, :] // 2) % np.maximum(count, 1)
    order = np.cumsum(present, axis=0) - 1
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
        _style(axes)
        note = _draw(axes, extents.only(op), ranks, x_range, y_range, format_x, width)
        if note:
            captions.append(f"{op}s: {note}" if len(operations) > 1 else note)
        axes.set_ylabel(f"offset of {op}s", color=INK, fontsize=9)
        margins = [0.01 * (high - low) for low, high in (x_range, y_range)]
        axes.set_xlim(x_range[0] - margins[0], x_range[1] + margins[0])
        axes.set_ylim(y_range[0] - margins[1], y_range[1] + margins[1])
        axes.yaxis.set_major_locator(_ByteLocator())
        axes.yaxis.set_major_formatter(_ByteFormatter())
    panels[0].set_title(shorten(title, int(9 * width)), loc="left", fontsize=10, color=INK, parse_math=False)
    panels[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    panels[-1].set_xlabel(x_label, color=INK, fontsize=9)
    _rank_key(figure, list(panels), ranks)
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
    """Draw the extents of one operation; the returned caption is empty where each is drawn by itself."""
    groups = min(ranks, MOST_GROUPS if ranks > len(PALETTE) else ranks)
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
        # Projecting caps: an extent of no visible size still is a dot as wide as the line.
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
    axes.imshow(image, extent=(*x_range, *y_range), origin="lower", aspect="auto", interpolation="none")
    y_cell, x_cell = (y_range[1] - y_range[0]) / cells[1], (x_range[1] - x_range[0]) / cells[0]
    note = (
        f"{format_count(len(extents.rank))} extents, binned into cells of {format_bytes(y_cell)} by {format_x(x_cell)}"
    )
    if shared.any():
        note += "; where ranks share a cell their colours take turns"
    if groups < ranks:
        note += f"; up to {-(-ranks // groups)} neighbouring ranks have one colour"
    return note + "."


def _y_range(extents: _Extents) -> tuple[float, float]:
    if not len(extents.y0):
        return 0.0, 1.0
    low, high = int(extents.y0.min()), max(int(extents.y1.max()), int(extents.y0.min()) + 1)
    # Start at the beginning of the file unless that would squeeze the data into the upper half.
    return (0.0 if low < high / 2 else float(low)), float(high)


def _size_bins(lengths: Ints) -> tuple[Ints, list[str]]:
    """Lower edges of the bins, ascending, and their names."""
    distinct = np.unique(lengths)
    if len(distinct) <= 8:
        return distinct, [_exact_bytes(int(size)) for size in distinct]
    powers = np.unique(np.where(lengths > 0, 2 ** np.floor(np.log2(np.maximum(lengths, 1))), 0).astype(np.int64))
    return powers, [f"{format_bytes(int(low))} - {format_bytes(int(2 * low))}" if low else "0 B" for low in powers]


def _exact_bytes(size: int) -> str:
    text = format_bytes(size)
    return text if _is_exact(size) else f"{format_count(size)} B"


def _is_exact(size: float) -> bool:
    """Whether three digits and a unit say this size exactly."""
    unit = next((unit for unit in (1 << 40, 1 << 30, 1 << 20, 1 << 10) if size >= unit), 1)
    return float(f"{size / unit:.3g}") * unit == size


# --- axes ------------------------------------------------------------------------------------------------------------


class _ByteLocator(Locator):
    """Ticks at multiples of a power of two, about six of them."""

    def __call__(self) -> Sequence[float]:
        assert self.axis is not None
        low, high = self.axis.get_view_interval()
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        step = 2.0 ** max(math.ceil(math.log2(max(vmax - vmin, 1.0) / 6)), 0)
        return [tick * step for tick in range(math.ceil(vmin / step), math.floor(vmax / step) + 1)]


class _ByteFormatter(Formatter):
    """Binary units; where three digits would not tell ticks apart, all digits in the largest unit that divides them."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return format_bytes(x)

    def format_ticks(self, values: Iterable[float]) -> list[str]:
        ticks = list(values)
        if all(_is_exact(tick) for tick in ticks):
            return [format_bytes(tick) for tick in ticks]
        names = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
        name, unit = next(pair for pair in names if all(tick % pair[1] == 0 for tick in ticks) or pair[1] == 1)
        return [f"{tick / unit:,.0f} {name}" for tick in ticks]


def _axes(figure: Figure) -> Axes:
    axes = figure.subplots()
    _style(axes)
    return axes


def _style(axes: Axes) -> None:
    axes.patch.set_alpha(0.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    axes.tick_params(colors=INK, labelsize=9, length=3, color=PALE, labelcolor=INK)
    axes.grid(True, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(axes: Axes, handles: list[Patch]) -> None:
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), frameon=False, fontsize=9,
        labelcolor=INK, handlelength=0.9, handleheight=0.9, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def _rank_key(figure: Figure, panels: list[Axes], ranks: int) -> None:
    if ranks <= len(PALETTE):
        names = ["rank 0", *map(str, range(1, ranks))]
        _legend(panels[0], [Patch(color=colour, label=name) for colour, name in zip(PALETTE, names, strict=False)])
        return
    scale = ScalarMappable(Normalize(0, ranks - 1), _SEQUENCE)
    bar = figure.colorbar(scale, ax=panels, pad=0.01, aspect=40, label="rank")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=9, length=0)
    bar.ax.yaxis.label.set(color=INK, fontsize=9)
    bar.ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def layout_picture(pattern: PatternPlan, cluster: Cluster) -> Figure:
    """Which server holds what of a pattern: the first strips of every server, coloured by the rank that uses the bytes.

    Above the original as ``cluster`` stripes it, below the chosen layout, if any. Bytes outside the pattern are pale.
    """
    signature = pattern.signature
    replica = AccessMap.from_signature(signature)
    section = AccessMap.section(signature)
    home = Layout("", cluster.home_servers, 1, (cluster.home_strip,) * cluster.home_servers, 1 << 62)
    start = replica.extent[0] // sum(home.strips) * sum(home.strips)
    panels = [(f"original: {cluster.home_servers} servers, strips of {format_bytes(cluster.home_strip)}", home)]
    if pattern.choice.layout is not None:
        panels.append((f"replica: {candidate_name(pattern.choice)}", pattern.choice.layout))
    figure = Figure(figsize=(WIDTH, sum(0.75 + 0.22 * layout.servers for _, layout in panels)), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[2 + layout.servers for _, layout in panels])[
        :, 0
    ]
    ranks = len(signature.ranks)
    colours = rank_colours(ranks)
    for axes, (title, layout), first in zip(grid, panels, (start, 0), strict=False):
        _style(axes)
        strip = max(layout.strips)
        stop = first + layout.servers * SHOWN_STRIPS * strip
        if layout is home:
            offsets, lengths, held = replica.tiles(first, stop)
            pieces = zip((offsets - first).tolist(), lengths.tolist(), (held // section).tolist(), strict=True)
        else:
            within = SHOWN_STRIPS * strip * len(layout.strips) // section + 1
            starts = np.arange(0, replica.size, section)[: within * layout.groups]
            pieces = zip(
                starts.tolist(), np.minimum(section, replica.size - starts).tolist(), range(len(starts)), strict=True
            )
        boxes, fills = [], []
        for logical, length, position in pieces:
            for piece in _shown_pieces(layout, logical, length, SHOWN_STRIPS * strip):
                boxes.append(Rectangle((piece.offset, piece.component - 0.38), piece.length, 0.76))
                fills.append(colours[min(position, ranks - 1)])
        for server in range(layout.servers):
            axes.add_patch(Rectangle((0, server - 0.38), SHOWN_STRIPS * strip, 0.76, color=PALE, linewidth=0))
        axes.add_collection(PatchCollection(boxes, facecolors=fills, linewidths=0, rasterized=len(boxes) > 500))
        axes.set_xlim(0, SHOWN_STRIPS * strip)
        axes.set_ylim(layout.servers - 0.5, -0.5)
        axes.set_yticks(range(layout.servers), [f"server {server}" for server in range(layout.servers)])
        axes.xaxis.set_major_locator(_ByteLocator())
        axes.xaxis.set_major_formatter(_ByteFormatter())
        axes.grid(False)
        axes.set_title(title, loc="left", fontsize=10, color=INK, parse_math=False)
    _rank_key(figure, list(grid), ranks)
    grid[-1].set_xlabel("first bytes of each server", color=INK, fontsize=9)
    return figure


def _shown_pieces(layout: Layout, start: int, length: int, limit: int) -> Iterator[Piece]:
    """The pieces of [start, start + length) in the first ``limit`` bytes of their component."""
    # A whole section may be gigabytes; its first pieces are those in sight, and offsets of one component only grow.
    for piece in locate(layout, start, start + min(length, limit * layout.servers)):
        if piece.offset < limit:
            yield piece._replace(length=min(piece.length, limit - piece.offset))
