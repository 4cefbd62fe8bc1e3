"""The pictures of the documentation: SVG files in ``_static``, written by ``make docs`` or ``python docs/pictures.py``.

They are part of the repository, so that the pages have them on GitHub, too. Their colours follow the
reader's light or dark mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from itertools import pairwise
from math import ceil, log2, log10
from pathlib import Path

HERE = Path(__file__).parent / "_static"
RANKS = 4
STYLE = """\
:root { --paper: #ffffff; --box: #f1f1f1; --ink: #1b1b1b; --pale: #5a5a5a;
  --a: #bcdcf5; --b: #ffd9ad; --c: #c5e8c0; --d: #e5cff0; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #1a1c1e; --box: #303438; --ink: #ececec; --pale: #b4b4b4;
    --a: #1f567f; --b: #7f4c10; --c: #2c642d; --d: #613a77; }
}
text { fill: var(--ink); text-anchor: middle }
.pale { fill: var(--pale); font-size: 13px }
.name { font-weight: bold }
.left { text-anchor: start }
rect { stroke: var(--pale); fill: var(--box) }
.paper { fill: var(--paper); stroke: none }
.a { fill: var(--a) } .b { fill: var(--b) } .c { fill: var(--c) } .d { fill: var(--d) }
line { stroke: var(--pale); stroke-width: 1.4 }
.tip { fill: var(--pale) }
"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>'
)


def picture(title: str, description: str, width: int, height: int, parts: Iterable[str], style: str = STYLE) -> str:
    """An SVG file of ``width`` x ``height`` units. The description is for those who cannot see it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
            'aria-labelledby="title description" font-family="sans-serif" font-size="15">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            f"<style>\n{style}</style>",
            TIP,
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """A line of text, centred on ``x`` unless ``kind`` has ``left``."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, words: str = "", kind: str = "", fill: str = "") -> str:
    """A rectangle with a line of text in its middle."""
    frame = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{fill}"/>'
    return frame + (text(x + width / 2, y + height / 2 + 5, words, kind) if words else "")


def line(x1: float, y1: float, x2: float, y2: float, tip: bool = True) -> str:
    """A line, with the tip of an arrow at its end."""
    end = ' marker-end="url(#tip)"' if tip else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{end}/>'


def colour(rank: int) -> str:
    """The class of the colour of a rank."""
    return "abcd"[rank]


def flow() -> str:
    """From a recorded run to a redirected one."""
    steps = {
        "trace": ("records a run", "run.h5"),
        "analyze": ("finds patterns", "signatures"),
        "plan": ("chooses layouts", "plan.json"),
        "replicate": ("copies, verifies", "replicas"),
        "run": ("reads replicas", "same bytes"),
    }
    parts = []
    for number, (verb, (does, gives)) in enumerate(steps.items()):
        x = 12 + 126 * number
        parts += [
            box(x, 20, 102, 46, verb, "name", colour(1) if verb in ("trace", "run") else colour(0)),
            text(x + 51, 88, does, "pale"),
            line(x + 51, 98, x + 51, 122),
            text(x + 51, 142, gives),
        ]
        if number:
            parts.append(line(x - 24, 43, x, 43))
    return picture(
        "The data flow of pdla",
        "pdla trace records a run in run.h5. pdla analyze finds its patterns as signatures. pdla plan chooses layouts "
        "and writes plan.json. pdla replicate copies and verifies replicas. pdla run reads the replicas, and the "
        "program receives the same bytes.",
        630,
        160,
        parts,
    )


