"""CSV and Parquet: the accesses, calls or POSIX calls of a trace as a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.atomic_files import replacing
from pdla.collectors.tracefile import StoredTable, StoredTrace
from pdla.errors import PdlaError
from pdla.exports.calls import Columns, accesses, are_placed, extent_counts, only
from pdla.exports.output import names_of, text_file
from pdla.traces.file_views import Tilings
from pdla.traces.tables import OPS

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Rows = Literal["accesses", "calls", "posix"]


class Column(NamedTuple):
    """A column of a table: its type in Parquet, its unit ("" for none), and what it says."""

    type: str
    unit: str
    meaning: str


_COLUMNS: Mapping[str, Column] = {
    "rank": Column("int32", "", "rank in MPI_COMM_WORLD"),
    "file": Column("text", "", "path; empty if the call names no file"),
    "op": Column("text", "", "read, write, or other"),
    "offset": Column("int64", "bytes", "offset in the file of the first byte; -1: not known"),
    "length": Column("int64", "bytes", "bytes moved"),
    "t_start": Column("double", "s", "begin of the call, since the first rank's MPI_Init"),
    "t_end": Column("double", "s", "end of the call"),
    "collective": Column("bool", "", "whether the call is collective"),
    "call": Column("int64", "", "number of the MPI call in its rank; -1: in none"),
    "kind": Column("text", "", "name of the call"),
    "requested": Column("int64", "bytes", "bytes asked for"),
    "view": Column("int32", "", "number of the file view; 0: the plain file"),
    "position": Column("int64", "bytes", "where the access starts in the bytes of the view; -1: not known"),
    "extents": Column("int64", "", "contiguous pieces of the file that the call touches"),
    "moved_known": Column("bool", "", "false: length is what was asked for"),
    "memory_strided": Column("bool", "", "whether the buffer has holes"),
    "redirected": Column("bool", "", "whether bytes came from a replica"),
    "error": Column("int32", "", "0, or the MPI error class; of a POSIX call, errno"),
}

_ACCESS = ("rank", "file", "op", "offset", "length", "t_start", "t_end")
_IN = ("collective", "call", "kind")
_MORE = ("requested", "view", "position", "extents", "moved_known", "memory_strided", "redirected", "error")
TABLES: Mapping[Rows, Mapping[str, Column]] = {
    "accesses": {name: _COLUMNS[name] for name in (*_ACCESS, *_IN)},
    "calls": {name: _COLUMNS[name] for name in (*_ACCESS, *_IN, *_MORE)},
    "posix": {name: _COLUMNS[name] for name in (*_ACCESS, "call", "kind", "error")},
}
"""The columns of each table, in order."""


def export_csv(trace: StoredTrace, rows: Rows, output: Path) -> int:
    """Write a table as CSV, times with nine digits after the point; returns the number of its rows.

    Raises:
        PdlaError: the file cannot be written, or the trace has no POSIX calls.
        FormatError: the trace is cut short or damaged.
    """
    texts, count = _texts(trace, rows), 0
    with text_file(output) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(TABLES[rows])
        for block in _blocks(trace, rows):
            lines.writerows(zip(*(_fields(name, block[name], texts) for name in TABLES[rows]), strict=True))
            count += len(block["rank"])
    return count


def _fields(name: str, values: npt.NDArray[Any], texts: Mapping[str, Sequence[str]]) -> Iterator[Any]:
    if name in texts:
        return map(texts[name].__getitem__, values.tolist())
    kind = _COLUMNS[name].type
    if kind == "double":
        return map("{:.9f}".format, values.tolist())
    return map(("false", "true").__getitem__, values.tolist()) if kind == "bool" else iter(values.tolist())


def export_parquet(trace: StoredTrace, rows: Rows, output: Path) -> int:
    """Write a table as Parquet; returns the number of its rows. The schema says what each column is, with its unit.

    Raises:
        PdlaError: the file cannot be written, pyarrow is not installed, or the trace has no POSIX
            calls.
        FormatError: the trace is cut short or damaged.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise PdlaError("writing Parquet needs pyarrow: pip install 'pdla[parquet]'") from None
    schema, count = _schema(trace, rows), 0
    texts = {name: pa.array(of, pa.string()) for name, of in _texts(trace, rows).items()}
    with (
        replacing(output) as temporary,
        temporary.open("wb") as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for block in _blocks(trace, rows):
            arrays = [
                pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32), mask=values < 0), texts[name])
                if name in texts
                else pa.array(values)
                for name, values in ((name, block[name]) for name in TABLES[rows])
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(block["rank"])
    return count


def _schema(trace: StoredTrace, rows: Rows) -> pa.Schema:
    import pyarrow as pa

    types = {
        "text": pa.dictionary(pa.int32(), pa.string()),
        "double": pa.float64(),
        **{name: getattr(pa, name)() for name in ("int32", "int64")},
        "bool": pa.bool_(),
    }
    about = trace.about
    facts = {
        "pdla.rows": rows,
        "pdla.command": about.command.encode("utf-8", "backslashreplace").decode(),
        "pdla.mpi": about.mpi,
        "pdla.source": about.source,
        "pdla.ranks": str(about.ranks),
        "pdla.started": repr(about.started),
        "pdla.hosts": json.dumps(about.hosts),
        "pdla.notes": json.dumps(about.notes),
    }
    fields = [
        pa.field(name, types[column.type], metadata={"unit": column.unit, "meaning": column.meaning})
        for name, column in TABLES[rows].items()
    ]
    return pa.schema(fields, metadata=facts)


def _texts(trace: StoredTrace, rows: Rows) -> Mapping[str, Sequence[str]]:
    """The texts that the codes of some columns stand for."""
    return {"file": names_of(trace.files), "op": OPS, "kind": _table(trace, rows).kinds}


def _table(trace: StoredTrace, rows: Rows) -> StoredTable:
    if rows != "posix":
        return trace.records
    if trace.posix is None:
        raise PdlaError("the trace has no POSIX calls: record them with pdla trace --posix")
    return trace.posix


def _blocks(trace: StoredTrace, rows: Rows) -> Iterator[Columns]:
    if rows == "accesses":
        yield from accesses(trace, *(name for name in TABLES[rows] if name not in ("op", "offset", "length")))
        return
    shapes = Tilings.of(trace.views)
    for block in _table(trace, rows).in_blocks(*(name for name in TABLES[rows] if name != "extents")):
        if rows == "calls":
            placed = are_placed(block)
            block["extents"] = np.zeros(len(placed), np.int64)
            block["extents"][placed] = extent_counts(shapes, only(block, placed))
        yield block
