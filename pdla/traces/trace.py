"""A trace: what a program did, as tables; and the interface of what can be analyzed, a trace or a trace file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from pdla.traces.blocks import ROWS, Block, InMemory, blocks
from pdla.traces.file_views import Tilings, View, extents
from pdla.traces.tables import ACCESS_COLUMNS, OPS, POSIX_COLUMNS, categorical


class Source(Protocol):
    """What can be analyzed: a Trace, or a trace file of any size that is read a block at a time."""

    @property
    def files(self) -> pd.DataFrame:
        """A row per file (FILE_DTYPES)."""

    def blocks(self, part: int = 0, parts: int = 1) -> Iterator[Block]:
        """The data calls of one part of the ranks; the parts are about equal, in the order of the ranks."""


def _no_posix() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in POSIX_COLUMNS.items()})


@dataclass(frozen=True)
class Trace:
    """What a program did: ``records`` has a row per call (RECORD_COLUMNS), ``files`` one per file (FILE_DTYPES).

    ``views`` are the file views of the records, as loops; ``views[0]`` is the plain file. ``posix``
    has a row per POSIX call (POSIX_COLUMNS), if these were recorded.
    """

    records: pd.DataFrame
    files: pd.DataFrame
    views: Sequence[View]
    command: str = ""
    ranks: int = 0
    mpi: str = ""
    source: str = "pdla"
    dropped: int = 0
    truncated: tuple[int, ...] = ()  # ranks whose log ends before MPI_Finalize
    unrecorded: Mapping[str, int] = field(default_factory=dict)  # calls that passed through, by name
    notes: tuple[str, ...] = ()  # what the source does not say
    started: float = 0.0  # seconds since 1970 of the first rank's MPI_Init; 0: not known
    hosts: tuple[str, ...] = ()  # the names of the nodes that its ranks ran on
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that control MPI-IO programs
    posix: pd.DataFrame = field(default_factory=_no_posix)

    def accesses(self) -> pd.DataFrame:
        """A row per contiguous extent in the file (ACCESS_COLUMNS), views expanded, in the order of rank and call.

        Calls that moved nothing, and calls whose place in the file is not known (offset -1), have
        no row.
        """
        records = self.records
        data = records["op"].isin(OPS[:2]) & (records["length"] > 0) & (records["offset"] >= 0)
        if not data.all():
            records = records[data]
        call, offset, length = extents(
            Tilings.of(self.views), *(records[name].to_numpy() for name in ("view", "position", "offset", "length"))
        )
        columns = {
            name: records[name].to_numpy() for name in ("rank", "call", "file", "collective", "t_start", "t_end")
        }
        columns["op"] = records["op"].cat.set_categories(list(OPS[:2])).cat.codes.to_numpy()
        if call is not None:
            columns = {name: values[call] for name, values in columns.items()}
        table = {**columns, "op": categorical(columns["op"], OPS[:2]), "offset": offset, "length": length}
        return pd.DataFrame({name: table[name] for name in ACCESS_COLUMNS}, copy=False)

    def blocks(self, part: int = 0, parts: int = 1, rows: int = ROWS) -> Iterator[Block]:
        """The data calls of one of ``parts`` parts of the ranks, about ``rows`` calls and extents at a time."""
        return blocks(InMemory(self.records, self.views), part, parts, rows)

    def path(self, file: int) -> str:
        """The path of the file with this id."""
        return str(self.files.loc[self.files["file"] == file, "path"].iloc[0])
