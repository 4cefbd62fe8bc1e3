"""Write-back outside the program: after a crash, or at the end of a lease of writes.

The rules are those of docs/formats.md, "Write-back", which replicator/stub/stale_journals.c
follows, too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from mmap import PAGESIZE
from pathlib import Path
from typing import Literal

import numpy as np

from pdla import config
from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, Replica
from pdla.errors import BusyError, FormatError
from pdla.layouts.striping import locate
from pdla.model import Identity, Int64Array
from pdla.replicator.backends.base import sync_directory
from pdla.replicator.identity import birth_of, identity_of, leased
from pdla.replicator.intent import NAME as INTENT
from pdla.replicator.intent import HeldIntent, Intent, read_intent
from pdla.replicator.journals import UNFINISHED, Journal, locked, paths_in, read_journal, this_boot
from pdla.replicator.mapfile import fold
from pdla.replicator.transpose import Bytes
from pdla.replicator.verify import components_unchanged
from pdla.replicator.write_targets import directories_in, replicas_of
from pdla.units import KiB, MiB

Conflict = Literal["keep", "overwrite", "discard"]
"""What happens to bytes whose original somebody else has changed: they wait, replace the change, or are dropped."""

Progress = Callable[[str, int, int], None]

BATCH = 16 * MiB
AHEAD, ASK, HOLE = 8 * MiB, MiB, 128 * KiB
"""Bytes of the original that are read, before a write to a part of them, in one request, and as one with holes."""
STAMP_SLACK_NS = 2_000_000_000
"""The file system's time of a killed program's write is at most this much later than the program's own note of it."""
_PIECES = 1 << 16
MOST_LOOKED_AT = 100_000
"""Files to look at, at most, in order to find one that was moved."""


@dataclass(frozen=True)
class WriteBackResult:
    """What happened to the redirected writes to one file.

    Attributes:
        moved_from: the file's name when it was written, if it has another one now.
        bytes: bytes that are in the original now.
        unsynced: those of ``bytes`` that the program had not completed by a sync or close.
        lost: extents (offset, length) of the original that were written and whose new bytes are
            lost.
        dropped: bytes that were dropped because ``conflict`` said so.
        damaged: unreadable entries of journals; their bytes are not known.
        problem: why bytes still wait, or empty.
        busy: a program is writing the file.
    """

    original: Path
    bytes: int = 0
    unsynced: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    dropped: int = 0
    damaged: int = 0
    problem: str = ""
    busy: bool = False
    moved_from: Path | None = None


def write_back(
    catalog: Catalog,
    *,
    map_path: Path | None = None,
    conflict: Conflict = "keep",
    progress: Progress | None = None,
    who: str = "pdla sync",
) -> list[WriteBackResult]:
    """Write back all bytes in write replicas that no running program uses; a row for each file that had any.

    Each original is written under a lease, in its own order, and under an intent. A journal is
    removed when its bytes are durable in the original; so after an interruption all of it is done
    again. What somebody else has written since is not overwritten, unless ``conflict`` says so.
    ``who`` is the name that others see while they wait.

    Raises:
        PdlaError: the catalog cannot be used.
    """
    map_path = map_path or config.map_path()
    found = []
    for directory in directories_in(map_path):
        with locked(directory, who) as busy:
            done = _running(directory, busy) if busy else _sync_directory(catalog, directory, conflict, progress)
        found += [done] if done else []
    if found:
        fold(catalog, map_path)
    return found


def _read(directory: Path) -> tuple[list[Journal], list[str]]:
    """The journals of a directory, and the errors of those that cannot be read."""
    journals, problems = [], []
    for path in paths_in(directory):
        try:
            journals.append(read_journal(path))
        except FormatError as error:
            problems.append(str(error))
    return journals, problems


def _running(directory: Path, who: str) -> WriteBackResult | None:
    journals = [journal for journal in _read(directory)[0] if len(journal.entries)]
    if not journals:
        return None
    return WriteBackResult(journals[0].target, problem=who, busy=True)


