"""The trace file: one HDF5 file that other tools can read, too (docs/formats.md)."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import h5py  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.atomic_files import replacing
from pdla.collectors.stored_columns import TIMES, StoredColumns
from pdla.errors import FormatError
from pdla.file_kinds import LOOKED_AT, TRACE, check, texts_are_whole
from pdla.model import Int64Array
from pdla.traces.blocks import COLUMNS, Block, blocks
from pdla.traces.file_views import View
from pdla.traces.tables import (
    DOUBTS,
    FILE_DTYPES,
    OPS,
    POSIX_COLUMNS,
    RECORD_COLUMNS,
    categorical,
    nanoseconds,
)
from pdla.traces.trace import Trace

FORMAT = "pdla trace"
VERSION = 3
_CHUNK = 1 << 16
_TEXT = h5py.string_dtype("utf-8")
# Columns stored as differences: from another column, and then each value from the previous one, or from the previous
# one of another column.
_MINUS = {"t_end": "t_start", "offset": "position", "length": "requested"}
_DELTA = ("call", "offset", "position")
_AFTER = {"t_start": "t_end"}

Columns = Mapping[str, npt.NDArray[Any]]


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace to ``path``, readable only by its owner; an old file stays until everything is written.

    Times are stored as whole nanoseconds.

    Raises:
        PdlaError: the file cannot be written.
    """
    posix = _rows(trace.posix) if len(trace.posix) else None
    write_blocks(trace, _rows(trace.records), posix, path)


class Rows(NamedTuple):
    """So many rows, a block at a time.

    Times are whole nanoseconds, ``op`` and ``kind`` codes into ``names``. Of the columns DOUBTS the
    blocks have those in ``doubts``.
    """

    blocks: Iterable[Columns]
    rows: int
    names: Mapping[str, Sequence[str]]
    doubts: Sequence[str] = ()


def write_blocks(about: Trace, records: Rows, posix: Rows | None, path: str | os.PathLike[str]) -> None:
    """As write_trace(), from blocks with the columns RECORD_COLUMNS and POSIX_COLUMNS; ``about`` has the rest."""
    with replacing(Path(path), 0o600) as temporary, _created(temporary) as file:
        _write_attributes(file, about)
        _write_rows(file.create_group("records", track_order=True), RECORD_COLUMNS, records)
        if posix:
            _write_rows(file.create_group("posix", track_order=True), POSIX_COLUMNS, posix)
        _write_files(file.create_group("files", track_order=True), about.files)
        _write_views(file.create_group("views", track_order=True), about.views)


