"""Test what the file system of a directory can do, and say what follows from what it cannot."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pdla.errors import PdlaError
from pdla.mounts import Mount, mount_of
from pdla.replicator.backends.base import PATIENCE, responds
from pdla.replicator.file_identity import identify
from pdla.replicator.identity import COARSE_SECONDS, TICK_SECONDS
from pdla.units import KiB, MiB, format_bytes, format_seconds

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "pvfs2", "wekafs", "afs", "9p", "fuse")
"""Types of file systems that several nodes may mount; ``fuse`` stands for all ``fuse.*``."""
IN_MEMORY = ("tmpfs", "ramfs")
SKEW_SECONDS = 1.0
"""Half of the difference of clocks that ``pdla sync`` allows for."""
SKEWED = "after a kill, pdla sync may not tell whose a write was: keep the clocks together with NTP"
NFS_SECONDS = {"acregmin": "3", "acregmax": "60"}  # nfs(5)

_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2  # linux/falloc.h
_ACL = struct.pack("<I", 2) + b"".join(  # linux/posix_acl_xattr.h: version, then tag, permissions and id
    struct.pack("<HHI", tag, permissions, 0xFFFFFFFF) for tag, permissions in ((0x01, 6), (0x04, 0), (0x20, 0))
)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Fact:
    """What was found out about one ability, in words.

    trouble: what pdla cannot do because of it, or what may go wrong; empty if all is well.
    """

    name: str
    found: str
    trouble: str = ""


def probe_directory(directory: Path) -> list[Fact]:
    """Try each ability on scratch files in a directory; takes up to 5 s where times of files are coarse.

    Raises:
        PdlaError: no file can be made there, or its storage does not answer.
    """
    check(directory)
    tries = (_mappings, _locks, _direct, _times, _clock, _space, _holes, _lists)
    mount = mount_of(directory)
    return [*_mounted(directory, mount), *_striped(directory), *(_tried(directory, ability) for ability in tries)]


def check(directory: Path) -> None:
    """Check that a directory can be tried.

    Raises:
        PdlaError: it is none, or its storage does not answer.
    """
    if not responds(directory):
        raise PdlaError(f"{directory}: its storage has not answered for {PATIENCE:.0f} s")
    if not directory.is_dir():
        raise PdlaError(f"{directory} is not a directory")


def _tried(directory: Path, ability: Callable[[Path], Fact]) -> Fact:
    with _scratch(directory) as file:
        return ability(file)


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    try:
        descriptor, name = tempfile.mkstemp(prefix=".pdla-doctor-", dir=directory)
        os.close(descriptor)
    except OSError as error:
        raise PdlaError(f"{directory}: no file can be made here: {error.strerror}") from None
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _mounted(directory: Path, mount: Mount | None) -> Iterator[Fact]:
    if mount is None:
        yield Fact("mount", "not in the list of mounts")
        return
    gone = "its files are gone after a restart" if mount.kind in IN_MEMORY else ""
    yield Fact("mount", f"{mount.kind} of {mount.source or 'no device'} at {mount.point}", gone)
    if not is_network(mount):
        yield Fact("nodes", f"{mount.kind} is mounted by one node", "replicas here serve the ranks of this node only")
        return
    yield Fact("nodes", "may be mounted by several (mpiexec -n 2 -ppn 1 pdla doctor DIR compares two)")
    if mount.kind.startswith("nfs"):
        yield _attribute_cache(mount)
        yield from _local_locks(mount)
    if mount.kind == "lustre" and mount.option("localflock") is not None:
        yield Fact("lock option", "localflock", "locks hold on this node only: no --writes on several nodes")


def _striped(directory: Path) -> Iterator[Fact]:
    """How a new file is striped, if its file system says it of files."""
    from pdla.replicator.backends.originals import striping_of

    with _scratch(directory) as file:
        file.write_bytes(b"a")
        try:
            if found := striping_of(file):
                yield Fact("new files", f"{found}, as {found.system} says")
        except PdlaError as error:
            yield Fact("new files", f"{error}", "plans take such files as [home] says, and iBridge leaves them alone")


def is_network(mount: Mount) -> bool:
    """Whether other nodes may have the same file system."""
    return mount.kind.partition(".")[0] in NETWORK


def _attribute_cache(mount: Mount) -> Fact:
    """How long another node's change may stay unseen, by nfs(5)."""
    if mount.option("noac") is not None or mount.option("actimeo") == "0":
        return Fact("attribute cache", "none")
    least, most = (mount.option("actimeo") or mount.option(name) or NFS_SECONDS[name] for name in NFS_SECONDS)
    return Fact(
        "attribute cache",
        f"{least} to {most} s",
        f"the next read may miss a change that another node made to an original less than {most} s ago",
    )


def _local_locks(mount: Mount) -> Iterator[Fact]:
    local = mount.option("local_lock")
    if mount.option("nolock") is not None or local in ("all", "posix"):
        name = "nolock" if mount.option("nolock") is not None else f"local_lock={local}"
        yield Fact("lock option", name, "locks hold on this node only: no --writes on several nodes")


def _mappings(file: Path) -> Fact:
    """What is written through a shared mapping is read through another open file, and the other way round."""
    name, need = "shared mappings", "$PDLA_HOME and its journals cannot be here"
    with file.open("r+b", buffering=0) as one, file.open("r+b", buffering=0) as other:
        one.truncate(mmap.PAGESIZE)
        try:
            mapped = mmap.mmap(one.fileno(), mmap.PAGESIZE)
        except OSError as error:
            return Fact(name, f"refused ({error.strerror})", need)
        with mapped:
            mapped[:6] = b"mapped"
            forth = os.pread(other.fileno(), 6, 0) == b"mapped"
            os.pwrite(other.fileno(), b"written", 64)
            back = mapped[64:71] == b"written"
    return Fact(name, "coherent with reads and writes") if forth and back else Fact(name, "not coherent", need)


