"""Check replicas, and remove those that nobody can use."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from pdla import config
from pdla.answers import no_answer, unanswered
from pdla.catalog import Catalog, Checksum, Component, Replica, State
from pdla.errors import BusyError, PdlaError, UnfitError
from pdla.layouts.striping import locate
from pdla.left_reports import has_reports, is_left, noted_run, place, remove_unfinished
from pdla.model import Identity
from pdla.replicator.backends import misplaced
from pdla.replicator.backends.base import delete, ensure_responds, responds
from pdla.replicator.checksums import EXTENT, is_stored
from pdla.replicator.copying import opened
from pdla.replicator.critical_logs import record_left
from pdla.replicator.exit_reports import collect
from pdla.replicator.identity import is_at, stable_identity
from pdla.replicator.journal_places import sweep
from pdla.replicator.journals import locked
from pdla.replicator.mapfile import CHANGED, fold, publish, read_map
from pdla.replicator.transpose import Bytes, aligned, reopened_direct, runs
from pdla.replicator.write_targets import journals_of, target_of

Progress = Callable[[str, int, int], None]
"""Called with the name of the work, and the bytes done so far and in all."""

READERS = 4
UNFINISHED: tuple[State, ...] = ("planned", "building")


@dataclass(frozen=True)
class Finding:
    """Something wrong with a replica; ``away``: its storage cannot be reached, and it stays as it is."""

    replica: int
    path: Path
    problem: str
    away: bool = False


@dataclass(frozen=True)
class Removed:
    """What was removed: the bytes of the files. ``kept``: replicas that stay on record, as their files are left."""

    bytes: int
    kept: tuple[Finding, ...]


def verify(
    catalog: Catalog, *, deep: bool = False, map_path: Path | None = None, progress: Progress | None = None
) -> list[Finding]:
    """Check every replica in use: its components there and as they were built, byte for byte.

    ``deep`` also compares replicas with their originals. If an original was changed, its replicas are
    compared with it in any case: those that have its bytes all the same are valid again. Another
    replica with a finding becomes stale and leaves the published map, unless it is only unreachable.
    A damaged or missing map is made anew. Others may change replicas while the bytes are read.

    Raises:
        BusyError: another process is changing the replicas.
    """
    with catalog.exclusive():
        before = catalog.replicas.find("valid", purpose="read")
        fold(catalog, map_path)
        now = catalog.replicas.find("valid")
        changed = changed_since(catalog)
        known = {replica.id for replica in (*now, *changed)}
        gone = [replica for replica in before if replica.id not in known]
        findings = [Finding(one.id, one.original.path, catalog.replicas.get(one.id).why) for one in gone]
    total, done = sum(component.size for replica in (*now, *changed) for component in replica.components), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress("verifying", done, total)

    asked = cache(responds)
    examined = (_examined(catalog, replica, deep, asked, advance) for replica in now)
    wrong = [found for found in examined if found is not None]
    with catalog.exclusive():
        still = {replica.id for replica in catalog.replicas.find("valid")}
        findings += (found := [one for one in wrong if one.replica in still])
        if _mark_stale(catalog, found) or gone or not _is_readable(map_path or config.map_path()):
            publish(catalog, map_path)
    return [*findings, *_compare(catalog, changed, map_path, advance)]


def changed_since(catalog: Catalog) -> list[Replica]:
    """The stale replicas whose originals were changed, perhaps only elsewhere: nobody has compared them yet."""
    return [replica for replica in catalog.replicas.find("stale") if replica.why == CHANGED]


def compare_changed(catalog: Catalog, *, map_path: Path | None = None, progress: Progress) -> None:
    """Compare the replicas of changed originals with them, as far as the catalog knows of changes.

    Those that have the bytes are valid again; the others stay stale.

    Raises:
        BusyError: another process is changing the replicas.
    """
    changed, done = changed_since(catalog), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress("comparing", done, sum(replica.size for replica in changed))

    _compare(catalog, changed, map_path, advance)


def _mark_stale(catalog: Catalog, wrong: Sequence[Finding]) -> bool:
    """Mark replicas with findings, unless they are only away, as stale; whether there are any."""
    stale = {found.replica: f"{found.path}: {found.problem}" for found in wrong if not found.away}
    catalog.replicas.mark_stale(stale)
    return bool(stale)


def _compare(
    catalog: Catalog, changed: Sequence[Replica], map_path: Path | None, advance: Callable[[int], None]
) -> list[Finding]:
    asked = cache(responds)
    found = {replica.id: _compared(catalog, replica, asked, advance) for replica in changed}
    if not found:
        return []
    with catalog.exclusive():
        fold(catalog, map_path)
        still = {one.id: one for one in changed_since(catalog) if one.id in found}
        wrong = [one for one in found.values() if isinstance(one, Finding) and one.replica in still]
        same = {one: state for one, state in found.items() if isinstance(state, Identity) and one in still}
        # Published without them first: the state file of the map that has them also has their marks.
        if _mark_stale(catalog, wrong) or same:
            publish(catalog, map_path)
        if _readmit(catalog, [still[number] for number in same], same):
            publish(catalog, map_path)
    return wrong


def _compared(
    catalog: Catalog, replica: Replica, asked: Callable[[Path], bool], advance: Callable[[int], None]
) -> Finding | Identity:
    """What is wrong with the replica of a changed original, or the original's state of which it is a copy."""
    path = replica.original.path
    try:
        with opened(path) as source:
            identity = stable_identity(source, path)
            found = _examined(catalog, replica, False, asked, advance)
            if replica.access_map.extent[1] > identity.size:
                return found or Finding(replica.id, path, CHANGED)
            return found or _difference(replica) or identity
    except UnfitError:
        return Finding(replica.id, path, CHANGED)
    except PdlaError as error:
        return Finding(replica.id, path, f"cannot be compared: {error}", away=True)