@contextmanager
def _created(path: Path) -> Iterator[h5py.File]:
    """A new file. If HDF5 cannot write at the close, the error is an OSError, not a RuntimeError."""
    try:
        with h5py.File(path, "w", libver=("v110", "v110"), track_order=True) as file:
            yield file
    except RuntimeError as error:
        raise OSError(str(error)) from None


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace in ``path``, exactly as it was written.

    Raises:
        PdlaError: there is no such file, or it cannot be read.
        FormatError: it is not a trace file, is cut short or damaged, or is of a newer version.
    """
    with _opened(Path(path)) as file, _damage(Path(path)):
        trace = _about(file)
        records = _read_rows(file["records"], RECORD_COLUMNS)
        if len(records) and not (
            -1 <= records["file"].min() <= records["file"].max() < len(trace.files)
            and 0 <= records["view"].min() <= records["view"].max() < len(trace.views)
        ):
            raise ValueError("a record names a file or a view that does not exist")
        if "posix" not in file:
            return replace(trace, records=records)
        posix = _read_rows(file["posix"], POSIX_COLUMNS)
        if len(posix) and not 0 <= posix["file"].min() <= posix["file"].max() < len(trace.files):
            raise ValueError("a POSIX call names a file that does not exist")
        return replace(trace, records=records, posix=posix)


class StoredTable:
    """The calls of a trace that stay in its file: the rows of ``group``, which name some of the files and views."""

    def __init__(self, group: h5py.Group, path: Path, files: int, views: int) -> None:
        self._group, self._path = group, path
        self._columns = StoredColumns(group)
        self._limits = {"file": (-1, files), "view": (0, views)}
        with _damage(path):
            self.rows = len(group["rank"])

    def heads(self) -> Int64Array:
        """The first row of each rank, and the number of rows."""
        found, last = [], -1
        with _damage(self._path):
            for start in range(0, self.rows, _CHUNK):
                rank = self._columns.read(["rank"], start, min(start + _CHUNK, self.rows))["rank"]
                found.append(start + np.flatnonzero(np.append(rank[:1] != last, rank[1:] != rank[:-1])))
                last = rank[-1]
        return np.concatenate([*found, [self.rows]]).astype(np.int64)

    @property
    def kinds(self) -> list[str]:
        """The names of the calls that the codes of ``kind`` stand for."""
        with _damage(self._path):
            return list(map(str, self._group["kind"].attrs["names"]))

    def rows_of(self, start: int, stop: int, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
        """These columns in some rows, as in RECORD_COLUMNS; ``op`` is an index into OPS, ``kind`` one into ``kinds``.

        Raises:
            FormatError: the file is cut short or damaged.
        """
        with _damage(self._path):
            columns = self._columns.read(names, start, stop)
            if "op" in columns:
                places = np.array([OPS.index(name) for name in self._group["op"].attrs["names"]], np.int8)
                if len(places) and (places != np.arange(len(places))).any():
                    columns["op"] = places[columns["op"]]
            for name, (low, high) in self._limits.items():
                values = columns.get(name)
                if values is not None and len(values) and not low <= values.min() <= values.max() < high:
                    raise ValueError("a record names a file or a view that does not exist")
        return columns

    def in_blocks(self, *names: str, start: int = 0, stop: int | None = None) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """These columns of all rows, or of the rows from ``start`` to ``stop``, a block at a time: see rows_of()."""
        end = self.rows if stop is None else stop
        for low in range(start, end, _CHUNK):
            yield self.rows_of(low, min(low + _CHUNK, end), names)


class StoredTrace:
    """A trace that stays in its file, and is read a block of calls at a time (a pdla.traces.trace.Source).

    ``about`` is the trace without its calls; ``records`` are the calls, ``posix`` the POSIX calls,
    None if they were not recorded.
    """

    def __init__(self, file: h5py.File, path: Path) -> None:
        with _damage(path):
            self.about = _about(file)
            groups = [file["records"], *([file["posix"]] if "posix" in file else [])]
        tables = [StoredTable(group, path, len(self.about.files), len(self.about.views)) for group in groups]
        self.records, self.posix = tables[0], tables[1] if len(tables) > 1 else None

    @property
    def rows(self) -> int:
        """The number of its records."""
        return self.records.rows

    @property
    def files(self) -> pd.DataFrame:
        """A row per file (FILE_DTYPES)."""
        return self.about.files

    @property
    def views(self) -> Sequence[View]:
        """The views of the calls."""
        return self.about.views

    def blocks(self, part: int = 0, parts: int = 1) -> Iterator[Block]:
        """What the data calls touch, a block at a time: everything, or one of ``parts`` parts of the ranks.

        Raises:
            FormatError: the file is cut short or damaged.
        """
        return blocks(self, part, parts)

    def heads(self) -> Int64Array:
        """The first row of each rank, and the number of rows."""
        return self.records.heads()

    def rows_of(self, start: int, stop: int) -> Columns:
        """The columns of COLUMNS in these rows; ``op`` is an index into OPS."""
        return self.records.rows_of(start, stop, COLUMNS)


@contextmanager
def stored_trace(path: str | os.PathLike[str]) -> Iterator[StoredTrace]:
    """The trace in ``path``, which stays in the file.

    Raises:
        PdlaError: there is no such file, or it cannot be read.
        FormatError: it is not a trace file, is cut short or damaged, or is of a newer version.
    """
    with _opened(Path(path)) as file:
        yield StoredTrace(file, Path(path))


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    check(path, TRACE)
    with _damage(path):
        with path.open("rb") as stream:
            if not texts_are_whole(stream.read(LOOKED_AT)):
                raise ValueError("the lengths of its texts are wrong")
        file = h5py.File(path, "r", locking="best-effort")
    with file:
        with _damage(path):
            _check_version(file, path)
        yield file


_DAMAGE = (OSError, RuntimeError, AttributeError, LookupError, ArithmeticError, ValueError, TypeError, zlib.error)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Report every error while the file is read as a file that is cut short or damaged."""
    try:
        yield
    except _DAMAGE as error:
        raise FormatError(f"the trace {path} is cut short or damaged: {' '.join(str(error).split())}") from None


