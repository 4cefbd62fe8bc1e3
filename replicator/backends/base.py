"""The interface of a storage back end: make the component files of a replica as its layout says (docs/backends.md)."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.striping import component_sizes
from pdla.model import Layout, Pool
from pdla.own_files import open_directory
from pdla.replicator.backends.originals import OriginalStriping

_libc = ctypes.CDLL(None, use_errno=True)
PATIENCE = 15.0
"""Storage that does not answer for so many seconds counts as lost."""


class Server(NamedTuple):
    """A server of a pool: the directory for its files, and the name that the storage gives the server, if any."""

    directory: Path
    name: str


class FoundServer(NamedTuple):
    """A server that the storage lists.

    ``kind`` is "hdd" or "ssd", ``group`` the storage's own pool of servers, if it has any, and
    ``why`` why no file can be made there; empty if one can.
    """

    name: str
    kind: str
    group: str = ""
    why: str = ""


@dataclass(frozen=True)
class NewComponent:
    """A file to make: ``size`` bytes at ``path``, on one server, or striped by the storage over several.

    The storage deals ``strips[i]`` bytes to ``servers[i]``, one server after the other, again and
    again from the file's first byte. On one server the strips do not matter. ``direct``: see
    ``Backend.direct``.
    """

    path: Path
    size: int
    servers: tuple[Server, ...]
    strips: tuple[int, ...]
    direct: bool = True


class Backend(ABC):
    """The storage of one pool.

    A back end must pass ``conformance.BackendTests`` and be registered under its ``name`` as an
    entry point of the group ``pdla.backends``.

    Components are files that every client sees under one path, so all back ends finish and remove
    them in the same way.
    """

    name: ClassVar[str]
    names_servers: ClassVar[bool] = False
    """Whether the storage names its servers (``servers`` of a pool); otherwise each server is a directory."""
    grain: ClassVar[str] = "4K"
    """Strips are multiples of it unless cluster.toml says otherwise: a page, or what the storage stripes by."""
    strip_by_strip: ClassVar[bool] = False
    """Whether clients send a server each strip of a request singly; other clients send it all at once."""
    cache_alone: ClassVar[bool] = False
    """Whether a client keeps in memory what it writes to a file only while no other client has it open."""
    direct: ClassVar[bool] = True
    """Whether large pieces are best written with O_DIRECT. Clients that send such writes singly are faster without."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.servers = tuple(
            Server(Path(directory).absolute(), name)
            for part in pool.parts or (pool,)
            for directory, name in _servers(part)
        )

    def obstacle(self, layout: Layout, size: int) -> str:
        """Not required. Why this pool cannot hold a replica of ``size`` bytes in this layout; empty if it can.

        The planner asks for every candidate. Ask the storage only once for what takes time.
        """
        if layout.servers > len(self.servers):
            return f"a layout over {layout.servers} servers needs as many in the pool (it has {len(self.servers)})"
        return ""

    def rule(self, layout: Layout, size: int) -> Layout:
        """Not required. How a replica of ``size`` bytes is striped over its component files.

        The answer is either the layout itself, with a component per server, or, if the storage
        itself stripes over the servers of a group, ``layout.by_group``, with a component per group.
        The catalog distinguishes the two by the number of components.
        """
        return layout

    def trouble(self, servers: Sequence[Server]) -> str:
        """Not required. What the storage itself reports as wrong with these servers now; empty if nothing.

        It is called every few seconds while a replica is built, and must answer soon even if the
        storage is lost.
        """
        return ""

    @classmethod
    def placement(cls, path: Path) -> str:
        """Not required. Where the storage says that a component is, in words that change only if the component moves.

        Raises:
            OSError: the storage cannot be asked.
            PdlaError: likewise.
        """
        return ""

    @classmethod
    def witness(cls, path: Path) -> str:
        """Not required. What the storage's own tool says of a component, in the words of ``placement``.

        Empty if there is no tool.
        """
        return ""

    @classmethod
    def original_striping(cls, path: Path) -> OriginalStriping | None:
        """Not required. How this storage stripes an original, any file of a user's.

        None: the file does not exist, or is on other storage.

        Raises:
            PdlaError: the file is on this storage, which cannot say it; the message says why.
        """
        return None

    @classmethod
    def original_witness(cls, path: Path) -> OriginalStriping | None:
        """Not required. What the storage's own tool says of an original. None: there is no tool.

        Raises:
            PdlaError: likewise, or the tool cannot be understood.
        """
        return None

    @classmethod
    def found_servers(cls, directory: Path) -> list[FoundServer]:
        """Not required. The servers of the storage that a directory is on, as ``servers`` of a pool names them.

        Raises:
            ConfigError: this back end cannot list its servers.
            PdlaError: the storage cannot be asked.
        """
        raise ConfigError(f"backend {cls.name!r} cannot list its servers")

    @abstractmethod
    def prepare(self, servers: Sequence[Server]) -> None:
        """Required. Check that these servers exist and that files can be made on them; it may make directories.

        Raises:
            ConfigError: the servers cannot be used; the message says what is missing.
        """

    @abstractmethod
    def free(self) -> list[int]:
        """Required. The bytes that can still be written, per server."""

    @abstractmethod
    def path(self, name: str, number: int, server: Server) -> Path:
        """Required. The absolute path of component ``number``, which begins on ``server``, of the replica ``name``.

        The answer is always the same, and no other name or number has the same path. ``name`` may
        contain folders.
        """

    @abstractmethod
    def create(self, component: NewComponent) -> int:
        """Required. Make the file ``temporary(component.path)``, accessible only to its owner, with its space reserved.

        It must read back from the storage that the file was placed as asked.

        Returns:
            A descriptor for reading and writing.

        Raises:
            PdlaError: there is no space or no permission, or the storage did not place the file as
                asked; no file is left.
        """

    def reserve(self, descriptor: int, component: NewComponent) -> None:  # noqa: B027
        """Not required. Reserve the space of a new component, if ``create`` can only check whether there is enough.

        It is called for write replicas. Other components need no reserve: what is built is read
        back.

        Raises:
            OSError: the component cannot be written.
            PdlaError: there is no space.
        """

    def check(self, layout: Layout, size: int) -> None:
        """Check that this storage is there and can hold a replica of ``size`` bytes in this layout.

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
    """The name of a component while it is being built."""
    return path.with_name(path.name + ".tmp")


def folder_in(directory: Path) -> Path:
    """The folder for this user's replicas in a pool's directory, which users may share, as /scratch."""
    return directory / f"pdla-replicas-{os.geteuid()}"


def make_folder(directory: Path) -> Path:
    """Make this user's folder in a directory that may belong to somebody else.

    Raises:
        OSError: the folder cannot be made, or others could replace what is in it.
    """
    folder = folder_in(directory)
    folder.mkdir(exist_ok=True, mode=0o700)
    os.close(open_directory(folder))
    return folder


def make_private(file: Path) -> int:
    """A descriptor of a new and empty file, accessible only to its owner, in a new directory likewise.

    Raises:
        PdlaError: the file cannot be made, or already exists.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PdlaError(f"cannot make {file}: {error.strerror}") from error