def _locks(file: Path) -> Fact:
    """An open-file-description lock refuses another open file, outlives a third one, and ends with its own."""
    name, need = "locks", "no --writes here, and $PDLA_HOME cannot be here"
    with file.open("r+b") as other:
        with file.open("r+b") as one:
            try:
                _lock(one.fileno())
            except OSError as error:
                return Fact(name, f"refused ({error.strerror})", need)
            file.open("r+b").close()
            if not _is_locked(other.fileno()):
                return Fact(name, "do not hold", need)
        if _is_locked(other.fileno()):
            return Fact(name, "stay after their file was closed", need)
    return Fact(name, "open-file-description locks hold")


def _lock(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _is_locked(descriptor: int) -> bool:
    try:
        _lock(descriptor)
    except OSError:
        return True
    return False


def _direct(file: Path) -> Fact:
    name, cached = "direct I/O", "replicas are built, and storage is calibrated, through the page cache"
    mount = mount_of(file)
    if mount and mount.kind in IN_MEMORY:
        return Fact(name, f"{mount.kind} is memory")
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_DIRECT)
    except OSError as error:
        return Fact(name, f"refused ({error.strerror})", cached)
    try:
        with mmap.mmap(-1, 4 * KiB) as aligned:
            for block in (512, 4 * KiB):
                with suppress(OSError), memoryview(aligned)[:block] as piece:
                    if os.pwrite(descriptor, piece, 0) == block:
                        return Fact(name, f"in blocks of {format_bytes(block)}")
    finally:
        os.close(descriptor)
    return Fact(name, "not in blocks of 4 KiB", cached)


def _times(file: Path) -> Fact:
    """The steps of the time of change, and whether a write, and a time that is set back, show in it."""
    name = "times of files"
    with file.open("r+b", buffering=0) as opened:
        seen = _changes(opened.fileno())
        if len(seen) < 2:
            return Fact(name, "a write does not change them", "a stale replica of a file here could not be recognized")
        before = os.fstat(opened.fileno())
        tick = min(after - first for first, after in pairwise(seen)) / 1e9
        time.sleep(1.1 * tick)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        if os.fstat(opened.fileno()).st_ctime_ns == before.st_ctime_ns:
            return Fact(
                name, "a time that is set back does not show", "only pdla verify finds a change that hides itself so"
            )
        born = "time of birth" if identify(opened.fileno()).birth_ns else "no time of birth"
    found = f"steps of {format_seconds(tick)}, {born}"
    coarse = tick > TICK_SECONDS and not 0.9 < tick < 1.1 * COARSE_SECONDS  # whole seconds are known
    return Fact(name, found, f"a change within {format_seconds(tick)} of a copy may stay unseen" if coarse else "")


def _changes(descriptor: int) -> list[int]:
    """Up to four times of change that a file gets while it is written for up to 5 s, in nanoseconds."""
    seen: list[int] = []
    end = time.monotonic() + 2.5 * COARSE_SECONDS
    while len(seen) < 4 and time.monotonic() < end:
        os.pwrite(descriptor, b"x", 0)
        found = os.fstat(descriptor).st_ctime_ns
        if not seen or found != seen[-1]:
            seen.append(found)
    return seen


def _clock(file: Path) -> Fact:
    """How far the clock that stamps files is from this machine's."""
    before = time.time()
    file.write_bytes(b"x")
    stamped, after = file.stat().st_mtime_ns / 1e9, time.time()
    skew = min(stamped - before, 0.0) + max(stamped - after, 0.0)  # within the write: no skew
    if stamped == int(stamped) and abs(skew) <= COARSE_SECONDS:  # whole seconds are rounded down
        skew = 0.0
    direction = "ahead of" if skew > 0 else "behind"
    found = (
        "that of this machine" if abs(skew) < TICK_SECONDS else f"{format_seconds(abs(skew))} {direction} this one's"
    )
    return Fact("clock of files", found, SKEWED if abs(skew) > SKEW_SECONDS else "")


def _space(file: Path) -> Fact:
    found = os.statvfs(file)
    free = f"{format_bytes(found.f_bavail * found.f_frsize)} free"
    refused = _fallocate(file, 0, MiB)
    if not refused:
        return Fact("space", f"{free}, can be reserved")
    why = "a build reserves space by writing zeros" if refused in (errno.EOPNOTSUPP, errno.ENOSYS) else ""
    return Fact("space", f"{free}, cannot be reserved ({os.strerror(refused)})", why)


def _holes(file: Path) -> Fact:
    file.write_bytes(bytes(MiB))
    refused = _fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, MiB)
    wrong = "the holes of an original take space in its replica"
    return Fact("holes", f"refused ({os.strerror(refused)})", wrong) if refused else Fact("holes", "can be punched")


def _fallocate(file: Path, mode: int, size: int) -> int:
    """The error of fallocate(2), or 0. glibc's posix_fallocate hides that a file system has none."""
    with file.open("r+b") as opened:
        whole = ctypes.c_int64
        refused = _libc.fallocate(opened.fileno(), mode, whole(0), whole(size)) != 0
        return ctypes.get_errno() if refused else 0


def _lists(file: Path) -> Fact:
    name = "access lists"
    try:
        os.setxattr(file, "system.posix_acl_access", _ACL)
    except OSError as error:
        wrong = "only its owner uses the replica of an original that has an access control list"
        return Fact(name, f"refused ({error.strerror})", wrong)
    return Fact(name, "POSIX access control lists are kept")
