"""Statistics of each file of a trace: what the program did to it, in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pdla.analyzers.shapes import BoolArray
from pdla.model import Int64Array, Op
from pdla.traces.trace import Trace


@dataclass(frozen=True)
class FileStats:
    """Reads or writes of one file, sizes in bytes.

    ``requests`` are contiguous accesses. The share ``contiguous`` of them starts exactly where the
    same rank's previous one of this file and operation ended. ``seconds`` is the time that the
    slowest rank spent in these calls.
    """

    file: str
    op: Op
    calls: int
    requests: int
    bytes: int
    contiguous: float
    smallest: int
    median: float
    largest: int
    seconds: float

    @property
    def bandwidth(self) -> float:
        """Bytes/s of all ranks together, as the slowest one sees it; 0 if no time was recorded."""
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Summary:
    """The statistics of a trace, a row for each file and operation, and each rank's seconds in data calls."""

    files: tuple[FileStats, ...]
    rank_seconds: Mapping[int, float]
    requests: int
    bytes: int
    contiguous: float

    @property
    def io_seconds(self) -> float:
        """Seconds that the slowest rank spent in data calls."""
        return max(self.rank_seconds.values(), default=0.0)


def summarize(trace: Trace) -> Summary:
    """The statistics of a trace."""
    accesses = trace.accesses()
    offset, length = accesses["offset"].to_numpy(np.int64), accesses["length"].to_numpy(np.int64)
    file, written = accesses["file"].to_numpy(np.int64), (accesses["op"] == "write").to_numpy(np.bool_)
    contiguous = _contiguous(accesses["rank"].to_numpy(np.int64), file * 2 + written, offset, length)

    calls = trace.records[trace.records["op"].isin(["read", "write"])]
    seconds = (calls["t_end"] - calls["t_start"]).to_numpy(np.float64)
    rank = calls["rank"].to_numpy(np.int64)
    call_file, call_written = calls["file"].to_numpy(np.int64), (calls["op"] == "write").to_numpy(np.bool_)
    rows = []
    for key in np.unique(file * 2 + written).tolist():
        of_key = file * 2 + written == key
        called = call_file * 2 + call_written == key
        sizes = length[of_key]
        rows.append(
            FileStats(
                file=trace.path(key // 2),
                op="write" if key % 2 else "read",
                calls=int(called.sum()),
                requests=len(sizes),
                bytes=int(sizes.sum()),
                contiguous=float(contiguous[of_key].mean()),
                smallest=int(sizes.min()),
                median=float(np.median(sizes)),
                largest=int(sizes.max()),
                seconds=float(np.bincount(rank[called], weights=seconds[called]).max()),
            )
        )
    by_rank = np.bincount(rank, weights=seconds)
    return Summary(
        files=tuple(rows),
        rank_seconds={number: float(by_rank[number]) for number in np.unique(rank).tolist()},
        requests=len(length),
        bytes=int(length.sum()),
        contiguous=float(contiguous.mean()) if len(contiguous) else 0.0,
    )


def _contiguous(rank: Int64Array, key: Int64Array, offset: Int64Array, length: Int64Array) -> BoolArray:
    """Which accesses start where the previous one of this rank and key ended."""
    order = np.lexsort((key, rank))
    rank, key, offset, end = rank[order], key[order], offset[order], (offset + length)[order]
    follows = np.zeros(len(order), np.bool_)
    follows[order[1:]] = (rank[1:] == rank[:-1]) & (key[1:] == key[:-1]) & (offset[1:] == end[:-1])
    return follows
