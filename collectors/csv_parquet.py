"""Import accesses written as CSV or Parquet, for tools without an importer of their own."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.collectors.reading import Progress, Reading
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import CSV, PARQUET, check
from pdla.model import Int64Array
from pdla.traces.file_views import View
from pdla.traces.tables import (
    LONGEST,
    MOST_RANKS,
    OPS,
    categorical,
    files_frame,
    nanoseconds,
    records_frame,
    seconds,
    silent,
)
from pdla.traces.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

HEADER = ("rank", "file", "op", "offset", "length", "t_start", "t_end")
COLLECTIVE = "collective"
"""A column that may be missing."""


def import_csv(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """The accesses in a CSV file with the columns of ``HEADER``: bytes as whole numbers, seconds since the start.

    A column ``collective`` (true or false) may follow; other columns are ignored. Lines of one rank
    may be in any order; they are sorted by t_start. ``progress`` is told how many bytes are read.

    Raises:
        PdlaError: the file cannot be read.
        FormatError: a line is wrong; the message names it.
    """
    source = Path(path)
    check(source, CSV)
    rows: list[tuple[int, str, int, int, int, float, float, bool]] = []
    try:
        stream = Reading([source], progress).open(source)
        with io.TextIOWrapper(stream, newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            header = tuple(name.strip() for name in next(lines, []))
            if not set(HEADER) <= set(header):
                raise FormatError(
                    f"{source}, line 1: the header must be {','.join(HEADER)} (got {','.join(header) or 'nothing'})"
                )
            places = [header.index(name) for name in (*HEADER, COLLECTIVE) if name in header]
            for fields in lines:
                if fields:
                    try:
                        if len(fields) != len(header):
                            raise ValueError(f"a line must have {len(header)} fields (got {len(fields)})")
                        rows.append(_parse(*(fields[place] for place in places)))
                    except ValueError as error:
                        raise FormatError(f"{source}, line {lines.line_num}: {error}") from None
    except OSError as error:
        raise PdlaError(f"cannot read {source}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{source} is not CSV in UTF-8: {error}") from None
    if not rows:
        raise FormatError(f"{source} has a header but no accesses")
    ranks, names, ops, offsets, lengths, starts, ends, collective = zip(*rows, strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return _trace(
        source,
        "csv",
        list(numbers),
        np.array([numbers[name] for name in names], dtype=np.int64),
        np.array(ranks, dtype=np.int64),
        np.array(ops, dtype=np.int8),
        np.array(offsets, dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        nanoseconds(starts),
        nanoseconds(ends),
        np.array(collective) if COLLECTIVE in header else None,
    )


def _parse(*fields: str) -> tuple[int, str, int, int, int, float, float, bool]:
    rank, offset, length = (_whole(HEADER[place], fields[place]) for place in (0, 3, 4))
    t_start, t_end = (_time(HEADER[place], fields[place]) for place in (5, 6))
    file, op, collective = fields[1], fields[2].strip().lower(), "".join(fields[7:]).strip().lower()
    if not file or "\0" in file:
        raise ValueError("the file has no name")
    if op not in OPS[:2]:
        raise ValueError(f"op must be read or write (got {fields[2]!r})")
    if len(fields) > len(HEADER) and collective not in ("true", "false"):
        raise ValueError(f"{COLLECTIVE} must be true or false (got {fields[7]!r})")
    if rank >= MOST_RANKS or offset + length >= 2**63:
        raise ValueError(f"too large: rank {rank}, offset {offset}, length {length}")
    if t_end < t_start:
        raise ValueError(f"t_end must not be before t_start (got {t_start} to {t_end})")
    return rank, file, OPS.index(op), offset, length, t_start, t_end, collective == "true"


def _whole(name: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()):
        raise ValueError(f"{name} must be a whole number, not negative (got {text!r})")
    return int(text)


def _time(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) < LONGEST:
        raise ValueError(f"{name} must be a number of seconds (got {text!r})")
    return value


def import_parquet(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """The accesses in a Parquet file with the columns of ``HEADER``, as in import_csv; other columns are ignored.

    ``rank``, ``offset`` and ``length`` are integers of any size, the times any numbers, ``file``
    and ``op`` text. A column ``collective`` of booleans may be there. ``progress`` is told how many
    rows are read.

    Raises:
        PdlaError: the file cannot be read, or pyarrow is not installed.
        FormatError: a column is missing or of another type, or a row is wrong; the message names
            it.
    """
    source = Path(path)
    check(source, PARQUET)
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise PdlaError("reading Parquet needs pyarrow: pip install 'pdla[parquet]'") from None
    try:
        with source.open("rb") as stream:
            opened = parquet.ParquetFile(stream)
            names = opened.schema_arrow.names
            if missing := [name for name in HEADER if name not in names]:
                wanted, got = ",".join(HEADER), ",".join(names) or "nothing"
                raise FormatError(f"{source} has no column {missing[0]}: it needs {wanted} (got {got})")
            table = _whole_table(opened, [name for name in (*HEADER, COLLECTIVE) if name in names], progress)
    except OSError as error:
        raise PdlaError(f"cannot read {source}: {error.strerror or error}") from None
    except ArrowException as error:
        raise FormatError(f"{source} is not Parquet, or damaged: {' '.join(str(error).split())}") from None
    if table.num_rows == 0:
        raise FormatError(f"{source} has columns but no accesses")
    rank, offset, length = (_column(source, table, name, "int64") for name in ("rank", "offset", "length"))
    start, end = (_column(source, table, name, "float64") for name in ("t_start", "t_end"))
    file, operation = (_column(source, table, name, "string") for name in ("file", "op"))
    collective = _column(source, table, COLLECTIVE, "bool").to_numpy(bool) if COLLECTIVE in names else None
    op = operation.str.strip().str.lower()
    for values, wrong, why in (
        (rank, (rank < 0) | (rank >= MOST_RANKS), f"rank must be from 0 to {MOST_RANKS - 1}"),
        (offset, offset < 0, "offset must not be negative"),
        (length, length < 0, "length must not be negative"),
        (offset, offset > 2**63 - 1 - length, "too large an offset"),
        (file, (file == "") | file.str.contains("\0"), "the file has no name"),
        (operation, ~op.isin(OPS[:2]), "op must be read or write"),
        (start, ~(start.abs() < LONGEST), "t_start must be a number of seconds"),
        (end, ~(end.abs() < LONGEST), "t_end must be a number of seconds"),
        (end, end < start, "t_end must not be before t_start"),
    ):
        _refuse(source, values, wrong, why)
    codes, paths = pd.factorize(file.to_numpy(dtype=object))
    return _trace(
        source,
        "parquet",
        list(map(str, paths)),
        codes,
        rank.to_numpy(np.int64),
        (op == OPS[1]).to_numpy().astype(np.int8),
        offset.to_numpy(np.int64),
        length.to_numpy(np.int64),
        nanoseconds(start),
        nanoseconds(end),
        collective,
    )


def _whole_table(opened: parquet.ParquetFile, columns: Sequence[str], progress: Progress | None) -> pa.Table:
    """These columns, read a row group at a time."""
    import pyarrow as pa

    groups, done = [], 0
    for number in range(opened.num_row_groups):
        groups.append(opened.read_row_group(number, columns=columns))
        done += groups[-1].num_rows
        if progress:
            progress("reading", done, opened.metadata.num_rows)
    return pa.concat_tables(groups) if groups else opened.read(columns=columns)


def _column(
    source: Path, table: pa.Table, name: str, wanted: Literal["int64", "float64", "string", "bool"]
) -> pd.Series[Any]:
    import pyarrow as pa

    column = table.column(name)
    if column.null_count:
        row = int(column.is_null().to_numpy().argmax())
        raise FormatError(f"{source}, row {row + 1}: {name} is missing")
    kind, accepted = {
        "int64": (pa.int64(), (pa.types.is_integer,)),
        "float64": (pa.float64(), (pa.types.is_floating, pa.types.is_integer)),
        "string": (pa.string(), (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)),
        "bool": (pa.bool_(), (pa.types.is_boolean,)),
    }[wanted]
    try:
        if any(is_one(column.type) for is_one in accepted):
            return pd.Series(column.cast(kind).to_pandas())
    except pa.ArrowInvalid as error:
        raise FormatError(f"{source}: the column {name} is not all {wanted}: {error}") from None
    raise FormatError(f"{source}: the column {name} must be {wanted} (got {column.type})")


def _refuse(source: Path, values: pd.Series[Any], wrong: pd.Series[bool], why: str) -> None:
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise FormatError(f"{source}, row {row + 1}: {why} (got {values.iloc[row]!r})")


def _trace(
    source: Path,
    kind: str,
    paths: Sequence[str],
    file: Int64Array,
    rank: Int64Array,
    op: npt.NDArray[Any],
    offset: Int64Array,
    length: Int64Array,
    start: Int64Array,
    end: Int64Array,
    collective: npt.NDArray[np.bool_] | None,
) -> Trace:
    """``file`` are indices into ``paths``, ``op`` into OPS; times are nanoseconds; ``collective`` may be unknown."""
    order = np.lexsort((start, rank))
    users = np.unique(np.stack((file, rank)), axis=1)
    number = np.bincount(users[0], minlength=len(paths)).tolist()
    ranks = int(rank.max()) + 1
    return Trace(
        records=records_frame(
            {
                "rank": rank[order],
                "file": file[order],
                "op": categorical(op[order], OPS),
                "kind": categorical(op[order], OPS[:2]),
                "offset": offset[order],
                "length": length[order],
                "t_start": seconds(start[order]),
                "t_end": seconds(end[order]),
                **({} if collective is None else {COLLECTIVE: collective[order]}),
            }
        ),
        files=files_frame([{"path": path, "ranks": of} for path, of in zip(paths, number, strict=True)]),
        views=(View.plain(),),
        command=f"imported from {source.name}",
        ranks=ranks,
        source=kind,
        notes=(
            *(["the file does not say which calls were collective"] if collective is None else []),
            *silent(ranks, rank),
        ),
    )
