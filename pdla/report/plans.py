"""Pictures of what a plan compared and chose, as matplotlib figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pdla.accessmap import AccessMap
from pdla.layouts.striping import Piece, locate
from pdla.model import Layout
from pdla.report.style import (
    CLIPPED,
    INK,
    PALE,
    WIDTH,
    ByteFormatter,
    ByteLocator,
    legend,
    one_axes,
    plain,
    rank_colours,
    rank_key,
)
from pdla.report.text import candidate_name
from pdla.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from pdla.model import Cluster, PatternPlan

COST_COLOURS = {"connect": "#94a4a2", "network": "#832db6", "startup": "#ffa90e", "transfer": "#3f90da"}
SHOWN_STRIPS = 12  # strips of every server in a picture of a layout


def cost_picture(pattern: PatternPlan) -> Figure:
    """The predicted cost (s) of each candidate of a pattern, split as in the model; the chosen one is marked."""
    candidates = pattern.candidates
    figure = Figure(figsize=(WIDTH, 0.95 + 0.34 * len(candidates)), layout="constrained")
    axes = one_axes(figure)
    # A cost many times that of the original runs off the scale: the other costs are those that one
    # wants to compare.
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
    legend(axes, [Patch(color=colour, label=names.get(part, part)) for part, colour in COST_COLOURS.items()])
    return figure


def layout_picture(pattern: PatternPlan, cluster: Cluster) -> Figure:
    """Which server holds what of a pattern: the first strips of every server, coloured by the rank that uses the bytes.

    The upper picture is the original as ``cluster`` stripes it, the lower one the chosen layout, if
    any. Bytes outside the pattern are pale.
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
        plain(axes)
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
        axes.xaxis.set_major_locator(ByteLocator())
        axes.xaxis.set_major_formatter(ByteFormatter())
        axes.grid(False)
        axes.set_title(title, loc="left", fontsize=10, color=INK, parse_math=False)
    rank_key(figure, list(grid), ranks)
    grid[-1].set_xlabel("first bytes of each server", color=INK, fontsize=9)
    return figure


def _shown_pieces(layout: Layout, start: int, length: int, limit: int) -> Iterator[Piece]:
    """The pieces of [start, start + length) in the first ``limit`` bytes of their component."""
    # A whole section may be gigabytes. Its first pieces are those in sight, and the offsets of one
    # component only grow.
    for piece in locate(layout, start, start + min(length, limit * layout.servers)):
        if piece.offset < limit:
            yield piece._replace(length=min(piece.length, limit - piece.offset))