def fingerprint(path: str | os.PathLike[str]) -> str:
    """A name for a trace by its content: equal for its copies, and for logs that are packed or imported twice.

    Raises:
        FormatError: the file is cut short or damaged.
    """
    digest = hashlib.sha256()
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            digest.update(_encode(f"{file.attrs['command']}\0{file.attrs['ranks']}"))
            for dataset in (dataset for name in ("records", "files", "views") for dataset in file[name].values()):
                digest.update(_encode(f"{dataset.name}\0{dataset.size}"))
                if dataset.dtype == object:
                    digest.update(b"\0".join(dataset[()]))
                elif dataset.chunks is None:
                    digest.update(dataset[()].tobytes())
                else:
                    _update(digest, dataset)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise FormatError(f"the trace {path} is cut short or damaged: {' '.join(str(error).split())}") from None
    return digest.hexdigest()


def _update(digest: hashlib._Hash, dataset: h5py.Dataset) -> None:
    """Hash the chunks as they are stored, compressed: a fraction of the bytes, and nothing to decompress."""
    places: list[tuple[int, ...]] = []
    dataset.id.chunk_iter(lambda chunk: places.append(chunk.chunk_offset))
    for place in sorted(places):
        digest.update(b"%d" % place[0])
        digest.update(dataset.id.read_direct_chunk(place)[1])


def _check_version(file: h5py.File, path: Path) -> None:
    version = int(file.attrs["version"])
    if version > VERSION:
        raise FormatError(
            f"the trace {path} has format version {version}, but this pdla reads up to {VERSION}: update pdla"
        )


def _encode(text: str) -> bytes:
    # Commands and paths may hold bytes that are not UTF-8.
    return text.encode("utf-8", "surrogateescape")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _write_attributes(file: h5py.File, trace: Trace) -> None:
    texts = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": trace.command,
        "mpi": trace.mpi,
        "source": trace.source,
        "unrecorded": json.dumps(dict(trace.unrecorded)),
        "notes": json.dumps(trace.notes),
        "hosts": json.dumps(trace.hosts),
        "environment": json.dumps(dict(trace.environment)),
        "levels": json.dumps(dict(trace.levels)),
    }
    for name, text in texts.items():
        file.attrs.create(name, _encode(text), dtype=_TEXT)
    file.attrs["version"] = VERSION
    file.attrs["ranks"] = trace.ranks
    file.attrs["dropped"] = trace.dropped
    file.attrs["started"] = trace.started
    file.attrs["seconds"] = trace.seconds
    file.attrs["truncated"] = np.array(trace.truncated, dtype=np.int32)


def _write_array(group: h5py.Group, name: str, values: Any) -> h5py.Dataset:
    if len(values) == 0:
        return group.create_dataset(name, data=values)
    chunks = (min(len(values), _CHUNK),)
    return group.create_dataset(name, data=values, chunks=chunks, shuffle=True, compression="gzip", compression_opts=1)