def _sync_directory(
    catalog: Catalog, directory: Path, conflict: Conflict, progress: Progress | None
) -> WriteBackResult | None:
    journals, problems = _read(directory)
    telling = [journal for journal in journals if len(journal.entries) + journal.damaged]
    named = (telling or journals)[0].target if journals else directory
    good, lost = _sorted_out(journals)
    if not telling and not problems:
        _remove(directory)
        return None
    path = _found(telling[0]) if telling else None
    if problems or path is None:
        if conflict == "discard":
            _remove(directory)
            return WriteBackResult(named, dropped=_length(good))
        why = "; ".join(problems) or "the file no longer exists"
        return WriteBackResult(named, problem=f"{why}: {_waiting(good)} (pdla sync --changed discard drops them)")
    try:
        row = _write_back_file(catalog, directory, path, journals, good, conflict, progress)
    except (OSError, BusyError, FormatError) as error:
        return WriteBackResult(path, problem=f"{error}: {_waiting(good)}")
    if row.problem:
        return row
    unsynced = _length(good) - _length(_merged([journal.entries[: journal.synced] for journal in journals]))
    damaged = sum(journal.damaged for journal in journals)
    extents = _extents(replicas_of(directory, catalog.replicas.find()), lost)
    moved_from = None if path == named else named
    return replace(row, unsynced=max(unsynced, 0), lost=extents, damaged=damaged, moved_from=moved_from)


def _waiting(ranges: Int64Array) -> str:
    return f"{_length(ranges)} bytes wait in replicas"


def _write_back_file(
    catalog: Catalog,
    directory: Path,
    path: Path,
    journals: Sequence[Journal],
    good: Int64Array,
    conflict: Conflict,
    progress: Progress | None,
) -> WriteBackResult:
    """Write back what is valid, unless somebody else changed the original; then remove the journals."""
    replicas = replicas_of(directory, catalog.replicas.find())
    with ExitStack() as stack:
        target = stack.enter_context(_opened(path))
        identity = identity_of(target)
        stack.enter_context(leased(catalog, target, path))
        changed = ""
        if conflict != "overwrite":
            changed = _changed(journals, read_intent(directory), identity, birth_of(target))
        if changed and conflict == "discard":
            _remove(directory)
            return WriteBackResult(path, dropped=_length(good))
        if changed:
            advice = "pdla sync --changed overwrite or discard decides"
            return WriteBackResult(path, problem=f"{changed}: {_waiting(good)} ({advice})")
        intent = HeldIntent(directory, identity)
        try:
            count = _copy(target, path, replicas, good, intent, progress)
            os.fsync(target)
        except OSError:
            intent.stop(identity_of(target))
            raise
    _remove(directory)
    return WriteBackResult(path, count)


def _found(journal: Journal) -> Path | None:
    """The original of a journal under its present name; None if it exists under no name."""
    path, inode = journal.target, journal.identity.inode
    with suppress(OSError):
        if path.stat().st_ino == inode:
            return path
    with suppress(OSError):
        device = path.parent.stat().st_dev
        for found in islice(_below(path.parent), MOST_LOOKED_AT):
            if found.inode() == inode and found.stat(follow_symlinks=False).st_dev == device:
                return Path(found.path)
    return path if path.exists() else None


def _below(directory: Path) -> Iterator[os.DirEntry[str]]:
    """The files in a directory, then those in the directories below it, then those in its parent directory."""
    waiting = deque([directory])
    seen = set()
    while waiting:
        here = waiting.popleft()
        seen.add(here)
        with suppress(OSError), os.scandir(here) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry
                elif entry.is_dir(follow_symlinks=False) and Path(entry.path) not in seen:
                    waiting.append(Path(entry.path))
        if not waiting and directory.parent not in seen:
            waiting.append(directory.parent)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(directory: Path) -> None:
    """Remove all journals of a directory, then the intent."""
    for path in (*paths_in(directory), *directory.glob(f"*{UNFINISHED}")):
        path.unlink(missing_ok=True)
    # RATIONALE: if the intent went first, the remaining journals would take the write-back for
    # somebody else's change.
    sync_directory(directory)
    (directory / INTENT).unlink(missing_ok=True)


def _sorted_out(journals: Sequence[Journal]) -> tuple[Int64Array, Int64Array]:
    """The ranges (replica, start, stop) that are valid, and those that were not durable before the node crashed."""
    boot = this_boot()
    good, doubtful = [], []
    for journal in journals:
        believed = len(journal.entries) if journal.boot == boot else journal.synced
        good.append(journal.entries[:believed])
        doubtful.append(journal.entries[believed:])
    return _merged(good), _merged(doubtful)


