"""The data of a zoomable picture of accesses, for the script in the page (zoom.js)."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_hex

from pdla.report.raster import rasterise, weave
from pdla.report.style import MOST_GROUPS, rank_colours

if TYPE_CHECKING:
    import pandas as pd

MOST_LINES = 60_000  # extents of a file and operation that are listed one by one; more are binned into cells
CELLS = (1000, 240)  # along time, along the file: at least as many as the picture has pixels


def zoom_data(accesses: pd.DataFrame, ranks: int) -> dict[str, Any]:
    """What zoom.js draws: the extents of a file over time, or the cells that they are binned into.

    ``panels`` has an object for reads and one for writes. Its ``data`` is zlib-compressed, in
    base64. For ``extents`` extents it has the columns t_start and t_end (float64, s), offset and
    length (float64, bytes) and group (uint8). For a grid of ``cells`` [columns, rows] it has the
    group that each cell shows (uint8, row by row from the first offset), 255 for none. A group is
    ``ranks`` / ``colours`` neighbouring ranks.
    """
    groups = min(ranks, MOST_GROUPS)
    x = (float(accesses["t_start"].min()), float(accesses["t_end"].max()))
    x = (x[0], max(x[1], x[0] + 1e-6))
    offsets = accesses["offset"].to_numpy(np.int64)
    y = (0, max(int((offsets + accesses["length"].to_numpy(np.int64)).max()), 1))
    panels = []
    for op in ("read", "write"):
        part = accesses[accesses["op"] == op]
        if len(part):
            panels.append({"op": op, **_panel(part, ranks, groups, x, y)})
    colours = [to_hex(colour) for colour in rank_colours(groups)]
    return {"x": x, "y": y, "ranks": ranks, "colours": colours, "panels": panels}


def _panel(
    accesses: pd.DataFrame, ranks: int, groups: int, x: tuple[float, float], y: tuple[int, int]
) -> dict[str, Any]:
    begins, ends = (accesses[name].to_numpy(np.float64) for name in ("t_start", "t_end"))
    offset, length = (accesses[name].to_numpy(np.int64) for name in ("offset", "length"))
    group = accesses["rank"].to_numpy(np.int64) * groups // ranks
    if len(accesses) <= MOST_LINES:
        columns = [column.astype("<f8").tobytes() for column in (begins, ends, offset, length)]
        return {"extents": len(accesses), "data": _packed(b"".join([*columns, group.astype("u1").tobytes()]))}
    present = rasterise((begins, ends), (offset, offset + length), group, groups, x, y, CELLS)
    shown = weave(present)
    return {"cells": CELLS, "data": _packed(np.where(shown < 0, 255, shown).astype("u1").tobytes())}


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()
