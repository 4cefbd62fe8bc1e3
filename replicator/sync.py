"""Write-back outside the program: after a crash, or at the end of a lease of writes.

The rules are those of docs/formats.md, "Write-back", which replicator/stub/stale_journals.c
follows, too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from pdla import config
from pdla.answers import no_answer, unanswered
from pdla.catalog import Catalog, Replica
from pdla.errors import BusyError, FormatError
from pdla.model import Identity
from pdla.replicator.backends.base import sync_directory
from pdla.replicator.cache_sync import InCaches
from pdla.replicator.identity import birth_of, identity_of, leased
from pdla.replicator.intent import NAME as INTENT
from pdla.replicator.intent import HeldIntent, Intent, read_intent
from pdla.replicator.journals import UNFINISHED, Journal, locked, nodes_in, paths_in, read_journal, set_home
from pdla.replicator.mapfile import fold
from pdla.replicator.replica_sync import InReplicas
from pdla.replicator.reservations import remove_cache
from pdla.replicator.write_targets import directories_in, journals_of, replicas_of, target_of

Conflict = Literal["keep", "overwrite", "discard"]
"""What happens to bytes whose original somebody else has changed: they wait, replace the change, or are dropped."""

Progress = Callable[[str, int, int], None]

STAMP_SLACK_NS = 2_000_000_000
"""The file system's time of a killed program's write is at most this much later than the program's own note of it."""
MOST_LOOKED_AT = 100_000
"""Files to look at, at most, in order to find one that was moved."""


class Waiting(Protocol):
    """What journals of a directory list that the original does not have, in replicas or in cache files."""

    place: str
    size: int
    beyond: int
    unsynced: int
    kept: dict[Path, int]

    @property
    def problem(self) -> str:
        """Why bytes still wait after the write-back, or empty."""

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Extents (offset, length) of the original whose new bytes are lost."""

    def copy(self, target: int, intent: HeldIntent, advance: Callable[[int], object]) -> None:
        """Copy ``size`` bytes to the open original; ``advance`` is called with bytes done."""


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
    only: Path | None = None,
    conflict: Conflict = "keep",
    progress: Progress | None = None,
    who: str = "pdla sync",
) -> list[WriteBackResult]:
    """Write back all bytes in write replicas and cache files that no running program uses.

    There is a row for each file that had any. With ``only``, nothing else is done than for this
    file.

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
        if only is not None and not _concerns(directory, only):
            continue
        with locked(directory, who) as busy:
            done = _running(directory, busy) if busy else _sync_directory(catalog, directory, conflict, progress)
        found += [done] if done else []
    if found:
        fold(catalog, map_path)
    return found


def waiting_targets(replicas: Iterable[Replica], map_path: Path | None = None) -> list[Path]:
    """The files for whose writes these replicas are, of those of which there are journals."""
    targets = {target_of(one) for one in replicas if one.purpose == "write"}
    return sorted(one for one in targets if any(paths_in(journals_of(map_path or config.map_path(), one))))


def _read(directory: Path) -> tuple[list[Journal], list[str]]:
    """The journals of a directory, and the errors of those that cannot be read."""
    journals, problems = [], []
    for path in paths_in(directory):
        try:
            journals.append(read_journal(path))
        except FormatError as error:
            problems.append(str(error))
    return journals, problems


def _concerns(directory: Path, path: Path) -> bool:
    """Whether journals are of the file at ``path``."""
    journals, _ = _read(directory)
    try:
        found = path.stat()
    except OSError:
        return any(journal.target == path for journal in journals)
    here = found.st_dev, found.st_ino
    return any(one.target == path or (one.identity.device, one.identity.inode) == here for one in journals)


def _running(directory: Path, who: str) -> WriteBackResult | None:
    journals = [journal for journal in _read(directory)[0] if len(journal.waiting)]
    if not journals:
        return None
    return WriteBackResult(journals[0].target, problem=who, busy=True)


def _sync_directory(
    catalog: Catalog, directory: Path, conflict: Conflict, progress: Progress | None
) -> WriteBackResult | None:
    journals, problems = _read(directory)
    telling = [journal for journal in journals if len(journal.waiting) + journal.damaged]
    named = (telling or journals)[0].target if journals else directory
    if (not telling and not problems) or _is_done(directory):
        _remove(directory, journals)
        return None
    if silent := sorted(unanswered(_places(catalog, directory, telling))):
        return WriteBackResult(named, problem=f"its bytes wait, since {silent[0]} {no_answer()}")
    waiting = _waiting(catalog, directory, journals)
    path = _found(telling[0]) if telling else None
    if problems or path is None:
        if conflict == "discard":
            _remove(directory, journals)
            return WriteBackResult(named, dropped=waiting.size + waiting.beyond)
        why = "; ".join(problems) or "the file no longer exists"
        return WriteBackResult(named, problem=f"{why}: {_said(waiting)} (pdla sync --changed discard drops them)")
    try:
        row = _write_back_file(catalog, directory, path, journals, waiting, conflict, progress)
    except (OSError, BusyError, FormatError) as error:
        return WriteBackResult(path, problem=f"{error}: {_said(waiting)}")
    return replace(row, moved_from=None if path == named else named)