def _plain(column: pd.Series[Any]) -> npt.NDArray[Any]:
    """The values as they are stored."""
    if RECORD_COLUMNS[str(column.name)] == "category":
        return column.cat.codes.to_numpy()
    return nanoseconds(column) if column.name in TIMES else column.to_numpy()


def _rows(table: pd.DataFrame) -> Rows:
    names = {name: list(map(str, table[name].cat.categories)) for name in ("op", "kind")}
    doubts = [name for name in DOUBTS if name in table and table[name].any()]
    return Rows([{str(name): _plain(table[name]) for name in table}], len(table), names, doubts)


def _write_rows(group: h5py.Group, columns: Iterable[str], table: Rows) -> None:
    size = min(table.rows, _CHUNK)
    stored = [name for name in columns if name not in DOUBTS or name in table.doubts]
    datasets = {name: _create_column(group, name, table) for name in stored}
    for name, other in _MINUS.items():
        if name in datasets and other in datasets:
            datasets[name].attrs["minus"] = other
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # Times are noise except for their high bytes: a search for repeated patterns takes time and
        # finds none.
        settings = {
            name: (int(dataset.fillvalue), zlib.Z_RLE if name in TIMES else zlib.Z_DEFAULT_STRATEGY)
            for name, dataset in datasets.items()
        }
        under_way: deque[tuple[h5py.Dataset, int, Future[bytes | None]]] = deque()
        for number, chunk in enumerate(_in_chunks(table.blocks, size)):
            for name, dataset in datasets.items():
                values = _difference(chunk, name).astype(dataset.dtype, copy=False)
                under_way.append((dataset, number * size, pool.submit(_compress, values, size, *settings[name])))
            while len(under_way) > 4 * len(datasets):
                _write_chunk(*under_way.popleft())
        while under_way:
            _write_chunk(*under_way.popleft())


def _create_column(group: h5py.Group, name: str, table: Rows) -> h5py.Dataset:
    rows = table.rows
    dtype = "int64" if name in TIMES else {"category": "int16", "bool": "uint8"}.get(RECORD_COLUMNS[name])
    layout = {"chunks": (min(rows, _CHUNK),), "shuffle": True, "compression": "gzip", "compression_opts": 1}
    column = group.create_dataset(
        name,
        shape=(rows,),
        dtype=dtype or RECORD_COLUMNS[name],
        fillvalue=int(name == "moved_known"),
        **(layout if rows else {}),
    )
    if RECORD_COLUMNS[name] == "category":
        column.attrs.create("names", [_encode(text) for text in table.names[name]], dtype=_TEXT)
    if name in TIMES:
        column.attrs["unit"] = "ns"
    if name in _DELTA or name in _AFTER:
        column.attrs["delta"] = _CHUNK
    if name in _AFTER:
        column.attrs["after"] = _AFTER[name]
    return column


def _in_chunks(blocks: Iterable[Columns], size: int) -> Iterator[Columns]:
    """The same rows in pieces of ``size``; the last one may be smaller."""
    held: list[Columns] = []
    count = 0
    for block in blocks:
        start, rows = 0, len(block["rank"])
        while start < rows:
            stop = min(rows, start + size - count)
            held.append({name: values[start:stop] for name, values in block.items()})
            count, start = count + stop - start, stop
            if count == size:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)


def _joined(parts: Sequence[Columns]) -> Columns:
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _difference(chunk: Columns, name: str) -> npt.NDArray[Any]:
    values = chunk[name]
    if (other := _MINUS.get(name, "")) in chunk:
        values = values - chunk[other]
    if name in _AFTER:
        return np.concatenate([values[:1], values[1:] - chunk[_AFTER[name]][:-1]])
    return np.diff(values, prepend=values.dtype.type(0)) if name in _DELTA else values


def _compress(values: npt.NDArray[Any], rows: int, fill: int, strategy: int) -> bytes | None:
    """A chunk as HDF5's shuffle and gzip filters make it; None if it has only the fill value and need not be stored."""
    if np.all(values == fill):
        return None
    shuffled = np.zeros((values.itemsize, rows), dtype=np.uint8)
    shuffled[:, : len(values)] = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1).T
    stream = zlib.compressobj(1, strategy=strategy)
    return stream.compress(shuffled.data) + stream.flush()


