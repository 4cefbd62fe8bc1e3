"""The requests that the MPI library made for each kind of call: which ranks touched the file, and request sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from pdla.model import Int64Array
from pdla.traces.trace import Trace

OUTSIDE = ""  # the kind of calls that the program itself made


@dataclass(frozen=True)
class MadeOf:
    """The calls of one MPI function on a file, and the POSIX reads and writes made in them, sizes in bytes.

    ``kind`` is "" for POSIX calls that the program itself made, outside MPI calls. ``bytes`` is
    what the ``calls`` moved; ``read`` and ``written`` is what their ``requests`` moved. ``ranks``
    is the number of ranks that made at least one request: for a collective call, its aggregators.
    """

    file: str
    kind: str
    calls: int
    bytes: int
    requests: int
    read: int
    written: int
    ranks: tuple[int, ...]
    median: float
    largest: int

    @property
    def ratio(self) -> float | None:
        """Bytes read and written for each byte asked for; None if no byte was asked for.

        It is more than 1 if a library reads bytes that it does not need (data sieving) or writes
        back what it has read.
        """
        return (self.read + self.written) / self.bytes if self.bytes else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in docs/json.md."""
        return {**asdict(self), "ranks": list(self.ranks), "ratio": self.ratio}


def made_of(trace: Trace) -> tuple[MadeOf, ...]:
    """A row for each file and MPI function that moved bytes or had bytes moved, in the order of files and kinds.

    Empty if the POSIX calls were not recorded.
    """
    if trace.posix.empty:
        return ()
    return tuple(_rows(trace))


def _rows(trace: Trace) -> Iterator[MadeOf]:
    data = trace.posix[trace.posix["op"] != "other"]
    kinds = _kinds(trace, data)
    records = trace.records[(trace.records["op"] != "other") & trace.records["file"].isin(trace.posix["file"])]
    calls = records.groupby(["file", "kind"], observed=True)["length"].agg(["count", "sum"])
    requests = dict(list(data.groupby([data["file"], kinds], observed=True)))
    for file, kind in sorted({*calls.index.tolist(), *requests}):
        number, moved = calls.loc[(file, kind)].tolist() if (file, kind) in calls.index else (0, 0)
        made = requests.get((file, kind), data[:0])
        sizes = made["length"].to_numpy(np.int64)
        is_read = (made["op"] == "read").to_numpy()
        yield MadeOf(
            file=trace.path(file),
            kind=kind,
            calls=number,
            bytes=moved,
            requests=len(sizes),
            read=int(sizes[is_read].sum()),
            written=int(sizes[~is_read].sum()),
            ranks=tuple(np.unique(made["rank"]).tolist()),
            median=float(np.median(sizes)) if len(sizes) else 0.0,
            largest=int(sizes.max(initial=0)),
        )


def _kinds(trace: Trace, posix: pd.DataFrame) -> pd.Series[Any]:
    """The MPI function in which each of these POSIX calls was made."""
    first: Int64Array = np.searchsorted(trace.records["rank"].to_numpy(), posix["rank"].to_numpy()).astype(np.int64)
    inside = posix["call"].to_numpy() >= 0
    kinds = np.full(len(posix), OUTSIDE, dtype=object)
    places = (first + posix["call"].to_numpy())[inside]
    kinds[inside] = trace.records["kind"].to_numpy(dtype=object)[places]
    return pd.Series(kinds, index=posix.index)
