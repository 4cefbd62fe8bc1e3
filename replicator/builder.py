"""Build replicas: copy an original into the components of a layout, in the order in which a program accesses it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pdla import config
from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, Checksum, Component, Lease, Replica
from pdla.errors import BusyError, PdlaError
from pdla.layouts.room import room, spaces
from pdla.layouts.striping import component_sizes, locate
from pdla.model import Identity, Layout, Plan, Pool, Signature
from pdla.replicator.backends import backend_of
from pdla.replicator.backends.base import commit, delete
from pdla.replicator.checksums import ComponentChecksums, first_damage, whole
from pdla.replicator.identity import identity_of, is_at, settled_identity
from pdla.replicator.mapfile import CHANGED, fold, publish
from pdla.replicator.transpose import Bytes, runs
from pdla.replicator.verify import components_unchanged, discard
from pdla.units import format_bytes

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and the bytes done so far and in all."""

IOV_MAX = 1024
MAX_THREADS = 8


@dataclass(frozen=True)
class BuiltReplica:
    """A replica that is ready; ``kept``: it was already there, of the same bytes in the same layout."""

    id: int
    original: Path
    layout: Layout
    bytes: int
    seconds: float
    kept: bool


def replicate(
    plan: Plan, catalog: Catalog, *, progress: Progress | None = None, map_path: Path | None = None
) -> list[BuiltReplica]:
    """Build what a plan chose and publish it for redirected runs; what is there already is kept.

    Raises:
        PdlaError: a replica cannot be built. Those built before it are published; of it nothing is left.
    """
    map_path = map_path or config.map_path()
    built = []
    try:
        for pattern in plan.patterns:
            layout = pattern.choice.layout
            if layout is not None:
                pool = plan.cluster.pool(layout.pool)
                built.append(build(pattern.signature, layout, pool, catalog, progress=progress, map_path=map_path))
    finally:
        publish(catalog, map_path)
        discard(catalog, [replica.id for replica in catalog.replicas("retired")], map_path)
    return built


