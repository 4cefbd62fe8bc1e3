"""Import traces of Recorder: a grammar of calls and their times for each rank.

A trace is a directory. ``recorder.mt`` has the number of ranks, the unit of times and the names of
the functions. For each rank there are call signatures (a function and its arguments), a grammar
whose terminals are signatures, and the start and end of each call. From version 3 on these are
packed, and the times of all ranks are in one file.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pdla.collectors.imported_calls import APPEND, UNKNOWN, Calls, OpenFiles
from pdla.collectors.reading import Progress
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import RECORDER, check
from pdla.model import Int64Array
from pdla.traces.tables import MOST_RANKS, operation
from pdla.traces.trace import Trace

_ROOT = -1  # the first rule of a grammar; rules are negative, terminals are not
_FUNCTIONS_AT = 1024  # of recorder.mt, from version 3 on
_SIZES = {
    **dict.fromkeys(("BYTE", "CHAR", "SIGNED_CHAR", "UNSIGNED_CHAR", "PACKED", "CHARACTER", "C_BOOL"), 1),
    **dict.fromkeys(("INT8_T", "UINT8_T", "INTEGER1", "CXX_BOOL"), 1),
    **dict.fromkeys(("SHORT", "UNSIGNED_SHORT", "INT16_T", "UINT16_T", "INTEGER2"), 2),
    **dict.fromkeys(("INT", "UNSIGNED", "FLOAT", "INT32_T", "UINT32_T", "INTEGER", "INTEGER4", "REAL", "REAL4"), 4),
    **dict.fromkeys(("LOGICAL", "WCHAR"), 4),
    **dict.fromkeys(("LONG", "UNSIGNED_LONG", "LONG_LONG", "LONG_LONG_INT", "UNSIGNED_LONG_LONG", "DOUBLE"), 8),
    **dict.fromkeys(("INT64_T", "UINT64_T", "INTEGER8", "REAL8", "DOUBLE_PRECISION", "COMPLEX", "COMPLEX8"), 8),
    **dict.fromkeys(("C_COMPLEX", "C_FLOAT_COMPLEX", "AINT", "OFFSET", "COUNT"), 8),
    **dict.fromkeys(("LONG_DOUBLE", "COMPLEX16", "DOUBLE_COMPLEX", "C_DOUBLE_COMPLEX"), 16),
}
"""Bytes of the MPI datatypes that have a name, on 64-bit Linux."""
_OPENS = {"open", "open64", "creat", "creat64", "fopen", "fopen64"}
_STREAMS = {"fread", "fwrite"}
_NOTES = (
    "Recorder does not record what calls return: each counts as if it moved all bytes that it asked for",
    "the times of each rank count from its own start",
)


class _Signature(NamedTuple):
    function: str
    arguments: tuple[str, ...]


class _Call(NamedTuple):
    """A read or write. ``length`` is None if the size of its datatype is not known."""

    mpi: bool
    function: str
    path: str
    offset: int
    length: int | None
    start: int
    end: int


def import_recorder(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """The reads and writes in a trace directory of Recorder, versions 2.3 to 3.

    A file has its MPI-IO calls, if the place and the size of all are known, otherwise its POSIX
    calls: Recorder does not record derived datatypes, and so no file views. ``progress`` is told how
    many ranks are read.

    Raises:
        PdlaError: the trace cannot be read, or has no read or write.
        FormatError: it is cut short or damaged, of another version, or something else.
    """
    source = Path(path)
    check(source, RECORDER)
    try:
        directory = _Directory(source)
        return _trace(source, directory, progress)
    except OSError as error:
        raise PdlaError(f"cannot read {error.filename or source}: {error.strerror}") from None
    except (struct.error, zlib.error, IndexError, KeyError, ValueError, OverflowError, MemoryError) as error:
        raise FormatError(f"the Recorder trace {source} is cut short or damaged: {error or 'too large'}") from None


def _trace(source: Path, directory: _Directory, progress: Progress | None) -> Trace:
    calls, streams = Calls(), False
    for rank in range(directory.ranks):
        for mpi, function, file, offset, length, start, end in _calls(directory, rank):
            shared = mpi and (function.endswith("_all") or "_all_" in function or "ordered" in function)
            calls.add(
                *(rank, function, file, offset, length, start, end), mpi=mpi, collective=shared, moved_known=False
            )
            streams |= function in _STREAMS
        if progress:
            progress("reading", rank + 1, directory.ranks)
    if not len(calls):
        raise PdlaError(f"{source} has no read or write")
    notes = list(_NOTES)
    if streams:
        notes.append("Recorder does not record fprintf: streams that it moves are elsewhere than this trace says")
    return calls.trace(
        ranks=directory.ranks,
        notes=notes,
        source="recorder",
        command=f"imported from {source.resolve().name}",
        zero=0,
        started=directory.started,
    )


class _Directory:
    """The files of a trace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = self._find_version()
        header = (path / "recorder.mt").read_bytes()
        packed = self._version >= (3, 0)
        self.ranks, self.started, resolution = struct.unpack_from("<i12xdd" if packed else "<i4xdd", header)
        if not (0 < self.ranks < MOST_RANKS and 0 < resolution < 1 and 0 <= self.started < 2**40):
            raise ValueError("recorder.mt has impossible numbers")
        self._nanoseconds = resolution * 1e9
        self._times_packed = self._merged = False
        if packed:
            self._times_packed, self._merged, *patterns = struct.unpack_from("<????", header, 36)
            if any(patterns):
                raise PdlaError(f"{path} was recorded with pattern recognition, which pdla cannot read: turn it off")
        elif self._version >= (2, 4):
            self._merged = bool(struct.unpack_from("<i", header, 32)[0])
        names = header[_FUNCTIONS_AT if packed else (40 if self._version >= (2, 4) else 32) :]
        self._functions = names.decode("ascii").split("\n")
        self._common = self._signatures("recorder.cst" if packed else "0.cst") if self._merged else None
        self._of_rank = self._grammars() if self._merged else {}

    def _find_version(self) -> tuple[int, int]:
        text = (self._path / "VERSION").read_text("ascii", "replace").strip()
        parts = text.split(".")
        version = (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(map(str.isdigit, parts[:2])) else (0, 0)
        if not (2, 3) <= version < (4, 0):
            raise FormatError(f"{self._path} is of Recorder {text[:20]!r}; pdla reads versions 2.3 to 3")
        return version

    def calls(self, rank: int) -> Iterator[tuple[_Signature, int, int]]:
        """The calls of a rank in the order of their start: signature, start and end in nanoseconds."""
        signatures = self._common or self._signatures(f"{rank}.cst")
        grammar = self._of_rank[rank] if self._merged else self._unpacked(self._bytes(f"{rank}.cfg"))[0]
        times = self._times(rank)
        if len(times) % 2:
            raise ValueError(f"the last call of rank {rank} has no end")
        terminals = _expanded(grammar, len(times) // 2)
        if len(terminals) and int(terminals.max()) >= len(signatures):
            raise ValueError(f"a call of rank {rank} has no signature")
        # The times of a call count from the start of the call before.
        start = np.cumsum(times[0::2])
        end = np.maximum(start, start - times[0::2] + times[1::2])
        for terminal, *at in zip(
            *(part.tolist() for part in (terminals, *map(self._rounded, (start, end)))), strict=True
        ):
            yield signatures[terminal], *at

    def _rounded(self, ticks: Int64Array) -> Int64Array:
        return np.asarray(np.rint(ticks * self._nanoseconds), dtype=np.int64)

    def _bytes(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def _unpacked(self, data: bytes, at: int = 0) -> tuple[bytes, int]:
        """Bytes that are packed from version 3 on, and where they end."""
        if self._version < (3, 0):
            return data[at:], len(data)
        size, whole = struct.unpack_from("<QQ", data, at)
        packed = data[at + 16 : at + 16 + size]
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(packed, whole + 1)
        if len(packed) < size or len(content) != whole:
            raise ValueError("packed bytes end early")
        return content, at + 16 + size

    def _signatures(self, name: str) -> Sequence[_Signature]:
        data, _ = self._unpacked(self._bytes(name))
        (number,) = struct.unpack_from("<i", data)
        found: dict[int, _Signature] = {}
        place = 4
        for _ in range(number):
            # Version 2.3 has neither the rank nor how often.
            terminal, size = struct.unpack_from("<i4xi" if self._version >= (2, 4) else "<ii", data, place)
            place += 16 if self._version >= (2, 4) else 8
            key = data[place : place + size]
            function, _, count, length = struct.unpack_from("<8xBBBi", key)
            arguments = key[15 : 15 + length].decode("utf-8", "surrogateescape").split(" ")
            if len(key) < size or len(arguments) != count + 1 or not 0 <= terminal < number:
                raise ValueError(f"{name} has an impossible signature")
            called = "" if function == 255 else self._functions[function].removeprefix("P")
            found[terminal] = _Signature(called, tuple(arguments[:-1]))
            place += size
        return [found[terminal] for terminal in range(number)]

    def _grammars(self) -> Mapping[int, bytes]:
        """The grammar of each rank, of those that are different."""
        numbers = struct.unpack_from(f"<{self.ranks + 1}i", self._bytes("ug.mt"))
        if self._version < (3, 0):
            different = [self._bytes(f"{number}.cfg") for number in range(numbers[-1])]
        else:
            different, data, place = [], self._bytes("ug.cfg"), 0
            for _ in range(numbers[-1]):
                grammar, place = self._unpacked(data, place)
                different.append(grammar)
        if min(numbers) < 0:
            raise ValueError("ug.mt has impossible numbers")
        return {rank: different[number] for rank, number in enumerate(numbers[:-1])}

    def _times(self, rank: int) -> Int64Array:
        if self._version < (3, 0):
            data = self._bytes(f"{rank}.ts")
        else:
            data = self._bytes("recorder.ts")
            sizes = struct.unpack_from(f"<{self.ranks}Q", data)
            begin = 8 * self.ranks + sum(sizes[:rank])
            data = data[begin : begin + sizes[rank]]
            if len(data) < sizes[rank]:
                raise ValueError("recorder.ts ends early")
            if self._times_packed:
                parts, place = [], 0
                while place < len(data):
                    part, place = self._unpacked(data, place)
                    parts.append(part)
                data = b"".join(parts)
        return np.frombuffer(data, dtype="<u4").astype(np.int64)


def _expanded(data: bytes, calls: int) -> Int64Array:
    """The terminals that a grammar stands for, in order; they must be as many as ``calls``."""
    (number,) = struct.unpack_from("<i", data)
    rules: dict[int, npt.NDArray[np.int32]] = {}
    place = 4
    for _ in range(number):
        rule, symbols = struct.unpack_from("<ii", data, place)
        if symbols < 0:
            raise ValueError("a rule has an impossible length")
        rules[rule] = np.frombuffer(data, "<i4", 2 * symbols, place + 8).reshape(-1, 2)
        place += 8 + 8 * symbols
    order = _inner_first(rules)
    # A damaged grammar may stand for more than fits into memory.
    lengths: dict[int, int] = {}
    for rule in order:
        lengths[rule] = sum(times * (lengths[symbol] if symbol < 0 else 1) for symbol, times in rules[rule].tolist())
    if lengths[_ROOT] != calls:
        raise ValueError(f"a grammar has {lengths[_ROOT]} calls, and there are times of {calls}")
    done: dict[int, Int64Array] = {}
    for rule in order:
        parts = [
            np.tile(done[symbol], times) if symbol < 0 else np.full(times, symbol, dtype=np.int64)
            for symbol, times in rules[rule].tolist()
        ]
        done[rule] = np.concatenate([np.empty(0, np.int64), *parts])
    return done[_ROOT]


def _inner_first(rules: Mapping[int, npt.NDArray[np.int32]]) -> list[int]:
    """The rules that the root consists of, each after those in it."""

    def inner(rule: int) -> Iterator[int]:
        symbols, times = rules[rule].T
        if len(times) and times.min() < 1:
            raise ValueError("a rule has an impossible number of repetitions")
        return iter(symbols[symbols < 0].tolist())

    order: list[int] = []
    seen, within = set[int](), {_ROOT: inner(_ROOT)}
    while within:
        rule = next(reversed(within))
        for symbol in within[rule]:
            if symbol in within:
                raise ValueError("a rule contains itself")
            if symbol not in seen:
                within[symbol] = inner(symbol)
                break
        else:
            del within[rule]
            seen.add(rule)
            order.append(rule)
    return order


class _MpiFile:
    """An open MPI file of a rank: its position in bytes, None if it is not known."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.displacement, self.etype = 0, 1
        self.plain = True
        self.at: int | None = 0

    def view(self, displacement: int, etype: int | None, filetype: int | None) -> None:
        """A view of named datatypes has no holes."""
        self.plain = etype is not None and filetype is not None
        self.displacement, self.etype, self.at = displacement, etype or 1, 0

    def place(self, position: int) -> int:
        """The offset in the file of a position in the view, counted in etypes."""
        return self.displacement + position * self.etype if self.plain else UNKNOWN


def _calls(directory: _Directory, rank: int) -> Iterator[_Call]:
    """The reads and writes of a rank."""
    opened, files = dict[str, _MpiFile](), OpenFiles()
    for (function, arguments), start, end in directory.calls(rank):
        if function.startswith("MPI_File_"):
            found = _mpi(function, arguments, opened)
        elif function and not function.startswith(("MPI_", "H5", "nc")):
            found = _posix(function, arguments, files)
        else:
            continue
        if found:
            path, offset, length = found
            yield _Call(function.startswith("MPI_"), function, path, offset, length, start, end)


def _mpi(function: str, words: Sequence[str], opened: dict[str, _MpiFile]) -> tuple[str, int, int | None] | None:
    """Path, offset and length, if it is a read or write."""
    if function == "MPI_File_open":
        opened[words[4]] = _MpiFile(words[1])
        return None
    file = opened.setdefault(words[0], _MpiFile(f"MPI file {words[0]}"))
    if function == "MPI_File_close":
        del opened[words[0]]
    elif function == "MPI_File_set_view":
        file.view(int(words[1]), _size(words[2]), _size(words[3]))
    elif function == "MPI_File_seek":
        base = {"MPI_SEEK_SET": 0, "MPI_SEEK_CUR": file.at}.get(words[2])
        file.at = None if base is None else base + int(words[1])
    if operation(function) == "other" or function.endswith("_end"):
        return None
    explicit = "_at" in function
    count, size = int(words[3 if explicit else 2]), _size(words[4 if explicit else 3])
    length = None if size is None else count * size
    if explicit:
        return file.path, file.place(int(words[1])), length
    if "shared" in function or "ordered" in function or file.at is None:
        return file.path, UNKNOWN, length
    offset = file.place(file.at)
    file.at = None if length is None or length % file.etype else file.at + length // file.etype
    return file.path, offset, length


def _size(datatype: str) -> int | None:
    return _SIZES.get(datatype.removeprefix("MPI_"))


def _posix(function: str, words: Sequence[str], files: OpenFiles) -> tuple[str, int, int] | None:
    """Path, offset and length, if it is a read or write."""
    name = function.removesuffix("64")
    if function in _OPENS:
        appends = words[1].startswith("a") if name == "fopen" else name == "open" and bool(int(words[1]) & APPEND)
        files.open(words[0], None, appends=appends)
    elif name in ("close", "fclose"):
        files.close(words[0], None)
    elif name in ("dup", "dup2"):
        files.share(None, None)
    elif name in ("lseek", "fseek", "fseeko"):
        base = {0: 0, 1: files.position(words[0], None).at}.get(int(words[2]))
        files.move(words[0], None, None if base is None else base + int(words[1]))
    elif name in ("pread", "pwrite"):
        return words[0], int(words[3]), int(words[2])
    elif name in ("fread", "fwrite"):
        length = int(words[1]) * int(words[2])
        return words[3], files.position(words[3], None).take(operation(name), length), length
    elif name in ("read", "write", "readv", "writev"):
        length = int(words[1 if name.endswith("v") else 2])
        return words[0], files.position(words[0], None).take(operation(name), length), length
    elif name == "vfprintf":
        files.move(words[0], None, None)
    return None