def _merged(parts: Sequence[Int64Array]) -> Int64Array:
    """The ranges sorted, with those that touch joined."""
    rows = np.concatenate([np.zeros((0, 3), np.int64), *parts])
    merged: list[list[int]] = []
    for replica, start, stop in rows[np.lexsort((rows[:, 1], rows[:, 0]))].tolist():
        if merged and merged[-1][0] == replica and start <= merged[-1][2]:
            merged[-1][2] = max(merged[-1][2], stop)
        else:
            merged.append([replica, start, stop])
    return np.array(merged, dtype=np.int64).reshape(-1, 3)


def _length(ranges: Int64Array) -> int:
    return int((ranges[:, 2] - ranges[:, 1]).sum())


def _changed(journals: Sequence[Journal], intent: Intent | None, now: Identity, birth_ns: int) -> str:
    """What somebody else did to the original since the program left it; empty if nothing."""
    known = [one for one in journals if _is_of(one, now, birth_ns)]
    if any(len(one.entries) + one.damaged and not _is_of(one, now, birth_ns) for one in journals):
        return "another file has its name now"
    if any(journal.overtaken for journal in journals):
        return "it may have newer bytes, from a run whose write-back failed"
    left = [journal.identity for journal in known if not journal.busy]
    # A process that was killed while it wrote to the original could not note how it left the file.
    busy = [journal.stamp_ns for journal in known if journal.busy]
    if intent is not None and intent.identity.inode == now.inode:
        left += [] if intent.busy else [intent.identity]
        busy += [intent.until_ns] if intent.busy else []
    # RATIONALE: the ctime does not count. A chmod or a new link changes it, too; a write also
    # changes the mtime.
    if any((now.size, now.mtime_ns) == (one.size, one.mtime_ns) for one in left):
        return ""
    if busy and max(now.mtime_ns, now.ctime_ns) <= max(busy) + STAMP_SLACK_NS:
        return ""
    return "somebody else has changed it since"


def _is_of(journal: Journal, now: Identity, birth_ns: int) -> bool:
    born_with_it = 0 in (journal.birth_ns, birth_ns) or journal.birth_ns == birth_ns
    return journal.identity.inode == now.inode and born_with_it


def _copy(
    target: int,
    path: Path,
    replicas: dict[int, Replica],
    ranges: Int64Array,
    intent: HeldIntent,
    progress: Progress | None,
) -> int:
    """Copy ranges of replicas to their places in the original; return the number of bytes."""
    done, total, numbers = 0, _length(ranges), np.unique(ranges[:, 0]).tolist()
    for number in numbers:
        if number not in replicas or not components_unchanged(replicas[number]):
            raise FileNotFoundError(f"replica {number} or a component of it is missing")
    for number in numbers:
        replica = replicas[number]
        mine = ranges[ranges[:, 0] == number][:, 1:]
        with ExitStack() as stack:
            files = [os.open(component.path, os.O_RDONLY | os.O_CLOEXEC) for component in replica.components]
            for file in files:
                stack.callback(os.close, file)
            for offsets, lengths, places in _batches(replica.access_map, mine):
                intent.renew()
                _move(target, files, replica, offsets, lengths, places)
                done += int(lengths.sum())
                if progress:
                    progress(f"writing back {path.name}", done, total)
    return done


def _batches(access_map: AccessMap, ranges: Int64Array) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """The pieces of ranges (start, stop) of a replica in the original's order: (offsets, lengths, replica offsets)."""
    low, high = access_map.extent
    step = max((high - low) // max(access_map.pieces // _PIECES, 1), 1)
    for start in range(low, high, step):
        offsets, lengths, places = access_map.tiles(start, min(start + step, high))
        first = np.searchsorted(ranges[:, 1], places, side="right")
        last = np.searchsorted(ranges[:, 0], places + lengths, side="left")
        counts = np.maximum(last - first, 0)
        piece = np.repeat(np.arange(len(places)), counts)
        inside = ranges[np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts) + first[piece]]
        begin = np.maximum(inside[:, 0], places[piece])
        end = np.minimum(inside[:, 1], places[piece] + lengths[piece])
        yield from _cut(offsets[piece] + begin - places[piece], end - begin, begin)