def replica() -> str:
    """The pieces of four ranks, in the order of the file and in the order of access."""
    pieces, wide, left = 16, 31, 118
    parts = [text(14, 45, "original", "name left"), text(14, 165, "replica", "name left")]
    for piece in range(pieces):
        rank, turn = piece % RANKS, piece // RANKS
        there = rank * (pieces // RANKS) + turn
        x, to = left + wide * piece, left + wide * there
        parts += [
            line(x + wide / 2, 57, to + wide / 2, 142, tip=False),
            box(x, 25, wide, 32, str(piece), "", colour(rank)),
            box(to, 143, wide, 32, str(piece), "", colour(rank)),
        ]
    for rank in range(RANKS):
        parts.append(text(left + wide * 4 * (rank + 0.5), 196, f"rank {rank}", "pale"))
    return picture(
        "What a replica is",
        "Sixteen pieces of a file. Four ranks read them in turn, so each reads every fourth piece of the original. "
        "In the replica, the four pieces of each rank are one after the other.",
        630,
        210,
        parts,
    )


def layouts() -> str:
    """Which of four servers has the sections of four ranks, in 1-DH, 2-D with two groups, and 1-DV."""
    servers, wide, high, top = 4, 44, 30, 62
    parts = []
    for panel, (name, groups) in enumerate({"1-DH": 1, "2-D, two groups": 2, "1-DV": 4}.items()):
        left = 18 + 206 * panel
        parts.append(text(left + 2 * wide, 26, name, "name"))
        width = servers // groups
        for server in range(servers):
            parts.append(text(left + wide * (server + 0.5), 52, f"S{server}", "pale"))
            own = [rank for rank in range(RANKS) if rank % groups == server // width]
            for row, rank in enumerate(own):
                tall = high * RANKS / len(own)
                parts.append(box(left + wide * server, top + tall * row, wide - 4, tall, f"{rank}", "", colour(rank)))
    parts.append(text(315, 206, "S0 to S3: servers. 0 to 3: the ranks whose bytes they hold.", "pale"))
    return picture(
        "The layouts 1-DH, 2-D and 1-DV",
        "Four servers hold the bytes of four ranks. In 1-DH each server has a part of every rank's bytes. In 2-D with "
        "two groups, servers 0 and 1 share the bytes of ranks 0 and 2, servers 2 and 3 those of ranks 1 and 3. In 1-DV "
        "each server has all bytes of one rank.",
        630,
        222,
        parts,
    )


def lease() -> str:
    """Where the newest bytes are, and who sees them, under a lease of writes."""
    left, closed, home, end = 160, 320, 500, 616
    parts = [
        text((left + closed) / 2, 24, "the program writes", "pale"),
        text((closed + home) / 2, 24, "under the lease", "pale"),
        text((home + end) / 2, 24, "afterwards", "pale"),
    ]
    rows = [
        ("newest bytes are in", left, "write replicas", "the original"),
        ("readers with pdla see", closed, "the newest bytes", "the newest"),
        ("readers without see", closed, "the bytes of before", "the newest"),
    ]
    for row, (who, begin, before, after) in enumerate(rows):
        y = 36 + 48 * row
        parts += [
            text(10, y + 24, who, "left pale"),
            box(begin, y, home - begin, 38, before, "", colour(1) if row == 2 else colour(0)),
            box(home, y, end - home, 38, after, "", colour(2) if row == 0 else colour(0)),
        ]
    parts += [
        line(closed, 205, closed, 182),
        text(closed, 222, "last close", "pale"),
        line(home, 205, home, 182),
        text(home, 222, "write-back", "pale"),
    ]
    return picture(
        "What a lease of writes does",
        "While the program writes, and under the lease after its last close, the newest bytes are in write replicas. "
        "Under the lease, readers with pdla see them there; readers without pdla see the bytes of before. After the "
        "write-back the original has the newest bytes, and all see them.",
        630,
        236,
        parts,
    )


# ---- the terminal ---------------------------------------------------------------------------------------------------

ROW, COLUMN = 18, 7.83  # units of a line and of a character
BEAT, REST = 0.25, 10.0  # seconds between lines, at least; and after the last one, before it begins again
TERMINAL = """\
:root { --paper: #ffffff; --edge: #c9c9c9; --ink: #1b1b1b; --typed: #0a5aa6 }
@media (prefers-color-scheme: dark) { :root { --paper: #16181a; --edge: #4a4e52; --ink: #dcdcdc; --typed: #7fc0ff } }
.paper { fill: var(--paper); stroke: var(--edge) }
text { fill: var(--ink); font: 13px monospace; white-space: pre }
.curtain { fill: var(--paper) }
.typed { fill: var(--typed); font-weight: bold }
"""


def scaling() -> str:
    """What pdla adds to a rank from 4 to 100,000 ranks: the counts of docs/scaling.md, and lines through them."""
    left, top, width, height, decades = 110.0, 30.0, 430.0, 256.0, 8

    def place(ranks: float, count: float) -> tuple[float, float]:
        return left + width * log10(ranks) / 5, top + height * (1 - log10(count) / decades)

    def curve(count: Callable[[float], float], words: str) -> list[str]:
        points = [place(ranks, count(ranks)) for ranks in (4, 16, 64, 256, 1024, 8192, 10**5)]
        drawn = [line(*one, *other, tip=False) for one, other in pairwise(points)]
        return [*drawn, text(points[-1][0] + 10, points[-1][1] + 5, words, "left pale")]

    axes = [
        line(left, top, left, top + height, tip=False),
        line(left, top + height, left + width, top + height, tip=False),
        *(text(left - 50, place(1, 10**k)[1] + 5, f"{10**k:,}", "pale") for k in range(decades + 1)),
        *(text(place(10**k, 1)[0], top + height + 22, f"{10**k:,}", "pale") for k in range(6)),
        text(left + width / 2, top + height + 46, "ranks"),
    ]
    return picture(
        "What pdla adds to a rank, by the number of ranks",
        "Opens and names are 9 for any number of ranks that read, messages are 18 to at most 153, and the bytes "
        "that a rank gets when it opens and closes a file with a cache grow from 3,368 to 42 million.",
        800,
        350,
        [
            *axes,
            *curve(lambda ranks: 9, "opens and names, to read"),
            *curve(lambda ranks: 9 * ceil(log2(ranks)), "messages, to read"),
            *curve(lambda ranks: 1704 + 416 * ranks, "bytes of messages, to cache"),
        ],
    )


def printed(recording: str) -> list[tuple[float, str]]:
    """The lines of an asciicast, each with the seconds at which a reader sees it: at most one each BEAT."""
    header, *events = (json.loads(each) for each in recording.splitlines())
    columns = header["width"]
    lines: list[tuple[float, str]] = [(0.0, "$ pdla demo")]
    late = 0.0
    for seconds, _, output in events:
        for row in output.replace("\r", "").splitlines():
            for start in range(0, max(len(row), 1), columns):
                at = max(seconds + late, lines[-1][0] + BEAT)
                late = at - seconds
                lines.append((at, row[start : start + columns]))
    return lines


def terminal(recording: str) -> str:
    """The recording as a terminal that scrolls and begins again, or its end for readers who ask for no motion."""
    header = json.loads(recording.splitlines()[0])
    columns, rows = header["width"], header["height"]
    lines = printed(recording)
    length = lines[-1][0] + REST
    width, height = int(columns * COLUMN) + 24, rows * ROW + 24
    # A cover hides the lines to come, and goes down as they are printed; from the last row on, the text scrolls.
    moves = {
        "scroll": [min(rows - 1 - number, 0) * ROW for number in range(len(lines))],
        "cover": [(number + 1) * ROW for number in range(len(lines))],
    }
    style = TERMINAL
    for name, places in moves.items():
        frames = "".join(
            f"{100 * at / length:.2f}% {{ transform: translateY({place}px) }}\n"
            for (at, _), place in zip([*lines, (length, "")], [*places, places[-1]], strict=True)
        )
        style += (
            f"@keyframes {name} {{\n{frames}}}\n.{name} {{ transform: translateY({places[-1]}px); "
            f"animation: {name} {length:.1f}s step-end infinite }}\n"
        )
    style += "@media (prefers-reduced-motion: reduce) { .scroll, .cover { animation: none } }\n"
    parts = [
        f'<svg x="12" y="12" width="{width - 24}" height="{rows * ROW}"><g class="scroll">',
        *(
            text(0, number * ROW + 13, row, "typed" if row.startswith("$ ") else "")
            for number, (_, row) in enumerate(lines)
            if row
        ),
        f'<g class="cover"><rect class="curtain" width="{width}" height="{rows * ROW}"/></g>',
        "</g></svg>",
    ]
    return picture(
        "A terminal in which pdla demo runs",
        "The demo traces two MPI programs, prints their signatures, plans, builds replicas, runs the programs from "
        "them and compares requests, seconds and checksums before and after.",
        width,
        height,
        parts,
        style,
    )


def pictures() -> dict[str, str]:
    """All pictures: the names of the files and what is in them."""
    return {
        "flow.svg": flow(),
        "replica.svg": replica(),
        "layouts.svg": layouts(),
        "lease.svg": lease(),
        "scaling.svg": scaling(),
        "demo.svg": terminal((HERE / "demo.cast").read_text()),
    }


def write() -> None:
    """Write the pictures into ``_static``."""
    for name, svg in pictures().items():
        (HERE / name).write_text(svg)


if __name__ == "__main__":
    write()
