"""The figures of S4D-Cache's paper, from the rows of benchmarks/ssd_cache.py, beside its text and the simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import INDEPENDENT
from benchmarks.ssd_cache_runs import SECOND, WRITTEN

Rows = Mapping[str, Mapping[str, Any]]
OPS = {"write": WRITTEN, "read": SECOND}


class Figure(NamedTuple):
    """One of the paper's: what it varies, the case for each value, and what its text says of writes and of reads.

    That is how many times the original S4D-Cache is: of some values, or the least and the most of all.
    """

    name: str
    varies: str
    cases: Mapping[str, str]
    write: Mapping[str, float] | tuple[float, float] = {}
    read: Mapping[str, float] | tuple[float, float] = {}


SIZES = ("8 KiB", "16 KiB", "32 KiB", "64 KiB", "4 MiB")
USUAL = "ten IOR, 16 KiB, 4 ranks, room for 20 %"
FIGURES = (
    Figure(
        "Fig. 6", "bytes of a request", {size: f"ten IOR, {size}, 4 ranks, room for 20 %" for size in SIZES},
        dict(zip(SIZES, (1.513, 1.491, 1.392, 1.325, 1.0), strict=True)), {"8 KiB": 2.841},
    ),
    Figure(
        "Fig. 7", "ranks (the paper: 16 to 128)",
        {str(ranks): f"ten IOR, 16 KiB, {ranks} ranks, room for 20 %" for ranks in (4, 8, 16, 32)},
        (1.354, 1.495), (1.354, 1.495),
    ),
    Figure(
        "Table IV", "room, of the data",
        {f"{share} %": f"ten IOR, 16 KiB, 4 ranks, room for {share} %" for share in (10, 20, 30)},
        {"10 %": 1.195, "20 %": 1.484, "30 %": 1.566},
    ),
    Figure(
        "Fig. 8", "SSD servers (the paper: 1 to 6)", {"1": f"{USUAL}, 1 SSD", "2": USUAL}, (1.207, 1.601),
    ),
    Figure(
        "Fig. 9", "HPIO: bytes between regions",
        {gap: f"HPIO, gaps of {gap}" for gap in ("0 B", "1 KiB", "2 KiB", "4 KiB")},
        dict(zip(("0 B", "1 KiB", "2 KiB", "4 KiB"), (1.18, 1.28, 1.30, 1.33), strict=True)),
        (1.18, 1.33),
    ),
    Figure(
        "Fig. 10", "MPI-Tile-IO: ranks (the paper: 100 to 400)",
        {str(ranks): f"MPI-Tile-IO, {ranks} ranks" for ranks in (4, 8, 16)}, (1.21, 1.33), (1.18, 1.31),
    ),
    Figure(
        "Fig. 11", "bytes of a request; nothing has room",
        {size: f"IOR, {size}, random, room for 0 %" for size in SIZES[:3]}, (1.0, 1.0),
    ),
)  # fmt: skip


def gains(rows: Rows, storage: str, case: str, op: str) -> tuple[float | None, float | None]:
    """How many times the original S4D-Cache is: measured, and simulated. None: there is no row."""
    prefix, cached = f"ssd cache: {storage}: {case}, {op}: ", OPS[op]
    measured = rows.get(prefix + cached)
    simulated = [rows.get(f"{prefix}{one}, x simulated") for one in (cached, INDEPENDENT)]
    said = simulated[0]["baseline"] / simulated[1]["baseline"] if simulated[0] and simulated[1] else None
    return measured["ratio"] if measured else None, said


def draw(file: Path) -> list[Path]:
    """A picture for each storage of which ``file`` has rows, beside it: a line of panels for each of the figures."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows: Rows = {one["name"]: one for one in json.loads(file.read_text())}
    made = []
    for storage in ("disks", "seeking", "cephfs"):
        found = [one for one in FIGURES if any(gains(rows, storage, case, "write")[0] for case in one.cases.values())]
        if not found:
            continue
        picture, panels = pyplot.subplots(
            len(found), 2, figsize=(8, 1.9 * len(found)), squeeze=False, layout="constrained"
        )
        for line, figure in zip(panels, found, strict=True):
            for panel, op in zip(line, OPS, strict=True):
                _draw_panel(panel, figure, op, [gains(rows, storage, case, op) for case in figure.cases.values()])
        handles, labels = panels[0][0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
        made.append(file.parent / f"bench-ssd-cache-{storage}.png")
        picture.savefig(made[-1], dpi=110)
        pyplot.close(picture)
    return made


def _draw_panel(panel: Any, figure: Figure, op: str, found: Sequence[tuple[float | None, float | None]]) -> None:
    labels, said = list(figure.cases), figure.write if op == "write" else figure.read
    stated = said if isinstance(said, Mapping) else {}
    series = {
        "measured": [one for one, _ in found],
        "simulated": [one for _, one in found],
        "the paper": [stated.get(label) for label in labels],
    }
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [place + (number - 1) * width for place in range(len(labels))]
        bars = panel.bar(places, [value or 0.0 for value in values], width, label=name, color=f"C{number}")
        shown = ["" if value is None else f"{value:.2g}" for value in values]
        panel.bar_label(bars, shown, fontsize=6)
    if isinstance(said, tuple):
        panel.axhspan(said[0], max(said[1], said[0] + 0.01), color="C2", alpha=0.3, linewidth=0)
    panel.axhline(1.0, color="black", linewidth=0.7)
    panel.margins(y=0.15)
    panel.set_xticks(range(len(labels)), labels, fontsize=7)
    panel.tick_params(axis="y", labelsize=7)
    panel.set_xlabel(figure.varies, fontsize=7)
    panel.set_ylabel("x original", fontsize=7)
    panel.set_title(f"{figure.name}: {op}", fontsize=8)
