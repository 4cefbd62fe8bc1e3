"""The journals of redirected writes, byte for byte as replicator/stub/journal.h defines them.

A journal notes which bytes of write replicas are newer than the original. Each process has one for
each open file that it writes to. Whoever holds the lock of their directory is the only one who uses
them.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from pdla.errors import FormatError
from pdla.file_kinds import other_format
from pdla.model import Identity, Int64Array
from pdla.processes import this_boot
from pdla.replicator.file_identity import RECORD as IDENTITY
from pdla.replicator.file_identity import FileIdentity, read_identity

MAGIC = b"PDLAJNL4"
OLDER_MAGIC = b"PDLAJNL3"
"""Of version 0.2.0, whose journals name the original by its number and its birth only."""
LOCK = "lock"
SUFFIX = ".journal"
UNFINISHED = ".new"
"""The name of a journal that is being made and has no entries yet."""
HEADER_SIZE = 4096
ATTRIBUTES = np.dtype([("mode", "<u4"), ("owner", "<u4"), ("group", "<u4"), ("links", "<u4")])
_TIMES = [("sequence", "<u8"), ("size", "<i8"), ("mtime_ns", "<i8"), ("ctime_ns", "<i8")]
_NOTES = [("stamp_ns", "<i8"), ("busy", "<u8"), ("overtaken", "<u4"), ("checksum", "<u4")]
STATE = np.dtype([*_TIMES, ("attributes", ATTRIBUTES), *_NOTES])
_OLDER_STATE = np.dtype([*_TIMES, *_NOTES])
OWN_FILE = np.dtype([("inode", "<u8"), ("checksum", "<u8")])
_PROCESS: list[Any] = [
    ("magic", "S8"),
    ("checksum", "<u4"),
    ("rank", "<i4"),
    ("boot", "S40"),
    ("host", "S64"),
    ("pid", "<i8"),
]
_PLACES: list[Any] = [
    ("lease", "<u8"),
    ("target", "S2048"),
    ("cache", "S1024"),
    ("count", "<u8"),
    ("synced", "<u8"),
    ("home", "<u8"),
]
HEADER = np.dtype([*_PROCESS, ("original", IDENTITY), *_PLACES, ("states", STATE, 2), ("cache_file", OWN_FILE)])
_OLDER_ORIGINAL = [("device", "<u8"), ("inode", "<u8"), ("birth_ns", "<i8")]
OLDER_HEADER = np.dtype([*_PROCESS, *_OLDER_ORIGINAL, *_PLACES, ("states", _OLDER_STATE, 2)])
ENTRY = np.dtype([("place", "<u8"), ("start", "<i8"), ("stamp", "<u8"), ("seal", "<u8")])


@dataclass(frozen=True)
class Journal:
    """What one process had written to replicas of a target, or to a cache file, without write-back, by its last note.

    ``entries`` are rows (replica, start, stop) of bytes of replicas or, if there is a ``cache``
    (the path of the cache file, on the node ``host``), rows (where in the cache file, start, stop)
    of bytes of the original. Of entries of several journals for one byte, that with the latest of
    ``stamps`` has the newest; within a journal, the last. The original has the first ``home``
    entries. The first ``synced`` were durable. The others count only in the same ``boot`` of the
    node: what a killed process wrote stays, but not after a crash of the node. ``damaged`` is the
    number of unreadable entries after the first ``home``, ``count`` the number of all entries,
    readable or not. ``file`` tells which file the original is; ``left`` is its state, and
    ``attributes`` are its mode, owner, group and links (empty: not known), when the process last
    finished with it. ``busy``: the process had not finished with it, or not since ``stamp_ns``.
    ``overtaken``: the original may have newer bytes. ``cache_inode`` is the number of the cache
    file (0: not known).
    """

    path: Path
    target: Path
    rank: int
    boot: str
    host: str
    lease: bool
    cache: Path | None
    count: int
    entries: Int64Array
    stamps: Int64Array
    home: int
    synced: int
    damaged: int
    file: FileIdentity
    left: Identity
    attributes: tuple[int, ...]
    cache_inode: int
    busy: bool
    stamp_ns: int
    overtaken: bool

    @property
    def waiting(self) -> Int64Array:
        """The entries that the original does not have."""
        return self.entries[self.home :]

    @property
    def is_of_this_boot(self) -> bool:
        """Whether a process of this node wrote it since the node was started."""
        return self.boot == this_boot()

    @property
    def is_of_this_node(self) -> bool:
        """Whether a process of this node wrote it, in this boot or an earlier one."""
        return self.host == socket.gethostname()[:63]

    @property
    def bytes(self) -> int:
        """Bytes that the original does not have. Bytes that were written repeatedly may count repeatedly."""
        return int((self.waiting[:, 2] - self.waiting[:, 1]).sum())


def read_journal(path: Path) -> Journal:
    """Read the journal at ``path``.

    Raises:
        FormatError: the file cannot be read, is not a journal, or has a damaged header.
    """
    try:
        image = path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from error
    older = image.startswith(OLDER_MAGIC)
    if not older and (why := other_format(image, MAGIC)):
        raise FormatError(f"{path} cannot be read as a journal: {why}")
    if len(image) < HEADER_SIZE:
        raise FormatError(f"{path} is a damaged journal: it has no whole header")
    header = _header(image)
    if header["checksum"] != google_crc32c.value(image[_place(header, "rank") : _place(header, "count")]):
        raise FormatError(f"{path} is a damaged journal: the checksum of its header is wrong")
    count, synced, home = (_number(path, header, name) for name in ("count", "synced", "home"))
    if count > (len(image) - HEADER_SIZE) // ENTRY.itemsize or synced > count:
        raise FormatError(f"{path} is a damaged journal: it is too short for its {count} entries")
    rows = np.frombuffer(image, dtype=ENTRY, count=count, offset=HEADER_SIZE)
    entries, whole = _entries(rows)
    cache = _text(header["cache"])
    state = _state(path, header)
    file = _older_identity(header) if older else read_identity(header["original"])
    return Journal(
        path=path,
        target=Path(os.fsdecode(_text(header["target"]))),
        rank=int(header["rank"]),
        boot=_text(header["boot"]).decode("ascii", "replace"),
        host=os.fsdecode(_text(header["host"])),
        lease=bool(header["lease"]),
        cache=Path(os.fsdecode(cache)) if cache else None,
        count=count,
        entries=entries[whole],
        stamps=rows["stamp"].astype(np.int64)[whole],
        home=int(whole[:home].sum()),
        synced=int(whole[:synced].sum()),
        damaged=int((~whole[home:]).sum()),
        file=file,
        left=Identity(file.device, file.inode, *(int(state[name]) for name in ("size", "mtime_ns", "ctime_ns"))),
        attributes=() if older or not state["attributes"]["mode"] else tuple(map(int, state["attributes"])),
        cache_inode=0 if older else _cache_inode(header),
        busy=bool(state["busy"]),
        stamp_ns=int(state["stamp_ns"]),
        overtaken=bool(state["overtaken"]),
    )


def _header(image: bytes) -> np.void:
    """The header, by its format; its names are the same but for those of the original."""
    found: np.void = np.frombuffer(image, dtype=OLDER_HEADER if image.startswith(OLDER_MAGIC) else HEADER, count=1)[0]
    return found


def _place(header: np.void, name: str) -> int:
    """Where a member is in the header."""
    assert header.dtype.fields is not None
    place: int = header.dtype.fields[name][1]
    return place


def _older_identity(header: np.void) -> FileIdentity:
    device, inode, birth_ns = (int(header[name]) for name, _ in _OLDER_ORIGINAL)
    return FileIdentity(device, inode, birth_ns)


def _cache_inode(header: np.void) -> int:
    inode, checksum = (int(value) for value in header["cache_file"])
    return inode if checksum == google_crc32c.extend(int(header["checksum"]), struct.pack("<Q", inode)) else 0


def _text(field: bytes) -> bytes:
    """A text as the library reads it: up to the first NUL."""
    return bytes(field).partition(b"\0")[0]


def _number(path: Path, header: np.void, name: str) -> int:
    """A number whose upper half is its checksum."""
    word = int(header[name])
    if _sealed(header, name, number := word & 0xFFFFFFFF) != word:
        raise FormatError(f"{path} is a damaged journal: the checksum of its {name} is wrong")
    return number


def _sealed(header: np.void, name: str, number: int) -> int:
    """The word of a number."""
    seal: int = google_crc32c.extend(int(header["checksum"]), struct.pack("<QQ", number, _place(header, name)))
    return seal << 32 | number


def set_home(path: Path, number: int) -> None:
    """Note, durably, that the original has the first ``number`` entries of the journal at ``path``.

    Whoever does so holds the lock of its directory.

    Raises:
        OSError: the journal cannot be written.
    """
    with path.open("r+b") as file:
        header = _header(file.read(HEADER_SIZE))
        if int(header["home"]) & 0xFFFFFFFF == number:
            return
        file.seek(_place(header, "home"))
        file.write(struct.pack("<Q", _sealed(header, "home", number)))
        file.flush()
        os.fsync(file.fileno())


def _state(path: Path, header: np.void) -> np.void:
    """The valid state with the higher sequence number."""
    checked = header["states"].dtype.itemsize - 4
    valid = [
        state
        for state in header["states"]
        if state["checksum"] == google_crc32c.extend(int(header["checksum"]), state.tobytes()[:checked])
    ]
    if not valid:
        raise FormatError(f"{path} is a damaged journal: neither note of the original's state can be read")
    newest: np.void = max(valid, key=lambda state: int(state["sequence"]))
    return newest


def _entries(rows: np.ndarray[Any, Any]) -> tuple[Int64Array, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Rows (place, start, stop), and which of them are undamaged."""
    places, starts, stamps = rows["place"].astype(np.int64), rows["start"], rows["stamp"]
    lengths = (rows["seal"] & 0xFFFFFFFF).astype(np.int64)
    columns = (rows["place"], starts, stamps, lengths, rows["seal"] >> 32)
    sealed = zip(*(column.tolist() for column in columns), strict=True)
    whole = np.array([google_crc32c.value(struct.pack("<QqQQ", *row)) == seal for *row, seal in sealed], dtype=bool)
    whole &= (lengths > 0) & (starts >= 0) & (starts <= np.iinfo(np.int64).max - lengths)
    return np.stack([places, starts, starts + lengths], axis=1), whole


