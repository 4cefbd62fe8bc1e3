"""The columns of a trace file, a range of rows at a time (docs/formats.md).

Most chunks of a column hold one value, or equal differences. HDF5 inflates such a chunk in three copies, byte by
byte. This does it in one, and sets only the bytes that differ.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from pdla.traces.tables import DOUBTS, RECORD_COLUMNS, seconds

TIMES = ("t_start", "t_end")

Values = npt.NDArray[Any]

_FILTERS = [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]


class StoredColumns:
    """The columns of a group. It is fastest if the ranges of rows that are read follow one another."""

    def __init__(self, group: h5py.Group) -> None:
        self._group = group
        self._columns: dict[str, _Column] = {}

    def read(self, names: Iterable[str], start: int, stop: int) -> dict[str, Values]:
        """The rows from ``start`` to ``stop`` as in RECORD_COLUMNS, but categories as codes.

        Columns of DOUBTS that the group does not have are left out. Columns may share their memory.

        Raises:
            KeyError, OSError, ValueError, zlib.error: the file is cut short or damaged.
        """
        present = [name for name in names if name not in DOUBTS or name in self._group]
        differences: dict[str, Values] = {}
        known: dict[str, Values] = {}
        found = {}
        for name in present:
            values, dtype = self._values(name, start, stop, differences, known), RECORD_COLUMNS[name]
            if name in TIMES:
                found[name] = seconds(values)
            else:
                found[name] = values if dtype == "category" else values.astype(dtype, copy=False)
        return found

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            self._columns[name] = _Column(self._group[name])
        return self._columns[name]

    def _values(
        self, name: str, start: int, stop: int, differences: dict[str, Values], known: dict[str, Values]
    ) -> Values:
        """The values of a column; ``differences`` and ``known`` keep those that other columns build on."""
        if name not in known:
            column = self._column(name)
            base = self._values(column.minus, start, stop, differences, known) if column.minus else None
            if base is not None and column.blank(start, stop):
                known[name] = base
            else:
                values = self._undone(column, start, stop, differences)
                known[name] = values if base is None else np.add(values, base, out=values)
        return known[name]

    def _undone(self, column: _Column, start: int, stop: int, differences: dict[str, Values]) -> Values:
        """The values of a column whose rows are differences from the previous ones, or not."""
        if not column.delta:
            return column.read(start, stop)
        before = start % column.delta
        values = column.read(start - before, stop)
        for place in range(0, len(values), column.delta):
            part = values[place : place + column.delta]
            if column.after:
                # The previous row ended so long after it had started.
                if column.after not in differences:
                    differences[column.after] = self._column(column.after).read(start - before, stop)
                part[1:] += differences[column.after][place : place + column.delta][:-1]
            np.cumsum(part, out=part)
        return values[before:]


class _Column:
    """The values of a column as they are stored, and what they are differences from (docs/formats.md)."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        attributes = dataset.attrs
        self.delta, self.after, self.minus = int(attributes.get("delta", 0)), *map(attributes.get, ("after", "minus"))
        self._dataset = dataset
        self._size = dataset.chunks[0] if _is_plain(dataset) else 0
        if self._size:
            self._places: set[int] = set()
            dataset.id.chunk_iter(lambda chunk: self._places.add(chunk.chunk_offset[0]))
            self._empty = np.full(self._size, dataset.fillvalue, dataset.dtype)
            self._latest: tuple[bytes, Values] = b"", self._empty

    def blank(self, start: int, stop: int) -> bool:
        """Whether these rows are stored as nothing, so that all values are 0."""
        return (
            self._size > 0
            and stop <= len(self._dataset)
            and self._places.isdisjoint(range(start - start % self._size, stop, self._size))
            and not self._empty.any()
        )

    def read(self, start: int, stop: int) -> Values:
        """The rows from ``start`` to ``stop``, or to the end, in memory that is not used again."""
        if not self._size:
            return np.array(self._dataset[start:stop])
        stop = min(stop, len(self._dataset))
        values = np.empty(max(stop - start, 0), self._dataset.dtype)
        for low in range(start - start % self._size, stop, self._size):
            first, last = max(start, low), min(stop, low + self._size)
            values[first - start : last - start] = self._chunk(low)[first - low : last - low]
        return values

    def _chunk(self, low: int) -> Values:
        """The values of the chunk that begins at row ``low``."""
        if low not in self._places:
            return self._empty
        skipped, data = self._dataset.id.read_direct_chunk((low,))
        if skipped:
            return np.array(self._dataset[low : low + self._size])
        if data != self._latest[0]:
            dtype = self._dataset.dtype
            self._latest = (
                data,
                _unshuffled(zlib.decompress(data, bufsize=self._size * dtype.itemsize), dtype, self._size),
            )
        return self._latest[1]


def _is_plain(dataset: h5py.Dataset) -> bool:
    """Whether the chunks are compressed as pdla does it."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    return dataset.ndim == 1 and dataset.chunks is not None and dataset.dtype.isnative and filters == _FILTERS


def _unshuffled(data: bytes, dtype: np.dtype[Any], size: int) -> Values:
    """So many numbers from their first bytes, their second bytes, and so on."""
    planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, size)
    values = np.empty(size, dtype)
    values[:] = planes[:, -1].copy().view(dtype)
    each = values.view(np.uint8).reshape(-1, dtype.itemsize)
    each[0] = planes[:, 0]
    # The first difference of a chunk is one from 0, and mostly unlike the others.
    for number in np.flatnonzero((planes[:, 1:] != planes[:, -1:]).any(axis=1)):
        each[:, number] = planes[number]
    return values