def _readmit(catalog: Catalog, replicas: Sequence[Replica], states: Mapping[int, Identity]) -> bool:
    """Make stale replicas valid whose originals are still in these states; whether there are any."""
    copies = [one for one in replicas if _is_still(one, states[one.id])]
    for replica in copies:
        catalog.originals.set(replica.original.path, states[replica.id])
        catalog.replicas.mark(replica.id, "valid", "")
    return bool(copies)


def _is_still(replica: Replica, identity: Identity) -> bool:
    """Whether a replica's original is the file that it was copied from, and is now in this state."""
    return replica.original.identity.inode == identity.inode and is_at(replica.original.path, identity)


def _is_readable(map_path: Path) -> bool:
    try:
        read_map(map_path)
    except PdlaError:
        return False
    return True


def _examined(
    catalog: Catalog, replica: Replica, deep: bool, asked: Callable[[Path], bool], advance: Callable[[int], None]
) -> Finding | None:
    """What is wrong with a replica, or None; ``advance`` is called with the bytes read."""
    number, components = replica.id, replica.components
    if unanswered([replica.original.path]):
        return Finding(number, replica.original.path, f"cannot be reached: it {no_answer()}", away=True)
    for component in components:
        try:
            ensure_responds([component.path], asked)
            if not component.path.parent.is_dir():
                return Finding(number, component.path, "cannot be reached: its directory does not exist", away=True)
            if not _unchanged(component, replica.purpose == "write"):
                return Finding(number, component.path, "is missing or is not the file that was built")
            if now := misplaced(component):
                return Finding(number, component.path, f"is now placed as {now}")
        except (OSError, PdlaError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            return Finding(number, component.path, f"cannot be reached: {why}", away=True)
    if (found := _damage(components, catalog.replicas.checksums(number), advance)) is not None:
        place, problem = found
        return Finding(number, components[place].path, problem)
    return _difference(replica) if deep and replica.purpose == "read" else None


def _difference(replica: Replica) -> Finding | None:
    """Where a replica and its original differ."""
    try:
        at = _first_difference(replica)
    except OSError as error:
        return Finding(replica.id, Path(error.filename or replica.original.path), f"cannot be read: {error.strerror}")
    if at is None:
        return None
    return Finding(replica.id, replica.original.path, f"differs from the replica at the replica's byte {at}")


def _damage(
    components: Sequence[Component], checksums: Sequence[Sequence[Checksum]], advance: Callable[[int], None]
) -> tuple[int, str] | None:
    """What is wrong with the bytes of a component (its place in the sequence); all bytes are read from storage.

    The components are read in turn, some extents at a time, since they may be on different disks.
    An exception from ``advance`` says nothing about the components.
    """
    with ExitStack() as stack:
        files = []
        for place, component in enumerate(components):
            try:
                files.append(_opened(component.path, stack))
            except OSError as error:
                return place, f"cannot be read: {error.strerror}"
        rounds = zip_longest(*([(place, extent) for extent in sums] for place, sums in enumerate(checksums)))
        extents = [one for turn in rounds for one in turn if one is not None]
        # Reused: the page faults of new buffers would take as long as reading.
        buffers = SimpleQueue[Bytes]()
        for _ in range(READERS):
            buffers.put(aligned(EXTENT))

        def problem(one: tuple[int, Checksum]) -> str:
            (place, extent), buffer = one, buffers.get()
            try:
                if is_stored(*files[place], extent, buffer):
                    return ""
                return f"has wrong bytes between {extent.offset} and {extent.offset + extent.length}"
            except OSError as error:
                return f"cannot be read: {error.strerror}"
            finally:
                buffers.put(buffer)

        readers = ThreadPoolExecutor(READERS)
        stack.callback(readers.shutdown, cancel_futures=True)
        problems = readers.map(problem, extents)
        for (place, extent), why in zip(extents, problems, strict=True):
            if why:
                return place, why
            advance(extent.length)
    return None


def _opened(path: Path, stack: ExitStack) -> tuple[int, int | None]:
    """A component open for reading, and the same file open for direct I/O, if that is possible.

    Its pages are first dropped from the page cache, so that the bytes come from storage.
    """
    file = stack.enter_context(path.open("rb", buffering=0)).fileno()
    direct = reopened_direct(file, os.O_RDONLY)
    if direct is None:
        os.fdatasync(file)
    else:
        stack.callback(os.close, direct)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return file, direct


def _first_difference(replica: Replica) -> int | None:
    files = [os.open(component.path, os.O_RDONLY | os.O_CLOEXEC) for component in replica.components]
    source = os.open(replica.original.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for run in runs(source, replica.original.path, replica.access_map):
            for component, offset, length, logical in locate(replica.rule, run.start, run.start + len(run.data)):
                held = np.frombuffer(os.pread(files[component], length, offset), dtype=np.uint8)
                wanted = run.data[logical - run.start :][:length]
                if len(held) != length:
                    return logical + len(held)
                if (held != wanted).any():
                    return logical + int(np.argmax(held != wanted))
    finally:
        for file in (*files, source):
            os.close(file)
    return None


def components_unchanged(replica: Replica) -> bool:
    """Whether every component is the file that was built, by inode, size and, unless it is for writes, mtime."""
    return all(_unchanged(component, replica.purpose == "write") for component in replica.components)


def _unchanged(component: Component, written: bool = False) -> bool:
    try:
        found = component.path.stat()
    except OSError:
        return False
    same = (found.st_ino, found.st_size) == (component.inode, component.size)
    return same and (written or found.st_mtime_ns == component.mtime_ns)


def remove(catalog: Catalog, replica_id: int, *, map_path: Path | None = None) -> Removed:
    """Remove a replica. Running programs go on with the original.

    Raises:
        BusyError: the replica is being built.
        PdlaError: there is no such replica, or it is dirty.
    """
    replica = catalog.replicas.get(replica_id)
    if replica.state == "dirty":
        raise PdlaError(f"replica {replica_id}: {replica.why}")
    for lease in catalog.leases.all():
        if replica.state in UNFINISHED and lease.token == replica.fence and lease.seconds > 0:
            raise BusyError(f"replica {replica_id} is being built by {lease.holder}: wait for that process, or end it")
    return discard(catalog, [replica_id], map_path)


def gc(catalog: Catalog, *, map_path: Path | None = None, keep: Collection[int] = ()) -> Removed:
    """Remove what nobody can use.

    These are replicas that are stale, retired or unfinished, but not those to ``keep``, old state files, exit reports
    whose pdla was killed (what these runs found critical is recorded), and directories without journals.

    Raises:
        BusyError: another process is changing the replicas.
    """
    map_path = map_path or config.map_path()
    catalog.take_in()
    with catalog.exclusive():
        fold(catalog, map_path)
        catalog.leases.end_expired()
        catalog.database.forget_marks()
        working = {lease.token for lease in catalog.leases.all()}
        unfinished = [replica.id for replica in catalog.replicas.find(*UNFINISHED) if replica.fence not in working]
        unusable = [replica.id for replica in catalog.replicas.find("stale", "retired") if replica.id not in keep]
        removed = discard(catalog, [*unfinished, *unusable], map_path)
        try:
            current = read_map(map_path).state_path
        except PdlaError:
            current = publish(catalog, map_path).state_path
        for file in map_path.parent.glob(f"{map_path.name}.*"):
            if file.suffix in (".state", ".tmp") and file != current:
                file.unlink(missing_ok=True)
        remove_left_runs(catalog, map_path)
    sweep(map_path, "pdla gc")
    return removed


def remove_left_runs(catalog: Catalog, map_path: Path | None = None) -> None:
    """Remove the directories of runs whose pdla was killed, after their reports and critical reads are recorded."""
    for reports in (map_path or config.map_path()).parent.glob(f"{config.RUN_PREFIX}*"):
        _remove_unlocked(reports, catalog)


def _remove_unlocked(directory: Path, catalog: Catalog) -> None:
    """Record what is in the directory of a run and remove it, unless the process that uses it holds its lock."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        where, command = noted_run(directory) or ("", "")
        if where and where != place(catalog.url):
            return  # that catalog will record it
        record_left(directory, catalog)
        if where and has_reports(directory) and not is_left(directory.name):
            catalog.results.add(collect(directory, command), directory.name)
        remove_unfinished(directory.name)
        shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


def discard(catalog: Catalog, replica_ids: Sequence[int], map_path: Path | None = None) -> Removed:
    """Take replicas out of the published map, then remove their files, then their rows.

    After an interruption, or if files cannot be removed, the rows still exist, so that the files
    can be found.

    Raises:
        BusyError: a program writes to one of the replicas.
        PdlaError: one of the replicas is dirty.
    """
    freed, kept = 0, []
    if not replica_ids:
        return Removed(0, ())
    with catalog.exclusive(), ExitStack() as written:
        fold(catalog, map_path)
        for target in {target_of(one) for one in _with_ids(catalog, replica_ids) if one.purpose == "write"}:
            if written.enter_context(locked(journals_of(map_path or config.map_path(), target))):
                raise BusyError(f"a program writes to {target}: wait until it has ended")
        for replica in _with_ids(catalog, replica_ids):
            if replica.state == "dirty":
                raise PdlaError(f"replica {replica.id}: {replica.why}")
        for replica in _with_ids(catalog, replica_ids):
            if replica.state == "valid":
                catalog.replicas.mark(replica.id, "retired", "removed")
        publish(catalog, map_path)
        asked = cache(responds)
        for replica in _with_ids(catalog, replica_ids):
            try:
                ensure_responds((component.path for component in replica.components), asked)
                for component in replica.components:
                    freed += delete(component.path)
            except OSError as error:
                problem = f"cannot be removed: {error.strerror}"
                catalog.replicas.mark(replica.id, "retired", f"{error.filename} {problem}")
                kept.append(Finding(replica.id, Path(error.filename), problem))
                continue
            catalog.replicas.forget(replica.id)
    return Removed(freed, tuple(kept))


def _with_ids(catalog: Catalog, replica_ids: Iterable[int]) -> list[Replica]:
    return [catalog.replicas.get(replica_id) for replica_id in replica_ids]