def _cut(
    offsets: Int64Array, lengths: Int64Array, places: Int64Array
) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Batches of pieces with at most ``BATCH`` bytes together; longer pieces are cut."""
    parts = -(-lengths // BATCH)
    piece = np.repeat(np.arange(len(lengths)), parts)
    skip = (np.arange(len(piece)) - np.repeat(np.cumsum(parts) - parts, parts)) * BATCH
    offsets, places = offsets[piece] + skip, places[piece] + skip
    lengths = np.minimum(lengths[piece] - skip, BATCH)
    number = np.cumsum(lengths) // (BATCH + 1)
    for cut in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(number)) + 1):
        if len(cut):
            yield offsets[cut], lengths[cut], places[cut]


def _move(
    target: int, files: Sequence[int], replica: Replica, offsets: Int64Array, lengths: Int64Array, places: Int64Array
) -> None:
    """Read pieces in the replica's order; write them in the original's order, adjacent ones in one call."""
    at = np.cumsum(lengths) - lengths
    buffer = np.empty(int(lengths.sum()), dtype=np.uint8)
    order = np.argsort(places)
    for group in _neighbours(places[order], lengths[order]):
        run = order[group]
        data = _read_replica(files, replica, int(places[run[0]]), int(lengths[run].sum()))
        begin = 0
        for piece in run.tolist():
            length = int(lengths[piece])
            buffer[at[piece] : at[piece] + length] = data[begin : begin + length]
            begin += length
    groups = _neighbours(offsets, lengths)
    asks = _asks(target, offsets[[group[0] for group in groups]], (offsets + lengths)[[group[-1] for group in groups]])
    for group in groups:
        first, last = group[0], group[-1]
        while asks and asks[0][0] < offsets[first] + AHEAD:
            os.posix_fadvise(target, *asks.popleft(), os.POSIX_FADV_WILLNEED)
        _write(target, buffer[at[first] : at[last] + lengths[last]].data, int(offsets[first]))


def _asks(target: int, starts: Int64Array, stops: Int64Array) -> deque[tuple[int, int]]:
    """The reads (offset, length) that the kernel should begin before extents are written.

    They are of the pages that are written in part, as in replicator/stub/partial_pages.c.
    """
    if os.major(os.fstat(target).st_dev) == 0:
        return deque()
    edges = np.concatenate([starts[starts % PAGESIZE > 0], stops[stops % PAGESIZE > 0]])
    pages = np.unique(edges // PAGESIZE) * PAGESIZE
    runs = np.split(pages, np.flatnonzero(np.diff(pages) > HOLE) + 1) if len(pages) else []
    found = ((int(run[0]), int(run[-1]) + PAGESIZE) for run in runs)
    return deque((at, min(stop - at, ASK)) for start, stop in found for at in range(start, stop, ASK))


def _neighbours(starts: Int64Array, lengths: Int64Array) -> list[Int64Array]:
    """The groups of sorted pieces that are adjacent."""
    cuts = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
    return list(np.split(np.arange(len(starts)), cuts))


def _read_replica(files: Sequence[int], replica: Replica, start: int, length: int) -> Bytes:
    data = np.empty(length, dtype=np.uint8)
    for piece in locate(replica.rule, start, start + length):
        done = 0
        view = data[piece.logical - start :][: piece.length].data
        while done < piece.length:
            count = os.preadv(files[piece.component], [view[done:]], piece.offset + done)
            if count == 0:
                raise OSError(f"{replica.components[piece.component].path} is shorter than it was")
            done += count
    return data


def _write(target: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(target, data[done:], offset + done)


def _extents(replicas: dict[int, Replica], ranges: Int64Array) -> tuple[tuple[int, int], ...]:
    """Ranges of replicas as extents of the original; adjacent ones are joined."""
    found: list[tuple[int, int]] = []
    for number in np.unique(ranges[:, 0]).tolist():
        if (replica := replicas.get(number)) is not None:
            for offsets, lengths, _ in _batches(replica.access_map, ranges[ranges[:, 0] == number][:, 1:]):
                found += zip(offsets.tolist(), lengths.tolist(), strict=True)
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(found):
        if merged and sum(merged[-1]) >= offset:
            merged[-1] = (merged[-1][0], max(sum(merged[-1]), offset + length) - merged[-1][0])
        else:
            merged.append((offset, length))
    return tuple(merged)
