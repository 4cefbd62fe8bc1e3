"""Takes accesses written as CSV, the way out for tools without an importer of their own."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pdla.collectors.frames import OPS, categorical, files_frame, nanoseconds, records_frame, seconds
from pdla.collectors.views import View
from pdla.errors import FormatError, PdlaError
from pdla.model import Trace

HEADER = ("rank", "file", "op", "offset", "length", "t_start", "t_end")


def import_csv(path: str | os.PathLike[str]) -> Trace:
    """The accesses in a CSV file with the columns of ``HEADER``: bytes as whole numbers, seconds since the start.

    Lines of one rank may come in any order; they are sorted by t_start.

    Raises:
        PdlaError: the file cannot be read.
        FormatError: a line is wrong; the message names it.
    """
    source = Path(path)
    rows: list[tuple[int, str, int, int, int, float, float]] = []
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            header = tuple(name.strip() for name in next(lines, []))
            if header != HEADER:
                raise FormatError(f"{source}, line 1: wanted {','.join(HEADER)} (got {','.join(header) or 'nothing'})")
            for fields in lines:
                if fields:
                    try:
                        rows.append(_parse(fields))
                    except ValueError as error:
                        raise FormatError(f"{source}, line {lines.line_num}: {error}") from None
    except OSError as error:
        raise PdlaError(f"cannot read {source}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{source} is not CSV in UTF-8: {error}") from None
    if not rows:
        raise FormatError(f"{source} has a header but no access")
    return _trace(source, rows)


def _parse(fields: Sequence[str]) -> tuple[int, str, int, int, int, float, float]:
    if len(fields) != len(HEADER):
        raise ValueError(f"wanted {len(HEADER)} fields, got {len(fields)}")
    rank, offset, length = (_whole(HEADER[place], fields[place]) for place in (0, 3, 4))
    t_start, t_end = (_time(HEADER[place], fields[place]) for place in (5, 6))
    file, op = fields[1], fields[2].strip().lower()
    if not file:
        raise ValueError("the file has no name")
    if op not in OPS[:2]:
        raise ValueError(f"op must be read or write (got {fields[2]!r})")
    if rank >= 2**31 or offset + length >= 2**63:
        raise ValueError(f"too large: rank {rank}, offset {offset}, length {length}")
    if t_end < t_start:
        raise ValueError(f"t_end must not be before t_start (got {t_start} to {t_end})")
    return rank, file, OPS.index(op), offset, length, t_start, t_end


def _whole(name: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()):
        raise ValueError(f"{name} must be a whole number, not negative (got {text!r})")
    return int(text)


def _time(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) < 2**33:
        raise ValueError(f"{name} must be a number of seconds (got {text!r})")
    return value


def _trace(source: Path, rows: Sequence[tuple[int, str, int, int, int, float, float]]) -> Trace:
    ranks, names, ops, offsets, lengths, starts, ends = zip(*rows, strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    users: list[set[int]] = [set() for _ in numbers]
    for rank, name in zip(ranks, names, strict=True):
        users[numbers[name]].add(rank)
    rank, t_start = np.array(ranks, dtype=np.int32), nanoseconds(starts)
    order = np.lexsort((t_start, rank))
    op = np.array(ops, dtype=np.int8)[order]
    return Trace(
        records=records_frame(
            {
                "rank": rank[order],
                "file": np.array([numbers[name] for name in names], dtype=np.int32)[order],
                "op": categorical(op, OPS),
                "kind": categorical(op, OPS[:2]),
                "offset": np.array(offsets, dtype=np.int64)[order],
                "length": np.array(lengths, dtype=np.int64)[order],
                "t_start": seconds(t_start[order]),
                "t_end": seconds(nanoseconds(ends)[order]),
            }
        ),
        files=files_frame([{"path": name, "ranks": len(users[number])} for name, number in numbers.items()]),
        views=(View.plain(),),
        command=f"imported from {source.name}",
        ranks=max(ranks) + 1,
        source="csv",
        notes=("the file does not say which calls were collective",),
    )
