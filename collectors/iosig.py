"""Import text traces of IOSIG, of its first versions and of its last, which differ in the order of the columns."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pdla.collectors.reading import Progress, Reading
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import IOSIG, check
from pdla.traces.file_views import View
from pdla.traces.tables import (
    LONGEST,
    MOST_RANKS,
    OPS,
    categorical,
    files_frame,
    nanoseconds,
    operation,
    records_frame,
    seconds,
    silent,
)
from pdla.traces.trace import Trace
from pdla.units import counted

_CALL = r"(?P<call>NOT KNOWN|[A-Z]+_[A-Z]+)"
_SIZES = r"(?P<file>-?\d+)\s+(?P<offset>-?\d+)\s+(?P<length>-?\d+)\s+(?P<t_start>-?\d+\.\d+)"
# pid rank file pos size t op [t_end]; before the process id was printed: rank file pos size t op
_FIRST = re.compile(rf"\s*(?:\d+\s+)?(?P<rank>-?\d+)\s+{_SIZES}\s+{_CALL}(?:\s+(?P<t_end>-?\d+\.\d+))?\s*")
# op fd pos size start end path|-
_LAST = re.compile(rf"{_CALL}\s+{_SIZES}\s+(?P<t_end>-?\d+\.\d+)\s+(?P<path>.+?)\s*")
_NO_RECORD = re.compile(r"\s*(#.*|=*|End of trace|(Proc ID\s+)?MPI_Rank\s+File #.*)\s*")
_RANK_IN_NAME = re.compile(r"rank-(\d+)\.out$|trace_r(\d+)\.out$")

_NAMES = {
    "OPEN": "open",
    "CLOSE": "close",
    "SEEK": "seek",
    **{
        f"{start}{op}{end}".upper(): f"{start}{op}{name}"
        for start in ("", "i")
        for op in OPS[:2]
        for end, name in (("", ""), ("at", "_at"), ("all", "_all"), ("atall", "_at_all"), ("sh", "_shared"))
    },
    "READORD": "read_ordered",
    "WRITEORD": "write_ordered",
}
_COLLECTIVE = re.compile(r"MPI_(OPEN|CLOSE|.*ALL|.*ORD)")


class _Record(NamedTuple):
    rank: int
    call: str
    path: str
    offset: int
    length: int
    t_start: float
    t_end: float


def import_iosig(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """The calls in an IOSIG trace: one text file, or a directory with a file for each rank.

    ``progress`` is told how many bytes are read.

    Raises:
        PdlaError: the trace cannot be read.
        FormatError: a line has neither format; the message names it.
    """
    source = Path(path)
    if not source.is_dir():
        check(source, IOSIG)
    try:
        logs = _logs(source)
        reading = Reading(logs, progress)
        records = [record for log in logs for record in _read(log, reading)]
    except OSError as error:
        raise PdlaError(f"cannot read {error.filename or source}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{source} is not an IOSIG trace: {error}") from None
    if not records:
        raise FormatError(f"{source} has no IOSIG record")
    return _trace(source, records)


def _logs(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    logs = sorted(source.glob("mpiio_trace_rank-*.out")) or sorted(source.glob("trace_*.out"))
    if not logs:
        raise FormatError(f"{source} has neither mpiio_trace_rank-*.out nor trace_*.out: is it a directory of IOSIG?")
    return logs


def _read(log: Path, reading: Reading) -> Iterator[_Record]:
    named = _RANK_IN_NAME.search(log.name)
    rank_of_name = int(named[1] or named[2]) if named else 0
    paths: dict[str, str] = {}
    with io.TextIOWrapper(reading.open(log), encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            found = _FIRST.fullmatch(line) or _LAST.fullmatch(line)
            if not found:
                if _NO_RECORD.fullmatch(line):
                    continue
                raise FormatError(f"{log}, line {number}: not an IOSIG record: {line.strip()[:80]!r}")
            record = found.groupdict()
            file = record["file"]
            if record.get("path", "-") != "-":
                paths[file] = record["path"]
            rank = int(record.get("rank", -1))
            t_start = float(record["t_start"])
            made = _Record(
                rank if rank >= 0 else rank_of_name,
                record["call"],
                paths.get(file, f"file {file}"),
                max(-1, int(record["offset"])),
                max(0, int(record["length"])),
                t_start,
                max(t_start, float(record["t_end"] or t_start)),
            )
            if (
                made.rank >= MOST_RANKS
                or made.offset + made.length >= 2**63
                or max(abs(t_start), made.t_end) >= LONGEST
            ):
                raise FormatError(f"{log}, line {number}: a number is too large: {line.strip()[:80]!r}")
            yield made


def _kind(call: str) -> str:
    """The MPI function that IOSIG means: MPI_READATALL is MPI_File_read_at_all. POSIX calls keep their names."""
    name = _NAMES.get(call.removeprefix("MPI_")) if call.startswith("MPI_") else None
    return f"MPI_File_{name}" if name else call


def _trace(source: Path, records: list[_Record]) -> Trace:
    ranks, calls, paths, offsets, lengths, starts, ends = zip(*records, strict=True)
    kinds = list(dict.fromkeys(_kind(call) for call in calls))
    kind = np.array([kinds.index(_kind(call)) for call in calls], dtype=np.int16)
    op = np.array([OPS.index(operation(name.lower())) for name in kinds], dtype=np.int8)[kind]
    # IOSIG writes a close with file 0, whatever file it is.
    data = dict.fromkeys(path for path, code in zip(paths, op.tolist(), strict=True) if code < 2)
    numbers = {path: number for number, path in enumerate(data or dict.fromkeys(paths))}
    file = np.array([numbers.get(path, -1) for path in paths], dtype=np.int32)
    rank = np.array(ranks, dtype=np.int32)
    users = np.unique(np.stack((file, rank)), axis=1)[0]
    order = np.argsort(rank, kind="stable")
    columns = {
        "rank": rank,
        "file": file,
        "collective": np.array([_COLLECTIVE.fullmatch(call) is not None for call in calls]),
        "offset": np.where(op < 2, np.array(offsets, dtype=np.int64), 0),
        "length": np.where(op < 2, np.array(lengths, dtype=np.int64), 0),
        "t_start": seconds(nanoseconds(starts)),
        "t_end": seconds(nanoseconds(ends)),
    }
    notes = [
        "IOSIG does not record file views: each call counts as one extent from its first byte on",
        "IOSIG records what a call asked for, not what it moved",
    ]
    if starts == ends:
        notes.append("this version of IOSIG did not record when calls ended")
    if unplaced := sum(offset < 0 for offset, code in zip(offsets, op.tolist(), strict=True) if code < 2):
        notes.append(f"the place of the bytes of {counted(unplaced, 'call')} is not known: their offset is -1")
    time = np.array(starts)[order]
    if back := int(np.count_nonzero((np.diff(time) < 0) & (np.diff(rank[order]) == 0))):
        notes.append(f"a clock was set back {counted(back, 'time')}: calls start before the previous one")
    notes += silent(max(ranks) + 1, rank)
    if any(path.startswith("file ") for path in numbers):
        notes.append("this trace does not name all its files: those have the numbers that IOSIG gave them")
    return Trace(
        records=records_frame(
            {
                **{name: values[order] for name, values in columns.items()},
                "op": categorical(op[order], OPS),
                "kind": categorical(kind[order], kinds),
                "moved_known": np.zeros(len(order), dtype=bool),
            }
        ),
        files=files_frame([{"path": path, "ranks": int((users == number).sum())} for path, number in numbers.items()]),
        views=(View.plain(),),
        command=f"imported from {source.name}",
        ranks=max(ranks) + 1,
        source="iosig",
        notes=tuple(notes),
    )