def reserve_space(descriptor: int, size: int) -> None:
    """Give an empty file its size, and reserve its space if the file system can.

    RATIONALE: where it cannot, posix_fallocate writes to every block.

    Raises:
        OSError: there is no space.
    """
    if size and _libc.fallocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)):
        if (number := ctypes.get_errno()) != errno.EOPNOTSUPP:
            raise OSError(number, os.strerror(number))
        os.ftruncate(descriptor, size)


@contextmanager
def preparing(pool: Pool) -> Iterator[None]:
    """Name the pool in what goes wrong.

    Raises:
        ConfigError: an OSError or PdlaError was raised.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"pool {pool.name}: cannot use {error.filename}: {error.strerror} (mount or make it)"
        ) from error
    except PdlaError as error:
        raise ConfigError(f"pool {pool.name}: {error}") from None


def responds(directory: Path) -> bool:
    """Whether storage answers within ``PATIENCE``, even if it only refuses: a file is made and removed.

    Another process tries that: a process that waits for lost storage often cannot be stopped, or
    even killed.
    """
    command = ["sh", "-c", 'file=$(mktemp -p "$0" .pdla-XXXXXX) && rm "$file"', str(directory)]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return False  # nobody stops the process: it removes its file when the storage is back
    return True


def ensure_responds(paths: Iterable[Path], asked: Callable[[Path], bool]) -> None:
    """Check that the storage of files answers; ``asked`` is ``responds``, or a function that remembers its answers.

    Raises:
        TimeoutError: it does not answer.
    """
    for directory in {path.parent for path in paths}:
        if not asked(directory):
            raise TimeoutError(errno.ETIMEDOUT, f"the storage has not answered for {PATIENCE:.0f} s", str(directory))


def commit(paths: Sequence[Path]) -> None:
    """Give complete and durable components their final names, and make that durable, too.

    Raises:
        OSError: the file system refuses.
    """
    for path in paths:
        temporary(path).rename(path)
    for directory in {path.parent for path in paths}:
        sync_directory(directory)


def delete(path: Path) -> int:
    """Remove a component, finished or temporary, and return its bytes; 0 if there is none.

    Raises:
        OSError: the component cannot be removed. Its directory is made before the component is on
            record: if the directory is missing, a file system is not mounted.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its directory is missing (is its file system mounted?)", str(path))
    removed = 0
    for file in (temporary(path), path):
        try:
            removed += file.stat().st_size
            file.unlink()
        except FileNotFoundError:
            continue
    return removed


def sync_directory(path: Path) -> None:
    """Make changes to the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
