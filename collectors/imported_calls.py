"""What importers share: calls collected in little memory, and the positions of open files."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.errors import FormatError
from pdla.model import Int64Array
from pdla.traces.file_views import View
from pdla.traces.tables import (
    LONGEST,
    MOST_RANKS,
    OPS,
    categorical,
    files_frame,
    operation,
    records_frame,
    seconds,
    silent,
)
from pdla.traces.trace import Trace
from pdla.units import counted

UNKNOWN = -1
"""The offset of a call whose place in the file is not known."""
APPEND = 0o2000  # O_APPEND of Linux, in flags that tools record


class Position:
    """Where the next read or write of an open file begins, as far as recorded calls tell; None: not known."""

    def __init__(self, at: int | None = 0, *, appends: bool = False) -> None:
        self.at = at
        self._appends = appends

    def take(self, op: str, length: int) -> int:
        """The offset of a read or write that moves ``length`` bytes from here on; UNKNOWN if it is not known."""
        if self._appends and op == "write":
            self.at = None  # the end of the file
        offset = self.at
        if offset is None:
            return UNKNOWN
        self.at = offset + length
        return offset


class OpenFiles:
    """The open files of a process.

    RATIONALE: some tools name the file of a call, not its descriptor; then ``descriptor`` is None.
    Positions are known while such a file is open once. The copy of a descriptor moves the position of
    a file, and some tools do not record what is done with it; then its position is not known any more.
    """

    def __init__(self) -> None:
        self._positions: dict[object, Position] = {}
        self._opens: dict[object, int] = {}
        self._shared: set[object] = set()
        self._all_shared = False

    def open(self, file: object, descriptor: int | None, *, appends: bool) -> None:
        """The file was opened."""
        self._opens[file] = self._opens.get(file, 0) + 1
        self._positions[file] = Position(0 if self._alone(file) else None, appends=appends)
        if descriptor is not None:
            self._positions["descriptor", descriptor] = Position(0, appends=appends)

    def close(self, file: object, descriptor: int | None) -> None:
        """The file was closed."""
        self._opens[file] = max(self._opens.get(file, 0) - 1, 0)
        self._positions.pop(self._key(file, descriptor), None)

    def share(self, file: object, descriptor: int | None) -> None:
        """The descriptor was copied; ``file`` None: of a file that is not known."""
        if file is None:
            self._all_shared = True
            for position in self._positions.values():
                position.at = None
            return
        self._shared.add(file)
        self.position(file, descriptor).at = None

    def move(self, file: object, descriptor: int | None, to: int | None) -> None:
        """The position became ``to``; None: it is not known where it is."""
        known = not self._copied(file) and (descriptor is not None or self._alone(file))
        self.position(file, descriptor).at = to if known else None

    def position(self, file: object, descriptor: int | None) -> Position:
        """Where the next call begins."""
        return self._positions.setdefault(self._key(file, descriptor), Position(None))

    def _alone(self, file: object) -> bool:
        return self._opens.get(file) == 1 and not self._copied(file)

    def _copied(self, file: object) -> bool:
        return self._all_shared or file in self._shared

    def _key(self, file: object, descriptor: int | None) -> object:
        return file if descriptor is None else ("descriptor", descriptor)


class Calls:
    """Reads, writes and other calls of all ranks, in any order; times in nanoseconds.

    A source may have both the MPI-IO calls on a file and the POSIX calls that the MPI library made
    of them. Then the file has its MPI-IO calls, if the place and the size of all are known, otherwise
    its POSIX calls.
    """

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in ("rank", "kind", "file", "offset", "length", "start", "end")}
        self._flags = {name: array("b") for name in ("collective", "asked", "mpi", "unsized")}
        self._kinds: dict[str, int] = {}
        self._files: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._columns["rank"])

    def add(
        self,
        rank: int,
        kind: str,
        path: str,
        offset: int,
        length: int | None,
        start: int,
        end: int,
        *,
        mpi: bool = False,
        collective: bool = False,
        moved_known: bool = True,
    ) -> None:
        """A call. Its ``kind`` says what it does to the file (tables.operation). ``length`` None: not known.

        Raises:
            FormatError: a number is impossible.
        """
        unsized, length = length is None, length or 0
        if not (
            0 <= rank < MOST_RANKS
            and offset >= UNKNOWN
            and 0 <= length < 2**63 - offset
            and abs(start) < LONGEST * 10**9
            and start <= end < LONGEST * 10**9
        ):
            raise FormatError(
                f"an impossible call: {kind} of rank {rank}, offset {offset}, length {length}, {start} to {end} ns"
            )
        values = (
            *(rank, self._kinds.setdefault(kind, len(self._kinds)), self._files.setdefault(path, len(self._files))),
            *(offset, length, start, end),
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        for flag, on in zip(self._flags.values(), (collective, not moved_known, mpi, unsized), strict=True):
            flag.append(on)

    def trace(self, *, ranks: int, notes: Sequence[str], zero: int | None = None, **about: Any) -> Trace:
        """The calls as a trace whose time 0 is ``zero`` ns, else the start of the first one.

        ``about`` are attributes of Trace.
        """
        columns = {name: np.frombuffer(values, dtype=np.int64) for name, values in self._columns.items()}
        flags = {name: np.frombuffer(values, dtype=np.int8).astype(bool) for name, values in self._flags.items()}
        chosen, replaced = self._chosen(columns, flags)
        order = np.lexsort((columns["start"][chosen], columns["rank"][chosen]))
        columns = {name: values[chosen][order] for name, values in columns.items()}
        flags = {name: values[chosen][order] for name, values in flags.items()}
        kinds = list(self._kinds)
        op = np.array([OPS.index(operation(kind.lower())) for kind in kinds], dtype=np.int8)[columns["kind"]]
        zero = int(columns["start"].min()) if zero is None else zero
        users = np.unique(np.stack((columns["file"], columns["rank"])), axis=1)[0]
        number = np.bincount(users, minlength=len(self._files)).tolist()
        unplaced = int(np.count_nonzero((op < 2) & (columns["offset"] == UNKNOWN)))
        below = (
            f"{counted(replaced, 'file')} with MPI-IO calls whose place or size is not known: "
            "these are the POSIX calls that the MPI library made"
        )
        lost = f"the place of the bytes of {counted(unplaced, 'call')} is not known: their offset is -1"
        frame: Mapping[str, Any] = {
            **{name: columns[name] for name in ("rank", "file", "offset", "length")},
            "collective": flags["collective"],
            "moved_known": ~flags["asked"],
            "t_start": seconds(columns["start"] - zero),
            "t_end": seconds(columns["end"] - zero),
            "op": categorical(op, OPS),
            "kind": categorical(columns["kind"].astype(np.int16), kinds),
        }
        return Trace(
            records=records_frame(frame),
            files=files_frame([{"path": path, "ranks": of} for path, of in zip(self._files, number, strict=True)]),
            views=(View.plain(),),
            ranks=ranks,
            notes=(
                *notes,
                *([below] if replaced else []),
                *([lost] if unplaced else []),
                *silent(ranks, columns["rank"]),
            ),
            **about,
        )

    def _chosen(
        self, columns: Mapping[str, Int64Array], flags: Mapping[str, npt.NDArray[np.bool_]]
    ) -> tuple[npt.NDArray[np.bool_], int]:
        """The calls that the trace has, and the number of files whose POSIX calls replace those of MPI-IO."""
        mpi, file = flags["mpi"], columns["file"]
        data = np.array([operation(kind.lower()) != "other" for kind in self._kinds])[columns["kind"]]
        above, below, lost = (
            np.bincount(file[which & data], minlength=len(self._files)) > 0
            for which in (mpi, ~mpi, mpi & ((columns["offset"] == UNKNOWN) | flags["unsized"]))
        )
        replaced = above & below & lost
        return mpi == (above & ~replaced)[file], int(replaced.sum())