def build(
    signature: Signature,
    layout: Layout,
    pool: Pool,
    catalog: Catalog,
    *,
    progress: Progress | None = None,
    map_path: Path | None = None,
) -> BuiltReplica:
    """Build, verify and register one replica; ``mapfile.publish`` then makes it known to redirected runs.

    Stale replicas of the original are removed first; a valid one of the same bytes in another layout is retired. One
    process at a time builds replicas of an original: it holds a lease of it.

    Raises:
        BusyError: another process builds a replica of this original.
        PdlaError: the pattern leaves the file, there is no space, the original changed while it was copied, or the
            lease was lost. Nothing is left of the replica.
    """
    began = time.monotonic()
    path = Path(signature.file).absolute()
    access_map = AccessMap.from_signature(signature)
    backend = backend_of(pool)
    backend.check(layout, access_map.size)
    with _opened(path) as source, _leased(catalog, source, path) as lease:
        identity = settled_identity(source, path)
        if access_map.extent[1] > identity.size:
            raise PdlaError(
                f"{path} has {identity.size} bytes, but the pattern {signature} reaches byte {access_map.extent[1]}: "
                "trace the program again"
            )
        with catalog.exclusive():
            same = _settle(catalog, path, identity, access_map, map_path or config.map_path())
            for old in same:
                if old.layout == layout:
                    return BuiltReplica(old.id, path, layout, old.size, time.monotonic() - began, kept=True)
            # More than the map's bytes where sections end within a strip.
            _check_capacity(catalog, pool, component_sizes(layout, access_map.size))
            catalog.set_original(path, identity)
            replica = catalog.begin_replica(identity, signature, access_map, layout, lease=lease)
            new = backend.components(f"{catalog.token}/{replica.id}", layout, access_map.size)
            paths, sizes = [component.path for component in new], [component.size for component in new]
            replica = catalog.set_components(replica.id, [Component(one.path, one.size) for one in new])
        try:
            with ExitStack() as stack:
                files = []
                for component in new:
                    files.append(backend.create(component))
                    stack.callback(os.close, files[-1])
                # Who was stopped for long may have lost the record of these files: soon is better than at the end.
                catalog.check(lease)
                checksums = _copy(source, path, replica, files, sizes, progress)
                _verify(files, paths, checksums, progress)
                for file in files:
                    _follow_owner(source, file)
                    os.fsync(file)
                with catalog.exclusive():
                    catalog.check(lease)
                    if identity_of(source) != identity or not is_at(path, identity):
                        raise PdlaError(
                            f"{path} was changed while it was copied: run pdla replicate again when it is at rest"
                        )
                    commit(paths)
                    components = [
                        _component(one, file, sums) for one, file, sums in zip(paths, files, checksums, strict=True)
                    ]
                    catalog.finish_replica(replica.id, components, checksums, lease)
                    for old in same:
                        catalog.mark(old.id, "retired", f"replaced by replica {replica.id}")
        except BaseException as error:
            with suppress(OSError, PdlaError):  # what stays is on record, and gc's
                for component in new:
                    delete(component.path)
                catalog.forget_replica(replica.id)
            if isinstance(error, OSError):
                raise PdlaError(f"cannot build a replica of {path}: {error}") from error
            raise
    return BuiltReplica(replica.id, path, layout, access_map.size, time.monotonic() - began, kept=False)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PdlaError(f"cannot read the original {path}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _leased(catalog: Catalog, source: int, path: Path) -> Iterator[Lease]:
    """The right to build replicas of this original, by whatever path."""
    found = os.fstat(source)
    with ExitStack() as stack:
        try:
            lease = stack.enter_context(catalog.leased(f"original {found.st_dev}:{found.st_ino}"))
        except BusyError as error:
            raise BusyError(f"{path}: {error}") from None
        yield lease


def _settle(catalog: Catalog, path: Path, identity: Identity, access_map: AccessMap, map_path: Path) -> list[Replica]:
    """Remove what is stale of this original, and return its valid replicas of the same bytes."""
    fold(catalog, map_path)
    stale, same = [], []
    for replica in catalog.replicas():
        original = replica.original
        if original.path != path and (original.identity.device, original.identity.inode) != (
            identity.device,
            identity.inode,
        ):
            continue
        if replica.state == "dirty":
            raise PdlaError(f"replica {replica.id} has what {path} has not yet: run pdla sync first")
        if replica.state == "valid" and original.identity != identity:
            catalog.mark(replica.id, "stale", CHANGED)
            stale.append(replica.id)
        elif replica.state != "valid" or not components_unchanged(replica):
            stale.append(replica.id)
        elif replica.access_map == access_map:
            same.append(replica)
    discard(catalog, stale, map_path)
    return same


def _check_capacity(catalog: Catalog, pool: Pool, sizes: Sequence[int]) -> None:
    left = room(pool.parts or (pool,), catalog.replicas())
    for space, needed in spaces(pool, sizes).items():
        if needed > left[space]:
            raise PdlaError(
                f"no room for {format_bytes(needed)} of a replica: {space} has {format_bytes(left[space])} left "
                "(pdla rm or pdla gc makes some)"
            )


def _copy(
    source: int, path: Path, replica: Replica, files: Sequence[int], sizes: Sequence[int], progress: Progress | None
) -> list[list[Checksum]]:
    """Copy the original into the components, and return the checksums of what was read."""
    os.posix_fadvise(source, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    sums = [ComponentChecksums(size) for size in sizes]
    done = 0
    for run in runs(source, path, replica.access_map):
        pieces: dict[int, list[tuple[int, Bytes]]] = {}
        for component, offset, length, logical in locate(replica.rule, run.start, run.start + len(run.data)):
            data = run.data[logical - run.start :][:length]
            sums[component].add(offset, data)
            pieces.setdefault(component, []).append((offset, data))
        for component, parts in pieces.items():
            _write(files[component], parts)
        done += len(run.data)
        if progress:
            progress(f"copying {path.name}", done, replica.size)
    return [component.finish() for component in sums]


def _write(file: int, parts: list[tuple[int, Bytes]]) -> None:
    """Write pieces in ascending order, those that follow one another in the file at once."""
    first = 0
    while first < len(parts):
        at = end = parts[first][0]
        stop = first
        while stop < min(len(parts), first + IOV_MAX) and parts[stop][0] == end:
            end += len(parts[stop][1])
            stop += 1
        buffers = [data.data for _, data in parts[first:stop]]
        while at < end:
            count = os.pwritev(file, buffers, at)
            at += count
            while buffers and count >= len(buffers[0]):
                count -= len(buffers.pop(0))
            if count:
                buffers[0] = buffers[0][count:]
        first = stop


def _verify(
    files: Sequence[int], paths: Sequence[Path], checksums: Sequence[Sequence[Checksum]], progress: Progress | None
) -> None:
    """Make the components durable, read them back from storage and compare with what was read from the original."""
    total = sum(checksum.length for component in checksums for checksum in component)
    done = 0
    with ThreadPoolExecutor(min(len(files), MAX_THREADS)) as servers:
        for path, component, right in zip(paths, checksums, servers.map(_is_stored, files, checksums), strict=True):
            if not right:
                raise PdlaError(f"{path} did not come back from storage as it was written: nothing was replicated")
            done += sum(checksum.length for checksum in component)
            if progress:
                progress("verifying", done, total)


def _is_stored(file: int, checksums: Sequence[Checksum]) -> bool:
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return first_damage(file, checksums) is None


def _follow_owner(source: int, file: int) -> None:
    """The original's owner and mode; where the owner cannot be followed, nobody but its own."""
    original, component = os.fstat(source), os.fstat(file)
    mode = stat.S_IMODE(original.st_mode) & 0o666
    if (original.st_uid, original.st_gid) != (component.st_uid, component.st_gid):
        try:
            os.fchown(file, original.st_uid, original.st_gid)
        except PermissionError:
            mode &= 0o600
    os.fchmod(file, mode)


def _component(path: Path, file: int, checksums: list[Checksum]) -> Component:
    found = os.fstat(file)
    return Component(path, found.st_size, found.st_ino, found.st_mtime_ns, whole(checksums))