def nodes_in(directory: Path) -> list[Path]:
    """The directories of nodes in a directory of journals, which need not exist."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if _is_node(path))


def _is_node(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def paths_in(directory: Path, ending: str = SUFFIX) -> list[Path]:
    """The journals in a directory and in those of nodes there. Version 0.2.0 put all of them into the directory."""
    found = [path for path in directory.glob(f"*{ending}") if not _is_node(path)]
    return sorted(found) + [path for node in nodes_in(directory) for path in sorted(node.glob(f"*{ending}"))]


def bytes_waiting(directory: Path) -> tuple[dict[int, int], bool]:
    """The bytes of each replica that the journals of a directory name, and whether one of the journals is damaged."""
    found: Counter[int] = Counter()
    damaged = False
    for path in paths_in(directory):
        try:
            journal = read_journal(path)
        except FormatError:
            damaged = path.exists() or damaged
            continue
        damaged = damaged or journal.damaged > 0
        for replica, start, stop in journal.waiting.tolist():
            found[replica] += stop - start
    return found, damaged


@contextmanager
def locked(directory: Path, who: str = "pdla") -> Iterator[str]:
    """Take the lock of a directory of journals. Yields "" with the lock, or else who uses the journals.

    ``who`` is the name that others see while they wait.
    """
    descriptor, alone = _open_lock(directory)
    try:
        if alone:
            _sign(descriptor, who)
            yield ""
        else:
            yield _user(descriptor, alone=not _try_lock(descriptor, fcntl.F_RDLCK, 1))
    finally:
        os.close(descriptor)


def _open_lock(directory: Path) -> tuple[int, bool]:
    """The descriptor of the lock file of a directory of journals, and whether it is locked alone."""
    while True:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # RATIONALE: a lock of the open file, as the library takes. Other locks vanish when any
        # descriptor is closed, or do not see locks of the same process.
        try:
            descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # others remove directories without journals
        alone = _try_lock(descriptor, fcntl.F_WRLCK, 3)
        if os.fstat(descriptor).st_nlink:
            return descriptor, alone
        os.close(descriptor)


def holder(directory: Path) -> str:
    """Who uses the journals in a directory, as ``locked`` names them; "": nobody. Takes no lock."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not _is_held(descriptor, fcntl.F_WRLCK, 3):
            return ""
        return _user(descriptor, alone=_is_held(descriptor, fcntl.F_RDLCK, 1))
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, kind: int, count: int) -> bool:
    """Whether another lock would make _try_lock() fail."""
    asked = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, count, 0)
    (found,) = struct.unpack_from("h", fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    return bool(found != fcntl.F_UNLCK)


def _user(descriptor: int, *, alone: bool) -> str:
    return f"{_signature(descriptor)} is doing the write-back" if alone else "a program is writing to it"


def _try_lock(descriptor: int, kind: int, count: int) -> bool:
    """The lock has three bytes: writers share the first, helpers of a write-back the second, open files the third."""
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, count, 0))
        return True
    return False


def _sign(descriptor: int, who: str) -> None:
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    note = os.fsencode(f"{who} (process {os.getpid()} on {socket.gethostname()}) since {since}")
    os.pwrite(descriptor, note, 0)
    os.ftruncate(descriptor, len(note))


def _signature(descriptor: int) -> str:
    return os.fsdecode(os.pread(descriptor, 256, 0)) or "another process"
