"""The intent: the note that a write-back has begun, so that the original may be half old and half new.

The format is that of replicator/stub/intent.h, byte for byte. An intent is made durable before the
first byte of the original is written, and removed after the last journal. Whoever finds one does
the whole write-back again.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import google_crc32c
import numpy as np

from pdla.errors import FormatError
from pdla.file_kinds import other_format
from pdla.model import Identity
from pdla.replicator.backends.base import sync_directory

MAGIC = b"PDLAINT1"
NAME = "intent"
RECORD = np.dtype(
    [
        ("magic", "S8"),
        ("checksum", "<u4"),
        ("busy", "<u4"),
        ("inode", "<u8"),
        ("size", "<i8"),
        ("mtime_ns", "<i8"),
        ("ctime_ns", "<i8"),
        ("until_ns", "<i8"),
        ("pid", "<i8"),
        ("host", "S64"),
    ]
)
PROMISE_NS = 10 * 10**9
"""How far in the future ``until_ns`` is set."""
_BUSY, _DONE = 1, 2
_CHECKED = slice(RECORD.fields["busy"][1], None)  # type: ignore[index]


@dataclass(frozen=True)
class Intent:
    """A write-back that has begun. ``identity`` is the original's, as the write-back left it, unless ``busy``; while
    ``busy``, no write to the original begins after ``until_ns``. ``done``: the original has all bytes, durably, and the
    journals are being removed."""

    busy: bool
    identity: Identity
    until_ns: int
    done: bool = False


def read_intent(directory: Path) -> Intent | None:
    """The intent in a directory of journals, if there is one.

    Raises:
        FormatError: the intent cannot be read, or is damaged.
    """
    path = directory / NAME
    try:
        image = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from error
    if why := other_format(image, MAGIC):
        raise FormatError(f"{path} is not the record of an interrupted write-back: {why}")
    if len(image) != RECORD.itemsize:
        raise FormatError(f"{path} is not the whole record of an interrupted write-back")
    row = np.frombuffer(image, dtype=RECORD)[0]
    if row["checksum"] != google_crc32c.value(image[_CHECKED]):
        raise FormatError(f"{path}, the record of an interrupted write-back, is damaged")
    identity = Identity(0, *(int(row[name]) for name in ("inode", "size", "mtime_ns", "ctime_ns")))
    return Intent(int(row["busy"]) == _BUSY, identity, int(row["until_ns"]), int(row["busy"]) == _DONE)


class HeldIntent:
    """The intent of this process, from before its first write to the original on."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self._directory = directory
        self._intent = Intent(True, identity, time.time_ns() + PROMISE_NS)
        self._put()

    def renew(self) -> None:
        """Call before each write to the original: every write begins before ``until_ns``."""
        now = time.time_ns()
        if now + PROMISE_NS // 2 > self._intent.until_ns:
            self._intent = replace(self._intent, until_ns=now + PROMISE_NS)
            self._put()

    def stop(self, identity: Identity) -> None:
        """The write-back had to stop before the end, and left the original with this identity."""
        self._intent = replace(self._intent, busy=False, identity=identity)
        self._put()

    def end(self) -> None:
        """The original has all bytes of the journals, durably."""
        self._intent = replace(self._intent, busy=False, done=True)
        self._put()

    def _put(self) -> None:
        intent, identity = self._intent, self._intent.identity
        row = np.zeros(1, dtype=RECORD)
        state = _DONE if intent.done else _BUSY if intent.busy else 0
        row["magic"], row["busy"], row["until_ns"] = MAGIC, state, intent.until_ns
        row["inode"], row["size"] = identity.inode, identity.size
        row["mtime_ns"], row["ctime_ns"] = identity.mtime_ns, identity.ctime_ns
        row["pid"], row["host"] = os.getpid(), os.fsencode(socket.gethostname())[:63]
        row["checksum"] = google_crc32c.value(row.tobytes()[_CHECKED])
        # RATIONALE: on another node or in another container a process of the same number may do the same.
        with NamedTemporaryFile(prefix=f"{NAME}.", suffix=".new", dir=self._directory, delete=False) as file:
            file.write(row.tobytes())
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self._directory / NAME)
        sync_directory(self._directory)
