"""The records in the windows of a process's log, and their times (collectors/decoder/decode.h)."""

from __future__ import annotations

import ctypes
import importlib.resources
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.errors import FormatError, PdlaError

WINDOW_SIZE = 1 << 16
_ANCHOR_SIZE, _LEAST_SIZE = 25, 2  # of entries

Records = npt.NDArray[Any]

PAIR = np.dtype([("ticks", "<i8"), ("ns", "<i8")], align=True)
RECORD = np.dtype(
    [
        ("seq", "<u8"),
        ("t_start", "<i8"),
        ("t_end", "<i8"),
        ("position", "<i8"),
        ("length", "<i8"),
        ("moved", "<i8"),
        ("file", "<u4"),
        ("view", "<u4"),
        ("call", "<u2"),
        ("flags", "<u2"),
        ("error", "<i4"),
    ]
)


class Windows:
    """The records of a log whose header says that ``committed`` bytes of all windows may be read.

    ``pairs`` are the moments that the windows read so far name by both clocks, ``cut`` is whether
    the log ends before ``committed``.
    """

    def __init__(self, path: Path, start: int, committed: int) -> None:
        self._path, self._start, self._committed = path, start, committed
        self.pairs = np.empty(0, dtype=PAIR)
        self.cut = False

    def records(self) -> Iterator[Records]:
        """All records, a window at a time, with ticks as times. A block is valid until the next one is asked for.

        Raises:
            FormatError: an entry is none, or contradicts those before it.
        """
        library, pairs, next_record = _library(), [], 1
        room = np.empty(WINDOW_SIZE // _LEAST_SIZE, dtype=RECORD)
        anchors = np.empty(WINDOW_SIZE // _ANCHOR_SIZE, dtype=PAIR)
        found = ctypes.c_int64()
        for window in self._windows():
            count = library.rawlog_decode(
                window.ctypes.data, len(window), next_record, room.ctypes.data, anchors.ctypes.data, found
            )
            if count < 0:
                raise FormatError(f"{self._path} is damaged: its records are not in order, or have impossible values")
            pairs.append(anchors[: found.value].copy())
            if found.value == 0:
                self.cut = True
                break
            next_record += count
            yield room[:count]
        self.pairs = np.concatenate(pairs) if pairs else self.pairs

    def _windows(self) -> Iterator[npt.NDArray[np.uint8]]:
        """The bytes of each window that may be read: those in the file, then what only the first one has."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            first = np.fromfile(file, dtype=np.uint8, count=WINDOW_SIZE)
            done, window = 0, np.fromfile(file, dtype=np.uint8, count=WINDOW_SIZE)
            while len(window) == WINDOW_SIZE:
                yield window
                done += WINDOW_SIZE
                window = np.fromfile(file, dtype=np.uint8, count=WINDOW_SIZE)
        left = self._committed - done
        self.cut = left > len(first)
        if left > WINDOW_SIZE:
            # A part of the file is gone, and the first window continues what is not there.
            yield window
        elif left > 0:
            yield first[:left]


def scale(pairs: Records) -> Records:
    """The pairs by which ticks become times: one at least, and both numbers rise from each to the next."""
    pairs = pairs[pairs["ns"] > 0] if (pairs["ns"] > 0).any() else pairs[:1]  # 0: the program did not get there
    if (np.diff(pairs["ticks"]) > 0).all() and (np.diff(pairs["ns"]) > 0).all():
        return pairs
    kept = [0]
    for i in range(1, len(pairs)):
        if pairs["ticks"][i] > pairs["ticks"][kept[-1]] and pairs["ns"][i] > pairs["ns"][kept[-1]]:
            kept.append(i)
    return pairs[kept]


def unsteady(pairs: Records) -> float:
    """How much the length of a tick changed in the run, as a fraction; intervals under a millisecond do not count."""
    ticks, ns = np.diff(pairs["ticks"]).astype(float), np.diff(pairs["ns"]).astype(float)
    lengths = (ns / ticks)[ns > 1e6]
    return float(lengths.max() / lengths.min() - 1) if len(lengths) else 0.0


def convert(records: Records, pairs: Records) -> None:
    """Replace the ticks of the records by nanoseconds of CLOCK_MONOTONIC; ``pairs`` are scale()'s."""
    _library().rawlog_convert(records.ctypes.data, len(records), pairs.ctypes.data, len(pairs))


@cache
def _library() -> ctypes.CDLL:
    path = Path(str(importlib.resources.files("pdla") / "libpdla-decoder.so"))
    if not path.is_file():
        raise PdlaError(
            f"{path.name} is missing: pdla was installed without a C compiler; install gcc, then pdla again"
        )
    library = ctypes.CDLL(str(path))
    address, number = ctypes.c_void_p, ctypes.c_int64
    _declare(library.rawlog_decode, number, address, number, ctypes.c_uint64, address, address, ctypes.POINTER(number))
    _declare(library.rawlog_convert, None, address, number, address, number)
    return library


def _declare(function: Any, result: Any, *parameters: Any) -> None:
    function.restype, function.argtypes = result, parameters