def _write_chunk(dataset: h5py.Dataset, row: int, data: Future[bytes | None]) -> None:
    if (compressed := data.result()) is not None:
        dataset.id.write_direct_chunk((row,), compressed)


def _write_files(group: h5py.Group, files: pd.DataFrame) -> None:
    for name, dtype in FILE_DTYPES.items():
        if name == "path":
            group.create_dataset(name, data=[_encode(path) for path in files[name]], dtype=_TEXT)
        else:
            _write_array(group, name, files[name].to_numpy().astype(dtype, copy=False))


def _write_views(group: h5py.Group, views: Sequence[View]) -> None:
    for name in ("displacement", "etype_size", "extent", "size"):
        _write_array(group, name, np.array([getattr(view, name) for view in views], dtype=np.int64))
    first = np.cumsum([0, *(len(view.words) for view in views)], dtype=np.int64)
    _write_array(group, "first", first)
    _write_array(group, "words", np.concatenate([view.words for view in views]))


def _about(file: h5py.File) -> Trace:
    """Everything except the calls."""
    attributes = file.attrs
    return Trace(
        records=pd.DataFrame(),
        files=_read_files(file["files"]),
        views=_read_views(file["views"]),
        command=attributes["command"],
        ranks=int(attributes["ranks"]),
        mpi=attributes["mpi"],
        source=attributes["source"],
        dropped=int(attributes["dropped"]),
        truncated=tuple(attributes["truncated"].tolist()),
        unrecorded=json.loads(attributes["unrecorded"]),
        notes=tuple(json.loads(attributes["notes"])),
        # Older traces do not have these.
        started=float(attributes.get("started", 0.0)),
        seconds=float(attributes.get("seconds", 0.0)),
        hosts=tuple(json.loads(attributes.get("hosts", "[]"))),
        environment=json.loads(attributes.get("environment", "{}")),
        levels=json.loads(attributes.get("levels", "{}")),
    )


def _read_rows(group: h5py.Group, columns: Mapping[str, str]) -> pd.DataFrame:
    lengths = {len(group[name]) for name in columns if name not in DOUBTS or name in group}
    if len(lengths) > 1:
        raise ValueError("the columns of the records differ in length")
    rows = lengths.pop()
    table: dict[str, Any] = dict(StoredColumns(group).read(columns, 0, rows))
    for name, dtype in columns.items():
        if name not in table:
            table[name] = np.zeros(rows, dtype=dtype)
        elif dtype == "category":
            table[name] = categorical(table[name], list(group[name].attrs["names"]))
    # Who changes one column does not change another one.
    given: dict[int, Any] = {}
    for name in columns:
        table[name] = table[name].copy() if id(table[name]) in given else table[name]
        given[id(table[name])] = table[name]
    return pd.DataFrame({name: table[name] for name in columns}, copy=False)


def _read_files(group: h5py.Group) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name, dtype in FILE_DTYPES.items():
        values = group[name][()]
        columns[name] = (
            pd.Series([_decode(v) for v in values], dtype=object) if name == "path" else values.astype(dtype)
        )
    if (columns["file"] != np.arange(len(columns["file"]))).any():
        raise ValueError("its files are not numbered from 0")
    return pd.DataFrame(columns)


def _read_views(group: h5py.Group) -> tuple[View, ...]:
    words, first = group["words"][()], group["first"][()].tolist()
    numbers = [group[name][()].tolist() for name in ("displacement", "etype_size", "extent", "size")]
    try:
        return tuple(
            View(displacement, etype_size, extent, size, words[start:stop])
            for displacement, etype_size, extent, size, start, stop in zip(*numbers, first[:-1], first[1:], strict=True)
        )
    except FormatError as error:
        raise ValueError(str(error)) from None
