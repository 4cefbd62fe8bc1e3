"""The style of pictures: colours, axes, the key of the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import Formatter, Locator, MaxNLocator

from pdla.units import format_bytes, format_count

# Ten colours that remain distinct for colour-blind readers, on white and on dark (Petroff 2021, arXiv:2107.02270).
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
# Viridis without its last, yellow part, which is hardly visible on a white page.
_SEQUENCE = LinearSegmentedColormap.from_list("ranks", ["#482878", "#3e4989", "#26828e", "#35b779", "#b5c918"])
INK, FAINT, PALE = "#39424e", "#7d8895", "#d3d9e0"  # text; secondary text; lines of the grid
OP_COLOURS = {"read": "#5b7c99", "write": "#c08a4d"}

WIDTH = 10.0  # inches
CLIPPED = 4.0  # longest bar drawn in full, in units of the one that others are compared with
MOST_GROUPS = 64  # colours that a raster distinguishes; if there are more ranks, neighbours share a colour


def rank_colours(ranks: int) -> npt.NDArray[np.float64]:
    """RGBA of every rank, shape (ranks, 4): a qualitative palette up to 10 ranks, a sequential one beyond."""
    if ranks <= len(PALETTE):
        return np.array([to_rgba(colour) for colour in PALETTE[:ranks]]).reshape(-1, 4)
    return np.asarray(_SEQUENCE(np.linspace(0, 1, ranks)))


def exact_bytes(size: int) -> str:
    """A size with all its digits, if three digits are not exact."""
    text = format_bytes(size)
    return text if _is_exact(size) else f"{format_count(size)} B"


def _is_exact(size: float) -> bool:
    """Whether three digits and a unit give this size exactly."""
    unit = next((unit for unit in (1 << 40, 1 << 30, 1 << 20, 1 << 10) if size >= unit), 1)
    return float(f"{size / unit:.3g}") * unit == size


class ByteLocator(Locator):
    """Ticks at multiples of a power of two, about six of them."""

    def __call__(self) -> Sequence[float]:
        """The ticks of the present view."""
        assert self.axis is not None
        low, high = self.axis.get_view_interval()
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """The ticks from ``vmin`` to ``vmax``."""
        step = 2.0 ** max(math.ceil(math.log2(max(vmax - vmin, 1.0) / 6)), 0)
        return [tick * step for tick in range(math.ceil(vmin / step), math.floor(vmax / step) + 1)]


class ByteFormatter(Formatter):
    """Binary units. If three digits do not distinguish the ticks: all digits, in the largest unit that divides them."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The text for one number."""
        return format_bytes(x)

    def format_ticks(self, values: Iterable[float]) -> list[str]:
        """The texts for the ticks of an axis, all in one form."""
        ticks = list(values)
        if all(_is_exact(tick) for tick in ticks):
            return [format_bytes(tick) for tick in ticks]
        names = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
        name, unit = next(pair for pair in names if all(tick % pair[1] == 0 for tick in ticks) or pair[1] == 1)
        return [f"{tick / unit:,.0f} {name}" for tick in ticks]


def one_axes(figure: Figure) -> Axes:
    """The only axes of a figure."""
    axes = figure.subplots()
    plain(axes)
    return axes


def plain(axes: Axes) -> None:
    """Thin lines, no frame, small figures."""
    axes.patch.set_alpha(0.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    axes.tick_params(colors=INK, labelsize=9, length=3, color=PALE, labelcolor=INK)
    axes.grid(True, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)


def legend(axes: Axes, handles: list[Patch]) -> None:
    """A row of names above the axes."""
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), frameon=False, fontsize=9,
        labelcolor=INK, handlelength=0.9, handleheight=0.9, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def rank_key(figure: Figure, panels: list[Axes], ranks: int) -> None:
    """Which colour is which rank: names, or a scale if there are many."""
    if ranks <= len(PALETTE):
        names = ["rank 0", *map(str, range(1, ranks))]
        legend(panels[0], [Patch(color=colour, label=name) for colour, name in zip(PALETTE, names, strict=False)])
        return
    scale = ScalarMappable(Normalize(0, ranks - 1), _SEQUENCE)
    bar = figure.colorbar(scale, ax=panels, pad=0.01, aspect=40, label="rank")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=9, length=0)
    bar.ax.yaxis.label.set(color=INK, fontsize=9)
    bar.ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
