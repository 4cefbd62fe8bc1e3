"""Write-back outside the program: after a crash, or at the end of a lease of writes.

The rules are those of docs/formats.md, "Write-back", which replicator/stub/stale_journals.c
follows, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
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
from pdla.replicator.file_identity import Which, compare, identify
from pdla.replicator.identity import identity_of, leased
from pdla.replicator.intent import NAME as INTENT
from pdla.replicator.intent import HeldIntent, read_intent
from pdla.replicator.journal_places import forget, notes_of, remove_needless
from pdla.replicator.journals import UNFINISHED, Journal, locked, nodes_in, paths_in, read_journal, set_home
from pdla.replicator.lost_files import Verdict, look_for
from pdla.replicator.mapfile import fold
from pdla.replicator.replica_sync import InReplicas
from pdla.replicator.reservations import remove_cache
from pdla.replicator.write_targets import cache_journals_of, directories_in, journals_of, replicas_of, target_of

Conflict = Literal["keep", "overwrite", "discard"]
"""What happens to bytes whose original somebody else has changed: they wait, replace the change, or are dropped."""

Progress = Callable[[str, int, int], None]

STAMP_SLACK_NS = 2_000_000_000
"""The file system's time of a killed program's write is at most this much later than the program's own note of it."""


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
    file. Then "discard" drops its bytes also if the file cannot be found.

    Each original is written under a lease, in its own order, and under an intent. A journal is
    removed when its bytes are durable in the original; so after an interruption all of it is done
    again. What somebody else has written since is not overwritten, unless ``conflict`` says so.
    ``who`` is the name that others see while they wait.

    Raises:
        PdlaError: the catalog cannot be used.
    """
    map_path = map_path or config.map_path()
    found = []
    notes = notes_of(map_path.parent / config.JOURNALS)
    for directory in directories_in(map_path):
        if only is not None and not _concerns(directory, only, map_path, notes.get(directory.name, ())):
            continue
        with locked(directory, who) as busy:
            if busy:
                found += _running(directory, busy)
            else:
                found += _sync_directory(catalog, directory, only, conflict, progress)
                remove_needless(directory, notes.get(directory.name, ()))
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


def _concerns(directory: Path, path: Path, map_path: Path, notes: Iterable[Path]) -> bool:
    """Whether journals are of the file at ``path``; those that cannot be read are if an open of it would find them."""
    journals, problems = _read(directory)
    if any(_is_meant(one, path) for one in journals):
        return True
    inodes = {note.parent.name for note in notes}
    return bool(problems) and (
        directory in (journals_of(map_path, path), cache_journals_of(map_path, path))
        or (path.exists() and str(path.stat().st_ino) in inodes)
    )


def _is_meant(journal: Journal, path: Path) -> bool:
    return journal.target == path or _which(journal, path) is Which.THIS


def _which(journal: Journal, path: Path) -> Which:
    """Whether the file at ``path`` is the original of a journal."""
    try:
        found = identify(path)
    except OSError:
        return Which.OTHER
    return compare(journal.file, journal.target, found, path, this_boot=journal.is_of_this_boot)


def _running(directory: Path, who: str) -> list[WriteBackResult]:
    journals = [journal for journal in _read(directory)[0] if len(journal.waiting)]
    return [WriteBackResult(journals[0].target, problem=who, busy=True)] if journals else []


def _sync_directory(
    catalog: Catalog, directory: Path, only: Path | None, conflict: Conflict, progress: Progress | None
) -> list[WriteBackResult]:
    _end_removal(directory)
    journals, problems = _read(directory)
    if problems:
        return [_sync_unread(catalog, directory, journals, problems, only, conflict)]
    found = []
    for group in _by_file(journals, _inode_of_intent(directory)):
        if only is not None and not any(_is_meant(journal, only) for journal in group):
            continue
        row = _sync_file(catalog, directory, group, conflict, progress, named=only is not None)
        found += [row] if row else []
        # RATIONALE: the intent says that a write-back has left the file half old and half new. That of another file
        # would take its place.
        if row and row.problem and _inode_of_intent(directory) == group[0].file.inode:
            break
    if not journals:
        _remove(directory, [])
    return found


def _sync_unread(
    catalog: Catalog,
    directory: Path,
    journals: Sequence[Journal],
    problems: Sequence[str],
    only: Path | None,
    conflict: Conflict,
) -> WriteBackResult:
    """Nothing is written while a journal cannot be read: its bytes may be newer than those of any other."""
    unread = set(paths_in(directory)) - {journal.path for journal in journals}
    mine = [journal for journal in journals if only is None or _is_meant(journal, only)]
    waiting = _waiting(catalog, directory, mine)
    named = next((one.target for one in (*filter(_tells, mine), *mine)), only or directory)
    if conflict != "discard":
        return WriteBackResult(named, problem=f"{'; '.join(problems)}: {_said(waiting)}")
    _remove(directory, mine)
    for path in unread:
        path.unlink(missing_ok=True)
    if not paths_in(directory):
        _remove(directory, [])
    return WriteBackResult(named, dropped=waiting.size + waiting.beyond)


def _tells(journal: Journal) -> bool:
    return bool(len(journal.waiting) + journal.damaged)


def _inode_of_intent(directory: Path) -> int | None:
    """The number of the file that a write-back has not finished; None: there is none, or the intent is damaged."""
    with suppress(FormatError):
        intent = read_intent(directory)
        return None if intent is None else intent.identity.inode
    return None


def _by_file(journals: Sequence[Journal], first: int | None) -> list[list[Journal]]:
    """The journals of each file; those of the file with the number ``first`` first."""
    groups: dict[tuple[object, ...], list[Journal]] = {}
    for journal in journals:
        file = journal.file
        told = (file.birth_ns, file.handle) if file.birth_ns or file.handle else (file.device,)
        groups.setdefault((file.inode, *told), []).append(journal)
    return sorted(groups.values(), key=lambda group: group[0].file.inode != first)


def _sync_file(
    catalog: Catalog,
    directory: Path,
    journals: list[Journal],
    conflict: Conflict,
    progress: Progress | None,
    *,
    named: bool,
) -> WriteBackResult | None:
    telling = [journal for journal in journals if _tells(journal)]
    if not telling:
        _remove(directory, journals)
        return None
    target = telling[0].target
    if silent := sorted(unanswered(_places(catalog, directory, telling))):
        return WriteBackResult(target, problem=f"its bytes wait, since {silent[0]} {no_answer()}")
    waiting = _waiting(catalog, directory, journals)
    place = look_for(telling)
    # RATIONALE: a file that is not mounted now may be wanted tomorrow. Whoever drops the bytes of changed files does
    # not think of it, unless he names it.
    if place.path is None and (place.verdict is Verdict.GONE or (named and conflict == "discard")):
        _remove(directory, journals)
        return WriteBackResult(target, dropped=waiting.size + waiting.beyond)
    if place.path is None:
        return WriteBackResult(target, problem=f"{place.why}: {_said(waiting)}")
    try:
        row = _write_back_file(catalog, directory, place.path, journals, waiting, conflict, progress)
    except (OSError, BusyError, FormatError) as error:
        return WriteBackResult(place.path, problem=f"{error}: {_said(waiting)}")
    return replace(row, moved_from=None if place.path == target else target)


def _places(catalog: Catalog, directory: Path, journals: Sequence[Journal]) -> list[Path]:
    """Where the original of journals is, and the bytes that wait."""
    replicas = replicas_of(directory, catalog.replicas.find()).values()
    held = [component.path.parent for one in replicas for component in one.components]
    return [*held, *(journal.cache for journal in journals if journal.cache), *(one.target for one in journals[:1])]


def _end_removal(directory: Path) -> None:
    """Remove the journals whose removal was interrupted: the original has their bytes."""
    with suppress(FormatError):
        intent = read_intent(directory)
        if intent is not None and intent.done:
            _remove(directory, [one for one in _read(directory)[0] if one.file.inode == intent.identity.inode])


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
        if any(_is_other(journal, target, path) for journal in journals):
            return WriteBackResult(path, problem=f"another file has got its name: {_said(waiting)}")
        identity = identity_of(target)
        stack.enter_context(leased(catalog, target, path))
        changed = ""
        if conflict != "overwrite":
            changed = _changed(journals, directory, identity, path, _attributes(target))
        if changed and conflict == "discard":
            _remove(directory, journals)
            return WriteBackResult(path, dropped=waiting.size + waiting.beyond)
        if changed:
            advice = "pdla sync --changed overwrite replaces the change, --changed discard drops the bytes that wait"
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
    mine = {journal.path for journal in journals}
    all_mine = mine.issuperset(paths_in(directory))
    for path in (*mine, *(paths_in(directory, UNFINISHED) if all_mine else ())):
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
    inodes = {journal.file.inode for journal in journals}
    if not kept:
        _remove_intent(directory, inodes, all_mine)
        for inode in inodes:
            forget(directory, inode)


def _remove_intent(directory: Path, inodes: Collection[int], alone: bool) -> None:
    """Remove the intent, unless it is of another file that has journals."""
    if alone or _inode_of_intent(directory) in inodes:
        (directory / INTENT).unlink(missing_ok=True)


def _attributes(descriptor: int) -> tuple[int, ...]:
    found = os.fstat(descriptor)
    return found.st_mode, found.st_uid, found.st_gid, found.st_nlink


def _changed(
    journals: Sequence[Journal], directory: Path, now: Identity, path: Path, attributes: tuple[int, ...]
) -> str:
    """What somebody else did, or may have done, to the original since the program left it; empty if nothing."""
    if any(journal.overtaken for journal in journals):
        return "it may have newer bytes, from a run whose write-back failed"
    try:
        intent = read_intent(directory)
    except FormatError as error:
        return str(error)
    # A process that was killed while it wrote to the original could not note how it left the file.
    busy = [journal.stamp_ns for journal in journals if journal.busy]
    as_left = any(_is_left(one.left, now, _explains(one, path, attributes)) for one in journals if not one.busy)
    explained = any(_explains(one, path, attributes) for one in journals)
    if intent is not None and intent.identity.inode == now.inode:
        as_left = as_left or (not intent.busy and _is_left(intent.identity, now, explained))
        busy += [intent.until_ns] if intent.busy else []
    if as_left:
        return ""
    if busy and max(now.mtime_ns, 0 if explained else now.ctime_ns) <= max(busy) + STAMP_SLACK_NS:
        return ""
    return "somebody else has changed it since"


def _explains(journal: Journal, path: Path, attributes: tuple[int, ...]) -> bool:
    """Whether a new name, a chmod, a chown or a new link since the process's last state explains another ctime."""
    return path != journal.target or journal.attributes not in ((), attributes)


def _is_left(left: Identity, now: Identity, explained: bool) -> bool:
    """Whether the original is as it was left.

    RATIONALE: a write changes the mtime, but whoever restores a backup may put it back, and changes
    the ctime, which nothing else explains.
    """
    return (now.size, now.mtime_ns) == (left.size, left.mtime_ns) and (explained or now.ctime_ns == left.ctime_ns)


def _is_other(journal: Journal, descriptor: int, path: Path) -> bool:
    found = identify(descriptor)
    return compare(journal.file, journal.target, found, path, this_boot=journal.is_of_this_boot) is not Which.THIS
