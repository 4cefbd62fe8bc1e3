"""The file for which bytes wait: where it is now, or whether it is gone for good."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path

from pdla.replicator.file_identity import Which, compare, identify
from pdla.replicator.journals import Journal

MOST_LOOKED_AT = 100_000
"""Files to look at, at most, in order to find one that was moved."""


class Verdict(Enum):
    """A file was found; it was removed, which is proved; or neither is known."""

    FOUND = "found"
    GONE = "gone"
    NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Place:
    """Where a file is. ``path`` is None unless it was found; ``why`` then says what is known."""

    verdict: Verdict
    path: Path | None = None
    why: str = ""


def look_for(journals: Sequence[Journal]) -> Place:
    """The original of journals of one file, at its name or near it."""
    journal = journals[0]
    here = _which(journal, journal.target)
    if here is Which.THIS:
        return Place(Verdict.FOUND, journal.target)
    moved, all_seen = _look_near(journal)
    if moved is not None:
        return Place(Verdict.FOUND, moved)
    if _was_removed(journals):
        return Place(Verdict.GONE, why="the file was removed")
    return Place(Verdict.NOT_KNOWN, why=_said(journal, here, all_seen))


def _which(journal: Journal, path: Path) -> Which | None:
    """Whether the file at a path is the original; None: there is none."""
    try:
        found = identify(path)
    except OSError:
        return None
    return compare(journal.file, journal.target, found, path, this_boot=journal.is_of_this_boot)


def _was_removed(journals: Sequence[Journal]) -> bool:
    """Whether the last name of the original went: a process saw that, or the number has another file now."""
    if any(one.attributes and one.attributes[-1] == 0 for one in journals):
        return True
    journal = journals[0]
    with suppress(OSError):
        return journal.is_of_this_boot and journal.file.was_replaced_by(identify(journal.target))
    return False


def _said(journal: Journal, here: Which | None, all_seen: bool) -> str:
    if here is Which.MAY_BE:
        return "the file at its name may be a copy of it on another file system, such as a clone or a snapshot"
    near = "near its name" if all_seen else f"among {MOST_LOOKED_AT} files near its name"
    state = "there is no file of this name" if here is None else "another file has this name"
    return f"{state}, and the one that was written was not found {near}: it was moved or removed, or is not mounted"


def _look_near(journal: Journal) -> tuple[Path | None, bool]:
    """The present name of a file that was moved, and whether all files near its old name were seen."""
    start = journal.target.parent
    while not start.is_dir() and start != start.parent:
        start = start.parent
    climbed = start != journal.target.parent
    if start == start.parent or (climbed and journal.is_of_this_boot and start.stat().st_dev != journal.file.device):
        return None, False
    count = 0
    for entry in islice(_below(start), MOST_LOOKED_AT):
        count += 1
        path = Path(entry.path)
        if entry.inode() == journal.file.inode and _which(journal, path) is Which.THIS:
            return path, True
    return None, count < MOST_LOOKED_AT


def _below(directory: Path) -> Iterator[os.DirEntry[str]]:
    """The files in a directory, then those in the directories below it, then those in its parent directory, all on one
    file system."""
    waiting = deque([directory])
    seen = set()
    device = directory.stat().st_dev
    while waiting:
        here = waiting.popleft()
        seen.add(here)
        with suppress(OSError), os.scandir(here) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry
                elif (
                    entry.is_dir(follow_symlinks=False)
                    and Path(entry.path) not in seen
                    and entry.stat(follow_symlinks=False).st_dev == device
                ):
                    waiting.append(Path(entry.path))
        if not waiting and directory.parent not in seen and directory.parent.stat().st_dev == device:
            waiting.append(directory.parent)
