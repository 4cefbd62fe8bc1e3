"""A trace: what a program did, as tables; and the interface of what can be analyzed, a trace or a trace file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Protocol

import numpy as np
import pandas as pd

from pdla.errors import PdlaError
from pdla.traces.blocks import ROWS, Block, InMemory, blocks
from pdla.traces.file_views import Tilings, View, extents
from pdla.traces.tables import ACCESS_COLUMNS, OPS, POSIX_COLUMNS, categorical, number_calls
from pdla.units import counted, format_count, format_seconds, shown

MOST_NAMED = 8  # files that an error names


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
    seconds: float = 0.0  # from the first rank's MPI_Init to the last one's MPI_Finalize; 0: not known
    levels: Mapping[str, float] = field(default_factory=dict)  # seconds in HDF5, MPI-IO, POSIX, summed over ranks
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

    def only(
        self,
        *,
        file: str | None = None,
        ranks: Iterable[int] | None = None,
        time: tuple[float | None, float | None] = (None, None),
    ) -> Trace:
        """A part of the trace: the calls on these files, by these ranks, that begin in this time.

        Files, views and ranks keep their numbers. The calls of each rank are numbered from 0 again.
        A POSIX call stays with the MPI call in which it was made; one that was made in none stays
        if it fulfils the conditions itself. A note says that this is a part.

        Args:
            file: a path, a name, or a glob for paths, in which ``*`` also matches ``/``; None: all.
            ranks: numbers of ranks; None: all.
            time: seconds since the first rank's MPI_Init, a half-open range; None: no limit. So two
                ranges that adjoin have each call once.

        Raises:
            PdlaError: no file matches, or there is no such rank.
        """
        numbers = None if file is None else self._matching(file)
        chosen = None if ranks is None else self._existing(ranks)

        def fulfils(table: pd.DataFrame) -> pd.Series[bool]:
            begins, (start, stop) = table["t_start"], time
            kept = pd.Series(True, table.index)
            if numbers is not None:
                kept &= table["file"].isin(numbers)
            if chosen is not None:
                kept &= table["rank"].isin(chosen)
            if start is not None:
                kept &= begins >= start
            if stop is not None:
                kept &= begins < stop
            return kept

        kept = fulfils(self.records)
        records = self.records[kept].reset_index(drop=True)
        records["call"] = number_calls(records["rank"])
        return replace(
            self,
            records=records,
            posix=self._posix_of(kept, fulfils(self.posix)),
            seconds=self.seconds if time == (None, None) else 0.0,
            truncated=tuple(rank for rank in self.truncated if chosen is None or rank in chosen),
            notes=(*self.notes, self._part(file, chosen, time)),
        )

    def _matching(self, file: str) -> list[int]:
        """The ids of the files that ``file`` stands for."""
        found = [
            int(number)
            for number, path in zip(self.files["file"], self.files["path"], strict=True)
            if file in (path, PurePath(path).name) or fnmatchcase(path, file)
        ]
        if not found:
            known = ", ".join(map(shown, self.files["path"][:MOST_NAMED]))
            more = ", ..." if len(self.files) > MOST_NAMED else ""
            raise PdlaError(f"no file of the trace matches {file!r}; it has {known or 'no files'}{more}")
        return found

    def _existing(self, ranks: Iterable[int]) -> set[int]:
        found = set(ranks)
        if wrong := sorted(found - set(range(self.ranks))):
            raise PdlaError(f"the trace has {counted(self.ranks, 'rank')}, from 0 on; there is no rank {wrong[0]}")
        return found

    def _posix_of(self, kept: pd.Series[bool], fulfilling: pd.Series[bool]) -> pd.DataFrame:
        """The POSIX calls of the MPI calls that are kept, with their new numbers; and others that fulfil."""
        posix, rank = self.posix, self.records["rank"].to_numpy()
        call = posix["call"].to_numpy()
        inside = call >= 0
        number = np.full(len(rank), -1, np.int64)
        number[kept] = number_calls(rank[kept])
        new = np.full(len(posix), -1, np.int64)
        new[inside] = number[np.searchsorted(rank, posix["rank"].to_numpy()[inside]) + call[inside]]
        stays = np.where(inside, new >= 0, fulfilling)
        return posix.assign(call=new)[stays].reset_index(drop=True)

    def _part(self, file: str | None, ranks: set[int] | None, time: tuple[float | None, float | None]) -> str:
        """A note on what part of a run this is."""
        start, stop = time
        parts = [
            "" if file is None else f"files {shown(file)}",
            "" if ranks is None else f"{format_count(len(ranks))} of {counted(self.ranks, 'rank')}",
            "" if start is None else f"from {format_seconds(start)} on",
            "" if stop is None else f"before {format_seconds(stop)}",
        ]
        return f"this is a part of the run: {', '.join(filter(None, parts)) or 'all of it'}"

    def path(self, file: int) -> str:
        """The path of the file with this id."""
        return str(self.files.loc[self.files["file"] == file, "path"].iloc[0])
