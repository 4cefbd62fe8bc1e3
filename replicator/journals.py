"""The journals of redirected writes, byte for byte as replicator/stub/journal.h says.

They tell which bytes of write replicas are newer than the original. One process that writes to one open file keeps one;
who holds the lock of their directory is alone with them.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np

from pdla.errors import FormatError
from pdla.model import Identity, Int64Array

MAGIC = b"PDLAJNL1"
LOCK = "lock"
SUFFIX = ".journal"
HEADER_SIZE = 4096
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("checksum", "<u4"),
        ("rank", "<i4"),
        ("boot", "S40"),
        ("host", "S64"),
        ("pid", "<i8"),
        ("device", "<u8"),
        ("inode", "<u8"),
        ("lease", "<u8"),
        ("target", "S2048"),
        ("count", "<u8"),
        ("synced", "<u8"),
        ("size", "<i8"),
        ("mtime_ns", "<i8"),
        ("ctime_ns", "<i8"),
        ("busy", "<u8"),
        ("stamp_ns", "<i8"),
        ("closed", "<u8"),
        ("overtaken", "<u8"),
    ]
)
ENTRY = np.dtype([("replica", "<u8"), ("start", "<i8"), ("seal", "<u8")])
_CHECKED = slice(HEADER.fields["rank"][1], HEADER.fields["count"][1])  # type: ignore[index]


@dataclass(frozen=True)
class Journal:
    """What one process had written to replicas of a target, and not brought back, when it was last heard of.

    ``entries`` are rows (replica, start, stop) of bytes of replicas; the first ``synced`` of them were durable. What is
    not is believed in the same ``boot`` of the node only: a killed process leaves what it wrote, a crash does not.
    ``damaged`` entries are those that cannot be read. ``identity`` is the original's when the process had last done
    with it, which ``busy`` says that it had not, or not since ``stamp_ns``. ``overtaken``: the original may have newer
    bytes.
    """

    path: Path
    target: Path
    rank: int
    boot: str
    host: str
    lease: bool
    entries: Int64Array
    synced: int
    damaged: int
    identity: Identity
    busy: bool
    stamp_ns: int
    closed: bool
    overtaken: bool

    @property
    def bytes(self) -> int:
        """Bytes of all entries; those written more than once may count more than once."""
        return int((self.entries[:, 2] - self.entries[:, 1]).sum())


def read_journal(path: Path) -> Journal:
    """The journal at ``path``; one whose program was killed while it began it is empty.

    Raises:
        FormatError: it cannot be read, or is not a journal, or its header is damaged.
    """
    try:
        image = path.read_bytes() or bytes(HEADER_SIZE)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from error
    if len(image) < HEADER_SIZE or image[:8] not in (MAGIC, bytes(8)):
        raise FormatError(f"{path} is not a journal: it begins with {image[:8]!r}, not {MAGIC!r}")
    header = np.frombuffer(image, dtype=HEADER, count=1)[0]
    if image[:8] == MAGIC and header["checksum"] != google_crc32c.value(image[_CHECKED]):
        raise FormatError(f"{path} is a damaged journal: the checksum of its header is wrong")
    count = int(header["count"])
    rows = np.frombuffer(
        image, dtype=ENTRY, count=min(count, (len(image) - HEADER_SIZE) // ENTRY.itemsize), offset=HEADER_SIZE
    )
    numbers, lengths = rows["replica"].astype(np.int64), (rows["seal"] & 0xFFFFFFFF).astype(np.int64)
    entries = np.stack([numbers, rows["start"], rows["start"] + lengths], axis=1)
    sealed = zip(
        rows["replica"].tolist(), rows["start"].tolist(), lengths.tolist(), (rows["seal"] >> 32).tolist(), strict=True
    )
    whole = np.array([google_crc32c.value(struct.pack("<QqQ", *row)) == seal for *row, seal in sealed], dtype=bool)
    return Journal(
        path=path,
        target=Path(os.fsdecode(bytes(header["target"]))),
        rank=int(header["rank"]),
        boot=bytes(header["boot"]).decode("ascii", "replace"),
        host=os.fsdecode(bytes(header["host"])),
        lease=bool(header["lease"]),
        entries=entries[whole],
        synced=int(whole[: int(header["synced"])].sum()),
        damaged=count - int(whole.sum()),
        identity=Identity(*(int(header[name]) for name in ("device", "inode", "size", "mtime_ns", "ctime_ns"))),
        busy=bool(header["busy"]),
        stamp_ns=int(header["stamp_ns"]),
        closed=bool(header["closed"]),
        overtaken=bool(header["overtaken"]),
    )


def paths_in(directory: Path) -> list[Path]:
    """The journals in a directory, which may not exist."""
    return sorted(directory.glob(f"*{SUFFIX}"))


def bytes_waiting(directory: Path) -> dict[int, int]:
    """How many bytes of every replica the readable journals of a directory tell of."""
    found: Counter[int] = Counter()
    for path in paths_in(directory):
        with suppress(FormatError):
            for replica, start, stop in read_journal(path).entries.tolist():
                found[replica] += stop - start
    return found


@contextmanager
def locked(directory: Path) -> Iterator[bool]:
    """Be alone with the journals of a directory, unless a program is writing them: whether one is."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    # RATIONALE: a lock of the open file, as the programs take: others vanish with any descriptor, or do not see theirs.
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    with suppress(OSError):
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
        return True
    return False


def this_boot() -> str:
    """What tells this boot of this machine from others."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
