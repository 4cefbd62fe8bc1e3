"""What a storage back end does: make the component files of a replica where its layout says (docs/backends.md)."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.striping import component_sizes
from pdla.model import Layout, Pool

PATIENCE = 15.0
"""Seconds after which storage that does not answer is taken to be lost."""


class Server(NamedTuple):
    """A server of a pool: the directory that its files are made in, and what the storage calls it, if it has a name."""

    directory: Path
    name: str


@dataclass(frozen=True)
class NewComponent:
    """A file to make: ``size`` bytes at ``path``, on one server, or striped by the storage over several.

    The storage repeats ``strips``, the bytes on one of ``servers`` before the next one's turn, from the file's first
    byte. On one server they do not matter. ``direct``: see ``Backend.direct``.
    """

    path: Path
    size: int
    servers: tuple[Server, ...]
    strips: tuple[int, ...]
    direct: bool = True


class Backend(ABC):
    """A pool's storage. A back end passes ``suite.BackendTests`` and is named in ``backends.BACKENDS``.

    Components are files that every client sees under one path: finishing and removing them is the same everywhere.
    """

    name: ClassVar[str]
    direct: ClassVar[bool] = True
    """Whether large pieces are best written directly. Clients that send each such write alone are faster without."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.servers = tuple(
            Server(Path(directory).absolute(), name)
            for part in pool.parts or (pool,)
            for directory, name in _servers(part)
        )

    def obstacle(self, layout: Layout, size: int) -> str:
        """Not required. Why no replica of ``size`` bytes can be in this layout here; empty if one can.

        The planner asks for every candidate: what takes time is asked once.
        """
        if layout.servers > len(self.servers):
            return f"a layout over {layout.servers} servers needs as many in the pool (got {len(self.servers)})"
        return ""

    def rule(self, layout: Layout, size: int) -> Layout:
        """Not required. How a replica of ``size`` bytes is striped over its component files.

        Either the layout itself, a component per server, or, where the storage stripes natively over the servers of a
        group, ``layout.by_group``: a component per group. The catalog tells the two by the number of components.
        """
        return layout

    def trouble(self, servers: Sequence[Server]) -> str:
        """Not required. What the storage itself says is wrong with these servers now; empty: nothing.

        It is asked every few seconds while a replica is built, and answers soon also when the storage is lost.
        """
        return ""

    @classmethod
    def placement(cls, path: Path) -> str:
        """Not required. Where the storage says that a component is, in words that are the same while it is there.

        Raises:
            OSError: it cannot be asked.
            PdlaError: likewise.
        """
        return ""

    @abstractmethod
    def prepare(self, servers: Sequence[Server]) -> None:
        """Required. Nothing, if these servers are there and files can be made on them; it may make directories.

        Raises:
            ConfigError: they cannot be used; the message says what is missing.
        """

    @abstractmethod
    def free(self) -> list[int]:
        """Required. Bytes that can still be written, per server."""

    @abstractmethod
    def path(self, name: str, number: int, server: Server) -> Path:
        """Required. The absolute path of component ``number``, which begins on ``server``, of the replica ``name``.

        It is the same whenever it is asked, and no other name or number has it. ``name`` may have folders in it.
        """

    @abstractmethod
    def create(self, component: NewComponent) -> int:
        """Required. Make the file ``temporary(component.path)``, only for its owner, with its space reserved.

        What the storage is asked to do with the file is read back from it.

        Returns:
            A descriptor for reading and writing.

        Raises:
            PdlaError: there is no space or no right to it, or the storage did not place it as asked; no file is left.
        """

    def reserve(self, descriptor: int, component: NewComponent) -> None:  # noqa: B027
        """Not required. Reserve the space of a new component, where ``create`` can only look whether there is enough.

        It is asked for replicas that programs write to: what is built is read back.

        Raises:
            OSError: it cannot be written.
            PdlaError: there is no space.
        """

    def check(self, layout: Layout, size: int) -> None:
        """Nothing, if this storage is there and can hold a replica of ``size`` bytes in this layout.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        if why := self.obstacle(layout, size):
            raise ConfigError(f"pool {self.pool.name}: {why}")
        self.prepare(self.servers[: layout.servers])

    def components(self, name: str, layout: Layout, size: int) -> list[NewComponent]:
        """The files of the replica ``name`` of ``size`` bytes, in the order of its ``rule``."""
        rule = self.rule(layout, size)
        width = layout.servers // rule.servers
        found = []
        for number, length in enumerate(component_sizes(rule, size)):
            servers = self.servers[number * width :][:width]
            strips = layout.strips if width > 1 else (layout.strips[number % len(layout.strips)],)
            found.append(NewComponent(self.path(name, number, servers[0]), length, servers, strips, self.direct))
        return found


def _servers(pool: Pool) -> list[tuple[str, str]]:
    if pool.names:
        return [(pool.where[0], name) for name in pool.names]
    return [(directory, "") for directory in pool.where]


def temporary(path: Path) -> Path:
    """The name of a component while it is being written."""
    return path.with_name(path.name + ".tmp")


def folder_in(directory: Path) -> Path:
    """Where in a pool's directory this user's replicas are: users may share the directory, as /scratch."""
    return directory / f"pdla-replicas-{os.geteuid()}"


def make_folder(directory: Path) -> Path:
    """This user's folder, in a directory that may belong to somebody else.

    Raises:
        OSError: it cannot be made, or others could replace what is in it.
    """
    folder = folder_in(directory)
    folder.mkdir(exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "it is another user's, or open to others", str(folder))
    return folder


def make_private(file: Path) -> int:
    """A descriptor of a new and empty file, only for its owner, in a directory likewise.

    Raises:
        PdlaError: it cannot be made, or is there already.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PdlaError(f"cannot make {file}: {error.strerror}") from error


def responds(directory: Path) -> bool:
    """Whether storage does something within ``PATIENCE``, if only refuse: a file is made and removed.

    Another process tries: what waits for lost storage can often not be stopped, not even killed.
    """
    command = ["sh", "-c", 'file=$(mktemp -p "$0" .pdla-XXXXXX) && rm "$file"', str(directory)]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return False  # left alone: it removes its file when the storage is back
    return True


def ensure_responds(paths: Iterable[Path], asked: Callable[[Path], bool]) -> None:
    """Nothing, if the storage of files answers; ``asked`` is ``responds``, or remembers what it said.

    Raises:
        TimeoutError: it does not.
    """
    for directory in {path.parent for path in paths}:
        if not asked(directory):
            raise TimeoutError(errno.ETIMEDOUT, f"the storage has not answered for {PATIENCE:.0f} s", str(directory))


def commit(paths: Sequence[Path]) -> None:
    """Give complete and durable components their final names, durably.

    Raises:
        OSError: the file system refuses.
    """
    for path in paths:
        temporary(path).rename(path)
    for directory in {path.parent for path in paths}:
        sync_directory(directory)


def delete(path: Path) -> int:
    """Remove a component, finished or temporary, and say how many bytes it had; nothing happens where there is none.

    Raises:
        OSError: it cannot be removed. A component's directory is made before the component is on record: where it is
            missing, a file system is not mounted.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its directory is not there (mount its file system)", str(path))
    removed = 0
    for file in (temporary(path), path):
        try:
            removed += file.stat().st_size
            file.unlink()
        except FileNotFoundError:
            continue
    return removed


def sync_directory(path: Path) -> None:
    """Make what happened to the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
