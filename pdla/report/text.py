"""Terminal tables: everything the command line prints as rows and columns, in 80 columns or the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pdla.model import Candidate

GAP = "  "
NARROWEST = 8  # characters that wrapping leaves to a column
MOST_MEMBERS = 8  # local signatures listed under a global one


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str, *, width: int | None = None) -> str:
    """Rows under headers, columns left (``l``) or right (``r``) aligned, wrapped to ``width`` columns (the terminal's).

    Left-aligned columns give way, the widest first; nothing is cut off.

    >>> print(table(["file", "requests"], [["a.dat", "1,024"], ["b", "7"]], "lr", width=80))
    file   requests
    -----  --------
    a.dat     1,024
    b             7
    """
    if any(len(row) != len(headers) for row in rows) or len(align) != len(headers):
        raise ValueError(f"every row and the alignment need {len(headers)} columns, as the headers have")
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - (width or terminal_width())
    while excess > 0:
        wide = [number for number, letter in enumerate(align) if letter == "l" and widths[number] > NARROWEST]
        if not wide:
            break
        widest = max(wide, key=lambda number: widths[number])
        others = [widths[number] for number in wide if number != widest]
        cut = min(excess, max(widths[widest] - max([NARROWEST, *others]), 1))
        widths[widest] -= cut
        excess -= cut
    lines = [*_row(headers, widths, align), GAP.join("-" * width for width in widths)]
    for row in rows:
        lines += _row(row, widths, align)
    return "\n".join(lines)


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none, at most 120 so that rows remain readable."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def _row(cells: Sequence[str], widths: Sequence[int], align: str) -> list[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(len(cell) for cell in wrapped)):
        parts = [
            (cell[number] if number < len(cell) else "").rjust(width)
            if letter == "r"
            else (cell[number] if number < len(cell) else "").ljust(width)
            for cell, width, letter in zip(wrapped, widths, align, strict=True)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines


def paragraph(text: str, indent: str = "", *, width: int | None = None) -> str:
    """``text`` wrapped to the terminal, every line after ``indent``."""
    return textwrap.fill(text, width or terminal_width(), initial_indent=indent, subsequent_indent=indent)


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks in compact form: runs, and steps of three or more.

    >>> ranks_text((0, 1, 2, 3)), ranks_text((0, 2, 4, 6)), ranks_text((5,)), ranks_text((0, 1, 4, 5, 9))
    ('0-3', '0-6:2', '5', '0-1, 4-5, 9')
    """
    todo = sorted(set(ranks))
    parts = []
    at = 0
    while at < len(todo):
        step = todo[at + 1] - todo[at] if at + 1 < len(todo) else 1
        end = at
        while end + 1 < len(todo) and todo[end + 1] - todo[end] == step:
            end += 1
        if end == at or (step > 1 and end - at < 2):
            parts.append(str(todo[at]))
            at += 1
            continue
        parts.append(f"{todo[at]}-{todo[end]}" + (f":{step}" if step > 1 else ""))
        at = end + 1
    return ", ".join(parts)


def share_text(part: float, whole: float) -> str:
    """A share in percent that says 100 only of all and 0 only of nothing.

    >>> share_text(1, 3), share_text(9999, 10000), share_text(1, 10000), share_text(0, 5), share_text(5, 5), share_text(0, 0)
    ('33 %', '99.99 %', '0.01 %', '0 %', '100 %', '-')
    """
    if whole == 0:
        return "-"
    percent = 100 * part / whole
    if percent in (0, 100) or 0.5 <= percent < 99.5:
        return f"{percent:.0f} %"
    for digits in (1, 2, 3):
        text = f"{percent:.{digits}f}"
        if float(text) not in (0, 100):
            return f"{text} %"
    return "< 0.001 %" if percent < 1 else "> 99.999 %"


def shorten(text: str, width: int) -> str:
    """``text`` with its middle left out where it is longer than ``width``: the ends of a path tell the most.

    >>> shorten("/scratch/project/someone/run-17/matrix.dat", 24)
    '/scratch...17/matrix.dat'
    """
    if len(text) <= width:
        return text
    head = (width - 3) // 3 + 1
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def candidate_name(candidate: Candidate) -> str:
    """A short name of a way to serve a pattern, such as ``ssd 2-D (2 groups)``."""
    layout = candidate.layout
    if layout is None:
        return candidate.space
    groups = f" ({layout.groups} groups)" if layout.name == "2-D" else ""
    return f"{candidate.space} {layout.name}{groups}"
