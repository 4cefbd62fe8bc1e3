"""Traces made by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pdla.traces.file_views import View
from pdla.traces.tables import files_frame, records_frame
from pdla.traces.trace import Trace


class Call(NamedTuple):
    """One data call: ``length`` bytes from byte ``position`` of the view on; ``op`` may be "sync" or "close", too."""

    rank: int
    op: str
    position: int
    length: int
    file: str = "/data/a"
    collective: bool = False
    view: int = 0


def make_trace(calls: Sequence[Call], views: Sequence[View] = ()) -> Trace:
    """A trace of these calls, in order; each takes a millisecond. ``views`` are numbered from 1."""
    calls = sorted(calls, key=lambda call: call.rank)
    all_views = (View.plain(), *views)
    paths = sorted({call.file for call in calls})
    names = {
        "read": ("MPI_File_read_at", "MPI_File_read_at_all"),
        "write": ("MPI_File_write_at", "MPI_File_write_at_all"),
        "sync": ("MPI_File_sync", "MPI_File_sync"),
        "close": ("MPI_File_close", "MPI_File_close"),
    }
    import pandas as pd

    rank = np.array([call.rank for call in calls], dtype=np.int64)
    number = np.arange(len(calls)) - np.searchsorted(rank, rank)
    records = records_frame(
        {
            "rank": rank,
            "kind": pd.Categorical([names[call.op][call.collective] for call in calls]),
            "file": [paths.index(call.file) for call in calls],
            "op": pd.Categorical(
                [call.op if call.op in ("read", "write") else "other" for call in calls],
                categories=["read", "write", "other"],
            ),
            "collective": [call.collective for call in calls],
            "offset": [int(all_views[call.view].first_offset([call.position])[0]) for call in calls],
            "length": [call.length for call in calls],
            "t_start": number * 1e-3,
            "t_end": (number + 1) * 1e-3,
            "view": [call.view for call in calls],
            "position": [call.position for call in calls],
        }
    )
    files = files_frame([{"path": path, "size": 1 << 40} for path in paths])
    return Trace(records, files, all_views, command="./app", ranks=len(set(rank.tolist())), mpi="none")


CSV = "rank,file,op,offset,length,t_start,t_end\n" + "".join(
    f"{rank},data.bin,read,{rank * 4096 + row * 16384},4096,{row}.0,{row}.5\n" for rank in range(4) for row in range(32)
)
