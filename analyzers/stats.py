"""What a program did to each file, in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pdla.model import Op, Trace


@dataclass(frozen=True)
class FileStats:
    """Reads or writes of one file. Sizes in bytes.

    ``requests`` are contiguous accesses, of which the share ``contiguous`` starts exactly where the same rank's previous one
    of this file and operation ended. ``seconds`` is what the slowest rank spent in these calls.
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
        """Bytes/s of all ranks together, as the slowest one sees it; 0 where no time was recorded."""
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
    where = [accesses["rank"], accesses["file"], accesses["op"]]
    ends = accesses["offset"] + accesses["length"]
    previous = ends.groupby(where, observed=True, sort=False).shift(fill_value=-1)
    accesses = accesses.assign(contiguous=accesses["offset"] == previous)
    calls = trace.records[trace.records["op"].isin(["read", "write"])]
    seconds = calls["t_end"] - calls["t_start"]
    slowest = seconds.groupby([calls["rank"], calls["file"], calls["op"]], observed=True).sum()

    rows = []
    for (file, op), part in accesses.groupby(["file", "op"], observed=True):
        length = part["length"].to_numpy(np.int64)
        rows.append(
            FileStats(
                file=trace.path(file),
                op=op,
                calls=int(((calls["file"] == file) & (calls["op"] == op)).sum()),
                requests=len(part),
                bytes=int(length.sum()),
                contiguous=float(part["contiguous"].mean()),
                smallest=int(length.min()),
                median=float(np.median(length)),
                largest=int(length.max()),
                seconds=float(slowest.xs((file, op), level=("file", "op")).max()),
            )
        )
    by_rank = seconds.groupby(calls["rank"]).sum()
    return Summary(
        tuple(rows),
        {int(rank): float(total) for rank, total in by_rank.items()},
        len(accesses),
        int(accesses["length"].sum()),
        float(accesses["contiguous"].mean()) if len(accesses) else 0.0,
    )
