"""What files must contain that MPI programs under pdla, and other processes, write in turn.

The bytes of a file are those that it would have natively: what programs under pdla wrote counts as written at its time,
although it may come home later. Another process, which is not under pdla, sees and copies what is home.

Where such a process changes a file, or its times, while bytes may wait for it, programs and ``pdla sync`` may refuse
the file and name it: then its bytes wait until ``pdla sync --changed overwrite``. They may also get it right. A chmod,
another name and a copy are no such change. Where a file lost its last name its bytes may go. A name that has passed
from a file with waiting bytes to another file may be refused, too; no byte may get from the one into the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class WrongError(Exception):
    """What happened is none of the right outcomes."""


@dataclass
class Image:
    """Bytes, each of which is certain, or one of several: programs were killed while they wrote."""

    newest: bytearray
    least: int
    """Of its size, which is in doubt, too, where this is not the length of ``newest``."""
    others: list[bytearray] = field(default_factory=list)
    """What it is where no program wrote that was killed, or where only the first ones did; as long as ``newest``."""

    @classmethod
    def of(cls, content: bytes) -> Image:
        return cls(bytearray(content), len(content))

    def write(self, at: int, data: bytes) -> None:
        self._grow(at + len(data))
        for part in (self.newest, *self.others):
            part[at : at + len(data)] = data
        self.least = max(self.least, at + len(data))

    def maybe(self, at: int, data: bytes) -> None:
        """Like ``write``, of which nobody knows what of it was done."""
        self._grow(at + len(data))
        self.others.append(bytearray(self.newest))
        self.newest[at : at + len(data)] = data

    def truncate(self, size: int) -> None:
        self._grow(size)
        for part in (self.newest, *self.others):
            del part[size:]
        self.least = size

    def is_certain(self, place: int) -> bool:
        return all(part[place] == self.newest[place] for part in self.others)

    def seen(self, found: bytes) -> str:
        """How what a program read differs; "" if it does not, and then it is certain from now on."""
        if not (wrong := self.difference(found)):
            self.newest, self.others, self.least = bytearray(found), [], len(found)
        return wrong

    def _grow(self, size: int) -> None:
        for part in (self.newest, *self.others):
            part.extend(bytes(max(0, size - len(part))))

    def difference(self, found: bytes) -> str:
        """How ``found`` differs; "" if it does not."""
        if not self.least <= len(found) <= len(self.newest):
            return f"{len(found)} bytes, not {len(self.newest)}"
        parts = [array(part)[: len(found)] for part in (self.newest, *self.others)]
        return where(np.logical_and.reduce([array(found) != part for part in parts]))


def array(part: bytes | bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(part), np.uint8)


def where(wrong: NDArray[np.bool_]) -> str:
    """Where bytes are wrong; "" if none is."""
    places = np.flatnonzero(wrong)
    return f"{len(places)} other bytes from {places[0]} to {places[-1]}" if len(places) else ""


@dataclass(eq=False)
class File:
    """A file of the file system, under any number of names."""

    image: Image
    home: bytes
    """What is in the file system, when somebody looked last."""
    past: list[bytes] = field(default_factory=list)
    """What it had since then, some of which may have come home before the rest."""
    paths: set[Path] = field(default_factory=set)
    """All that it ever had."""
    waiting: set[int] = field(default_factory=set)
    """The bytes that may not be home: written under pdla, in a way that leaves them, or by a killed program."""
    kept: dict[int, int] = field(default_factory=dict)
    """What waited for certain when somebody else changed the file."""
    changed: bool = False
    """Whether somebody else has changed it while bytes may have waited."""

    def written(self, at: int, data: bytes, *, waits: bool, certain: bool = True) -> None:
        """By a program under pdla."""
        self.past.append(bytes(self.image.newest))
        (self.image.write if certain else self.image.maybe)(at, data)
        if waits:
            self.waiting.update(range(at, at + len(data)))
            for place in self.kept.keys() & range(at, at + len(data)):
                del self.kept[place]

    def change(self) -> None:
        """By another process, which has not done it yet."""
        if self.changed:
            self.kept.clear()  # it may have come home since the first change, and this one is on top of it
        if not self.waiting or self.changed:
            return
        self.changed = True
        newest = self.image.newest
        for place in self.waiting & set(range(len(newest))):
            if self.image.is_certain(place) and (place >= len(self.home) or self.home[place] != newest[place]):
                self.kept[place] = newest[place]

    def settle(self) -> None:
        """All of it is home."""
        self.waiting.clear()
        self.kept.clear()
        self.changed = False

    def check(self, found: bytes) -> None:
        """What is home, by itself or by a step of pdla: the newest bytes, or what was there before."""
        if not self.waiting:
            if wrong := self.image.difference(found):
                raise WrongError(f"has {wrong}")
        elif wrong := self._neither(found):
            raise WrongError(f"has {wrong}, neither the newest nor those of before")
        self.home = found
        self.past.clear()

    def _neither(self, found: bytes) -> str:
        known, size = [bytes(self.image.newest), *map(bytes, self.image.others), self.home, *self.past], len(found)
        if not min(self.image.least, *map(len, known)) <= size <= max(map(len, known)):
            return f"{size} bytes, not {len(self.image.newest)}"
        parts = [array(part[:size].ljust(size, b"\0")) for part in known]
        return where(np.logical_and.reduce([array(found) != part for part in parts]))

    def check_overwritten(self, found: bytes) -> None:
        """Somebody wanted all that waited, over the change."""
        if not self.image.difference(found):
            return
        size = max(len(self.home), *(place + 1 for place in self.kept)) if self.kept else len(self.home)
        if len(found) < size:
            raise WrongError(f"has {len(found)} bytes after pdla sync --changed overwrite, not {size}")
        lost = np.array([found[place] != value for place, value in self.kept.items()], np.bool_)
        if wrong := where(lost):
            raise WrongError(f"lacks what waited after pdla sync --changed overwrite: {wrong}")
        apart = np.array([place not in self.waiting for place in range(len(found))], np.bool_)
        before = array(self.home[: len(found)].ljust(len(found), b"\0"))
        if wrong := where(apart & (before != array(found))):
            raise WrongError(f"has after pdla sync --changed overwrite {wrong}, which nobody wrote there")


@dataclass
class Names:
    """Which file each name has; a symbolic link has the name that it leads to."""

    files: dict[str, File] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    doubtful: set[Path] = field(default_factory=set)
    """Paths that have passed from a file for which bytes may have waited to another one, or to none."""
    gone: set[Path] = field(default_factory=set)
    """Those of such files that have no name any more."""

    def resolve(self, name: str) -> str:
        return self.links.get(name, name)

    def find(self, name: str) -> File | None:
        return self.files.get(self.resolve(name))

    def put(self, name: str, file: File, path: Path) -> None:
        """A file gets a name, which another file loses."""
        if path in file.paths:  # it is back
            self.doubtful.discard(path)
        self.drop(name, path)
        self.files[name] = file
        file.paths.add(path)

    def drop(self, name: str, path: Path) -> None:
        """A name is removed."""
        if self.links.pop(name, None) is not None:
            return
        file = self.files.pop(name, None)
        if file is not None and file.waiting:
            self.doubtful.add(path)
            if file in self.files.values():
                file.change()  # as many names as before cannot be told from another change
            else:
                self.doubtful |= file.paths
                self.gone |= file.paths

    def move(self, name: str, path: Path, to: str, new: Path) -> None:
        """A file gets another name in place of one.

        An old one, or one of several, cannot be told from another change.
        """
        file = self.files[name]
        if new in file.paths or sum(one is file for one in self.files.values()) > 1:
            file.change()
        self.put(to, file, new)
        del self.files[name]
        if file.waiting:
            self.doubtful.add(path)

    def exchange(self, one: str, path: Path, other: str, new: Path) -> None:
        """Two files get each other's name."""
        files = self.files
        files[one], files[other] = files[other], files[one]
        for name, at in ((one, path), (other, new)):
            files[name].paths.add(at)
            if files[name].waiting:
                self.doubtful |= {path, new}

    def settle(self) -> None:
        """Nothing waits for anything."""
        self.doubtful.clear()
        self.gone.clear()

    @property
    def living(self) -> list[File]:
        return list(dict.fromkeys(self.files.values()))

    def may_refuse(self, file: File | None, path: Path) -> bool:
        """Whether a program may get an error for what is at this path."""
        return path in self.doubtful or (file is not None and file.changed)
