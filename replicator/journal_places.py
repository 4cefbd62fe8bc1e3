"""Directories of journals and the notes that lead to them, once they are not needed any more.

Whoever calls these, except ``sweep``, holds the lock of the directory alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pdla.config import INODES, JOURNALS
from pdla.errors import FormatError
from pdla.replicator.journals import LOCK, locked, paths_in, read_journal
from pdla.replicator.write_targets import CACHE, directories_in


def forget(directory: Path, inode: int) -> None:
    """Remove the note that the directory has journals of this inode, unless it still has some."""
    if any(_may_be_of(path, inode) for path in paths_in(directory)):
        return
    _unlink([directory.parent / INODES / str(inode) / directory.name])


def _may_be_of(path: Path, inode: int) -> bool:
    try:
        return read_journal(path).file.inode == inode
    except FormatError:
        return True


def notes_of(root: Path) -> dict[str, list[Path]]:
    """The notes in the directory of all journals, by the directory to which they lead; those of none are removed."""
    notes: dict[str, list[Path]] = {}
    for note in (root / INODES).glob("*/*"):
        notes.setdefault(note.name, []).append(note)
    for name in [name for name in notes if not (root / name).is_dir()]:
        _unlink(notes.pop(name))
    return notes


def _unlink(notes: Iterable[Path]) -> None:
    for note in notes:
        note.unlink(missing_ok=True)
        with suppress(OSError):  # it is not the last one of its inode
            note.parent.rmdir()


def sweep(map_path: Path, who: str) -> None:
    """Remove what no journal needs next to a map, where nobody is at work; ``who`` is for those who wait."""
    notes = notes_of(map_path.parent / JOURNALS)
    for directory in directories_in(map_path):
        if not any(paths_in(directory)):
            with locked(directory, who) as busy:
                if not busy:
                    remove_needless(directory, notes.get(directory.name, ()))


def remove_needless(directory: Path, notes: Iterable[Path]) -> None:
    """Remove the notes of a directory without journals and, if it was made for a cache, the directory."""
    if any(paths_in(directory)):
        return
    _unlink(notes)
    if not directory.name.startswith(CACHE):
        return
    for marks in directory.glob("marks.*"):
        marks.unlink(missing_ok=True)
    # RATIONALE: whoever waits for the lock finds out that its file is gone.
    if {path.name for path in directory.iterdir()} == {LOCK}:
        (directory / LOCK).unlink()
        with suppress(OSError):  # a program has just made it anew
            directory.rmdir()
