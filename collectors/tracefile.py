"""The trace file: one HDF5 file that other tools can read too (docs/formats.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pandas as pd

from pdla.collectors.frames import FILE_DTYPES, categorical, nanoseconds, seconds
from pdla.collectors.views import View
from pdla.errors import FormatError, PdlaError
from pdla.files import replacing
from pdla.model import RECORD_COLUMNS, Trace

FORMAT = "pdla trace"
VERSION = 1
_CHUNK = 1 << 16
_TEXT = h5py.string_dtype("utf-8")
_TIMES = ("t_start", "t_end")


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace to ``path``, readable by its owner only; what was there before is replaced when all is written.

    Times are kept as whole nanoseconds.

    Raises:
        PdlaError: the file cannot be written.
    """
    with replacing(Path(path), 0o600) as temporary, h5py.File(temporary, "w", track_order=True) as file:
        _write_attributes(file, trace)
        _write_records(file.create_group("records", track_order=True), trace.records)
        _write_files(file.create_group("files", track_order=True), trace.files)
        _write_views(file.create_group("views", track_order=True), trace.views)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace in ``path``, exactly as it was written.

    Raises:
        PdlaError: there is no such file, or it cannot be read.
        FormatError: it is no trace file, is cut short or damaged, or is of a newer version.
    """
    source = Path(path)
    try:
        with source.open("rb"):
            is_hdf5 = h5py.is_hdf5(source)
    except OSError as error:
        raise PdlaError(f"cannot read the trace {source}: {error.strerror}") from None
    if not is_hdf5:
        raise FormatError(
            f"{source} is no trace file (it is not HDF5): 'pdla trace' makes one, 'pdla import' takes other logs"
        )
    try:
        with h5py.File(source, "r", locking="best-effort") as file:
            _check_kind(file, source)
            return _read(file)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise FormatError(f"the trace {source} is cut short or damaged: {' '.join(str(error).split())}") from None


def _check_kind(file: h5py.File, path: Path) -> None:
    if file.attrs.get("format") != FORMAT:
        raise FormatError(f"{path} is an HDF5 file, but no trace of pdla: 'pdla trace' makes one")
    version = int(file.attrs["version"])
    if version > VERSION:
        raise FormatError(
            f"the trace {path} has format version {version}, this pdla reads up to {VERSION}: update pdla"
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
    }
    for name, text in texts.items():
        file.attrs.create(name, _encode(text), dtype=_TEXT)
    file.attrs["version"] = VERSION
    file.attrs["ranks"] = trace.ranks
    file.attrs["dropped"] = trace.dropped
    file.attrs["truncated"] = np.array(trace.truncated, dtype=np.int32)


def _write_array(group: h5py.Group, name: str, values: Any) -> h5py.Dataset:
    if len(values) == 0:
        return group.create_dataset(name, data=values)
    chunks = (min(len(values), _CHUNK),)
    return group.create_dataset(name, data=values, chunks=chunks, shuffle=True, compression="gzip", compression_opts=1)


def _write_records(group: h5py.Group, records: pd.DataFrame) -> None:
    for name, dtype in RECORD_COLUMNS.items():
        column = records[name]
        if dtype == "category":
            dataset = _write_array(group, name, column.cat.codes.to_numpy())
            dataset.attrs.create("names", [_encode(str(value)) for value in column.cat.categories], dtype=_TEXT)
        elif name in _TIMES:
            _write_array(group, name, nanoseconds(column)).attrs["unit"] = "ns"
        else:
            _write_array(group, name, column.to_numpy().astype("uint8" if dtype == "bool" else dtype, copy=False))


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


def _read(file: h5py.File) -> Trace:
    records = _read_records(file["records"])
    files = _read_files(file["files"])
    views = _read_views(file["views"])
    if len(records) and not (
        -1 <= records["file"].min() <= records["file"].max() < len(files)
        and 0 <= records["view"].min() <= records["view"].max() < len(views)
    ):
        raise ValueError("a record names a file or a view that is not there")
    attributes = file.attrs
    return Trace(
        records=records,
        files=files,
        views=views,
        command=attributes["command"],
        ranks=int(attributes["ranks"]),
        mpi=attributes["mpi"],
        source=attributes["source"],
        dropped=int(attributes["dropped"]),
        truncated=tuple(attributes["truncated"].tolist()),
        unrecorded=json.loads(attributes["unrecorded"]),
        notes=tuple(json.loads(attributes["notes"])),
    )


def _read_records(group: h5py.Group) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name, dtype in RECORD_COLUMNS.items():
        values = group[name][()]
        if dtype == "category":
            columns[name] = categorical(values, list(group[name].attrs["names"]))
        elif name in _TIMES:
            columns[name] = seconds(values)
        else:
            columns[name] = values.astype(dtype, copy=False)
    return pd.DataFrame(columns, copy=False)


def _read_files(group: h5py.Group) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name, dtype in FILE_DTYPES.items():
        values = group[name][()]
        columns[name] = (
            pd.Series([_decode(v) for v in values], dtype=object) if name == "path" else values.astype(dtype)
        )
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
