"""Traces as tables: the only place that knows the column types, so that every collector fills them alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.model import Int64Array
from pdla.units import counted, format_count

OPS = ("read", "write", "other")

RECORD_COLUMNS: Mapping[str, str] = {
    "rank": "int32",
    "call": "int64",  # 0, 1, 2, ... within the rank, in the order of the calls
    "kind": "category",  # the MPI function
    "file": "int32",  # id of a row of Trace.files
    "op": "category",  # read, write or other
    "collective": "bool",
    "offset": "int64",  # absolute offset in the file of the first byte accessed
    "length": "int64",  # bytes really moved (bytes asked for, if `moved_known` is false)
    "t_start": "float64",  # seconds since the first rank's MPI_Init
    "t_end": "float64",
    "view": "int32",  # index into Trace.views; 0 = the file's bytes from 0
    "position": "int64",  # byte of the view's data stream where the access starts
    "requested": "int64",
    "moved_known": "bool",
    "memory_strided": "bool",
    "redirected": "bool",
    "error": "int32",
    "collective_unknown": "bool",  # it may be collective; `collective` is false
    "holes_unknown": "bool",  # made through a view that is not known: only the place of the first byte is right
}

DOUBTS = ("collective_unknown", "holes_unknown")
"""Columns for what other tools do not record: false in pdla's own traces. Stored traces may not have them."""

# POSIX calls: `call` is the MPI call in which it was made, -1 if none; `kind` the POSIX call;
# `error` the errno.
POSIX_COLUMNS: Mapping[str, str] = {
    name: RECORD_COLUMNS[name]
    for name in ("rank", "call", "kind", "file", "op", "offset", "length", "t_start", "t_end", "error")
}

ACCESS_COLUMNS: Mapping[str, str] = {
    "rank": "int32",
    "call": "int64",
    "file": "int32",
    "op": "category",
    "collective": "bool",
    "offset": "int64",
    "length": "int64",
    "t_start": "float64",
    "t_end": "float64",
}

MOST_RANKS = 1 << 24
"""Limit for rank numbers in other tools' traces: a larger one is a mistake, and lists by rank must fit into memory."""

LONGEST = 1 << 33
"""Limit for times, in seconds, so that their nanoseconds fit into 64 bits."""

# Unsigned, because device and inode numbers use all 64 bits on some file systems.
FILE_DTYPES: Mapping[str, str] = {
    "file": "int32",
    "path": "object",
    "device": "uint64",
    "inode": "uint64",
    "size": "int64",
    "mtime_ns": "int64",
    "ctime_ns": "int64",
    "ranks": "int32",
    "opens": "int64",
}


def operation(kind: str) -> str:
    """What an MPI function does to the file: read, write or other.

    >>> operation("MPI_File_iread_at_all"), operation("MPI_File_write_at_c"), operation("MPI_File_set_view")
    ('read', 'write', 'other')
    """
    return "read" if "read" in kind else "write" if "write" in kind else "other"


def categorical(codes: npt.NDArray[np.integer], names: Sequence[str]) -> pd.Categorical[str]:
    """Codes into ``names`` as a categorical column."""
    return pd.Categorical.from_codes(codes, categories=pd.Index(list(names)))


def seconds(nanoseconds: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Whole nanoseconds as seconds. Exact both ways below 2**51 ns (26 days): see ``nanoseconds``."""
    return np.asarray(nanoseconds, dtype=np.int64) / 1e9


def nanoseconds(seconds: npt.ArrayLike) -> Int64Array:
    """Seconds rounded to whole nanoseconds, the resolution of stored traces."""
    return np.rint(np.asarray(seconds, dtype=np.float64) * 1e9).astype(np.int64)


def number_calls(ranks: npt.ArrayLike) -> Int64Array:
    """0, 1, 2, ... within each rank; ``ranks`` is sorted."""
    ranks = np.asarray(ranks)
    places = np.arange(len(ranks), dtype=np.int64)
    return places - np.searchsorted(ranks, ranks, side="left")


def silent(ranks: int, present: npt.ArrayLike) -> list[str]:
    """A note about ranks without any call in a source, if there are any; ``present`` are the ranks of the calls."""
    missing = ranks - len(np.unique(np.asarray(present)))
    return [f"{counted(missing, 'rank')} of {format_count(ranks)} made no call"] if missing else []


def records_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """The records of a trace from arrays of equal length, sorted by rank and time; ``op`` and ``kind`` are categorical.

    Columns that are left out get the values that an importer implies: calls are numbered in the
    given order, independent, made on the plain file, and moved what they asked for.
    """
    filled = dict(columns)
    rows = len(filled["rank"])
    if "call" not in filled:
        filled["call"] = number_calls(filled["rank"])
    filled.setdefault("position", filled["offset"])
    filled.setdefault("requested", filled["length"])
    filled.setdefault("moved_known", np.ones(rows, dtype=bool))
    for name, dtype in RECORD_COLUMNS.items():
        if name not in filled:
            filled[name] = np.zeros(rows, dtype=dtype)
        elif dtype != "category":
            filled[name] = np.asarray(filled[name]).astype(dtype, copy=False)
    return pd.DataFrame({name: filled[name] for name in RECORD_COLUMNS}, copy=False)


def files_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The files of a trace, a row each, numbered from 0; what is left out is 0 (not known)."""
    table = {
        name: pd.Series([row.get(name, 0) for row in rows], dtype=dtype)
        for name, dtype in FILE_DTYPES.items()
        if name != "file"
    }
    return pd.DataFrame({"file": np.arange(len(rows), dtype=np.int32), **table})
