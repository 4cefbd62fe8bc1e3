"""A picture of a signature as loops: each row shows what one iteration of the row above consists of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from pdla.model import Loop, Signature
from pdla.report.style import FAINT, INK, OP_COLOURS, PALE, WIDTH, exact_bytes, rank_colours
from pdla.units import counted, format_count

MOST_SHOWN = 16  # iterations of a loop that are drawn; of longer loops the first ones
LEFT = 0.3  # the share of the width for the words
GAP = 0.002


class Level(NamedTuple):
    """A loop of a signature: ``count`` boxes of ``span`` bytes, ``stride`` apart.

    ``order`` is its place in the order of access, 1 for the outermost loop. 0: the loop runs over
    the ranks, ``step`` ranks from one iteration to the next.
    """

    stride: int
    count: int  # type: ignore[assignment]  # hides the tuple's own method of this name, which nobody needs here
    span: int
    order: int
    step: int = 0

    @property
    def extent(self) -> int:
        """Bytes from the first to the last byte of all iterations."""
        return self.stride * (self.count - 1) + self.span


def levels(signature: Signature) -> list[Level]:
    """The loops of a signature that move through the file, widest first; for growing loops those of their means."""
    nest = signature.nest.evened()
    moving = [(Loop(abs(loop.stride), loop.count), depth) for depth, loop in enumerate(nest.loops) if loop.stride]
    found: list[Level] = []
    span = nest.length
    for (stride, count), depth in sorted(moving, key=lambda one: (one[0].stride, one[0].stride * one[0].count)):
        if depth < signature.rank_loops:
            step = math.prod(loop.count for loop in nest.loops[depth + 1 : signature.rank_loops])
            found.append(Level(stride, count, span, 0, step))
        else:
            found.append(Level(stride, count, span, depth - signature.rank_loops + 1))
        span = found[-1].extent
    return found[::-1]


def loops_picture(signature: Signature) -> Figure:
    """The loops of a signature, to the scale of the file, one row below the other (see the module).

    Boxes are iterations. Those of a loop over the ranks have the ranks' colours. The boxes of the
    last row are requests.
    """
    rows = levels(signature) or [Level(0, 1, signature.nest.evened().length, 1)]
    figure = Figure(figsize=(WIDTH, 0.35 + 0.62 * len(rows)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows) - 0.2, -0.35)
    times = sum(row.order > 0 for row in rows)
    for number, row in enumerate(rows):
        boxes = _boxes(row)
        colours = [OP_COLOURS[signature.op]] * len(boxes)
        if not row.order:
            colours = rank_colours(len(signature.ranks))[:: row.step][: len(boxes)].tolist()
        places = [Rectangle((left, number), width, 0.34) for left, width in boxes]
        axes.add_collection(PatchCollection(places, facecolors=colours, linewidths=0))
        if row.count > len(boxes):
            axes.text(1.0, number + 0.17, "...", ha="right", va="center", fontsize=11, color=FAINT)
        if number + 1 < len(rows):
            (left, width), below = boxes[0], number + 1
            corners = [(left, number + 0.34), (left + width, number + 0.34), (1.0, below), (LEFT, below)]
            axes.add_patch(Polygon(corners, color=PALE, alpha=0.45, linewidth=0, zorder=0))
        _words(axes, number, row, _what(row, rows), times)
    return figure


def _boxes(row: Level) -> list[tuple[float, float]]:
    """The drawn iterations of a loop: left end and width, as shares of the width."""
    shown = min(row.count, MOST_SHOWN)
    room = 0.97 if row.count > shown else 1.0
    scale = (room - LEFT) / max(row.stride * (shown - 1) + row.span, 1)
    # Boxes that touch are drawn with a gap, and no box is too thin to see.
    width = max(min(row.span * scale, row.stride * scale - GAP if shown > 1 else 1.0), GAP)
    return [(LEFT + i * row.stride * scale, width) for i in range(shown)]


def _what(row: Level, rows: Sequence[Level]) -> str:
    """How many boxes a row has, and what they are."""
    if row.order:
        return counted(row.count, "request" if row is rows[-1] else "step")
    if sum(not other.order for other in rows) > 1:
        return f"{format_count(row.count)} times along the ranks"
    return counted(row.count, "rank")


def _words(axes: Axes, number: int, row: Level, what: str, times: int) -> None:
    apart = f", {exact_bytes(row.stride)} apart" if row.count > 1 else ""
    axes.text(0.0, number + 0.08, f"{what}{apart}", va="center", fontsize=9, color=INK)
    order = f", loop {row.order} in time" if row.order and times > 1 else ""
    axes.text(0.0, number + 0.32, f"{exact_bytes(row.span)} each{order}", va="center", fontsize=8, color=FAINT)