def _places(catalog: Catalog, directory: Path, journals: Sequence[Journal]) -> list[Path]:
    """Where the original of journals is, and the bytes that wait."""
    replicas = replicas_of(directory, catalog.replicas.find()).values()
    held = [component.path.parent for one in replicas for component in one.components]
    return [*held, *(journal.cache for journal in journals if journal.cache), *(one.target for one in journals[:1])]


def _is_done(directory: Path) -> bool:
    """Whether only the removal of the journals was interrupted."""
    with suppress(FormatError):
        intent = read_intent(directory)
        return intent is not None and intent.done
    return False


def _waiting(catalog: Catalog, directory: Path, journals: Sequence[Journal]) -> Waiting:
    if any(journal.cache for journal in journals):
        return InCaches(journals)
    return InReplicas(journals, replicas_of(directory, catalog.replicas.find()))


def _said(waiting: Waiting) -> str:
    return f"{waiting.size + waiting.beyond} bytes wait in {waiting.place}"


def _write_back_file(
    catalog: Catalog,
    directory: Path,
    path: Path,
    journals: Sequence[Journal],
    waiting: Waiting,
    conflict: Conflict,
    progress: Progress | None,
) -> WriteBackResult:
    """Write back what can be, unless somebody else changed the original; then remove the journals."""
    with ExitStack() as stack:
        target = stack.enter_context(_opened(path))
        identity = identity_of(target)
        stack.enter_context(leased(catalog, target, path))
        changed = ""
        if conflict != "overwrite":
            changed = _changed(journals, read_intent(directory), identity, birth_of(target))
        if changed and conflict == "discard":
            _remove(directory, journals)
            return WriteBackResult(path, dropped=waiting.size + waiting.beyond)
        if changed:
            advice = "pdla sync --changed overwrite or discard decides"
            return WriteBackResult(path, problem=f"{changed}: {_said(waiting)} ({advice})")
        kept = {} if conflict == "discard" else waiting.kept
        intent = HeldIntent(directory, identity)
        _copy(target, path, waiting, intent, bool(kept), progress)
    # RATIONALE: of several replicas each byte is in one place only, so they need no order.
    if not kept and any(journal.cache for journal in journals):
        intent.end()
    _remove(directory, journals, kept)
    return WriteBackResult(
        path,
        waiting.size,
        waiting.unsynced,
        waiting.lost,
        dropped=0 if kept else waiting.beyond,
        damaged=sum(journal.damaged for journal in journals),
        problem=waiting.problem if kept else "",
    )


def _copy(
    target: int, path: Path, waiting: Waiting, intent: HeldIntent, stays: bool, progress: Progress | None
) -> None:
    """Copy all that can be written back, and make it durable. The intent ``stays`` if journals do."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(f"writing back {path.name}", done, waiting.size)

    try:
        waiting.copy(target, intent, advance)
        os.fsync(target)
    except OSError:
        intent.stop(identity_of(target))
        raise
    if stays:
        intent.stop(identity_of(target))


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


def _remove(directory: Path, journals: Sequence[Journal], kept: Mapping[Path, int] = MappingProxyType({})) -> None:
    """Remove all journals of a directory and their cache files, then the intent.

    Those in ``kept`` stay, with a note of how many of their entries the original has. Nobody else
    needs the intent then, unless a journal stays.
    """
    caches = {journal.path: journal.cache for journal in journals if journal.cache is not None}
    # RATIONALE: the intent says by now that all bytes are home, or the notes say it. Otherwise an older
    # journal that is left would write its bytes over newer ones of a journal that is gone.
    for journal in journals:
        if journal.path in caches and kept:
            set_home(journal.path, kept.get(journal.path, journal.count))
    for path, cache in caches.items():
        if path not in kept:
            remove_cache(cache)
    for path in (*paths_in(directory), *paths_in(directory, UNFINISHED)):
        if path not in kept:
            path.unlink(missing_ok=True)
    for node in nodes_in(directory):
        try:
            node.rmdir()
        except OSError:  # some of its journals stay
            sync_directory(node)
    # RATIONALE: if the intent went first, the remaining journals would take the write-back for
    # somebody else's change.
    sync_directory(directory)
    if not kept:
        (directory / INTENT).unlink(missing_ok=True)


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
